package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// hostEvent is the data of host.event, and an event of a snapshot.
type hostEvent struct {
	Timestamp time.Time `json:"timestamp"`
	Kind      string    `json:"kind"`
	AgentID   string    `json:"agent_id"`
	Message   string    `json:"message"`
}

// describeHostEvent describes a change of an agent, an approval or a resource.
func describeHostEvent(data arcp.Raw) string {
	var e hostEvent
	_ = arcp.Unmarshal(data, &e) // the zero value of undecodable members is displayed
	return label("host", e.Kind, e.AgentID, e.Message)
}

// hostSnapshot is the data of host.snapshot, or of a part of it.
type hostSnapshot struct {
	Agents    []agentView         `json:"agents"`
	Approvals []arcp.QuestionView `json:"approvals"`
	Events    []hostEvent         `json:"events"`
	More      bool                `json:"more"`
}

func snapshotOf(data arcp.Raw) (s hostSnapshot) {
	_ = arcp.Unmarshal(data, &s) // the zero value of undecodable members is displayed
	return s
}

// describe returns the numbers of the snapshot.
func (s *hostSnapshot) describe() string {
	text := fmt.Sprintf("%s, %s, %s", counted(len(s.Agents), "agent"), counted(len(s.Approvals), "approval"), counted(len(s.Events), "past event"))
	if s.More {
		text += "; another part follows"
	}
	return label("snapshot", text)
}

// print prints a table for each list that has items.
func (s *hostSnapshot) print(w io.Writer) {
	printIndented(w, []column[agentView]{
		{"AGENT", func(v *agentView) any { return v.ID }},
		{"NAME", func(v *agentView) any { return v.Name }},
		{"KIND", func(v *agentView) any { return v.Kind }},
		{"STATUS", func(v *agentView) any { return v.Status }},
		{"RUNNING", func(v *agentView) any { return v.load() }},
		{"TASK", func(v *agentView) any { return orDash(v.CurrentTask) }},
	}, s.Agents)
	printIndented(w, []column[arcp.QuestionView]{
		{"APPROVAL", func(q *arcp.QuestionView) any { return q.ApprovalID }},
		{"KIND", func(q *arcp.QuestionView) any { return q.Kind }},
		{"JOB", func(q *arcp.QuestionView) any { return orDash(string(q.JobID)) }},
		{"CREATED", func(q *arcp.QuestionView) any { return clock(q.CreatedAt) }},
		{"ACTION", func(q *arcp.QuestionView) any { return q.Action }},
	}, s.Approvals)
	printIndented(w, []column[hostEvent]{
		{"TIME", func(e *hostEvent) any { return clock(e.Timestamp) }},
		{"EVENT", func(e *hostEvent) any { return e.Kind }},
		{"AGENT", func(e *hostEvent) any { return orDash(e.AgentID) }},
		{"MESSAGE", func(e *hostEvent) any { return e.Message }},
	}, s.Events)
}

// printIndented prints a table with rows below a line of an event.
func printIndented[T any](w io.Writer, columns []column[T], rows []T) {
	if len(rows) == 0 {
		return
	}
	var b strings.Builder
	_ = table(&b, columns, rows) // a Builder returns no errors
	for line := range strings.Lines(b.String()) {
		fmt.Fprint(w, "        ", line)
	}
}
