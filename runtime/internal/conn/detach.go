package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// detach detaches a connection that has ended from its session, its principal and the worker
// pool. Without acknowledgements it stores the position for the next connection.
func (c *conn) detach() {
	now := time.Now()
	actions, _ := c.inbox.takeActions()
	for _, a := range actions { // for example a session that was stored after the end
		a.run(c, now)
	}
	c.subscriptions.close()
	s := c.srv
	c.worker.detach()
	var written uint64
	if c.events.cursor != nil {
		written = c.events.cursor.Position()
		c.events.cursor.Close()
		c.ack.trim()
	}
	if c.rates.principal != nil {
		s.limiters.leave(c.principal.identity.Principal)
	}
	if c.session.Session == nil || !c.session.Detach((*sessionConn)(c), now) {
		return
	}
	s.opts.Engine.Streams().Release(c.id)
	c.ack.savePosition()
	if !c.ack.clientAcks {
		s.opts.Log.Release(c.id, written)
	}
	if s.opts.Engine.SessionJobs().Has(c.id) {
		s.CancelAfterGrace(c.id, now)
	}
}

// onDisconnectGrace is how long a session may have no connection until its jobs with on_disconnect
// "cancel" are cancelled.
const onDisconnectGrace = 5 * time.Second

// CancelAfterGrace cancels the jobs of a session with on_disconnect "cancel" after
// onDisconnectGrace. It cancels none if the session has a connection again. since is when the
// session was detached.
func (s *Server) CancelAfterGrace(id arcp.SessionID, since time.Time) {
	time.AfterFunc(onDisconnectGrace, func() { s.cancelUnlessReattached(id, since) })
}

// cancelUnlessReattached cancels the jobs of a session with on_disconnect "cancel", unless the
// session has had a connection after since.
func (s *Server) cancelUnlessReattached(id arcp.SessionID, since time.Time) {
	if found := s.opts.Sessions.Find(id); found != nil {
		if detached, ok := found.DetachedSince(); !ok || !detached.Equal(since) {
			return
		}
	}
	s.opts.Engine.SessionJobs().CancelOnDisconnect(id, "session disconnected")
}
