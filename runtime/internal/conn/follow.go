package conn

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/jobs"
	"github.com/arcpd/arcpd/runtime/store"
)

// followJob makes the session follow a job: job.subscribed, then the events it
// asked for, then those to come (§5.4).
func (c *conn) followJob(now time.Time, env *arcp.Envelope, p *arcp.JobSubscribePayload) error {
	if !p.JobID.Valid() {
		c.badID(now, env, "job_id", arcp.JobPrefix)
		return nil
	}
	viewer := c.actor()
	c.read(func(ctx context.Context) func(time.Time) {
		var f following
		j, refused := c.srv.opts.Jobs.Visible(ctx, &viewer, p.JobID)
		if refused == nil {
			f = c.srv.following(ctx, &j, p)
		}
		return func(now time.Time) { c.followRow(now, env.ID, j, f, refused) }
	})
	return nil
}

// following is where a job is followed from.
type following struct {
	from    uint64      // in the job's log
	refused *arcp.Error // unless the session follows the job already
}

func (s *Server) following(ctx context.Context, j *store.Job, p *arcp.JobSubscribePayload) (f following) {
	if f.refused = s.ahead(ctx, j, p.FromEventSeq); f.refused != nil {
		return f
	}
	var err error
	if f.from, err = s.from(ctx, j, p); err != nil {
		s.opts.Logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("read job's events")
		f.refused = arcp.Errorf(arcp.CodeUnavailable, "the job's events cannot be read")
	}
	return f
}

// followRow is followJob with the row of the job, or the reason why there is none.
func (c *conn) followRow(now time.Time, request arcp.MessageID, j store.Job, f following, refused *arcp.Error) {
	if refused != nil {
		c.nack(now, request, refused)
		return
	}
	if _, again := c.forwarded.follows[j.ID]; again || j.Session == c.id { // it follows already: nothing is sent twice
		env := arcp.Frame(arcp.JobSubscribed, c.subscribed(&j, j.LastSeq, false))
		env.JobID, env.CorrelationID = j.ID, request
		c.send(now, env)
		return
	}
	if f.refused != nil {
		c.nack(now, request, f.refused)
		return
	}
	if len(c.forwarded.follows) >= c.srv.opts.MaxFollows { // also of jobs that have ended, whose events the client has not taken
		c.nack(now, request, c.followsEnough())
		return
	}
	c.audit("job.subscribe").Str("target", string(j.ID)).Str("owner_session", string(j.Session)).Str("decision", "allowed").Msg("audit")
	c.remember(&j)
	c.pending.owed.Add(1)
	c.srv.opts.Log.Follow(*c.follow(&j, f.from), func(r *store.Result) {
		err := c.met(&j, r)
		if err != nil || len(r.Runs) == 0 && !r.More && j.State.Terminal() { // nothing of it will come
			c.complete(func(time.Time) { delete(c.forwarded.follows, j.ID) })
		}
		c.cursor.Answer(c.followed(request, &j, r, err))
	}, func(r *store.Result) { c.followEnded(&j, r) })
}

// met brings the row of a job, which was read before, to where the job begins to be
// followed: it may have gone on since, and have ended.
func (c *conn) met(j *store.Job, r *store.Result) (err error) {
	switch {
	case r.Err != nil:
		return r.Err
	case r.JobState != "":
		j.State, j.LastSeq = r.JobState, r.JobSeq
	case !j.State.Terminal(): // what has ended it is durable
		var row store.Job
		if row, err = c.srv.opts.Store.Job(context.Background(), j.ID); err == nil {
			*j = row
		}
	}
	return err
}

func (c *conn) followsEnough() *arcp.Error {
	return arcp.Errorf(arcp.CodeResourceExhausted, "the session follows %d jobs already; unsubscribe from some",
		c.srv.opts.MaxFollows).RetryAfter(1)
}

// followEnded is told when the history has been given. If the rest of it cannot
// be, a client that goes on would not know.
func (c *conn) followEnded(j *store.Job, r *store.Result) {
	c.settle()
	if errors.Is(r.Err, store.ErrNotFound) { // it was deleted: who follows it is behind
		c.complete(func(now time.Time) {
			delete(c.forwarded.follows, j.ID)
			c.tooFarBehind(now)
		})
		return
	}
	if r.Err != nil && !c.srv.opts.Broken() {
		c.srv.opts.Logger.Error().Err(r.Err).Str("job_id", string(j.ID)).Msg("history of a followed job")
	}
}

func (c *conn) follow(j *store.Job, from uint64) *store.Follow {
	f := &store.Follow{Session: c.id, Job: j.ID, From: from, Origin: true, Limit: c.srv.opts.MaxFollows, New: true} // an earlier connection may have asked for it
	if arcp.HasPrefix(string(j.SubmitID), arcp.MessagePrefix) {
		f.CorrelationID = j.SubmitID
	}
	return f
}

