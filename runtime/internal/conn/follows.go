package conn

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/store"
)

// DefaultMaxFollows bounds the live jobs of other sessions that a session follows.
const DefaultMaxFollows = 10_000

// forwardPrefix is the start of the extension of forwarded events, without its members.
const forwardPrefix = `"extensions":{"arcpx.arcp.origin.v1":{`

// maxUnfollowed bounds follows.unfollowed.
const maxUnfollowed = 1000

// follows has the jobs of other sessions whose events the session receives: jobs that it follows,
// and jobs that have asked it a question. A frame of such a job has the extension of forwarded events
// (SPEC.md §5.4).
type follows struct {
	c          *conn
	jobs       map[arcp.JobID]origin // of each live job that the session follows
	unfollowed map[arcp.JobID]origin // of other jobs, at most maxUnfollowed
	origin     origin                // of the last event of eventReader.next
}

// origin says where a forwarded event comes from.
type origin struct {
	principal string // of the job
	head      []byte // forwardHead of the job
}

var followRoutes = map[arcp.Type]handler{
	arcp.JobSubscribe:   on(followsOf, (*follows).subscribe),
	arcp.JobUnsubscribe: on(followsOf, (*follows).unsubscribe),
}

func followsOf(c *conn) *follows { return &c.follows }

// subscribe handles job.subscribe. The client receives job.subscribed, the requested history, and
// then new events of the job (SPEC.md §5.4).
func (fl *follows) subscribe(now time.Time, env *arcp.Envelope, p *arcp.JobSubscribePayload) error {
	if !p.JobID.Valid() {
		fl.c.refuseID(now, env, "job_id", arcp.JobPrefix)
		return nil
	}
	viewer := fl.c.principal.actor()
	fl.c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		j, refused := fl.c.srv.opts.Jobs.Get(ctx, &viewer, p.JobID)
		if refused != nil {
			return func(now time.Time) { fl.c.nack(now, env.ID, refused) }
		}
		owned, refused := fl.isOwner(ctx, &j)
		if refused != nil {
			return func(now time.Time) { fl.c.nack(now, env.ID, refused) }
		}
		from, refused := fl.c.srv.followPosition(ctx, &j, p)
		return func(now time.Time) {
			_, follows := fl.jobs[j.ID]
			switch {
			case !fl.c.principal.mayObserve(j.Principal): // any more
				fl.c.nack(now, env.ID, jobview.ErrNotFound(j.ID))
			case follows || owned: // the session receives the events already
				fl.c.send(now, fl.jobSubscribed(env.ID, &j, history{last: j.LastSeq}, fl.owns(&j)))
			case refused != nil:
				fl.c.nack(now, env.ID, refused)
			case len(fl.jobs) >= fl.c.srv.opts.Limits.Follows: // includes ended jobs whose last events are not sent yet
				fl.c.nack(now, env.ID, fl.errTooMany())
			default:
				fl.follow(env.ID, j, from)
			}
		}
	})
	return nil
}

// isOwner reports whether the session owns a job, and therefore receives its events without a subscription.
func (fl *follows) isOwner(ctx context.Context, j *store.Job) (bool, *arcp.Error) {
	owner, err := fl.c.srv.opts.Engine.SessionJobs().Owner(ctx, j)
	if err != nil {
		fl.c.srv.opts.Logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("owner of a job cannot be read")
		return false, errUnreadable()
	}
	return owner == fl.c.id, nil
}

// follow stores that the session follows a job from a position in the job's log.
func (fl *follows) follow(request arcp.MessageID, j store.Job, from uint64) {
	fl.c.principal.audit("job.subscribe").Str("target", string(j.ID)).Str("owner_session", string(j.Session)).
		Str("decision", "allowed").Msg("audit")
	fl.add(&j)
	own := fl.owns(&j)
	fl.c.unanswered.add()
	fl.c.srv.opts.Log.Follow(*fl.operation(&j, from), func(r *store.Result) {
		fl.c.events.cursor.AnswerBeforeEvents(fl.answer(request, j, r, own))
	}, func(r *store.Result) { fl.historyEnded(&j, r, own) })
}

