package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// agentView is an item of host.agents, with the state of the agent's session from sessions.list.
type agentView struct {
	ID           string         `json:"id"`
	Name         string         `json:"name"`
	Kind         string         `json:"kind"`
	Project      string         `json:"project,omitzero"`
	Executes     []string       `json:"executes,omitempty"`
	Concurrency  int            `json:"concurrency,omitzero"`
	Running      int            `json:"running"`
	Status       string         `json:"status"`
	CurrentTask  string         `json:"current_task,omitzero"`
	Principal    string         `json:"principal"`
	Session      arcp.SessionID `json:"session_id"`
	SessionState string         `json:"session_state"` // connected, detached or ended
	ConnectedAt  time.Time      `json:"session_created_at,omitzero"`
	DetachedAt   time.Time      `json:"session_detached_at,omitzero"`
	RegisteredAt time.Time      `json:"registered_at"`
	UpdatedAt    time.Time      `json:"updated_at"`
	EndedAt      time.Time      `json:"ended_at,omitzero"`
}

// sessionEnded is the state of a session that the runtime does not list.
const sessionEnded = "ended"

func newWorkers(a *app) *cobra.Command {
	cmd := newGroup("workers", "List the workers that execute tools")
	cmd.AddCommand(newList(a, list[agentView]{
		short: "List the workers that you may observe, with their tools",
		long: "Lists the agents that execute tools, your own and those of the principals that you may observe:\n" +
			"an admin sees all. STATE is the state of the worker's session. CONNECTED is the age of that\n" +
			"session, LAST SEEN the time since it lost its connection, or since the worker ended if its session\n" +
			"is gone. RUNNING is the number of jobs that the worker executes, and the largest number if it is\n" +
			"set. TOOLS has the first three tools and the number of others; -o json has all.",
		fetch: fetchAgents,
		match: func(v *agentView) bool { return len(v.Executes) > 0 },
		columns: []column[agentView]{
			{"WORKER", func(v *agentView) any { return v.ID }},
			{"NAME", func(v *agentView) any { return v.Name }},
			{"PRINCIPAL", func(v *agentView) any { return v.Principal }},
			{"TOOLS", func(v *agentView) any { return firstWords(v.Executes, 3) }},
			{"STATE", func(v *agentView) any { return v.SessionState }},
			{"CONNECTED", func(v *agentView) any { return ageOrDash(v.SessionState == arcp.SessionConnected, v.ConnectedAt) }},
			{"LAST SEEN", func(v *agentView) any { return v.lastSeen() }},
			{"RUNNING", func(v *agentView) any { return v.load() }},
		},
	}))
	return cmd
}

// firstWords returns the first words, and the number of others as "+12".
func firstWords(words []string, limit int) string {
	if more := len(words) - limit; more > 0 {
		words = append(slices.Clone(words[:limit]), fmt.Sprintf("+%d", more))
	}
	return strings.Join(words, " ")
}

func newAgents(a *app) *cobra.Command {
	cmd := newGroup("agents", "List registered agents")
	cmd.AddCommand(newList(a, list[agentView]{
		short: "List the agents that you may observe",
		long: "Lists your agents and those of the principals that you may observe, by principal and name: an\n" +
			"admin sees all. STATUS is the status that the agent has set, or disconnected if its session is\n" +
			"detached in `arcp sessions ls`: it has no connection, and can be resumed.",
		fetch: fetchAgents,
		columns: []column[agentView]{
			{"AGENT", func(v *agentView) any { return v.ID }},
			{"NAME", func(v *agentView) any { return v.Name }},
			{"PRINCIPAL", func(v *agentView) any { return v.Principal }},
			{"KIND", func(v *agentView) any { return v.Kind }},
			{"STATUS", func(v *agentView) any { return v.Status }},
			{"CONNECTED", func(v *agentView) any { return ageOrDash(v.SessionState == arcp.SessionConnected, v.ConnectedAt) }},
			{"LAST SEEN", func(v *agentView) any { return v.lastSeen() }},
			{"RUNNING", func(v *agentView) any { return v.load() }},
			{"TASK", func(v *agentView) any { return orDash(v.CurrentTask) }},
		},
	}))
	return cmd
}

// ageOrDash returns the age of a time; "-" unless known.
func ageOrDash(known bool, at time.Time) string {
	if !known || at.IsZero() {
		return "-"
	}
	return age(time.Since(at))
}

// lastSeen returns when the agent had a connection.
func (v *agentView) lastSeen() string {
	if v.SessionState == arcp.SessionConnected {
		return "now"
	}
	if !v.DetachedAt.IsZero() {
		return age(time.Since(v.DetachedAt)) + " ago"
	}
	return ageOrDash(true, latest(v.EndedAt, v.UpdatedAt)) + " ago"
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// load returns the number of jobs that the agent executes, and its bound.
func (v *agentView) load() string {
	switch {
	case len(v.Executes) == 0:
		return "-"
	case v.Concurrency == 0:
		return fmt.Sprint(v.Running)
	}
	return fmt.Sprintf("%d of %d", v.Running, v.Concurrency)
}

// fetchAgents reads a page of the agents that the caller may observe, and their sessions.
func fetchAgents(ctx context.Context, c *client.Client, q *query) (arcp.Page[agentView], error) {
	args := q.args()
	args["observed"] = true
	page, err := ask[arcp.Page[agentView]](ctx, c, "host.agents", args)
	if err != nil || len(page.Items) == 0 {
		return page, err
	}
	sessions, err := allSessions(ctx, c)
	for i := range page.Items {
		v := &page.Items[i]
		v.SessionState = sessionEnded
		s, ok := sessions[v.Session]
		v.ConnectedAt, v.DetachedAt = s.CreatedAt, s.DetachedAt
		if ok && v.EndedAt.IsZero() {
			v.SessionState = s.State
		}
	}
	return page, err
}

// allSessions reads the sessions that the caller may observe.
func allSessions(ctx context.Context, c *client.Client) (map[arcp.SessionID]arcp.SessionView, error) {
	all := make(map[arcp.SessionID]arcp.SessionView)
	for q := (query{page: maxRows}); ; {
		page, err := ask[arcp.Page[arcp.SessionView]](ctx, c, "sessions.list", q.args())
		if err != nil {
			return all, err
		}
		for _, s := range page.Items {
			all[s.SessionID] = s
		}
		if page.NextCursor == "" {
			return all, nil
		}
		q.cursor = page.NextCursor
	}
}
