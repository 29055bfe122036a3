package main

import (
	"context"
	"testing"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/tool"
)

// down is a source whose server is down.
type down struct{ prefix string }

func (down) Name() string                                              { return "down" }
func (d down) Prefix() string                                          { return d.prefix }
func (down) Start(_ context.Context, _ func([]*tool.Tool) error) error { return nil }
func (down) Close()                                                    {}

// Names that a source may have are kept for it from the start.
func TestNamesAreKept(t *testing.T) {
	reg := tool.NewRegistry()
	if err := (sources{down{"git."}, down{""}}).start(t.Context(), reg, zerolog.Nop()); err != nil {
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
