package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// fixture runs a workflow whose calls it answers itself.
type fixture struct {
	*testing.T
	tool *tool.Tool
	job  *tooltest.Job

	mu     sync.Mutex
	keys   []string // of the calls, in their order
	active int
	peak   int // calls that ran at once
}

// newFixture makes a workflow. answer is called for each call that is not only to be found.
func newFixture(t *testing.T, c workflow.Config, s tooltest.Script, answer func(tool.Call) (string, error)) *fixture {
	t.Helper()
	tools, err := workflow.New(c)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, tool: tools[0]}
	s.Call = func(ctx context.Context, c tool.Call) (arcp.Raw, error) {
		if c.FindOnly {
			return nil, tool.ErrNotCalled
		}
		f.mu.Lock()
		f.keys = append(f.keys, c.Key)
		f.active++
		f.peak = max(f.peak, f.active)
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			f.active--
			f.mu.Unlock()
		}()
		raw, err := answer(c)
		return arcp.Raw(raw), err
	}
	f.job = tooltest.New(s)
	return f
}

// run runs the workflow. An error is returned as its text.
func (f *fixture) run(input string) string {
	f.Helper()
	raw, err := f.job.Run(f.Context(), f.tool, arcp.Raw(input))
	if err != nil {
		if err.Retryable {
			f.Errorf("%v is retryable", err)
		}
		return err.Error()
	}
	return string(raw)
}

