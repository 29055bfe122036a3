package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/transport"
)

// silentIntervals without a byte end a connection (SPEC.md §6.6).
const silentIntervals = 2

// keepalive finds out whether the peer is still there: by session.ping if it
// negotiated heartbeats, by the transport's own pings otherwise. Without
// heartbeats, or if they are rare, the transport's pings go on so that a client
// that only listens keeps its lease.
type keepalive struct {
	interval time.Duration
	silence  time.Duration // ends the connection; 0: none does
	due      time.Time     // zero: never
	messages bool          // session.ping
}

func (b *keepalive) begin(c *conn, now time.Time) {
	b.interval = c.srv.opts.Heartbeat
	if b.interval > 0 {
		b.silence = silentIntervals * b.interval
		b.messages = c.negotiated(arcp.FeatureHeartbeat)
	}
	if lease := c.srv.opts.SessionLease; lease > 0 && (b.interval <= 0 || b.interval > lease/2) {
		b.interval = lease / 3
	}
	if b.interval > 0 && (b.messages || c.tc.Info().Pings) {
		b.due = now.Add(b.interval)
	}
}

// advanceKeepalive pings the peer when it is time to, or ends the connection: the session
// and its jobs go on.
func (c *conn) advanceKeepalive(now time.Time) {
	b := &c.keepalive
	if b.due.IsZero() || now.Before(b.due) {
		return
	}
	b.due = now.Add(b.interval)
	switch {
	case b.silence > 0 && now.Sub(c.tc.LastSeen()) >= b.silence:
		c.ending.close = &machine.Close{Code: int(transport.ClosePolicy), Reason: "heartbeat lost"}
	case b.messages:
		c.send(now, arcp.Frame(arcp.SessionPing, arcp.SessionPingPayload{Nonce: string(arcp.NewMessageID()), SentAt: now.UTC()}))
	default:
		_ = c.tc.Ping() // fails if the connection has: the reader sees it
	}
}
