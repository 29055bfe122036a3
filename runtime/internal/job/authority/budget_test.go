package authority

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// amounts returns n cents as an amount.
func amounts(t interface{ Fatal(...any) }, cents int) []lease.Amount {
	a, err := lease.ParseAmount(fmt.Sprintf("USD:%d.%02d", cents/100, cents%100))
	if err != nil {
		t.Fatal(err)
	}
	return []lease.Amount{a}
}

// For random debits and credits the rest is what a plain sum says, a refused debit changes nothing,
// and a restored budget is the saved one.
func TestBudgetEqualsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const whole = 500
		left := whole
		var s State
		s.Budget = lease.NewBudget(amounts(t, whole))
		var saved State
		saved.Budget = lease.NewBudget(amounts(t, whole))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			cents := rapid.IntRange(0, 150).Draw(t, "cents")
			cost := arcp.Number(fmt.Sprintf("%d.%02d", cents/100, cents%100))
			before, changed := left, true
			var err *arcp.Error
			switch rapid.SampledFrom([]string{"report", "charge", "reserve", "return", "save"}).Draw(t, "step") {
			case "report":
				_, err = s.Report("usd", cost)
				left -= cents
			case "charge":
				if _, err = s.Charge(t0, "USD", cost); cents <= left {
					left -= cents
				}
			case "reserve":
				if err = s.Reserve(amounts(t, cents)); cents <= left {
					left -= cents
				}
			case "return":
				s.Return(amounts(t, cents))
				left = min(left+cents, whole)
			case "save":
				if raw, ok := s.SaveBudget(); ok {
					if err := saved.Restore(raw, nil); err != nil {
						t.Fatal(err)
					}
				}
				changed = false
			}
			if err != nil {
				changed = false
				if left != before {
					t.Fatalf("refused with %v, the rest changed from %d to %d", err, before, left)
				}
			}
			if changed && !s.unsaved {
				t.Fatal("a changed budget is not to be saved")
			}
			want := fmt.Sprintf("%.2f", float64(left)/100)
			if got := s.Budget.Remaining()[0].Number(); fmt.Sprintf("%.2f", decimal(t, got)) != want {
				t.Fatalf("%s is left, want %s", got, want)
			}
			if _, exhausted := s.Budget.Exhausted(); exhausted != (left <= 0) {
				t.Fatalf("with %s left it is exhausted: %v", want, exhausted)
			}
			if !s.unsaved && string(saved.Budget.JSON()) != string(s.Budget.JSON()) {
				t.Fatalf("%s is restored, want %s", saved.Budget.JSON(), s.Budget.JSON())
			}
		}
	})
}

func decimal(t interface{ Fatal(...any) }, n arcp.Number) (f float64) {
	if _, err := fmt.Sscan(string(n), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// A job without a budget spends without a limit, and has nothing to save.
func TestJobWithoutABudgetSpendsWithoutLimit(t *testing.T) {
	var s State
	if rest, err := s.Report("USD", "7"); rest != nil || err != nil {
		t.Errorf("Report without a budget = %v, %v; want nothing to announce", rest, err)
	}
	if err := s.Reserve(amounts(t, 700)); err != nil {
		t.Errorf("Reserve without a budget: %v", err)
	}
	s.Return(amounts(t, 700))
	if raw, ok := s.SaveBudget(); ok || len(s.Announce()) > 0 {
		t.Errorf("%s is to be saved", raw)
	}
}

func TestChargeAfterTheLeaseHasEnded(t *testing.T) {
	var s State
	s.SetLease(leaseOf(t, `{"cost.budget":["USD:5"]}`))
	if rest, err := s.Charge(t0, "USD", "1"); err != nil || rest == nil || rest.Name != "cost.budget.remaining" || rest.Value != "4" {
		t.Errorf("Charge of 1 of 5 USD = %+v, %v; want 4 remaining", rest, err)
	}
	if _, err := s.Charge(t0.Add(2*time.Hour), "USD", "1"); codeOf(err) != arcp.CodeLeaseExpired || !s.Lapsed {
		t.Errorf("%v, lapsed: %v", err, s.Lapsed)
	}
}
