package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

const anyTool = `{"tool.call":["*"],"agent.delegate":["*"]}`

// parent submits a job that may call every tool.
func (f *fixture) parent(name, args string, amounts ...string) arcp.MessageID {
	f.Helper()
	q := f.request("sess_1", name, args)
	q.payload.LeaseRequest, q.payload.CostBudget = arcp.Raw(anyTool), amounts
	return f.send(q)
}

// callTool returns a tool that calls another one with its arguments.
func callTool(name string) tool.Func {
	return func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
		return j.Call(ctx, tool.Call{Tool: name, Arguments: args})
	}
}

// delegated is the data of the first event delegate.
func delegated(t *testing.T, frames []frame) family.DelegateData {
	t.Helper()
	for _, f := range frames {
		if p, err := arcp.DecodePayload[arcp.EventEmitPayload](&f.Envelope); err == nil && p.Name == "delegate" {
			var d family.DelegateData
			if err := arcp.Unmarshal(p.Data, &d); err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Fatalf("%v: nothing was delegated", frames)
	panic("unreachable")
}

// children are the jobs that a job has called, the oldest first.
func (f *fixture) children(parent arcp.JobID) (rows []store.Job) {
	f.Helper()
	err := f.st.Jobs(context.Background(), store.JobQuery{Principal: "alice"}, func(j store.Job) bool {
		if j.Parent == parent {
			rows = append(rows, j)
		}
		return true
	})
	if err != nil {
		f.Fatal(err)
	}
	return rows
}

// remainingBudget returns the remaining budget of a job as its tool sees it.
func remainingBudget(j tool.Job) string {
	s := j.Host().(toolJob).s
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(family.Texts(s.authority.Budget.Remaining()), " ")
}

// The expiry and budget of a call, next to its lease, bound the child as well. The expiry may
// be in any time zone.
func TestCallWithBounds(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("spend", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			got := []string{remainingBudget(j), code(j.Authority().Charge("x", "USD", "0.5")), code(j.Authority().Charge("x", "USD", "0.5"))}
			time.Sleep(time.Minute)
			return arcp.Marshal(append(got, code(j.Authority().UseModel("m"))))
		})
		f.tool("call", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return j.Call(ctx, tool.Call{Tool: "spend", CostBudget: []string{"USD:0.50"},
				Constraints: &arcp.LeaseConstraints{ExpiresAt: time.Now().Add(30 * time.Second).In(time.FixedZone("", 7200))}})
		})
		f.parent("call", "{}", "USD:2")
		time.Sleep(2 * time.Minute)
		frames := f.frames("sess_1")
		if got := delegated(t, frames).Lease; !strings.Contains(string(got), `"cost.budget":["USD:0.50"]`) ||
			!strings.Contains(string(got), `"expires_at":`) {
			t.Errorf("the child may do %s", got)
		}
		if last := frames[len(frames)-1]; last.Type != arcp.JobFailed || !strings.Contains(string(last.Payload), "LEASE_EXPIRED") {
			t.Errorf("the child ended with %s %s", last.Type, last.Payload)
		}
		f.expectNoState("ended")
	})
}

func TestCall(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("echo", nil, echo)
		f.tool("parent", nil, callTool("echo"))
		q := f.request("sess_1", "parent", `{"n":1}`)
		q.payload.LeaseRequest = arcp.Raw(anyTool)
		q.env.TraceID, q.env.Priority = "trace_1", arcp.PriorityHigh
		id := f.send(q)
		frames := f.want("the child's events come without a correlation", "job.accepted "+string(id), "job.started "+string(id),
			"event.emit "+string(id), "job.accepted", "job.started", "job.completed", "job.completed "+string(id))
		d, p, child := delegated(t, frames), frames[0], frames[3]
		if d.ChildJobID != child.JobID || d.Agent != "echo@1.0.0" || d.DelegateID == "" || string(d.Lease) != "{}" {
			t.Errorf("delegated %+v to %s", d, child.JobID)
		}
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&child.Envelope)
		if err != nil || a.ParentJobID != p.JobID || a.TraceID != "trace_1" {
			t.Errorf("the child was accepted with %+v, %v", a, err)
		}
		for _, e := range frames[3:6] {
			if e.CorrelationID != "" || e.TraceID != "trace_1" || e.ParentSpanID != p.SpanID || e.SpanID == p.SpanID || e.JobID != child.JobID {
				t.Errorf("%s of the child: correlation %q, trace %s, span %s below %s", e.Type, e.CorrelationID, e.TraceID, e.SpanID, e.ParentSpanID)
			}
		}
		if row := f.row(child.JobID); row.Parent != p.JobID || row.Principal != "alice" || row.Session != "sess_1" ||
			row.Priority != arcp.PriorityHigh {
			t.Errorf("the child's row is %+v", row)
		}
		if got := string(frames[6].Payload); got != `{"value":{"n":1}}` {
			t.Errorf("the parent ends with %s", got)
		}
		f.expectNoState("both have ended")
	})
}

