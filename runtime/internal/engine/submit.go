package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
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
	Decided   func()          // if set, called once by any goroutine when it is decided whether there is a job; it must not block

	// AcceptedIsAnswer says that job.accepted is an answer outside the log of the session.
	AcceptedIsAnswer bool

	// Existing, if set, is called with the job that a submit without a session repeats. It
	// must not block.
	Existing func(arcp.JobID)

	// Barred are sessions that must not answer gates of the job, because it acts for them.
	Barred []arcp.SessionID

	firstCheckpoint *firstCheckpoint // nil: the job begins at the start
	inTurn          bool             // the session's earlier submits are decided
}

// Submit makes a job, or answers job.failed without a job. The answers to a session are sent in the
// order of its submits. Submit does not block.
func (e *Engine) Submit(s Submit) {
	waits := e.order.wait(s.Session, func() bool {
		s.inTurn = true
		return submitter{e}.submit(&s)
	})
	if !waits {
		submitter{e}.submit(&s)
	}
}

// submitter performs submits.
type submitter struct{ *Engine }

// submit performs a submit whose turn has come. It reports whether it blocks the session's later
// submits.
func (e submitter) submit(s *Submit) (blocks bool) {
	r, refusal := e.prepare(s)
	if refusal == nil {
		refusal = e.admit(r, s.MaxJobs)
	}
	switch {
	case refusal != nil:
		e.Refuse(s, arcp.JobFailed, refusal)
		return false
	case r.runsInline():
		return e.runInline(r, s)
	case r.runsAsCall():
		return e.startCall(r, s)
	}
	return e.claim(r, s)
}

func refusalFrame(s *Submit, t arcp.Type, err *arcp.Error) arcp.Envelope {
	env := arcp.Frame(t, err)
	env.CorrelationID = s.Envelope.ID
	if s.Envelope.TraceID != "" {
		env.TraceID, _ = traceOf(s.Envelope)
	}
	return env
}

// prepare makes the checks of a submit that need no lock, and returns its run.
func (e submitter) prepare(s *Submit) (*run, *arcp.Error) {
	snapshot := e.cfg.Catalog(s.Session, s.Principal, s.Trust)
	t, err := snapshot.Resolve(s.Payload.Tool)
	if err != nil {
		return nil, err
	}
	if s.Envelope.JobID != "" {
		return nil, arcp.Errorf(arcp.CodeUnimplemented, "only a tool can create a child job; leave job_id out")
	}
	if !t.AllowsTrust(s.Trust) {
		e.audit().denied("submit", s.Principal, s.Session, t.Ref(), "trust")
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", t.Name, t.MinTrust)
	}
	maxRuntime, err := parseMaxRuntime(s.Payload.MaxRuntimeSec)
	if err != nil {
		return nil, err
	}
	retry, err := retryOf(t, s.Payload.Retry)
	if err != nil {
		return nil, err
	}
	granted, err := authority.SubmitLease(time.Now(), &s.Payload.SubmitOptions, s.Lease)
	if err != nil {
		if err.Code == arcp.CodePermissionDenied {
			e.cfg.Metrics.CountDenial(metrics.LeaseRequest, "not_covered")
			e.audit().denied("submit", s.Principal, s.Session, t.Ref(), "lease")
		}
		return nil, err
	}
	if err := t.Validate(s.Payload.Arguments); err != nil {
		return nil, err
	}
	r := newRun(e.Engine, t)
	r.catalog, r.roles, r.barred = snapshot, s.Roles, s.Barred
	r.authority.SetLease(granted)
	r.created = time.Now().Truncate(time.Microsecond) // the precision of the wire
	r.maxRuntime, r.retry = maxRuntime, retry
	r.trust, r.maxJobs = s.Trust, s.MaxJobs
	r.direct, r.strictCancel, r.cancelOnDisconnect = s.Payload.Direct, s.Payload.StrictCancel, cancelOnDisconnect(t, s.Payload)
	if s.firstCheckpoint != nil {
		r.restoredFrom = &s.firstCheckpoint.restoredFrom
	}
	r.row = e.row(s, t, granted, r.created)
	r.common = commonOf(&r.row)
	return r, nil
}

func (e submitter) row(s *Submit, t *tool.Tool, granted *lease.Lease, now time.Time) store.Job {
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
	options.Barred = s.Barred
	if s.firstCheckpoint != nil {
		options.RestoredFrom = &s.firstCheckpoint.restoredFrom
	}
	j := store.Job{
		ID: arcp.NewJobID(), Principal: s.Principal, Session: s.Session, SubmitID: env.ID, Agent: t.Ref(),
		Arguments: p.Arguments, Priority: env.Priority, IdempotencyKey: key, CreatedAt: now,
		State: arcp.StateAccepted, Attempt: 1,
		Options: options.encode(),
	}
	j.TraceID, j.ParentSpanID = traceOf(env)
	j.SpanID = randomHex(8)
	if key != "" {
		j.Digest = requestDigest(p, options.RestoredFrom)
	}
	return j
}

