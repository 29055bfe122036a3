package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitAuth        = 3
	exitDenied      = 4
	exitTimeout     = 5
	exitCancelled   = 6
	exitUnreachable = 7
	exitInterrupted = 130 // 128 + SIGINT, as in shells
)

// exitError is an error with an exit code. A nil err was already printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func failf(format string, args ...any) error {
	return &exitError{exitFailed, fmt.Errorf(format, args...)}
}

// errInterrupted is the cause of a context that SIGINT or SIGTERM ended.
var errInterrupted = errors.New("interrupted")

// errCancelling is errInterrupted while the job is being cancelled.
var errCancelling = fmt.Errorf("%w", errInterrupted)

// exitCode returns the exit code of an error. An error without a code is an error of parsing the arguments.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitUsage
}

// withExitCode adds the exit code to the error of a command.
func withExitCode(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	return &exitError{codeOf(err), err}
}

func codeOf(err error) int {
	if e, ok := errors.AsType[*client.JobError](err); ok && e.State == arcp.StateCancelled {
		return exitCancelled
	}
	if e, ok := errors.AsType[*client.RemoteError](err); ok {
		if errors.Is(err, client.ErrSessionLost) && e.Code != arcp.CodeUnauthenticated {
			return exitUnreachable
		}
		return codeOfRemote(e)
	}
	if e, ok := errors.AsType[*client.CancelRefusedError](err); ok && e.Reason == "permission_denied" {
		return exitDenied
	}
	if _, ok := errors.AsType[*client.UnsupportedError](err); ok {
		return exitUsage
	}
	switch {
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrConnectionLost), errors.Is(err, client.ErrSessionLost):
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	}
	return exitFailed
}

// codeOfRemote returns the exit code for a failure reported by the runtime.
func codeOfRemote(e *client.RemoteError) int {
	switch e.Code {
	case arcp.CodeUnauthenticated:
		return exitAuth
	case arcp.CodePermissionDenied:
		return exitDenied
	case arcp.CodeTimeout, arcp.CodeDeadlineExceeded:
		return exitTimeout
	case arcp.CodeCancelled:
		return exitCancelled
	}
	if strings.HasPrefix(string(e.Code), "LEASE_") || strings.HasPrefix(string(e.Code), "BUDGET_") {
		return exitDenied
	}
	return exitFailed
}

// report prints an error as one line, and mistakes in the configuration as one line each.
func (a *app) report(err error) {
	if e, ok := errors.AsType[*exitError](err); err == nil || ok && e.err == nil {
		return
	}
	text := readable(err)
	if list := mistakesOf(err); len(list) > 1 && !a.json {
		fmt.Fprintf(a.stderr, "arcp: %d mistakes in the configuration:\n", len(list))
		for _, m := range list {
			fmt.Fprintln(a.stderr, oneLine(m.Error()))
		}
		return
	}
	if a.json {
		fmt.Fprintf(a.stderr, "%s\n", errorJSON(err, text))
		return
	}
	fmt.Fprintf(a.stderr, "arcp: %s\n", text)
}

// readable returns the text of err as one line, without control characters and without the message
// types that the client adds.
func readable(err error) string {
	text := strings.Join(strings.Fields(oneLine(err.Error())), " ")
	if _, ok := errors.AsType[*client.UnsupportedError](err); ok {
		return text + "; use --dialect rfc"
	}
	e, ok := errors.AsType[*client.RemoteError](err)
	if !ok {
		return text
	}
	text = failureText(e.Code, strings.Replace(text, string(e.Type)+": "+e.RawCode, e.RawCode, 1))
	if typ, rest, ok := strings.Cut(text, ": "); ok && arcp.Lookup(arcp.Type(typ)) != nil {
		text = rest
	}
	if id := oldestAvailable(e); id != "" {
		text += "; the oldest available event is " + id
	}
	if after, ok := arcp.RetryAfterOf(e.Details); ok && e.Retryable && after > 0 {
		text += "; try again in " + after.String()
	}
	return text
}

// oldestAvailable returns details.oldest_message_id of a DATA_LOSS, or "".
func oldestAvailable(e *client.RemoteError) string {
	var d arcp.LostDetails
	if e.Code != arcp.CodeDataLoss || len(e.Details) == 0 || arcp.Unmarshal(e.Details, &d) != nil {
		return ""
	}
	return string(d.OldestMessageID)
}

// errorJSON returns an error as one line of JSON.
func errorJSON(err error, text string) []byte {
	var out struct {
		Error struct {
			Exit      int        `json:"exit"`
			Code      string     `json:"code,omitzero"`
			Message   string     `json:"message"`
			Retryable bool       `json:"retryable,omitzero"`
			Details   arcp.Raw   `json:"details,omitzero"`
			JobID     arcp.JobID `json:"job_id,omitzero"`
		} `json:"error"`
	}
	out.Error.Exit, out.Error.Message = exitCode(err), text
	if e, ok := errors.AsType[*client.RemoteError](err); ok {
		out.Error.Code, out.Error.Message = e.RawCode, e.Message
		out.Error.Retryable, out.Error.Details = e.Retryable, e.Details
	}
	if e, ok := errors.AsType[*client.JobError](err); ok {
		out.Error.JobID = e.JobID
	}
	line, encErr := arcp.Marshal(out)
	if encErr != nil { // impossible: details were received as JSON
		return arcp.AppendString(nil, text)
	}
	return line
}
