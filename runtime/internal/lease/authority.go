package lease

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Authority is the lease, the budget and the grants of a job. The zero value allows
// nothing. It is not for concurrent use.
type Authority struct {
	Lease  *Lease
	Budget *Budget // nil: no currency is limited
	Grants Grants
}

// Check returns nil if the job may do an operation now, or the first of these errors:
//
//   - LEASE_EXPIRED: the job's lease has ended. Grants do not matter then.
//   - PERMISSION_DENIED: neither the lease nor a live grant covers the target. If an ended
//     grant did, LEASE_EXPIRED or LEASE_REVOKED.
//   - BUDGET_EXHAUSTED: the remaining amount of a currency is 0 or negative.
//
// The empty operation matches every grant.
func (a *Authority) Check(now time.Time, namespace, target, operation string) *arcp.Error {
	if err := a.CheckExpiry(now); err != nil {
		return err
	}
	if err := a.checkCoverage(now, namespace, target, operation); err != nil {
		return err
	}
	return a.checkBudget()
}

// CheckUntargeted is Check for an operation without a target: only LEASE_EXPIRED and BUDGET_EXHAUSTED are
// possible.
func (a *Authority) CheckUntargeted(now time.Time) *arcp.Error {
	if err := a.CheckExpiry(now); err != nil {
		return err
	}
	return a.checkBudget()
}

// CheckExpiry returns LEASE_EXPIRED if the job's lease has ended.
func (a *Authority) CheckExpiry(now time.Time) *arcp.Error {
	if a.Lease.Expired(now) {
		return arcp.Errorf(arcp.CodeLeaseExpired, "the lease expired at %s", a.Lease.ExpiresAt().Format(time.RFC3339Nano))
	}
	return nil
}

func (a *Authority) checkBudget() *arcp.Error {
	if currency, yes := a.Budget.Exhausted(); yes {
		return arcp.Errorf(arcp.CodeBudgetExhausted, "nothing is left of the budget of %s", currency)
	}
	return nil
}

func (a *Authority) checkCoverage(now time.Time, namespace, target, operation string) *arcp.Error {
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
