package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// silentIntervals is the number of intervals without a received byte that ends a connection
// (SPEC.md §6.6).
const silentIntervals = 2

// keepalive detects that the peer is gone. It sends session.ping if the client negotiated
// heartbeats, otherwise pings of the transport. If heartbeats are off or rare, transport pings keep
// the lease of a client that sends nothing.
type keepalive struct {
	c             *conn
	interval      time.Duration
	silence       time.Duration // time without a received byte that ends the connection; 0: never
	due           time.Time     // time of the next ping; zero: never
	sendsMessages bool          // pings are session.ping
}

// begin starts the keepalive when the session is accepted.
func (k *keepalive) begin(now time.Time) {
	c := k.c
	k.interval = c.srv.opts.Heartbeat
	if k.interval > 0 {
		k.silence = silentIntervals * k.interval
		k.sendsMessages = c.session.negotiated(arcp.FeatureHeartbeat)
	}
	if lease := c.srv.opts.SessionLease; lease > 0 && (k.interval <= 0 || k.interval > lease/2) {
		k.interval = lease / 3
	}
	if k.interval > 0 && (k.sendsMessages || c.tc.Info().Pings) {
		k.due = now.Add(k.interval)
	}
}

// stop ends the keepalive.
func (k *keepalive) stop() { k.due = time.Time{} }

// advance sends a due ping, or ends the connection. The session and its jobs continue.
func (k *keepalive) advance(now time.Time) {
	if k.due.IsZero() || now.Before(k.due) {
		return
	}
	c := k.c
	k.due = now.Add(k.interval)
	switch {
	case k.silence > 0 && now.Sub(c.tc.LastSeen()) >= k.silence:
		if c.dialect.name() == arcp.DialectDraft {
			c.send(now, arcp.Frame(arcp.SessionEvicted, arcp.SessionEvictedPayload{Code: arcp.CodeHeartbeatLost, Reason: "nothing was received"}))
		}
		c.ending.closeWith(transport.ClosePolicy, "heartbeat lost")
	case k.sendsMessages:
		c.send(now, arcp.Frame(arcp.SessionPing, arcp.SessionPingPayload{Nonce: string(arcp.NewMessageID()), SentAt: now.UTC()}))
	default:
		_ = c.tc.Ping() // an error of the connection reaches the reader
	}
}
