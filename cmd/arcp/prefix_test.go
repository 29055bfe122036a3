package main

import (
	"testing"

	"github.com/arcpd/arcpd/cmd/arcp/internal/stdioworker"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
)

// The names of MCP servers and workers are reserved from the start, and until a reload removes them.
func TestNamesAreReserved(t *testing.T) {
	reg := tool.NewRegistry()
	c := toolConfig{servers: []mcp.Config{{Name: "git", Prefix: "git."}}, workers: []stdioworker.Config{{Name: "kid", Tools: []string{"g*"}}}}
	c.reserve(reg)
	if !reg.IsReserved("git.status", "program:kid") || !reg.IsReserved("gnu", "alice") || reg.IsReserved("gnu", "program:kid") {
		t.Error("the name of a source is not reserved for it, or another name not for the worker")
	}
	if !reg.IsReserved("git.status", "alice") || reg.IsReserved("status", "alice") {
		t.Errorf("reserved: git.status %v, status %v", reg.IsReserved("git.status", "alice"), reg.IsReserved("status", "alice"))
	}
	new(toolConfig).reserve(reg)
	if reg.IsReserved("git.status", "alice") || reg.IsReserved("gnu", "alice") {
		t.Error("names of removed sources are reserved")
	}
}
