package mcpserve

//lint:file-ignore SA1019 clients of the versions in use log in the way that the next one will drop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// call is a tool call of an MCP client.
type call struct {
	ctx     context.Context // of the request; the SDK sends notifications with ctx on the stream of the call
	session *sdk.ServerSession
	token   any // progress token; nil: the client wants no progress
}

// running holds the calls under way.
type running struct {
	mu      sync.Mutex
	jobs    map[arcp.JobID]*call
	submits int           // calls whose job is being submitted
	changed chan struct{} // closed and replaced when jobs or submits change
	calls   sync.WaitGroup
}

// startSubmit counts a call whose job is being submitted.
func (r *running) startSubmit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submits++
}

// endSubmit records the job of a call; nil: the submit failed.
func (r *running) endSubmit(job *client.Job, c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submits--
	if job != nil {
		r.jobs[job.ID()] = c
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// end removes the call of a job.
func (r *running) end(id arcp.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, id)
}

// callOf returns the call of a job, or nil. It waits for submits under way, because a question of a job may
// arrive before the end of its submit.
func (r *running) callOf(ctx context.Context, id arcp.JobID) *call {
	for {
		r.mu.Lock()
		c, submits, changed := r.jobs[id], r.submits, r.changed
		r.mu.Unlock()
		if c != nil || submits == 0 {
			return c
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// within calls fn and returns when fn returns, or after the limit.
func within(limit time.Duration, fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// errTooLong ends a call after Config.Timeout.
var errTooLong = errors.New("the call has waited for too long")

// call submits the job of a call and waits for the end of the job. A failure of the job or the runtime is a
// result with isError: models receive results, but no protocol errors.
func (s *Server) call(ctx context.Context, t Tool, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	s.running.calls.Add(1)
	defer s.running.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	if s.cfg.Timeout > 0 {
		defer time.AfterFunc(s.cfg.Timeout, func() { cancel(errTooLong) }).Stop()
	}
	c := &call{ctx: ctx, session: req.Session, token: req.Params.GetProgressToken()}
	job, conn, err := s.submit(ctx, t, c, req)
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTooLong):
		return nil, context.Cause(ctx)
	case err != nil:
		return failed(err), nil
	}
	defer s.running.end(job.ID())
	value, err := outcome(ctx, job, c.relay)
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTooLong):
		return failure("DEADLINE_EXCEEDED", fmt.Sprintf("no result within %s; the job %s continues", s.cfg.Timeout, job.ID())), nil
	case ctx.Err() != nil:
		s.cancel(conn, job.ID())
		return nil, context.Cause(ctx)
	case err != nil:
		return failed(err), nil
	}
	return success(t, value), nil
}

// submit submits the job of a call. If the session is lost meanwhile, it submits once more in another session
// with the same idempotency key. It ends submitGrace after ctx: the job may exist already, and cancel
// needs its id.
func (s *Server) submit(ctx context.Context, t Tool, c *call, req *sdk.CallToolRequest) (*client.Job, *client.Client, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	ctx, stop := extendContext(ctx, submitGrace)
	defer stop()
	args := arcp.Raw(req.Params.Arguments)
	if len(args) == 0 || args.Kind() == 'n' {
		args = arcp.Raw("{}")
	}
	r := client.InvokeParams{Tool: t.Name, Arguments: args, IdempotencyKey: "mcp-" + string(arcp.NewMessageID())}
	s.running.startSubmit()
	var job *client.Job
	defer func() { s.running.endSubmit(job, c) }()
	for retried := false; ; retried = true {
		conn, err := s.session(ctx)
		if err != nil {
			return nil, nil, err
		}
		j, err := conn.Invoke(ctx, r)
		if errors.Is(err, client.ErrSessionLost) && !retried {
			continue
		}
		job = j
		return j, conn, err
	}
}

// submitGrace bounds the wait for the job id of a call that the client has cancelled.
const submitGrace = 10 * time.Second

// extendContext returns a context that ends grace after ctx. The caller must call the function.
func extendContext(ctx context.Context, grace time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-ended:
		}
	}()
	return longer, func() { close(ended); cancel(nil) }
}

// cancel cancels the job of a call that the client has cancelled.
func (s *Server) cancel(c *client.Client, id arcp.JobID) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	if err := c.Cancel(ctx, client.CancelParams{JobID: id, Reason: "the MCP client has cancelled the call"}); err != nil {
		s.cfg.Log.Debug("a job was not cancelled", "job", id, "error", err)
	}
}

