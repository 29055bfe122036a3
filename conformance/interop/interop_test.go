package interop

import (
	"fmt"
	"strings"
	"testing"
)

// outcome notes how a test is ended first.
type outcome struct {
	testing.TB
	how string
}

func (o *outcome) Helper() {}

func (o *outcome) Fatalf(format string, args ...any) { o.end("fails: "+format, args) }

func (o *outcome) Skipf(format string, args ...any) { o.end("is skipped: "+format, args) }

func (o *outcome) end(format string, args []any) {
	if o.how == "" {
		o.how = fmt.Sprintf(format, args...)
	}
}

func TestMissingRequiredProgramFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for env, want := range map[string]string{"": "is skipped: bwrap is not installed", "1": "fails: bwrap is not installed"} {
		t.Setenv(Env, env)
		var o outcome
		Needs(&o, "bwrap")
		if !strings.HasPrefix(o.how, want) {
			t.Errorf("%s=%q: the test %q, want %q", Env, env, o.how, want)
		}
	}
}

func TestPresentProgramIsAccepted(t *testing.T) {
	t.Setenv(Env, "1")
	var o outcome
	Needs(&o, "sh")
	if o.how != "" {
		t.Errorf("the test %s", o.how)
	}
}
