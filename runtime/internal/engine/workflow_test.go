package engine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// workflow registers a workflow.
func (f *fixture) workflow(c workflow.Config) {
	f.Helper()
	tools, err := workflow.New(c)
	if err != nil {
		f.Fatal(err)
	}
	for _, t := range tools {
		if err := f.cfg.Tools.Register(t); err != nil {
			f.Fatal(err)
		}
	}
}

// workArgs are the arguments of the tool work.
type workArgs struct {
	Key     string `json:"key"`
	MS      int    `json:"ms"`
	Attempt int    `json:"attempt"`
	Needed  int    `json:"needed,omitzero"` // attempts that complete; fewer fail with UNAVAILABLE
	Fail    bool   `json:"fail,omitzero"`
	Sum     int    `json:"sum,omitzero"`
}

// work takes some time, and returns its key and the sum of its arguments. It is idempotent by the id of
// its job.
func work(ctx context.Context, _ tool.Job, raw arcp.Raw) (arcp.Raw, error) {
	var args workArgs
	if err := arcp.Unmarshal(raw, &args); err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Duration(args.MS) * time.Millisecond):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case args.Fail:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "%s fails", args.Key)
	case args.Attempt < args.Needed:
		return nil, errUnavailable()
	}
	return arcp.Marshal(workResult{args.Key, args.Sum + 1})
}

type workResult struct {
	Key string `json:"key"`
	Sum int    `json:"sum"`
}

// randomWorkflow is a workflow of calls of work, with its expected outcome.
type randomWorkflow struct {
	config workflow.Config
	names  []string
	calls  map[string]int // expected attempts, by the key of a call
	state  map[string]workflow.State
	sum    map[string]int // value of a completed step
	failed bool           // some step fails, unless another one fails before
}

// newRandomWorkflow returns a workflow of up to 8 steps that need earlier steps at random.
func newRandomWorkflow(rng *rand.Rand) *randomWorkflow {
	w := &randomWorkflow{calls: map[string]int{}, state: map[string]workflow.State{}, sum: map[string]int{}}
	w.config = workflow.Config{Capability: tool.Capability{Name: "flow"}, Steps: map[string]workflow.Step{}}
	result := map[string]any{}
	for i := range 1 + rng.IntN(8) {
		name := fmt.Sprintf("s%d", i)
		var needs []string
		for _, other := range w.names {
			if rng.IntN(3) == 0 {
				needs = append(needs, other)
			}
		}
		w.add(rng, name, needs)
		w.names = append(w.names, name)
		result[name] = "=steps." + name
	}
	w.config.Result = result
	return w
}

// add adds a step and computes its outcome.
func (w *randomWorkflow) add(rng *rand.Rand, name string, needs []string) {
	s := workflow.Step{Needs: needs, Retry: tool.Retry{MaxAttempts: 3, InitialMS: 100}}
	s.Tool = "work"
	runs, sum, terms := true, 0, []string{"0"}
	for _, need := range needs {
		if w.state[need] == workflow.Completed {
			sum += w.sum[need]
		} else {
			runs = false
		}
		terms = append(terms, fmt.Sprintf(`(steps.%[1]s.state == "completed" ? int(type(steps.%[1]s.value) == list ? size(steps.%[1]s.value) : steps.%[1]s.value.sum) : 0)`, need))
	}
	switch rng.IntN(6) {
	case 0:
		s.When, runs = "true", true
	case 1:
		s.When, runs = "input.no", false
	}
	needed, fails := 1+rng.IntN(2), rng.IntN(12) == 0
	arguments := map[string]any{"key": name, "ms": rng.IntN(50) + 1, "attempt": "=attempt", "needed": needed, "fail": fails, "sum": "=" + strings.Join(terms, "+")}
	s.Arguments = arguments
	keys := []string{name}
	if rng.IntN(3) == 0 {
		n := rng.IntN(4)
		s.Each, s.Parallel = fmt.Sprintf(`["a","b","c","d"].filter(i, i < %q)`, "abcd"[n:n+1]), rng.IntN(3)
		arguments["key"] = "=\"" + name + "-\" + item"
		keys = nil
		for i := range n {
			keys = append(keys, fmt.Sprintf("%s-%c", name, 'a'+i))
		}
	}
	if rng.IntN(2) == 0 {
		s.OnFailure = &workflow.Call{Tool: "undo", Arguments: map[string]any{"key": "=value.key"}}
	}
	w.config.Steps[name] = s
	if !runs {
		w.state[name] = workflow.Skipped
		return
	}
	w.state[name], w.sum[name] = workflow.Completed, sum+1
	if s.Each != "" {
		w.sum[name] = len(keys)
	}
	for _, key := range keys {
		w.calls[key] = needed
	}
	if fails && len(keys) > 0 {
		w.state[name], w.failed = workflow.Failed, true
	}
}

