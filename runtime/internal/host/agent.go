// Package host is the live picture of who is connected and what they do: agents,
// which sessions register and keep up to date, and the latest events of each
// principal.
//
// Agents are records of the store, changed by compare-and-set, so of two sessions
// that want the same one only one has it. Who only looks is given what is in
// memory, which follows the store in the order of its commits: a snapshot and the
// events after it fit together exactly. Events are written to the feed of their
// principal, that of an agent together with its row; the latest are in memory.
//
// Nobody waits for who watches: a subscriber reads the ring of its principal at
// its own pace, and one that is overtaken is told how much it has missed.
package host

import (
	"cmp"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Status is what an agent does, as its owner says.
type Status string

// The statuses.
const (
	Idle      Status = "idle"
	Running   Status = "running"
	Waiting   Status = "waiting_for_approval"
	Paused    Status = "paused"
	Completed Status = "completed"
	Errored   Status = "errored"
	Stopped   Status = "stopped" // also when its session has ended for good
)

// Disconnected is the status with which an agent is shown whose session has no
// connection now. It is not kept: what the agent does is known again when it is back.
const Disconnected Status = "disconnected"

// Statuses lists those that an owner says, in the order of SPEC.md §7.7.
var Statuses = []Status{Idle, Running, Waiting, Paused, Completed, Errored, Stopped}

// Agent is an agent as it is kept and shown. What it refers to is not changed.
type Agent struct {
	ID           string         `json:"id"` // one of its principal
	Name         string         `json:"name"`
	Kind         string         `json:"kind"`
	Capabilities arcp.Raw       `json:"capabilities,omitzero"` // an array or an object
	Executes     []string       `json:"executes,omitempty"`    // name@version of the tools whose jobs it is given
	Concurrency  int            `json:"concurrency,omitzero"`  // jobs at once; 0: it has not said
	Project      string         `json:"project,omitzero"`
	PID          int64          `json:"pid,omitzero"`
	Display      *Display       `json:"display,omitzero"`
	Metadata     arcp.Raw       `json:"metadata,omitzero"` // an object
	Status       Status         `json:"status"`
	CurrentTask  string         `json:"current_task,omitzero"`
	Principal    string         `json:"principal"`
	Session      arcp.SessionID `json:"session_id"` // its owner
	RegisteredAt time.Time      `json:"registered_at"`
	UpdatedAt    time.Time      `json:"updated_at"`
	EndedAt      time.Time      `json:"ended_at,omitzero"` // when its session had ended for good: nobody owns it
}

// Display is how an agent wants to be shown.
type Display struct {
	Label  string `json:"label,omitzero"`
	Icon   string `json:"icon,omitzero"`
	Accent string `json:"accent,omitzero"`
}

// Compare orders agents as they are listed: by name, then id.
func Compare(a, b Agent) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}