// history describes the history of a job that the session receives.
type history struct {
	last   uint64 // event_seq of the last event
	events bool   // there are events
	more   bool   // there are events that are not in the result of the write
}

// answer returns the answer to job.subscribe when the write of follow is durable. The committer
// calls it. own reports whether the job is of the client's principal.
func (fl *follows) answer(request arcp.MessageID, j store.Job, r *store.Result, own bool) (answer any) {
	h := history{events: len(r.Runs) > 0, more: r.More}
	for _, run := range r.Runs {
		h.last = max(h.last, run.Events[len(run.Events)-1].OriginSeq)
	}
	switch {
	case r.Err != nil:
		return fl.answerFailed(request, j.ID, r.Err)
	case r.JobState != "":
		j.State, j.LastSeq = r.JobState, r.JobSeq
	case !j.State.Terminal(): // the job has ended since its row was read
		return eventlog.DeferredAnswer(func(ctx context.Context) arcp.Envelope {
			row, err := fl.c.srv.opts.Store.Job(ctx, j.ID)
			switch {
			case errors.Is(err, store.ErrNotFound):
				fl.remove(j.ID)
				return answerTo(request, arcp.Nack, jobview.ErrNotFound(j.ID))
			case err != nil:
				return fl.answerFailed(request, j.ID, err)
			}
			return fl.answerSubscribed(request, &row, h, own)
		})
	}
	return fl.answerSubscribed(request, &j, h, own)
}

// answerSubscribed returns job.subscribed.
func (fl *follows) answerSubscribed(request arcp.MessageID, j *store.Job, h history, own bool) arcp.Envelope {
	if !h.events && !h.more && j.State.Terminal() { // there are no events to send
		fl.remove(j.ID)
	}
	h.last = max(h.last, j.LastSeq)
	return fl.jobSubscribed(request, j, h, own)
}

// answerFailed returns the refusal of a failed job.subscribe.
func (fl *follows) answerFailed(request arcp.MessageID, id arcp.JobID, err error) arcp.Envelope {
	fl.remove(id)
	if errors.Is(err, store.ErrTooMany) {
		return answerTo(request, arcp.Nack, fl.errTooMany())
	}
	fl.c.srv.opts.Logger.Error().Err(err).Str("job_id", string(id)).Msg("follow job")
	return answerTo(request, arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "the job cannot be followed now"))
}

// remove removes a job from follows.jobs. Any goroutine may call it.
func (fl *follows) remove(id arcp.JobID) {
	fl.c.inbox.runOnLoop(func(time.Time) { delete(fl.jobs, id) })
}

func (fl *follows) errTooMany() *arcp.Error {
	return arcp.Errorf(arcp.CodeResourceExhausted, "the session follows %d jobs already; unsubscribe from some",
		fl.c.srv.opts.Limits.Follows).RetryAfter(1)
}

// historyEnded is called when the session has the history, or when the rest of it cannot be read. own
// reports whether the job is of the client's principal.
func (fl *follows) historyEnded(j *store.Job, r *store.Result, own bool) {
	fl.c.unanswered.done()
	if errors.Is(r.Err, store.ErrNotFound) { // the job was deleted before the session has its history
		fl.c.inbox.runOnLoop(func(now time.Time) {
			delete(fl.jobs, j.ID)
			fl.c.ack.closeForOverflow(now)
		})
		return
	}
	if r.Err != nil && !fl.c.srv.opts.Broken() {
		fl.c.srv.opts.Logger.Error().Err(r.Err).Str("job_id", string(j.ID)).Msg("history of a followed job")
	}
	if r.Err == nil && !own { // the follow begins behind the history, after an Unfollow that was written meanwhile
		fl.c.inbox.runOnLoop(func(now time.Time) {
			if !fl.c.principal.mayObserve(j.Principal) {
				fl.end(now, j)
			}
		})
	}
}

