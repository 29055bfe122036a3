package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// parentWorld has a session of alice with a job that has a child, and the list of both.
type parentWorld struct {
	s      *testStream
	events []arcp.Envelope
	list   []arcp.JobEntry
}

var (
	echoTask     = Task{Kind: Echo, Arguments: `{"n":1}`}
	delegating   = Task{Kind: Delegate, Child: &Task{Kind: Progress, N: 9}}
	runsWorkflow = Task{Kind: Workflow, Marker: "~m", N: 1, Start: true}
)

func accepted(parent arcp.JobID) string { return fmt.Sprintf(`{"parent_job_id":%q}`, parent) }

// newDelegation is the world of a job that delegates to a child.
func newDelegation(t *testing.T) *parentWorld {
	w := &parentWorld{s: newTestStream(t, 0, aliceSession)}
	id := w.s.submits(1, delegating)
	w.parent(id, arcp.JobAccepted, `{}`)
	w.parent(id, arcp.JobStarted, `{}`)
	w.parent(id, arcp.EventEmit, `{"name":"delegate","data":{"child_job_id":"`+string(jobTwo)+`","agent":"demo.progress@1.0.0"}}`)
	w.child(jobTwo, arcp.JobAccepted, accepted(jobOne))
	w.child(jobTwo, arcp.JobStarted, `{}`)
	for n := range 9 {
		w.child(jobTwo, arcp.JobProgress, fmt.Sprintf(`{"current":%d}`, n+1))
	}
	w.child(jobTwo, arcp.JobCompleted, `{}`)
	w.parent(id, arcp.JobCompleted, `{}`)
	w.list = []arcp.JobEntry{{JobID: jobOne, TraceID: w.s.Submits[id].Trace, Status: "completed"},
		{JobID: jobTwo, TraceID: w.s.Submits[id].Trace, Status: "completed", ParentJobID: jobOne}}
	return w
}

func (w *parentWorld) parent(id arcp.MessageID, t arcp.Type, payload string) {
	w.events = append(w.events, w.s.event(jobOne, id, t, payload))
}

// child adds an event of a child, which has the trace of its parent.
func (w *parentWorld) child(job arcp.JobID, t arcp.Type, payload string) {
	e := w.s.event(job, "", t, payload)
	e.TraceID = w.events[0].TraceID
	w.events = append(w.events, e)
}

// detach changes the submit: its child continues after its end.
func (w *parentWorld) detach() {
	for _, s := range w.s.Submits {
		s.Detach = true
	}
}

// findings sends the events in order and compares.
func (w *parentWorld) findings(effects ...Effect) []Finding {
	w.s.send(number(w.events)...)
	return append(Compare([]*Stream{w.s.Stream}, map[string][]arcp.JobEntry{"alice": w.list}, effects), w.s.Findings...)
}

// reorder gives the events ids in their order.
func reorder(events []arcp.Envelope) []arcp.Envelope {
	for i := range events {
		var id [16]byte
		id[15] = byte(i + 1)
		events[i].ID = arcp.MessageID(arcp.AppendIDBody([]byte(arcp.MessagePrefix), id))
	}
	return events
}