// A call returns the error of its child.
func TestCallFails(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		broken := arcp.Errorf(arcp.CodeFailedPrecondition, "it is broken").WithDetails(struct{}{})
		f.tool("fail", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return nil, broken })
		f.tool("wait", nil, wait)
		var got error
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			var name string
			if err := arcp.Unmarshal(args, &name); err != nil {
				return nil, err
			}
			out, err := j.Call(ctx, tool.Call{Tool: name})
			got = err
			return out, nil
		})
		f.parent("parent", `"fail"`)
		synctest.Wait()
		if e, ok := errors.AsType[*arcp.Error](got); !ok || e.Code != broken.Code || e.Message != broken.Message || string(e.Details) != "{}" {
			t.Errorf("%v, want %v", got, broken)
		}
		f.parent("parent", `"wait"`)
		f.cancel(delegated(t, f.frames("sess_1")[6:]).ChildJobID, 0)
		synctest.Wait()
		if code(got) != "CANCELLED" {
			t.Errorf("of a child that was cancelled: %v", got)
		}
		f.expectNoState("")
	})
}

// A call that is refused makes no job.
func TestCallIsRefused(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobsPerSession = 2 }, func(f *fixture) {
		f.tool("echo", nil, echo)
		f.tool("strict", func(c *tool.Capability) { c.MinTrust = "privileged" }, echo)
		f.tool("inside", builtin(tool.SideEffectWrite), echo)
		f.tool("typed", func(c *tool.Capability) { c.InputSchema = arcp.Raw(`{"type":"object","required":["a"]}`) }, echo)
		f.tool("wait", nil, wait)
		var call tool.Call
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) { return j.Call(ctx, call) })
		for _, c := range []struct {
			why   string
			call  tool.Call
			lease string
			want  string
		}{
			{"no lease", tool.Call{Tool: "echo"}, ``, "PERMISSION_DENIED"},
			{"another tool", tool.Call{Tool: "echo"}, `{"tool.call":["other"]}`, "PERMISSION_DENIED"},
			{"not as a delegation", tool.Call{Tool: "echo", Delegate: true}, `{"tool.call":["echo"]}`, "PERMISSION_DENIED"},
			{"only as a delegation", tool.Call{Tool: "echo"}, `{"agent.delegate":["echo"]}`, "PERMISSION_DENIED"},
			{"no name", tool.Call{Tool: "E!"}, anyTool, "INVALID_ARGUMENT"},
			{"no tool", tool.Call{Tool: "none"}, anyTool, "AGENT_NOT_AVAILABLE"},
			{"no version", tool.Call{Tool: "echo@7"}, anyTool, "AGENT_VERSION_NOT_AVAILABLE"},
			{"for clients only", tool.Call{Tool: "inside"}, anyTool, "PERMISSION_DENIED"},
			{"not trusted", tool.Call{Tool: "strict"}, anyTool, "PERMISSION_DENIED"},
			{"no JSON", tool.Call{Tool: "echo", Arguments: arcp.Raw(`{`)}, anyTool, "INVALID_ARGUMENT"},
			{"arguments that do not fit", tool.Call{Tool: "typed", Arguments: arcp.Raw(`{}`)}, anyTool, "INVALID_ARGUMENT"},
			{"a lease that is none", tool.Call{Tool: "echo", Lease: arcp.Raw(`[]`)}, anyTool, "INVALID_REQUEST"},
			{"too wide a lease", tool.Call{Tool: "echo", Lease: arcp.Raw(`{"fs.read":["/**"]}`)}, anyTool, "LEASE_SUBSET_VIOLATION"},
			{"too long a lease", tool.Call{Tool: "echo", Lease: arcp.Raw(`{"expires_at":"2200-01-01T00:00:00Z"}`)},
				`{"tool.call":["*"],"expires_at":"2100-01-01T00:00:00Z"}`, "LEASE_SUBSET_VIOLATION"},
			{"too large a budget", tool.Call{Tool: "echo", Lease: arcp.Raw(`{"cost.budget":["USD:1.01"]}`)},
				`{"tool.call":["*"],"cost.budget":["USD:1.00"]}`, "LEASE_SUBSET_VIOLATION"},
			{"nothing left", tool.Call{Tool: "echo"}, `{"tool.call":["*"],"cost.budget":["USD:0"]}`, "BUDGET_EXHAUSTED"},
		} {
			call = c.call
			q := f.request("sess_1", "parent", "{}")
			q.payload.LeaseRequest = arcp.Raw(c.lease)
			q.Trust = "trusted"
			id := f.send(q)
			frames := f.want(c.why, "job.accepted "+string(id), "job.started", "job.failed "+string(id)+" "+c.want)
			if n := len(f.children(frames[0].JobID)); n != 0 {
				t.Errorf("%s: %d children", c.why, n)
			}
		}
		f.submit("wait", "{}")
		f.want("another job", "job.accepted", "job.started")
		call = tool.Call{Tool: "echo"}
		f.parent("parent", "{}")
		f.want("too many jobs", "job.accepted", "job.started", "job.failed msg_18 RESOURCE_EXHAUSTED")
	})
}

// emittedBudgets returns the remaining budgets in the metric events.
func emittedBudgets(t *testing.T, frames []frame) string {
	var all []string
	for _, f := range frames {
		if f.Type != arcp.Metric {
			continue
		}
		m, err := arcp.DecodePayload[arcp.MetricPayload](&f.Envelope)
		if err != nil || m.Name != "cost.budget.remaining" {
			t.Fatalf("a metric is %s, %v; want cost.budget.remaining", f.Payload, err)
		}
		all = append(all, string(m.Value)+" "+m.Unit)
	}
	return strings.Join(all, ", ")
}