// states returns the events of the steps as "step state" or "step[item] state".
func (f *fixture) states() (all []string) {
	f.Helper()
	for _, e := range f.job.Record().Events {
		if e.Name != workflow.EventStep {
			continue
		}
		var s workflow.StepEvent
		if err := arcp.Unmarshal(e.Data, &s); err != nil {
			f.Fatal(err)
		}
		item := ""
		if s.Item != nil {
			item = fmt.Sprintf("[%d]", *s.Item)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s%s %s %s", s.Step, item, s.State, s.Code)))
	}
	return all
}

func (f *fixture) want(why string, got, want []string) {
	f.Helper()
	if !slices.Equal(got, want) {
		f.Errorf("%s:\n got %q\nwant %q", why, got, want)
	}
}

// echoArguments answers a call with its arguments.
func echoArguments(c tool.Call) (string, error) { return string(c.Arguments), nil }

func TestValuesReachTheSteps(t *testing.T) {
	c := config(map[string]workflow.Step{
		"a":   {Call: workflow.Call{Tool: "x@1.0.0", Arguments: map[string]any{"n": "=input.n + 1", "text": "plain", "list": []any{1, "=attempt", nil, true}}}},
		"b":   {Needs: []string{"a"}, Call: workflow.Call{Tool: "y", Arguments: "=steps.a.value.n", Lease: map[string]any{"fs.read": []any{"=input.dir"}}}},
		"no":  {Needs: []string{"a"}, When: "steps.a.value.n > 100", Call: call("x", nil)},
		"off": {Needs: []string{"no"}, Call: call("x", nil)},
		"on":  {Needs: []string{"off"}, When: `steps.off.state == "skipped" && steps.no.value == null`, Call: call("x", nil)},
	}, map[string]any{"a": "=steps.a.value", "b": "=steps.b", "on": "=steps.on.value", "off": "=steps.off"})
	f := newFixture(t, c, tooltest.Script{}, echoArguments)
	got := f.run(`{"n":41,"dir":"/d"}`)
	want := `{"a":{"list":[1,1,null,true],"n":42,"text":"plain"},"b":{"state":"completed","value":42},"off":{"state":"skipped","value":null},"on":{}}`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	calls := f.job.Record().Calls
	i := slices.IndexFunc(calls, func(c tool.Call) bool { return c.Key == "b/1" })
	if b := calls[i]; b.Tool != "y" || string(b.Arguments) != "42" || string(b.Lease) != `{"fs.read":["/d"]}` || b.MaxRuntime != 0 {
		t.Errorf("call %+v", b)
	}
	if calls[0].Tool != "x@1.0.0" || calls[0].Lease != nil || len(calls) != 3 {
		t.Errorf("calls %+v", calls)
	}
	steps := f.job.Record().Events[0]
	if want := `{"steps":[{"name":"a","tool":"x@1.0.0"},{"name":"b","tool":"y","needs":["a"]},{"name":"no","tool":"x","needs":["a"]},` +
		`{"name":"off","tool":"x","needs":["no"]},{"name":"on","tool":"x","needs":["off"]}]}`; steps.Name != workflow.EventSteps || string(steps.Data) != want {
		t.Errorf("%s %s\nwant %s", steps.Name, steps.Data, want)
	}
}

// A map has an order in expressions: an attempt after a crash has to find the items of the earlier one.
func TestMapsAreSorted(t *testing.T) {
	c := config(map[string]workflow.Step{
		"a": {Each: "input.m.map(k, k)", Parallel: 1, Call: call("x", "=item")},
		"b": {Needs: []string{"a"}, Call: call("x", map[string]any{"made": "={2: 'b', 1: 'a', 10: 'c'}.map(k, k)", "mixed": "={'b': 1, 2: 1, 'a': 1}.map(k, string(k))",
			"filtered": "=input.m.filter(k, k != 'c').map(k, input.m[k])", "steps": "=steps.map(s, s)", "nested": "=input.l[0].map(k, k)", "all": "=input.m == input.l[0]"})},
	}, map[string]any{"a": "=steps.a.value", "b": "=steps.b.value"})
	for range 50 {
		f := newFixture(t, c, tooltest.Script{}, echoArguments)
		got := f.run(`{"m":{"e":5,"c":3,"a":1,"d":4,"b":2},"l":[{"e":5,"c":3,"a":1,"d":4,"b":2}]}`)
		want := `{"a":["a","b","c","d","e"],"b":{"all":true,"filtered":[1,2,4,5],"made":[1,2,10],"mixed":["2","a","b"],"nested":["a","b","c","d","e"],"steps":["a"]}}`
		if got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
	}
}

// CEL has no exact representation of some numbers. They do not matter unless an expression uses them.
func TestNumbersThatCELRounds(t *testing.T) {
	for result, want := range map[string]string{"=steps.b.value": "1", "=steps.a.value": "INVALID_ARGUMENT: result: the number 123456789012345678901234567890 is not one"} {
		f := newFixture(t, config(map[string]workflow.Step{"a": {Call: call("a", nil)}, "b": {Call: call("b", nil)}}, result), tooltest.Script{}, func(c tool.Call) (string, error) {
			return map[string]string{"a": "123456789012345678901234567890", "b": "1"}[c.Tool], nil
		})
		if got := f.run(`{}`); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", result, got, want)
		}
	}
}

// Items keep their order, and at most parallel calls of a step and MaxCalls of a workflow run at once.
func TestItemsRunInParallel(t *testing.T) {
	for _, c := range []struct{ steps, parallel, peak, seconds int }{{1, 0, workflow.MaxCalls, 3}, {1, 3, 3, 14}, {3, 10, workflow.MaxCalls, 8}} {
		synctest.Test(t, func(t *testing.T) {
			steps := map[string]workflow.Step{}
			for i := range c.steps {
				steps[fmt.Sprint("s", i)] = workflow.Step{Each: "input.list", Parallel: c.parallel, Call: call("x", "=item * 2")}
			}
			f := newFixture(t, config(steps, "=steps.s0.value"), tooltest.Script{}, func(c tool.Call) (string, error) {
				time.Sleep(time.Second)
				return string(c.Arguments), nil
			})
			began := time.Now()
			var items, doubled []string
			for i := range 40 {
				items, doubled = append(items, fmt.Sprint(i)), append(doubled, fmt.Sprint(2*i))
			}
			got := f.run(`{"list":[` + strings.Join(items, ",") + `]}`)
			if want := "[" + strings.Join(doubled, ",") + "]"; got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
			if f.peak != c.peak || time.Since(began) != time.Duration(c.seconds)*time.Second {
				t.Errorf("%+v: %d calls at once, %v", c, f.peak, time.Since(began))
			}
		})
	}
}

