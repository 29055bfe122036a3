package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of children (SPEC.md §5.6).
const (
	maxChildren = 1000 // of a job
	maxDepth    = 16   // of a child below the job that nobody called
)

// parentEnded is the reason with which the children of an ended job are cancelled.
const parentEnded = "the parent job has ended"

// lineage is the position of a job in its family: how deep it is, and what it inherits.
type lineage struct {
	depth    int           // 0: no child
	detach   bool          // it goes on when its parent has ended
	trust    string        // of the principal when the first of the family was submitted
	maxJobs  int           // of the principal then; 0: the engine's default
	donec    chan struct{} // closed when no supervisor will follow; nil: no child
	final    *job.Outcome  // written before donec is closed; nil: not decided here
	children []*child      // in the order in which they were called; with run.mu to change
}

// join makes the run of a child, which may be waited for.
func (k *lineage) join(o *rowOptions) {
	k.depth, k.detach, k.donec = o.Depth, o.Detach, make(chan struct{})
}

// Call runs another tool as a child of the job. The child has a place in the
// account of its parent before it is submitted, so an attempt that is made again
// finds the children of the one before and does not make them twice: the same
// request finds the same child. Those that are the same in all are found in their
// order, so it does not matter in which order a tool calls different ones at the
// same time.
func (j toolJob) Call(ctx context.Context, c tool.Call) (arcp.Raw, error) {
	s := j.s
	k, err := s.engage(&c)
	if err != nil {
		return nil, err
	}
	defer s.tell(k)
	if c.Made != nil {
		c.Made(k.Job)
	}
	o, err := s.awaitChild(ctx, k)
	switch {
	case err != nil:
		return nil, err
	case o.State == arcp.StateCompleted:
		return o.Value, nil
	case o.State == arcp.StateFailed:
		e := *o.Err
		return nil, &e
	}
	return nil, arcp.Errorf(o.Code, "%s was cancelled: %s", c.Tool, o.Reason)
}

// engage finds the child that an earlier attempt has called, or submits one.
func (s *supervisor) engage(c *tool.Call) (*child, error) {
	switch {
	case len(c.Arguments) > 0 && !c.Arguments.IsValid(), len(c.Lease) > 0 && !c.Lease.IsValid():
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "call: the arguments and the lease must be valid JSON")
	}
	request := callDigest(c)
	for k := s.match(request); k != nil; k = s.match(request) {
		if k.madec != nil { // of an attempt that has ended meanwhile
			select {
			case <-k.madec:
			case <-s.ctx.Done():
				return nil, context.Cause(s.ctx)
			}
		}
		if !k.unmade && !s.stale(k) {
			return k, nil
		}
	}
	k, err := s.hire(c, request)
	if err != nil {
		s.noteRefused(c, err)
	}
	return k, err
}

// callDigest identifies a request for a child.
func callDigest(c *tool.Call) string {
	p := arcp.ToolInvokePayload{Tool: c.Tool, SubmitOptions: arcp.SubmitOptions{Detach: c.Detach, LeaseConstraints: c.Constraints, CostBudget: c.CostBudget}}
	if len(c.Arguments) > 0 {
		p.Arguments = c.Arguments
	}
	if len(c.Lease) > 0 {
		p.LeaseRequest = c.Lease
	}
	return digest(&p, nil)
}

// match finds the first child of this request that the attempt has not called yet.
func (s *supervisor) match(request string) *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.children {
		if k.Request == request && k.called != s.attempt {
			k.called = s.attempt
			return k
		}
	}
	return nil
}

// stale reports whether a child is to be made anew: it has failed, and then the
// attempt that called it, which is retried for that.
func (s *supervisor) stale(k *child) bool {
	if k.Failed >= s.round || s.e.Lives(k.Job) {
		return false
	}
	j, err := s.e.cfg.Store.Job(s.ctx, k.Job)
	return err == nil && j.State.Terminal() && j.State != arcp.StateCompleted
}

// hire submits a child: first it is counted, then its parent's supervisor gives
// it a place in the account and its budget, then it is made. When it has a place
// only the end of its parent, or a refusal, keeps it from being made.
func (s *supervisor) hire(c *tool.Call, request string) (*child, error) {
	namespace := arcp.NamespaceToolCall
	if c.Delegate {
		namespace = arcp.NamespaceAgentDelegate
	}
	t, err := s.callable(c)
	if err != nil {
		if err.Code == arcp.CodePermissionDenied {
			s.denied(namespace, err)
		}
		return nil, err
	}
	if err := (toolJob{s}).Allow(namespace, t.Name); err != nil {
		return nil, err
	}
	r, asked, err := s.newChild(c, t, namespace)
	if err == nil {
		err = s.e.admit(r, r.maxJobs)
	}
	if err != nil {
		return nil, err
	}
	h := &addChild{s: s, run: r, asked: asked, request: request, namespace: namespace, done: make(chan error, 1)}
	if !s.post(h) {
		h.done <- errEnded
	}
	if err := <-h.done; err != nil { // it is always told
		r.drop()
		return nil, err
	}
	defer close(h.child.madec)
	if err := s.makeChild(r, h.child, h.lease); err != nil {
		r.drop()
		h.child.unmade = true
		s.strike(h.child, r)
		return nil, err
	}
	return h.child, nil
}

