package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Child is a job that a job of the session has started: a call of a tool, or a job of a schedule. The
// session follows it.
type Child struct {
	Task
	Parent arcp.JobID
}

// cancelTime is the time that a tool has to stop (SPEC.md §5.7). The end of a parent cancels its children.
const cancelTime = 5 * time.Second

// delegateTask returns a random task whose tool calls another tool. Some children run for longer than
// cancelTime.
func delegateTask(rnd *rand.Rand, mark string) Task {
	c := plainTask(rnd, mark)
	if rnd.IntN(4) == 0 {
		c = Task{Kind: Count, Marker: mark, N: 80, Arguments: `{"to":80,"interval_ms":100}`}
	}
	t := Task{Kind: Delegate, Marker: mark, Child: &c, Detach: rnd.IntN(3) == 0}
	t.Arguments = fmt.Sprintf(`{"tool":%q,"arguments":%s,"detach":%t}`, c.Kind, c.Arguments, t.Detach)
	return t
}

// requestTask returns a task that a client submits by agent.delegate.
func requestTask(mark string) Task {
	t := Task{Kind: Echo, Marker: mark, Delegate: true}
	p := t.delegatePayload()
	t.Arguments = string(p.Invoke().Arguments)
	return t
}

// delegatePayload returns the payload of agent.delegate.
func (t *Task) delegatePayload() arcp.AgentDelegatePayload {
	return arcp.AgentDelegatePayload{Target: string(t.Kind), Task: t.Marker, Context: arcp.Raw(`{"n":2.50}`)}
}

// child returns the child that an event belongs to, or nil. An event of the parent has announced the
// child. A job of a schedule is announced by its own job.accepted.
func (s *Stream) child(env *arcp.Envelope) *Child {
	if c := s.Children[env.JobID]; c != nil || env.Type != arcp.JobAccepted {
		return c
	}
	p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](env)
	if err != nil || p.ParentJobID == "" {
		return nil
	}
	parent := s.Jobs[p.ParentJobID]
	if parent == nil || parent.expected == nil || parent.expected.task.Kind != Schedule {
		return nil
	}
	c := &Child{Task: *parent.expected.task.Child, Parent: p.ParentJobID}
	s.Children[env.JobID] = c
	return c
}

// announced records the child that an event of its parent announces (SPEC.md §5.6).
func (s *Stream) announced(parent *View, env *arcp.Envelope) {
	name, data := emission(env)
	if name != "delegate" {
		return
	}
	var p struct {
		Child arcp.JobID `json:"child_job_id"`
		Agent string     `json:"agent"`
	}
	err := arcp.Unmarshal(data, &p)
	kind, _, _ := strings.Cut(p.Agent, "@")
	task, ok := parent.expected.task.calls(Kind(kind))
	if err != nil || p.Child == "" || !ok || s.Children[p.Child] != nil {
		s.find(RuleChild, "%s, a %s, announces the child %s (%v)", parent.Job, parent.expected.task.Kind, data, err)
		return
	}
	s.Children[p.Child] = &Child{Task: task, Parent: parent.Job}
}

// emission returns the name and the data of event.emit; "" for another event.
func emission(env *arcp.Envelope) (name string, data arcp.Raw) {
	if env.Type != arcp.EventEmit {
		return "", nil
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](env)
	if err != nil {
		return "", nil
	}
	return p.Name, p.Data
}

// calls returns the task of a child of a kind. ok is false if the task has no such child.
func (t *Task) calls(k Kind) (child Task, ok bool) {
	switch {
	case t.Kind == Workflow && k == Count:
		return Task{Kind: k, N: t.N}, true
	case t.Kind == Workflow:
		return Task{Kind: k}, k == Once || k == Rerun
	case t.Child != nil:
		return *t.Child, t.Child.Kind == k
	}
	return Task{}, false
}

// childEvent checks an event of a child against its parent.
func (s *Stream) childEvent(v *View, env *arcp.Envelope) {
	if env.Type == arcp.JobAccepted {
		p, err := arcp.DecodePayload[arcp.JobAcceptedPayload](env)
		if err != nil || p.ParentJobID != v.Parent || env.CorrelationID != "" {
			s.find(RuleChild, "%s, a child of %s, was accepted for %s with %s (%v)", v.Job, v.Parent, cmp.Or(env.CorrelationID, "no submit"), env.Payload, err)
		}
	}
	parent := s.Jobs[v.Parent]
	if parent == nil || parent.End == nil || parent.expected.task.independent() {
		return
	}
	if late := env.Timestamp.Sub(parent.End.Time); late > cancelTime && env.Type != arcp.JobCancelled {
		s.find(RuleChild, "%s: %s, %s after the end of its parent %s", v.Job, env.Type, late, v.Parent)
	}
}

// independent reports whether the children of the task continue after its end.
func (t *Task) independent() bool { return t.Kind == Schedule || t.Detach }

// emitted checks an event.emit of a job.
func (ex *expectation) emitted(env *arcp.Envelope) string {
	name, data := emission(env)
	switch {
	case name == "delegate" && (ex.task.Kind == Delegate || ex.task.Kind == Workflow):
		return ""
	case name == "workflow.steps" && ex.task.Kind == Workflow:
		return ""
	case name == "workflow.step" && ex.task.Kind == Workflow:
		return ex.stepped(data)
	}
	return fmt.Sprintf("an event %q of %s: %s", name, ex.task.Kind, env.Payload)
}

// concluded checks the result of a job with children.
func (ex *expectation) concluded(value arcp.Raw) string {
	switch ex.task.Kind {
	case Workflow:
		return ex.flowed(value)
	case Schedule:
		return ex.scheduled(value)
	}
	if child := ex.task.Child; child.Kind == Fail || child.Kind == Echo && string(value) != child.Arguments {
		return fmt.Sprintf("completed with %s, the child is a %s of %s", value, child.Kind, child.Arguments)
	}
	return ""
}

// children checks that jobs with children that have completed have the children that they need, each once,
// and that only children of jobs that were cancelled were cancelled.
func (c *comparison) children(s *Stream) {
	ended := make(map[arcp.JobID]int) // completed children by parent
	for id, child := range s.Children {
		v := s.Jobs[id]
		if v == nil || v.End == nil {
			continue // announced only, or found by the stream
		}
		parent := c.jobs[child.Parent]
		switch {
		case v.End.Type != arcp.JobCancelled:
			ended[child.Parent]++
		case !parent.cancelled || s.Jobs[child.Parent].expected.task.independent():
			c.find(RuleChild, s.Observer, "%s was cancelled, and its parent %s was not", id, child.Parent)
		}
	}
	for id, v := range s.Jobs {
		if v.expected == nil || v.End == nil || v.End.Type != arcp.JobCompleted && v.End.Type != arcp.WorkflowComplete {
			continue
		}
		if want, ok := v.expected.needs(); ok && ended[id] != want {
			c.find(RuleChild, s.Observer, "%s, a %s, completed with %d children, want %d", id, v.expected.task.Kind, ended[id], want)
		}
	}
}

// needs returns the number of the children of a job that has completed.
func (ex *expectation) needs() (n int, ok bool) {
	switch ex.task.Kind {
	case Delegate:
		return 1, true
	case Workflow:
		return len(workflowSteps), true
	case Schedule:
		return ex.fired, true
	}
	return 0, false
}