// The child has the requested lease, and inherits the bounds of its parent.
func TestLeaseOfChild(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("child", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return arcp.Marshal([]string{code(j.Authority().Allow(arcp.NamespaceFSRead, "/a/b")),
				code(j.Authority().Allow(arcp.NamespaceFSRead, "/a/c")), code(j.Authority().Allow(arcp.NamespaceToolCall, "child")), remainingBudget(j)})
		})
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			return j.Call(ctx, tool.Call{Tool: "child", Lease: args})
		})
		for asked, c := range map[string]struct{ want, told string }{ // told: the remaining budget announced for the parent meanwhile
			`{}`: {`["PERMISSION_DENIED","PERMISSION_DENIED","PERMISSION_DENIED","USD:5.00 EUR:1"]`, "0.00 USD, 0 EUR"},
			`{"fs.read":["/a/b"],"cost.budget":["USD:2.50","GBP:3"]}`: {`["","PERMISSION_DENIED","PERMISSION_DENIED","USD:2.50 GBP:3 EUR:1"]`, "2.50 USD, 0 EUR"},
			`{"cost.budget":["USD:0.01","EUR:0"]}`:                    {`["PERMISSION_DENIED","PERMISSION_DENIED","PERMISSION_DENIED","USD:0.01 EUR:0"]`, ""},
		} {
			q := f.request("sess_1", "parent", asked)
			q.payload.LeaseRequest = arcp.Raw(`{"tool.call":["child"],"fs.read":["/a/**"],"cost.budget":["USD:5.00","EUR:1"],"expires_at":"2100-01-01T00:00:00Z"}`)
			f.send(q)
			frames := f.frames("sess_1")
			if got := string(frames[len(frames)-1].Payload); got != `{"value":`+c.want+`}` {
				t.Errorf("%s: %s, want %s", asked, got, c.want)
			}
			told := c.told
			if told != "" {
				told += ", 5.00 USD, 1 EUR"
			}
			if got := emittedBudgets(t, frames); got != told {
				t.Errorf("%s: left are %q, want %q", asked, got, told)
			}
			i := slices.IndexFunc(frames, func(fr frame) bool { return fr.Type == arcp.JobAccepted && fr.CorrelationID == "" })
			a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&frames[i].Envelope)
			if err != nil || a.LeaseConstraints == nil || a.LeaseConstraints.ExpiresAt.Year() != 2100 {
				t.Errorf("%s: accepted with %+v, %v", asked, a, err)
			}
		}
		f.expectNoState("")
	})
}

func TestChildrenAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	runEngine(t, nil, func(f *fixture) {
		deepest := 0
		f.tool("down", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			deepest = max(deepest, j.Host().(toolJob).s.position.Depth)
			return j.Call(ctx, tool.Call{Tool: "down", Arguments: args, Lease: arcp.Raw(`{"tool.call":["down"]}`)})
		})
		f.parent("down", "{}")
		frames := f.frames("sess_1")
		if got := frames[len(frames)-1].String(); got != "job.failed msg_1 FAILED_PRECONDITION" || deepest != family.MaxDepth {
			t.Errorf("%s, %d deep", got, deepest)
		}
		f.tool("echo", nil, echo)
		f.tool("many", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			for range family.MaxChildren {
				if _, err := j.Call(ctx, tool.Call{Tool: "echo"}); err != nil {
					return nil, err
				}
			}
			_, err := j.Call(ctx, tool.Call{Tool: "echo"})
			return arcp.Raw(`"` + code(err) + `"`), nil
		})
		f.parent("many", "{}")
		frames = f.frames("sess_1")
		if got := string(frames[len(frames)-1].Payload); got != `{"value":"RESOURCE_EXHAUSTED"}` || len(f.children(frames[0].JobID)) != family.MaxChildren {
			t.Errorf("after %d children %s", len(f.children(frames[0].JobID)), got)
		}
		f.expectNoState("")
	})
}

// spendTool is a tool that reports a cost, waits, and then reports another one or fails.
func spendTool(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
	var a struct {
		Cost  arcp.Number `json:"cost"`
		After arcp.Number `json:"after"`
		Fail  bool        `json:"fail"`
	}
	if err := arcp.Unmarshal(args, &a); err != nil {
		return nil, err
	}
	if err := j.Metric(arcp.MetricPayload{Name: "cost.x", Value: a.Cost, Unit: "USD"}); err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if a.Fail {
		return nil, arcp.Errorf(arcp.CodeInternal, "it went wrong")
	}
	if a.After != "" {
		j.Metric(arcp.MetricPayload{Name: "cost.x", Value: a.After, Unit: "USD"})
	}
	return args, nil
}