// callable finds the tool of a call, in the catalogue of the job.
func (s *supervisor) callable(c *tool.Call) (*tool.Tool, *arcp.Error) {
	t, err := s.catalogue.Resolve(c.Tool)
	switch {
	case err != nil && err.Code == arcp.CodeInvalidArgument:
		err.Message = "call: " + err.Message
		return nil, err
	case err != nil:
		return nil, err
	case t.Source == tool.SourceBuiltin: // they act for the client, who could be made to answer its own question
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "%s is for clients; no job calls it", t.Name)
	case !t.Trusts(s.trust):
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", t.Name, t.MinTrust)
	case s.depth >= maxDepth:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "children are called at most %d deep", maxDepth)
	}
	return t, nil
}

// newChild makes the run of a child, all but for its lease.
func (s *supervisor) newChild(c *tool.Call, t *tool.Tool, namespace string) (*run, *lease.Lease, *arcp.Error) {
	request := lease.Request{Lease: c.Lease, CostBudget: c.CostBudget}
	if c.Constraints != nil { // a tool's own time is in whatever zone it runs in
		request.Constraints = &arcp.LeaseConstraints{ExpiresAt: c.Constraints.ExpiresAt.UTC()}
	}
	asked, err := lease.Parse(time.Now(), request)
	if err != nil {
		return nil, nil, err
	}
	if err := asked.Subset(s.auth.Lease); err != nil {
		s.denied(namespace, err)
		return nil, nil, err
	}
	if err := t.Validate(c.Arguments); err != nil {
		return nil, nil, err
	}
	r := s.e.newRun(t)
	r.catalogue, r.roles, r.barred = s.catalogue, s.roles, s.barred
	r.created = time.Now().Truncate(time.Microsecond)
	r.retry, r.strict, r.trust, r.maxJobs = t.Retry, s.strict, s.trust, s.maxJobs
	r.join(&rowOptions{Depth: s.depth + 1, Detach: c.Detach})
	p := &s.row
	r.row = store.Job{ID: arcp.NewJobID(), Parent: p.ID, Principal: p.Principal, Session: p.Session, Agent: t.Ref(), Arguments: slices.Clone(c.Arguments),
		Priority: p.Priority, TraceID: p.TraceID, SpanID: randomHex(8), ParentSpanID: p.SpanID,
		CreatedAt: r.created, State: arcp.StateAccepted, Attempt: 1}
	r.common = commonOf(&r.row)
	return r, asked, nil
}

// makeChild commits the child with its job.accepted, and notes that in the account.
func (s *supervisor) makeChild(r *run, k *child, l *lease.Lease) error {
	if s.hasEnded() {
		return errEnded
	}
	r.mu.Lock()
	r.authorize(l)
	r.mu.Unlock()
	options := rowOptions{StrictCancel: r.strict, Lease: l.Encode(), Depth: r.depth, Detach: r.detach, Trust: trustOption(r.trust), MaxJobs: r.maxJobs, Barred: r.barred}
	if r.tool.Approval.Rule != "" {
		options.Roles = r.roles
	}
	r.row.Options = options.encode()
	w := store.NewWrite(&store.SubmitJob{Row: &r.row}, &store.AppendEvents{Events: []*store.Event{r.acceptedEvent()}})
	r.jseq = 1
	entry, err := s.madeRecord(k)
	if err != nil {
		return s.childRefused(r, err)
	}
	var grant *credential.Grant
	if r.provisioned() {
		var err *arcp.Error
		if grant, err = r.e.issue(r); err != nil {
			return err
		}
		w.Put(grant.Records...)
	}
	w.Put(entry)
	made := make(chan error, 1)
	r.e.cfg.Log.Append(w, func(res *store.Result) {
		if res.Err == nil {
			k.Made = true
			r.tm.Submitted.Inc()
			r.durable(true)
		} else if grant != nil {
			grant.Discard()
		}
		made <- res.Err
	})
	if err := <-made; err != nil {
		return s.childRefused(r, err)
	}
	return nil
}

func (s *supervisor) childRefused(r *run, err error) error {
	s.e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Msg("child not accepted")
	return arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")
}

// hasEnded reports whether the end of the job is decided.
func (r *run) hasEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// tell notes that the attempt knows what came of a child: a checkpoint made from
// now on may rely on that.
func (s *supervisor) tell(k *child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.told = s.attempt
}