// outcome waits for the result of a job and calls onEvent with its events. It joins a result in parts.
func outcome(ctx context.Context, job *client.Job, onEvent func(*arcp.Envelope)) (arcp.Raw, error) {
	parts := client.ResultParts{Limit: maxResult}
	var broken error
	for env, err := range job.Events(ctx) {
		switch {
		case err != nil:
			broken = err
		case env.Type == arcp.JobResultChunk:
			parts.Receive(&env)
		default:
			onEvent(&env)
		}
	}
	result, err := job.Wait(ctx)
	switch {
	case err != nil:
		return nil, err
	case result.ResultID != "" && broken != nil:
		return nil, broken
	case result.ResultID != "":
		value, err := parts.JSON(&result)
		if errors.Is(err, client.ErrResultTooLarge) {
			err = fmt.Errorf("%w; `arcp jobs show %s` tells where it is", err, job.ID())
		}
		return value, err
	case result.ResultRef != nil:
		return arcp.Marshal(result.ResultRef)
	case len(result.Value) == 0:
		return arcp.Raw("null"), nil
	}
	return result.Value, nil
}

// relay sends the progress and the log messages of a job to the client. The SDK filters the messages by the level
// of the client.
func (c *call) relay(env *arcp.Envelope) {
	switch env.Type {
	case arcp.JobProgress:
		p, err := arcp.DecodePayload[arcp.JobProgressPayload](env)
		if err != nil || c.token == nil {
			return
		}
		n := &sdk.ProgressNotificationParams{ProgressToken: c.token, Progress: p.Current, Message: p.Message}
		if p.Total != nil {
			n.Total = *p.Total
		}
		_ = c.session.NotifyProgress(c.ctx, n) // the context ends when the client disconnects
	case arcp.Log:
		p, err := arcp.DecodePayload[arcp.LogPayload](env)
		if err != nil {
			return
		}
		_ = c.session.Log(c.ctx, &sdk.LoggingMessageParams{Level: level(p.Level), Logger: string(env.JobID), Data: logData(p)}) // as above
	}
}

// level returns the MCP level of a log level.
func level(level string) sdk.LoggingLevel {
	switch level {
	case arcp.LevelTrace, arcp.LevelDebug:
		return "debug"
	case arcp.LevelWarn:
		return "warning"
	case arcp.LevelError:
		return "error"
	case arcp.LevelCritical:
		return "critical"
	}
	return "info"
}

func logData(p arcp.LogPayload) any {
	if len(p.Attributes) == 0 {
		return p.Message
	}
	return map[string]any{"message": p.Message, "attributes": p.Attributes}
}

// success returns the result of a call: a string as text, another value as its JSON, and an object also as
// structured content.
func success(t Tool, value arcp.Raw) *sdk.CallToolResult {
	if r := passThrough(t, value); r != nil {
		return r
	}
	text := string(value)
	if value.Kind() == '"' {
		_ = arcp.Unmarshal(value, &text) // a string always decodes
	}
	r := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
	if value.Kind() == '{' && value.IsValid() { // a result in parts may be any text
		r.StructuredContent = rawJSON(value)
	}
	return r
}

// passThrough returns the result of a tool of another MCP server, with the content of that server. It returns
// nil for a tool of another source.
func passThrough(t Tool, value arcp.Raw) *sdk.CallToolResult {
	if t.Source != "mcp" || isObjectSchema(t.OutputSchema) {
		return nil
	}
	var members map[string]arcp.Raw
	r := new(sdk.CallToolResult)
	if arcp.Unmarshal(value, &members) != nil || json.Unmarshal(value, r) != nil {
		return nil
	}
	if s, ok := members["structuredContent"]; ok {
		r.StructuredContent = rawJSON(s)
	}
	return r
}

// rawJSON is encoded JSON.
type rawJSON []byte

// MarshalJSON returns the bytes.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

// failed returns the result for an error of the runtime or of a job.
func failed(err error) *sdk.CallToolResult {
	if e, ok := errors.AsType[*client.RemoteError](err); ok {
		return failure(e.RawCode, e.Message)
	}
	if e, ok := errors.AsType[*client.JobError](err); ok {
		return failure(e.RawCode, e.Message)
	}
	return failure(string(arcp.CodeUnavailable), "the runtime cannot be reached: "+err.Error())
}

// failure returns a result with isError.
func failure(code, message string) *sdk.CallToolResult {
	text := strings.TrimSuffix(code+": "+message, ": ")
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}
