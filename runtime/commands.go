package runtime

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/engine"
	"github.com/arcpd/arcpd/runtime/session"
	"github.com/arcpd/arcpd/runtime/store"
)

// command performs one command of the session.
func (c *conn) command(now time.Time, cmd session.Command) {
	switch cmd := cmd.(type) {
	case *session.Invoke:
		c.invoke(cmd)
	case session.CancelJob:
		c.owed.Add(1)
		c.rt.engine.Cancel(context.Background(), engine.Cancel{Request: cmd.Request, Job: cmd.Job,
			Principal: c.identity.Principal, Session: c.id, Reason: cmd.Reason, Deadline: cmd.Deadline, Answers: owing{c}})
	case session.CancelSession:
		c.cancelSession(now, cmd)
	case session.ListJobs:
		c.listJobs(now, cmd)
	case session.FollowJob:
		c.followJob(now, cmd)
	case session.UnfollowJob:
		c.unfollowJob(cmd.Job)
	case session.Acknowledge:
		c.acknowledge(cmd.Seq)
	case session.Leave:
		if cmd.CancelJobs {
			c.rt.engine.CancelSession(c.id, "session closed", true)
		}
	}
}

// owing takes the one answer of a command.
type owing struct{ *conn }

func (o owing) Post(answer any) bool   { defer o.settle(); return o.cursor.Post(answer) }
func (o owing) Answer(answer any) bool { defer o.settle(); return o.cursor.Answer(answer) }

func (c *conn) invoke(cmd *session.Invoke) {
	c.owed.Add(1)
	s := engine.Submit{Envelope: cmd.Envelope, Payload: &cmd.Payload, Session: c.id, Principal: c.identity.Principal,
		MaxJobs: c.identity.Limits.Jobs, Answers: c.cursor, Settled: c.settle}
	if cmd.Refused != nil {
		c.rt.engine.Refuse(&s, arcp.Nack, cmd.Refused)
		return
	}
	c.rt.engine.Submit(s)
}

// acknowledge forgets what the client has processed; a number it was never sent
// counts as everything it was sent (§5.3).
func (c *conn) acknowledge(seq uint64) {
	seq = min(seq, c.cursor.Position())
	if seq <= c.acked {
		return
	}
	c.acked = seq
	c.append(&store.Write{Trim: &store.Trim{Session: c.id, Seq: seq}, NoSync: true})
}

// append appends a write of which the client hears nothing.
func (c *conn) append(w *store.Write) {
	c.owed.Add(1)
	c.rt.log.Append(w, func(*store.Result) { c.settle() })
}

// cancelSession ends a session of the same principal (§5.7).
func (c *conn) cancelSession(now time.Time, cmd session.CancelSession) {
	other := c.rt.lookup(cmd.Session, c.identity.Principal)
	if other == nil {
		c.reply(now, cmd.Request, arcp.CancelRefused, arcp.CancelRefusedPayload{TargetID: string(cmd.Session),
			Reason: engine.RefusedUnknown, Code: arcp.CodeNotFound, Message: "no such session"})
		return
	}
	c.reply(now, cmd.Request, arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: string(cmd.Session)})
	if other == c {
		c.evict(arcp.CodeCancelled, "cancelled")
		return
	}
	other.post(func(time.Time) { other.evict(arcp.CodeCancelled, "cancelled") })
}

func (c *conn) evict(code arcp.Code, reason string) {
	c.rt.metrics.Evictions.WithLabelValues(reason).Inc()
	c.m.Evict(code, reason)
}

func (c *conn) reply(now time.Time, request arcp.MessageID, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	c.send(now, env)
}

func (c *conn) nack(now time.Time, request arcp.MessageID, err *arcp.Error) {
	c.reply(now, request, arcp.Nack, err)
}

// visible returns a job that the connection's principal may see.
func (c *conn) visible(id arcp.JobID) (store.Job, *arcp.Error) {
	return c.rt.visible(context.Background(), c.identity.Principal, id)
}

