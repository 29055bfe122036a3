package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// Authority is what a job may do, spend and ask. Its methods may be called by many
// goroutines.
type Authority interface {
	// Allow asks whether the job may do something now: target is a path, a URL, a
	// name or whatever the namespace, or the permission of that name, is about. It is
	// to be asked before every operation that needs authority; Files and Fetcher do.
	// In this order: LEASE_EXPIRED, which also ends the job; PERMISSION_DENIED;
	// BUDGET_EXHAUSTED. An operation is allowed by the job's lease or by a permission
	// lease for the namespace and target.
	Allow(namespace, target string) error

	// Files opens files within the job's authority, and Fetcher fetches URLs.
	Files() *access.Files
	Fetcher() *access.Fetcher

	// UseModel is Allow of a model, with what the server's policy says for jobs whose
	// lease does not speak of models.
	UseModel(model string) error

	// Charge spends an amount before it is spent: either it fits into the budget, or
	// the error is BUDGET_EXHAUSTED and nothing was charged; when the lease has ended
	// it is LEASE_EXPIRED. It is reported as the
	// metric cost.<name>. A cost that has been incurred already is reported with
	// Metric, and always counts.
	Charge(name, currency string, amount arcp.Number) error

	// Upstream turns an error of a service that the job has called on its own
	// account into the job's: that the credential's budget is used up is
	// BUDGET_EXHAUSTED.
	Upstream(status int, message string) error

	// Permit asks for a permission that the lease does not have, and waits for an
	// answer: the job is blocked meanwhile, and its maximum runtime stands still. A
	// refusal, or no answer in time, is PERMISSION_DENIED.
	Permit(ctx context.Context, p PermissionAsk) (PermissionLease, error)

	// Permitted asks whether a permission lease, or the job's lease, covers an
	// operation now: LEASE_EXPIRED, LEASE_REVOKED or PERMISSION_DENIED if not.
	Permitted(permission, resource, operation string) error

	// Extend asks for more time for a permission lease, within 24 h since it was
	// granted, and returns when it ends now.
	Extend(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error)

	// Ask asks a person for a value, and waits. Without an answer in time it is the
	// default or, without one, DEADLINE_EXCEEDED.
	Ask(ctx context.Context, a InputAsk) (Answer, error)

	// Choose asks a person for a choice, and waits.
	Choose(ctx context.Context, c ChoiceAsk) (Answer, error)

	// Call runs another tool as a job of its own, a child of this one, waits for it
	// and returns its result or its error. It needs tool.call of the tool's name.
	//
	// An attempt that is made again finds the children of the earlier ones: the
	// same call is the same child, which goes on or has ended, and is not made
	// twice; of calls that are the same in all, the first finds the first. One that
	// did not complete is made anew when the attempt that called it has failed and
	// is retried.
	//
	// What the child may spend is taken out of the job's budget meanwhile; the rest
	// is back when Call returns, unless a child of the child still runs. When ctx
	// ends first the child goes on; when the job ends, it is cancelled.
	//
	// A child waits for a slot of its tool like every job: a tool whose jobs wait
	// for jobs of the same tool must have more slots than waiting ones.
	Call(ctx context.Context, c Call) (arcp.Raw, error)

	Leaser
}

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
