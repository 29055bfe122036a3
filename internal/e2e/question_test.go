package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// Questions that are pending when the server is killed are asked again after its restart, of
// the people connected then. Two people answer at the same instant; one answer counts, and
// every job continues with it.
func TestQuestionsOverKillNine(t *testing.T) {
	const jobs, kills = 12, 3
	bin, data := binary(t), t.TempDir()
	p := startServer(t, bin, data)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()

	var mu sync.Mutex
	asked, changed := make(map[arcp.MessageID]bool), make(chan struct{}, 1)
	thinks := func(ctx context.Context, q client.InputRequest) (any, error) { // and never comes to an end
		mu.Lock()
		asked[q.ID] = true
		mu.Unlock()
		select {
		case changed <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	c := person(ctx, t, p.url, thinks)
	var running []*client.Job
	for n := range jobs {
		job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.ask", Arguments: arcp.Raw(fmt.Sprintf(
			`{"prompt":"question %d","response_schema":{"type":"string","minLength":1}}`, n))})
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, job)
	}
	for n := 0; n < jobs; {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d questions were asked, want %d", n, jobs)
		}
		mu.Lock()
		n = len(asked)
		mu.Unlock()
	}
	for range kills {
		p.kill(t)
		p = startServer(t, bin, data, "--listen", p.address)
	}

	for _, name := range []string{"ann", "ben"} {
		person(ctx, t, p.url, func(_ context.Context, q client.InputRequest) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			if !asked[q.ID] {
				t.Errorf("after the crash %q is asked as %s, which it was not before", q.Prompt, q.ID)
			}
			return name, nil
		})
	}
	for n, job := range running {
		result, err := job.Wait(ctx)
		var out struct {
			Value string `json:"value"`
		}
		if err == nil {
			err = arcp.Unmarshal(result.Value, &out)
		}
		if err != nil || out.Value != "ann" && out.Value != "ben" {
			t.Errorf("question %d: the job ended with %s, %v", n, result.Value, err)
		}
	}
	p.kill(t)
}

// person connects a session that answers the questions of jobs until the end of the test.
func person(ctx context.Context, t *testing.T, url string, answers func(context.Context, client.InputRequest) (any, error)) *client.Client {
	t.Helper()
	c, err := client.Connect(ctx, url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: crashToken},
		Handlers: client.Handlers{Input: answers}, Limits: client.Limits{Handlers: 64}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	return c
}