func TestBudgetOfChildren(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("spend", nil, spendTool)
		f.tool("between", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			_, err := j.Call(ctx, tool.Call{Tool: "spend", Arguments: arcp.Raw(`{"cost":0.07}`), Lease: arcp.Raw(`{"cost.budget":["USD:1"]}`)})
			if err != nil {
				return nil, err
			}
			return arcp.Raw(`"` + remainingBudget(j) + `"`), nil
		})
		var saw []string
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			call := func(name, args, lease string) error {
				_, err := j.Call(ctx, tool.Call{Tool: name, Arguments: arcp.Raw(args), Lease: arcp.Raw(lease)})
				return err
			}
			note := func(err error) { saw = append(saw, remainingBudget(j)+" "+code(err)) }
			note(nil)
			note(call("spend", `{"cost":0.10}`, `{}`))
			note(call("spend", `{"cost":0.2,"fail":true}`, `{"cost.budget":["USD:1.00"]}`))
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					if err := call("spend", fmt.Sprintf(`{"cost":0.0%d1}`, i), `{"cost.budget":["USD:1.50"]}`); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Second / 2)
			note(call("spend", `{"cost":0}`, `{"cost.budget":["USD:1.50"]}`))
			note(j.Authority().Charge("y", "USD", "0.25"))
			wg.Wait()
			note(nil)
			note(call("between", `{}`, `{"tool.call":["spend"],"cost.budget":["USD:2"]}`))
			note(call("spend", `{"cost":3}`, `{"cost.budget":["USD:1"]}`)) // a child's overspending is charged to the parent
			note(call("spend", `{"cost":3}`, ``))
			note(call("spend", `{"cost":3}`, ``))
			return nil, nil
		})
		id := f.parent("parent", "{}", "USD:5.00")
		time.Sleep(time.Minute)
		frames := f.frames("sess_1")
		if got := frames[len(frames)-1].String(); got != "job.completed "+string(id) {
			t.Errorf("ended with %s", got)
		}
		want := []string{
			"USD:5.00 ", "USD:4.90 ", "USD:4.70 INTERNAL", // 4.5 of these are reserved then
			"USD:0.20 LEASE_SUBSET_VIOLATION", "USD:0.20 BUDGET_EXHAUSTED", "USD:4.667 ",
			"USD:4.597 ", "USD:1.597 ", "USD:-1.403 ", "USD:-1.403 BUDGET_EXHAUSTED",
		}
		if !slices.Equal(saw, want) {
			t.Errorf("left was\n\t%s\nwant\n\t%s", strings.Join(saw, "\n\t"), strings.Join(want, "\n\t"))
		}
		f.expectNoState("")
	})
}

// childTool is a tool that calls children in all ways, and records its remaining budget across
// crashes.
type childTool struct {
	*fixture
	left string // in the end
}

