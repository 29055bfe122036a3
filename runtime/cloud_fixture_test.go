package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
)

// cloud is the Cleaner of the resources that the tests lease. It records its calls.
type cloud struct {
	mu           sync.Mutex
	cleanups     []string        // external ids and attempts
	fails        bool            // Clean returns an error
	blockedUntil chan struct{}   // Clean receives from it and ignores its context; nil: it does not wait
	blockers     []chan struct{} // values of blockedUntil, closed by release
	toolCalls    []string        // arguments of the clean-up tool
}

func (c *cloud) Clean(_ context.Context, l runtime.LeasedResource, attempt int) error {
	c.mu.Lock()
	blocked := c.blockedUntil
	c.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, fmt.Sprintf("%s#%d", l.ExternalID, attempt))
	if c.fails {
		return errors.New("the cloud is closed")
	}
	return nil
}

func (c *cloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cloud) cleaned() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.cleanups, " ")
}

// called are the arguments with which the clean-up tool was called, in order.
func (c *cloud) called() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(c.toolCalls)), " ")
}

// withCloud configures c as the Cleaner of the providers "cloud" and "private". Clients can lease
// resources of "cloud", and only tools can lease those of "private".
func withCloud(t *testing.T, c *cloud) func(*runtime.Config) {
	t.Helper()
	base := withPeople(t)
	return func(cfg *runtime.Config) {
		base(cfg)
		cfg.Cleanups = []runtime.Cleanup{{Provider: "cloud", Cleaner: c, Clients: true}, {Provider: "private", Cleaner: c}}
		cfg.ResourceDir = t.TempDir()
		remove := tool.MustNew(tool.Capability{Name: "vm.remove"}, func(_ context.Context, job tool.Job, in map[string]any) (string, error) {
			err := job.Authority().Allow("fs.read", "/data/x")
			c.set(func() {
				c.toolCalls = append(c.toolCalls, fmt.Sprintf("%v %v %v %v %v", in["provider"], in["resource_type"], in["external_id"], in["attempt"], err == nil))
			})
			return "", nil
		})
		hang := tool.MustNew(tool.Capability{Name: "vm.hang", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, _ tool.Job, _ map[string]any) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		hold := tool.MustNew(tool.Capability{Name: "hold", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, in struct {
			Minutes int `json:"minutes"`
		}) (string, error) {
			l, err := job.Resources().Lease(ctx, tool.ResourceRequest{Provider: "private", Type: "vm", ExternalID: "held", For: 90 * time.Second})
			if err != nil {
				return "", err
			}
			time.Sleep(time.Duration(in.Minutes) * time.Minute)
			return string(l.ID()), nil
		})
		for _, made := range []*tool.Tool{remove, hang, hold} {
			if err := cfg.Tools.Register(made); err != nil {
				t.Fatal(err)
			}
		}
	}
}
