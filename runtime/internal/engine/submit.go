package engine

import (
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Submit is a request for a job.
type Submit struct {
	Envelope  *arcp.Envelope
	Payload   *arcp.ToolInvokePayload
	Session   arcp.SessionID
	Principal string
	MaxJobs   int // of the principal; 0: the engine's default
	Answers   AnswerSender
	Lease     *lease.Lease    // of the principal: a limit for all its jobs; nil: no limit
	Trust     arcp.TrustLevel // of the principal
	Roles     []string        // of the principal; nil: not known
	Recheck   bool            // the session may have sent the same submit on an earlier connection
	Metrics   bool            // the session is sent the metrics of the runtime
	Identity  arcp.Raw        // of the credentials of the session, for Config.Rights; empty: not known
	OnDecided func()          // if set, called once by any goroutine when it is decided whether there is a job; it must not block

	// AcceptedIsAnswer says that job.accepted is an answer outside the log of the session.
	AcceptedIsAnswer bool

	// OneFollow says that the session follows a job once, because the client ignores the correlation
	// ids of events. All follows of the session but the follow of its submit have no correlation id.
	OneFollow bool

	// Existing, if set, is called with the job that a submit without a session repeats. It
	// must not block.
	Existing func(arcp.JobID)

	// Barred are sessions that must not answer gates of the job, because it acts for them.
	Barred []arcp.SessionID

	schedule        *run             // that submits the job; nil: a session does
	accepted        *store.Event     // of the claim; nil: none was made
	firstCheckpoint *firstCheckpoint // nil: the job begins at the start
	inTurn          bool             // the session's earlier submits are decided
	e               *Engine          // set by Submit
	op              store.SubmitJob  // of the claim
	early           *run             // that an earlyStart starts
}

// Submit makes a job, or answers job.failed without a job. The answers to a session are sent in the
// order of its submits. Submit does not block. The engine keeps s.
func (e *Engine) Submit(s *Submit) {
	s.e = e
	if !e.order.wait(s.Session, s) {
		s.perform(e)
	}
}

// step performs a submit that has waited.
func (s *Submit) step() (blocks bool) {
	s.inTurn = true
	return s.perform(s.e)
}

// perform performs a submit whose turn has come. It reports whether it blocks the session's later
// submits.
func (s *Submit) perform(e *Engine) (blocks bool) {
	r, refusal := s.prepare(e)
	if refusal == nil {
		refusal = e.admit(r, s.MaxJobs)
	}
	switch {
	case refusal != nil:
		e.Refuse(s, arcp.JobFailed, refusal)
		return false
	case r.runsInline():
		return s.runInline(r)
	case r.runsAsCall():
		return s.startCall(r)
	case r.isEarly(s):
		return s.startEarly(r)
	}
	return s.claim(r)
}

// refusalFrame returns the refusal of a submit: of the type t, or nack for job.schedule.
func refusalFrame(s *Submit, t arcp.Type, err *arcp.Error) arcp.Envelope {
	if s.Envelope.Type == arcp.JobSchedule {
		t = arcp.Nack
	}
	env := arcp.Frame(t, err)
	env.CorrelationID = s.Envelope.ID
	if s.Envelope.TraceID != "" {
		env.TraceID, _ = traceOf(s.Envelope)
	}
	return env
}

// prepare makes the checks of a submit that need no lock, and returns its run.
func (s *Submit) prepare(e *Engine) (*run, *arcp.Error) {
	r, err := s.newRun(e)
	if err == nil {
		r.span = e.cfg.Tracer.StartJob(&r.row)
	}
	return r, err
}

// newRun is prepare without a span for the job.
func (s *Submit) newRun(e *Engine) (*run, *arcp.Error) {
	snapshot := e.cfg.Catalog(s.Session, s.Principal, s.Trust)
	t, err := snapshot.Resolve(s.Payload.Tool)
	if err != nil {
		return nil, err
	}
	if s.Envelope.JobID != "" {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "only the tool of a job, or its worker, can create a child job; leave job_id out")
	}
	if !t.AllowsTrust(s.Trust) {
		e.cfg.audit().denied("submit", s.Principal, s.Session, t.Ref(), "trust")
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", t.Name, t.MinTrust)
	}
	if err := checkKey(s.Payload.IdempotencyKey); err != nil {
		return nil, err
	}
	maxRuntime, err := parseMaxRuntime(s.Payload.MaxRuntimeSec)
	if err != nil {
		return nil, err
	}
	retry, err := retryOf(t, s.Payload.Retry)
	if err != nil {
		return nil, err
	}
	granted, err := s.grantLease(e, t)
	if err != nil {
		return nil, err
	}
	if err := t.Validate(s.Payload.Arguments); err != nil {
		return nil, err
	}
	r := newRun(e, t)
	r.catalog, r.roles, r.barred, r.identity = snapshot, s.Roles, s.Barred, s.Identity
	r.authority.SetLease(granted)
	r.created = time.Now().Truncate(time.Microsecond) // the precision of the wire
	r.maxRuntime, r.retry = maxRuntime, retry
	r.trust, r.maxJobs = s.Trust, s.MaxJobs
	r.metricEvents = s.Metrics && !r.builtin()
	r.direct, r.strictCancel, r.cancelOnDisconnect = s.Payload.Direct, s.Payload.StrictCancel, cancelOnDisconnect(t, s.Payload)
	if s.firstCheckpoint != nil {
		r.restoredFrom = &s.firstCheckpoint.restoredFrom
	}
	r.row = s.row(t, granted, r.created)
	r.common = commonOf(&r.row)
	switch {
	case s.schedule != nil:
		err = s.prepareFiring(r)
	case r.isSchedule():
		err = s.prepareSchedule(r)
	}
	return r, err
}

