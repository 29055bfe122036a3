package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
)

// A start while an MCP server does not answer publishes the tools of its last list, which wait for the server.
func TestLastToolsOfAServerThatIsDown(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	down := filepath.Join(dir, "down")
	script := program(t, "while test -e "+down+"; do sleep 0.01; done\nexec "+exe+" "+beMCP+" "+dir+" read\n")
	config := &toolConfig{servers: []mcp.Config{{Name: "far", Command: []string{script}}}}
	start := func(ctx context.Context) (*liveTools, *tool.Registry) {
		registry := tool.NewRegistry()
		l := newLiveTools(registry, nil, 1<<20, filepath.Join(dir, mcpDir), zerolog.Nop())
		t.Cleanup(l.close)
		if err := l.publish(config); err != nil {
			t.Fatal(err)
		}
		l.startServers(ctx)
		return l, registry
	}
	first, registry := start(t.Context())
	before, refused := registry.Resolve("far.read")
	if refused != nil || !before.Gate.IsOpen() {
		t.Fatalf("the tool of a server that answers is %v, %v", before, refused)
	}
	list := filepath.Join(dir, mcpDir, "far.json")
	until(t, "the list is saved", func() bool { return exists(list) })
	first.close()

	write(t, down, "")
	passed, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, registry = start(passed)
	restored, refused := registry.Resolve("far.read")
	if refused != nil || restored.Gate.IsOpen() {
		t.Fatalf("the tool of a server that is down is %v, %v, want one behind a closed gate", restored, refused)
	}
	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	until(t, "the gate opens", restored.Gate.IsOpen)
}
