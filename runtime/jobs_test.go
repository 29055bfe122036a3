package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

func ofJob(id arcp.JobID) string { return fmt.Sprintf(`{"job_id":%q}`, id) }

// withCaller adds a tool that calls demo.echo and continues for a while.
func withCaller(t *testing.T, goesOn time.Duration) func(*runtime.Config) {
	caller := tool.MustNew(tool.Capability{Name: "caller", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (string, error) {
		_, err := job.Call(ctx, tool.Call{Tool: "demo.echo"})
		time.Sleep(goesOn)
		return "done", err
	})
	return func(c *runtime.Config) {
		if err := c.Tools.Register(caller); err != nil {
			t.Fatal(err)
		}
	}
}

// jobs.get returns the arguments and the children of a job, but no arguments of built-in tools.
func TestJobsGetTellsArgumentsAndChildren(t *testing.T) {
	inBubble(t, withCaller(t, time.Minute), func(f *fixture) {
		p := f.dial("alice")
		p.send("tool.invoke", `{"tool":"caller","arguments":{},"lease_request":{"tool.call":["*"],"cost.budget":["USD:2"]}}`)
		parent := p.until("job.accepted").JobID
		child := p.until("job.accepted").JobID
		p.must("jobs.wait", ofJob(child))
		synctest.Wait() // the parent has the child's budget again
		view := func(id arcp.JobID) (v arcp.JobView) {
			t.Helper()
			raw, refused := p.run("jobs.get", ofJob(id))
			if refused != nil {
				t.Fatal(refused)
			}
			if err := arcp.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
		got := view(parent)
		if string(got.Arguments) != "{}" || len(got.Children) != 1 || got.Children[0] != (arcp.JobChild{JobID: child, Agent: "demo.echo@1.0.0", Status: arcp.StateCompleted}) ||
			string(got.Budget) != `{"USD":2}` || got.ParentJobID != "" || !strings.Contains(string(got.Lease), "tool.call") {
			t.Errorf("the parent is %+v, lease %s, budget %s", got, got.Lease, got.Budget)
		}
		if got := view(child); got.ParentJobID != parent || len(got.Children) != 0 {
			t.Errorf("the child is %+v", got)
		}
		if got := view(p.submit("jobs.get", ofJob(child))); got.Arguments != nil || got.ArgumentsState != arcp.ArgumentsOmitted ||
			got.ArgumentsMessage != "those of the runtime's own tools are not shown" || got.Principal != "alice" {
			t.Errorf("the call of a built-in tool has the arguments %s, %q", got.Arguments, got.ArgumentsState)
		}
		long := p.submit("demo.echo", `{"text":"`+strings.Repeat("x", 300<<10)+`"}`)
		if got := view(long); got.Arguments != nil || got.ArgumentsState != arcp.ArgumentsOmitted ||
			!strings.Contains(got.ArgumentsMessage, "at most 262144 are shown") {
			t.Errorf("long arguments of %d bytes are told, %q %q", len(got.Arguments), got.ArgumentsState, got.ArgumentsMessage)
		}
	})
}

// A child is kept while its parent is live.
func TestJobsDeleteChild(t *testing.T) {
	inBubble(t, withCaller(t, time.Minute), func(f *fixture) {
		p := f.dial("alice")
		p.send("tool.invoke", `{"tool":"caller","lease_request":{"tool.call":["*"]}}`)
		parent := p.until("job.accepted").JobID
		child := p.until("job.accepted").JobID
		p.must("jobs.wait", ofJob(child))
		p.refuses("its parent goes on", "jobs.delete", ofJob(child), arcp.CodeFailedPrecondition)
		p.must("jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":3600000}`, parent))
		p.must("jobs.delete", ofJob(child))
		p.must("jobs.delete", ofJob(parent))
	})
}

// Costs of a deleted job stay deducted. A job cannot be deleted while an ancestor is live.
func TestJobsDeleteGrandchild(t *testing.T) {
	for _, byHand := range []bool{true, false} {
		t.Run(fmt.Sprint("by hand ", byHand), func(t *testing.T) {
			free := tool.Limits{Timeout: -1}
			var ids chan arcp.JobID
			var charged chan error
			child := func(ctx context.Context, job tool.Job, name, budget string, made func(arcp.JobID)) {
				_, _ = job.Call(ctx, tool.Call{Tool: name, Detach: true, Lease: arcp.Raw(`{"cost.budget":["USD:` + budget + `"]}`), OnChild: made})
			}
			inBubble(t, func(c *runtime.Config) {
				ids, charged = make(chan arcp.JobID, 1), make(chan error, 3)
				for name, run := range map[string]func(context.Context, tool.Job) error{
					"top": func(ctx context.Context, job tool.Job) error {
						_, err := job.Call(ctx, tool.Call{Tool: "middle", Lease: arcp.Raw(`{"tool.call":["*"],"cost.budget":["USD:10"]}`)})
						time.Sleep(time.Hour)
						charged <- job.Authority().Charge("x", "USD", "2.5")
						charged <- job.Authority().Charge("x", "USD", "1.5")
						return err
					},
					"middle": func(ctx context.Context, job tool.Job) error {
						go child(ctx, job, "spender", "8", func(id arcp.JobID) { ids <- id })
						go child(ctx, job, "long", "1", nil)
						time.Sleep(time.Second)
						return nil
					},
					"spender": func(_ context.Context, job tool.Job) error {
						time.Sleep(10 * time.Second)
						err := job.Authority().Charge("x", "USD", "8")
						charged <- err
						return err
					},
					"long": func(context.Context, tool.Job) error { time.Sleep(2 * time.Minute); return nil },
				} {
					err := c.Tools.Register(tool.MustNew(tool.Capability{Name: name, Limits: free}, func(ctx context.Context, job tool.Job, _ struct{}) (string, error) {
						return "done", run(ctx, job)
					}))
					if err != nil {
						t.Fatal(err)
					}
				}
			}, func(f *fixture) {
				p := f.dial("alice")
				p.send("tool.invoke", `{"tool":"top","lease_request":{"tool.call":["*"],"cost.budget":["USD:10"]}}`)
				top := p.until("job.accepted").JobID
				time.Sleep(time.Minute)
				synctest.Wait()
				if err := <-charged; err != nil {
					t.Fatal(err)
				}
				spender := <-ids
				q := f.dial("alice")
				q.refuses("a job above its parent goes on", "jobs.delete", ofJob(spender), arcp.CodeFailedPrecondition)
				if !byHand { // as the bound of the disk does
					if err := f.rt.Commit(f.Context(), store.NewWrite(&store.DeleteJob{Job: spender})); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-charged; err == nil {
					t.Error("a charge of 2.5 succeeds with a rest of 2, want BUDGET_EXHAUSTED")
				}
				if err := <-charged; err != nil {
					t.Errorf("a charge of 1.5 with a rest of 2: error = %v, want none", err)
				}
				q.must("jobs.wait", fmt.Sprintf(`{"job_id":%q,"timeout_ms":3600000}`, top))
				if byHand {
					q.must("jobs.delete", ofJob(spender))
				}
			})
		})
	}
}

// Frames in order, numbers without a gap, and the answers of submits in the
// order of the submits.
func TestSubmitsAreAnsweredInOrder(t *testing.T) {
	const jobs = 200
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		go func() {
			for i := range jobs {
				_, _ = p.try("tool.invoke", []string{`{"tool":"demo.echo"}`, `{"tool":"demo.none"}`, `{"tool":7}`,
					`{"tool":"demo.fail","arguments":{"code":"ABORTED","message":"x"}}`}[i%4])
			}
		}()
		var seq uint64
		answered, ended := make(map[arcp.MessageID]bool), 0
		for ended < jobs {
			env := p.read()
			if env.EventSeq != 0 {
				if seq++; env.EventSeq != seq {
					f.Fatalf("event_seq %d after %d", env.EventSeq, seq-1)
				}
			}
			if !answered[env.CorrelationID] {
				answered[env.CorrelationID] = true
				if want := arcp.MessageID(fmt.Sprintf("msg_%d", len(answered)+1)); env.CorrelationID != want {
					f.Fatalf("%s is answered before %s", env.CorrelationID, want)
				}
			}
			if env.Type.Terminal() || env.Type == arcp.Nack {
				ended++
			}
		}
	})
}

// repetitions is the number of reads that follow an answer immediately, on another connection too. They find an
// effect that comes a moment after its answer.
const repetitions = 50

// An answer is sent after its effect is visible.
func TestParentEndIsVisibleAtOnce(t *testing.T) {
	inBubble(t, withCaller(t, 0), func(f *fixture) {
		p := f.dial("alice")
		for range repetitions {
			p.send("tool.invoke", `{"tool":"caller","lease_request":{"tool.call":["*"]}}`)
			parent := p.until("job.accepted").JobID
			child := p.until("job.accepted").JobID
			for p.until("job.completed").JobID != parent {
			}
			p.must("jobs.delete", ofJob(child))
		}
	})
}

// job.subscribed of a job that has ended has no budget.
func TestEndedJobHasNoBudget(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p, other := f.dial("alice"), f.dial("alice")
		for range repetitions {
			p.send("tool.invoke", `{"tool":"demo.echo","lease_request":{"cost.budget":["USD:1"]}}`)
			id := p.until("job.accepted").JobID
			p.until("job.completed")
			other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, id))
			env := other.expect("job.subscribed")
			if told, err := arcp.DecodePayload[arcp.JobSubscribedPayload](&env); err != nil || told.Budget != nil || told.CurrentStatus != "completed" {
				t.Fatalf("job.subscribed of an ended job is %s, %v; want completed and no budget", env.Payload, err)
			}
		}
	})
}

// jobs.get has the rest of the budget of a running job. It has no budget of an ended job.
func TestRunningJobHasItsRemainingBudget(t *testing.T) {
	spend := tool.MustNew(tool.Capability{Name: "spend"}, func(_ context.Context, j tool.Job, _ struct{}) (string, error) {
		err := j.Authority().Charge("calls", "USD", "0.25")
		time.Sleep(time.Second)
		return "", err
	})
	inBubble(t, nil, func(f *fixture) {
		if err := f.rt.AddTool(spend); err != nil {
			f.Fatal(err)
		}
		p, other := f.dial("alice"), f.dial("alice")
		p.send("tool.invoke", `{"tool":"spend","lease_request":{"cost.budget":["USD:1"]}}`)
		id := p.until("job.accepted").JobID
		synctest.Wait()
		if left := fmt.Sprint(other.must("jobs.get", ofJob(id))["budget"]); left != "map[USD:0.75]" {
			f.Errorf("the running job has the budget %s, want what is left of it", left)
		}
		p.until("job.completed")
		if left, ok := other.must("jobs.get", ofJob(id))["budget"]; ok {
			f.Errorf("the ended job has the budget %v, want none", left)
		}
	})
}

// longList is a store whose lists of jobs end only with their context.
type longList struct {
	store.Store
	running atomic.Int32
}

func (s *longList) Jobs(ctx context.Context, _ store.JobQuery, _ func(store.Job) bool) error {
	s.running.Add(1)
	defer s.running.Add(-1)
	<-ctx.Done()
	return context.Cause(ctx)
}

// A list of jobs ends when its client is gone.
func TestListOfJobsEndsWithItsClient(t *testing.T) {
	st := new(longList)
	inBubble(t, func(c *runtime.Config) { st.Store, c.Store = c.Store, st }, func(f *fixture) {
		p := f.dial("alice")
		p.send("session.list_jobs", `{}`)
		synctest.Wait()
		if n := st.running.Load(); n != 1 {
			t.Errorf("%d lists run, want the one of the client", n)
		}
		if err := p.conn.Abort(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := st.running.Load(); n != 0 {
			t.Errorf("%d lists run for a client that is gone", n)
		}
	})
}
