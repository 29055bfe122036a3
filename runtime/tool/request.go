package tool

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Call describes a child job.
type Call struct {
	Tool      string   // name or name@version
	Arguments arcp.Raw // JSON that satisfies the tool's input schema

	// Lease is the lease_request of the child, within the job's own lease; nil: no
	// authority. The child's lease ends with the job's lease. In a currency without an
	// amount here the child may spend the rest of the job's budget.
	Lease arcp.Raw

	// Constraints and CostBudget also bound the lease. The earlier of two ends applies;
	// two amounts must be equal. Times may have any zone; in Lease they must be UTC.
	Constraints *arcp.LeaseConstraints
	CostBudget  []string

	// Key, if set, identifies the call instead of its other members: a later attempt with
	// the same key finds the child, whatever its tool and arguments are then. The tool
	// chooses keys that are unique in the job.
	Key string

	// FindOnly finds the child of an earlier attempt, and creates none: the error of Job.Call
	// is ErrNotCalled if there is no child.
	FindOnly bool

	// MaxRuntime is the run time of the child, which then fails with TIMEOUT; 0: no limit,
	// at most a year.
	MaxRuntime time.Duration

	// OnChild, if set, is called with the id of the child before Job.Call waits for the
	// child, also if an earlier attempt created it. It must not block.
	OnChild func(child arcp.JobID)

	Detach   bool // the child continues after the end of the job
	Delegate bool // delegate to an agent: the lease must allow agent.delegate instead of tool.call
}

// PermissionRequest is a request for a permission.
type PermissionRequest struct {
	Permission string        // required; for example order.refund
	Resource   string        // required; for example order/17
	Operation  string        // required; for example refund
	Reason     string        // for the person that answers
	For        time.Duration // duration of the permission; 0: the longest duration that the answer allows
	Expires    time.Duration // time to answer; 0: 24 h, at most 30 d
}

// PermissionLease is a granted permission. It may be narrower than the requested one.
type PermissionLease struct {
	ID         arcp.LeaseID // empty in a worker
	Permission string
	Resource   string
	Operation  string
	ExpiresAt  time.Time
}

// InputRequest is a question that a person answers with a value.
type InputRequest struct {
	Prompt  string
	Schema  arcp.Raw      // JSON Schema 2020-12 of the answer; nil: anything
	Default arcp.Raw      // answer when the question expires; nil: the question has no default
	Expires time.Duration // time to answer; 0: 24 h, at most 30 d
}

// ChoiceRequest is a question that a person answers with one of the options.
type ChoiceRequest struct {
	Prompt  string
	Options []arcp.Option
	Expires time.Duration // time to answer; 0: 24 h, at most 30 d
}

// Answer is a person's answer.
type Answer struct {
	Value       arcp.Raw // of Ask
	ChoiceID    string   // of Choose
	RespondedBy string   // name in the answer; "default" for the default
	ResolvedBy  string   // authenticated principal; empty in a worker
	At          time.Time
}
