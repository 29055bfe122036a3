package arcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is an error code (§4). A specific code, one with another CodeInfo.Canonical,
// is sent as that one, with itself as details.code: published clients know no other
// codes than the canonical ones. A tool's own code travels as details.code, too.
type Code string

// The codes.
const (
	CodeOK                       Code = "OK"
	CodeCancelled                Code = "CANCELLED"
	CodeUnknown                  Code = "UNKNOWN"
	CodeInvalidArgument          Code = "INVALID_ARGUMENT"
	CodeInvalidRequest           Code = "INVALID_REQUEST"
	CodeDeadlineExceeded         Code = "DEADLINE_EXCEEDED"
	CodeTimeout                  Code = "TIMEOUT"
	CodeNotFound                 Code = "NOT_FOUND"
	CodeJobNotFound              Code = "JOB_NOT_FOUND"
	CodeAlreadyExists            Code = "ALREADY_EXISTS"
	CodeDuplicateKey             Code = "DUPLICATE_KEY"
	CodePermissionDenied         Code = "PERMISSION_DENIED"
	CodeResourceExhausted        Code = "RESOURCE_EXHAUSTED"
	CodeFailedPrecondition       Code = "FAILED_PRECONDITION"
	CodeAborted                  Code = "ABORTED"
	CodeOutOfRange               Code = "OUT_OF_RANGE"
	CodeUnimplemented            Code = "UNIMPLEMENTED"
	CodeInternal                 Code = "INTERNAL"
	CodeUnavailable              Code = "UNAVAILABLE"
	CodeDataLoss                 Code = "DATA_LOSS"
	CodeUnauthenticated          Code = "UNAUTHENTICATED"
	CodeHeartbeatLost            Code = "HEARTBEAT_LOST"
	CodeResumeWindowExpired      Code = "RESUME_WINDOW_EXPIRED"
	CodeLeaseExpired             Code = "LEASE_EXPIRED"
	CodeLeaseRevoked             Code = "LEASE_REVOKED"
	CodeBackpressureOverflow     Code = "BACKPRESSURE_OVERFLOW"
	CodeBudgetExhausted          Code = "BUDGET_EXHAUSTED"
	CodeLeaseSubsetViolation     Code = "LEASE_SUBSET_VIOLATION"
	CodeAgentNotAvailable        Code = "AGENT_NOT_AVAILABLE"
	CodeAgentVersionNotAvailable Code = "AGENT_VERSION_NOT_AVAILABLE"
)

// CodeInfo is one row of the catalogue of codes.
type CodeInfo struct {
	Code      Code
	Retryable bool   // the default of the retryable member
	Use       string // one sentence for SPEC.md
	Canonical Code   // as which it is sent; empty: as itself
}

// Codes lists every code in the order of SPEC.md.
var Codes = []CodeInfo{
	{CodeOK, false, "Success; never sent as an error.", ""},
	{CodeCancelled, false, "The operation was cancelled on request.", ""},
	{CodeUnknown, false, "A tool failed without saying how.", ""},
	{CodeInvalidArgument, false, "An argument is malformed or out of bounds.", ""},
	{CodeInvalidRequest, false, "The envelope or its payload does not follow the protocol.", CodeInvalidArgument},
	{CodeDeadlineExceeded, true, "A deadline other than max_runtime_sec passed.", ""},
	{CodeTimeout, false, "The job ran longer than max_runtime_sec.", CodeDeadlineExceeded},
	{CodeNotFound, false, "The thing named does not exist or is not visible.", ""},
	{CodeJobNotFound, false, "The job named does not exist or is not visible.", CodeNotFound},
	{CodeAlreadyExists, false, "The thing to create exists already.", ""},
	{CodeDuplicateKey, false, "The idempotency key was used with another request.", CodeAlreadyExists},
	{CodePermissionDenied, false, "The caller may not do this.", ""},
	{CodeResourceExhausted, true, "A limit or quota is used up; details.retry_after_seconds says when to try again.", ""},
	{CodeFailedPrecondition, false, "The state of the thing named does not allow this now.", ""},
	{CodeAborted, true, "Ended by force, or by a restart of the runtime.", ""},
	{CodeOutOfRange, false, "A position is outside of what exists.", ""},
	{CodeUnimplemented, false, "The runtime does not offer this.", ""},
	{CodeInternal, true, "A fault of the runtime or of a tool.", ""},
	{CodeUnavailable, true, "Not possible at this moment, for example during shutdown.", ""},
	{CodeDataLoss, false, "What was asked for is no longer kept.", ""},
	{CodeUnauthenticated, false, "The credentials are missing or wrong.", ""},
	{CodeHeartbeatLost, false, "Heartbeats stopped.", ""},
	{CodeResumeWindowExpired, false, "The session can no longer be resumed at this position or with this token.", CodeDataLoss},
	{CodeLeaseExpired, false, "The lease has ended.", ""},
	{CodeLeaseRevoked, false, "The lease was taken back.", ""},
	{CodeBackpressureOverflow, false, "The receiver was too slow and its buffer is full.", ""},
	{CodeBudgetExhausted, false, "The budget is used up.", CodeResourceExhausted},
	{CodeLeaseSubsetViolation, false, "A child asked for more than its parent holds.", CodePermissionDenied},
	{CodeAgentNotAvailable, false, "No tool or agent of this name.", CodeNotFound},
	{CodeAgentVersionNotAvailable, false, "The tool or agent exists, but not in this version.", CodeNotFound},
}