// auditor writes the audit records of the engine.
type auditor struct{ audit.Log }

func (e *Engine) audit() auditor { return auditor{audit.New(e.cfg.Logger)} }

// denied audits a refusal; target is a job or a tool.
func (a auditor) denied(action, actor string, session arcp.SessionID, target, reason string) {
	a.Event(action, actor, session).Str("target", target).Str("decision", "denied").Str("reason", reason).Msg("audit")
}

// cancelled audits that an admin ends a job of another principal.
func (a auditor) cancelled(r *run, c *cancelJob) {
	a.Event("cancel", c.Principal, c.Session).Str("job_id", string(c.Job)).Str("owner", r.row.Principal).Str("decision", "allowed").Msg("audit")
}

// strictCancel is the reason of refusals to other sessions of a job's principal.
const strictCancel = "strict_cancel"

// maxRuntimeLimit bounds max_runtime_sec, in seconds: a year.
const maxRuntimeLimit = 365 * 24 * 3600

func parseMaxRuntime(n *arcp.Number) (time.Duration, *arcp.Error) {
	if n == nil {
		return 0, nil
	}
	s, err := strconv.ParseFloat(string(*n), 64)
	if err != nil || s <= 0 || s > maxRuntimeLimit {
		return 0, arcp.Errorf(arcp.CodeInvalidRequest, "max_runtime_sec must be a number of seconds above 0 and at most %d", maxRuntimeLimit)
	}
	return max(time.Duration(s*float64(time.Second)), 1), nil // 0 means no limit
}