func TestEachNeedsAList(t *testing.T) {
	f := newFixture(t, config(map[string]workflow.Step{"a": {Each: "input.list", Call: call("x", "=item")}}, "=steps.a.value"), tooltest.Script{}, echoArguments)
	for input, want := range map[string]string{
		`{"list":[]}`:   `[]`,
		`{"list":1}`:    "INVALID_ARGUMENT: step a: each: want a list of at most 1000 items",
		`{"list":null}`: "INVALID_ARGUMENT: step a: each: want a list of at most 1000 items",
		`{"list":[0` + strings.Repeat(",0", workflow.MaxItems) + `]}`: "INVALID_ARGUMENT: step a: each: want a list of at most 1000 items",
		`{}`: "INVALID_ARGUMENT: step a: each: no such key: list",
	} {
		if got := f.run(input); got != want {
			t.Errorf("%.40s: %s, want %s", input, got, want)
		}
	}
}

// A retryable error is retried after the delay, another one is not.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(map[string]workflow.Step{"a": {Retry: tool.Retry{MaxAttempts: 3, InitialMS: 1000}, Timeout: time.Minute, Call: call("x", "=attempt")}}, "=steps.a.value")
		f := newFixture(t, c, tooltest.Script{}, func(c tool.Call) (string, error) {
			if c.MaxRuntime != time.Minute {
				t.Errorf("maximum runtime %v", c.MaxRuntime)
			}
			if string(c.Arguments) == "3" {
				return "3", nil
			}
			return "", arcp.Errorf(arcp.CodeUnavailable, "later")
		})
		began := time.Now()
		if got, took := f.run(`{}`), time.Since(began); got != "3" || took < 2400*time.Millisecond || took > 3600*time.Millisecond {
			t.Errorf("%s after %v, want the third attempt after 3 s, less or more 20 %%", got, took)
		}
		f.want("the attempts", f.keys, []string{"a/1", "a/2", "a/3"})
		f.want("the states", f.states(), []string{"a running", "a retrying UNAVAILABLE", "a running", "a retrying UNAVAILABLE", "a running", "a completed"})
	})
	for code, calls := range map[arcp.Code]int{arcp.CodeUnavailable: 2, arcp.CodeNotFound: 1} {
		synctest.Test(t, func(t *testing.T) {
			c := config(map[string]workflow.Step{"a": {Retry: tool.Retry{MaxAttempts: 2}, Call: call("x", nil)}}, nil)
			f := newFixture(t, c, tooltest.Script{}, func(tool.Call) (string, error) { return "", arcp.Errorf(code, "no") })
			if got := f.run(`{}`); got != string(code)+": step a: no" || len(f.keys) != calls {
				t.Errorf("%s after %d calls", got, len(f.keys))
			}
		})
	}
}

