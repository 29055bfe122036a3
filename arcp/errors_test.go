package arcp_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func TestAsErrorHidesUnknownCauses(t *testing.T) {
	wire := arcp.Errorf(arcp.CodeNotFound, "no job %s", "job_1")
	for _, c := range []struct {
		err   error
		want  string
		known bool
	}{
		{wire, "NOT_FOUND: no job job_1", true},
		{fmt.Errorf("list: %w", wire), "NOT_FOUND: no job job_1", true},
		{fmt.Errorf("x: %w", context.Canceled), "CANCELLED: cancelled", true},
		{context.DeadlineExceeded, "DEADLINE_EXCEEDED: deadline exceeded", true},
		{errors.New("password is hunter2"), "INTERNAL: internal error; the runtime's log has the cause", false},
	} {
		e, known := arcp.AsError(c.err)
		if e.Error() != c.want || known != c.known || e.Retryable != e.Code.Retryable() {
			t.Errorf("AsError(%v) = %v, %v, want %s, %v", c.err, e, known, c.want, c.known)
		}
	}
}

func TestInvalidDetailsAreIgnored(t *testing.T) {
	e := arcp.Errorf(arcp.CodeResourceExhausted, "too many").RetryAfter(30)
	if string(e.Details) != `{"retry_after_seconds":30}` || !e.Retryable {
		t.Errorf("got %+v", e)
	}
	if e.WithDetails(func() {}); string(e.Details) != `{"retry_after_seconds":30}` {
		t.Errorf("details that cannot be encoded replace the others: %s", e.Details)
	}
}

// A tool may put anything under the name.
func TestRetryAfterOfIgnoresInvalidDetails(t *testing.T) {
	for details, want := range map[string]struct {
		wait time.Duration
		ok   bool
	}{
		`{"retry_after_seconds":30}`:   {30 * time.Second, true},
		`{"retry_after_seconds":1.5}`:  {1500 * time.Millisecond, true},
		`{"retry_after_seconds":0}`:    {0, true},
		`{"retry_after_seconds":1e30}`: {1e9 * time.Second, true},
		`{"retry_after_seconds":-1}`:   {},
		`{"retry_after_seconds":"1"}`:  {},
		`{"retry_after_seconds":null}`: {},
		`{}`:                           {},
		`[]`:                           {},
		``:                             {},
	} {
		if wait, ok := arcp.RetryAfterOf(arcp.Raw(details)); wait != want.wait || ok != want.ok {
			t.Errorf("%s: %s, %t, want %s, %t", details, wait, ok, want.wait, want.ok)
		}
	}
}

func TestThreeOfEightJobStatesAreTerminal(t *testing.T) {
	ended := 0
	for _, s := range arcp.JobStates {
		if s.Terminal() {
			ended++
		}
	}
	if len(arcp.JobStates) != 8 || ended != 3 {
		t.Errorf("%d states, %d of them ended", len(arcp.JobStates), ended)
	}
}
