package mcpcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// dial serves an MCP client, and waits for the end of both with the test.
func dial(t *testing.T) *sdk.ClientSession {
	t.Helper()
	in, ours := io.Pipe()
	theirs, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), in, out) }()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: theirs, Writer: ours}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close() // why it ends is known
		if err := <-served; err != nil {
			t.Errorf("Serve = %v at the end of its input", err)
		}
	})
	return session
}

func call(t *testing.T, c *sdk.ClientSession, name string, args map[string]any) (string, error) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return "", err
	}
	return res.Content[0].(*sdk.TextContent).Text, nil
}

func TestAddedToolsAreBounded(t *testing.T) {
	c := dial(t)
	for i := range maxExtra {
		if _, err := call(t, c, "add", map[string]any{"name": fmt.Sprint("x", i)}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := call(t, c, "add", map[string]any{"name": "more"})
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != CodeRefused {
		t.Errorf("one more tool: %v", err)
	}
	if text, err := call(t, c, "x7", map[string]any{"text": "seven"}); err != nil || text != "seven" {
		t.Errorf("a tool that was made: %q, %v", text, err)
	}
	for _, name := range []string{"x7", "echo"} {
		if _, err := call(t, c, "remove", map[string]any{"name": name}); err != nil {
			t.Error(err)
		}
	}
	if _, err := call(t, c, "x7", map[string]any{"text": "seven"}); err == nil {
		t.Error("a removed tool can be called")
	}
	if _, err := call(t, c, "echo", map[string]any{"text": "x"}); err != nil {
		t.Errorf("remove of a built-in tool removed the tool: %v", err)
	}
}

func TestCancelIsRecorded(t *testing.T) {
	s := newServer()
	wasCancelled := func(key string) string {
		res, err := s.wasCancelled(t.Context(), nil, &arguments{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return res.Content[0].(*sdk.TextContent).Text
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range maxKeys + 1 {
		key := fmt.Sprint("k", i)
		if wasCancelled(key) != "false" {
			t.Fatalf("call %s was cancelled before it started", key)
		}
		if _, err := s.awaitCancel(ctx, &arguments{Key: key}); err == nil {
			t.Fatal("a cancelled call has a result")
		}
		if wasCancelled(key) != "true" {
			t.Fatalf("call %s was not cancelled", key)
		}
	}
	if len(s.cancelled) != maxKeys || wasCancelled("k0") != "false" {
		t.Errorf("%d cancelled calls are recorded", len(s.cancelled))
	}
}
