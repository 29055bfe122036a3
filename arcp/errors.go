package arcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is an error code (§4). A specific code is sent as its canonical code, with the specific code
// in details.code, because published clients know only the canonical codes. The code of a tool is
// also in details.code.
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

// CodeInfo is one row of the catalog of codes.
type CodeInfo struct {
	Code      Code
	Retryable bool   // default of the member retryable
	Use       string // one sentence for SPEC.md
	Canonical Code   // code on the wire; empty: the code itself
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

// Canonical returns the code that represents c on the wire.
func (c Code) Canonical() Code { return cmp.Or(codeInfo[c].Canonical, c) }

// SpecificCode returns the specific code of a received error and the details without that code. Without
// a specific code in details it returns its arguments.
func SpecificCode(sent Code, details Raw) (Code, Raw) {
	if len(details) == 0 {
		return sent, details
	}
	var own struct {
		ArcpCode Code `json:"arcp_code"`
		Code     Code `json:"code"`
	}
	if Unmarshal(details, &own) != nil { // details of a tool with another form
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

// detailsOf returns details with the specific code as first member. The member is code or, if a tool
// uses that name, arcp_code.
func detailsOf(code Code, details Raw) Raw {
	name := "code"
	var members map[string]Raw
	if len(details) > 0 {
		if Unmarshal(details, &members) != nil { // not an object: unchanged
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

// withoutFirst removes a code that detailsOf added.
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

// Retryable returns the default of the member retryable.
func (c Code) Retryable() bool { return codeInfo[c].Retryable }

// ParseCode returns a received code as one of Codes. RATE_LIMITED and INTERNAL_ERROR are aliases. For
// an unknown code it returns CodeUnknown and false.
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

// Error is a local failure and the payload of nack, job.failed and tool.error (§4). A client reports
// a received failure as client.RemoteError. A specific Code is encoded as its canonical code with
// details.code, and decoded from both.
type Error struct {
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	Details   Raw    `json:"details,omitzero"` // a JSON object, or nil
	Cause     *Cause `json:"cause,omitzero"`
	TraceID   string `json:"trace_id,omitzero"`
}

// Cause is a nested error of a tool (§4).
type Cause struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Errorf returns an Error with the default of retryable for the code.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...), Retryable: c.Retryable()}
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// WithDetails sets Details to the encoding of v, which must be a JSON object, and returns e.
// Details stay unchanged if v cannot be encoded.
func (e *Error) WithDetails(v any) *Error {
	if raw, err := Marshal(v); err == nil {
		e.Details = raw
	}
	return e
}

// RetryAfter sets details.retry_after_seconds, replacing Details, and returns e.
func (e *Error) RetryAfter(seconds int) *Error {
	return e.WithDetails(struct {
		Seconds int `json:"retry_after_seconds"`
	}{seconds})
}

// RetryAfterOf returns details.retry_after_seconds: the time to wait before a retry. Tools may set
// the member too. ok is false if the member is absent or not a non-negative number.
func RetryAfterOf(details Raw) (d time.Duration, ok bool) {
	const limit = 1e9 // seconds; fits into a Duration
	var x struct {
		Seconds *float64 `json:"retry_after_seconds"`
	}
	if len(details) == 0 || Unmarshal(details, &x) != nil || x.Seconds == nil || *x.Seconds < 0 {
		return 0, false
	}
	return time.Duration(min(*x.Seconds, limit) * float64(time.Second)), true
}

// LostDetails are the details of a DATA_LOSS: the oldest message still available (§5.9, §5.10).
type LostDetails struct {
	OldestMessageID MessageID `json:"oldest_message_id"`
}

// AsError returns the wire form of any error. An *Error in err is returned as it is. The errors of a
// context become CANCELLED and DEADLINE_EXCEEDED. Any other error becomes INTERNAL with a fixed text,
// and known is false: the caller logs err, and the peer never receives its text.
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
