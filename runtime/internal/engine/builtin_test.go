package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

func builtin(effect tool.SideEffect) func(*tool.Capability) {
	return func(c *tool.Capability) { c.Source, c.SideEffect = tool.SourceBuiltin, effect }
}

// The jobs of built-in tools are stored like others: they are refused when the
// disk is exhausted and when the runtime shuts down, and by no limit. At the bound of the
// store and near the end of the disk they are accepted, because they can make room.
func TestBuiltinRefused(t *testing.T) {
	for _, effect := range []tool.SideEffect{tool.SideEffectRead, tool.SideEffectWrite} {
		t.Run(string(effect), func(t *testing.T) {
			var space fakeSpace
			runEngine(t, func(c *Config) {
				c.Space, c.MaxJobs = &space, 1
			}, func(f *fixture) {
				f.tool("t", builtin(effect), echo)
				f.tool("other", nil, wait)
				f.submit("other", "{}")
				f.want("all there may be", "job.accepted msg_1", "job.started msg_1")
				space.data.Store(true)
				f.submit("t", "{}")
				f.want("no limit counts it", "job.accepted msg_2", "job.completed msg_2")
				space.disk.Store(true)
				f.submit("t", "{}")
				f.want("the disk is nearly full", "job.accepted msg_3", "job.completed msg_3")
				space.exhausted.Store(true)
				f.submit("t", "{}")
				f.want("the disk is exhausted", "job.failed msg_4 RESOURCE_EXHAUSTED")
				space.exhausted.Store(false)
				f.e.Drain()
				f.submit("t", "{}")
				f.want("it shuts down", "job.failed msg_5 UNAVAILABLE")
			})
		})
	}
}

// A built-in tool that changes something does so once, however often it is asked
// for with a key or under an id. No limit counts it while it runs.
func TestBuiltinChangesOnce(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs, c.MaxJobsPerPrincipal, c.MaxJobsPerSession = 1, 1, 1 }, func(f *fixture) {
		f.tool("t", builtin(tool.SideEffectWrite), func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if c, ok := j.Host().(Caller); !ok || c.Principal() != "alice" {
				t.Errorf("%T does not say who called", j)
			}
			time.Sleep(time.Second)
			f.count(ctx)
			return args, nil
		})
		f.tool("other", nil, sleeper(time.Minute))
		keyed := func(session arcp.SessionID) {
			q := f.request(session, "t", `{"n":1}`)
			q.env.IdempotencyKey = "k"
			f.send(q)
		}
		keyed("sess_1")
		keyed("sess_1")
		keyed("sess_2")
		f.submit("other", "{}")
		f.want("nothing is told before it is durable")
		time.Sleep(time.Second + time.Millisecond)
		f.want("the first call is one write", "job.accepted msg_1", "job.completed msg_1")
		time.Sleep(time.Second)
		f.want("one job, two answers", "job.accepted msg_2", "job.completed msg_2", "job.accepted msg_4", "job.started msg_4")
		if got := lines(f.frames("sess_2")); len(got) != 2 || got[0] != "job.accepted msg_3" || got[1] != "job.completed msg_3" {
			t.Errorf("the other session was sent %v", got)
		}
		q := f.request("sess_1", "t", "{}")
		q.Recheck = true
		f.send(q)
		time.Sleep(2 * time.Second)
		f.want("new", "job.accepted msg_5", "job.completed msg_5")
		f.send(q)
		time.Sleep(2 * time.Second)
		f.want("the same id on a later connection", "job.accepted msg_5", "job.completed msg_5")
		if n := f.storedCount(); n != 2 {
			t.Errorf("changed %d times, want once a job", n)
		}
		time.Sleep(time.Minute)
		f.frames("sess_1")
		f.expectNoState("")
	})
}

