package tooltest

import (
	"context"
	"math/big"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// resource is a granted lease.
type resource struct {
	ask tool.ResourceRequest

	mu       sync.Mutex
	expires  time.Time
	released bool
}

func (r *resource) ID() arcp.LeaseID   { return "lease_test" }
func (r *resource) Provider() string   { return r.ask.Provider }
func (r *resource) Type() string       { return r.ask.Type }
func (r *resource) ExternalID() string { return r.ask.ExternalID }

func (r *resource) ExpiresAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expires
}

func (r *resource) Touch(context.Context) (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return time.Time{}, arcp.Errorf(arcp.CodeFailedPrecondition, "the lease is released")
	}
	r.expires = time.Now().Add(r.ask.For)
	return r.expires, nil
}

func (r *resource) Release(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = true
	return nil
}

// costPrefix begins the names of metrics that debit the budget.
const costPrefix = "cost."

// spending holds the remaining budget by currency.
type spending map[string]*big.Rat

func newSpending(budget map[string]arcp.Number) spending {
	s := make(spending)
	for currency, amount := range budget {
		s[currency] = rational(amount)
	}
	return s
}

// rational returns the value of a number, or 0 for an invalid number.
func rational(n arcp.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return new(big.Rat)
	}
	return r
}

func (s spending) add(currency string, amount arcp.Number) {
	if left := s[currency]; left != nil {
		left.Sub(left, rational(amount))
	}
}

func (s spending) fits(currency string, amount arcp.Number) error {
	if left := s[currency]; left != nil && left.Cmp(rational(amount)) < 0 {
		return exhausted(currency)
	}
	return nil
}

// check returns BUDGET_EXHAUSTED if a budget is used up.
func (s spending) check() error {
	for currency, left := range s {
		if left.Sign() <= 0 {
			return exhausted(currency)
		}
	}
	return nil
}

func exhausted(currency string) error {
	return arcp.Errorf(arcp.CodeBudgetExhausted, "the budget in %s is used up", currency)
}
