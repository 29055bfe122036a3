package draft

import (
	"cmp"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Code is an error code of the draft dialect (§12).
type Code string

// The codes.
const (
	CodePermissionDenied         Code = "PERMISSION_DENIED"
	CodeLeaseSubsetViolation     Code = "LEASE_SUBSET_VIOLATION"
	CodeJobNotFound              Code = "JOB_NOT_FOUND"
	CodeDuplicateKey             Code = "DUPLICATE_KEY"
	CodeAgentNotAvailable        Code = "AGENT_NOT_AVAILABLE"
	CodeAgentVersionNotAvailable Code = "AGENT_VERSION_NOT_AVAILABLE"
	CodeCancelled                Code = "CANCELLED"
	CodeTimeout                  Code = "TIMEOUT"
	CodeResumeWindowExpired      Code = "RESUME_WINDOW_EXPIRED"
	CodeHeartbeatLost            Code = "HEARTBEAT_LOST"
	CodeLeaseExpired             Code = "LEASE_EXPIRED"
	CodeBudgetExhausted          Code = "BUDGET_EXHAUSTED"
	CodeInvalidRequest           Code = "INVALID_REQUEST"
	CodeUnauthenticated          Code = "UNAUTHENTICATED"
	CodeInternalError            Code = "INTERNAL_ERROR"
)

// CodeInfo is a row of Codes.
type CodeInfo struct {
	Code      Code
	Retryable bool   // always sent so
	Status    string // final_status of a job that ends with the code
}

// Codes lists every code. TypeScript ignores a frame with another code, and one whose
// retryable contradicts the rows INTERNAL_ERROR, LEASE_EXPIRED and BUDGET_EXHAUSTED.
var Codes = []CodeInfo{
	{CodePermissionDenied, false, statusError},
	{CodeLeaseSubsetViolation, false, statusError},
	{CodeJobNotFound, false, statusError},
	{CodeDuplicateKey, false, statusError},
	{CodeAgentNotAvailable, false, statusError},
	{CodeAgentVersionNotAvailable, false, statusError},
	{CodeCancelled, false, statusCancelled},
	{CodeTimeout, true, StatusTimedOut},
	{CodeResumeWindowExpired, false, statusError},
	{CodeHeartbeatLost, true, statusError},
	{CodeLeaseExpired, false, statusError},
	{CodeBudgetExhausted, false, statusError},
	{CodeInvalidRequest, false, statusError},
	{CodeUnauthenticated, false, statusError},
	{CodeInternalError, true, statusError},
}

// StatusTimedOut is the status of a job that has failed because it ran too long.
const StatusTimedOut = "timed_out"

// Status words of jobs.
const (
	statusPending   = "pending"
	statusRunning   = "running"
	statusSuccess   = "success"
	statusError     = "error"
	statusCancelled = "cancelled"
)

// Info returns the row of a code. ok is false if there is none.
func (c Code) Info() (info CodeInfo, ok bool) {
	for _, info := range Codes {
		if info.Code == c {
			return info, true
		}
	}
	return CodeInfo{}, false
}

// subject is the object of an error: a submit, a job or a session. It selects between codes.
type subject uint8

const (
	aboutAny    subject = iota
	aboutSubmit         // the request names an agent and maybe a key
	aboutJob            // the request names a job
	aboutResume         // the request names a session
	aboutCancel         // the end of a cancelled job
)

// mappedCodes are the codes of package arcp that have another name. A row with a subject
// precedes the row for all subjects.
var mappedCodes = []struct {
	from  arcp.Code
	about subject
	to    Code
}{
	{arcp.CodeNotFound, aboutSubmit, CodeAgentNotAvailable},
	{arcp.CodeNotFound, aboutJob, CodeJobNotFound},
	{arcp.CodeNotFound, aboutResume, CodeResumeWindowExpired},
	{arcp.CodeDataLoss, aboutResume, CodeResumeWindowExpired},
	{arcp.CodeFailedPrecondition, aboutResume, CodeResumeWindowExpired},
	{arcp.CodeAlreadyExists, aboutSubmit, CodeDuplicateKey},
	{arcp.CodeAborted, aboutCancel, CodeCancelled},
	{arcp.CodeInvalidArgument, aboutAny, CodeInvalidRequest},
	{arcp.CodeDeadlineExceeded, aboutAny, CodeTimeout},
	{arcp.CodeLeaseRevoked, aboutAny, CodePermissionDenied},
	{arcp.CodeInternal, aboutAny, CodeInternalError},
}

func mapCode(c arcp.Code, retryable bool, about subject) Code {
	for i := range mappedCodes {
		if row := &mappedCodes[i]; row.from == c && (row.about == about || row.about == aboutAny) {
			return row.to
		}
	}
	if _, ok := Code(c).Info(); ok {
		return Code(c)
	}
	if retryable {
		return CodeInternalError
	}
	return CodeInvalidRequest
}

// failureOf returns an error in the terms of the draft dialect. A code without an equivalent is
// details.arcp_code.
func failureOf(e *arcp.Error, about subject) Failure {
	code := mapCode(e.Code, e.Retryable, about)
	info, _ := code.Info()
	f := Failure{Code: code, Retryable: info.Retryable, Details: objectOrNone(e.Details),
		Message: cmp.Or(e.Message, strings.ToLower(strings.ReplaceAll(string(e.Code), "_", " ")), "failed")}
	if arcp.Code(code) != e.Code && e.Code != "" && e.Code != arcp.CodeInternal {
		f.Details = withArcpCode(f.Details, e.Code)
	}
	return f
}

// objectOrNone returns raw if it is an object.
func objectOrNone(raw arcp.Raw) arcp.Raw {
	if raw.Kind() != '{' {
		return nil
	}
	return raw
}

// withArcpCode adds arcp_code to details, unless they have it.
func withArcpCode(details arcp.Raw, code arcp.Code) arcp.Raw {
	o := begin(nil)
	o.text("arcp_code", string(code))
	taken := false
	if len(details) > 0 {
		arcp.EachMember(details, func(name []byte, value arcp.Raw) bool {
			taken = string(name) == "arcp_code"
			o.quoted(string(name), value)
			return !taken
		})
	}
	if taken {
		return details
	}
	return o.end()
}
