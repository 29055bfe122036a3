package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Activity holds the two times on which the deadline of an accepted session depends (SPEC.md
// §5.1). A message only moves them. The deadline is computed again when it has passed, so that
// a busy connection does not set its timer for each message.
type Activity struct {
	Received time.Time // when anything last came from the client, also below ARCP
	Worked   time.Time // when the session last did more than keep its connection alive
}

// Cause is the cause of an eviction by the machine, a metric label.
type Cause string

// The causes.
const (
	LeaseExpired      Cause = "lease_expired"      // nothing was received for Config.Lease
	CredentialExpired Cause = "credential_expired" // no new credential was received in time
	CredentialRefused Cause = "credential_refused" // maxFailures new credentials were refused
	Idle              Cause = "idle"               // the session had no work for Config.Idle
)

// record sets the times for a received message. Pings and acknowledgements are not work.
func (a *Activity) record(now time.Time, t arcp.Type) {
	a.Received = now
	switch t {
	case arcp.Ping, arcp.Pong, arcp.SessionPing, arcp.SessionPong, arcp.SessionAck, arcp.Ack:
	default:
		a.Worked = now
	}
}

// leaseEnd returns when the session is evicted unless something is received; zero: never.
func (a *Activity) leaseEnd(cfg *Config) time.Time { return after(a.Received, cfg.Lease) }

// idleEnd returns when the session is evicted unless it has work; zero: never.
func (a *Activity) idleEnd(cfg *Config) time.Time { return after(a.Worked, cfg.Idle) }

func (a *Activity) deadline(cfg *Config) time.Time { return earliest(a.leaseEnd(cfg), a.idleEnd(cfg)) }

// passed reports whether t is not after now; zero is never.
func passed(now, t time.Time) bool { return !t.IsZero() && !now.Before(t) }

// after returns t + d. It returns zero, which is never, if d is not positive.
func after(t time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return t.Add(d)
}

// earliest returns the earlier of two times; zero is never, not the year 1.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
