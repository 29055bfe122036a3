package tool

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Call is a tool to run as a child.
type Call struct {
	Tool      string   // name or name@version
	Arguments arcp.Raw // as the tool takes them

	// Lease is what the child may do, as a lease_request of the job's own lease; nil:
	// nothing. It ends when the job's does. In a currency of the job's budget that it
	// has no amount of it may spend all that is left.
	Lease arcp.Raw

	// Constraints and CostBudget are the other places of the lease's end, of which
	// the earlier counts, and of its amounts, which must not differ. The time may be
	// in any zone; one in Lease, which is text, must be in UTC.
	Constraints *arcp.LeaseConstraints
	CostBudget  []string

	// Made, if set, is told of the child when it exists, or is found, before Call
	// waits for it. It must not block.
	Made func(child arcp.JobID)

	Detach   bool // the child goes on when the job has ended
	Delegate bool // work is delegated to an agent: agent.delegate of its name is needed, not tool.call
}

// PermissionAsk is a permission that a tool needs.
type PermissionAsk struct {
	Permission string
	Resource   string
	Operation  string
	Reason     string
	For        time.Duration // how long; zero: as long as is granted
	Expires    time.Duration // how long to wait; zero: 24 h, at most 30 d
}

// PermissionLease is a permission that was granted. It may be narrower than what
// was asked for.
type PermissionLease struct {
	ID         arcp.LeaseID
	Permission string
	Resource   string
	Operation  string
	ExpiresAt  time.Time
}

// InputAsk is a question for a value.
type InputAsk struct {
	Prompt  string
	Schema  arcp.Raw      // JSON Schema 2020-12 that the answer must satisfy; nil: anything
	Default arcp.Raw      // the answer when there is none in time; nil: there is none
	Expires time.Duration // how long to wait; zero: 24 h, at most 30 d
}

// ChoiceAsk is a question with the answers to choose from.
type ChoiceAsk struct {
	Prompt  string
	Options []arcp.Option
	Expires time.Duration // how long to wait; zero: 24 h, at most 30 d
}

// Answer is what a person has said.
type Answer struct {
	Value       arcp.Raw // of Ask
	ChoiceID    string   // of Choose
	RespondedBy string   // as the answer says; "default" for the default
	ResolvedBy  string   // the principal that answered, as the runtime knows it
	At          time.Time
}
