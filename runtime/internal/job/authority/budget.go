package authority

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// Report debits an incurred cost. rest is the metric that announces the remaining budget; nil: it is
// not announced.
func (s *State) Report(unit string, cost arcp.Number) (rest *arcp.MetricPayload, err *arcp.Error) {
	return s.debited(s.Budget.Report(unit, cost))
}

// Charge debits a cost before it is incurred. The errors are BUDGET_EXHAUSTED if the budget does not
// cover the cost, and LEASE_EXPIRED: the rest of an ended lease cannot be spent.
func (s *State) Charge(now time.Time, unit string, cost arcp.Number) (rest *arcp.MetricPayload, err *arcp.Error) {
	if err := s.CheckExpiry(now); err != nil {
		s.Lapsed = true
		return nil, err
	}
	return s.debited(s.Budget.Charge(unit, cost))
}

func (s *State) debited(left lease.Amount, announce bool, err *arcp.Error) (*arcp.MetricPayload, *arcp.Error) {
	if err != nil {
		return nil, err
	}
	s.unsaved = s.unsaved || s.Budget != nil
	if !announce {
		return nil, nil
	}
	return new(remaining(left)), nil
}

// Reserve debits the budget of a child, all amounts or none. The error is LEASE_SUBSET_VIOLATION.
func (s *State) Reserve(child []lease.Amount) *arcp.Error {
	if err := s.Budget.Reserve(child); err != nil {
		return err
	}
	s.unsaved = s.unsaved || s.Budget != nil
	return nil
}

// Return credits the rest of a child's budget.
func (s *State) Return(rest []lease.Amount) {
	if s.Budget != nil {
		s.Budget.Return(rest)
		s.unsaved = true
	}
}

// Announce returns the metrics of the remaining budget that are due after a change by a child.
func (s *State) Announce() (metrics []arcp.MetricPayload) {
	for _, left := range s.Budget.Announce() {
		metrics = append(metrics, remaining(left))
	}
	return metrics
}

// SaveBudget returns the budget for Restore; ok is false if it is as it was saved.
func (s *State) SaveBudget() (budget arcp.Raw, ok bool) {
	if !s.unsaved {
		return nil, false
	}
	s.unsaved = false
	return s.Budget.Save(), true
}

func remaining(left lease.Amount) arcp.MetricPayload {
	return arcp.MetricPayload{Name: "cost.budget.remaining", Value: left.Number(), Unit: left.Currency()}
}
