package tool

import (
	"context"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// silentHost is a Host that drops everything except failures.
type silentHost struct {
	Host
	failures []error
}

func (h *silentHost) Failed(err error) { h.failures = append(h.failures, err) }

// raw returns a tool with the function fn.
func raw(t testing.TB, c Capability, fn Func) *Tool {
	t.Helper()
	if c.Name == "" {
		c.Name = "t"
	}
	made, err := NewRaw(c, fn)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func echo(_ context.Context, _ Job, args arcp.Raw) (arcp.Raw, error) { return args, nil }

// wantError checks an error's code and message.
func wantError(t *testing.T, name string, err *arcp.Error, code arcp.Code, message string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %s: %s", name, code, message)
		return
	}
	if err.Code != code || err.Message != message {
		t.Errorf("%s: %v, want %s: %s", name, err, code, message)
	}
}
