package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Emitted events wait for the store in a bounded queue. The tool blocks while the queue is
// full, and no event is lost or reordered.
func TestEmitsAreBounded(t *testing.T) {
	const events = 5 * maxQueuedEvents
	runEngine(t, nil, func(f *fixture) {
		emitted := make(chan int, events)
		f.tool("t", withoutSideEffect, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for n := range events {
				if err := j.Log("info", fmt.Sprint(n), nil); err != nil {
					return nil, err
				}
				emitted <- n
			}
			return nil, nil
		})
		f.session("sess_1")
		release := f.st.hold()
		f.submit("t", "{}")
		f.st.gate <- struct{}{} // the claim
		f.frames("sess_1")
		if n := len(emitted); n > 2*maxQueuedEvents || n < maxQueuedEvents {
			t.Errorf("%d events emitted while the store stood still, want about the bound of %d", n, maxQueuedEvents)
		}
		release()
		n := 0
		for _, fr := range f.frames("sess_1") {
			if p, err := arcp.DecodePayload[arcp.LogPayload](&fr.Envelope); fr.Type == arcp.Log && err == nil {
				if p.Message != fmt.Sprint(n) {
					f.Fatalf("event %s, want %d", p.Message, n)
				}
				n++
			}
		}
		if n != events {
			t.Errorf("%d events, want %d", n, events)
		}
	})
}

// Large events are bounded by their bytes.
func TestEmitsAreBoundedByBytes(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		emitted := make(chan int, 100)
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for n := range 20 {
				if err := j.Log("info", strings.Repeat("x", 300<<10), nil); err != nil {
					return nil, err
				}
				emitted <- n
			}
			return nil, nil
		})
		f.session("sess_1")
		release := f.st.hold()
		f.submit("t", "{}")
		f.st.gate <- struct{}{}
		f.frames("sess_1")
		if n := len(emitted); n > 2*maxQueuedBytes/(300<<10)+2 {
			t.Errorf("%d events of 300 KiB emitted while the store stood still", n)
		}
		release()
		if n := len(f.frames("sess_1")); n != 20+2 {
			t.Errorf("%d frames, want the rest of the 20 events", n)
		}
	})
}

// An event that the protocol has no room for is refused to the tool, and no
// harm to the job.
func TestEmitRefused(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			nan := 0.0
			for why, err := range map[string]error{
				"too large":           j.Log("info", strings.Repeat("x", maxPayload), nil),
				"not encodable":       j.Emit("n", func() {}),
				"not JSON":            j.Emit("n", arcp.Raw("{")),
				"without a name":      j.Emit("", nil),
				"without a unit":      j.Metric(arcp.MetricPayload{Name: "n"}),
				"going backwards":     j.Progress(arcp.JobProgressPayload{Current: -1}),
				"no number":           j.Progress(arcp.JobProgressPayload{Current: nan / nan}),
				"of another level":    j.Log("notice", "m", nil),
				"of no level":         j.Log("", "m", nil),
				"attributes not JSON": j.Log("info", "m", arcp.Raw("nope")),
			} {
				if e, ok := errors.AsType[*arcp.Error](err); !ok || e.Code != arcp.CodeInvalidArgument && e.Code != arcp.CodeResourceExhausted {
					t.Errorf("an event that is %s: %v, want it refused", why, err)
				}
			}
			return nil, j.Log("info", "still here", nil)
		})
		f.submit("t", "{}")
		f.want("the valid event is taken", "job.accepted", "job.started", "log", "job.completed")
	})
}

func TestProgressPercent(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return nil, errors.Join(j.Progress(arcp.JobProgressPayload{Current: 1, Total: new(4.0)}),
				j.Progress(arcp.JobProgressPayload{Current: 1, Total: new(0.0)}))
		})
		f.submit("t", "{}")
		frames := f.want("both events are taken", "job.accepted", "job.started", "job.progress", "job.progress", "job.completed")
		if got := string(frames[2].Payload); !strings.Contains(got, `"percent":25`) {
			t.Errorf("%s: want the percentage said too", got)
		}
		if got := string(frames[3].Payload); strings.Contains(got, "percent") {
			t.Errorf("%s: there is no percentage of nothing", got)
		}
	})
}
