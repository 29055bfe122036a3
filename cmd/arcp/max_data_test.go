package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// A store on disk of the least size refuses jobs when they come faster than it deletes others, and accepts
// them again by itself: many more than fit below the bound at a time.
func TestMaxDataOnDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--demo", "--token", "alice=secret", "--max-data", "64MiB")
	text := make([]byte, 100_000)
	for i := range text {
		text[i] = 'a' + byte(rand.IntN(26))
	}
	const most = 4 * minMaxData / 100_000 // jobs until one is refused: the arguments alone are 4 times the bound
	const more = 400                      // jobs after that: the store accepts some 30 at a time
	var submitted, refused, again atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	submit := func(c *client.Client) error {
		args := fmt.Appendf(nil, `{"text":"%s"}`, text[rand.IntN(10_000):])
		job, err := c.Invoke(ctx, client.InvokeParams{Tool: "demo.echo", Arguments: arcp.Raw(args), DiscardEvents: true})
		if err == nil {
			_, err = job.Wait(ctx)
		}
		if e, ok := errors.AsType[*client.RemoteError](err); ok && e.Code == arcp.CodeResourceExhausted {
			refused.Add(1)
			time.Sleep(10 * time.Millisecond) // the server needs the processor to delete jobs
			return nil
		}
		submitted.Add(1)
		if refused.Load() > 0 {
			again.Add(1)
		}
		return err
	}
	for range 8 {
		group.Go(func() error {
			c, err := client.Dial(ctx, p.url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: "secret"}, AckEvery: 8})
			if err != nil {
				return err
			}
			defer c.Close(context.WithoutCancel(ctx), "done")
			for err == nil && again.Load() < more && submitted.Load()-again.Load() < most {
				err = submit(c)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatalf("%v after %d jobs and %d refusals; log:\n%s", err, submitted.Load(), refused.Load(), p.errs)
	}
	if refused.Load() == 0 {
		t.Error("no job was refused: the test proves nothing")
	}
}
