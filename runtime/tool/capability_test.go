package tool

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

func TestCapabilityHasDefaults(t *testing.T) {
	got := raw(t, Capability{Name: "weather"}, echo)
	want := Capability{Name: "weather", Version: "1.0.0", SideEffect: SideEffectExternal, Recovery: RecoveryFail,
		Source: "go", Idempotent: new(true), Approval: ApprovalNone,
		Limits: Limits{Timeout: 5 * time.Second, MaxRequestBytes: 1 << 20, MaxResponseBytes: 1 << 20, Concurrency: 16}}
	if diff := cmp.Diff(want, got.Capability); diff != "" {
		t.Errorf("a capability with only a name (-want +got):\n%s", diff)
	}
	if got.Ref() != "weather@1.0.0" {
		t.Errorf("Ref() = %q", got.Ref())
	}
}

func TestExplicitValuesAreKept(t *testing.T) {
	want := Capability{Name: "weather", Version: "2-beta", Description: "d", SideEffect: SideEffectRead,
		Recovery: RecoveryRerun, Source: SourceMCP, Idempotent: new(false), Default: true, Retry: Retry{1, 2, 3, 4},
		Interruptible: true, Approval: ApprovalManual, MinTrust: "privileged",
		Limits: Limits{Timeout: -1, MaxRequestBytes: -1, MaxResponseBytes: 7, Concurrency: -1, RatePerMin: 60}}
	if diff := cmp.Diff(want, raw(t, want, echo).Capability); diff != "" {
		t.Errorf("a full capability (-want +got):\n%s", diff)
	}
}

func TestInvalidCapabilitiesAreRefused(t *testing.T) {
	for _, c := range []struct {
		why  string
		c    Capability
		want string
	}{
		{"upper case", Capability{Name: "Weather"}, "[a-z0-9]"},
		{"no name", Capability{}, "[a-z0-9]"},
		{"a version in the name", Capability{Name: "a@1", Version: "2"}, "version"},
		{"a space in the version", Capability{Name: "a", Version: "1 0"}, "version"},
		{"too long together", Capability{Name: strings.Repeat("a", 254), Version: "10"}, "longer"},
		{"no such side effect", Capability{Name: "a", SideEffect: "harmless"}, "side effect"},
		{"no such recovery", Capability{Name: "a", Recovery: "pray"}, "recovery"},
		{"too many attempts", Capability{Name: "a", Retry: Retry{MaxAttempts: 11}}, "max_attempts"},
		{"a retry without a number", Capability{Name: "a", Retry: Retry{InitialMS: 1}}, "max_attempts"},
		{"not to be done twice", Capability{Name: "a", Idempotent: new(false), Retry: Retry{MaxAttempts: 2}}, "idempotent"},
		{"no such source", Capability{Name: "a", Source: "rumour"}, "source"},
		{"a rule and people", Capability{Name: "a", Approval: Approval{Mode: ModeManual, Rule: "true"}}, `approval "manual"`},
		{"no rule", Capability{Name: "a", Approval: ApprovalAuto("")}, `approval "auto"`},
		{"no such approval", Capability{Name: "a", Approval: Approval{Mode: "Manual"}}, `approval "Manual"`},
		{"no such trust", Capability{Name: "a", MinTrust: "blind"}, `min trust "blind": it must be one of untrusted, constrained, trusted, privileged`},
		{"a trust in capitals", Capability{Name: "a", MinTrust: "Trusted"}, `min trust "Trusted"`},
	} {
		_, err := NewRaw(c.c, echo)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.why, err, c.want)
		}
	}
}

func TestReadOnlySideEffects(t *testing.T) {
	for _, s := range SideEffects {
		if want := s == SideEffectNone || s == SideEffectRead; s.ReadOnly() != want {
			t.Errorf("%s: ReadOnly() = %v, want %v", s, s.ReadOnly(), want)
		}
	}
}

// trustLevels are the levels of the zero value and of all others, ascending.
var trustLevels = slices.Concat([]arcp.TrustLevel{""}, arcp.TrustLevels)

func TestPoliciesAreAccepted(t *testing.T) {
	for _, a := range []Approval{ApprovalNone, ApprovalManual, ApprovalAuto(`tool == "a"`)} {
		for _, level := range trustLevels {
			c := Capability{Name: "a", Approval: a, MinTrust: level}
			if got, err := NewRaw(c, echo); err != nil || got.Approval != a || got.MinTrust != level {
				t.Errorf("approval %v, min trust %q: %v", a, level, err)
			}
		}
	}
}

// A trust level satisfies itself and the levels below. An unknown level satisfies only a tool
// that demands none.
func TestTrustLevelIncludesTheLower(t *testing.T) {
	for need, min := range trustLevels {
		c := Capability{MinTrust: min}
		for have, level := range trustLevels {
			if got, want := c.AllowsTrust(level), have >= need; got != want {
				t.Errorf("trust %q for a tool that demands %q: %v, want %v", level, min, got, want)
			}
		}
		if c.AllowsTrust("blind") {
			t.Errorf("an unknown level is enough for %q", min)
		}
	}
}