// want returns the expected value of the workflow.
func (w *randomWorkflow) want() string {
	all := map[string]any{}
	for _, name := range w.names {
		step := map[string]any{"state": w.state[name], "value": nil}
		s := w.config.Steps[name]
		switch {
		case w.state[name] != workflow.Completed:
		case s.Each == "":
			step["value"] = workResult{name, w.sum[name]}
		default:
			values := []any{}
			for _, key := range slices.Sorted(maps.Keys(w.calls)) {
				if strings.HasPrefix(key, name+"-") {
					values = append(values, workResult{key, w.itemSum(name)})
				}
			}
			step["value"] = values
		}
		all[name] = step
	}
	raw, err := arcp.Marshal(map[string]any{"value": all})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// itemSum is the sum that a call for an item returns.
func (w *randomWorkflow) itemSum(name string) int {
	sum := 1
	for _, need := range w.config.Steps[name].Needs {
		if w.state[need] == workflow.Completed {
			sum += w.sum[need]
		}
	}
	return sum
}

// needs reports whether one step needs another one, at any distance.
func (w *randomWorkflow) needs(step, other string) bool {
	for _, need := range w.config.Steps[step].Needs {
		if need == other || w.needs(need, other) {
			return true
		}
	}
	return false
}

// In any workflow with any crashes each call is made once, the values reach the steps that need them,
// and the completed calls of a workflow that fails are compensated once, a call after those that depend
// on it.
func TestWorkflowsSurviveCrashes(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 60
	}
	base := rand.Uint64()
	t.Logf("base seed %d", base)
	for i := range n {
		seed := base + uint64(i)
		runEngine(t, nil, func(f *fixture) { f.crashWorkflow(seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (f *fixture) crashWorkflow(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newRandomWorkflow(rng)
	f.tool("work", rerun, work)
	f.tool("undo", rerun, work)
	f.workflow(w.config)
	f.session("sess_1")
	crash := func() {
		if rng.IntN(4) > 0 {
			f.st.crashAfter(1 + rng.IntN(40))
		}
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
	}
	crashes := rng.IntN(4)
	if crashes > 0 {
		crash()
	}
	f.parent("flow", `{"no":false}`)
	frames := f.frames("sess_1")
	if frames[0].Type == arcp.JobFailed {
		return // the store has failed before the submit
	}
	for range crashes {
		crash()
		f.stop(time.Duration(rng.IntN(2)*rng.IntN(100)) * time.Millisecond)
		f.restart(f.st.Stat().LiveJobs)
	}
	time.Sleep(time.Minute)
	f.checkWorkflow(w, frames[0].JobID, crashes == 0)
	f.expectNoState("the workflow has ended")
}

// workCall is a call of a workflow that has ended.
type workCall struct {
	store.Job
	workArgs
}

func (f *fixture) checkWorkflow(w *randomWorkflow, id arcp.JobID, exact bool) {
	f.Helper()
	o, err := readOutcome(context.Background(), f.st, new(f.row(id)))
	if err != nil {
		f.Fatal(err)
	}
	var done, undone []workCall
	made := map[string]int{}
	for _, row := range f.children(id) {
		c := workCall{Job: row}
		if err := arcp.Unmarshal(row.Arguments, &c.workArgs); err != nil {
			f.Fatal(err)
		}
		if strings.HasPrefix(row.Agent, "undo") {
			undone = append(undone, c)
			continue
		}
		made[fmt.Sprint(c.Key, " ", c.workArgs.Attempt)]++
		if row.State == arcp.StateCompleted {
			done = append(done, c)
		}
	}
	for key, n := range made {
		if n != 1 {
			f.Errorf("the call %s is made %d times", key, n)
		}
	}
	if !w.failed {
		f.checkCompleted(w, o.State, string(o.Value), made, undone)
		return
	}
	if o.State != arcp.StateFailed || o.Err.Code != arcp.CodeFailedPrecondition || o.Err.Retryable {
		f.Errorf("the workflow ends with %s %v, want FAILED_PRECONDITION", o.State, o.Err)
	}
	f.checkCompensated(w, done, undone, exact)
}

func (f *fixture) checkCompleted(w *randomWorkflow, state arcp.JobState, value string, made map[string]int, undone []workCall) {
	f.Helper()
	if want := w.want(); state != arcp.StateCompleted || `{"value":`+value+`}` != want {
		f.Errorf("the workflow ends with %s %s\nwant %s", state, value, want)
	}
	expected := 0
	for key, attempts := range w.calls {
		for n := range attempts {
			if expected++; made[fmt.Sprint(key, " ", n+1)] != 1 {
				f.Errorf("attempt %d of %s is not made", n+1, key)
			}
		}
	}
	if len(made) != expected || len(undone) != 0 {
		f.Errorf("%d calls and %d compensations, want %d and 0", len(made), len(undone), expected)
	}
}

// checkCompensated checks that each completed call is compensated once, in the reverse order of
// completion. After a crash the order of independent calls is not known.
func (f *fixture) checkCompensated(w *randomWorkflow, done, undone []workCall, exact bool) {
	f.Helper()
	step := func(c *workCall) string { name, _, _ := strings.Cut(c.Key, "-"); return name }
	done = slices.DeleteFunc(done, func(c workCall) bool { return w.config.Steps[step(&c)].OnFailure == nil })
	slices.SortFunc(undone, func(a, b workCall) int { return a.EndedAt.Compare(b.EndedAt) })
	seen := map[string]bool{}
	for i := range undone {
		u := &undone[i]
		if seen[u.Key] || !slices.ContainsFunc(done, func(c workCall) bool { return c.Key == u.Key }) {
			f.Errorf("the compensation of %s is repeated, or of a call that has not completed", u.Key)
		}
		seen[u.Key] = true
		for j := range undone[:i] {
			if w.needs(step(u), step(&undone[j])) {
				f.Errorf("%s is compensated before %s, which depends on it", undone[j].Key, u.Key)
			}
		}
	}
	if len(undone) != len(done) {
		f.Errorf("%d compensations of %d completed calls", len(undone), len(done))
	}
	if !exact {
		return
	}
	ended := map[string]time.Time{}
	for _, c := range done {
		ended[c.Key] = c.EndedAt
	}
	for i := 1; i < len(undone); i++ {
		if ended[undone[i].Key].After(ended[undone[i-1].Key]) {
			f.Errorf("%s is compensated after %s, which completed before it", undone[i].Key, undone[i-1].Key)
		}
	}
}

// A key identifies a call over attempts. A call that is only to be found creates no child.
func TestCallsByKey(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("echo", rerun, echo)
		f.tool("parent", rerun, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			var got []string
			call := func(key string, findOnly bool) {
				out, err := j.Call(ctx, tool.Call{Tool: "echo", Key: key, FindOnly: findOnly, Arguments: fmt.Appendf(nil, `"%s %d"`, key, j.Attempt())})
				if err != nil {
					out = arcp.Raw(err.Error())
				}
				got = append(got, string(out))
			}
			call("c", true)
			if j.Attempt() == 1 {
				call("a", false)
				call("b", false)
				return wait(ctx, j, nil)
			}
			call("b", true)
			call("a", false)
			call("a", true)
			call("c", false)
			return arcp.Marshal(got)
		})
		f.parent("parent", "{}")
		id := f.frames("sess_1")[0].JobID
		f.restart(1)
		frames := f.frames("sess_1")
		none := tool.ErrNotCalled.Error()
		want, err := arcp.Marshal(map[string]any{"value": []string{none, `"b 1"`, `"a 1"`, none, `"c 2"`}})
		if err != nil {
			t.Fatal(err)
		}
		if last := frames[len(frames)-1]; string(last.Payload) != string(want) || len(f.children(id)) != 3 {
			t.Errorf("%d children, %s\nwant 3, %s", len(f.children(id)), last.Payload, want)
		}
		f.expectNoState("all have ended")
	})
}

// The maximum runtime of a child begins at its first start, also over a restart.
func TestMaxRuntimeOfAChild(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("wait", rerun, wait)
		var invalid []string
		f.tool("parent", rerun, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			for _, d := range []time.Duration{-1, 367 * 24 * time.Hour} {
				_, err := j.Call(ctx, tool.Call{Tool: "wait", MaxRuntime: d})
				invalid = append(invalid, code(err))
			}
			return j.Call(ctx, tool.Call{Tool: "wait", MaxRuntime: time.Minute})
		})
		id := f.parent("parent", "{}")
		time.Sleep(50 * time.Second)
		f.frames("sess_1")
		f.restart(2)
		time.Sleep(9 * time.Second)
		if frames := f.frames("sess_1"); len(frames) != 2 || frames[0].Type != arcp.JobStarted || frames[1].Type != arcp.JobStarted {
			t.Errorf("%v, want the starts of both", frames)
		}
		time.Sleep(2 * time.Second)
		f.want("a minute has passed", "job.failed TIMEOUT", "job.failed "+string(id)+" TIMEOUT")
		if want := []string{"INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"}; !slices.Equal(invalid, want) {
			t.Errorf("bounds out of range: %q, want %q", invalid, want)
		}
		f.expectNoState("both have ended")
	})
}

