package toolworker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// The streams and the result in chunks of a tool are the same in a worker as in the runtime.
func TestContentOfTools(t *testing.T) {
	content := strings.Repeat("line é\n", 20_000) // several chunks
	write := func(_ context.Context, job tool.Job, _ struct{}) (any, error) {
		text, openErr := job.OpenStream(tool.StreamOptions{Name: "text"})
		events, eventsErr := job.OpenStream(tool.StreamOptions{Name: "events", Kind: arcp.StreamEvents})
		res, resErr := job.Result(tool.ResultOptions{Binary: true, ContentType: "application/x-report"})
		if err := errors.Join(openErr, eventsErr, resErr); err != nil {
			return nil, err
		}
		_, textErr := io.WriteString(text, content)
		_, resultErr := io.WriteString(res, content)
		err := errors.Join(textErr, resultErr, events.WriteJSON(map[string]int{"n": 1}), events.WriteJSON(map[string]int{"n": 2}), text.Close(),
			events.CloseWithError(arcp.Errorf(arcp.CodeDataLoss, "half of them are lost")), res.CloseWithSummary("a report"))
		if _, second := job.Result(tool.ResultOptions{}); second == nil {
			return nil, errors.New("the job has a second result")
		}
		return nil, err
	}
	for _, inWorker := range []bool{false, true} {
		t.Run(fmt.Sprintf("worker %t", inWorker), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				defer f.close()
				defer f.offer(inWorker, nil, tool.MustNew(tool.Capability{Name: "t"}, write))()
				user := f.connect(client.Handlers{})
				defer user.Abort()
				job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "t"})
				if err != nil {
					t.Fatal(err)
				}
				var streams client.Streams
				var parts client.ResultParts
				got := make(map[string]string)
				for ev, err := range job.Events(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					parts.Receive(&ev)
					st, data, err := streams.Receive(&ev)
					if err != nil {
						t.Fatal(err)
					}
					if st != nil {
						got[st.Name] += string(data)
						if st.Err != nil {
							got[st.Name] += st.Err.Error()
						}
					}
				}
				res, err := job.Wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				data, err := parts.Content(&res)
				if err != nil || string(data) != content || res.ContentType != "application/x-report" || res.Summary != "a report" {
					t.Errorf("result: %d bytes, %v, %+v", len(data), err, res.JobCompletedPayload)
				}
				if got["text"] != content {
					t.Errorf("the text has %d bytes, want %d", len(got["text"]), len(content))
				}
				if want := `{"n":1}{"n":2}stream.error: DATA_LOSS: half of them are lost`; got["events"] != want {
					t.Errorf("events: %s, want %s", got["events"], want)
				}
			})
		})
	}
}

// A stream that a client has cancelled is an error of the worker's tool, which goes on.
func TestCancelOfStreamInWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.close()
		more := make(chan struct{})
		defer f.offer(true, nil, tool.MustNew(tool.Capability{Name: "t"}, func(_ context.Context, job tool.Job, _ struct{}) (string, error) {
			st, err := job.OpenStream(tool.StreamOptions{})
			if err != nil {
				return "", err
			}
			<-more
			_, err = io.WriteString(st, "late")
			e, _ := arcp.AsError(err)
			return string(e.Code), nil
		}))()
		user := f.connect(client.Handlers{})
		defer user.Abort()
		job, err := user.Invoke(t.Context(), client.InvokeParams{Tool: "t"})
		if err != nil {
			t.Fatal(err)
		}
		var stream arcp.StreamID
		for ev, err := range job.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if stream = ev.StreamID; stream != "" {
				break
			}
		}
		answer, err := user.Call(t.Context(), arcp.Frame(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetStream, TargetID: string(stream)}))
		if err != nil || answer.Type != arcp.CancelAccepted {
			t.Fatalf("cancel: %s %s, %v", answer.Type, answer.Payload, err)
		}
		close(more)
		res, err := job.Wait(t.Context())
		if err != nil || string(res.Value) != `"CANCELLED"` {
			t.Errorf("%s, %v", res.Value, err)
		}
	})
}