// grantLease returns the lease of the job. It counts and audits a refusal. A principal whose lease has ended may
// still call built-in tools, for example to cancel a job.
func (s *Submit) grantLease(e *Engine, t *tool.Tool) (*lease.Lease, *arcp.Error) {
	decide := authority.SubmitLease
	if t.Source == tool.SourceBuiltin {
		decide = authority.BuiltinLease
	}
	granted, err := decide(time.Now(), &s.Payload.SubmitOptions, s.Lease)
	if err == nil {
		return granted, nil
	}
	reason := ""
	switch err.Code {
	case arcp.CodePermissionDenied:
		reason = "not_covered"
	case arcp.CodeLeaseExpired:
		reason = "expired"
	}
	if reason != "" {
		e.cfg.Metrics.CountDenial(metrics.LeaseRequest, reason)
		e.cfg.audit().denied("submit", s.Principal, s.Session, t.Ref(), "lease")
	}
	return nil, err
}

// row returns the row of the job.
func (s *Submit) row(t *tool.Tool, granted *lease.Lease, now time.Time) store.Job {
	env, p := s.Envelope, s.Payload
	key := env.IdempotencyKey
	if key == "" {
		key = p.IdempotencyKey
	}
	options := optionsIn(env, t, p)
	if granted != nil {
		options.Lease = granted.Encode()
	}
	if t.Source != tool.SourceBuiltin {
		options.Trust, options.MaxJobs = trustOption(s.Trust), s.MaxJobs
	}
	if t.Approval.Rule != "" {
		options.Roles = s.Roles
	}
	if s.schedule != nil {
		options.Depth, options.Detach = firingPosition.Depth, firingPosition.Detached
	}
	options.Barred, options.Metrics = s.Barred, s.Metrics && (t.Source != tool.SourceBuiltin || t.Name == ScheduleTool)
	if s.firstCheckpoint != nil {
		options.RestoredFrom = &s.firstCheckpoint.restoredFrom
	}
	j := store.Job{
		ID:             arcp.NewJobID(),
		Principal:      s.Principal,
		Session:        s.Session,
		SubmitID:       env.ID,
		Agent:          t.Ref(),
		Arguments:      p.Arguments,
		Priority:       env.Priority,
		IdempotencyKey: key,
		CreatedAt:      now,
		State:          arcp.StateAccepted,
		Attempt:        1,
		Options:        options.encode(),
	}
	j.TraceID, j.ParentSpanID, j.SpanID = newSpan(env)
	if key != "" {
		j.Digest = requestDigest(p, &options)
	}
	return j
}