var codeInfo = func() map[Code]CodeInfo {
	m := make(map[Code]CodeInfo, len(Codes))
	for _, c := range Codes {
		m[c.Code] = c
	}
	return m
}()

// Known reports whether c is one of Codes.
func (c Code) Known() bool { _, ok := codeInfo[c]; return ok }

// Canonical is the code as which c is sent.
func (c Code) Canonical() Code { return cmp.Or(codeInfo[c].Canonical, c) }

// Specific returns the code that an error received from a peer has, and its details
// without it: the code that was sent or, if it stands for a more specific one, that.
func Specific(sent Code, details Raw) (Code, Raw) {
	if len(details) == 0 {
		return sent, details
	}
	var own struct {
		ArcpCode Code `json:"arcp_code"`
		Code     Code `json:"code"`
	}
	if Unmarshal(details, &own) != nil { // a tool's, of another shape
		return sent, details
	}
	for _, m := range [...]struct {
		name string
		code Code
	}{{"arcp_code", own.ArcpCode}, {"code", own.Code}} {
		if m.code != sent && m.code.Known() && m.code.Canonical() == sent {
			return m.code, withoutFirst(details, m.name, m.code)
		}
	}
	return sent, details
}

// detailsOf are details with a specific code as their first member: code or, if a tool
// has a code of its own there, arcp_code.
func detailsOf(code Code, details Raw) Raw {
	name := "code"
	var members map[string]Raw
	if len(details) > 0 {
		if Unmarshal(details, &members) != nil { // not an object: left as it is
			return details
		}
		if _, taken := members[name]; taken {
			name = "arcp_code"
		}
		if _, taken := members[name]; taken {
			return details
		}
	}
	out := firstMember(name, code)
	if len(members) > 0 {
		rest := bytes.TrimLeft(details, " \t\r\n")
		return append(append(out, ','), rest[1:]...)
	}
	return append(out, '}')
}

func firstMember(name string, code Code) Raw {
	return AppendString(append(AppendString(Raw("{"), name), ':'), string(code))
}

// withoutFirst removes a code from details, if detailsOf has put it there.
func withoutFirst(details Raw, name string, code Code) Raw {
	rest, ok := bytes.CutPrefix(details, firstMember(name, code))
	switch {
	case !ok:
		return details
	case string(rest) == "}":
		return nil
	}
	return append(Raw("{"), bytes.TrimPrefix(rest, Raw(","))...)
}

// Retryable is the default of an error's retryable member for this code.
func (c Code) Retryable() bool { return codeInfo[c].Retryable }

// ParseCode returns the spelling in Codes of a code received from a peer:
// RATE_LIMITED and INTERNAL_ERROR are read as aliases. ok is false for a code
// that is not one of Codes; it is then CodeUnknown.
func ParseCode(s string) (c Code, ok bool) {
	switch s {
	case "RATE_LIMITED":
		return CodeResourceExhausted, true
	case "INTERNAL_ERROR":
		return CodeInternal, true
	}
	if c = Code(s); c.Known() {
		return c, true
	}
	return CodeUnknown, false
}

// Error is a failure: the payload of nack, job.failed and tool.error (§4). It is a
// local failure; one received from a peer has a type of its own in the client. Code may
// be a specific one: it is encoded as its canonical code with details.code, and decoded
// from that.
type Error struct {
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	Details   Raw    `json:"details,omitzero"` // a JSON object, or nil
	Cause     *Cause `json:"cause,omitzero"`
	TraceID   string `json:"trace_id,omitzero"`
}

// Cause is the one nested error a tool may report below its own (§4).
type Cause struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Errorf makes an Error with the code's default for retryable.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...), Retryable: c.Retryable()}
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// WithDetails sets the details member from v, which must encode to a JSON
// object, and returns e.
func (e *Error) WithDetails(v any) *Error {
	if raw, err := Marshal(v); err == nil {
		e.Details = raw
	}
	return e
}

// RetryAfter returns e with details.retry_after_seconds set.
func (e *Error) RetryAfter(seconds int) *Error {
	return e.WithDetails(struct {
		Seconds int `json:"retry_after_seconds"`
	}{seconds})
}

// RetryAfterOf returns details.retry_after_seconds, which a tool may also set: the earliest
// time of a retry. ok is false if the member is absent or no duration.
func RetryAfterOf(details Raw) (d time.Duration, ok bool) {
	const most = 1e9 // seconds, which fit into a Duration
	var x struct {
		Seconds *float64 `json:"retry_after_seconds"`
	}
	if len(details) == 0 || Unmarshal(details, &x) != nil || x.Seconds == nil || *x.Seconds < 0 {
		return 0, false
	}
	return time.Duration(min(*x.Seconds, most) * float64(time.Second)), true
}

// LostDetails are the details of a DATA_LOSS: the range that is still available (§5.9, §5.10).
type LostDetails struct {
	OldestMessageID MessageID `json:"oldest_message_id"`
}

// AsError turns any error into its wire form; it is the only place that does.
// A wire error passes, the errors of a context become CANCELLED and
// DEADLINE_EXCEEDED, and anything else is INTERNAL with a fixed text: known is
// then false and the chain belongs in the log, never on the wire.
func AsError(err error) (e *Error, known bool) {
	if wire, ok := errors.AsType[*Error](err); ok {
		return wire, true
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Errorf(CodeCancelled, "cancelled"), true
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(CodeDeadlineExceeded, "deadline exceeded"), true
	}
	return Errorf(CodeInternal, "internal error; the runtime's log has the cause"), false
}