// run calls children one after the other, three at a time, and one with a child of its own. In
// any interleaving the remaining budget matches the costs.
func (ct *childTool) run(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
	call := func(name, args string) error {
		_, err := j.Call(ctx, tool.Call{Tool: name, Arguments: arcp.Raw(args),
			Lease: arcp.Raw(`{"cost.budget":["USD:2.00"],"tool.call":["spend"]}`)})
		return err
	}
	if err := call("spend", `{"cost":0.1}`); err != nil {
		return nil, err
	}
	if err := j.Authority().Charge("own", "USD", "0.0001"); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for n := range 4 {
		i := []int{1, 2, 3, 3}[(n+int(j.Attempt()))%4] // in another order each time
		wg.Go(func() {
			err := call("spend", fmt.Sprintf(`{"cost":0.0%d,"after":0.001}`, i))
			crashed := ctx.Err() != nil || err == error(errEnded) || code(err) == "UNAVAILABLE" // of the store
			if err != nil && !crashed {
				ct.Errorf("child %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if err := call("between", `{}`); err != nil {
		return nil, err
	}
	ct.left = remainingBudget(j)
	return nil, nil
}

func amount(t *testing.T, s string) lease.Amount {
	a, err := lease.ParseAmount(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Wherever the runtime crashes, each child is created once, and the remaining budget matches
// the costs of all children.
func TestCrashAnywhereWithChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for crash := 1; ; crash++ {
		done := false
		runEngine(t, nil, func(f *fixture) { done = f.crashFamily(crash) })
		if done {
			t.Logf("a life has %d commits", crash-1)
			break
		}
		if t.Failed() || crash > 200 {
			t.Fatalf("crash after %d commits", crash)
		}
	}
}

func (f *fixture) crashFamily(crash int) (done bool) {
	ct := &childTool{fixture: f}
	f.tool("spend", recovery(tool.RecoveryRerun), spendTool)
	f.tool("between", recovery(tool.RecoveryRerun), func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		return j.Call(ctx, tool.Call{Tool: "spend", Arguments: arcp.Raw(`{"cost":0.5,"after":0.05}`)})
	})
	f.tool("family", recovery(tool.RecoveryRerun), ct.run)
	f.session("sess_1")
	f.st.crashAfter(crash)
	f.parent("family", "{}", "USD:100")
	time.Sleep(time.Minute)
	f.st.mu.Lock()
	done = f.st.fail == nil
	f.st.mu.Unlock()
	frames := f.frames("sess_1")
	if frames[0].Type == arcp.JobFailed {
		return false // it was refused
	}
	for again := range 2 {
		f.stop(0)
		f.restart(f.st.Stat().LiveJobs)
		if again == 0 {
			f.st.crashAfter(crash)
		}
		time.Sleep(time.Minute)
		frames = append(frames, f.frames("sess_1")...)
	}
	ends := map[arcp.JobID]int{}
	for _, fr := range frames {
		if fr.Type == arcp.JobCompleted {
			ends[fr.JobID]++
		} else if fr.Type.Terminal() {
			f.Errorf("a job ends with %v, want job.completed", fr)
		}
	}
	id := frames[0].JobID
	kids := f.children(id)
	if len(kids) != 6 || len(f.children(kids[len(kids)-1].ID)) != 1 || len(ends) != 8 {
		f.Errorf("%d children, %d jobs ended, want 6 and 8", len(kids), len(ends))
	}
	for id, n := range ends {
		if n != 1 {
			f.Errorf("%s ended %d times", id, n)
		}
	}
	var all []arcp.JobID
	for id := range ends {
		all = append(all, id)
	}
	if want := f.unspent("USD:100", all); ct.left != want {
		f.Errorf("%s is left, %s is not spent", ct.left, want)
	}
	f.expectNoState("all have ended")
	return done
}

// callEachTool is a tool that makes the calls listed in its arguments, one after the other, and
// returns their results.
func callEachTool(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
	var list []tool.Call
	if err := arcp.Unmarshal(args, &list); err != nil {
		return nil, err
	}
	var results []arcp.Raw
	for _, c := range list {
		out, err := j.Call(ctx, c)
		if err != nil {
			return nil, err
		}
		results = append(results, out)
	}
	return arcp.Marshal(results)
}

// The end of a parent ends its children, and theirs, whichever it is, but for
// those that are detached.
func TestParentsEndEndsChildren(t *testing.T) {
	ends := map[string]func(f *fixture, id arcp.JobID){
		"cancelled": func(f *fixture, id arcp.JobID) { f.cancel(id, 0) },
		"failed":    func(*fixture, arcp.JobID) { time.Sleep(time.Hour) },
		"recovery":  func(f *fixture, _ arcp.JobID) { f.restart(4) },
	}
	for n := range 8 {
		ends[fmt.Sprintf("cancelled, crash after %d commits", n+1)] = func(f *fixture, id arcp.JobID) {
			f.st.crashAfter(n + 1)
			f.cancel(id, 0)
			time.Sleep(time.Minute)
			f.restart(f.st.Stat().LiveJobs)
		}
	}
	for why, end := range ends {
		t.Run(why, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.tool("parent", func(c *tool.Capability) { c.Limits.Timeout = time.Hour },
					func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
						go j.Call(ctx, tool.Call{Tool: "wait", Detach: true})
						return j.Call(ctx, tool.Call{Tool: "middle", Lease: arcp.Raw(`{"tool.call":["wait"]}`)})
					})
				f.tool("middle", rerun, callTool("wait"))
				f.tool("wait", rerun, wait)
				f.parent("parent", "{}")
				id := f.frames("sess_1")[0].JobID
				end(f, id)
				time.Sleep(time.Minute)
				frames := f.frames("sess_1")
				for _, row := range f.children(id) {
					switch {
					case !optionsOf(&row).Detach && row.State != arcp.StateCancelled:
						t.Errorf("%s is %s", row.Agent, row.State)
					case optionsOf(&row).Detach && row.State != arcp.StateRunning:
						t.Errorf("the detached one is %s", row.State)
					case optionsOf(&row).Detach:
						f.cancel(row.ID, 0)
					case f.children(row.ID)[0].State != arcp.StateCancelled:
						t.Errorf("the child of %s is %s", row.Agent, row.State)
					}
				}
				ends := map[arcp.JobID]int{}
				for _, fr := range append(frames, f.frames("sess_1")...) {
					if fr.Type.Terminal() && fr.JobID != "" {
						ends[fr.JobID]++
					}
				}
				for id, n := range ends {
					if n != 1 {
						t.Errorf("%s ended %d times", id, n)
					}
				}
				if len(ends) != 4 {
					t.Errorf("%d jobs ended, want 4", len(ends))
				}
				f.expectNoState("")
			})
		})
	}
}

// A child's unspent budget returns to the parent when all descendants have ended, even if the
// child ends before them.
func TestBudgetOfAChildThatEndsEarly(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("slow", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			j.Metric(arcp.MetricPayload{Name: "cost.x", Value: "0.25", Unit: "USD"})
			time.Sleep(2 * time.Second) // ignores its cancellation
			return nil, nil
		})
		f.tool("middle", func(c *tool.Capability) { c.Limits.Timeout = time.Second }, callTool("slow"))
		var saw []string
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Call(ctx, tool.Call{Tool: "middle", Lease: arcp.Raw(`{"tool.call":["slow"],"cost.budget":["USD:3"]}`)})
			saw = append(saw, code(err), remainingBudget(j))
			time.Sleep(time.Minute)
			saw = append(saw, remainingBudget(j))
			return nil, nil
		})
		f.parent("parent", "{}", "USD:5")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if want := []string{"DEADLINE_EXCEEDED", "USD:2", "USD:4.75"}; !slices.Equal(saw, want) {
			t.Errorf("%q, want %q", saw, want)
		}
		f.expectNoState("")
	})
}

