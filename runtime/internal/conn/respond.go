package conn

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// actor is the session of a connection as one that is asked.
func (c *conn) actor() approval.Actor {
	return actor.Of(&c.principal.identity, c.id, c.negotiated(arcp.FeatureHumanInput))
}

// negotiated reports whether the session negotiated a feature, also while the
// machine does not know yet which session it is.
func (c *conn) negotiated(f arcp.Feature) bool { return slices.Contains(c.row.Negotiated, f) }

// identify sets the actor of the session, and offers it pending questions and work.
func (c *conn) identify() {
	if c.session == nil { // it is being attached
		return
	}
	w := c.actor()
	c.session.Identify((*sessionConn)(c), w)
	c.srv.opts.Questions.Arrive(w)
	c.offerWork(w)
}

// respond passes an answer of the client to the job that asks.
func (c *conn) respond(now time.Time, cmd machine.Respond) {
	who := c.actor()
	a, ok := c.srv.opts.Questions.Find(string(cmd.Question))
	if !ok || a.Row.Job == "" || notAsked(&a.Row, &who) {
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodeNotFound, "no question %s is pending: it was answered, withdrawn or never asked", cmd.Question))
		return
	}
	if err := fits(&a.Row, &cmd); err != nil {
		c.nack(now, cmd.Request, err)
		return
	}
	c.pending.owed.Add(1)
	c.srv.opts.Engine.Respond(engine.Respond{Job: a.Row.Job, ID: a.Row.ID, Request: cmd.Request, Who: who, Answer: cmd.Answer,
		Done: func(row approval.Row, err *arcp.Error) {
			switch {
			case err != nil:
				pendingReply{c}.Answer(answerTo(cmd.Request, arcp.Nack, err))
			case row.Resolution == approval.Granted: // lease.granted is the answer
				c.settle()
			default:
				pendingReply{c}.Answer(answerTo(cmd.Request, arcp.Ack, arcp.AckPayload{}))
			}
			c.runAsync(func() { c.srv.opts.Questions.AuditAnswer(&who, &a.Row, &cmd.Answer, err) })
		}})
}

// notAsked reports whether a question does not exist for an actor.
func notAsked(q *approval.Row, w *approval.Actor) bool {
	err := q.MayAnswer(w)
	return err != nil && err.Code == arcp.CodeNotFound
}

// fits refuses an answer of another kind than the question.
func fits(q *approval.Row, cmd *machine.Respond) *arcp.Error {
	want := arcp.HumanChoiceResponse
	switch q.Kind {
	case approval.Permission:
		want = arcp.PermissionGrant
		if cmd.Type == arcp.PermissionDeny {
			want = arcp.PermissionDeny
		}
	case approval.Input:
		want = arcp.HumanInputResponse
	}
	if cmd.Type != want {
		return arcp.Errorf(arcp.CodeInvalidArgument, "the question is answered with %s, not %s", want, cmd.Type)
	}
	return nil
}

func answerTo(request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	return env
}

// extendLease answers lease.refresh.
func (c *conn) extendLease(cmd machine.ExtendLease) {
	c.pending.owed.Add(1)
	c.srv.opts.Engine.Extend(engine.Extend{Lease: cmd.Lease, More: cmd.More, Request: cmd.Request, Who: c.actor(), Done: c.leaseDone(arcp.LeaseRefresh, cmd.Lease, cmd.Request)})
}

// revokeLease answers lease.revoked of a client.
func (c *conn) revokeLease(cmd machine.RevokeLease) {
	c.pending.owed.Add(1)
	c.srv.opts.Engine.Revoke(engine.Revoke{Lease: cmd.Lease, Reason: cmd.Reason, Request: cmd.Request, Who: c.actor(), Done: c.leaseDone(arcp.LeaseRevoked, cmd.Lease, cmd.Request)})
}

// leaseDone tells a client what it is not told by an event, and records what it
// wanted of a permission lease.
func (c *conn) leaseDone(action arcp.Type, id arcp.LeaseID, request arcp.MessageID) func(*arcp.Error) {
	who := c.actor()
	return func(err *arcp.Error) {
		if err == nil {
			c.settle()
		} else {
			pendingReply{c}.Answer(answerTo(request, arcp.Nack, err))
		}
		c.runAsync(func() { c.srv.opts.Audit.Decision(string(action), who.Principal, who.Session, string(id), err) })
	}
}

// runAsync runs f outside of the caller's path, for example to write a log record.
func (c *conn) runAsync(do func()) {
	if !c.post(func(time.Time) { do() }) {
		c.srv.opts.Pool.Run(do)
	}
}
