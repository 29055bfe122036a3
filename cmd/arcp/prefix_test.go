package main

import (
	"context"
	"testing"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/tool"
)

// unreachableSource is a source whose server is down.
type unreachableSource struct{ prefix string }

func (unreachableSource) Name() string                                              { return "down" }
func (s unreachableSource) Prefix() string                                          { return s.prefix }
func (unreachableSource) Start(_ context.Context, _ func([]*tool.Tool) error) error { return nil }
func (unreachableSource) Close()                                                    {}

// Names that a source may have are reserved for it from the start.
func TestNamesAreReserved(t *testing.T) {
	reg := tool.NewRegistry()
	if err := (sources{unreachableSource{"git."}, unreachableSource{""}}).start(t.Context(), reg, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	reg.ReserveFor("program:kid", "g*")
	if !reg.IsReserved("git.status", "program:kid") || !reg.IsReserved("gnu", "alice") || reg.IsReserved("gnu", "program:kid") {
		t.Error("the name of a source is not reserved for it, or another name not for the worker")
	}
	if !reg.IsReserved("git.status", "alice") || reg.IsReserved("status", "alice") {
		t.Errorf("reserved: git.status %v, status %v", reg.IsReserved("git.status", "alice"), reg.IsReserved("status", "alice"))
	}
}
