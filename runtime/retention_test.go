package runtime_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
)

// A tool that waits for room on the disk can be cancelled.
func TestCancelWhileFull(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 30)
	left := make(chan error, 1)
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return free.Load(), nil }
		waits := tool.MustNew(tool.Capability{Name: "waits", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (int, error) {
			for {
				if err := job.Log("info", "on", nil); err != nil {
					left <- err
					return 0, err
				}
				time.Sleep(time.Second)
			}
		})
		if err := c.Tools.Register(waits); err != nil {
			t.Fatal(err)
		}
	}, func(f *fixture) {
		p := f.dial("alice")
		job := p.submit("waits", `{}`)
		p.until("job.started")
		free.Store(1 << 20)
		time.Sleep(time.Minute)
		asked := time.Now()
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
		p.until("job.cancelled")
		if d := time.Since(asked); d > time.Second {
			t.Errorf("the job is cancelled after %v: the tool was not woken", d)
		}
		if err := <-left; err == nil {
			t.Error("the tool is not told that it wrote nothing")
		}
	})
}

// subscribe opens a subscription and returns its id.
func (p *peer) subscribe(payload string) arcp.SubscriptionID {
	p.Helper()
	p.send("subscribe", payload)
	return p.until("subscribe.accepted").SubscriptionID
}
