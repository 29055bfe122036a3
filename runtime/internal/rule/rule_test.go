package rule

import (
	"context"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

var empty = arcp.Raw("{}")

func compile(t *testing.T, text string) *Rule {
	t.Helper()
	r, err := Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A rule does not approve a number that its evaluation would round, whatever the rule's form.
func TestRulesDoNotRoundNumbers(t *testing.T) {
	small := compile(t, "args.n <= 100 || !(args.n > 100)")
	for n, want := range map[string]bool{
		"100": true, "1e2": true, "100.0": true, "1.000e2": true, "-5": true, "0": true, "-0": true, "0.0": true, "99.99": true,
		"101": false, "100.00001": false, "100.00000000000000000001": false, "1e400": false, "9223372036854775808": false,
		"123456789012345678901234567890": false, "1e-400": false,
	} {
		if got, err := small.Approves(t.Context(), Call{Arguments: arcp.Raw(`{"n":` + n + `}`), Lease: empty}); got != want {
			t.Errorf("%s: %v (%v), want %v", n, got, err, want)
		}
	}
}

func TestRulesAreBounded(t *testing.T) {
	list := "[" + strings.Repeat("1,", 2000) + "1]"
	costly := compile(t, "args.l.all(x, args.l.all(y, args.l.all(z, x + y + z > 0)))")
	if yes, err := costly.Approves(t.Context(), Call{Arguments: arcp.Raw(`{"l":` + list + `}`), Lease: empty}); yes || err == nil {
		t.Errorf("8 billion steps: %v, %v", yes, err)
	}
	if yes, err := costly.Approves(t.Context(), Call{Arguments: arcp.Raw(`{"l":[1,2]}`), Lease: empty}); !yes || err != nil {
		t.Errorf("8 steps: %v, %v", yes, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	long := compile(t, "args.l.all(x, x > 0)")
	if yes, _ := long.Approves(ended, Call{Arguments: arcp.Raw(`{"l":` + list + `}`), Lease: empty}); yes {
		t.Error("a call that has ended is approved")
	}
}

// A rule that uses unknown roles does not approve.
func TestUnknownRoles(t *testing.T) {
	for _, text := range []string{`"admin" in roles`, `!("admin" in roles)`, `size(roles) == 0`} {
		roles := compile(t, text)
		if yes, err := roles.Approves(t.Context(), Call{Arguments: empty, Lease: empty}); yes || err == nil {
			t.Errorf("%s: %v, %v: it cannot be told", text, yes, err)
		}
	}
}
