package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/audit"
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
	Answers   Answerer
	Lease     *lease.Lease // of the principal: no job may do more; nil: it says nothing
	Trust     string       // of the principal
	Roles     []string     // of the principal; nil: not known
	Recheck   bool         // the session may have sent the same submit on an earlier connection
	Settled   func()       // if set, called once by any goroutine when it is decided whether there is a job; it must not block

	// Existing, if set, is told the job that a submit without a session repeats: it
	// has no session that could be answered. It must not block.
	Existing func(arcp.JobID)

	// Barred are sessions that never answer gates of the job: it acts for them.
	Barred []arcp.SessionID

	seed   *seed // nil: the job begins at the start
	inTurn bool  // those before it in its session are settled
}

// Submit makes a job, or refuses with a job.failed without a job. Either answer
// leaves in the order of the calls made for one session. It does not block.
func (e *Engine) Submit(s Submit) {
	waits := e.order.wait(s.Session, func() bool {
		s.inTurn = true
		return e.submit(&s)
	})
	if !waits {
		e.submit(&s)
	}
}

// submit is Submit for one whose turn has come. It reports whether the next one of the
// session may follow at once.
func (e *Engine) submit(s *Submit) (next bool) {
	r, refusal := e.prepare(s)
	if refusal == nil {
		refusal = e.admit(r, s.MaxJobs)
	}
	switch {
	case refusal != nil:
		e.Refuse(s, arcp.JobFailed, refusal)
		return true
	case r.inline():
		return e.runInline(r, s)
	case r.ordered():
		return e.startCall(r, s)
	}
	return e.claim(r, s)
}

func refusalFrame(s *Submit, t arcp.Type, err *arcp.Error) arcp.Envelope {
	env := arcp.Frame(t, err)
	env.CorrelationID = s.Envelope.ID
	if s.Envelope.TraceID != "" {
		env.TraceID, _ = trace(s.Envelope)
	}
	return env
}

// prepare checks everything that can be checked without a lock and makes the
// job's row.
func (e *Engine) prepare(s *Submit) (*run, *arcp.Error) {
	catalogue := e.cfg.Catalogue(s.Session, s.Principal, s.Trust)
	t, err := catalogue.Resolve(s.Payload.Tool)
	if err != nil {
		return nil, err
	}
	if s.Envelope.JobID != "" {
		return nil, arcp.Errorf(arcp.CodeUnimplemented, "child jobs are not offered by this runtime; leave job_id out")
	}
	if !t.Trusts(s.Trust) {
		e.auditDenied("submit", s.Principal, s.Session, t.Ref(), "trust")
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", t.Name, t.MinTrust)
	}
	maxRuntime, err := seconds(s.Payload.MaxRuntimeSec)
	if err != nil {
		return nil, err
	}
	retry, err := retryOf(t, s.Payload.Retry)
	if err != nil {
		return nil, err
	}
	granted, err := leaseOf(time.Now(), &s.Payload.SubmitOptions, s.Lease)
	if err != nil {
		if err.Code == arcp.CodePermissionDenied {
			e.cfg.Metrics.Denied(metrics.LeaseRequest, "not_covered")
			e.auditDenied("submit", s.Principal, s.Session, t.Ref(), "lease")
		}
		return nil, err
	}
	if err := t.Validate(s.Payload.Arguments); err != nil {
		return nil, err
	}
	r := e.newRun(t)
	r.catalogue, r.roles, r.barred = catalogue, s.Roles, s.Barred
	r.authorize(granted)
	r.created = time.Now().Truncate(time.Microsecond) // what is said on the wire is all there is
	r.maxRuntime, r.retry = maxRuntime, retry
	r.trust, r.maxJobs = s.Trust, s.MaxJobs
	r.direct, r.strict, r.withSession = s.Payload.Direct, s.Payload.StrictCancel, endsWithSession(t, s.Payload)
	if s.seed != nil {
		r.origin = &s.seed.from
	}
	r.row = e.row(s, t, granted, r.created)
	r.common = commonOf(&r.row)
	return r, nil
}

func (e *Engine) row(s *Submit, t *tool.Tool, granted *lease.Lease, now time.Time) store.Job {
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
	if s.seed != nil {
		options.RestoredFrom = &s.seed.from
	}
	j := store.Job{
		ID: arcp.NewJobID(), Principal: s.Principal, Session: s.Session, SubmitID: env.ID, Agent: t.Ref(),
		Arguments: p.Arguments, Priority: env.Priority, IdempotencyKey: key, CreatedAt: now,
		State: arcp.StateAccepted, Attempt: 1,
		Options: options.encode(),
	}
	j.TraceID, j.ParentSpanID = trace(env)
	j.SpanID = randomHex(8)
	if key != "" {
		j.Digest = digest(p, options.RestoredFrom)
	}
	return j
}

