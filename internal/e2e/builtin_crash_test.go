package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// TestBuiltinCallsAreWhole kills a runtime repeatedly while clients call its built-in tools in
// pipelines. An interrupted call is sent again under its id. Each call must succeed and change
// the state exactly once: a partial call would fail as interrupted, or conflict with its own
// change.
func TestBuiltinCallsAreWhole(t *testing.T) {
	const rounds, sessions, pipelines = 12, 2, 12
	bin, data := binary(t), t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := startServer(t, bin, data)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	load, stop := context.WithCancel(ctx)
	defer stop()
	calls := newCompletions()
	var work sync.WaitGroup
	for s := range sessions {
		asks, answers := reconnecting(ctx, t, p.url), reconnecting(ctx, t, p.url)
		for i := range pipelines {
			u := &caller{url: p.url, asks: asks, answers: answers, name: fmt.Sprintf("s%d-p%d", s, i), calls: calls}
			work.Go(func() {
				for n := 0; n == 0 || load.Err() == nil; n++ {
					if err := u.chains()[(i+n)%len(u.chains())](ctx, n); err != nil {
						t.Errorf("%s, round %d: %v", u.name, n, err)
						stop()
					}
				}
			})
		}
	}
	for range rounds {
		pause(ctx, time.Duration(50+rnd.IntN(250))*time.Millisecond)
		p.kill(t)
		p = startServer(t, bin, data, "--listen", p.address)
	}
	calls.await(load, 1)
	stop()
	work.Wait()
	t.Logf("%d calls over %d kills", calls.n.Load(), rounds)
	p.kill(t)
}

func reconnecting(ctx context.Context, t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.Connect(ctx, url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: crashToken}, AckEvery: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	return c
}

// caller calls built-in tools, one after the other.
type caller struct {
	url           string
	asks, answers *client.Client // answers is another session of the principal
	name          string
	calls         *completions
}

// call runs a tool and returns its result.
func (ca *caller) call(ctx context.Context, c *client.Client, tool string, args any) (map[string]any, error) {
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: args, DiscardEvents: true})
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w", tool, args, err)
	}
	res, err := job.Wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s %v (%s): %w", tool, args, job.ID(), err)
	}
	var out map[string]any
	if err := arcp.Unmarshal(res.Value, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", tool, err)
	}
	ca.calls.add()
	return out, nil
}

type args map[string]any

// expect calls a tool and checks the value of a member of its answer.
func (ca *caller) expect(ctx context.Context, c *client.Client, tool string, a args, member string, want any) (map[string]any, error) {
	out, err := ca.call(ctx, c, tool, a)
	if err == nil && out[member] != want {
		err = fmt.Errorf("%s %v: %s is %v, want %v", tool, a, member, out[member], want)
	}
	return out, err
}

// chains are sequences of calls, each of which depends on the ones before it.
func (ca *caller) chains() []func(context.Context, int) error {
	return []func(context.Context, int) error{ca.entries, ca.leases, ca.agents, ca.approvals, ca.gates, ca.jobs, ca.sessions}
}

func (ca *caller) entries(ctx context.Context, n int) error {
	id := fmt.Sprintf("%s-%d", ca.name, n)
	for _, step := range []struct {
		tool   string
		args   args
		member string
		want   any
	}{
		{"registry.register", args{"resource_id": id, "kind": "k", "display_name": "one"}, "status", "active"},
		{"registry.register", args{"resource_id": id, "kind": "k", "display_name": "two"}, "display_name", "two"},
		{"registry.update_status", args{"resource_id": id, "status": "completed"}, "status", "completed"},
		{"registry.get", args{"resource_id": id}, "display_name", "two"},
		{"registry.deregister", args{"resource_id": id}, "removed", true},
		{"registry.deregister", args{"resource_id": id}, "removed", false},
	} {
		if _, err := ca.expect(ctx, ca.asks, step.tool, step.args, step.member, step.want); err != nil {
			return err
		}
	}
	return nil
}

func (ca *caller) leases(ctx context.Context, n int) error {
	lease, err := ca.expect(ctx, ca.asks, "registry.lease",
		args{"provider": "test", "resource_type": "thing", "external_id": fmt.Sprintf("%s-%d", ca.name, n), "lease_duration_seconds": 3600}, "state", "active")
	if err != nil {
		return err
	}
	id := args{"lease_id": lease["lease_id"]}
	if _, err := ca.expect(ctx, ca.asks, "registry.touch", id, "state", "active"); err != nil {
		return err
	}
	if _, err := ca.expect(ctx, ca.asks, "registry.release", id, "state", "released"); err != nil {
		return err
	}
	_, err = ca.expect(ctx, ca.asks, "registry.deregister", args{"resource_id": lease["lease_id"]}, "removed", true) // the lease was shown
	return err
}