// ahead refuses a position that the job's session has not come to: what comes
// up to it would have to be left out.
func (s *Server) ahead(ctx context.Context, j *store.Job, from *uint64) *arcp.Error {
	if from == nil || *from <= j.LastSeq {
		return nil
	}
	last := j.LastSeq
	switch row, err := s.opts.Store.Session(ctx, j.Session); {
	case err == nil:
		last = max(last, row.LastSeq) // the session has events of other jobs
	case !errors.Is(err, store.ErrNotFound):
		s.opts.Logger.Error().Err(err).Str("session_id", string(j.Session)).Msg("read session")
		return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read")
	}
	if *from > last {
		return arcp.Errorf(arcp.CodeInvalidRequest, "from_event_seq %d is not reached: the last event is %d", *from, last)
	}
	return nil
}

// liveOnly as a position gives no history.
const liveOnly = math.MaxUint64

// from is the position in the job's log to follow it from.
func (s *Server) from(ctx context.Context, j *store.Job, p *arcp.JobSubscribePayload) (uint64, error) {
	if !p.History {
		return liveOnly, nil
	}
	if p.FromEventSeq == nil || *p.FromEventSeq == 0 {
		return 0, nil
	}
	return s.upTo(ctx, j, *p.FromEventSeq)
}

// upTo returns how many events of a job have origin numbers up to one. These ascend
// in its log, of which only a few events are read.
func (s *Server) upTo(ctx context.Context, j *store.Job, origin uint64) (n uint64, err error) {
	low, high := uint64(0), j.LastJSeq // the first low events are up to it, those past high are not
	for low < high && err == nil {
		mid := low + (high-low)/2
		later := true
		err = s.opts.Store.JobEvents(ctx, j.ID, mid, func(e *store.Event) bool {
			later = e.OriginSeq > origin
			return false
		})
		if later {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low, err
}

func (c *conn) followed(request arcp.MessageID, j *store.Job, r *store.Result, err error) arcp.Envelope {
	var env arcp.Envelope
	switch {
	case errors.Is(err, store.ErrTooMany):
		env = arcp.Frame(arcp.Nack, c.followsEnough())
	case r.Err == nil && errors.Is(err, store.ErrNotFound): // deleted meanwhile
		env = arcp.Frame(arcp.Nack, jobs.ErrNotFound(j.ID))
	case err != nil:
		c.srv.opts.Logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("follow job")
		env = arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "the job cannot be followed now"))
	default:
		last := j.LastSeq
		for _, run := range r.Runs {
			last = max(last, run.Events[len(run.Events)-1].OriginSeq)
		}
		env = arcp.Frame(arcp.JobSubscribed, c.subscribed(j, last, len(r.Runs) > 0))
		env.JobID = j.ID
	}
	env.CorrelationID = request
	return env
}

// subscribed is the payload of job.subscribed. It has the job's lease, the rest of its budget
// and, for the job's own principal only, its credentials.
func (c *conn) subscribed(j *store.Job, from uint64, replayed bool) arcp.JobSubscribedPayload {
	lease, constraints, budget := c.srv.opts.Engine.LeaseOf(j)
	var credentials []arcp.Credential
	if j.Principal == c.principal.identity.Principal {
		credentials = c.srv.credentials(j.ID)
	}
	return arcp.JobSubscribedPayload{JobID: j.ID, CurrentStatus: string(j.State), Agent: j.Agent, ParentJobID: j.Parent,
		TraceID: j.TraceID, Lease: lease, LeaseConstraints: constraints, Budget: budget, Credentials: credentials, SubscribedFrom: from, Replayed: replayed}
}

func (c *conn) unfollowJob(now time.Time, env *arcp.Envelope, p *arcp.JobUnsubscribePayload) error {
	id := p.JobID
	if !id.Valid() {
		c.badID(now, env, "job_id", arcp.JobPrefix)
		return nil
	}
	if _, ok := c.forwarded.follows[id]; !ok && !c.opening.resumed { // an earlier connection may have asked for it
		return nil
	}
	delete(c.forwarded.follows, id)
	viewer := c.actor()
	c.read(func(ctx context.Context) func(time.Time) {
		j, refusal := c.srv.opts.Jobs.Visible(ctx, &viewer, id)
		return func(time.Time) {
			if refusal == nil && j.Session != c.id { // else it went with its retention, or is the session's own
				f := c.follow(&j, 0)
				c.append(store.NewWrite(&store.Unfollow{Session: f.Session, Job: f.Job, CorrelationID: f.CorrelationID, Origin: f.Origin}))
			}
		}
	})
	return nil
}
