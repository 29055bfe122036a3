package tool

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Call describes a child job.
type Call struct {
	Tool      string   // name or name@version
	Arguments arcp.Raw // as the tool's input schema has them

	// Lease is the lease_request of the child, within the job's own lease; nil: the
	// child may do nothing. It ends with the job's lease. In a currency of the job's
	// budget without an amount here the child may spend all that is left.
	Lease arcp.Raw

	// Constraints and CostBudget also bound the lease. The earlier end counts; amounts
	// must not differ. Times may be in any zone, in Lease in UTC only.
	Constraints *arcp.LeaseConstraints
	CostBudget  []string

	// Made, if set, is called with the child before Job.Call waits for it, also with a
	// child of an earlier attempt. It must not block.
	Made func(child arcp.JobID)

	Detach   bool // the child continues after the end of the job
	Delegate bool // delegate to an agent: this needs agent.delegate of its name in place of tool.call
}

// PermissionAsk is a request for a permission.
type PermissionAsk struct {
	Permission string
	Resource   string
	Operation  string
	Reason     string
	For        time.Duration // of the permission; 0: the longest that is granted
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

// InputAsk is a question for a value.
type InputAsk struct {
	Prompt  string
	Schema  arcp.Raw      // JSON Schema 2020-12 of the answer; nil: anything
	Default arcp.Raw      // answer when the question expires; nil: none
	Expires time.Duration // time to answer; 0: 24 h, at most 30 d
}

// ChoiceAsk is a question for one of its options.
type ChoiceAsk struct {
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