// requestDigest identifies a request (§5.2) by its payload without the key, and by the checkpoint
// from which its job begins.
func requestDigest(p *arcp.ToolInvokePayload, from *arcp.RestoredFrom) string {
	q := struct {
		arcp.ToolInvokePayload
		From *arcp.RestoredFrom `json:"restored_from,omitzero"`
	}{*p, from}
	q.IdempotencyKey = ""
	raw, err := arcp.Marshal(q)
	if err == nil {
		raw, err = arcp.Canonical(raw)
	}
	if err != nil { // the payload was decoded from valid JSON
		panic("engine: digest of a request: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// traceOf returns a job's trace id and parent span (§5.11): the client's, the parts of a traceparent,
// or a new trace.
func traceOf(env *arcp.Envelope) (traceID, parentSpan string) {
	if env.TraceID == "" {
		return randomHex(16), env.SpanID
	}
	if p := strings.Split(env.TraceID, "-"); len(p) == 4 && len(p[0]) == 2 && len(p[1]) == 32 && len(p[2]) == 16 && len(p[3]) == 2 {
		if _, err := hex.DecodeString(p[1] + p[2]); err == nil {
			return p[1], p[2]
		}
	}
	return env.TraceID, env.SpanID
}

// randomHex returns n random bytes, 16 at most, in hexadecimal digits. They are not secret: the
// identifiers of traces and spans only have to differ.
func randomHex(n int) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())
	var digits [2 * len(b)]byte
	return string(digits[:hex.Encode(digits[:], b[:n])])
}

// The delays after which a refused client may retry, in seconds.
const (
	retryAfter     = 1  // for lack of capacity
	retryAfterFull = 10 // for lack of disk space
)

// admit counts a job for the limits and adds it to the jobTable. It refuses a call of a built-in tool
// only if the disk is full, or if the principal has maxBuiltins calls. It refuses a child whose parent
// does not run any more; a shutdown waits for the children of running jobs.
func (e *Engine) admit(r *run, maxJobs int) *arcp.Error {
	refused := submitter{e}.reserve(r, maxJobs)
	if refused == nil {
		return nil
	}
	if refused.name != "" {
		e.cfg.Metrics.RateLimited.WithLabelValues(refused.name).Inc()
	}
	return refused.err
}

// reserve is admit without metrics.
func (e submitter) reserve(r *run, maxJobs int) *limitError {
	if e.cfg.full() {
		return &limitError{"disk", arcp.Errorf(arcp.CodeResourceExhausted, "the disk is nearly full").RetryAfter(retryAfterFull)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case r.row.Parent != "" && !e.jobs.active(r.row.Parent):
		return &limitError{"", errEnded}
	case e.shutdown.quitting() || e.shutdown.draining() && r.row.Parent == "":
		return &limitError{"", errShuttingDown()}
	case r.runsInline():
		return nil
	case r.runsAsCall():
		e.calls.Add(1)
		return nil
	}
	if err := e.jobs.check(r, maxJobs); err != nil {
		return err
	}
	if err := e.rates.check(r.tool); err != nil {
		return err
	}
	if err := e.queues.reserve(r); err != nil {
		return err
	}
	if r.schedule != schedSlot {
		r.state, r.row.State = arcp.StateQueued, arcp.StateQueued
	}
	e.jobs.add(r)
	return nil
}

// claim commits the job. It reports whether it blocks the session's later submits.
func (e submitter) claim(r *run, s *Submit) (blocks bool) {
	w := store.NewWrite(&store.SubmitJob{Row: &r.row, Recheck: s.Recheck})
	r.lastJSeq = 0
	if !r.direct {
		w.Add(&store.AppendEvents{Events: []*store.Event{r.acceptedEvent()}})
		r.lastJSeq = 1
	}
	if s.firstCheckpoint != nil {
		w.Put(store.Record{Key: checkpointKey(r.row.ID, firstCheckpointNumber), Value: s.firstCheckpoint.record})
	}
	startEarly := r.startsBeforeDurable(s)
	done := func(created bool) {
		if created {
			r.markAccepted(!startEarly)
		} else {
			r.discard()
		}
	}
	if (jobCredentials{r}).provisioned() {
		return e.appendProvisioned(s, r, w, done, r.markPlaced)
	}
	if startEarly {
		r.launch() // marks the run; markPlaced starts the supervisor
	}
	return e.appendSubmit(s, r, w, done, r.markPlaced)
}

// claimCommitted reports whether the write of the claim has created a job. If not, it answers the submit.
func (e submitter) claimCommitted(s *Submit, r *run, res *store.Result) bool {
	switch {
	case res.Err != nil:
		e.cfg.Logger.Error().Err(res.Err).Str("job_id", string(r.row.ID)).Msg("job not accepted")
		s.Answers.AnswerAfterEvents(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")))
	case res.Existing != "" && res.Repeated:
		e.replay(s, &store.Follow{Session: s.Session, Job: res.Existing, CorrelationID: s.Envelope.ID, Types: outcomeTypes, Once: true})
	case res.Existing != "":
		e.answerRepetition(s, res.Existing, res.Digest == r.row.Digest)
	default:
		r.metrics.Submitted.Inc()
		s.answerAccepted(r)
		return true
	}
	return false
}

// answerAccepted answers the submit of a run, if job.accepted is an answer for the session.
func (s *Submit) answerAccepted(r *run) {
	if s.AcceptedIsAnswer {
		s.Answers.AnswerAfterEvents(acceptedAnswer(s.Envelope.ID, r.acceptedEvent()))
	}
}

// acceptedAnswer returns an event job.accepted as the answer to a submit.
func acceptedAnswer(submit arcp.MessageID, e *store.Event) arcp.Envelope {
	env := arcp.Envelope{Type: arcp.JobAccepted, CorrelationID: submit, JobID: e.JobID(), Payload: e.Payload()}
	return env
}

// originalAccept returns the job.accepted of a job as the answer to a submit that repeats another
// one.
func (e submitter) originalAccept(submit arcp.MessageID, id arcp.JobID) eventlog.DeferredAnswer {
	return func(ctx context.Context) arcp.Envelope {
		var accepted *store.Event
		err := e.cfg.Store.JobEvents(ctx, id, 0, func(event *store.Event) bool {
			accepted = event
			return false
		})
		if err != nil || accepted == nil || accepted.Type != arcp.JobAccepted {
			env := arcp.Frame(arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable, "the original job of this submit cannot be read"))
			env.CorrelationID = submit
			return env
		}
		return acceptedAnswer(submit, accepted)
	}
}

// outcomeTypes are job.accepted and the types that end a job.
var outcomeTypes = func() arcp.TypeSet {
	set := arcp.Lookup(arcp.JobAccepted).Bit
	for i := range arcp.Catalog {
		if s := &arcp.Catalog[i]; s.Type.Terminal() {
			set |= s.Bit
		}
	}
	return set
}()

// answerRepetition answers a submit with a used idempotency key (§5.2). The same request gets the
// original accept and outcome, another request a refusal.
func (e submitter) answerRepetition(s *Submit, original arcp.JobID, same bool) {
	if !same {
		s.Answers.AnswerAfterEvents(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeDuplicateKey,
			"the idempotency key was used with another request")))
		return
	}
	e.replay(s, &store.Follow{Session: s.Session, Job: original, CorrelationID: s.Envelope.ID, Types: outcomeTypes})
}

// replay sends a session the accept and the outcome of a job again.
func (e submitter) replay(s *Submit, f *store.Follow) {
	if s.Session == "" {
		if s.Existing != nil {
			s.Existing(f.Job)
		}
		return
	}
	if s.AcceptedIsAnswer {
		f.Types &^= arcp.Lookup(arcp.JobAccepted).Bit
	}
	e.cfg.Log.Follow(*f, func(res *store.Result) {
		if s.AcceptedIsAnswer && res.Err == nil {
			s.Answers.AnswerAfterEvents(e.originalAccept(s.Envelope.ID, f.Job))
		}
	}, func(res *store.Result) {
		if res.Err != nil {
			s.Answers.AnswerAfterEvents(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable,
				"the original job of this submit cannot be read")))
		}
	})
}
