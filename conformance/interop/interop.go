// Package interop is for tests that need more than Go: the programs of others, and
// the registries they come from.
package interop

import (
	"os"
	"os/exec"
	"testing"
)

// Env makes it a failure, where it is 1, that a test cannot have what it needs. It
// is set where all of that should be there: a test that is skipped finds nothing.
const Env = "ARCP_INTEROP"

// Needs is for tests that run programs. One of them may be missing.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			Unable(t, "%s is not installed", name)
		}
	}
}

// Unable ends a test that cannot have what it needs. It is skipped, or with Env a
// failure.
func Unable(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(Env) == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format+"\nwith %s=1 this is a failure", append(args, Env)...)
}