// A retried parent gets the results of its completed children, and calls the failed ones
// again.
func TestRetryReusesChildren(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var ran []string
		f.tool("good", nil, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			ran = append(ran, "good "+string(args))
			return args, nil
		})
		fail := failFirst(errUnavailable())
		f.tool("bad", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			ran = append(ran, "bad")
			return fail(ctx, j, args)
		})
		f.tool("long", nil, sleeper(10*time.Second))
		f.tool("parent", threeAttempts, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			done := make(chan arcp.Raw, 1)
			go func() {
				out, _ := j.Call(ctx, tool.Call{Tool: "long", Lease: arcp.Raw(`{"cost.budget":["USD:1"]}`)})
				done <- out
			}()
			out, err := callEachTool(ctx, j, args)
			if err != nil {
				return nil, err
			}
			return arcp.Marshal([]arcp.Raw{out, <-done, arcp.Raw(`"` + remainingBudget(j) + `"`)})
		})
		const (
			budget = `"Lease":{"cost.budget":["USD:1"]}`
			good   = `{"Tool":"good","Arguments":{"n":1},` + budget + `}`
			bad    = `{"Tool":"bad",` + budget + `}`
		)
		id := f.parent("parent", "["+good+","+good+","+bad+"]", "USD:5")
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{`good {"n":1}`, `good {"n":1}`, "bad", "bad"}; !slices.Equal(ran, want) {
			t.Errorf("children ran: %q, want %q", ran, want)
		}
		frames := f.frames("sess_1")
		if last := frames[len(frames)-1]; last.CorrelationID != id || string(last.Payload) != `{"value":[[{"n":1},{"n":1},1],"slept","USD:5"]}` {
			t.Errorf("ended with %v %s", last, last.Payload)
		}
		f.expectNoState("")
	})
}

// After a restart the parent waits again for its running child and its queued child. It gets
// the outcome of the ended child, however large.
func TestRestartReusesChildren(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		big := arcp.Raw(`"` + strings.Repeat("é", 2*maxPayload/3) + strings.Repeat("x", maxPayload) + `"`)
		calls := map[string]int{}
		f.tool("big", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			calls["big"]++
			return big, nil
		})
		f.tool("bad", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			calls["bad"]++
			return nil, arcp.Errorf(arcp.CodeDataLoss, "gone").WithDetails(struct{}{})
		})
		f.tool("one", func(c *tool.Capability) { rerun(c); oneAtATime(c) }, sleeper(10*time.Second))
		attempts := 0
		f.tool("parent", rerun, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			attempts++
			out, err := j.Call(ctx, tool.Call{Tool: "big"})
			if err != nil || string(out) != string(big) {
				t.Errorf("attempt %d: %d bytes, %v", attempts, len(out), err)
			}
			if _, err := j.Call(ctx, tool.Call{Tool: "bad"}); code(err) != "DATA_LOSS" || string(err.(*arcp.Error).Details) != "{}" {
				t.Errorf("attempt %d: %v", attempts, err)
			}
			var wg sync.WaitGroup
			for range 2 { // one runs, the other one is queued
				wg.Go(func() {
					if out, err := j.Call(ctx, tool.Call{Tool: "one"}); err == nil && string(out) != `"slept"` {
						t.Errorf("attempt %d: %s", j.Attempt(), out)
					}
				})
			}
			wg.Wait()
			return arcp.Raw(`"slept"`), context.Cause(ctx)
		})
		f.parent("parent", "{}")
		time.Sleep(time.Second)
		id := f.frames("sess_1")[0].JobID
		f.restart(3)
		time.Sleep(time.Minute)
		frames := f.frames("sess_1")
		if last := frames[len(frames)-1]; last.JobID != id || string(last.Payload) != `{"value":"slept"}` {
			t.Errorf("ended with %v", last)
		}
		if kids := f.children(id); len(kids) != 4 || calls["big"] != 1 || calls["bad"] != 1 || attempts != 2 {
			t.Errorf("%d children, %v calls, %d attempts", len(kids), calls, attempts)
		}
		f.expectNoState("")
	})
}

// An attempt that continues from a checkpoint does not match its new calls with calls made
// before the checkpoint. A job that starts from another job's checkpoint has children of its
// own.
func TestCheckpointRecordsChildren(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		n := 0
		f.tool("next", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			n++
			return fmt.Appendf(nil, "%d", n), nil
		})
		f.tool("parent", recovery(tool.RecoveryCheckpoint), func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			var got []arcp.Raw
			if at := j.Restored(); len(at) > 0 {
				if err := arcp.Unmarshal(at, &got); err != nil {
					return nil, err
				}
			}
			for len(got) < 4 {
				out, err := j.Call(ctx, tool.Call{Tool: "next"})
				if err != nil {
					return nil, err
				}
				if len(got) == 2 && j.Attempt() == 1 {
					return wait(ctx, j, nil)
				}
				if got = append(got, out); len(got) == 2 {
					if err := j.Checkpoint("", got); err != nil {
						return nil, err
					}
				}
			}
			return arcp.Marshal(got)
		})
		id := f.parent("parent", "{}")
		frames := f.frames("sess_1")
		chk, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&frames[slices.IndexFunc(frames,
			func(fr frame) bool { return fr.Type == arcp.JobCheckpoint })].Envelope)
		if err != nil {
			t.Fatal(err)
		}
		f.restart(1)
		f2 := f.frames("sess_1")
		if last := f2[len(f2)-1]; last.CorrelationID != id || string(last.Payload) != `{"value":[1,2,3,4]}` {
			t.Errorf("ended with %v %s", last, last.Payload)
		}
		q := f.restoreRequest("sess_1", frames[0].JobID, chk.CheckpointID)
		q.Lease = leaseFrom(t, anyTool)
		f.sendRestore(q)
		f.want("the new job has called one", "job.accepted", "job.started", "event.emit", "job.accepted", "job.started", "job.completed")
		f.restart(1)
		f3 := f.frames("sess_1")
		if last := f3[len(f3)-1]; string(last.Payload) != `{"value":[1,2,5,6]}` {
			t.Errorf("the new job ended with %v %s", last, last.Payload)
		}
		f.expectNoState("")
	})
}