func (ca *caller) agents(ctx context.Context, n int) error {
	id := fmt.Sprintf("%s-%d", ca.name, n)
	if _, err := ca.expect(ctx, ca.asks, "host.register_agent", args{"id": id, "name": "n", "kind": "k"}, "status", "idle"); err != nil {
		return err
	}
	if _, err := ca.expect(ctx, ca.asks, "host.set_status", args{"agent_id": id, "status": "running"}, "status", "running"); err != nil {
		return err
	}
	_, err := ca.expect(ctx, ca.asks, "host.unregister_agent", args{"agent_id": id}, "unregistered", true)
	return err
}

func (ca *caller) approvals(ctx context.Context, n int) error {
	for _, tool := range []string{"approval.resolve", "approval.cancel"} {
		asked, err := ca.expect(ctx, ca.asks, "approval.request", args{"action": fmt.Sprintf("%s %d", ca.name, n)}, "status", "pending")
		if err != nil {
			return err
		}
		a, want := args{"approval_id": asked["approval_id"]}, "cancelled"
		if tool == "approval.resolve" {
			a["resolution"], want = "approve", "resolved"
		}
		if _, err := ca.expect(ctx, ca.asks, tool, a, "status", want); err != nil {
			return err
		}
	}
	return nil
}

// gates requests approvals, which another session answers or the requesting session cancels.
func (ca *caller) gates(ctx context.Context, n int) error {
	for _, tool := range []string{"approval.resolve", "approval.answer", "approval.cancel"} {
		asked, err := ca.expect(ctx, ca.asks, "approval.request", args{"action": fmt.Sprintf("%s %d", ca.name, n), "system_level": true}, "status", "pending")
		if err != nil {
			return err
		}
		id := asked["approval_id"]
		c, a, want := ca.answers, args{"approval_id": id, "approved": true}, "resolved"
		switch tool {
		case "approval.answer":
			a = args{"request_id": id, "choice_id": "deny"}
		case "approval.cancel":
			c, a, want = ca.asks, args{"approval_id": id}, "cancelled"
		}
		if _, err := ca.expect(ctx, c, tool, a, "status", want); err != nil {
			return err
		}
	}
	return nil
}

func (ca *caller) jobs(ctx context.Context, _ int) error {
	job, err := ca.asks.Invoke(ctx, client.InvokeParams{Tool: "demo.echo", DiscardEvents: true})
	if err != nil {
		return err
	}
	if _, err := job.Wait(ctx); err != nil {
		return err
	}
	for { // an acknowledgement may be lost with the process, and is then asked for again
		ca.asks.Ack(ca.asks.LastEventSeq())
		_, err = ca.expect(ctx, ca.asks, "jobs.delete", args{"job_id": job.ID()}, "deleted", true)
		if failed, ok := errors.AsType[*client.JobError](err); !ok || failed.Code != arcp.CodeFailedPrecondition {
			return err
		}
	}
}

// sessions ends a session of the principal, with its agent.
func (ca *caller) sessions(ctx context.Context, n int) error {
	id := fmt.Sprintf("%s-%d-other", ca.name, n)
	c, err := ca.openWithAgent(ctx, id)
	for isSessionLost(err) { // a crash may lose a young session without an agent (SPEC.md §5.10)
		c, err = ca.openWithAgent(ctx, id)
	}
	if err != nil {
		return err
	}
	defer c.Abort()
	if _, err := ca.expect(ctx, ca.asks, "sessions.evict", args{"session_id": c.Session().ID, "forget": true}, "evicted", true); err != nil {
		return err
	}
	_, err = ca.expect(ctx, ca.asks, "host.register_agent", args{"id": id, "name": "n", "kind": "k"}, "status", "idle") // it has no owner any more
	return err
}

// openWithAgent opens another session, which registers an agent.
func (ca *caller) openWithAgent(ctx context.Context, id string) (*client.Client, error) {
	c, err := ca.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if _, err := ca.expect(ctx, c, "host.register_agent", args{"id": id, "name": "n", "kind": "k"}, "status", "idle"); err != nil {
		c.Abort()
		return nil, err
	}
	return c, nil
}

func isSessionLost(err error) bool {
	refused, ok := errors.AsType[*client.RemoteError](err)
	return ok && refused.Type == arcp.SessionRejected && refused.Code == arcp.CodeResumeWindowExpired
}

// connect opens another session as soon as the runtime accepts connections.
func (ca *caller) connect(ctx context.Context) (*client.Client, error) {
	for {
		c, err := client.Connect(ctx, ca.url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: crashToken}})
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		pause(ctx, 20*time.Millisecond)
	}
}
