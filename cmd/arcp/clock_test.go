package main

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// The times in messages of the runtime are shown in the local time zone, as all others. It is UTC in tests.
func TestTimesInMessagesAreLocal(t *testing.T) {
	for message, want := range map[string]string{
		"the next attempt starts at 2026-01-02T23:04:05-01:30":                              "the next attempt starts at 2026-01-03 00:34:05",
		"the job was due at 2026-01-02T03:04:05-01:30, and the runtime could not":           "the job was due at 2026-01-02 04:34:05, and the runtime could not",
		"the lease expired at 2026-01-02T03:04:05.25-01:30":                                 "the lease expired at 2026-01-02 04:34:05",
		"it has until 2026-01-02T03:04:05+02:00 to  reconnect":                              "it has until 2026-01-02 01:04:05 to  reconnect",
		"the file 2026-01-02T03:04:05-01:30.log, 2026-01-02 and \"2026-01-02T03:04-01:30\"": "the file 2026-01-02T03:04:05-01:30.log, 2026-01-02 and \"2026-01-02T03:04-01:30\"",
	} {
		if got := localTimes(message); got != want {
			t.Errorf("localTimes(%q) = %q, want %q", message, got, want)
		}
	}
	const text = "the lease expired at 2026-01-02T03:04:05-01:30"
	env := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventWaiting, Data: arcp.Raw(`{"message":"` + text + `"}`)})
	if got, _ := describe(&env); got != "waiting    the lease expired at 2026-01-02 04:34:05" {
		t.Errorf("the event waiting is shown as %q, want the local time", got)
	}
	env = arcp.Frame(arcp.JobFailed, arcp.ErrorPayload{Code: arcp.CodeLeaseExpired, Message: text})
	if got, _ := describe(&env); got != "failed     LEASE_EXPIRED the lease expired at 2026-01-02 04:34:05" {
		t.Errorf("the failure is shown as %q, want the local time", got)
	}
	if got := failureText(arcp.CodeInternal, text); got != text {
		t.Errorf("the message of a tool is shown as %q, want %q", got, text)
	}
}