// A runtime that is shutting down accepts the children of running jobs.
func TestDrainAcceptsChildren(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("echo", nil, echo)
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			return j.Call(ctx, tool.Call{Tool: "echo", Arguments: args})
		})
		id := f.parent("parent", `{"n":1}`)
		f.want("the parent runs", "job.accepted", "job.started")
		f.stop(time.Hour)
		frames := f.frames("sess_1")
		if last := frames[len(frames)-1]; last.String() != "job.completed "+string(id) || len(frames) != 5 {
			t.Errorf("the session has %v, want 5 frames that end with the completion of the parent %s", lines(frames), id)
		}
		f.expectNoState("")
	})
}

// A child whose credentials are refused is not created, and costs nothing.
func TestChildWithoutCredentials(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		defer f.provision("needy*", arcp.CodeUnavailable)()
		f.tool("needy", nil, echo)
		var saw []string
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			for range 2 {
				_, err := j.Call(ctx, tool.Call{Tool: "needy", Arguments: args})
				saw = append(saw, code(err), remainingBudget(j))
			}
			return nil, nil
		})
		f.parent("parent", `{}`, "USD:1")
		id := f.frames("sess_1")[0].JobID
		if want := []string{"UNAVAILABLE", "USD:1", "UNAVAILABLE", "USD:1"}; !slices.Equal(saw, want) {
			t.Errorf("%q, want %q", saw, want)
		}
		if n := len(f.children(id)); n != 0 {
			t.Errorf("%d children", n)
		}
		f.expectNoState("")
	})
}

