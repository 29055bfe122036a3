package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
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
	Settled   func() // if set, called once by any goroutine when it is decided whether there is a job; it must not block
}

// Submit makes a job, or refuses with a job.failed without a job. Either answer
// leaves in the order of the calls made for one session. It does not block.
func (e *Engine) Submit(s Submit) {
	r, refusal := e.prepare(&s)
	if refusal == nil {
		refusal = e.admit(r, s.MaxJobs)
	}
	if refusal != nil {
		e.Refuse(&s, arcp.JobFailed, refusal)
		return
	}
	if r.tool.Source == tool.SourceBuiltin {
		e.inline(r, &s)
		return
	}
	e.claim(r, &s)
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
	t, err := e.cfg.Tools.Resolve(s.Payload.Tool)
	if err != nil {
		return nil, err
	}
	if s.Envelope.JobID != "" {
		return nil, arcp.Errorf(arcp.CodeUnimplemented, "child jobs are not offered by this runtime; leave job_id out")
	}
	if err := unsupported(&s.Payload.SubmitOptions); err != nil {
		return nil, err
	}
	maxRuntime, err := seconds(s.Payload.MaxRuntimeSec)
	if err != nil {
		return nil, err
	}
	if err := t.Validate(s.Payload.Arguments); err != nil {
		return nil, err
	}
	now := time.Now().Truncate(time.Microsecond) // what is said on the wire is all there is
	r := &run{e: e, tool: t, tm: e.cfg.Metrics.Tool(t.Name), maxRuntime: maxRuntime, created: now,
		direct: s.Payload.Direct, strict: s.Payload.StrictCancel, withSession: s.Payload.OnDisconnect == "cancel",
		kick: make(chan struct{}, 1), committed: make(chan error, 1)}
	r.space.L = &r.mu
	r.row = e.row(s, t, now)
	r.common = commonOf(&r.row)
	return r, nil
}

func (e *Engine) row(s *Submit, t *tool.Tool, now time.Time) store.Job {
	env, p := s.Envelope, s.Payload
	key := env.IdempotencyKey
	if key == "" {
		key = p.IdempotencyKey
	}
	j := store.Job{
		ID: arcp.NewJobID(), Principal: s.Principal, Session: s.Session, SubmitID: env.ID, Agent: t.Ref(),
		Arguments: p.Arguments, Priority: env.Priority, IdempotencyKey: key, CreatedAt: now,
		State: arcp.StateAccepted, Attempt: 1,
		Options: rowOptions{Direct: p.Direct, CausationID: env.CausationID}.encode(),
	}
	j.TraceID, j.ParentSpanID = trace(env)
	j.SpanID = randomHex(8)
	if key != "" {
		j.Digest = digest(p)
	}
	return j
}

// unsupported refuses options whose meaning could not be kept.
func unsupported(o *arcp.SubmitOptions) *arcp.Error {
	for _, m := range [...]struct {
		name string
		set  bool
	}{
		{"cost_budget", len(o.CostBudget) > 0},
		{"lease_request", len(o.LeaseRequest) > 0 && o.LeaseRequest.Kind() != 'n' && string(o.LeaseRequest) != "{}"},
		{"lease_constraints", o.LeaseConstraints != nil && !o.LeaseConstraints.ExpiresAt.IsZero()},
		{"retry", len(o.Retry) > 0 && o.Retry.Kind() != 'n'},
	} {
		if m.set {
			return arcp.Errorf(arcp.CodeUnimplemented, "%s is not offered by this runtime; leave it out", m.name)
		}
	}
	return nil
}

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

// digest identifies a canonical request (§5.2): all of the payload but the key.
func digest(p *arcp.ToolInvokePayload) string {
	q := *p
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
// taken apart, or a new trace (§5.9).
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

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// retryAfter is the wait that a refusal for lack of capacity asks for, in
// seconds.
const retryAfter = 1

// admit counts the job against the limits and enters it in the books.
func (e *Engine) admit(r *run, maxJobs int) *arcp.Error {
	if r.tool.Source == tool.SourceBuiltin {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	perPrincipal := e.limits.MaxJobsPerPrincipal
	if maxJobs > 0 {
		perPrincipal = maxJobs
	}
	if e.draining {
		return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(retryAfter)
	}
	for _, l := range [...]struct {
		name     string
		n, limit int
	}{
		{"jobs", len(e.runs), e.limits.MaxJobs},
		{"jobs_per_principal", e.perPrincipal[r.row.Principal], perPrincipal},
		{"jobs_per_session", e.perSession[r.row.Session], e.limits.MaxJobsPerSession},
	} {
		if l.limit > 0 && l.n >= l.limit {
			e.cfg.Metrics.RateLimited.WithLabelValues(l.name).Inc()
			return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d %s reached", l.limit,
				strings.ReplaceAll(l.name, "_", " ")).RetryAfter(retryAfter)
		}
	}
	if err := e.reserve(r); err != nil {
		return err
	}
	r.count(r.row.State)
	e.runs[r.row.ID] = r
	count(e.perSession, r.row.Session, 1)
	count(e.perPrincipal, r.row.Principal, 1)
	return nil
}

// claim commits the job. A tool that changes nothing, and whose job cannot turn
// out to be a repetition, starts meanwhile.
func (e *Engine) claim(r *run, s *Submit) {
	w := &store.Write{Submit: &r.row}
	if !r.direct {
		w.Events = []*store.Event{r.acceptedEvent()}
	}
	early := r.tool.SideEffect.Early() && r.row.IdempotencyKey == "" && r.holdsSlot()
	e.enter(s, r, w, func(made bool) {
		if made {
			r.durable(!early)
		} else {
			r.drop()
		}
	}, func() {
		if early {
			r.launch()
		}
		r.place()
	})
}

// claimed reports whether the claim has made a job; if not, it answers.
func (e *Engine) claimed(s *Submit, r *run, res *store.Result) bool {
	switch {
	case res.Err != nil:
		e.cfg.Logger.Error().Err(res.Err).Str("job_id", string(r.row.ID)).Msg("job not accepted")
		s.Answers.Post(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")))
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
	e.cfg.Log.Append(&store.Write{Follow: &store.Follow{Session: s.Session, Job: original,
		CorrelationID: s.Envelope.ID, Types: outcomeTypes}}, func(res *store.Result) {
		if res.Err != nil {
			s.Answers.Post(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable,
				"the original job of this idempotency key cannot be read")))
		}
	})
}
