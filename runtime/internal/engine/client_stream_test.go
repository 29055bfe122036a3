package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// readsStreams makes the jobs of a tool read streams, one job at a time.
func readsStreams(c *tool.Capability) {
	c.Limits.Concurrency, c.ReadsStreams, c.Interruptible = 1, true, true
}

// readStream returns the content of a stream of a client.
func readStream(ctx context.Context, j tool.Job) (arcp.Raw, error) {
	st, err := j.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(st)
	return arcp.AppendString(nil, string(content)), err
}

// accepted returns the jobs that were accepted since the last call of frames.
func (f *fixture) accepted() (jobs []arcp.JobID) {
	f.Helper()
	for _, fr := range f.frames("sess_1") {
		if fr.Type == arcp.JobAccepted {
			jobs = append(jobs, fr.JobID)
		}
	}
	return jobs
}

// sendHello writes a stream of one chunk to a job that has opened it.
func (f *fixture) sendHello(from Requester) {
	f.Helper()
	err := f.e.Streams().Write(from, "str_x", &arcp.StreamChunkPayload{Data: arcp.Raw(`"hello"`)})
	if err == nil {
		err = f.e.Streams().End(from, "str_x", new(uint64(0)), nil)
	}
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) wantValue(value string) {
	f.Helper()
	frames := f.frames("sess_1")
	last := frames[len(frames)-1]
	if p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&last.Envelope); err != nil || string(p.Value) != value {
		f.Errorf("%s %s, %v, want the value %s", last.Type, last.Payload, err, value)
	}
}

// A stream to a job that waits for a slot is there when the job starts. A command to the job before that
// does not end it.
func TestClientStreamToQueuedJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		first := make(chan struct{})
		f.tool("t", readsStreams, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if string(args) == `1` {
				<-first
				return args, nil
			}
			return readStream(ctx, j)
		})
		f.submit("t", `1`)
		f.submit("t", `2`)
		queued := f.accepted()[1]
		from := f.requester()
		f.e.Streams().Open(from, queued, "str_x", &arcp.StreamOpenPayload{Kind: arcp.StreamText})
		f.e.Interrupt(from, &arcp.InterruptPayload{Target: arcp.TargetJob, TargetID: string(queued), Prompt: "wait"})
		synctest.Wait() // the interrupt is refused
		f.sendHello(from)
		close(first)
		f.wantValue(`"hello"`)
	})
}

// A tool that goes on after the end of its attempt gets no stream of the next attempt.
func TestClientStreamIsForTheLastAttempt(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		late := make(chan error, 1)
		f.tool("t", func(c *tool.Capability) {
			readsStreams(c)
			c.Retry = tool.Retry{MaxAttempts: 2}
		}, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if j.Attempt() == 2 {
				time.Sleep(time.Minute) // the stream waits
				return readStream(ctx, j)
			}
			go func() {
				time.Sleep(30 * time.Second)
				_, err := j.AcceptStream(context.Background())
				late <- err
			}()
			return nil, arcp.Errorf(arcp.CodeUnavailable, "once more")
		})
		f.submit("t", `{}`)
		job := f.accepted()[0]
		time.Sleep(20 * time.Second) // the second attempt runs
		from := f.requester()
		f.e.Streams().Open(from, job, "str_x", &arcp.StreamOpenPayload{Kind: arcp.StreamText})
		f.sendHello(from)
		if err := <-late; !errors.Is(err, errEnded) {
			t.Errorf("AcceptStream of the first attempt = %v", err)
		}
		time.Sleep(time.Minute)
		f.wantValue(`"hello"`)
	})
}

// A tool closes a stream before its end: the client is told once, the next frames of the stream find none, and
// the stream counts no more.
func TestToolClosesClientStream(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		closed := make(chan *tool.ClientStream)
		f.tool("t", readsStreams, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			for range maxClientStreams + 1 {
				st, err := j.AcceptStream(ctx)
				if err != nil {
					return nil, err
				}
				if _, err := st.Next(); err != nil {
					return nil, err
				}
				st.CloseWithError(errors.New("enough"))
				st.CloseWithError(errors.New("once more"))
				closed <- st
			}
			return args, nil
		})
		f.submit("t", `1`)
		job := f.accepted()[0]
		from := f.requester()
		for range maxClientStreams + 1 {
			f.e.Streams().Open(from, job, "str_x", &arcp.StreamOpenPayload{Kind: arcp.StreamText})
			f.frames("sess_1")
			chunk := arcp.StreamChunkPayload{Data: arcp.Raw(`"hello"`)}
			if err := f.e.Streams().Write(from, "str_x", &chunk); err != nil {
				t.Fatal(err)
			}
			st := <-closed
			if _, err := st.Next(); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("Next of a closed stream: %v", err)
			}
			var errs []string
			for _, fr := range f.frames("sess_1") {
				if fr.Type == arcp.StreamError && fr.StreamID == "str_x" && fr.EventSeq == 0 {
					errs = append(errs, string(fr.Payload))
				}
			}
			if len(errs) != 1 || !strings.Contains(errs[0], `"UNKNOWN","message":"enough"`) {
				t.Errorf("the client is told %q, want one error", errs)
			}
			chunk.Sequence = 1
			if err := f.e.Streams().Write(from, "str_x", &chunk); err == nil || err.Code != arcp.CodeNotFound {
				t.Errorf("a chunk of a closed stream: %v", err)
			}
		}
	})
}
