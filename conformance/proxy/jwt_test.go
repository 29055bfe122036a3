package proxy

import (
	"testing"
	"time"
)

// A token that was signed in another second, and so ends in another one, has the claims of the first.
func TestClaimsAs(t *testing.T) {
	end := float64(time.Now().Add(time.Hour).Unix())
	good := jwt{claims: map[string]any{"sub": "alice", "exp": end}}
	for name, test := range map[string]struct {
		claims map[string]any
		want   bool
	}{
		"a second later":  {map[string]any{"sub": "alice", "exp": end + 1}, true},
		"another subject": {map[string]any{"sub": "bob", "exp": end}, false},
		"another claim":   {map[string]any{"sub": "alice", "exp": end, "nbf": end}, false},
		"expired":         {map[string]any{"sub": "alice", "exp": 1.0}, false},
		"without an end":  {map[string]any{"sub": "alice"}, false},
	} {
		if got := (jwt{claims: test.claims}).claimsAs(good); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
