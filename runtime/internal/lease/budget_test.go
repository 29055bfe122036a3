package lease

import (
	"math/big"
	"strings"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

func whole(n int64) apd.Decimal { return *apd.New(n, 0) }

func budget(t testing.TB, amounts ...string) *Budget {
	t.Helper()
	list, err := sum(amounts)
	if err != nil {
		t.Fatal(err)
	}
	return NewBudget(list)
}

func TestIsCostAcceptsOnlyCostNames(t *testing.T) {
	for name, want := range map[string]bool{
		"cost.usd": true, "cost.model.tokens": true, "cost.": true, "cost.budgets": true, "cost.budget_x": true,
		"cost.budget": false, "cost.budget.remaining": false, "cost": false, "costs.x": false, "tokens.used": false, "Cost.usd": false, "": false,
	} {
		if got := IsCost(name); got != want {
			t.Errorf("IsCost(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestParseAmountAcceptsOnlyPlainDecimals(t *testing.T) {
	for in, want := range map[string]string{"USD:5.00": "USD:5.00", "x-tok:007": "x-tok:7", "gpu_h:0": "gpu_h:0", "a:0.10": "a:0.10"} {
		if a, err := ParseAmount(in); err != nil || a.String() != want {
			t.Errorf("%q is %v, %v, want %s", in, a, err, want)
		}
	}
	for _, in := range []string{"", ":", "USD", "USD:", ":5", "USD:-1", "USD:+1", "USD:1e3", "USD:.5", "USD:5.",
		"USD:1_0", "USD:Inf", "USD:0x1", "U D:1", "USD: 1", "USD:1:1", "USD:" + strings.Repeat("9", 65)} {
		_, err := ParseAmount(in)
		wantCode(t, in, err, arcp.CodeInvalidRequest)
	}
}

func TestReportAnnouncesStepsOfOnePercent(t *testing.T) {
	b := budget(t, "USD:5.00", "EUR:1")
	step := func(why, unit, value, left string, announce bool, code arcp.Code) {
		t.Helper()
		got, told, err := b.Report(unit, arcp.Number(value))
		wantCode(t, why, err, code)
		if s := string(got.Number()); err == nil && got.currency != "" && (s != left || told != announce) {
			t.Errorf("%s: %s left, announced %v, want %s, %v", why, s, told, left, announce)
		}
	}
	step("less than 1 % is not told", "usd", "0.01", "4.99", false, "")
	step("small steps add up", "USD", "4e-2", "4.95", true, "")
	step("nothing moved", "USD", "0", "4.95", false, "")
	step("exactly 1 %", "Usd", "0.05", "4.90", true, "")
	step("a negative cost", "USD", "-1", "", false, arcp.CodeInvalidArgument)
	step("not a number", "USD", "NaN", "", false, arcp.CodeInvalidArgument)
	step("an exponent out of bounds", "USD", "1e65", "", false, arcp.CodeInvalidArgument)
	step("an exponent out of bounds", "USD", "1E-0000000000000000000065", "", false, arcp.CodeInvalidArgument)
	step("too many digits", "USD", "0."+strings.Repeat("1", 64), "", false, arcp.CodeInvalidArgument)
	step("an exponent of many zeros", "USD", "0e-00000000064", "4.9"+strings.Repeat("0", 63), false, "")
	step("minus nothing", "USD", "-0.0", "4.9"+strings.Repeat("0", 63), false, "")
	if got, told, err := b.Report("GBP", "1"); got.Currency() != "" || told || err != nil {
		t.Errorf("an unbudgeted unit: %v, %v, %v", got, told, err)
	}
	if _, yes := b.Exhausted(); yes {
		t.Error("a budget with something left is exhausted")
	}
	step("all of it", "EUR", "1", "0", true, "")
	if c, yes := b.Exhausted(); !yes || c != "EUR" {
		t.Errorf("Exhausted() = %q, %v, want EUR", c, yes)
	}
	step("below nothing", "EUR", "0.001", "-0.001", false, "")
	step("far below", "EUR", "0.0120", "-0.0130", true, "")
	if got := string(b.JSON()); got != `{"USD":4.9`+strings.Repeat("0", 63)+`,"EUR":-0.0130}` {
		t.Errorf("JSON() = %s", got)
	}
	big := budget(t, "USD:1000")
	if _, told, _ := big.Report("USD", "995"); !told {
		t.Error("a large step is not announced")
	}
	if _, told, _ := big.Report("USD", "5"); !told {
		t.Error("reaching 0 by less than 1 % is not announced")
	}
	if _, told, _ := big.Report("USD", "1"); told {
		t.Error("staying below 0 is announced again")
	}
}

func TestChargeBeyondBudgetIsRefused(t *testing.T) {
	b := budget(t, "USD:1")
	_, _, err := b.Charge("USD", "0.6")
	wantCode(t, "a charge that fits", err, "")
	left, _, err := b.Charge("USD", "0.41")
	wantCode(t, "one that does not", err, arcp.CodeBudgetExhausted)
	if left.String() != "USD:0.4" || string(b.JSON()) != `{"USD":0.4}` {
		t.Errorf("left = %v, budget = %s after a refused charge, want USD:0.4 and {\"USD\":0.4}", left, b.JSON())
	}
	_, _, err = b.Charge("USD", "-1")
	wantCode(t, "a negative charge", err, arcp.CodeInvalidArgument)
	_, announce, err := b.Charge("usd", "0.40")
	wantCode(t, "the rest", err, "")
	if !announce {
		t.Error("Charge of the rest: announce = false, want true")
	}
	_, _, err = b.Charge("EUR", "1000000")
	wantCode(t, "a unit that is not limited", err, "")
}

func TestParentGetsBackWhatAChildLeaves(t *testing.T) {
	parent := budget(t, "USD:5", "EUR:1")
	child := budget(t, "usd:3", "EUR:1", "GBP:9")
	wantCode(t, "a child's budget", parent.Reserve(child.Remaining()), "")
	wantCode(t, "a second one of the same", parent.Reserve(child.Remaining()), arcp.CodeLeaseSubsetViolation)
	if got := string(parent.JSON()); got != `{"USD":2,"EUR":0}` {
		t.Errorf("after a reserve that failed: %s", got)
	}
	child.Report("USD", "1.25")
	child.Report("EUR", "1.5")
	parent.Return(child.Remaining())
	if got := string(parent.JSON()); got != `{"USD":3.75,"EUR":-0.5}` {
		t.Errorf("after the child: %s", got)
	}
	parent.Return(budget(t, "USD:100").Remaining())
	if got := string(parent.JSON()); got != `{"USD":5,"EUR":-0.5}` {
		t.Errorf("more than the cap came back: %s", got)
	}
}

func TestNilBudgetLimitsNothing(t *testing.T) {
	var b *Budget
	_, _, err := b.Charge("USD", "1")
	wantCode(t, "nothing is limited", err, "")
	if _, yes := b.Exhausted(); yes || b.JSON() != nil || b.Remaining() != nil || b.Reserve(nil) != nil || string(b.Save()) != "[]" {
		t.Error("a nil budget limits something")
	}
	b.Return(budget(t, "USD:1").Remaining())
}

func TestBudgetNeverDrifts(t *testing.T) {
	decimal := rapid.StringMatching(`[0-9]{1,12}(\.[0-9]{1,20})?`)
	cost := rapid.StringMatching(`[0-9]{1,12}(\.[0-9]{1,20})?([eE][+-]?[0-9])?`)
	rat := func(s string) *big.Rat {
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			panic(s)
		}
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := decimal.Draw(t, "cap")
		amounts, err := sum([]string{"USD:" + limit})
		if err != nil {
			t.Fatal(err)
		}
		b, left, top := NewBudget(amounts), rat(limit), rat(limit)
		told := new(big.Rat).Set(left)
		for range rapid.IntRange(1, 40).Draw(t, "n") {
			v := cost.Draw(t, "cost")
			announced, taken := false, false
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				_, announced, _ = b.Report("usd", arcp.Number(v))
				taken = true
			case 1:
				var bad *arcp.Error
				_, announced, bad = b.Charge("USD", arcp.Number(v))
				if taken = bad == nil; taken != (rat(v).Cmp(left) <= 0) {
					t.Fatalf("charge of %s with %s left: %v", v, left, bad)
				}
			case 2:
				a, _ := parseDecimal(v)
				rest := []Amount{{"USD", a}}
				if b.Reserve(rest) == nil {
					b.Return(rest)
				}
			case 3:
				restored, err := RestoreBudget(b.Save())
				if err != nil || string(restored.Save()) != string(b.Save()) {
					t.Fatalf("%s becomes %s, %v", b.Save(), restored.Save(), err)
				}
				b = restored
			}
			if taken {
				left.Sub(left, rat(v))
			}
			moved := new(big.Rat).Sub(told, left)
			moved.Abs(moved).Mul(moved, big.NewRat(100, 1))
			want := taken && (left.Sign() <= 0 && told.Sign() > 0 || moved.Sign() > 0 && moved.Cmp(top) >= 0)
			if announced != want {
				t.Fatalf("announced %v at %s of %s, told %s", announced, left, top, told)
			}
			if announced {
				told.Set(left)
			}
			if got := rat(string(b.Remaining()[0].Number())); got.Cmp(left) != 0 {
				t.Fatalf("%s left, want %s", got, left)
			}
			if _, yes := b.Exhausted(); yes != (left.Sign() <= 0) {
				t.Fatalf("exhausted is %v at %s", yes, left)
			}
		}
	})
}
