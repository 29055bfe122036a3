package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/transport"
)

// completion continues on the loop after an asynchronous task or a commit.
type completion func(now time.Time)

func (f completion) handle(_ *conn, now time.Time) { f(now) }

// readerEnded says that the client is gone: a credential need not be judged any more.
type readerEnded struct{}

func (readerEnded) handle(c *conn, _ time.Time) { c.tasks.endJudgement() }

// barrier is closed when the loop has handled everything that was queued before it.
type barrier chan struct{}

func (b barrier) handle(*conn, time.Time) { close(b) }

// shutdown ends the connection because the runtime shuts down.
type shutdown struct{}

func (shutdown) handle(c *conn, now time.Time) {
	if c.ending.close != nil || c.ending.err != nil {
		return // it is ending
	}
	if c.m.Phase() == machine.Accepted {
		c.events.pull(now) // events of the session before this
		c.send(now, arcp.Frame(arcp.SessionClose, arcp.SessionClosePayload{Reason: "shutdown"}))
	}
	c.ending.close = &machine.Close{Code: int(transport.CloseGoingAway), Reason: "shutdown"}
}

// eviction evicts the session.
type eviction session.Eviction

func (e eviction) handle(c *conn, _ time.Time) { c.m.Evict(e.Code, e.Reason) }

// outgoing is an envelope outside of the session's log, an answer to request if that is set.
type outgoing struct {
	request arcp.MessageID
	t       arcp.Type
	payload any
}

func (o outgoing) handle(c *conn, now time.Time) { c.reply(now, o.request, o.t, o.payload) }

// dispatch is an envelope for a worker. Its size is expected by the outbox.
type dispatch struct {
	env  arcp.Envelope
	size int
}

func (d *dispatch) handle(c *conn, now time.Time) {
	c.send(now, d.env)
	c.output.moved += d.size
}

// catalogueChanged says that the session may see other tools than the client was told of.
type catalogueChanged struct{}

func (catalogueChanged) handle(c *conn, _ time.Time) { c.catalogue.stale = true }

// backlogOverflow says that the events of the session up to a number are not kept.
type backlogOverflow struct{ upTo uint64 }

func (o backlogOverflow) handle(c *conn, now time.Time) { c.ack.overflow(now, o.upTo) }

// recheck judges the session's credential again after a change of the configuration.
type recheck struct{}

func (recheck) handle(c *conn, now time.Time) { c.renewal.recheck(now) }