// claim commits the job. It reports whether it blocks the session's later submits.
func (s *Submit) claim(r *run) (blocks bool) {
	s.makeAccepted(r)
	w := s.claimWrite(r)
	startEarly := r.startsBeforeDurable(s)
	done := func(created bool) {
		if created {
			r.markAccepted(!startEarly)
			r.arm()
		} else {
			r.discard()
		}
	}
	if r.credentials().provisioned() {
		return s.appendProvisioned(r, w, done, r.markPlaced)
	}
	if startEarly {
		r.launch() // marks the run; markPlaced starts the supervisor
	}
	return s.append(r, w, done, r.markPlaced)
}

// makeAccepted makes the event job.accepted, before the tool can spend from the budget that it has.
func (s *Submit) makeAccepted(r *run) {
	if !r.direct || s.AcceptedIsAnswer {
		s.accepted = r.acceptedEvent(&r.authority.State)
	}
}

// claimWrite returns the write of the claim.
func (s *Submit) claimWrite(r *run) *store.Write {
	w := store.NewWrite(s.submitJob(r))
	if events := s.claimEvents(r); len(events) > 0 {
		w.Add(&store.AppendEvents{Events: events})
	}
	if r.planned != nil {
		w.Put(r.planned.firstRecord(r.row.ID, s.Identity))
	}
	if s.firstCheckpoint != nil {
		w.Put(store.Record{Key: checkpointKey(r.row.ID, firstCheckpointNumber), Value: s.firstCheckpoint.record})
	}
	return w
}

func (s *Submit) submitJob(r *run) *store.SubmitJob {
	s.op = store.SubmitJob{Row: &r.row, Recheck: s.Recheck}
	return &s.op
}

// claimEvents returns the events of the claim: job.accepted, unless the job is direct.
func (s *Submit) claimEvents(r *run) []*store.Event {
	if r.direct {
		return nil
	}
	r.lastJSeq = 1
	return []*store.Event{s.accepted}
}

// claimCommitted reports whether the write of the claim has created a job. If not, it answers the submit.
func (s *Submit) claimCommitted(r *run, res *store.Result) bool {
	switch {
	case r.planned != nil && r.planned.missed != nil && errors.Is(res.Err, store.ErrConflict):
		s.Answers.AnswerAfterEvents(refusalFrame(s, arcp.JobFailed, r.planned.missed))
	case res.Err != nil:
		r.e.cfg.Logger.Error().Err(res.Err).Str("job_id", string(r.row.ID)).Msg("job not accepted")
		s.Answers.AnswerAfterEvents(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")))
	case res.Existing != "" && res.Repeated:
		newRepetitions(r.e).replay(s, &store.Follow{
			Session:       s.Session,
			Job:           res.Existing,
			CorrelationID: s.Envelope.ID,
			Types:         outcomeTypes,
			Once:          true,
		})
	case res.Existing != "":
		newRepetitions(r.e).answer(s, res.Existing, res.Digest == r.row.Digest)
	default:
		countAccepted(r)
		s.answerAccepted(r)
		return true
	}
	return false
}

// answerAccepted answers the submit of a run, if job.accepted is an answer for the session.
func (s *Submit) answerAccepted(r *run) {
	if !s.AcceptedIsAnswer {
		return
	}
	if s.accepted == nil {
		s.accepted = r.acceptedEvent(&r.authority.State)
	}
	s.Answers.AnswerAfterEvents(acceptedAnswer(s.Envelope.ID, s.accepted))
}

// acceptedAnswer returns an event job.accepted as the answer to a submit.
func acceptedAnswer(submit arcp.MessageID, e *store.Event) arcp.Envelope {
	env := arcp.Envelope{Type: arcp.JobAccepted, CorrelationID: submit, JobID: e.JobID(), Payload: e.Payload()}
	return env
}
