package conn

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/jobs"
	"github.com/arcpd/arcpd/runtime/store"
)

// DefaultMaxFollows bounds the live jobs of other sessions that a session follows, over all
// its connections.
const DefaultMaxFollows = 10_000

const originExtension = `"extensions":{"arcpx.arcp.origin.v1":{`

// maxOrigins bounds follows.origins.
const maxOrigins = 1000

// follows are the jobs of other sessions whose events the session is sent: jobs that it follows,
// and jobs that have asked it something. A frame of such a job names its origin (SPEC.md §5.4).
type follows struct {
	c       *conn
	jobs    map[arcp.JobID][]byte // jobs that the session follows and that have not ended, with their originHead
	origins map[arcp.JobID][]byte // jobs that it does not follow and has events of, at most maxOrigins
	head    []byte                // originHead of the event that eventReader.next returned last
}

// subscribe makes the session follow a job. The client is sent job.subscribed, then the history
// that it asked for, then the job's events as they come (§5.4).
func (fl *follows) subscribe(now time.Time, env *arcp.Envelope, p *arcp.JobSubscribePayload) error {
	if !p.JobID.Valid() {
		fl.c.badID(now, env, "job_id", arcp.JobPrefix)
		return nil
	}
	viewer := fl.c.actor()
	fl.c.tasks.read(func(ctx context.Context) func(time.Time) {
		j, refused := fl.c.srv.opts.Jobs.Visible(ctx, &viewer, p.JobID)
		if refused != nil {
			return func(now time.Time) { fl.c.nack(now, env.ID, refused) }
		}
		from, refused := fl.c.srv.followFrom(ctx, &j, p)
		return func(now time.Time) {
			_, follows := fl.jobs[j.ID]
			switch {
			case follows || j.Session == fl.c.id: // nothing is sent twice
				fl.c.send(now, fl.subscribed(env.ID, &j, history{last: j.LastSeq}, fl.owns(&j)))
			case refused != nil:
				fl.c.nack(now, env.ID, refused)
			case len(fl.jobs) >= fl.c.srv.opts.MaxFollows: // with jobs that have ended and whose last events are not sent yet
				fl.c.nack(now, env.ID, fl.errTooMany())
			default:
				fl.follow(env.ID, j, from)
			}
		}
	})
	return nil
}

// follow makes the session follow a job from a position in the job's log.
func (fl *follows) follow(request arcp.MessageID, j store.Job, from uint64) {
	fl.c.audit("job.subscribe").Str("target", string(j.ID)).Str("owner_session", string(j.Session)).Str("decision", "allowed").Msg("audit")
	fl.remember(&j)
	own := fl.owns(&j)
	fl.c.pending.add()
	fl.c.srv.opts.Log.Follow(*fl.request(&j, from), func(r *store.Result) {
		fl.c.cursor.AnswerBeforeEvents(fl.followed(request, j, r, own))
	}, func(r *store.Result) { fl.historyEnded(&j, r) })
}

// history is the part of a job's history that the session is sent.
type history struct {
	last   uint64 // event_seq of its last event
	events bool   // whether there are events
	more   bool   // whether there are events that are not in the result of the write
}

// followed returns the answer when the write that follows a job is durable. It is called on the
// committer's goroutine. own says that the job is of the client's principal.
func (fl *follows) followed(request arcp.MessageID, j store.Job, r *store.Result, own bool) (answer any) {
	h := history{events: len(r.Runs) > 0, more: r.More}
	for _, run := range r.Runs {
		h.last = max(h.last, run.Events[len(run.Events)-1].OriginSeq)
	}
	switch {
	case r.Err != nil:
		return fl.notFollowed(request, j.ID, r.Err)
	case r.JobState != "":
		j.State, j.LastSeq = r.JobState, r.JobSeq
	case !j.State.Terminal(): // it has ended since its row was read
		return eventlog.DeferredAnswer(func(ctx context.Context) arcp.Envelope {
			row, err := fl.c.srv.opts.Store.Job(ctx, j.ID)
			switch {
			case errors.Is(err, store.ErrNotFound):
				fl.forget(j.ID)
				return answerTo(request, arcp.Nack, jobs.ErrNotFound(j.ID))
			case err != nil:
				return fl.notFollowed(request, j.ID, err)
			}
			return fl.started(request, &row, h, own)
		})
	}
	return fl.started(request, &j, h, own)
}

