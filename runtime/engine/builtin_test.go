package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

func builtin(effect tool.SideEffect) func(*tool.Capability) {
	return func(c *tool.Capability) { c.Source, c.SideEffect = tool.SourceBuiltin, effect }
}

// The jobs of built-in tools are stored like others: they are refused when the
// disk is nearly full and when the runtime shuts down, and by no limit.
func TestBuiltinRefused(t *testing.T) {
	for _, effect := range []tool.SideEffect{tool.SideEffectRead, tool.SideEffectWrite} {
		t.Run(string(effect), func(t *testing.T) {
			var full atomic.Bool
			bubble(t, func(c *Config) { c.Full, c.MaxJobs = full.Load, 1 }, func(r *rig) {
				r.tool("t", builtin(effect), echo)
				r.tool("other", nil, wait)
				r.submit("other", "{}")
				r.want("all there may be", "job.accepted msg_1", "job.started msg_1")
				r.submit("t", "{}")
				r.want("no limit counts it", "job.accepted msg_2", "job.completed msg_2")
				full.Store(true)
				r.submit("t", "{}")
				r.want("the disk is full", "job.failed msg_3 RESOURCE_EXHAUSTED")
				full.Store(false)
				r.e.Drain()
				r.submit("t", "{}")
				r.want("it shuts down", "job.failed msg_4 UNAVAILABLE")
			})
		})
	}
}

// A built-in tool that changes something does so once, however often it is asked
// for with a key or under an id, also when the first job has not ended. No limit
// counts it while it runs.
func TestBuiltinRunsOnce(t *testing.T) {
	bubble(t, func(c *Config) { c.MaxJobs, c.MaxJobsPerPrincipal, c.MaxJobsPerSession = 1, 1, 1 }, func(r *rig) {
		calls := 0
		r.tool("t", builtin(tool.SideEffectWrite), func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			calls++
			if c, ok := j.(Caller); !ok || c.Principal() != "alice" || c.Session() != "sess_1" {
				t.Errorf("%T does not say who called", j)
			}
			time.Sleep(time.Second)
			return args, nil
		})
		r.tool("other", nil, sleeper(time.Minute))
		keyed := func(session arcp.SessionID) {
			q := r.request(session, "t", `{"n":1}`)
			q.env.IdempotencyKey = "k"
			r.send(q)
		}
		keyed("sess_1")
		keyed("sess_1")
		keyed("sess_2")
		r.want("one job, two answers", "job.accepted msg_1", "job.accepted msg_2")
		r.submit("other", "{}")
		r.want("it leaves room for another", "job.accepted msg_4", "job.started msg_4")
		time.Sleep(time.Second)
		r.want("", "job.completed msg_1", "job.completed msg_2")
		if got := lines(r.frames("sess_2")); len(got) != 2 || got[0] != "job.accepted msg_3" || got[1] != "job.completed msg_3" {
			t.Errorf("the other session was sent %v", got)
		}
		q := r.request("sess_1", "t", "{}")
		q.Recheck = true
		r.send(q)
		time.Sleep(time.Second)
		r.want("new", "job.accepted msg_5", "job.completed msg_5")
		r.send(q)
		r.want("the same id on a later connection", "job.accepted msg_5", "job.completed msg_5")
		if calls != 2 {
			t.Errorf("called %d times, want once a job", calls)
		}
		time.Sleep(time.Minute)
		r.frames("sess_1")
		r.idle("")
	})
}

// What a restart cuts off has perhaps been done, and is not done again.
func TestBuiltinCutOff(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		calls := 0
		r.tool("t", builtin(tool.SideEffectWrite), func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			calls++
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		r.submit("t", "{}")
		r.want("", "job.accepted msg_1")
		r.restart(1)
		r.want("", "job.failed msg_1 ABORTED")
		if calls != 1 {
			t.Errorf("called %d times", calls)
		}
		r.idle("")
	})
}
