package runtime_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A session has 1,024 streams open at once: 64 of each of 16 jobs. Each has its chunks in order.
func TestManyStreamsOfASession(t *testing.T) {
	const jobs, perJob, chunks = 16, 64, 3
	inBubble(t, nil, func(f *fixture) {
		proceed := make(chan struct{})
		if err := f.rt.AddTool(streamsTool(perJob, chunks, proceed)); err != nil {
			t.Fatal(err)
		}
		c, _ := f.client("alice", client.Handlers{})
		defer c.Abort()
		var started []*client.Job
		for range jobs {
			job, err := c.Invoke(f.Context(), client.InvokeParams{Tool: "many"})
			if err != nil {
				t.Fatal(err)
			}
			started = append(started, job)
		}
		var streams client.Streams
		content := make(map[arcp.StreamID]string)
		// read reads the events of a job until each of its streams had one of a type.
		read := func(job *client.Job, last arcp.Type) {
			n := 0
			for ev, err := range job.Events(f.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				st, data, err := streams.Receive(&ev)
				if err != nil {
					t.Fatal(err)
				}
				if st != nil {
					content[ev.StreamID] += string(data)
				}
				if ev.Type == last {
					n++
				}
				if n == perJob {
					return
				}
			}
			t.Fatalf("a job had %d events %s, want %d", n, last, perJob)
		}
		for _, job := range started {
			read(job, arcp.StreamOpen)
		}
		close(proceed)
		for _, job := range started {
			read(job, arcp.StreamClose)
		}
		if len(content) != jobs*perJob {
			t.Errorf("%d streams, want %d", len(content), jobs*perJob)
		}
		for id, text := range content {
			if text != "012" {
				t.Fatalf("the stream %s has %q, want 012", id, text)
			}
		}
	})
}

// streamsTool returns a tool that opens as many streams as a job may have. When proceed is closed it writes
// numbered chunks to all of them in turn, and closes them.
func streamsTool(perJob, chunks int, proceed <-chan struct{}) *tool.Tool {
	return tool.MustNew(tool.Capability{Name: "many"}, func(ctx context.Context, job tool.Job, _ struct{}) (any, error) {
		var streams []*tool.Stream
		for n := range perJob {
			st, err := job.OpenStream(tool.StreamOptions{Name: fmt.Sprint(n)})
			if err != nil {
				return nil, err
			}
			streams = append(streams, st)
		}
		if _, err := job.OpenStream(tool.StreamOptions{}); err == nil {
			return nil, arcp.Errorf(arcp.CodeInternal, "a job has more than %d streams", perJob)
		}
		select {
		case <-proceed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		for n := range chunks {
			for _, st := range streams {
				if _, err := fmt.Fprintf(st, "%d", n); err != nil {
					return nil, err
				}
			}
		}
		for _, st := range streams {
			if err := st.Close(); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}
