package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

// failing returns a tool whose Func returns err.
func failing(t *testing.T, err error) *Tool {
	return raw(t, Capability{}, func(context.Context, Job, arcp.Raw) (arcp.Raw, error) { return nil, err })
}

func TestErrorsOfToolsHaveCodes(t *testing.T) {
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	long := strings.Repeat("é", 4000)
	stop := &arcp.Error{Code: arcp.CodeTimeout, Message: "too long"}
	for _, c := range []struct {
		why  string
		ctx  context.Context
		err  error
		want *arcp.Error
	}{
		{"a wire error passes", t.Context(),
			&arcp.Error{Code: arcp.CodeNotFound, Message: "no cat", Retryable: true, Details: arcp.Raw(`{"cat":1}`),
				Cause: &arcp.Cause{Code: arcp.CodeDataLoss, Message: "gone"}},
			&arcp.Error{Code: arcp.CodeNotFound, Message: "no cat", Retryable: true, Details: arcp.Raw(`{"cat":1}`),
				Cause: &arcp.Cause{Code: arcp.CodeDataLoss, Message: "gone"}}},
		{"also when it is wrapped", t.Context(), fmt.Errorf("fetch: %w", stop), stop},
		{"a code of its own becomes UNKNOWN", t.Context(), &arcp.Error{Code: "NO_CAT", Message: "m", Details: arcp.Raw(`{"a":1}`)},
			&arcp.Error{Code: arcp.CodeUnknown, Message: "m", Details: arcp.Raw(`{"a":1,"code":"NO_CAT"}`)}},
		{"details.code stays if the tool set it", t.Context(), &arcp.Error{Code: "NO_CAT", Details: arcp.Raw(`{"code":7}`)},
			&arcp.Error{Code: arcp.CodeUnknown, Details: arcp.Raw(`{"code":7}`)}},
		{"OK is no error", t.Context(), &arcp.Error{Code: arcp.CodeOK, Message: "fine"},
			&arcp.Error{Code: arcp.CodeUnknown, Message: "fine", Details: arcp.Raw(`{"code":"OK"}`)}},
		{"a cause's unknown code too", t.Context(), &arcp.Error{Code: arcp.CodeAborted, Cause: &arcp.Cause{Code: "X", Message: "m"}},
			&arcp.Error{Code: arcp.CodeAborted, Cause: &arcp.Cause{Code: arcp.CodeUnknown, Message: "m"}}},
		{"details that are no object are dropped", t.Context(), &arcp.Error{Code: arcp.CodeAborted, Details: arcp.Raw(`[1]`)},
			&arcp.Error{Code: arcp.CodeAborted}},
		{"broken details are dropped", t.Context(), &arcp.Error{Code: arcp.CodeAborted, Details: arcp.Raw(`{"a":`)},
			&arcp.Error{Code: arcp.CodeAborted}},
		{"huge details are dropped", t.Context(), &arcp.Error{Code: arcp.CodeAborted, Details: arcp.Raw(`{"a":"` + strings.Repeat("x", 64<<10) + `"}`)},
			&arcp.Error{Code: arcp.CodeAborted}},
		{"a long message is cut at a character", t.Context(), &arcp.Error{Code: arcp.CodeAborted, Message: "x" + long},
			&arcp.Error{Code: arcp.CodeAborted, Message: "x" + strings.Repeat("é", 2046) + "…"}},
		{"invalid UTF-8 is replaced", t.Context(), &arcp.Error{Code: arcp.CodeAborted, Message: "a\xffb"},
			&arcp.Error{Code: arcp.CodeAborted, Message: "a\uFFFDb"}},
		{"any other error is UNKNOWN", t.Context(), io.ErrUnexpectedEOF,
			&arcp.Error{Code: arcp.CodeUnknown, Message: "unexpected EOF"}},
		{"its text is cut as well", t.Context(), errors.New(long + "\xff"),
			&arcp.Error{Code: arcp.CodeUnknown, Message: strings.Repeat("é", 2046) + "…"}},
		{"the cause of the context", ended(stop), context.Canceled, stop},
		{"also when it is wrapped", ended(stop), fmt.Errorf("read: %w", context.DeadlineExceeded), stop},
		{"a context that just ended", ended(nil), context.Canceled,
			&arcp.Error{Code: arcp.CodeCancelled, Message: "cancelled"}},
		{"a deadline of the tool's own", t.Context(), context.DeadlineExceeded,
			&arcp.Error{Code: arcp.CodeDeadlineExceeded, Message: "deadline exceeded", Retryable: true}},
		{"an unknown cause stays inside", ended(io.ErrClosedPipe), context.Canceled,
			&arcp.Error{Code: arcp.CodeInternal, Message: "internal error; the runtime's log has the cause", Retryable: true}},
		{"an error that is not about the context", ended(stop), io.EOF,
			&arcp.Error{Code: arcp.CodeUnknown, Message: "EOF"}},
	} {
		out, err := failing(t, c.err).Run(c.ctx, Job{}, nil)
		if out != nil {
			t.Errorf("%s: result %s beside an error", c.why, out)
		}
		if diff := cmp.Diff(c.want, err); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

func TestToolErrorsAreCopied(t *testing.T) {
	shared := &arcp.Error{Code: "NO_CAT", Message: "a\xff", Cause: &arcp.Cause{Code: "X"}}
	failing(t, shared).Run(t.Context(), Job{}, nil)
	if want := (&arcp.Error{Code: "NO_CAT", Message: "a\xff", Cause: &arcp.Cause{Code: "X"}}); !cmp.Equal(shared, want) {
		t.Errorf("the tool's error was changed to %+v", shared)
	}
}

func TestPanicIsAnInternalError(t *testing.T) {
	for _, c := range []struct {
		why  string
		fn   Func
		want string
	}{
		{"a value", func(context.Context, Job, arcp.Raw) (arcp.Raw, error) { panic("secret") }, "secret"},
		{"an error", func(context.Context, Job, arcp.Raw) (arcp.Raw, error) { panic(io.EOF) }, "EOF"},
		{"nil", func(context.Context, Job, arcp.Raw) (arcp.Raw, error) { panic(nil) }, "nil"},
		{"a typed nil error", func(context.Context, Job, arcp.Raw) (arcp.Raw, error) { return nil, (*arcp.Error)(nil) }, "nil pointer"},
	} {
		job := &silentHost{}
		out, err := raw(t, Capability{}, c.fn).Run(t.Context(), NewJob(job), nil)
		wantError(t, c.why, err, arcp.CodeInternal, "the tool panicked")
		if out != nil {
			t.Errorf("%s: result %s", c.why, out)
		}
		if len(job.failures) != 1 {
			t.Fatalf("%s: the job heard %v, want one panic", c.why, job.failures)
		}
		if p, ok := job.failures[0].(*PanicError); !ok || !strings.Contains(p.Error(), c.want) || !strings.Contains(string(p.Stack), "run_test.go") {
			t.Errorf("%s: the job heard %v, want a panic about %q with its stack", c.why, p, c.want)
		}
		if _, err := raw(t, Capability{}, c.fn).Run(t.Context(), Job{}, nil); err == nil {
			t.Errorf("%s: no error when nobody listens", c.why)
		}
	}
}

func TestInvalidResultsAreRefused(t *testing.T) {
	result := func(c Capability, out string) (arcp.Raw, *arcp.Error) {
		return raw(t, c, func(context.Context, Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(out), nil }).Run(t.Context(), Job{}, nil)
	}
	if out, err := result(Capability{}, ``); err != nil || string(out) != "null" {
		t.Errorf("no result = %s, %v, want null", out, err)
	}
	if out, err := result(Capability{}, ` {"a": 1}`); err != nil || string(out) != ` {"a": 1}` {
		t.Errorf("a result = %s, %v, want it as it is", out, err)
	}
	for _, bad := range []string{`{`, `{"a":1}{}`, "\"\xff\"", `{"a":1,"a":2}`, `nul`} {
		out, err := result(Capability{}, bad)
		wantError(t, bad, err, arcp.CodeInternal, "the tool's result is not valid JSON")
		if out != nil {
			t.Errorf("%s: returned beside the error", bad)
		}
	}
	limited := Capability{Limits: Limits{MaxResponseBytes: 5}}
	if _, err := result(limited, `"123"`); err != nil {
		t.Errorf("5 bytes of 5: %v", err)
	}
	_, err := result(limited, `"1234"`)
	wantError(t, "6 bytes of 5", err, arcp.CodeResourceExhausted, "the result has 6 bytes; the tool's limit is 5 (limits.max_response_bytes)")
	if err != nil && err.Retryable {
		t.Error("the result would be too large again, but the error says to retry")
	}
	limited.Source = SourceWorker
	_, err = result(limited, `"1234"`)
	wantError(t, "6 bytes of 5, from a worker", err, arcp.CodeResourceExhausted, "the result has 6 bytes; the tool's limit is 5 (max_response_bytes)")
	if _, err := result(Capability{Limits: Limits{MaxResponseBytes: -1}}, `"`+strings.Repeat("x", 2<<20)+`"`); err != nil {
		t.Errorf("no limit: %v", err)
	}
	schema := Capability{OutputSchema: arcp.Raw(`{"type":"object","properties":{"n":{"maximum":3}}}`)}
	if _, err := result(schema, `{"n":3}`); err != nil {
		t.Errorf("a result that follows its schema: %v", err)
	}
	_, err = result(schema, `{"n":4}`)
	wantError(t, "n", err, arcp.CodeInternal, "the tool's result breaks its output schema: member /n must be at most 3")
	_, err = result(schema, `1`)
	wantError(t, "1", err, arcp.CodeInternal, "the tool's result breaks its output schema: the result must be an object, not a number")
}

func TestArgumentsAreUnchanged(t *testing.T) {
	tool := raw(t, Capability{}, echo)
	for _, c := range []struct{ args, want string }{
		{"", `{}`}, {"null", `{}`}, {`{ "a":1e2, "b":"é" }`, `{ "a":1e2, "b":"é" }`}, {`[1]`, `[1]`},
	} {
		if out, err := tool.Run(t.Context(), Job{}, arcp.Raw(c.args)); err != nil || string(out) != c.want {
			t.Errorf("arguments %q = %s, %v, want %s", c.args, out, err, c.want)
		}
	}
}