// A workflow that fails waits for the calls that run, begins no others, and undoes the completed calls.
func TestFailureAndCompensation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		undo := &workflow.Call{Tool: "undo", Arguments: map[string]any{"id": "=value"}, Lease: map[string]any{"x.y": []any{"=input.z"}}}
		items := &workflow.Call{Tool: "undo", Arguments: map[string]any{"id": "=value", "item": "=item"}}
		c := config(map[string]workflow.Step{
			"a": {Call: call("one", 1), OnFailure: undo},
			"b": {Call: call("two", 2), OnFailure: undo, Needs: []string{"a"}},
			"c": {Call: call("three", 3), Needs: []string{"a"}},
			"d": {Call: call("x", "=item"), Each: "[5, 6]", Parallel: 1, Needs: []string{"a"}, OnFailure: items},
			"e": {Call: call("fail", nil), Needs: []string{"a"}},
			"f": {Call: call("x", nil), Needs: []string{"b"}},
		}, nil)
		f := newFixture(t, c, tooltest.Script{}, func(c tool.Call) (string, error) {
			switch c.Tool {
			case "two":
				time.Sleep(10 * time.Second)
			case "fail":
				time.Sleep(5 * time.Second)
				return "", arcp.Errorf(arcp.CodeAborted, "broken").WithDetails(map[string]int{"n": 1})
			case "x":
				time.Sleep(3 * time.Second)
			case "undo":
				if strings.HasPrefix(c.Key, "d[0]") {
					return "", arcp.Errorf(arcp.CodeNotFound, "gone")
				}
			}
			return string(c.Arguments), nil
		})
		if got, want := f.run(`{"z":"/q"}`), "ABORTED: step e: broken; the compensation of d[0] failed: NOT_FOUND: gone"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		f.want("the compensations", f.keys[len(f.keys)-4:], []string{"b/on_failure", "d[1]/on_failure", "d[0]/on_failure", "a/on_failure"})
		if len(f.keys) != 10 || slices.Contains(f.keys, "f/1") {
			t.Errorf("calls %q", f.keys)
		}
		calls := f.job.Record().Calls
		if last := calls[len(calls)-1]; string(last.Arguments) != `{"id":1}` || string(last.Lease) != `{"x.y":["/q"]}` {
			t.Errorf("compensation %+v", last)
		}
		if d := calls[len(calls)-2]; string(d.Arguments) != `{"id":5,"item":5}` {
			t.Errorf("compensation %+v", d)
		}
		states := f.states()
		f.want("the states", states[len(states)-8:], []string{"b compensating", "b compensated", "d[1] compensating", "d[1] compensated",
			"d[0] compensating", "d[0] compensation_failed NOT_FOUND", "a compensating", "a compensated"})

		// An attempt after a crash continues with the compensations.
		saved := f.job.Record().Checkpoints
		if len(saved) != 1 {
			t.Fatalf("%d checkpoints, want one before the first compensation", len(saved))
		}
		again := newFixture(t, c, tooltest.Script{Restored: saved[0].Data, Attempt: 2}, echoArguments)
		if got, want := again.run(`{"z":"/q"}`), "ABORTED: step e: broken"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		again.want("the calls", again.keys, f.keys[len(f.keys)-4:])
		other := newFixture(t, c, tooltest.Script{Restored: saved[0].Data, ID: "job_other"}, echoArguments)
		if got := other.run(`{"z":"/q"}`); !strings.HasPrefix(got, "FAILED_PRECONDITION: a new job cannot continue") || len(other.keys) != 0 {
			t.Errorf("a new job: %s, calls %q", got, other.keys)
		}
	})
}

// A job that has ended runs no compensations.
func TestCancelRunsNoCompensations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the job is cancelled")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := config(map[string]workflow.Step{"a": {Call: call("x", nil), OnFailure: &workflow.Call{Tool: "undo"}}, "b": {Call: call("wait", nil), Needs: []string{"a"}}}, nil)
		f := newFixture(t, c, tooltest.Script{}, func(c tool.Call) (string, error) {
			if c.Tool == "wait" {
				cancel(gone)
				return "", context.Cause(ctx)
			}
			return "1", nil
		})
		_, err := f.job.Run(ctx, f.tool, arcp.Raw(`{}`))
		if err == nil || !strings.Contains(err.Message, gone.Error()) || len(f.keys) != 2 {
			t.Errorf("%v, calls %q", err, f.keys)
		}
	})
}

