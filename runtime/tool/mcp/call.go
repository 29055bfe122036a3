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

// callKey is the context key of the call to which a request belongs. An elicitation in the answer to the
// request belongs to the same call.
type callKey struct{}

// call calls a tool of the server for a job.
func (s *Source) call(ctx context.Context, job tool.Job, d *definition, args arcp.Raw) (arcp.Raw, error) {
	s.calls.begin()
	defer s.calls.end()
	sess := s.current.Load()
	if sess == nil {
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the MCP server %s is not connected; it is being tried again", s.cfg.Name)
	}
	c := sess.observer.begin(job)
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		c.relay(ctx)
	}()
	res, err := sess.call(ctx, c, d.name, args)
	raw := sess.observer.takeResult(c)
	lost := sess.observer.end(c)
	<-relayed
	if lost > 0 {
		_ = job.Log(arcp.LevelWarn, fmt.Sprintf("%d log messages of the MCP server were left out: they came faster than events can be kept", lost), nil) // the job may have ended
	}
	if err != nil {
		return nil, s.failure(ctx, sess, err)
	}
	return result(d, res, raw)
}

// relay emits the notices of a call as events of its job until the queue is closed. After the end of
// ctx it discards them.
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

// call sends a call to the server. It returns with the answer, at the end of ctx, or at the end of the
// session.
func (sess *session) call(ctx context.Context, c *call, name string, args arcp.Raw) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, callKey{}, c))
	defer cancel()
	defer context.AfterFunc(sess.ctx, cancel)() // the end of the session waits for its requests
	type answer struct {
		res *sdk.CallToolResult
		err error
	}
	answers := make(chan answer, 1)
	go func() { // a write to a program does not end with ctx
		res, err := sess.client.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args), Meta: c.meta(sess)})
		answers <- answer{res: res, err: err}
	}()
	select {
	case a := <-answers:
		return a.res, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-sess.ended:
	}
	select { // the answer may have been the last message
	case a := <-answers:
		return a.res, a.err
	default:
		return nil, sdk.ErrConnectionClosed
	}
}

func (c *call) meta(sess *session) sdk.Meta {
	m := sdk.Meta{"progressToken": c.token}
	if init := sess.client.InitializeResult(); init != nil && init.ProtocolVersion >= versionWithRequestLogs {
		m[sdk.MetaKeyLogLevel] = "info"
	}
	if parent := c.job.Traceparent(); parent != "" {
		m["traceparent"] = parent
	}
	return m
}

// JSON-RPC codes of the SDK for requests that have not reached the server.
const (
	codeNone          = 0 // an error that the SDK created
	codeClientClosing = -32003
	codeServerClosing = -32004
	codeNotSent       = -32005
)

// isUnsent reports whether the SDK created an error for a request that the server has not answered.
func isUnsent(e *jsonrpc.Error) bool {
	switch e.Code {
	case codeNone, codeClientClosing, codeServerClosing, codeNotSent:
		return true
	}
	return false
}

// failure returns the error of a job for a call without a result.
func (s *Source) failure(ctx context.Context, sess *session, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || errors.Is(err, sdk.ErrConnectionClosed) {
		return s.unavailable(err)
	}
	message := clip.Ellipsis(e.Message, maxDescription)
	switch {
	case isUnsent(e):
		return s.unavailable(err)
	case e.Code == codeTooLarge:
		large := arcp.Errorf(arcp.CodeResourceExhausted, "the MCP server %s: %s", s.cfg.Name, message)
		large.Retryable = false // a repeated call has the same result
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

// outcome has the members of a result that are used.
type outcome struct {
	Content    arcp.Raw `json:"content"`
	Structured arcp.Raw `json:"structuredContent,omitzero"`
	IsError    bool     `json:"isError,omitzero"`
}

// result returns the result of the job in the bytes of the server: structuredContent if the tool has an
// output schema, else an object of content and structuredContent. raw is nil if the observer has no
// result.
func result(d *definition, res *sdk.CallToolResult, raw arcp.Raw) (arcp.Raw, error) {
	if raw == nil {
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

// contentText returns the texts of a result, one a line.
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
