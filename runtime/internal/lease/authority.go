package lease

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Authority is all that a job may do. The zero value is no authority. It is not
// for concurrent use.
type Authority struct {
	Lease  *Lease
	Budget *Budget // nil: nothing is limited
	Grants Grants
}

// Check says whether the job may do an operation now: nil, or the first of
// these that is true.
//
//   - LEASE_EXPIRED: the job's lease has ended, whatever was granted beside it.
//   - PERMISSION_DENIED: neither the lease nor a live grant covers the target.
//     If a grant that has ended did, LEASE_EXPIRED or LEASE_REVOKED.
//   - BUDGET_EXHAUSTED: nothing is left of a currency.
//
// An empty operation is covered by a grant for any.
func (a *Authority) Check(now time.Time, namespace, target, operation string) *arcp.Error {
	if err := a.Ended(now); err != nil {
		return err
	}
	if err := a.covers(now, namespace, target, operation); err != nil {
		return err
	}
	return a.exhausted()
}

// Operate is Check of an operation that no lease needs to cover: only the end of
// the lease and of the budget count.
func (a *Authority) Operate(now time.Time) *arcp.Error {
	if err := a.Ended(now); err != nil {
		return err
	}
	return a.exhausted()
}

// Ended returns LEASE_EXPIRED if the job's lease has ended.
func (a *Authority) Ended(now time.Time) *arcp.Error {
	if a.Lease.Expired(now) {
		return arcp.Errorf(arcp.CodeLeaseExpired, "the lease expired at %s", a.Lease.ExpiresAt().Format(time.RFC3339Nano))
	}
	return nil
}

func (a *Authority) exhausted() *arcp.Error {
	if currency, yes := a.Budget.Exhausted(); yes {
		return arcp.Errorf(arcp.CodeBudgetExhausted, "nothing is left of the budget of %s", currency)
	}
	return nil
}

func (a *Authority) covers(now time.Time, namespace, target, operation string) *arcp.Error {
	err := a.Lease.Covers(namespace, target)
	if err == nil || len(a.Grants.list) == 0 {
		return err
	}
	granted := a.Grants.Check(now, namespace, target, operation)
	if granted == nil || granted.Code != arcp.CodePermissionDenied {
		return granted
	}
	return err
}