// A step waits for an approval over a restart, and asks once.
func TestWorkflowWaitsForAnApproval(t *testing.T) {
	for _, resolution := range []string{approval.Approve, approval.Deny} {
		withQuestions(t, func(f *fixture, fq *fakeQuestions) {
			f.tool("work", rerun, work)
			f.workflow(workflow.Config{Capability: tool.Capability{Name: "flow"}, Result: "=steps.ok.value.reason", Steps: map[string]workflow.Step{
				"before": {Call: workflow.Call{Tool: "work", Arguments: map[string]any{"key": "a"}}, OnFailure: &workflow.Call{Tool: "work", Arguments: map[string]any{"key": "undo"}}},
				"ok":     {Needs: []string{"before"}, Approval: tool.ApprovalManual, Call: workflow.Call{Arguments: map[string]any{"reason": "=steps.before.value.key"}}},
			}})
			f.parent("flow", "{}")
			time.Sleep(time.Hour)
			id := f.frames("sess_1")[0].JobID
			f.restart(2)
			time.Sleep(time.Hour)
			kids := f.children(id)
			child := kids[slices.IndexFunc(kids, func(j store.Job) bool { return j.Agent == "flow.ok@1.0.0" })]
			if string(child.Arguments) != `{"reason":"a"}` || child.State.Terminal() || len(kids) != 2 {
				t.Fatalf("%d children; the approval is %+v", len(kids), child)
			}
			if _, err := f.respond(fq.only(t), person("sess_2"), approval.Answer{Resolution: resolution}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			frames := f.frames("sess_1")
			last, want, made := frames[len(frames)-1], `{"value":"a"}`, 2
			if resolution == approval.Deny {
				want, made = `{"code":"PERMISSION_DENIED","message":"step ok: `, 3
			}
			if last.JobID != id || !strings.HasPrefix(string(last.Payload), want) || len(f.children(id)) != made {
				t.Errorf("%d children, %s %s\nwant %d, %s", len(f.children(id)), last.JobID, last.Payload, made, want)
			}
			f.expectNoState("the workflow has ended")
		})
	}
}

// A workflow calls another one within its lease. A restart repeats the calls of neither.
func TestWorkflowOfWorkflows(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("work", rerun, work)
		f.workflow(workflow.Config{Capability: tool.Capability{Name: "inner"}, Result: "=steps.b.value.sum", Steps: map[string]workflow.Step{
			"a": {Call: workflow.Call{Tool: "work", Arguments: map[string]any{"key": "a", "sum": "=input.n"}}},
			"b": {Needs: []string{"a"}, Call: workflow.Call{Tool: "work", Arguments: map[string]any{"key": "b", "ms": 10_000, "sum": "=steps.a.value.sum"}}},
		}})
		f.workflow(workflow.Config{Capability: tool.Capability{Name: "outer"}, Result: "=steps.both.value", Steps: map[string]workflow.Step{
			"both": {Each: "[1, 10]", Call: workflow.Call{Tool: "inner", Arguments: map[string]any{"n": "=item"}, Lease: map[string]any{"tool.call": []any{"work"}}}},
		}})
		id := f.parent("outer", "{}")
		time.Sleep(5 * time.Second)
		outer := jobOf(f.frames("sess_1"), id)
		f.restart(5)
		time.Sleep(time.Minute)
		frames := f.frames("sess_1")
		if last := frames[len(frames)-1]; last.JobID != outer || string(last.Payload) != `{"value":[3,12]}` {
			t.Errorf("ended with %v %s", last, last.Payload)
		}
		for _, inner := range f.children(outer) {
			if n := len(f.children(inner.ID)); n != 2 {
				t.Errorf("%s has %d children, want 2", inner.ID, n)
			}
		}
		f.expectNoState("all have ended")
	})
}

// Two versions of a workflow have approvals of their own.
func TestVersionsHaveTheirApprovals(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		for version, rule := range map[string]string{"1.0.0": "true", "2.0.0": `args == {"n": 2}`} {
			f.workflow(workflow.Config{Capability: tool.Capability{Name: "flow", Version: version}, Result: "=steps.ok.value.n", Steps: map[string]workflow.Step{
				"ok": {Approval: tool.ApprovalAuto(rule), Call: workflow.Call{Arguments: map[string]any{"n": "=input.n"}}},
			}})
		}
		for _, c := range []struct{ ref, args, want string }{{"flow@1.0.0", `{"n":1}`, "job.completed"}, {"flow@2.0.0", `{"n":2}`, "job.completed"}, {"flow@2.0.0", `{"n":1}`, ""}} {
			id := f.parent(c.ref, c.args)
			frames := f.frames("sess_1")
			if last := frames[len(frames)-1]; (last.String() == "job.completed "+string(id)) != (c.want != "") {
				t.Errorf("%s %s: %v, want %q", c.ref, c.args, last, c.want)
			}
		}
	})
}