func TestChildren(t *testing.T) {
	for _, c := range []struct {
		why   string
		rules []Rule
		wrong func(w *parentWorld)
	}{
		{"a child completes", nil, func(*parentWorld) {}},
		{"a child is not named by its parent", []Rule{RuleForeign}, func(w *parentWorld) { w.events = append(w.events[:2], w.events[3:]...) }},
		{"a child is named twice", []Rule{RuleChild}, func(w *parentWorld) {
			again := w.events[2]
			w.events = reorder(append(append([]arcp.Envelope{}, w.events[:3]...), append([]arcp.Envelope{again}, w.events[3:]...)...))
		}},
		{"a child has another parent", []Rule{RuleChild}, func(w *parentWorld) { w.events[3].Payload = arcp.Raw(accepted(jobTwo)) }},
		{"a child is another tool", []Rule{RuleChild}, func(w *parentWorld) {
			w.events[2].Payload = arcp.Raw(`{"name":"delegate","data":{"child_job_id":"` + string(jobTwo) + `","agent":"demo.echo@1.0.0"}}`)
		}},
		{"a child never runs", []Rule{RuleChild}, func(w *parentWorld) {
			w.events, w.list = append(w.events[:3], w.events[len(w.events)-1]), w.list[:1]
		}},
		{"a child outlives its parent", []Rule{RuleChild}, func(w *parentWorld) {
			end := w.events[len(w.events)-1]
			end.Type, w.list[0].Status, w.s.Cancelled[jobOne] = arcp.JobCancelled, "cancelled", true
			w.events = reorder(append(append([]arcp.Envelope{}, w.events[:5]...), append([]arcp.Envelope{end}, w.events[5:len(w.events)-1]...)...))
			for i := 6; i < len(w.events); i++ {
				w.events[i].Timestamp = moment.Add(time.Duration(i) * time.Second)
			}
		}},
		{"a detached child outlives its parent", nil, func(w *parentWorld) {
			w.detach()
			end := w.events[len(w.events)-1]
			end.Type, w.list[0].Status, w.s.Cancelled[jobOne] = arcp.JobCancelled, "cancelled", true
			w.events = reorder(append(append([]arcp.Envelope{}, w.events[:5]...), append([]arcp.Envelope{end}, w.events[5:len(w.events)-1]...)...))
			for i := 6; i < len(w.events); i++ {
				w.events[i].Timestamp = moment.Add(time.Duration(i) * time.Second)
			}
		}},
		{"a detached child is cancelled with its parent", []Rule{RuleChild}, func(w *parentWorld) {
			w.detach()
			child, parent := &w.events[len(w.events)-2], &w.events[len(w.events)-1]
			child.Type, parent.Type = arcp.JobCancelled, arcp.JobCancelled
			w.list[0].Status, w.list[1].Status, w.s.Cancelled[jobOne] = "cancelled", "cancelled", true
		}},
		{"a child is cancelled with its parent", nil, func(w *parentWorld) {
			child, parent := &w.events[len(w.events)-2], &w.events[len(w.events)-1]
			child.Type, parent.Type = arcp.JobCancelled, arcp.JobCancelled
			w.list[0].Status, w.list[1].Status, w.s.Cancelled[jobOne] = "cancelled", "cancelled", true
		}},
		{"a child is cancelled and its parent is not", []Rule{RuleChild}, func(w *parentWorld) {
			w.events[len(w.events)-2].Type, w.list[1].Status = arcp.JobCancelled, "cancelled"
		}},
		{"a child ends twice", []Rule{RuleEnd}, func(w *parentWorld) { w.child(jobTwo, arcp.JobCancelled, `{}`) }},
		{"a child is made twice", []Rule{RuleChild}, func(w *parentWorld) {
			w.list = append(w.list, arcp.JobEntry{JobID: "job_x", TraceID: w.list[0].TraceID, Status: "completed", ParentJobID: jobOne})
		}},
		{"a child is listed with another parent", []Rule{RuleChild}, func(w *parentWorld) { w.list[1].ParentJobID = "job_x" }},
	} {
		w := newDelegation(t)
		c.wrong(w)
		want(t, c.why, w.findings(), c.rules...)
	}
}

// A job of which a child has not ended is not finished.
func TestChildIsAwaited(t *testing.T) {
	w := newDelegation(t)
	w.s.send(number(append(w.events[:5], w.events[len(w.events)-1]))...)
	if open := w.s.Pending(); len(open) != 1 {
		t.Errorf("open is %q", open)
	}
}

// newFlow is the world of a workflow whose steps have all completed.
func newFlow(t *testing.T) *parentWorld {
	w := &parentWorld{s: newTestStream(t, 0, aliceSession)}
	id := w.s.submits(1, runsWorkflow)
	w.parent(id, arcp.JobAccepted, `{}`)
	w.parent(id, arcp.JobStarted, `{}`)
	w.list = []arcp.JobEntry{{JobID: jobOne, TraceID: w.s.Submits[id].Trace, Status: "completed"}}
	for n, step := range []string{"charge", "count", "pack", "ship"} {
		job := stepJob(n)
		w.parent(id, arcp.EventEmit, fmt.Sprintf(`{"name":"delegate","data":{"child_job_id":%q,"agent":"%s@1.0.0"}}`, job, workflowSteps[step]))
		w.child(job, arcp.JobAccepted, accepted(jobOne))
		if w.child(job, arcp.JobStarted, `{}`); step == "count" {
			w.child(job, arcp.JobProgress, `{"current":1}`)
			w.child(job, arcp.JobCheckpoint, `{"checkpoint_id":"chk_1"}`)
		}
		w.child(job, arcp.JobCompleted, `{}`)
		w.parent(id, arcp.EventEmit, fmt.Sprintf(`{"name":"workflow.step","data":{"step":%q,"state":"completed"}}`, step))
		w.list = append(w.list, arcp.JobEntry{JobID: job, Status: "completed", ParentJobID: jobOne})
	}
	w.parent(id, arcp.WorkflowComplete, `{"value":"~m"}`)
	return w
}

func stepJob(n int) arcp.JobID { return arcp.JobID(fmt.Sprintf("job_0000000000000000000000010%d", n)) }

