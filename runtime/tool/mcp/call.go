package mcp

//lint:file-ignore SA1019 servers of the versions in use log in the way that the next one will drop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// ofCall is the key of a call in the context of its requests. A question of the server in the answer to a
// request belongs to that call.
type ofCall struct{}

// call calls a tool of the server for a job.
func (s *Source) call(ctx context.Context, job tool.Job, d *definition, args arcp.Raw) (arcp.Raw, error) {
	l := s.link.Load()
	if l == nil {
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the MCP server %s is not connected; it is being tried again", s.cfg.Name)
	}
	c := l.observer.begin(job)
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.relay(ctx)
	}()
	res, err := l.call(ctx, c, d.name, args)
	raw := l.observer.take(c)
	lost := l.observer.end(c)
	<-told
	if lost > 0 {
		_ = job.Log(arcp.LevelWarn, fmt.Sprintf("%d log messages of the MCP server were left out: they came faster than events can be kept", lost), nil) // the job may have ended
	}
	if err != nil {
		return nil, s.failure(ctx, l, err)
	}
	return result(d, res, raw)
}

// relay turns the notices of a call into events of its job. After the end of ctx it only empties the
// queue.
func (c *call) relay(ctx context.Context) {
	for n := range c.queue {
		if ctx.Err() != nil {
			continue
		}
		if n.progress != nil {
			_ = c.job.Progress(*n.progress) // the job may have ended
			continue
		}
		var attrs any
		if n.attrs != nil {
			attrs = n.attrs
		}
		_ = c.job.Log(n.level, n.text, attrs) // the job may have ended
	}
}

// call sends a call to the server, and returns at its answer, the end of ctx, or the end of the
// session.
func (l *link) call(ctx context.Context, c *call, name string, args arcp.Raw) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, ofCall{}, c))
	defer cancel()
	defer context.AfterFunc(l.life, cancel)() // the end of the session waits for its requests
	type answer struct {
		res *sdk.CallToolResult
		err error
	}
	got := make(chan answer, 1)
	go func() { // writing to a program does not end with ctx
		res, err := l.session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args), Meta: c.meta(l)})
		got <- answer{res, err}
	}()
	select {
	case a := <-got:
		return a.res, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ended:
	}
	select { // the answer may have been the last message
	case a := <-got:
		return a.res, a.err
	default:
		return nil, sdk.ErrConnectionClosed
	}
}

func (c *call) meta(l *link) sdk.Meta {
	m := sdk.Meta{"progressToken": c.token}
	if init := l.session.InitializeResult(); init != nil && init.ProtocolVersion >= perRequestLogs {
		m[sdk.MetaKeyLogLevel] = "info"
	}
	return m
}

// JSON-RPC codes of the SDK for requests that have not reached the server.
const (
	codeNone          = 0 // an error of the SDK, not of the server
	codeClientClosing = -32003
	codeServerClosing = -32004
	codeNotSent       = -32005
)

// unsent reports whether the SDK made an error for a request without an answer.
func unsent(e *jsonrpc.Error) bool {
	switch e.Code {
	case codeNone, codeClientClosing, codeServerClosing, codeNotSent:
		return true
	}
	return false
}

// failure returns the error of a job for a call without a result.
func (s *Source) failure(ctx context.Context, l *link, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || errors.Is(err, sdk.ErrConnectionClosed) {
		return s.unavailable(err)
	}
	message := clip.Ellipsis(e.Message, maxDescription)
	switch {
	case unsent(e):
		return s.unavailable(err)
	case e.Code == codeTooLarge:
		large := arcp.Errorf(arcp.CodeResourceExhausted, "the MCP server %s: %s", s.cfg.Name, message)
		large.Retryable = false // the same call would be as large again
		return large
	case e.Code == jsonrpc.CodeInvalidParams:
		return arcp.Errorf(arcp.CodeInvalidArgument, "the MCP server %s: %s", s.cfg.Name, message)
	}
	return arcp.Errorf(arcp.CodeUnknown, "the MCP server %s: %s", s.cfg.Name, message).WithDetails(struct {
		Code int64 `json:"mcp_code"`
	}{e.Code})
}

func (s *Source) unavailable(err error) error {
	s.log.Debug().Str("error", clip.Ellipsis(err.Error(), maxDescription)).Msg("a call of an MCP server was not answered")
	return arcp.Errorf(arcp.CodeUnavailable, "the MCP server %s was lost before it answered", s.cfg.Name)
}

// outcome is a result as far as it is used.
type outcome struct {
	Content    arcp.Raw `json:"content"`
	Structured arcp.Raw `json:"structuredContent,omitzero"`
	IsError    bool     `json:"isError,omitzero"`
}

// result returns the result of the job: the structured content if the tool has an output schema, else an
// object of content and structuredContent, as the server sent them.
func result(d *definition, res *sdk.CallToolResult, raw arcp.Raw) (arcp.Raw, error) {
	if raw == nil { // the observer has no result: encode the SDK's
		var err error
		if raw, err = json.Marshal(res); err != nil {
			return nil, arcp.Errorf(arcp.CodeInternal, "the MCP server's result cannot be encoded")
		}
	}
	var o outcome
	if err := arcp.Unmarshal(raw, &o); err != nil {
		return nil, arcp.Errorf(arcp.CodeInternal, "the MCP server's result does not follow its protocol")
	}
	switch {
	case o.IsError:
		return nil, arcp.Errorf(arcp.CodeUnknown, "%s", contentText(res.Content))
	case d.output == "":
		if o.Content == nil {
			o.Content = arcp.Raw("[]")
		}
		return arcp.Marshal(o)
	case o.Structured == nil:
		return nil, arcp.Errorf(arcp.CodeInternal, "the MCP server's tool has an output schema, and its result no structured content")
	}
	return o.Structured, nil
}

// contentText returns the texts of a result, joined.
func contentText(content []sdk.Content) string {
	var texts []string
	for _, c := range content {
		if t, ok := c.(*sdk.TextContent); ok && t.Text != "" {
			texts = append(texts, t.Text)
		}
	}
	if len(texts) == 0 {
		return "the tool failed and did not say why"
	}
	return clip.Ellipsis(strings.Join(texts, "\n"), maxDescription)
}