// started returns job.subscribed.
func (fl *follows) started(request arcp.MessageID, j *store.Job, h history, own bool) arcp.Envelope {
	if !h.events && !h.more && j.State.Terminal() { // there are no events to send
		fl.forget(j.ID)
	}
	h.last = max(h.last, j.LastSeq)
	return fl.subscribed(request, j, h, own)
}

// notFollowed returns the answer to a request that failed.
func (fl *follows) notFollowed(request arcp.MessageID, id arcp.JobID, err error) arcp.Envelope {
	fl.forget(id)
	if errors.Is(err, store.ErrTooMany) {
		return answerTo(request, arcp.Nack, fl.errTooMany())
	}
	fl.c.srv.opts.Logger.Error().Err(err).Str("job_id", string(id)).Msg("follow job")
	return answerTo(request, arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "the job cannot be followed now"))
}

// forget removes a job from the jobs that the session follows. Any goroutine may call it.
func (fl *follows) forget(id arcp.JobID) {
	fl.c.inbox.complete(func(time.Time) { delete(fl.jobs, id) })
}

func (fl *follows) errTooMany() *arcp.Error {
	return arcp.Errorf(arcp.CodeResourceExhausted, "the session follows %d jobs already; unsubscribe from some",
		fl.c.srv.opts.MaxFollows).RetryAfter(1)
}

// historyEnded is called when the session was given the history, or the rest of it cannot be
// read.
func (fl *follows) historyEnded(j *store.Job, r *store.Result) {
	fl.c.pending.done()
	if errors.Is(r.Err, store.ErrNotFound) { // the job was deleted before the client got all of it
		fl.c.inbox.complete(func(now time.Time) {
			delete(fl.jobs, j.ID)
			fl.c.ack.tooFarBehind(now)
		})
		return
	}
	if r.Err != nil && !fl.c.srv.opts.Broken() {
		fl.c.srv.opts.Logger.Error().Err(r.Err).Str("job_id", string(j.ID)).Msg("history of a followed job")
	}
}

// request returns the operation of the store that follows a job. An earlier connection may have
// performed it already.
func (fl *follows) request(j *store.Job, from uint64) *store.Follow {
	f := &store.Follow{Session: fl.c.id, Job: j.ID, From: from, Origin: true, Limit: fl.c.srv.opts.MaxFollows, New: true}
	if arcp.HasPrefix(string(j.SubmitID), arcp.MessagePrefix) {
		f.CorrelationID = j.SubmitID
	}
	return f
}

// followFrom returns the position in the job's log to follow it from.
func (s *Server) followFrom(ctx context.Context, j *store.Job, p *arcp.JobSubscribePayload) (uint64, *arcp.Error) {
	if refused := s.ahead(ctx, j, p.FromEventSeq); refused != nil {
		return 0, refused
	}
	switch {
	case !p.History:
		return liveOnly, nil
	case p.FromEventSeq == nil, *p.FromEventSeq == 0:
		return 0, nil
	}
	from, err := s.upTo(ctx, j, *p.FromEventSeq)
	if err != nil {
		s.opts.Logger.Error().Err(err).Str("job_id", string(j.ID)).Msg("read job's events")
		return 0, arcp.Errorf(arcp.CodeUnavailable, "the job's events cannot be read")
	}
	return from, nil
}

// liveOnly as a position gives no history.
const liveOnly = math.MaxUint64

// ahead refuses a position that the job's session has not reached: the events up to that
// position would have to be left out.
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

