// Package agents stores the agents that sessions register, and holds the latest events of each
// principal.
//
// Agents are records of the store. A change names the revision that it replaces, so of two
// sessions that register the same agent one is refused. Reads are served from memory, which changes
// in the order of the commits. A subscription has exactly the events after its snapshot. An event is
// written to the feed of its principal, an event of an agent together with the agent's row.
//
// Subscribers do not block writers: a subscriber reads the ring of its principal at its own
// pace, and learns how many events it has missed.
package agents

import (
	"cmp"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Status is the status of an agent, set by its owner.
type Status string

// The statuses.
const (
	Idle      Status = "idle"
	Running   Status = "running"
	Waiting   Status = "waiting_for_approval"
	Paused    Status = "paused"
	Completed Status = "completed"
	Errored   Status = "errored"
	Stopped   Status = "stopped" // also after the end of its session
)

// Disconnected is the shown status of an agent whose session has no connection. It is not
// stored.
const Disconnected Status = "disconnected"

// Statuses lists the statuses that an owner may set, in the order of SPEC.md §7.7.
var Statuses = []Status{Idle, Running, Waiting, Paused, Completed, Errored, Stopped}

// Agent is an agent as it is stored and shown. Its slices and pointers are not changed.
type Agent struct {
	ID           string         `json:"id"` // unique for its principal
	Name         string         `json:"name"`
	Kind         string         `json:"kind"`
	Capabilities arcp.Raw       `json:"capabilities,omitzero"` // an array or an object
	Executes     []string       `json:"executes,omitempty"`    // name@version of the tools whose jobs it executes
	Concurrency  int            `json:"concurrency,omitzero"`  // jobs at the same time; 0: not set
	Project      string         `json:"project,omitzero"`
	PID          int64          `json:"pid,omitzero"`
	Display      *Display       `json:"display,omitzero"`
	Metadata     arcp.Raw       `json:"metadata,omitzero"` // an object
	Status       Status         `json:"status"`
	CurrentTask  string         `json:"current_task,omitzero"`
	Running      int            `json:"running,omitzero"` // jobs that it executes; only in the answer of host.agents
	Principal    string         `json:"principal"`
	Session      arcp.SessionID `json:"session_id"` // its owner
	RegisteredAt time.Time      `json:"registered_at"`
	UpdatedAt    time.Time      `json:"updated_at"`
	EndedAt      time.Time      `json:"ended_at,omitzero"` // end of its session; the agent has no owner then
}

// Display has hints for showing an agent.
type Display struct {
	Label  string `json:"label,omitzero"`
	Icon   string `json:"icon,omitzero"`
	Accent string `json:"accent,omitzero"`
}

// Compare orders agents as they are listed: by name, then id.
func Compare(a, b Agent) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

// IsLive reports whether the agent has not ended by its own status.
func (a *Agent) IsLive() bool {
	switch a.Status {
	case Completed, Errored, Stopped:
		return false
	}
	return true
}
