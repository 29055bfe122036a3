package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// A server that is stopped in order and started again while clients use it costs
// them nothing: no job is lost, none runs twice, no event is missed.
func TestRollingRestart(t *testing.T) {
	const restarts, users = 3, 8
	bin, data := binary(t), t.TempDir()
	p := startServer(t, bin, data, "--drain", "2s")

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var clients []*client.Client // the first connection is tried once, so before the restarts
	for range users {
		c, err := client.Connect(ctx, p.url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: crashToken}, AckEvery: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
		clients = append(clients, c)
	}
	load, stop := context.WithCancel(ctx)
	defer stop()
	done := newCompletions()
	var work sync.WaitGroup
	for u, c := range clients {
		work.Go(func() {
			if err := runJobs(ctx, load, c, u, done); err != nil {
				t.Error(err)
				stop()
			}
		})
	}
	for range restarts {
		done.await(load, users)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v, want exit status 0", err)
		}
		p = startServer(t, bin, data, "--drain", "2s", "--listen", p.address)
	}
	done.await(load, users)
	stop()
	work.Wait()
	t.Logf("%d jobs over %d restarts", done.n.Load(), restarts)
	p.kill(t)
}

// runJobs runs at least one job, one after the other, until the load has ended.
func runJobs(ctx, load context.Context, c *client.Client, user int, done *completions) error {
	for n := 0; n == 0 || load.Err() == nil; n++ {
		steps := 5 + n%20
		job, err := invokePatiently(ctx, c, client.InvokeParams{Tool: "demo.count", Arguments: map[string]int{"to": steps, "interval_ms": 10}})
		if err != nil {
			return fmt.Errorf("user %d, job %d: %w", user, n, err)
		}
		if err := checkCount(ctx, job, steps); err != nil {
			return fmt.Errorf("user %d, job %d (%s): %w", user, n, job.ID(), err)
		}
		done.add()
	}
	return nil
}

// invokePatiently repeats a submit that a stopping server refuses.
func invokePatiently(ctx context.Context, c *client.Client, r client.InvokeParams) (*client.Job, error) {
	for {
		job, err := c.Invoke(ctx, r)
		if err == nil || !strings.Contains(err.Error(), string(arcp.CodeUnavailable)) || ctx.Err() != nil {
			return job, err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// checkCount checks that a job's steps come once each and in order, and one end.
func checkCount(ctx context.Context, job *client.Job, steps int) error {
	at, ends := 0, 0
	for ev, err := range job.Events(ctx) {
		if err != nil {
			return err
		}
		switch {
		case ev.Type == arcp.JobProgress:
			p, err := arcp.DecodePayload[arcp.JobProgressPayload](&ev)
			if err != nil {
				return err
			}
			if int(p.Current) != at+1 && int(p.Current) != at { // progress that was not durable is repeated
				return fmt.Errorf("step %v after %d", p.Current, at)
			}
			at = int(p.Current)
		case ev.Type.Terminal():
			ends++
		}
	}
	if at != steps || ends != 1 {
		return fmt.Errorf("counted to %d of %d, with %d ends", at, steps, ends)
	}
	return nil
}
