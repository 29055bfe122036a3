// Package family decides about the children of a job: the calls that become children, the lease and
// the part of the budget that a child gets, the budget that it returns, and its end with its parent.
//
// The package is pure: the time and new ids are arguments. The caller serializes the calls, stores
// the changed entries and submits the children.
package family

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// Bounds of children (SPEC.md §5.6).
const (
	MaxChildren = 1000 // of a job
	MaxDepth    = 16   // ancestors of a job
)

// ParentEnded is the reason for which the children of an ended job are cancelled.
const ParentEnded = "the parent job has ended"

// Position is the position of a job in its family. The zero value is a job without a parent.
type Position struct {
	Depth    int  // ancestors of the job
	Detached bool // the job continues when its parent has ended
}

// Child returns the position of a child: FAILED_PRECONDITION below MaxDepth.
func (p Position) Child(detached bool) (Position, *arcp.Error) {
	if p.Depth >= MaxDepth {
		return Position{}, arcp.Errorf(arcp.CodeFailedPrecondition, "children are called at most %d deep", MaxDepth)
	}
	return Position{Depth: p.Depth + 1, Detached: detached}, nil
}

// EndsWithParent reports whether the job is cancelled when its parent has ended.
func (p Position) EndsWithParent() bool { return p.Depth > 0 && !p.Detached }

// Callee is the tool of a call.
type Callee struct {
	Name     string
	Builtin  bool
	Trusted  bool            // the trust level of the job suffices
	MinTrust arcp.TrustLevel // the trust level that the tool needs
}

// Check refuses a tool that no job, or not this job, may call: PERMISSION_DENIED. Built-in tools act
// for a client, which could be made to answer its own question.
func (c Callee) Check() *arcp.Error {
	switch {
	case c.Builtin:
		return arcp.Errorf(arcp.CodePermissionDenied, "%s is for clients; no job calls it", c.Name)
	case !c.Trusted:
		return arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", c.Name, c.MinTrust)
	}
	return nil
}

// RequestedLease returns the lease that a call requests: INVALID_REQUEST if it cannot be parsed,
// LEASE_SUBSET_VIOLATION if it exceeds the parent's lease.
func RequestedLease(now time.Time, parent *lease.Lease, r lease.Request) (*lease.Lease, *arcp.Error) {
	if r.Constraints != nil { // the tool's time may be in any zone
		r.Constraints = &arcp.LeaseConstraints{ExpiresAt: r.Constraints.ExpiresAt.UTC()}
	}
	requested, err := lease.Parse(now, r)
	if err != nil {
		return nil, err
	}
	if err := requested.CheckSubset(parent); err != nil {
		return requested, err
	}
	return requested, nil
}

// Call is a call that asks for a child.
type Call struct {
	N       uint64 // of the child, from 1
	Job     arcp.JobID
	Agent   string
	Request string       // digest of the call
	Lease   *lease.Lease // of RequestedLease
	Attempt uint32       // of the parent
	Failed  int          // attempts of the parent that had failed before

	DelegateID string
	MaxEvent   int // bytes of the payload of an event
}

// Admission is the decision to create a child.
type Admission struct {
	Child *Child
	Lease *lease.Lease          // of the child
	Event arcp.EventEmitPayload // the event delegate of the parent
}

// DelegateData is the data of the event delegate (SPEC.md §5.6).
type DelegateData struct {
	DelegateID string     `json:"delegate_id"`
	ChildJobID arcp.JobID `json:"child_job_id"`
	Agent      string     `json:"agent"`
	Lease      arcp.Raw   `json:"lease"`
}

const delegate = "delegate"

// Admit adds a child to the ledger. Its lease is the requested one, with the members that it lacks
// from its parent: an earlier expiry, and the rest of the budget. The child's amounts are debited
// from the parent's budget. The errors are RESOURCE_EXHAUSTED for too many children or too large a
// lease, and LEASE_SUBSET_VIOLATION for more than the rest of the budget.
func (l *Ledger) Admit(parent *authority.State, call Call) (Admission, *arcp.Error) {
	if len(l.children) >= MaxChildren {
		err := arcp.Errorf(arcp.CodeResourceExhausted, "the job has called %d children, the most that a job may call", MaxChildren)
		err.Retryable = false
		return Admission{}, err
	}
	granted := call.Lease.Inherit(parent.Lease, parent.Budget.Remaining())
	data, err := arcp.Marshal(DelegateData{call.DelegateID, call.Job, call.Agent, granted.WireJSON()})
	if err != nil { // plain members, and a lease that was encoded
		panic("family: " + err.Error())
	}
	if n := len(`{"name":"`+delegate+`","data":}`) + len(data); n > call.MaxEvent {
		return Admission{}, arcp.Errorf(arcp.CodeResourceExhausted, "a lease of %d bytes: an event may have at most %d", n, call.MaxEvent)
	}
	if err := parent.Reserve(granted.Budget()); err != nil {
		return Admission{}, err
	}
	c := &Child{calledBy: call.Attempt, Entry: Entry{N: call.N, Job: call.Job, Request: call.Request, Failed: call.Failed,
		Open: true, Reserved: Texts(granted.Budget())}}
	l.children = append(l.children, c)
	l.change(c)
	return Admission{Child: c, Lease: granted, Event: arcp.EventEmitPayload{Name: delegate, Data: data}}, nil
}

// Status is the status of a child as its parent finds it.
type Status uint8

const (
	Running Status = iota // the child, or a descendant, may still spend; or it is on its way to the store
	Ended                 // with all its descendants
	Missing               // there is no job
)

// Return closes the entry of a child that has ended, and credits the rest of its budget to the
// parent. A deleted child returns nothing: its costs are deleted with it. A child that was never
// created returns its whole budget, and its entry is deleted. Return reports whether the entry is
// closed.
func (l *Ledger) Return(parent *authority.State, c *Child, status Status, remaining []lease.Amount) (closed bool) {
	switch {
	case status == Running:
		return false
	case status == Ended:
		l.close(parent, c, remaining)
	case c.Created:
		l.close(parent, c, nil)
	default:
		l.Revert(parent, c)
	}
	return true
}

// Revert reverts Admit for a child that was not created.
func (l *Ledger) Revert(parent *authority.State, c *Child) {
	l.close(parent, c, c.reserved())
	l.remove(c)
}

func (l *Ledger) close(parent *authority.State, c *Child, rest []lease.Amount) {
	parent.Return(rest)
	c.Open, c.Reserved = false, nil
	l.change(c)
}
