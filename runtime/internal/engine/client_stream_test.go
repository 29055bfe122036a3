package engine

import (
	"context"
	"io"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A stream to a job that waits for a slot is there when the job starts.
func TestClientStreamToQueuedJob(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		first := make(chan struct{})
		f.tool("t", func(c *tool.Capability) { c.Limits.Concurrency, c.ReadsStreams = 1, true },
			func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				if string(args) == `1` {
					<-first
					return args, nil
				}
				st, err := j.AcceptStream(ctx)
				if err != nil {
					return nil, err
				}
				content, err := io.ReadAll(st)
				return arcp.AppendString(nil, string(content)), err
			})
		f.submit("t", `1`)
		f.submit("t", `2`)
		var jobs []arcp.JobID
		for _, fr := range f.frames("sess_1") {
			if fr.Type == arcp.JobAccepted {
				jobs = append(jobs, fr.JobID)
			}
		}
		from := f.requester()
		from.Answers = f.session("sess_1")
		if err := f.e.OpenClientStream(from, jobs[1], "str_x", &arcp.StreamOpenPayload{Kind: arcp.StreamText}); err != nil {
			t.Fatal(err)
		}
		if err := f.e.WriteClientStream(from, "str_x", &arcp.StreamChunkPayload{Data: arcp.Raw(`"hello"`)}); err != nil {
			t.Fatal(err)
		}
		if err := f.e.EndClientStream(from, "str_x", new(uint64(0)), nil); err != nil {
			t.Fatal(err)
		}
		close(first)
		frames := f.frames("sess_1")
		last := frames[len(frames)-1]
		if p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&last.Envelope); err != nil || string(p.Value) != `"hello"` {
			t.Errorf("%s %s, %v", last.Type, last.Payload, err)
		}
	})
}