// auditDenied records that a session was refused what it may not do; target is a
// job or a tool.
func (e *Engine) auditDenied(action, actor string, session arcp.SessionID, target, reason string) {
	e.audit().Event(action, actor, session).Str("target", target).Str("decision", "denied").Str("reason", reason).Msg("audit")
}

func (e *Engine) audit() audit.Log { return audit.New(e.cfg.Logger) }

// strictly is the reason of refusals to other sessions of a job's principal.
const strictly = "strict_cancel"

// maxRuntimeLimit bounds max_runtime_sec: a year.
const maxRuntimeLimit = 365 * 24 * 3600

func seconds(n *arcp.Number) (time.Duration, *arcp.Error) {
	if n == nil {
		return 0, nil
	}
	s, err := strconv.ParseFloat(string(*n), 64)
	if err != nil || s <= 0 || s > maxRuntimeLimit {
		return 0, arcp.Errorf(arcp.CodeInvalidRequest, "max_runtime_sec must be a number of seconds above 0 and at most %d", maxRuntimeLimit)
	}
	return max(time.Duration(s*float64(time.Second)), 1), nil // 0 would mean without a limit
}

// digest identifies a canonical request (§5.2): all of the payload but the key,
// and the checkpoint it goes on from.
func digest(p *arcp.ToolInvokePayload, from *arcp.RestoredFrom) string {
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

// trace returns a job's trace id and parent span: the client's, a traceparent
// taken apart, or a new trace (§5.11).
func trace(env *arcp.Envelope) (traceID, parentSpan string) {
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

// randomHex returns n random bytes, 16 at most, in hexadecimal digits.
func randomHex(n int) string {
	var b [16]byte
	var digits [2 * len(b)]byte
	rand.Read(b[:n]) // never fails
	return string(hex.AppendEncode(digits[:0], b[:n]))
}

// The waits that a refusal asks for, in seconds.
const (
	retryAfter     = 1  // for lack of capacity
	retryAfterFull = 10 // for lack of disk: somebody has to delete something
)

// maxBuiltins bounds the jobs of built-in tools that a principal has at once, of
// which some wait for people. Limits does not count them.
const maxBuiltins = 4096

// admit counts the job against the limits and enters it in the books. A built-in
// tool is refused only where nothing may be written, or if it is one of very many,
// a child when its parent runs no longer: until then a shutdown waits for both.
func (e *Engine) admit(r *run, maxJobs int) *arcp.Error {
	if e.full() {
		e.cfg.Metrics.RateLimited.WithLabelValues("disk").Inc()
		return arcp.Errorf(arcp.CodeResourceExhausted, "the disk is nearly full").RetryAfter(retryAfterFull)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case r.row.Parent != "" && !e.active(r.row.Parent):
		return errEnded
	case e.draining && r.row.Parent == "":
		return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(retryAfter)
	case r.inline():
		return nil
	case r.ordered():
		e.calls.Add(1)
		return nil
	case r.builtin():
		e.settleOver()
		if e.perCaller[r.row.Principal] >= maxBuiltins {
			e.cfg.Metrics.RateLimited.WithLabelValues("builtins_per_principal").Inc()
			return arcp.Errorf(arcp.CodeResourceExhausted, "%d calls of built-in tools have not ended", maxBuiltins).RetryAfter(retryAfter)
		}
	default:
		if err := e.overLimit(r, maxJobs); err != nil {
			return err
		}
	}
	if err := e.checkData(r); err != nil {
		return err
	}
	if err := e.overRate(r.tool); err != nil {
		return err
	}
	if err := e.reserve(r); err != nil {
		return err
	}
	if !r.slot {
		r.state, r.row.State = arcp.StateQueued, arcp.StateQueued
	}
	e.enroll(r)
	return nil
}

// overLimit refuses a job too many. Called with e.mu.
func (e *Engine) overLimit(r *run, maxJobs int) *arcp.Error {
	e.settleOver()
	perPrincipal := e.limits.MaxJobsPerPrincipal
	if maxJobs > 0 {
		perPrincipal = maxJobs
	}
	for _, l := range [...]struct {
		name     string
		n, limit int
	}{
		{"jobs", e.counted, e.limits.MaxJobs},
		{"jobs_per_principal", e.perPrincipal[r.row.Principal], perPrincipal},
		{"jobs_per_session", e.perSession[r.row.Session].counted, e.limits.MaxJobsPerSession},
	} {
		if l.limit > 0 && l.n >= l.limit {
			e.cfg.Metrics.RateLimited.WithLabelValues(l.name).Inc()
			return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d %s reached", l.limit,
				strings.ReplaceAll(l.name, "_", " ")).RetryAfter(retryAfter)
		}
	}
	return nil
}

// smallCall is the size of arguments, in bytes, up to which a built-in tool can be called
// when MaxData is reached: calls such as jobs.delete must still work.
const smallCall = 4 << 10

// checkData refuses a job whose arguments exceed MaxData together with those of all jobs
// that have not ended. Called with e.mu.
func (e *Engine) checkData(r *run) *arcp.Error {
	n, limit := int64(len(r.row.Arguments)), e.limits.MaxData
	if r.builtin() && n <= smallCall || limit <= 0 {
		return nil
	}
	if e.settleOver(); e.data+n <= limit {
		return nil
	}
	e.cfg.Metrics.RateLimited.WithLabelValues("data").Inc()
	return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d bytes of arguments of jobs that have not ended reached", limit).RetryAfter(retryAfter)
}

// claim commits the job. A tool that changes nothing, and whose job cannot turn
// out to be a repetition, starts meanwhile. It reports whether the next submit may
// follow at once.
func (e *Engine) claim(r *run, s *Submit) (next bool) {
	w := store.NewWrite(&store.SubmitJob{Row: &r.row, Recheck: s.Recheck})
	r.jseq = 0
	if !r.direct {
		w.Add(&store.AppendEvents{Events: []*store.Event{r.acceptedEvent()}})
		r.jseq = 1
	}
	if s.seed != nil {
		w.Put(store.Record{Key: pointKey(r.row.ID, seedN), Value: s.seed.record})
	}
	done := func(made bool) {
		if made {
			r.durable(true)
		} else {
			r.drop()
		}
	}
	if r.provisioned() {
		return e.enterProvisioned(s, r, w, done, r.place)
	}
	early := r.tool.SideEffect.Early() && r.row.IdempotencyKey == "" && !s.Recheck && s.seed == nil && r.holdsSlot()
	if !early {
		return e.enter(s, r, w, done, r.place)
	}
	r.launch() // as soon as the claim is placed
	return e.enter(s, r, w, func(made bool) {
		if made {
			r.durable(false)
		} else {
			r.drop()
		}
	}, r.place)
}

// claimed reports whether the claim has made a job; if not, it answers.
func (e *Engine) claimed(s *Submit, r *run, res *store.Result) bool {
	switch {
	case res.Err != nil:
		e.cfg.Logger.Error().Err(res.Err).Str("job_id", string(r.row.ID)).Msg("job not accepted")
		s.Answers.Post(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")))
	case res.Existing != "" && res.Repeated:
		e.replay(s, &store.Follow{Session: s.Session, Job: res.Existing, CorrelationID: s.Envelope.ID, Types: outcomeTypes, Once: true})
	case res.Existing != "":
		e.repeat(s, res.Existing, res.Digest == r.row.Digest)
	default:
		r.tm.Submitted.Inc()
		return true
	}
	return false
}

// outcomeTypes are the types that end a job, and the one that begins it.
var outcomeTypes = func() arcp.TypeSet {
	set := arcp.Lookup(arcp.JobAccepted).Bit
	for i := range arcp.Catalog {
		if s := &arcp.Catalog[i]; s.Type.Terminal() {
			set |= s.Bit
		}
	}
	return set
}()

// repeat answers a submit whose idempotency key is taken: the same request gets
// the original accept and outcome, another one a refusal (§5.2).
func (e *Engine) repeat(s *Submit, original arcp.JobID, same bool) {
	if !same {
		s.Answers.Post(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeDuplicateKey,
			"the idempotency key was used with another request")))
		return
	}
	e.replay(s, &store.Follow{Session: s.Session, Job: original, CorrelationID: s.Envelope.ID, Types: outcomeTypes})
}

// replay gives a session the accept and the outcome of a job it asks for again.
// A submit that was sent once more under its own id is followed already.
func (e *Engine) replay(s *Submit, f *store.Follow) {
	if s.Session == "" {
		if s.Existing != nil {
			s.Existing(f.Job)
		}
		return
	}
	e.cfg.Log.Follow(*f, nil, func(res *store.Result) {
		if res.Err != nil {
			s.Answers.Post(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable,
				"the original job of this submit cannot be read")))
		}
	})
}
