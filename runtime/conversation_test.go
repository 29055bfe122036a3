package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// submit submits a job and returns the id it was accepted under.
func (p *peer) submit(name, args string) arcp.JobID {
	p.Helper()
	p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, name, args))
	return p.until("job.accepted").JobID
}

// Frames in order, numbers without a gap, and the answers of submits in the
// order of the submits.
func TestSubmitsAreAnsweredInOrder(t *testing.T) {
	const jobs = 200
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		go func() {
			for i := range jobs {
				_, _ = p.try("tool.invoke", []string{`{"tool":"demo.echo"}`, `{"tool":"demo.none"}`, `{"tool":7}`,
					`{"tool":"demo.fail","arguments":{"code":"ABORTED","message":"x"}}`}[i%4])
			}
		}()
		var seq uint64
		answered, ended := make(map[arcp.MessageID]bool), 0
		for ended < jobs {
			env := p.read()
			if env.EventSeq != 0 {
				if seq++; env.EventSeq != seq {
					f.Fatalf("event_seq %d after %d", env.EventSeq, seq-1)
				}
			}
			if !answered[env.CorrelationID] {
				answered[env.CorrelationID] = true
				if want := arcp.MessageID(fmt.Sprintf("msg_%d", len(answered)+1)); env.CorrelationID != want {
					f.Fatalf("%s is answered before %s", env.CorrelationID, want)
				}
			}
			if env.Type.Terminal() || env.Type == arcp.Nack {
				ended++
			}
		}
	})
}

// If events that the session was not sent are no longer kept, the connection ends: it never
// has a gap.
func TestConnectionEndsBeforeAGap(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		p.submit("demo.emit", `{"count":3000,"bytes":30000,"delay_ms":1000}`) // 90 MB: more than is kept in memory
		time.Sleep(5 * time.Second)
		// This trims events that the client has not read.
		results := make([]store.Result, 1)
		if err := f.st.Store.Commit([]*store.Write{store.NewWrite(&store.TrimSession{Session: p.session, Seq: 2000})}, results); err != nil {
			f.Fatal(err)
		}
		if why := string(p.until("backpressure").Payload); !strings.Contains(why, "backlog_overflow") {
			t.Errorf("backpressure %s", why)
		}
		p.closed("a gap", transport.CloseOverloaded)
	})
}

// counting counts the events that are read of jobs' logs.
type counting struct {
	store.Store
	read atomic.Int64
}

func (c *counting) JobEvents(ctx context.Context, id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	return c.Store.JobEvents(ctx, id, after, func(e *store.Event) bool {
		c.read.Add(1)
		return fn(e)
	})
}

// A late position in a long log is found without reading the events before it.
func TestLatePositionIsFoundWithoutReadingBefore(t *testing.T) {
	const events = 5000
	var read *counting
	inBubble(t, func(c *runtime.Config) { read = &counting{Store: c.Store}; c.Store = read }, func(f *fixture) {
		owner := f.dial("alice")
		owner.send("tool.invoke", `{"tool":"demo.echo"}`) // so that numbers and places differ
		owner.until("job.completed")
		owner.send("tool.invoke", fmt.Sprintf(`{"tool":"demo.emit","arguments":{"count":%d,"bytes":1}}`, events-3))
		end := owner.until("job.completed")
		first := end.EventSeq - events + 1
		for _, from := range []uint64{1, first - 1, first, first + 1, first + 1234, end.EventSeq - 2, end.EventSeq - 1, end.EventSeq} {
			read.read.Store(0)
			p := f.dial("alice")
			p.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true,"from_event_seq":%d}`, end.JobID, from))
			p.until("job.subscribed")
			if n := read.read.Load(); n > 20 {
				t.Errorf("%d events were read to find the position %d", n, from)
			}
			p.send("ping", "{}")
			next := p.read()
			if from == end.EventSeq {
				if next.Type != arcp.Pong {
					t.Errorf("after the last event comes %s", next.Type)
				}
				continue
			}
			var at struct {
				Origin struct {
					Seq uint64 `json:"event_seq"`
				} `json:"arcpx.arcp.origin.v1"`
			}
			for next.Type == arcp.Pong {
				next = p.read()
			}
			if err := arcp.Unmarshal(next.Extensions, &at); err != nil || at.Origin.Seq != max(from+1, first) {
				t.Errorf("after %d comes %d (%v)", from, at.Origin.Seq, err)
			}
			_ = p.conn.Abort()
		}
	})
}
