package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Local failures.
var (
	// ErrUnreachable is wrapped by the errors of Dial when no connection can be made.
	ErrUnreachable = errors.New("runtime unreachable")
	// ErrConnectionLost is wrapped by the errors of calls after the connection ended
	// without Close or Abort. The error includes the reason.
	ErrConnectionLost = errors.New("connection lost")
	// ErrSessionLost is wrapped by the errors of calls after a client of Connect could not
	// resume its session. The error includes the reason. The jobs are not lost.
	ErrSessionLost = errors.New("session lost")
	// ErrClosed is the error of calls after Close or Abort.
	ErrClosed = errors.New("client closed")
	// ErrEventBufferFull ends the iterator of a consumer that is too slow.
	ErrEventBufferFull = errors.New("event buffer full: events were dropped")
	// ErrReleased ends Job.Events and Job.Wait after Job.Release.
	ErrReleased = errors.New("job released")
	// ErrOutcomeMissed is the outcome of a job that ended before a subscription without
	// history.
	ErrOutcomeMissed = errors.New("the job ended before the subscription; subscribe with History")
)

// HandedOverError is the end of the handle of a job that the session has handed over (SPEC.md §5.20). The job
// continues.
type HandedOverError struct {
	Job arcp.JobID
	To  arcp.SessionID // that owns the job now
}

func (e *HandedOverError) Error() string {
	return "job " + string(e.Job) + " was handed over to session " + string(e.To)
}

// RemoteError is a failure that the runtime reported: a nack, a refused submit, a failed job or a
// rejected session. Local failures have other types.
type RemoteError struct {
	Type      arcp.Type // type of the message that reported the failure
	Code      arcp.Code // specific code; CodeUnknown for an unknown code
	RawCode   string    // as received
	Message   string
	Retryable bool
	Details   arcp.Raw
	Cause     *arcp.Cause
	TraceID   string
}

func (e *RemoteError) Error() string {
	s := fmt.Sprintf("%s: %s", e.Type, e.RawCode)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// RetryAfter returns details.retry_after_seconds: the time to wait before a retry.
func (e *RemoteError) RetryAfter() (d time.Duration, ok bool) {
	return arcp.RetryAfterOf(e.Details)
}

// RemoteErrorOf returns the failure reported by an envelope; nil if its type reports no failure.
func RemoteErrorOf(env *arcp.Envelope) *RemoteError {
	switch env.Type {
	case arcp.Nack, arcp.JobFailed, arcp.ToolError, arcp.StreamError, arcp.SessionRejected,
		arcp.SessionUnauthenticated, arcp.SessionEvicted, arcp.JobCancelled:
	default:
		return nil
	}
	var p struct {
		Code      string      `json:"code"`
		Message   string      `json:"message"`
		Reason    string      `json:"reason"`
		Retryable *bool       `json:"retryable"`
		Details   arcp.Raw    `json:"details"`
		Cause     *arcp.Cause `json:"cause"`
		TraceID   string      `json:"trace_id"`
	}
	if err := arcp.Unmarshal(env.Payload, &p); err != nil {
		return &RemoteError{Type: env.Type, Code: arcp.CodeUnknown, RawCode: string(arcp.CodeUnknown),
			Message: "invalid payload: " + err.Error()}
	}
	if p.Code == "" && env.Type == arcp.JobCancelled {
		p.Code = string(arcp.CodeCancelled)
	}
	if p.Message == "" {
		p.Message = p.Reason
	}
	e := &RemoteError{Type: env.Type, RawCode: p.Code, Message: p.Message, Cause: p.Cause, TraceID: p.TraceID}
	e.Code, _ = arcp.ParseCode(p.Code)
	sent := e.Code
	if e.Code, e.Details = arcp.SpecificCode(sent, p.Details); e.Code != sent {
		e.RawCode = string(e.Code)
	}
	e.Retryable = e.Code.Retryable()
	if p.Retryable != nil {
		e.Retryable = *p.Retryable
	}
	return e
}

// JobError is the outcome of a job that failed or was cancelled. It unwraps to its RemoteError.
type JobError struct {
	JobID arcp.JobID
	State arcp.JobState // StateFailed or StateCancelled
	*RemoteError
}

func (e *JobError) Error() string {
	name := string(e.JobID)
	if name == "" {
		name = "job"
	}
	s := fmt.Sprintf("%s %s: %s", name, e.State, e.RawCode)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

func (e *JobError) Unwrap() error { return e.RemoteError }

// CancelRefusedError is a refused cancel.
type CancelRefusedError struct {
	TargetID string
	Reason   string // already_terminal, not_found, permission_denied or unavailable
	Code     arcp.Code
	Message  string
}

func (e *CancelRefusedError) Error() string {
	s := "cancel of " + e.TargetID + " refused: " + e.Reason
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// SequenceError is a gap in the event numbers. It ends the connection.
type SequenceError struct {
	Want, Got uint64
	Type      arcp.Type
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("event_seq of %s is %d, want %d", e.Type, e.Got, e.Want)
}

// ProtocolError is a violation of the protocol by the runtime.
type ProtocolError struct {
	During string // operation of the client
	Err    error
}

func (e *ProtocolError) Error() string { return e.During + ": " + e.Err.Error() }

func (e *ProtocolError) Unwrap() error { return e.Err }

func unexpected(during string, t arcp.Type) error {
	return &ProtocolError{during, fmt.Errorf("unexpected %s", t)}
}