func TestEffects(t *testing.T) {
	charge, pack, ship := Effect{stepJob(0), "~m", "charge"}, Effect{stepJob(2), "~m", "pack"}, Effect{stepJob(3), "~m", "ship"}
	for _, c := range []struct {
		why     string
		rule    Rule // empty: none
		effects []Effect
		wrong   func(w *parentWorld)
	}{
		{why: "each step has its effect", effects: []Effect{charge, pack, ship}},
		{why: "an interrupted call runs again", effects: []Effect{charge, pack, pack, ship}},
		{why: "a step has no effect", rule: RuleEffect, effects: []Effect{charge, pack}},
		{why: "a call that fails when it is interrupted runs again", rule: RuleEffect, effects: []Effect{charge, charge, pack, ship}},
		{why: "a call is repeated", rule: RuleEffect, effects: []Effect{charge, pack, {"job_x", "~m", "pack"}, ship}},
		{why: "a completed workflow is compensated", rule: RuleEffect, effects: []Effect{charge, pack, ship, {"job_x", "~m", refund}}},
		{why: "an effect that nobody wanted", rule: RuleEffect, effects: []Effect{charge, pack, ship, {"job_x", "~n", "pack"}}},
		{why: "ends as a tool", rule: RuleOrder, effects: []Effect{charge, pack, ship}, wrong: func(w *parentWorld) { w.events[len(w.events)-1].Type = arcp.JobCompleted }},
		{why: "fails without compensation", rule: RuleEffect, effects: []Effect{charge, pack, ship}, wrong: failShip},
		{why: "fails", effects: []Effect{charge, pack, ship, {"job_x", "~m", refund}}, wrong: failShip},
		{why: "is cancelled before its compensation", effects: []Effect{charge, pack, ship}, wrong: cancelAfterShip},
		{why: "is cancelled during its compensation", effects: []Effect{charge, pack, ship, {"job_x", "~m", refund}}, wrong: cancelAfterShip},
	} {
		w := newFlow(t)
		if c.wrong != nil {
			c.wrong(w)
		}
		if got := w.findings(c.effects...); c.rule == "" {
			want(t, c.why, got)
		} else {
			want(t, c.why, got, c.rule)
		}
	}
}

// failShip makes the last step and the workflow fail.
func failShip(w *parentWorld) {
	child, step, end := &w.events[len(w.events)-3], &w.events[len(w.events)-2], &w.events[len(w.events)-1]
	step.Payload = arcp.Raw(`{"name":"workflow.step","data":{"step":"ship","state":"failed"}}`)
	for _, e := range []*arcp.Envelope{child, end} {
		e.Type, e.Payload = arcp.JobFailed, arcp.Raw(`{"code":"ABORTED","message":"m","retryable":true}`)
	}
	w.list[0].Status, w.list[len(w.list)-1].Status = "failed", "failed"
}

// cancelAfterShip makes the last step fail, and cancels the workflow.
func cancelAfterShip(w *parentWorld) {
	failShip(w)
	end := &w.events[len(w.events)-1]
	end.Type, end.Payload = arcp.JobCancelled, arcp.Raw(`{"code":"CANCELLED","reason":"r"}`)
	w.s.Cancelled[end.JobID] = true
	w.list[0].Status = "cancelled"
}

// newSchedule is the world of a schedule of three occurrences, 2 s apart, with a job for each of some of
// them. Events of another job show that the server runs all the time.
func newSchedule(t *testing.T, fired ...int) *parentWorld {
	w := &parentWorld{s: newTestStream(t, 0, aliceSession)}
	id := w.s.submits(1, Task{Kind: Schedule, N: 3, Interval: 2 * time.Second, Child: &echoTask})
	w.parent(id, arcp.JobAccepted, `{}`)
	w.list = []arcp.JobEntry{{JobID: jobOne, TraceID: w.s.Submits[id].Trace, Status: "completed"}}
	at := func(d time.Duration) { w.events[len(w.events)-1].Timestamp = moment.Add(d) }
	for n, occurrence := range fired {
		job, due := stepJob(n), time.Duration(occurrence)*2*time.Second
		for d, e := range [][2]string{{"job.accepted", accepted(jobOne)}, {"job.started", `{}`}, {"job.completed", `{"value":{"n":1}}`}} {
			w.child(job, arcp.Type(e[0]), e[1])
			at(due + time.Duration(d+1)*time.Millisecond)
		}
		w.list = append(w.list, arcp.JobEntry{JobID: job, Status: "completed", ParentJobID: jobOne})
	}
	w.parent(id, arcp.JobCompleted, fmt.Sprintf(`{"value":{"fired":%d,"skipped":%d}}`, len(fired), 3-len(fired)))
	at(4 * time.Second)
	return w
}

