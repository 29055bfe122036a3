package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/transport"
)

// loopAction is an action that another goroutine posts to the inbox for the loop.
type loopAction interface{ run(c *conn, now time.Time) }

// loopFunc calls a function on the loop, for example after a commit; see inbox.runOnLoop.
type loopFunc func(now time.Time)

func (f loopFunc) run(_ *conn, now time.Time) { f(now) }

// readerEnded cancels authentications and lists of jobs, because the client is gone.
type readerEnded struct{}

func (readerEnded) run(c *conn, _ time.Time) { c.tasks.disconnect() }

// barrier is closed when the loop has handled the acknowledgements and actions before it.
type barrier chan struct{}

func (b barrier) run(*conn, time.Time) { close(b) }

// shutdown sends session.close and ends the connection, because the runtime shuts down.
type shutdown struct{}

func (shutdown) run(c *conn, now time.Time) {
	if c.ending.begun() {
		return
	}
	if c.machine.Phase() == machine.Accepted {
		c.events.pull(now) // session.close follows the events of the session
		c.send(now, arcp.Frame(arcp.SessionClose, arcp.SessionClosePayload{Reason: "shutdown"}))
	}
	c.ending.closeWith(transport.CloseGoingAway, "shutdown")
}

// evict ends the connection of an evicted session.
type evict session.Eviction

func (e evict) run(c *conn, _ time.Time) { c.machine.Evict(e.Code, e.Reason) }

// outgoing is an envelope that is not in the session's log. It answers request if that is set.
type outgoing struct {
	request arcp.MessageID
	t       arcp.Type
	payload any
}

func (o outgoing) run(c *conn, now time.Time) { c.reply(now, o.request, o.t, o.payload) }

// workerFrame is an envelope for a worker. The outbox expects its size; see workerLink.Expect.
type workerFrame struct {
	env  arcp.Envelope
	size int
}

func (wf *workerFrame) run(c *conn, now time.Time) {
	if !c.output.sidecar {
		wf.env.Inline()
	}
	c.send(now, wf.env)
	c.output.currentExpected += wf.size
}

// catalogChanged makes the loop compare the session's catalog with the one of the client.
type catalogChanged struct{}

func (catalogChanged) run(c *conn, _ time.Time) { c.catalog.markStale() }

// backlogOverflow reports that the events of the session up to a number are deleted.
type backlogOverflow struct{ upTo uint64 }

func (o backlogOverflow) run(c *conn, now time.Time) { c.ack.overflow(now, o.upTo) }

// revalidation checks the session's identity again after a change of the configuration.
type revalidation struct{}

func (revalidation) run(c *conn, now time.Time) { c.renewal.revalidate(now) }