// operation returns the operation of the store that makes the session follow a job. It has the
// correlation id of engine.Submit.OneFollow if the client reads none.
func (fl *follows) operation(j *store.Job, from uint64) *store.Follow {
	f := &store.Follow{Session: fl.c.id, Job: j.ID, From: from, Forwarded: true, Limit: fl.c.srv.opts.Limits.Follows, New: true}
	if fl.c.dialect.correlatesEvents() && arcp.HasPrefix(string(j.SubmitID), arcp.MessagePrefix) {
		f.CorrelationID = j.SubmitID
	}
	return f
}

// followPosition returns the position in the job's log to follow the job from.
func (s *Server) followPosition(ctx context.Context, j *store.Job, p *arcp.JobSubscribePayload) (uint64, *arcp.Error) {
	if refused := s.checkReached(ctx, j, p.FromEventSeq); refused != nil {
		return 0, refused
	}
	switch {
	case !p.History:
		return liveOnly, nil
	case p.FromEventSeq == nil, *p.FromEventSeq == 0:
		return 0, nil
	}
	from, err := s.countUpTo(ctx, j, *p.FromEventSeq)
	if err != nil {
		s.opts.Logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("read job's events")
		return 0, arcp.Errorf(arcp.CodeUnavailable, "the job's events cannot be read")
	}
	return from, nil
}

// liveOnly is the position for no history.
const liveOnly = math.MaxUint64