// newDelayed is the world of a schedule with one occurrence after 4 s, and jobs that were submitted after some
// times.
func newDelayed(t *testing.T, value string, fired ...time.Duration) *parentWorld {
	w := &parentWorld{s: newTestStream(t, 0, aliceSession)}
	id := w.s.submits(1, Task{Kind: Schedule, N: 1, Delay: 4 * time.Second, Child: &echoTask})
	w.parent(id, arcp.JobAccepted, `{}`)
	w.list = []arcp.JobEntry{{JobID: jobOne, TraceID: w.s.Submits[id].Trace, Status: "completed"}}
	at := func(d time.Duration) { w.events[len(w.events)-1].Timestamp = moment.Add(d) }
	for n, due := range fired {
		job := stepJob(n)
		for d, e := range [][2]string{{"job.accepted", accepted(jobOne)}, {"job.started", `{}`}, {"job.completed", `{"value":{"n":1}}`}} {
			w.child(job, arcp.Type(e[0]), e[1])
			at(due + time.Duration(d+1)*time.Millisecond)
		}
		w.list = append(w.list, arcp.JobEntry{JobID: job, Status: "completed", ParentJobID: jobOne})
	}
	w.parent(id, arcp.JobCompleted, `{"value":`+value+`}`)
	at(10 * time.Second)
	return w
}

// runs adds a job whose events show that the server runs until a time.
func (w *parentWorld) runs(until time.Duration) {
	id := w.s.submits(2, Task{Kind: Progress, N: int(until / (500 * time.Millisecond))})
	job := stepJob(9)
	add := func(t arcp.Type, payload string, at time.Duration) {
		e := w.s.event(job, id, t, payload)
		e.Timestamp = moment.Add(at)
		w.events = append(w.events, e)
	}
	add(arcp.JobAccepted, `{}`, 0)
	add(arcp.JobStarted, `{}`, 0)
	for n := 1; n <= w.s.Submits[id].N; n++ {
		add(arcp.JobProgress, fmt.Sprintf(`{"current":%d}`, n), time.Duration(n)*500*time.Millisecond)
	}
	add(arcp.JobCompleted, `{}`, until)
	w.list = append(w.list, arcp.JobEntry{JobID: job, TraceID: w.s.Submits[id].Trace, Status: "completed"})
}

func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		why   string
		rule  Rule // empty: none
		world func() *parentWorld
	}{
		{"each occurrence fires", "", func() *parentWorld { return newSchedule(t, 0, 1, 2) }},
		{"an occurrence is skipped while the server is down", "", func() *parentWorld { return newSchedule(t, 0, 2) }},
		{"an occurrence is lost while the server runs", RuleSchedule, func() *parentWorld {
			w := newSchedule(t, 0, 2)
			w.runs(6 * time.Second)
			return w
		}},
		{"an occurrence is skipped while the previous job runs", "", func() *parentWorld {
			w := newSchedule(t, 0, 2)
			w.events[3].Timestamp = moment.Add(3 * time.Second)
			w.runs(6 * time.Second)
			return w
		}},
		{"an occurrence fires twice", RuleSchedule, func() *parentWorld { return newSchedule(t, 0, 0, 1) }},
		{"a job comes before its time", RuleSchedule, func() *parentWorld {
			w := newSchedule(t, 0, 1, 2)
			w.events[4].Timestamp = moment.Add(time.Second)
			return w
		}},
		{"a job is not counted", RuleChild, func() *parentWorld {
			w := newSchedule(t, 0, 1, 2)
			w.events[len(w.events)-1].Payload = arcp.Raw(`{"value":{"fired":2,"skipped":1}}`)
			return w
		}},
		{"one occurrence fires after its delay", "", func() *parentWorld { return newDelayed(t, `{"n":1}`, 4*time.Second) }},
		{"one occurrence fires late", "", func() *parentWorld { return newDelayed(t, `{"n":1}`, 9*time.Second) }},
		{"one occurrence fires twice", RuleSchedule, func() *parentWorld { return newDelayed(t, `{"n":1}`, 4*time.Second, 5*time.Second) }},
		{"one occurrence fires before its time", RuleSchedule, func() *parentWorld { return newDelayed(t, `{"n":1}`, 2*time.Second) }},
		{"one occurrence does not fire", RuleChild, func() *parentWorld { return newDelayed(t, `{"n":1}`) }},
		{"one occurrence has another result", RuleOrder, func() *parentWorld { return newDelayed(t, `{"fired":1}`, 4*time.Second) }},
		{"an occurrence is not counted", RuleOrder, func() *parentWorld {
			w := newSchedule(t, 0, 1, 2)
			w.events[len(w.events)-1].Payload = arcp.Raw(`{"value":{"fired":2,"skipped":0}}`)
			return w
		}},
	} {
		if got := c.world().findings(); c.rule == "" {
			want(t, c.why, got)
		} else {
			want(t, c.why, got, c.rule)
		}
	}
}