// awaitChild waits until a child has ended and given back what is left of its
// budget.
func (s *supervisor) awaitChild(ctx context.Context, k *child) (*job.Outcome, error) {
	var o *job.Outcome
	r := s.e.run(k.Job)
	if r != nil {
		select {
		case <-r.donec:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
		o = r.final
	}
	if o == nil {
		if s.ctx.Err() != nil {
			return nil, context.Cause(s.ctx)
		}
		var err error
		if o, err = s.e.storedOutcome(s.ctx, k.Job); err != nil {
			return nil, err
		}
	}
	if s.auth.Budget != nil {
		d := &settle{child: k.Job, run: r, done: make(chan error, 1)}
		if s.post(d) {
			<-d.done
		}
	}
	return o, nil
}

// parted tells the family that the job is over for this process. Children that
// were not detached are cancelled if it has ended.
func (s *supervisor) parted() {
	if s.outcome != nil {
		for _, k := range s.children {
			if r := s.e.run(k.Job); r != nil && !r.detach {
				r.post(&Cancel{Job: k.Job, Reason: parentEnded, Answers: nobody{}})
			}
		}
	}
	if s.donec == nil {
		return
	}
	s.final = s.outcome
	if s.outcome != nil {
		s.e.reportEnd(s.run)
	}
	close(s.donec)
}

// storedOutcome reads what came of a job that has ended.
func (e *Engine) storedOutcome(ctx context.Context, id arcp.JobID) (*job.Outcome, error) {
	j, err := e.cfg.Store.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, arcp.Errorf(arcp.CodeDataLoss, "what came of the child %s is not kept any more", id)
	case err == nil && !j.State.Terminal():
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the child %s is not run by this process", id).RetryAfter(retryAfter)
	}
	var o *job.Outcome
	if err == nil {
		o, err = e.readOutcome(ctx, &j)
	}
	if err != nil {
		e.cfg.Logger.Error().Err(err).Str("job_id", string(id)).Msg("outcome of a child cannot be read")
		return nil, arcp.Errorf(arcp.CodeUnavailable, "what came of the child cannot be read")
	}
	return o, nil
}

func (e *Engine) readOutcome(ctx context.Context, j *store.Job) (*job.Outcome, error) {
	ends, err := e.readEvents(ctx, j, j.LastJSeq-1)
	if err != nil || len(ends) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d terminal events", len(ends)))
	}
	o := &job.Outcome{State: j.State}
	switch j.State {
	case arcp.StateFailed:
		p, err := arcp.DecodePayload[arcp.Error](&ends[0])
		o.Err = &p
		return o, err
	case arcp.StateCancelled:
		p, err := arcp.DecodePayload[arcp.JobCancelledPayload](&ends[0])
		o.Reason, o.Code = p.Reason, p.Code
		return o, err
	}
	p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&ends[0])
	if o.Value = p.Value; err == nil && p.ResultSize != nil {
		o.Value, err = ReadResult(ctx, e.cfg.Store, j.ID, j.LastJSeq, &p)
	}
	return o, err
}

// ReadResult returns the result of a job whose terminal event is at a position of its
// log and says that the result is in chunks. The chunks are the events before it.
func ReadResult(ctx context.Context, st store.Store, id arcp.JobID, end uint64, p *arcp.JobCompletedPayload) (arcp.Raw, error) {
	if p.ResultSize == nil || *p.ResultSize > maxResult {
		return nil, fmt.Errorf("the size of result %s of %s is not known, or over %d bytes", p.ResultID, id, maxResult)
	}
	size := *p.ResultSize
	value := make(arcp.Raw, 0, size)
	var bad error
	err := st.JobEvents(ctx, id, end-min(end, size/minChunk+2), func(ev *store.Event) bool { // 2: a last short chunk, and the terminal event
		if ev.Type != arcp.JobResultChunk {
			return ev.JSeq < end
		}
		var env arcp.Envelope
		var chunk arcp.JobResultChunkPayload
		if env, bad = arcp.Decode(store.AppendFrame(nil, store.FrameHead(arcp.Version, arcp.SessionPrefix), 0, "", ev)); bad == nil {
			chunk, bad = arcp.DecodePayload[arcp.JobResultChunkPayload](&env)
		}
		if chunk.ResultID == p.ResultID {
			value = append(value, chunk.Data...)
		}
		return bad == nil
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	if uint64(len(value)) != size {
		return nil, fmt.Errorf("%d of %d bytes of result %s of %s", len(value), size, p.ResultID, id)
	}
	return value, nil
}

func (e *Engine) readEvents(ctx context.Context, j *store.Job, after uint64) (events []arcp.Envelope, err error) {
	var bad error
	head := store.FrameHead(arcp.Version, cmp.Or(j.Session, arcp.SessionID(arcp.SessionPrefix)))
	err = e.cfg.Store.JobEvents(ctx, j.ID, after, func(ev *store.Event) bool {
		var env arcp.Envelope
		env, bad = arcp.Decode(store.AppendFrame(nil, head, 0, "", ev))
		events = append(events, env)
		return bad == nil
	})
	return events, errors.Join(err, bad)
}