func (r *Runtime) visible(ctx context.Context, principal string, id arcp.JobID) (store.Job, *arcp.Error) {
	j, err := r.cfg.Store.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && j.Principal != principal:
		return store.Job{}, arcp.Errorf(arcp.CodeJobNotFound, "no such job: %s", id)
	case err != nil:
		r.cfg.Log.Error().Err(err).Str("job_id", string(id)).Msg("read job")
		return store.Job{}, arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	}
	return j, nil
}

// followJob makes the session follow a job: job.subscribed, then the events it
// asked for, then those to come (§5.4).
func (c *conn) followJob(now time.Time, cmd session.FollowJob) {
	j, refusal := c.visible(cmd.Payload.JobID)
	if refusal != nil {
		c.nack(now, cmd.Request, refusal)
		return
	}
	if _, again := c.follows[j.ID]; again || j.Session == c.id { // it follows already: nothing is sent twice
		env := arcp.Frame(arcp.JobSubscribed, subscribed(&j, j.LastSeq, false))
		env.JobID, env.CorrelationID = j.ID, cmd.Request
		c.send(now, env)
		return
	}
	from, err := c.from(&j, &cmd.Payload)
	if err != nil {
		c.log.Error().Err(err).Str("job_id", string(j.ID)).Msg("read job's events")
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodeUnavailable, "the job's events cannot be read"))
		return
	}
	if len(c.follows) >= maxFollows {
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodeResourceExhausted,
			"the session follows %d jobs already; unsubscribe from some", maxFollows).RetryAfter(1))
		return
	}
	c.remember(&j)
	c.owed.Add(1)
	c.rt.log.Append(&store.Write{Follow: c.follow(&j, from)}, func(r *store.Result) {
		if r.Err != nil || len(r.Runs) == 0 && j.State.Terminal() { // nothing of it will come
			c.post(func(time.Time) { delete(c.follows, j.ID) })
		}
		owing{c}.Answer(c.followed(cmd.Request, &j, r))
	})
}

func (c *conn) follow(j *store.Job, from uint64) *store.Follow {
	f := &store.Follow{Session: c.id, Job: j.ID, From: from, Origin: true}
	if arcp.HasPrefix(string(j.SubmitID), arcp.MessagePrefix) {
		f.CorrelationID = j.SubmitID
	}
	return f
}

// liveOnly as a position gives no history.
const liveOnly = math.MaxUint64

// from is the position in the job's log to follow it from.
func (c *conn) from(j *store.Job, p *arcp.JobSubscribePayload) (uint64, error) {
	if !p.History {
		return liveOnly, nil
	}
	if p.FromEventSeq == nil || *p.FromEventSeq == 0 {
		return 0, nil
	}
	var from uint64
	err := c.rt.cfg.Store.JobEvents(context.Background(), j.ID, 0, func(e *store.Event) bool {
		if e.OriginSeq > *p.FromEventSeq {
			return false
		}
		from = e.JSeq
		return true
	})
	return from, err
}

func (c *conn) followed(request arcp.MessageID, j *store.Job, r *store.Result) arcp.Envelope {
	var env arcp.Envelope
	if r.Err != nil {
		c.log.Error().Err(r.Err).Str("job_id", string(j.ID)).Msg("follow job")
		env = arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "the job cannot be followed now"))
	} else {
		last := j.LastSeq
		for _, run := range r.Runs {
			last = max(last, run.Events[len(run.Events)-1].OriginSeq)
		}
		env = arcp.Frame(arcp.JobSubscribed, subscribed(j, last, len(r.Runs) > 0))
		env.JobID = j.ID
	}
	env.CorrelationID = request
	return env
}

func subscribed(j *store.Job, from uint64, replayed bool) arcp.JobSubscribedPayload {
	return arcp.JobSubscribedPayload{JobID: j.ID, CurrentStatus: string(j.State), Agent: j.Agent, ParentJobID: j.Parent,
		TraceID: j.TraceID, Lease: arcp.Raw("{}"), SubscribedFrom: from, Replayed: replayed}
}

func (c *conn) unfollowJob(id arcp.JobID) {
	if _, ok := c.follows[id]; !ok {
		return
	}
	delete(c.follows, id)
	j, refusal := c.visible(id)
	if refusal != nil {
		return // it went with its retention
	}
	c.append(&store.Write{Unfollow: c.follow(&j, 0)})
}
