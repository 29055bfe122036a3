// Package mcpcheck is the MCP server for the conformance group mcp. Each tool uses one feature of
// MCP that the runtime must translate. The package does not know ARCP.
package mcpcheck

//lint:file-ignore SA1019 current clients receive log messages by the deprecated notification

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of the state that callers can create.
const (
	maxExtra = 100  // tools added by the tool add
	maxKeys  = 1000 // keys of cancelled calls, the newest
	maxSteps = 1000 // progress notifications of one call
)

// CodeRefused is the JSON-RPC error code of the tool refuse, unless the caller specifies one.
const CodeRefused = -32001

// Serve speaks MCP until the input or ctx ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return newServer().mcp.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: unclosed{out}})
}

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// server is the MCP server and the state of its tools.
type server struct {
	mcp *sdk.Server

	mu        sync.Mutex
	cancelled []string // keys of cancelled calls of the tool wait
	extra     []string // tools added by the tool add
}

// arguments are the arguments of all tools.
type arguments struct {
	Text    string `json:"text"`
	Key     string `json:"key"`
	Name    string `json:"name"`
	Level   string `json:"level"`
	Steps   int    `json:"steps"`
	Code    int64  `json:"code"`
	Invalid bool   `json:"invalid"`
}

type handler func(ctx context.Context, req *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error)

func newServer() *server {
	s := &server{mcp: sdk.NewServer(&sdk.Implementation{Name: "arcp-conformance", Version: "1"}, nil)}
	const integer = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	for _, t := range []struct {
		name, description, required, output string
		call                                handler
	}{
		{"echo", "returns a text", "text", "", s.echo},
		{"fail", "returns a result that is an error", "text", "", s.fail},
		{"refuse", "answers with a JSON-RPC error", "text", "", s.refuse},
		{"progress", "sends progress notifications", "steps", "", s.progress},
		{"log", "sends a log message", "text", "", s.log},
		{"wait", "waits until it is cancelled", "key", "", s.wait},
		{"told", "reports whether a call of wait was cancelled", "key", "", s.wasCancelled},
		{"count", "returns a number, or an invalid result", "text", integer, s.count},
		{"add", "adds a tool", "name", "", s.add},
		{"remove", "removes a tool", "name", "", s.remove},
	} {
		s.tool(t.name, t.description, t.required, t.output, t.call)
	}
	return s
}

func (s *server) tool(name, description, required, output string, call handler) {
	schema, _ := json.Marshal(map[string]any{"type": "object", "required": []string{required}}) // strings can be encoded
	t := &sdk.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}
	if output != "" {
		t.OutputSchema = json.RawMessage(output)
	}
	s.mcp.AddTool(t, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var a arguments
		if err := json.Unmarshal(req.Params.Arguments, &a); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		return call(ctx, req, &a)
	})
}

func text(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func (s *server) echo(_ context.Context, _ *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	return text("%s", a.Text), nil
}

func (s *server) fail(_ context.Context, _ *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	res := text("%s", a.Text)
	res.IsError = true
	return res, nil
}

func (s *server) refuse(_ context.Context, _ *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	if a.Code == 0 {
		a.Code = CodeRefused
	}
	return nil, &jsonrpc.Error{Code: a.Code, Message: a.Text}
}

func (s *server) progress(ctx context.Context, req *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	steps := min(a.Steps, maxSteps)
	for i := range steps {
		err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(),
			Progress: float64(i + 1), Total: float64(steps), Message: "a step"})
		if err != nil {
			return nil, err
		}
	}
	return text("%d steps", steps), nil
}

// log sends the progress token of the call with the message. The token identifies the call among
// concurrent calls.
func (s *server) log(ctx context.Context, req *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	err := req.Session.Log(ctx, &sdk.LoggingMessageParams{Meta: sdk.Meta{"progressToken": req.Params.GetProgressToken()},
		Level: sdk.LoggingLevel(a.Level), Data: a.Text})
	return text("sent"), err
}

// wait sends a progress notification and blocks until the call is cancelled. A cancel before the
// notification would not reach a running call.
func (s *server) wait(ctx context.Context, req *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	if err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Message: "waiting"}); err != nil {
		return nil, err
	}
	return s.awaitCancel(ctx, a)
}

func (s *server) awaitCancel(ctx context.Context, a *arguments) (*sdk.CallToolResult, error) {
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled = append(s.cancelled, a.Key)
	s.cancelled = s.cancelled[max(0, len(s.cancelled)-maxKeys):]
	return nil, context.Cause(ctx)
}

func (s *server) wasCancelled(_ context.Context, _ *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return text("%t", slices.Contains(s.cancelled, a.Key)), nil
}

// count returns a result that matches the output schema. If invalid is set the result violates the
// schema.
func (s *server) count(_ context.Context, _ *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	res := text("%d", len(a.Text))
	res.StructuredContent = map[string]any{"n": len(a.Text)}
	if a.Invalid {
		res.StructuredContent = map[string]any{"n": a.Text}
	}
	return res, nil
}

func (s *server) add(_ context.Context, _ *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.extra) >= maxExtra {
		return nil, &jsonrpc.Error{Code: CodeRefused, Message: fmt.Sprintf("the server has %d added tools, the maximum", maxExtra)}
	}
	s.extra = append(s.extra, a.Name)
	s.tool(a.Name, "returns a text", "text", "", s.echo)
	return text("added"), nil
}

func (s *server) remove(_ context.Context, _ *sdk.CallToolRequest, a *arguments) (*sdk.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.extra, a.Name); i >= 0 { // an unknown name changes nothing
		s.extra = slices.Delete(s.extra, i, i+1)
		s.mcp.RemoveTools(a.Name)
	}
	return text("removed"), nil
}
