package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Local failures.
var (
	// ErrUnreachable is wrapped by the errors of Dial when there is no
	// connection to speak on.
	ErrUnreachable = errors.New("runtime unreachable")
	// ErrConnectionLost is wrapped, with the reason, by what was waiting when
	// the connection ended without being closed by this client.
	ErrConnectionLost = errors.New("connection lost")
	// ErrSessionLost is wrapped, with the reason, by what was waiting when a
	// client of Connect could not resume its session. Its jobs are not lost.
	ErrSessionLost = errors.New("session lost")
	// ErrClosed is returned by what was waiting, or tried, when this client was
	// closed or aborted.
	ErrClosed = errors.New("client closed")
	// ErrEventBufferFull ends a job's iterator whose consumer was too slow.
	ErrEventBufferFull = errors.New("event buffer full: events were dropped")
	// ErrReleased ends the iterator and Wait of a job that was released.
	ErrReleased = errors.New("job released")
	// ErrOutcomeMissed is returned for a job that had ended before it was
	// subscribed to without its history.
	ErrOutcomeMissed = errors.New("the job had ended before; subscribe with its history")
)

// RemoteError is a failure that the runtime reported: a nack, a refused submit,
// a failed job, a rejected session. It is never made for a local failure.
type RemoteError struct {
	Type      arcp.Type // of the message that reported it
	Code      arcp.Code // canonical; CodeUnknown for a code that is not
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

// RetryAfter is details.retry_after_seconds: the runtime wants no other attempt
// before.
func (e *RemoteError) RetryAfter() (d time.Duration, ok bool) {
	return arcp.RetryAfterOf(e.Details)
}

// RemoteErrorOf returns the failure an envelope reports, or nil when its type
// reports none.
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
			Message: "its payload cannot be read: " + err.Error()}
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
	if e.Code, e.Details = arcp.Specific(sent, p.Details); e.Code != sent {
		e.RawCode = string(e.Code)
	}
	e.Retryable = e.Code.Retryable()
	if p.Retryable != nil {
		e.Retryable = *p.Retryable
	}
	return e
}

// JobError is the outcome of a job that failed or was cancelled. Unwrap gives
// the RemoteError, whose members are promoted.
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

// CancelRefused says why a target will not be cancelled.
type CancelRefused struct {
	TargetID string
	Reason   string // already_terminal, not_found, not_cancellable, permission_denied
	Code     arcp.Code
	Message  string
}

func (e *CancelRefused) Error() string {
	s := "cancel of " + e.TargetID + " refused: " + e.Reason
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// SequenceError says that the runtime's event numbers are not gap-free. The
// connection was closed because of it.
type SequenceError struct {
	Want, Got uint64
	Type      arcp.Type
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("event_seq of %s is %d, want %d", e.Type, e.Got, e.Want)
}

// ProtocolError says what the runtime did against the protocol.
type ProtocolError struct {
	During string // what the client was doing
	Err    error
}

func (e *ProtocolError) Error() string { return e.During + ": " + e.Err.Error() }

func (e *ProtocolError) Unwrap() error { return e.Err }

func unexpected(during string, t arcp.Type) error {
	return &ProtocolError{during, fmt.Errorf("unexpected %s", t)}
}