// provision has the engine provision credentials for the jobs of tools. They are refused.
func (f *fixture) provision(tools string, refusal arcp.Code) (stop func()) {
	f.Helper()
	sealer, err := credential.NewSealer(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	f.e.cfg.Vault, err = credential.New(credential.Options{Log: f.cfg.Log, Store: f.st, Sealer: sealer,
		Sources: []credential.Source{{Name: "p", For: []string{tools}, Provisioner: refusingProvisioner{refusal}}}})
	if err != nil {
		f.Fatal(err)
	}
	if err := f.e.cfg.Vault.Recover(f.Context()); err != nil {
		f.Fatal(err)
	}
	return f.e.cfg.Vault.Close
}

type refusingProvisioner struct{ code arcp.Code }

func (p refusingProvisioner) Issue(context.Context, credential.Request) ([]credential.Credential, error) {
	return nil, &credential.RefusedError{Err: arcp.Errorf(p.code, "not now")}
}

func (refusingProvisioner) Revoke(context.Context, credential.Ref) error { return nil }

// familyModel is a lot of jobs that call each other in all ways, on a runtime that is
// cancelled at, stopped and crashed all the time.
type familyModel struct {
	*fixture
	rng   *rand.Rand
	seed  uint64
	roots []arcp.JobID
	jobs  []arcp.JobID
	ends  map[arcp.JobID]int

	mu   sync.Mutex
	left map[arcp.JobID]string
}

// member spends and calls other tools. Its behaviour depends on its arguments, and in one of
// four cases on the attempt.
func (fm *familyModel) member(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
	h := fnv.New64a()
	h.Write(args)
	rng := rand.New(rand.NewPCG(fm.seed, h.Sum64()))
	if rng.IntN(4) == 0 {
		rng = rand.New(rand.NewPCG(uint64(j.Attempt()), h.Sum64()))
	}
	var depth int
	if err := arcp.Unmarshal(args[1:2], &depth); err != nil {
		return nil, err
	}
	call := func() error {
		name := []string{"rerun", "fail", "retried"}[rng.IntN(3)]
		lease := arcp.Raw(fmt.Sprintf(`{"tool.call":["*"],"cost.budget":["USD:%d.%d"]}`, rng.IntN(9), rng.IntN(10)))
		if rng.IntN(5) == 0 {
			lease = arcp.Raw(`{"tool.call":["*"]}`)
		}
		_, err := j.Call(ctx, tool.Call{Tool: name, Arguments: fmt.Appendf(nil, "[%d,%d]", depth-1, rng.IntN(4)), Lease: lease})
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for range rng.IntN(6) {
		switch n := rng.IntN(8); {
		case n == 0 && depth < 3:
			return nil, errUnavailable()
		case n < 3:
			j.Metric(arcp.MetricPayload{Name: "cost.x", Unit: "USD", Value: arcp.Number(fmt.Sprintf("0.%03d", rng.IntN(300)))})
		case n < 4:
			j.Authority().Charge("y", "usd", "0.5")
		case n < 5:
			select {
			case <-time.After(time.Duration(rng.IntN(2000)) * time.Millisecond):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		case depth > 0 && n < 7:
			if err := call(); err != nil && ctx.Err() != nil {
				return nil, err
			}
		case depth > 0:
			sub := rng.Uint64()
			wg.Go(func() {
				j.Call(ctx, tool.Call{Tool: "rerun", Arguments: fmt.Appendf(nil, "[%d,%d]", depth-1, sub%4),
					Lease: arcp.Raw(`{"cost.budget":["USD:1"]}`)})
			})
		}
	}
	return args, nil
}

func (fm *familyModel) root(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
	out, err := fm.member(ctx, j, args)
	select {
	case <-time.After(time.Minute): // until all below have ended
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	fm.mu.Lock()
	fm.left[j.ID()] = remainingBudget(j)
	fm.mu.Unlock()
	return out, err
}

func (fm *familyModel) collect() {
	fm.Helper()
	for _, f := range fm.frames("sess_1") {
		if f.Type == arcp.JobAccepted {
			if fm.jobs = append(fm.jobs, f.JobID); f.CorrelationID != "" {
				fm.roots = append(fm.roots, f.JobID)
			}
		}
		if f.Type.Terminal() && f.JobID != "" {
			fm.ends[f.JobID]++
		}
	}
}

// withDescendants returns a job and all its descendants.
func (fm *familyModel) withDescendants(id arcp.JobID, parents map[arcp.JobID][]arcp.JobID) (all []arcp.JobID) {
	all = append(all, id)
	for _, k := range parents[id] {
		all = append(all, fm.withDescendants(k, parents)...)
	}
	return all
}

// In any interleaving every job ends once. The remaining budget of a completed root job
// matches the costs of the job and its descendants.
func TestChaosOfChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	runEngine(t, nil, func(f *fixture) {
		c := &familyModel{fixture: f, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), ends: map[arcp.JobID]int{}, left: map[arcp.JobID]string{}}
		f.tool("root", rerun, c.root)
		f.tool("rerun", func(k *tool.Capability) { rerun(k); k.Limits.Timeout = 20 * time.Second }, c.member)
		f.tool("fail", func(k *tool.Capability) { k.Limits.Concurrency = 20 }, c.member)
		f.tool("retried", func(k *tool.Capability) { rerun(k); threeAttempts(k); withoutSideEffect(k) }, c.member)
		f.session("sess_1")
		for range 150 {
			switch c.rng.IntN(10) {
			case 0:
				if len(c.jobs) > 0 {
					c.cancel(c.jobs[max(0, len(c.jobs)-1-c.rng.IntN(12))], time.Duration(c.rng.IntN(3000))*time.Millisecond)
				}
			case 1, 2, 3:
				time.Sleep(time.Duration(c.rng.IntN(3000)) * time.Millisecond)
			case 4:
				switch c.rng.IntN(3) {
				case 0:
					c.stop(time.Duration(c.rng.IntN(4000)) * time.Millisecond)
				case 1:
					c.st.crashAfter(1 + c.rng.IntN(20))
					time.Sleep(time.Duration(c.rng.IntN(3000)) * time.Millisecond)
				}
				c.stop(0)
				synctest.Wait()
				c.collect()
				c.restart(c.st.Stat().LiveJobs)
			default:
				c.parent("root", fmt.Sprintf("[3,%d]", c.n), "USD:50.000")
			}
			c.collect()
		}
		time.Sleep(time.Hour)
		c.collect()
		c.check()
		f.expectNoState("after all")
	})
}

func (fm *familyModel) check() {
	parents := map[arcp.JobID][]arcp.JobID{}
	for _, id := range fm.jobs {
		if row := fm.row(id); row.Parent != "" {
			parents[row.Parent] = append(parents[row.Parent], id)
		}
		if fm.ends[id] != 1 {
			fm.Errorf("%s ended %d times", id, fm.ends[id])
		}
	}
	completed := 0
	for _, id := range fm.roots {
		if fm.row(id).State != arcp.StateCompleted {
			continue
		}
		completed++
		if want := fm.unspent("USD:50.000", fm.withDescendants(id, parents)); fm.left[id] != want {
			fm.Errorf("%s has %s left, and %s is not spent by the %d jobs", id, fm.left[id], want, len(fm.withDescendants(id, parents)))
		}
	}
	fm.Logf("%d jobs, %d roots of which %d completed", len(fm.jobs), len(fm.roots), completed)
}

// unspent is an amount less the costs of jobs.
func (f *fixture) unspent(from string, jobs []arcp.JobID) string {
	f.Helper()
	b := lease.NewBudget([]lease.Amount{amount(f.T, from)})
	for _, id := range jobs {
		err := f.st.JobEvents(context.Background(), id, 0, func(ev *store.Event) bool {
			env, err := arcp.Decode(store.AppendFrame(nil, store.FrameHead("1.1", "sess_1"), 0, "", ev))
			if err != nil {
				f.Fatal(err)
			}
			if m, err := arcp.DecodePayload[arcp.MetricPayload](&env); err == nil && lease.IsCost(m.Name) {
				b.Report(m.Unit, m.Value)
			}
			return true
		})
		if err != nil {
			f.Fatal(err)
		}
	}
	return strings.Join(family.Texts(b.Remaining()), " ")
}