// The bounds of a workflow fail it before they can hinder its compensations.
func TestBounds(t *testing.T) {
	undo := &workflow.Call{Tool: "undo", Arguments: "=value"}
	list := "input.list"
	for name, c := range map[string]struct {
		steps  map[string]workflow.Step
		answer string
		want   string
		undone int
	}{
		"too many calls": {map[string]workflow.Step{"a": {Each: list, Parallel: 1, Call: call("x", nil), OnFailure: undo}}, "1",
			"RESOURCE_EXHAUSTED: step a[500]: the workflow calls more than 1000 tools", 500},
		"too large a compensation": {map[string]workflow.Step{"a": {Call: call("x", nil), OnFailure: undo}}, `"` + strings.Repeat("x", workflow.MaxCompensation) + `"`,
			"RESOURCE_EXHAUSTED: step a: on_failure: a compensation of 8299 bytes; at most 8192", 0},
		"too large compensations": {map[string]workflow.Step{"a": {Each: list, Parallel: 1, Call: call("x", nil), OnFailure: undo}}, `"` + strings.Repeat("x", 8000) + `"`,
			"RESOURCE_EXHAUSTED: step a[32]: all compensations have more than 262144 bytes", 33},
		"too large values": {map[string]workflow.Step{"a": {Each: list, Parallel: 1, Call: call("x", nil)}}, `"` + strings.Repeat("x", 1<<20) + `"`,
			"RESOURCE_EXHAUSTED: step a[15]: the values of the steps have more than 16777216 bytes", 0},
		"too large a result": {map[string]workflow.Step{"a": {Call: call("x", `=[[1]].map(a,[a,a]).map(a,[a,a]).map(a,[a,a]).map(a,[a,a]).map(a,[a,a]).map(a,[a,a]).map(a,[a,a])`+
			strings.Repeat(".map(a,[a,a])", 20)), OnFailure: undo}}, "1", "INVALID_ARGUMENT: step a: arguments: the value is too large", 0},
	} {
		f := newFixture(t, config(c.steps, nil), tooltest.Script{}, func(call tool.Call) (string, error) {
			if call.Tool == "undo" {
				return "1", nil
			}
			return c.answer, nil
		})
		got := f.run(`{"list":[0` + strings.Repeat(",0", 599) + `]}`)
		undone := 0
		for _, key := range f.keys {
			if strings.HasSuffix(key, "/on_failure") {
				undone++
			}
		}
		if !strings.HasPrefix(got, c.want) || undone != c.undone {
			t.Errorf("%s: %d compensations, %s\nwant %d, %s", name, undone, got, c.undone, c.want)
		}
	}
}

func TestExpressionsThatFail(t *testing.T) {
	x := call("x", nil)
	for _, c := range []struct {
		step   workflow.Step
		result any
		want   string
	}{
		{workflow.Step{Call: x, When: "input.no"}, nil, "step a: when: no such key: no"},
		{workflow.Step{Call: x, When: "input.n"}, nil, "step a: when: the value is not a bool"},
		{workflow.Step{Call: call("x", map[string]any{"m": []any{"=input.n / 0"}})}, nil, "step a: arguments: m: [0]: division by zero"},
		{workflow.Step{Call: workflow.Call{Tool: "x", Lease: "=input.no"}}, nil, "step a: lease: no such key: no"},
		{workflow.Step{Call: x, OnFailure: &workflow.Call{Tool: "y", Arguments: "=value.id"}}, nil, "step a: on_failure: arguments: no such key: id"},
		{workflow.Step{Call: x}, "=input.no", "result: no such key: no"},
		{workflow.Step{Call: x}, "=b'x'", "result: the value has a bytes, which JSON has not"},
		{workflow.Step{Call: x}, "=1.0 / 0.0", "result: the value has a number that JSON has not"},
		{workflow.Step{Call: x}, "={1: 2}", "result: the value has a key that is no text"},
		{workflow.Step{Call: x}, "=input.l.map(a, input.l.map(b, input.l.map(c, input.l.map(d, a + b + c + d))))", "result: "},
	} {
		f := newFixture(t, config(map[string]workflow.Step{"a": c.step}, c.result), tooltest.Script{}, func(tool.Call) (string, error) { return "1", nil })
		got := f.run(`{"n":1,"l":[0` + strings.Repeat(",0", 99) + `]}`)
		if !strings.HasPrefix(got, "INVALID_ARGUMENT: "+c.want) {
			t.Errorf("%+v %v: %s, want %s", c.step, c.result, got, c.want)
		}
	}
}