// upTo returns how many events of a job have origin numbers up to origin. The numbers ascend in
// the job's log; a binary search reads a few events.
func (s *Server) upTo(ctx context.Context, j *store.Job, origin uint64) (n uint64, err error) {
	low, high := uint64(0), j.LastJSeq // the first low events are up to origin, those past high are not
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

// owns reports whether a job is of the client's principal.
func (fl *follows) owns(j *store.Job) bool { return j.Principal == fl.c.principal.identity.Principal }

// subscribed returns job.subscribed. It has the job's lease, the rest of its budget and, if the
// job is of the client's principal, its credentials.
func (fl *follows) subscribed(request arcp.MessageID, j *store.Job, h history, own bool) arcp.Envelope {
	lease, constraints, budget := fl.c.srv.opts.Engine.LeaseOf(j)
	var credentials []arcp.Credential
	if own {
		credentials = fl.c.srv.credentials(j.ID)
	}
	env := answerTo(request, arcp.JobSubscribed, arcp.JobSubscribedPayload{JobID: j.ID, CurrentStatus: string(j.State), Agent: j.Agent, ParentJobID: j.Parent,
		TraceID: j.TraceID, Lease: lease, LeaseConstraints: constraints, Budget: budget, Credentials: credentials, SubscribedFrom: h.last, Replayed: h.events})
	env.JobID = j.ID
	return env
}

// unsubscribe ends that the session follows a job. An earlier connection may have followed it.
func (fl *follows) unsubscribe(now time.Time, env *arcp.Envelope, p *arcp.JobUnsubscribePayload) error {
	id := p.JobID
	if !id.Valid() {
		fl.c.badID(now, env, "job_id", arcp.JobPrefix)
		return nil
	}
	if _, ok := fl.jobs[id]; !ok && !fl.c.handshake.resumed {
		return nil
	}
	delete(fl.jobs, id)
	viewer := fl.c.actor()
	fl.c.tasks.read(func(ctx context.Context) func(time.Time) {
		j, refusal := fl.c.srv.opts.Jobs.Visible(ctx, &viewer, id)
		return func(time.Time) {
			if refusal == nil && j.Session != fl.c.id { // else it was deleted, or is the session's own
				delete(fl.jobs, id) // an event that was being read may have added it again
				fl.setOrigin(&j)
				f := fl.request(&j, 0)
				fl.c.append(store.NewWrite(&store.Unfollow{Session: f.Session, Job: f.Job, CorrelationID: f.CorrelationID, Origin: f.Origin}))
			}
		}
	})
	return nil
}

// remember adds a job to the jobs that the session follows.
func (fl *follows) remember(j *store.Job) {
	if fl.jobs == nil {
		fl.jobs = make(map[arcp.JobID][]byte)
	}
	fl.jobs[j.ID] = fl.originHead(j)
}

// originHead returns the start of the origin extension. It names the submitting session, but
// not to another principal.
func (fl *follows) originHead(j *store.Job) []byte {
	b := []byte(originExtension)
	if j.Session != "" && fl.owns(j) {
		b = append(arcp.AppendString(append(b, `"session_id":`...), string(j.Session)), ',')
	}
	return b
}

// appendOrigin appends the extension with the origin of a forwarded event.
func (fl *follows) appendOrigin(dst []byte, e *store.Event) []byte {
	if e.Type.Terminal() {
		delete(fl.jobs, e.JobID())
	}
	dst = append(append(dst, fl.head...), `"event_seq":`...)
	return append(strconv.AppendUint(dst, e.OriginSeq, 10), `}},`...)
}

// origin returns the originHead of a job if it is known.
func (fl *follows) origin(id arcp.JobID) (head []byte, ok bool) {
	if head, ok = fl.jobs[id]; !ok {
		head, ok = fl.origins[id]
	}
	return head, ok
}

// learnOrigin returns the originHead of a job, and remembers it while there is room. The job's
// row is kept at least as long as its events. t is the type of the event that needs it.
func (fl *follows) learnOrigin(j *store.Job, t arcp.Type) []byte {
	switch _, known := fl.origins[j.ID]; {
	case known: // the session may have stopped following it meanwhile
	case mayBeAlone(t):
		fl.setOrigin(j)
	case len(fl.jobs) < fl.c.srv.opts.MaxFollows: // an earlier connection of the session follows it
		fl.remember(j)
	}
	return fl.originHead(j)
}

// setOrigin remembers the originHead of a job that the session does not follow.
func (fl *follows) setOrigin(j *store.Job) {
	if len(fl.origins) >= maxOrigins || fl.origins == nil {
		fl.origins = make(map[arcp.JobID][]byte)
	}
	fl.origins[j.ID] = fl.originHead(j)
}

// mayBeAlone reports whether an event of a type may be given to a session that does not follow
// its job: questions to the session, and events that follow from its answers.
func mayBeAlone(t arcp.Type) bool {
	switch t {
	case arcp.LeaseGranted, arcp.LeaseExtended, arcp.LeaseRevoked:
		return true
	}
	s := arcp.Lookup(t)
	return s != nil && s.Directed
}
