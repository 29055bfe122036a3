// Package authority decides about the authority of one job while it runs: the lease of a submit,
// the operations that the job may do, the debits of its budget, and the changes of its permission
// leases.
//
// The package is pure: the time and new ids are arguments. The caller serializes the calls, stores
// the state and sends the events.
package authority

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// State is the authority of a job. The zero value allows nothing.
type State struct {
	lease.Authority
	Lapsed bool // an operation was refused because the job's lease has ended

	unsaved bool // the budget differs from the saved one
}

// SubmitLease returns the lease of a submit's job: the lease_request, if the limit of the principal
// covers it, or the limit if there is no lease_request. An empty lease_request is a request.
// lease_constraints and cost_budget apply to both. The error is LEASE_EXPIRED if the limit has ended.
func SubmitLease(now time.Time, o *arcp.SubmitOptions, limit *lease.Lease) (*lease.Lease, *arcp.Error) {
	if limit.Expired(now) {
		return nil, errLimitEnded(limit)
	}
	return BuiltinLease(now, o, limit)
}

func errLimitEnded(limit *lease.Lease) *arcp.Error {
	return arcp.Errorf(arcp.CodeLeaseExpired, "the lease that bounds the job ended at %s", limit.ExpiresAt().UTC().Format(time.RFC3339))
}

// BuiltinLease is SubmitLease for a built-in tool, which may be called after the end of the limit.
func BuiltinLease(now time.Time, o *arcp.SubmitOptions, limit *lease.Lease) (*lease.Lease, *arcp.Error) {
	unrequested := len(o.LeaseRequest) == 0 || o.LeaseRequest.Kind() == 'n'
	if unrequested && len(o.CostBudget) == 0 && o.LeaseConstraints == nil { // as nearly always
		return limit, nil
	}
	requested, err := lease.Parse(now, lease.Request{Lease: o.LeaseRequest, Constraints: o.LeaseConstraints, CostBudget: o.CostBudget})
	if err != nil {
		return nil, err
	}
	if limit == nil {
		return requested, nil
	}
	if unrequested {
		requested = requested.WithPermissions(limit)
	}
	if err := requested.CheckWithin(limit); err != nil {
		return nil, err
	}
	return requested.Inherit(limit, limit.Budget()), nil
}

// WireForm returns a lease in its wire form; nil for no lease.
func WireForm(l *lease.Lease) (raw arcp.Raw, constraints *arcp.LeaseConstraints) {
	if l == nil {
		return nil, nil
	}
	return l.WireJSON(), l.Constraints()
}

// SetLease sets the job's lease and its budget, with nothing spent.
func (s *State) SetLease(l *lease.Lease) {
	if s.Lease = l; len(l.Budget()) > 0 {
		s.Budget = lease.NewBudget(l.Budget())
	}
}

// Restore sets the saved budget and the encoded permission leases; empty: none was saved. After an
// error the job may do nothing.
func (s *State) Restore(budget, grants arcp.Raw) (err error) {
	defer func() {
		if err != nil {
			s.Authority = lease.Authority{Lease: lease.Nothing()}
		}
	}()
	if len(budget) > 0 {
		if s.Budget, err = lease.RestoreBudget(budget); err != nil {
			return err
		}
	}
	if len(grants) > 0 {
		return s.Grants.Decode(grants)
	}
	return nil
}

// EndsAt returns when the job's lease ends, the grace included; zero: never.
func (s *State) EndsAt() time.Time {
	end := s.Lease.ExpiresAt()
	if end.IsZero() {
		return end
	}
	return end.Add(lease.Grace)
}

// Expired reports whether the job's lease has ended.
func (s *State) Expired(now time.Time) bool { return s.Lease.Expired(now) }

// ExpiredError is the error of a job that ends with its lease.
func (s *State) ExpiredError() *arcp.Error {
	return arcp.Errorf(arcp.CodeLeaseExpired, "the job's lease ended at %s", s.Lease.ExpiresAt().UTC().Format(time.RFC3339))
}

// Decide decides about an operation by a check of the authority, and records in Lapsed that the
// job's lease has ended.
func (s *State) Decide(now time.Time, check func(*lease.Authority, time.Time) *arcp.Error) *arcp.Error {
	err := check(&s.Authority, now)
	s.Lapsed = s.Lapsed || err != nil && err.Code == arcp.CodeLeaseExpired && s.Expired(now)
	return err
}

// defaultThoughtRole is the role of a thought without one (RFC §11.4).
const defaultThoughtRole = "assistant_thought"

// MayWriteThought reports whether the text of a thought with the role is recorded. Without the namespace
// thought.write in the lease, every text is.
func (s *State) MayWriteThought(role string) bool {
	if role == "" {
		role = defaultThoughtRole
	}
	return !s.Lease.Has(arcp.NamespaceThoughtWrite) || s.Lease.Covers(arcp.NamespaceThoughtWrite, role) == nil
}

// UseModel decides about the use of a model. required says that a lease without the namespace
// model.use allows no model; otherwise it allows every model.
func UseModel(model string, required bool) func(*lease.Authority, time.Time) *arcp.Error {
	return func(a *lease.Authority, now time.Time) *arcp.Error {
		if !a.Lease.Has(arcp.NamespaceModelUse) && !required {
			return a.CheckUntargeted(now)
		}
		return a.Check(now, arcp.NamespaceModelUse, model, "")
	}
}
