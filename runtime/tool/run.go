package tool

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// MaxDepth bounds the nesting of results and of event data. The envelope and the payload of a
// frame add two levels.
const MaxDepth = arcp.MaxDepth - 2

// Bounds of a tool's error on the wire.
const (
	maxMessageBytes = 4 << 10  // longer texts are clipped
	maxDetailsBytes = 64 << 10 // larger details are dropped, so that the terminal event is one event
)

// PanicError is a panic of a tool or hook. Clients must receive neither the value nor the stack.
type PanicError struct {
	Value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("tool panicked: %v", p.Value) }

// Run runs one attempt and returns its result as JSON, or its error as a client receives it. The
// arguments have passed Validate; empty arguments and null count as {}. The Func must not change the
// arguments; it may return them as the result.
//
//   - An *arcp.Error is returned. A code that SPEC.md §4 does not list becomes UNKNOWN, and
//     details.code contains it.
//   - context.Canceled and context.DeadlineExceeded become the cause of ctx.
//   - Any other error becomes UNKNOWN with its text.
//   - A panic becomes INTERNAL; Host.Failed receives it as a *PanicError.
//   - A result over MaxResponseBytes becomes RESOURCE_EXHAUSTED.
//   - A result that is not JSON or breaks the output schema becomes INTERNAL.
//
// Run does not return if the Func calls runtime.Goexit.
func (t *Tool) Run(ctx context.Context, job Job, args arcp.Raw) (arcp.Raw, *arcp.Error) {
	args = orEmpty(args)
	out, err := t.call(ctx, job, args)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		out = arcp.Raw("null")
	}
	if err := t.checkResult(args, out); err != nil {
		failed(job, err)
		return nil, err.Err
	}
	return out, nil
}

func (t *Tool) call(ctx context.Context, job Job, args arcp.Raw) (out arcp.Raw, err *arcp.Error) {
	defer func() {
		if v := recover(); v != nil {
			failed(job, &PanicError{v, debug.Stack()})
			out, err = nil, arcp.Errorf(arcp.CodeInternal, "the tool panicked")
		}
	}()
	out, e := t.run(ctx, job, args)
	if e != nil {
		if _, loggable := errors.AsType[*LoggableError](e); loggable || errors.Is(e, ErrLost) {
			failed(job, e)
		}
		return nil, wireError(ctx, e)
	}
	return out, nil
}

func failed(job Job, err error) {
	if !job.IsZero() {
		job.host.Failed(err)
	}
}

// wireError returns the error that a client receives for err; Run lists the rules.
func wireError(ctx context.Context, err error) *arcp.Error {
	if e, ok := errors.AsType[*arcp.Error](err); ok && e != nil {
		return clean(e)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		e, _ := arcp.AsError(err)
		return clean(e)
	}
	return arcp.Errorf(arcp.CodeUnknown, "%s", clip.Ellipsis(err.Error(), maxMessageBytes))
}

// clean returns a copy of a tool's error within the bounds of SPEC.md §4.
func clean(e *arcp.Error) *arcp.Error {
	c := *e
	c.Message = clip.Ellipsis(c.Message, maxMessageBytes)
	if len(c.Details) > maxDetailsBytes || c.Details.Kind() != '{' || !c.Details.IsValid() || arcp.DeeperThan(c.Details, MaxDepth) {
		c.Details = nil
	}
	if !c.Code.Known() || c.Code == arcp.CodeOK {
		c.Details = withCode(c.Details, c.Code)
		c.Code = arcp.CodeUnknown
	}
	if c.Cause != nil {
		c.Cause = cleanCause(*c.Cause)
	}
	return &c
}

func cleanCause(c arcp.Cause) *arcp.Cause {
	c.Code, _ = arcp.ParseCode(string(c.Code))
	c.Message = clip.Ellipsis(c.Message, maxMessageBytes)
	return &c
}

// withCode adds the member code to details that lack it.
func withCode(details arcp.Raw, code arcp.Code) arcp.Raw {
	members := make(map[string]arcp.Raw)
	if len(details) > 0 && arcp.Unmarshal(details, &members) != nil {
		return nil
	}
	if _, ok := members["code"]; !ok {
		members["code"] = arcp.AppendString(nil, clip.Ellipsis(string(code), maxMessageBytes))
	}
	raw, err := arcp.Marshal(members)
	if err != nil {
		return nil
	}
	return raw
}

// checkResult returns an error for an invalid result. The log does not have the part that breaks the output
// schema, because its path may repeat names of the result.
func (t *Tool) checkResult(args, out arcp.Raw) *LoggableError {
	if limit := t.Limits.MaxResponseBytes; limit > 0 && len(out) > limit {
		return &LoggableError{Err: tooLarge("result", len(out), limit, t.limitKey("max_response_bytes"))}
	}
	invalid := func(format string, args ...any) *LoggableError {
		return &LoggableError{Err: arcp.Errorf(arcp.CodeInternal, "the tool's result "+format, args...)}
	}
	if t.raw && !isSameSlice(args, out) && !arcp.Valid(out) {
		return invalid("is not valid JSON")
	}
	if arcp.DeeperThan(out, MaxDepth) {
		return invalid("is nested deeper than %d levels", MaxDepth)
	}
	if t.output == nil {
		return nil
	}
	if fault := t.output.check(out); fault != nil {
		e := invalid("breaks its output schema: %s", fault.text("the result", "member"))
		e.Log = "the tool's result breaks its output schema"
		return e
	}
	return nil
}

// limitKey returns the name that a limit has where the tool is described: workers describe their tools without the
// object limits.
func (t *Tool) limitKey(member string) string {
	if t.Source == SourceWorker {
		return member
	}
	return "limits." + member
}

// tooLarge returns an error that is not retryable: a repeated call would have the same size. key is the name of
// the limit in the description of the tool.
func tooLarge(part string, size, limit int, key string) *arcp.Error {
	e := arcp.Errorf(arcp.CodeResourceExhausted, "the %s has %d bytes; the tool's limit is %d (%s)", part, size, limit, key)
	e.Retryable = false
	return e
}

// isSameSlice reports whether a tool returned the slice of its arguments, which is valid JSON.
func isSameSlice(args, out arcp.Raw) bool { return len(args) == len(out) && &args[0] == &out[0] }

var emptyObject = arcp.Raw("{}")

func orEmpty(args arcp.Raw) arcp.Raw {
	if len(args) == 0 || args.Kind() == 'n' {
		return emptyObject
	}
	return args
}
