package conn

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// handOff handles agent.handoff to another session of this runtime (SPEC.md §5.20). No frame is handled
// until the answer is sent: a session.close that follows finds the jobs handed over.
func (cm *commands) handOff(now time.Time, env *arcp.Envelope, p *arcp.AgentHandoffPayload) error {
	c := cm.c
	switch own := c.srv.opts.Runtime.Fingerprint; {
	case p.Runtime.Fingerprint != own:
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeUnimplemented, "jobs are handed over within this runtime only: runtime.fingerprint has to be %q, as in session.accepted", own))
		return nil
	case p.SessionID == "":
		return errInvalid("session_id is missing: the session that gets the jobs")
	case !p.SessionID.Valid():
		c.refuseID(now, env, "session_id", arcp.SessionPrefix)
		return nil
	case p.SessionID == c.id:
		return errInvalid("session_id is the session that hands over; want another one")
	case env.JobID != "" && !env.JobID.Valid():
		c.refuseID(now, env, "job_id", arcp.JobPrefix)
		return nil
	}
	h := engine.Handoff{Session: c.id, Principal: c.principal.identity.Principal, Job: env.JobID, To: p.SessionID, Reason: machine.ClipReason(p.Reason)}
	c.unanswered.add()
	c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		moved, refused := cm.handOver(ctx, &h)
		rows := c.rowsOf(ctx, moved)
		c.unanswered.done()
		return func(now time.Time) {
			if refused != nil {
				c.nack(now, env.ID, refused)
				return
			}
			for _, id := range moved {
				delete(c.follows.jobs, id) // the subscription has ended with the ownership
			}
			for i := range rows { // events that follow do not make them followed again
				c.follows.addUnfollowed(&rows[i])
			}
			c.reply(now, env.ID, arcp.Ack, arcp.AckPayload{})
		}
	})
	return nil
}

// rowsOf returns the rows of jobs, at most maxUnfollowed. It leaves out those that are deleted or cannot be read.
func (c *conn) rowsOf(ctx context.Context, ids []arcp.JobID) (rows []store.Job) {
	for _, id := range ids[:min(len(ids), maxUnfollowed)] {
		row, err := c.srv.opts.Store.Job(ctx, id)
		if err == nil {
			rows = append(rows, row)
		} else if !errors.Is(err, store.ErrNotFound) {
			c.srv.opts.Logger.Error().Err(err).Str("job_id", string(id)).Msg("read a job that was handed over")
		}
	}
	return rows
}

// handOver hands the jobs over, and returns them, or the refusal.
func (cm *commands) handOver(ctx context.Context, h *engine.Handoff) ([]arcp.JobID, *arcp.Error) {
	opts := &cm.c.srv.opts
	jobs := opts.Engine.SessionJobs()
	jobs.AwaitClaims(ctx, h.Session)
	to, err := opts.Store.Session(ctx, h.To)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && to.Principal != h.Principal:
		return nil, arcp.Errorf(arcp.CodeNotFound, "no such session")
	case err != nil:
		opts.Logger.Error().Err(err).Str("session_id", string(h.To)).Msg("read session")
		return nil, errUnreadable()
	case to.Dialect == arcp.DialectDraft:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "session %s speaks the 1.1 draft, in which no job is handed over", h.To)
	}
	release, err := opts.Sessions.DeferEnd(ctx, h.To)
	if err != nil { // it has ended
		return nil, arcp.Errorf(arcp.CodeNotFound, "no such session")
	}
	defer release()
	moved, refused := jobs.HandOver(ctx, h)
	if opts.Sessions.ConnOf(h.To) == nil {
		jobs.CancelIfOnDisconnect(moved, "session disconnected")
	}
	return moved, refused
}
