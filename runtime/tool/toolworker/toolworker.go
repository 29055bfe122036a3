// Package toolworker runs tools in a worker: a program that connects to a runtime as a client
// and executes the jobs of its tools.
//
// The same tool runs in a worker and in the process of a runtime, and behaves the same: events,
// questions, checkpoints, interrupts, child jobs and cancellation pass over the connection. The
// protocol does not offer the following to workers. They fail with UNIMPLEMENTED:
//
//   - Authority: a worker cannot check the job's lease or charge its budget in advance.
//     Report an incurred cost with Job.Metric.
//   - Permissions.Check and Permissions.Extend.
//   - Resources.
//   - Job.Call with Delegate.
//   - Job.AcceptStream.
//
// Job.CheckpointWanted returns nil. Answer.ResolvedBy is empty. Artifacts have at most 4 MiB, and an
// opened one has no URI and no expiry.
package toolworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Config of a worker. The zero value is a worker that runs one job at a time.
type Config struct {
	client.WorkerConfig // Run sets Tools

	// Logger receives the panics of tools; default slog.Default(). Clients do not receive
	// them.
	Logger *slog.Logger
}

// Run announces tools to the runtime and executes their jobs until ctx or the client ends. At most
// Config.Concurrency jobs run at once. A tool with an Audience, a RatePerMin, NeedsDirs or Endless is an
// error, because a runtime does not offer these to workers. The other errors are the errors of
// [client.Client.Work].
func Run(ctx context.Context, c *client.Client, cfg Config, tools ...*tool.Tool) error {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	work := cfg.WorkerConfig
	for _, t := range tools {
		if t.Audience != nil || t.Limits.RatePerMin > 0 || t.NeedsDirs || t.Endless {
			return fmt.Errorf("tool %s: a worker's tool has no Audience, RatePerMin, NeedsDirs or Endless; give a command a directory with exec.Config.Dir", t.Ref())
		}
		work.Tools = append(work.Tools, client.WorkerTool{Ref: t.Ref(), Description: describe(t), Handle: handler(t, cfg.Logger)})
	}
	return c.Work(ctx, work)
}

// description describes a tool to the runtime (SPEC.md §7.8).
type description struct {
	Description      string          `json:"description,omitzero"`
	InputSchema      arcp.Raw        `json:"input_schema,omitzero"`
	OutputSchema     arcp.Raw        `json:"output_schema,omitzero"`
	SideEffect       tool.SideEffect `json:"side_effect,omitzero"`
	Idempotent       *bool           `json:"idempotent,omitzero"`
	Recovery         tool.Recovery   `json:"recovery,omitzero"`
	TimeoutMS        int64           `json:"timeout_ms,omitzero"` // 0: none
	MaxRequestBytes  int             `json:"max_request_bytes,omitzero"`
	MaxResponseBytes int             `json:"max_response_bytes,omitzero"`
	Interruptible    bool            `json:"interruptible,omitzero"`
	Approval         *tool.Approval  `json:"approval,omitzero"`
	Retry            tool.Retry      `json:"retry,omitzero"`
	MinTrust         arcp.TrustLevel `json:"min_trust,omitzero"`
}

// maxBytes bounds the arguments and the result of a job in a worker: each fits into a frame.
const maxBytes = 4 << 20

func describe(t *tool.Tool) description {
	d := description{
		Description: t.Description, InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, SideEffect: t.SideEffect,
		Idempotent: t.Idempotent, Recovery: t.Recovery, TimeoutMS: max(t.Limits.Timeout.Milliseconds(), 0),
		MaxRequestBytes: bounded(t.Limits.MaxRequestBytes), MaxResponseBytes: bounded(t.Limits.MaxResponseBytes),
		Interruptible: t.Interruptible, Retry: t.Retry, MinTrust: t.MinTrust,
	}
	if t.Limits.Timeout > 0 {
		d.TimeoutMS = max(d.TimeoutMS, 1)
	}
	if t.Approval != tool.ApprovalNone {
		d.Approval = &t.Approval
	}
	return d
}

// bounded returns a limit of a tool, at most maxBytes. A negative limit means maxBytes.
func bounded(limit int) int {
	if limit < 0 {
		return maxBytes
	}
	return min(limit, maxBytes)
}

func handler(t *tool.Tool, log *slog.Logger) func(context.Context, *client.WorkerCall) (any, error) {
	return func(ctx context.Context, call *client.WorkerCall) (any, error) {
		if err := t.Validate(call.Arguments); err != nil {
			return nil, err
		}
		h := host{ctx, call, log, new(resultHost)}
		out, err := t.Run(ctx, tool.NewJob(h), call.Arguments)
		switch {
		case err != nil:
			return nil, err
		case h.result.closed && string(out) == "null":
			return client.WorkerResult{Summary: h.result.summary}, nil
		}
		return out, nil
	}
}

// wireError returns an error of the runtime as an *arcp.Error, and other errors unchanged.
func wireError(err error) error {
	if e, ok := errors.AsType[*arcp.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*client.RemoteError](err); ok {
		return &arcp.Error{Code: e.Code, Message: e.Message, Retryable: e.Retryable, Details: e.Details, Cause: e.Cause}
	}
	return err
}

// defaultExpiry is the time to answer a question without an expiry.
const defaultExpiry = 24 * time.Hour

func expiry(d time.Duration) time.Time {
	if d <= 0 {
		d = defaultExpiry
	}
	return time.Now().Add(d)
}
