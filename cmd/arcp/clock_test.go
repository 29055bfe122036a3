package main

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// The times in messages of the runtime are shown in the local time zone, as all others.
func TestTimesInMessagesAreLocal(t *testing.T) {
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	time.Local = time.FixedZone("test", 90*60)
	for message, want := range map[string]string{
		"the next attempt starts at 2026-01-02T23:04:05Z":                         "the next attempt starts at 2026-01-03 00:34:05",
		"the job was due at 2026-01-02T03:04:05Z, and the runtime could not":      "the job was due at 2026-01-02 04:34:05, and the runtime could not",
		"the lease expired at 2026-01-02T03:04:05.25Z":                            "the lease expired at 2026-01-02 04:34:05",
		"it has until 2026-01-02T03:04:05+02:00 to  reconnect":                    "it has until 2026-01-02 02:34:05 to  reconnect",
		"the file 2026-01-02T03:04:05Z.log, 2026-01-02 and \"2026-01-02T03:04Z\"": "the file 2026-01-02T03:04:05Z.log, 2026-01-02 and \"2026-01-02T03:04Z\"",
	} {
		if got := localTimes(message); got != want {
			t.Errorf("localTimes(%q) = %q, want %q", message, got, want)
		}
	}
	const utc = "the lease expired at 2026-01-02T03:04:05Z"
	env := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventWaiting, Data: arcp.Raw(`{"message":"` + utc + `"}`)})
	if got, _ := describe(&env); got != "waiting    the lease expired at 2026-01-02 04:34:05" {
		t.Errorf("the event waiting is shown as %q, want the local time", got)
	}
	env = arcp.Frame(arcp.JobFailed, arcp.ErrorPayload{Code: arcp.CodeLeaseExpired, Message: utc})
	if got, _ := describe(&env); got != "failed     LEASE_EXPIRED the lease expired at 2026-01-02 04:34:05" {
		t.Errorf("the failure is shown as %q, want the local time", got)
	}
	if got := failureText(arcp.CodeInternal, utc); got != utc {
		t.Errorf("the message of a tool is shown as %q, want %q", got, utc)
	}
}
