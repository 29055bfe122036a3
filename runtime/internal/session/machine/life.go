package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// life holds the signs of life on which the deadline of an accepted session depends (SPEC.md
// §5.1). Messages only move the two times. The deadline is computed again when it has passed,
// so that a busy connection does not set its timer for each message.
type life struct {
	received time.Time // last sign of life of the client
	worked   time.Time // last sign of more than life
}

// Cause says why the machine evicted its session: a metric label.
type Cause string

// The causes.
const (
	LeaseExpired      Cause = "lease_expired"      // the client was silent
	CredentialExpired Cause = "credential_expired" // and no new one has come
	CredentialRefused Cause = "credential_refused" // too often, when it was to be renewed
	Idle              Cause = "idle"               // nothing but signs of life
)

// Signs are signs of life that the machine does not see itself.
type Signs struct {
	Received time.Time // when anything last came from the client, also below ARCP
	Worked   time.Time // when the session last had a job or a subscription, or an event was sent
}

// receive counts a message as a sign of life and, unless its type is only that, as work.
func (l *life) receive(now time.Time, t arcp.Type) {
	l.received = now
	switch t {
	case arcp.Ping, arcp.Pong, arcp.SessionPing, arcp.SessionPong, arcp.SessionAck, arcp.Ack:
	default:
		l.worked = now
	}
}

// leaseEnd returns when the session is evicted if nothing comes from the client; zero: never.
func (l *life) leaseEnd(cfg *Config) time.Time { return after(l.received, cfg.Lease) }

// idleEnd returns when the session is evicted if it has no work; zero: never.
func (l *life) idleEnd(cfg *Config) time.Time { return after(l.worked, cfg.Idle) }

func (l *life) deadline(cfg *Config) time.Time { return earliest(l.leaseEnd(cfg), l.idleEnd(cfg)) }

func due(now, t time.Time) bool { return !t.IsZero() && !now.Before(t) }

// after returns t + d; zero, that is never, if d is off.
func after(t time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return t.Add(d)
}

// earliest returns the earlier of two times; zero is never.
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
