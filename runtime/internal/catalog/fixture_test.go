package catalog

import (
	"context"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

func raw(t testing.TB, c tool.Capability, fn tool.Func) *tool.Tool {
	t.Helper()
	if c.Name == "" {
		c.Name = "t"
	}
	made, err := tool.NewRaw(c, fn)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func echo(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) { return args, nil }

func registry(t testing.TB, caps ...tool.Capability) *tool.Registry {
	t.Helper()
	r := tool.NewRegistry()
	for _, c := range caps {
		if err := r.Register(raw(t, c, echo)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}
