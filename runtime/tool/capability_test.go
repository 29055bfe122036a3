package tool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDefaults(t *testing.T) {
	got := raw(t, Capability{Name: "weather"}, echo)
	want := Capability{Name: "weather", Version: "1.0.0", SideEffect: SideEffectExternal, Recovery: RecoveryFail,
		Source: "go", Idempotent: new(true),
		Limits: Limits{Timeout: 5 * time.Second, MaxRequestBytes: 1 << 20, MaxResponseBytes: 1 << 20, Concurrency: 16}}
	if diff := cmp.Diff(want, got.Capability); diff != "" {
		t.Errorf("a capability with only a name (-want +got):\n%s", diff)
	}
	if got.Ref() != "weather@1.0.0" {
		t.Errorf("Ref() = %q", got.Ref())
	}
}

func TestWhatIsSaidStays(t *testing.T) {
	want := Capability{Name: "weather", Version: "2-beta", Description: "d", SideEffect: SideEffectRead,
		Recovery: RecoveryRerun, Source: SourceMCP, Idempotent: new(false), Default: true,
		Limits: Limits{Timeout: -1, MaxRequestBytes: -1, MaxResponseBytes: 7, Concurrency: -1, RatePerMin: 60}}
	if diff := cmp.Diff(want, raw(t, want, echo).Capability); diff != "" {
		t.Errorf("a full capability (-want +got):\n%s", diff)
	}
}

func TestRefusedCapabilities(t *testing.T) {
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
		{"no such source", Capability{Name: "a", Source: "rumour"}, "source"},
	} {
		_, err := NewRaw(c.c, echo)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.why, err, c.want)
		}
	}
}

func TestOnlyToolsThatChangeNothingStartEarly(t *testing.T) {
	for _, s := range SideEffects {
		if want := s == SideEffectNone || s == SideEffectRead; s.Early() != want {
			t.Errorf("%s: Early() = %v, want %v", s, s.Early(), want)
		}
	}
}
