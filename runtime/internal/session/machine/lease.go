package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// life is what the deadline of an accepted session depends on: frames of its client, work, and
// the credential (SPEC.md §5.1). Frames only move the two times. The deadline is computed
// again when it has passed, so that a busy connection does not set its timer for each frame.
type life struct {
	heard  time.Time // the client's last sign of life
	worked time.Time // last time there was more than signs of life

	expires  time.Time // the credential's end; zero: none
	ask      time.Time // for a fresh one; zero: that is not done, or was done
	renewal  renewal
	request  arcp.MessageID // the session.authenticate that is being dealt with
	proof    challenge      // what its response has to answer
	identity *Identity      // that the session is about to have
}

// renewal is where the client is with a fresh credential.
type renewal uint8

const (
	unasked   renewal = iota // entered by session.accepted; left when the credential's end nears
	reminding                // entered when it does; left when it is known whether a challenge is due
	awaiting                 // entered by session.refresh; left by session.authenticate
	judging                  // entered by session.authenticate; left when the credential was judged
	renewing                 // entered by a good credential; left when that is durable
)

// Cause says why the machine evicted its session: a metric label.
type Cause string

// The causes.
const (
	LeaseExpired      Cause = "lease_expired"      // nothing was heard of the client
	CredentialExpired Cause = "credential_expired" // and no fresh one has come
	CredentialRefused Cause = "credential_refused" // too often, when it was to be renewed
	Idle              Cause = "idle"               // nothing but signs of life
)

// How long before its end a fresh credential is asked for: the part of the time
// that is left of it then, and the least. One that lives no longer than that is
// asked for when half of it is over.
const (
	askPart  = 10
	askLeast = time.Minute
)

// Signs are signs of life that the machine does not see itself.
type Signs struct {
	Heard  time.Time // when anything last came from the client, also below ARCP
	Worked time.Time // when the session last had a job or a subscription, or an event was sent
}

// Notice adds signs of life. It is called before Advance.
func (m *Machine) Notice(s Signs) {
	m.life.heard = later(m.life.heard, s.Heard)
	m.life.worked = later(m.life.worked, s.Worked)
}

// live begins the life of an accepted session.
func (m *Machine) live(now time.Time) {
	m.life = life{heard: now, worked: now}
	m.credit(now)
}

// credit takes over the end of the session's credential.
func (m *Machine) credit(now time.Time) {
	l := &m.life
	l.expires, l.ask, l.renewal = m.identity.Expires, time.Time{}, unasked
	if l.expires.IsZero() || !m.negotiate.has(arcp.FeatureRefresh) {
		return
	}
	whole := l.expires.Sub(now)
	before := max(whole/askPart, askLeast)
	if before >= whole {
		before = whole / 2
	}
	l.ask = l.expires.Add(-before)
}

// Identify replaces the identity of an accepted session with the one that the
// same credential has now.
func (m *Machine) Identify(id Identity) { m.identity = id }

// lived counts a frame as a sign of life and, unless it is only that, as work.
func (m *Machine) lived(now time.Time, t arcp.Type) {
	m.life.heard = now
	switch t {
	case arcp.Ping, arcp.Pong, arcp.SessionPing, arcp.SessionPong, arcp.SessionAck, arcp.Ack:
	default:
		m.life.worked = now
	}
}

// leaseEnd is when the session is evicted if nothing is heard; zero: never.
func (m *Machine) leaseEnd() time.Time { return after(m.life.heard, m.cfg.Lease) }

// idleEnd is when the session is evicted if nothing is done; zero: never.
func (m *Machine) idleEnd() time.Time { return after(m.life.worked, m.cfg.Idle) }

// credentialEnd is when the session is evicted because of its credential; zero:
// never, or not while a fresh one that came in time is being looked at.
func (m *Machine) credentialEnd() time.Time {
	if m.life.renewal >= judging {
		return time.Time{}
	}
	return m.life.expires
}

// lifeDeadline is when keepAlive has something to do.
func (m *Machine) lifeDeadline() time.Time {
	return earliest(earliest(m.leaseEnd(), m.idleEnd()), earliest(m.credentialEnd(), m.life.ask))
}

// keepAlive ends a session whose time is over, or asks for a fresh credential.
func (m *Machine) keepAlive(now time.Time) {
	switch {
	case due(now, m.credentialEnd()):
		m.evict(CredentialExpired, arcp.CodeUnauthenticated, "the credential of the session has expired")
	case due(now, m.leaseEnd()):
		m.evict(LeaseExpired, arcp.CodeLeaseExpired, "nothing was heard for "+m.cfg.Lease.String())
	case due(now, m.idleEnd()):
		m.evict(Idle, arcp.CodeDeadlineExceeded, "the session did nothing for "+m.cfg.Idle.String())
	case due(now, m.life.ask):
		m.life.ask = time.Time{}
		m.remind("")
	}
}

// lease returns the lease in session.accepted: it ends after the longest allowed silence, but
// not after the credential.
func (m *Machine) lease(now time.Time) *arcp.SessionLease {
	end := earliest(after(now, m.cfg.Lease), m.life.expires)
	if end.IsZero() {
		return nil
	}
	return &arcp.SessionLease{ExpiresAt: end}
}

// evict ends an accepted session's connection for a cause of the machine's own.
func (m *Machine) evict(cause Cause, code arcp.Code, reason string) {
	m.Evict(code, reason)
	m.out.Close.Evicted = cause
}

func due(now, t time.Time) bool { return !t.IsZero() && !now.Before(t) }

// after is d later than t; zero, that is never, if d is off.
func after(t time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return t.Add(d)
}

// earliest is the earlier of two times of which zero is never.
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