// checkReached refuses a position that the job's session has not reached.
func (s *Server) checkReached(ctx context.Context, j *store.Job, from *uint64) *arcp.Error {
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

// countUpTo returns how many events of a job have an OriginSeq up to seq. OriginSeq ascends in the
// job's log, so that a binary search reads few events.
func (s *Server) countUpTo(ctx context.Context, j *store.Job, seq uint64) (n uint64, err error) {
	low, high := uint64(0), j.LastJSeq // OriginSeq is at most seq for the first low events, and greater for the events after high
	for low < high && err == nil {
		mid := low + (high-low)/2
		later := true
		err = s.opts.Store.JobEvents(ctx, j.ID, mid, func(e *store.Event) bool {
			later = e.OriginSeq > seq
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

// owns reports whether the client's principal owns a job.
func (fl *follows) owns(j *store.Job) bool { return j.Principal == fl.c.principal.identity.Principal }

// jobSubscribed returns the envelope of job.subscribed, with the job's lease and remaining budget.
// It has the job's credentials if the client's principal owns the job.
func (fl *follows) jobSubscribed(request arcp.MessageID, j *store.Job, h history, own bool) arcp.Envelope {
	lease, constraints, budget := fl.c.srv.opts.Engine.LeaseOf(j)
	var credentials []arcp.Credential
	if own && fl.c.dialect.sendsCredentials() {
		credentials = fl.c.srv.secrets.credentials(j.ID)
	}
	env := answerTo(request, arcp.JobSubscribed, arcp.JobSubscribedPayload{
		JobID:            j.ID,
		CurrentStatus:    fl.c.dialect.status(j),
		Agent:            j.Agent,
		ParentJobID:      j.Parent,
		TraceID:          j.TraceID,
		Lease:            lease,
		LeaseConstraints: constraints,
		Budget:           budget,
		Credentials:      credentials,
		SubscribedFrom:   h.last,
		Replayed:         h.events,
	})
	env.JobID = j.ID
	return env
}

// unsubscribe handles job.unsubscribe, also for a job that an earlier connection followed.
func (fl *follows) unsubscribe(now time.Time, env *arcp.Envelope, p *arcp.JobUnsubscribePayload) error {
	id := p.JobID
	if !id.Valid() {
		fl.c.refuseID(now, env, "job_id", arcp.JobPrefix)
		return nil
	}
	if _, ok := fl.jobs[id]; !ok && !fl.c.handshake.resumed {
		return nil
	}
	fl.drop(id)
	viewer := fl.c.principal.actor()
	fl.c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		j, refusal := fl.c.srv.opts.Jobs.Get(ctx, &viewer, id)
		owned := false
		if refusal == nil {
			owned, refusal = fl.isOwner(ctx, &j)
		}
		return func(time.Time) {
			if refusal == nil && !owned { // the job exists and is of another session
				delete(fl.jobs, id) // a concurrent addForwarded may have added it again
				fl.unfollow(&j)
			}
		}
	})
	return nil
}

// unfollow stores that the session does not follow a job any more. Events that are committed before
// that may still come.
func (fl *follows) unfollow(j *store.Job) {
	fl.addUnfollowed(j)
	f := fl.operation(j, 0)
	fl.c.append(store.NewWrite(&store.Unfollow{Session: f.Session, Job: f.Job, CorrelationID: f.CorrelationID, Forwarded: f.Forwarded}))
}

// drop removes a job from the jobs that the session follows.
func (fl *follows) drop(id arcp.JobID) {
	delete(fl.jobs, id)
	fl.c.ack.followed = slices.DeleteFunc(fl.c.ack.followed, func(other arcp.JobID) bool { return other == id })
}

// add adds a job to follows.jobs.
func (fl *follows) add(j *store.Job) {
	if fl.jobs == nil {
		fl.jobs = make(map[arcp.JobID]origin)
	}
	fl.jobs[j.ID] = fl.originOf(j)
}

// forwardHead returns the start of the extension of forwarded events of a job. It has the submitting
// session, except for another principal.
func (fl *follows) forwardHead(j *store.Job) []byte {
	b := []byte(forwardPrefix)
	if j.Session != "" && fl.owns(j) {
		b = append(arcp.AppendString(append(b, `"session_id":`...), string(j.Session)), ',')
	}
	return b
}

// appendForwarded appends the extension of a forwarded event.
func (fl *follows) appendForwarded(dst []byte, e *store.Event) []byte {
	if e.Type.Terminal() {
		delete(fl.jobs, e.JobID())
	}
	dst = append(append(dst, fl.origin.head...), `"event_seq":`...)
	return append(strconv.AppendUint(dst, e.OriginSeq, 10), `}},`...)
}

// knownOrigin returns the origin of an event if it is known.
func (fl *follows) knownOrigin(e *store.Event) (from origin, ok bool) {
	id := e.JobIDText()
	if from, ok = fl.jobs[arcp.JobID(id)]; !ok { // allocates nothing, unlike e.JobID
		from, ok = fl.unfollowed[arcp.JobID(id)]
	}
	return from, ok
}

// addForwarded returns the origin of the events of a job, and stores it for later events. t is the type of the
// event.
func (fl *follows) addForwarded(j *store.Job, t arcp.Type) origin {
	switch _, known := fl.unfollowed[j.ID]; {
	case known: // unsubscribe has added it meanwhile
	case sentUnfollowed(t):
		fl.addUnfollowed(j)
	case len(fl.jobs) < fl.c.srv.opts.Limits.Follows: // an earlier connection has followed the job
		fl.add(j)
	}
	return fl.originOf(j)
}

func (fl *follows) originOf(j *store.Job) origin { return origin{j.Principal, fl.forwardHead(j)} }

// addUnfollowed adds a job that the session does not follow to follows.unfollowed.
func (fl *follows) addUnfollowed(j *store.Job) {
	if len(fl.unfollowed) >= maxUnfollowed || fl.unfollowed == nil {
		fl.unfollowed = make(map[arcp.JobID]origin)
	}
	fl.unfollowed[j.ID] = fl.originOf(j)
}

// sentUnfollowed reports whether a session may receive an event of type t without following the
// job: questions to the session, and the consequences of its answers.
func sentUnfollowed(t arcp.Type) bool {
	switch t {
	case arcp.LeaseGranted, arcp.LeaseExtended, arcp.LeaseRevoked:
		return true
	}
	s := arcp.Lookup(t)
	return s != nil && s.Directed
}
