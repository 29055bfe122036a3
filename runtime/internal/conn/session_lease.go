package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// sessionLease supplies the machine with the signs of life that are not messages (SPEC.md
// §5.1).
type sessionLease struct {
	c      *conn
	worked time.Time // when an event was sent last
}

// advance tells the machine that time has passed, after the signs of life. In most turns nothing
// is due.
func (l *sessionLease) advance(now time.Time) {
	d := l.c.m.Deadline()
	if d.IsZero() || now.Before(d) {
		return
	}
	if l.c.m.Phase() == machine.Accepted {
		l.c.m.RecordActivity(machine.Activity{Received: l.lastReceived(now), Worked: l.lastWorked(now)})
	}
	l.c.m.Advance(now)
}

// lastReceived returns when anything last came from the client. For a local client that no ping
// reaches it is now: the operating system reports its end.
func (l *sessionLease) lastReceived(now time.Time) time.Time {
	if info := l.c.tc.Info(); info.Local && !info.Pings && !l.c.keepalive.messages {
		return now
	}
	return l.c.tc.LastSeen()
}

// lastWorked returns when the session last had a job or a subscription, or an event was sent.
func (l *sessionLease) lastWorked(now time.Time) time.Time {
	if len(l.c.subscriptions.list) > 0 || len(l.c.follows.jobs) > 0 || l.c.srv.opts.Engine.HasJobs(l.c.id) {
		return now
	}
	return l.worked
}

// evictedByRuntime counts and records an eviction by the machine or by the configuration.
func (s *Server) evictedByRuntime(id arcp.SessionID, cause machine.Cause, reason string) {
	s.opts.Metrics.Evictions.WithLabelValues(string(cause)).Inc()
	s.auditEviction(id, reason)
}

// auditEviction records an eviction by the runtime itself.
func (s *Server) auditEviction(id arcp.SessionID, reason string) {
	s.opts.Audit.Event("evict", "runtime", "").Str("target", string(id)).Str("decision", "allowed").Str("reason", reason).Msg("audit")
}
