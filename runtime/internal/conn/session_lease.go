package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// sessionLease passes the time to the machine, and the activity that the machine does not see: transport pings,
// jobs, subscriptions and sent events (SPEC.md §5.1).
type sessionLease struct {
	c         *conn
	lastEvent time.Time // when the last event was sent
}

// advance advances the machine if its deadline has passed.
func (l *sessionLease) advance(now time.Time) {
	d := l.c.machine.Deadline()
	if d.IsZero() || now.Before(d) {
		return
	}
	if l.c.machine.Phase() == machine.Accepted {
		l.c.machine.RecordActivity(machine.Activity{Received: l.lastReceived(now), Worked: l.lastWorked(now)})
	}
	l.c.machine.Advance(now)
}

// eventSent records that an event was appended to the batch.
func (l *sessionLease) eventSent(now time.Time) { l.lastEvent = now }

// lastReceived returns when anything was last received from the client. It returns now for a local
// client without pings: the operating system reports its end.
func (l *sessionLease) lastReceived(now time.Time) time.Time {
	if info := l.c.tc.Info(); info.Local && !info.Pings && !l.c.keepalive.sendsMessages {
		return now
	}
	return l.c.tc.LastSeen()
}

// lastWorked returns when the session last had a job or a subscription, or was sent an event.
func (l *sessionLease) lastWorked(now time.Time) time.Time {
	if len(l.c.subscriptions.list) > 0 || len(l.c.follows.jobs) > 0 || l.c.srv.opts.Engine.SessionJobs().HasActive(l.c.id) {
		return now
	}
	return l.lastEvent
}

// recordEviction counts and audits an eviction by the machine or the configuration.
func (s *Server) recordEviction(id arcp.SessionID, cause machine.Cause, reason string) {
	s.opts.Metrics.Evictions.WithLabelValues(string(cause)).Inc()
	s.opts.Audit.Event("evict", "runtime", "").Str("target", string(id)).Str("decision", "allowed").Str("reason", reason).Msg("audit")
}