// count stages a change that adds one to a record.
func (f *fixture) count(ctx context.Context) {
	rec, err := f.st.Get(ctx, "count")
	if err != nil {
		f.Error(err)
	}
	txn.From(ctx).Add(txn.Change{Write: store.NewWrite().
		Put(store.Record{Key: "count", Rev: rec.Rev, Value: append(slices.Clone(rec.Value), '.')})})
}

// storedCount returns how often count has been committed.
func (f *fixture) storedCount() int {
	rec, err := f.st.Get(context.Background(), "count")
	if err != nil {
		f.Error(err)
	}
	return len(rec.Value)
}

// The calls of one session run one after the other in the order in which they were sent. A job
// submitted after a call sees its changes.
func TestBuiltinInOrder(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("add", builtin(tool.SideEffectWrite), func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			n := f.storedCount()
			time.Sleep(time.Duration(100-n) * time.Millisecond) // the later ones would be sooner
			f.count(ctx)
			return arcp.Marshal(n)
		})
		f.tool("read", builtin(tool.SideEffectRead),
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Marshal(f.storedCount()) })
		f.tool("plain", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Marshal(f.storedCount()) })
		names := []string{"add", "add", "read", "plain", "add", "read", "none", "add"}
		want := []string{"0", "1", "2", "2", "2", "3", "", "3"}
		for _, name := range names {
			f.submit(name, "{}")
		}
		time.Sleep(time.Second)
		var values, answers []string
		for _, env := range f.frames("sess_1") {
			switch env.Type {
			case arcp.JobCompleted:
				values = append(values, string(env.CorrelationID)+" "+string(env.Payload))
			case arcp.JobAccepted, arcp.JobFailed:
				answers = append(answers, string(env.CorrelationID))
			}
		}
		for i := range names {
			id := fmt.Sprintf("msg_%d", i+1)
			if i >= len(answers) || answers[i] != id {
				t.Fatalf("answers in the order %v", answers)
			}
			if line := id + ` {"value":` + want[i] + `}`; want[i] != "" && !slices.Contains(values, line) {
				t.Errorf("values are %v, want %s", values, line)
			}
		}
	})
}

// After a write conflict the tool is called again and recomputes the change from the present
// state.
func TestBuiltinConflict(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("add", builtin(tool.SideEffectWrite), func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			f.count(ctx)
			time.Sleep(time.Second)
			return arcp.Raw("1"), nil
		})
		for _, s := range []arcp.SessionID{"sess_1", "sess_2", "sess_1", "sess_2"} {
			f.send(f.request(s, "add", "{}"))
		}
		time.Sleep(time.Minute)
		f.want("each call completes once", "job.accepted msg_1", "job.completed msg_1", "job.accepted msg_3", "job.completed msg_3")
		if n := f.storedCount(); n != 4 {
			t.Errorf("changed %d times, want 4", n)
		}
	})
}

// A call interrupted by a restart leaves neither a change nor a job.
func TestRestartDropsUnclaimedCall(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", builtin(tool.SideEffectWrite), func(ctx context.Context, _ tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			f.count(ctx)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		f.submit("t", "{}")
		f.want("nothing yet")
		f.restart(0)
		f.want("there is no such job")
		if n := f.storedCount(); n != 0 {
			t.Errorf("changed %d times", n)
		}
		f.expectNoState("")
	})
}

// A claimed call runs again after a restart, because the first run changed nothing.
func TestRestartRepeatsClaimedCall(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		first := true
		f.tool("t", builtin(tool.SideEffectWrite), func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if err := CallOf(ctx).Claim(); err != nil {
				return nil, err
			}
			f.count(ctx)
			if first {
				first = false
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return arcp.Marshal(j.Attempt())
		})
		f.submit("t", "{}")
		f.want("the call is claimed", "job.accepted msg_1")
		f.restart(1)
		f.want("the call runs again", "job.completed msg_1")
		if n := f.storedCount(); n != 1 {
			t.Errorf("changed %d times, want once", n)
		}
		f.expectNoState("")
	})
}
