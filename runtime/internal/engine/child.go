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
	maxDepth    = 16   // ancestors of a job
)

// parentEnded is the reason for which the children of an ended job are cancelled.
const parentEnded = "the parent job has ended"

// childCaller calls children for the tool of an attempt, on the tool's goroutine.
type childCaller struct{ *supervisor }

// Call runs another tool as a child of the job. The child has an entry in the ledger of its
// parent before it is submitted, so a later attempt finds the child instead of calling it
// twice: the same request finds the same child. Equal requests find their children in the
// order of the calls, so the order of different calls does not matter.
func (j toolJob) Call(ctx context.Context, c tool.Call) (arcp.Raw, error) {
	s := childCaller{j.s}
	k, err := s.findOrCreate(&c)
	if err != nil {
		return nil, err
	}
	defer s.markTold(k)
	if c.OnChild != nil {
		c.OnChild(k.Job)
	}
	o, err := s.await(ctx, k)
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

// findOrCreate returns the child that an earlier attempt has called, or a new one.
func (s childCaller) findOrCreate(c *tool.Call) (*child, error) {
	switch {
	case len(c.Arguments) > 0 && !c.Arguments.IsValid(), len(c.Lease) > 0 && !c.Lease.IsValid():
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "call: the arguments and the lease must be valid JSON")
	}
	request := callDigest(c)
	for k := s.match(request); k != nil; k = s.match(request) {
		if k.createdc != nil { // of an attempt that has ended meanwhile
			select {
			case <-k.createdc:
			case <-s.ctx.Done():
				return nil, context.Cause(s.ctx)
			}
		}
		if !k.notCreated && !s.stale(k) {
			return k, nil
		}
	}
	k, err := s.create(c, request)
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

func (s childCaller) match(request string) *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.match(request, s.attempt)
}

// stale reports whether a child is to be created anew: it has failed, and so has the
// attempt that called it.
func (s childCaller) stale(k *child) bool {
	if k.Failed >= s.call.failedBefore || s.e.Lives(k.Job) {
		return false
	}
	j, err := s.e.cfg.Store.Job(s.ctx, k.Job)
	return err == nil && j.State.Terminal() && j.State != arcp.StateCompleted
}

// create submits a child. It is counted for the limits, then its parent's supervisor
// reserves its entry and its budget, then it is committed. After the reservation only the
// end of the parent, or a refusal, prevents it.
func (s childCaller) create(c *tool.Call, request string) (*child, error) {
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
	if err := (toolJob{toolSide{s.supervisor}}).Allow(namespace, t.Name); err != nil {
		return nil, err
	}
	r, asked, err := s.newChild(c, t, namespace)
	if err == nil {
		err = s.e.admit(r, r.maxJobs)
	}
	if err != nil {
		return nil, err
	}
	a := &addChild{s: s.supervisor, run: r, asked: asked, request: request, namespace: namespace, done: make(chan error, 1)}
	if !s.post(a) {
		a.done <- errEnded
	}
	if err := <-a.done; err != nil { // it is always told
		r.discard()
		return nil, err
	}
	defer close(a.child.createdc)
	if err := s.commitChild(r, a.child, a.lease); err != nil {
		r.discard()
		a.child.notCreated = true
		s.revert(a.child, r)
		return nil, err
	}
	return a.child, nil
}

// revert removes a child that was not created from the ledger. If the job has ended
// meanwhile, the nearest ancestor that has not learns that nothing was spent.
func (s childCaller) revert(k *child, r *run) {
	c := &revertChild{k, make(chan error, 1)}
	if !s.post(c) {
		c.done <- errEnded
	}
	if <-c.done != nil {
		r.reportEnd()
	}
}

// callable resolves the tool of a call in the catalogue of the job.
func (s childCaller) callable(c *tool.Call) (*tool.Tool, *arcp.Error) {
	t, err := s.catalogue.Resolve(c.Tool)
	switch {
	case err != nil && err.Code == arcp.CodeInvalidArgument:
		err.Message = "call: " + err.Message
		return nil, err
	case err != nil:
		return nil, err
	case t.Source == tool.SourceBuiltin: // they act for the client, which could be made to answer its own question
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "%s is for clients; no job calls it", t.Name)
	case !t.AllowsTrust(s.trust):
		return nil, arcp.Errorf(arcp.CodePermissionDenied, "%s needs the trust level %s", t.Name, t.MinTrust)
	case s.depth >= maxDepth:
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "children are called at most %d deep", maxDepth)
	}
	return t, nil
}

// newChild makes the run of a child, without its lease.
func (s childCaller) newChild(c *tool.Call, t *tool.Tool, namespace string) (*run, *lease.Lease, *arcp.Error) {
	request := lease.Request{Lease: c.Lease, CostBudget: c.CostBudget}
	if c.Constraints != nil { // the tool's time may be in any zone
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
	r := newRun(s.e, t)
	r.catalogue, r.roles, r.barred = s.catalogue, s.roles, s.barred
	r.created = time.Now().Truncate(time.Microsecond)
	r.retry, r.strict, r.trust, r.maxJobs = t.Retry, s.strict, s.trust, s.maxJobs
	r.depth, r.detach, r.done.c = s.depth+1, c.Detach, make(chan struct{})
	p := &s.row
	r.row = store.Job{ID: arcp.NewJobID(), Parent: p.ID, Principal: p.Principal, Session: p.Session, Agent: t.Ref(), Arguments: slices.Clone(c.Arguments),
		Priority: p.Priority, TraceID: p.TraceID, SpanID: randomHex(8), ParentSpanID: p.SpanID,
		CreatedAt: r.created, State: arcp.StateAccepted, Attempt: 1}
	r.common = commonOf(&r.row)
	return r, asked, nil
}

// commitChild commits the child with its job.accepted and its entry.
func (s childCaller) commitChild(r *run, k *child, l *lease.Lease) error {
	if s.lifecycle().isFinal() {
		return errEnded
	}
	r.mu.Lock()
	r.auth.set(l)
	r.mu.Unlock()
	options := rowOptions{StrictCancel: r.strict, Lease: l.Encode(), Depth: r.depth, Detach: r.detach, Trust: trustOption(r.trust), MaxJobs: r.maxJobs, Barred: r.barred}
	if r.tool.Approval.Rule != "" {
		options.Roles = r.roles
	}
	r.row.Options = options.encode()
	w := store.NewWrite(&store.SubmitJob{Row: &r.row}, &store.AppendEvents{Events: []*store.Event{r.acceptedEvent()}})
	r.jseq = 1
	entry, err := s.createdRecord(k)
	if err != nil {
		return s.childRefused(r, err)
	}
	var grant *credential.Grant
	if (jobCredentials{r}).provisioned() {
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
			r.metrics.Submitted.Inc()
			r.accepted(true)
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

// createdRecord is the entry of a child in the write that creates the child. It tells a
// child that is deleted later from one that was never created.
func (s childCaller) createdRecord(k *child) (store.Record, error) {
	key := childKey(s.row.ID, k.N)
	rev, err := jobRecords{s.run}.revision(key, 0)
	if err == nil && rev == 0 { // the parent is deleted
		err = errEnded
	}
	if err != nil {
		return store.Record{}, err
	}
	created := k.ledgerEntry
	created.Made = true
	value, err := arcp.Marshal(created)
	return store.Record{Key: key, Rev: rev, Value: value}, err
}

func (s childCaller) childRefused(r *run, err error) error {
	s.e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Msg("child not accepted")
	return arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")
}

// markTold records that the attempt knows the outcome of a child: later checkpoints may
// rely on it.
func (s childCaller) markTold(k *child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.toldTo = s.attempt
}

// await waits until a child has ended and the rest of its budget is returned.
func (s childCaller) await(ctx context.Context, k *child) (*job.Outcome, error) {
	var o *job.Outcome
	r := s.e.run(k.Job)
	if r != nil {
		select {
		case <-r.done.c:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
		o = r.done.outcome
	}
	if o == nil {
		if s.ctx.Err() != nil {
			return nil, context.Cause(s.ctx)
		}
		var err error
		if o, err = s.storedOutcome(k.Job); err != nil {
			return nil, err
		}
	}
	if s.auth.Budget != nil {
		d := &returnBudget{child: k.Job, run: r, done: make(chan error, 1)}
		if s.post(d) {
			<-d.done
		}
	}
	return o, nil
}

// storedOutcome reads the outcome of a child that has ended.
func (s childCaller) storedOutcome(id arcp.JobID) (*job.Outcome, error) {
	j, err := s.e.cfg.Store.Job(s.ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, arcp.Errorf(arcp.CodeDataLoss, "what came of the child %s is not kept any more", id)
	case err == nil && !j.State.Terminal():
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the child %s is not run by this process", id).RetryAfter(retryAfter)
	}
	var o *job.Outcome
	if err == nil {
		o, err = readOutcome(s.ctx, s.e.cfg.Store, &j)
	}
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(id)).Msg("outcome of a child cannot be read")
		return nil, arcp.Errorf(arcp.CodeUnavailable, "what came of the child cannot be read")
	}
	return o, nil
}

// finishFamily tells the job's relatives that it is over for this process. If it has ended,
// its children that are not detached are cancelled.
func (s *supervisor) finishFamily() {
	if s.outcome != nil {
		for _, k := range s.ledger.children {
			if r := s.e.run(k.Job); r != nil && !r.detach {
				r.post(ownCancel(k.Job, parentEnded))
			}
		}
	}
	if s.done.c == nil {
		return
	}
	s.done.outcome = s.outcome
	if s.outcome != nil {
		s.reportEnd()
	}
	close(s.done.c)
}

// readOutcome reads the outcome of a job that has ended.
func readOutcome(ctx context.Context, st store.Store, j *store.Job) (*job.Outcome, error) {
	ends, err := readEvents(ctx, st, j, j.LastJSeq-1)
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
		o.Value, err = ReadResult(ctx, st, j.ID, j.LastJSeq, &p)
	}
	return o, err
}

// ReadResult returns the result of a job in chunks. end is the position of the terminal
// event p in the job's log. The chunks precede it.
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

// readEvents reads the events of a job behind a position of its log.
func readEvents(ctx context.Context, st store.Store, j *store.Job, after uint64) (events []arcp.Envelope, err error) {
	var bad error
	head := store.FrameHead(arcp.Version, cmp.Or(j.Session, arcp.SessionID(arcp.SessionPrefix)))
	err = st.JobEvents(ctx, j.ID, after, func(ev *store.Event) bool {
		var env arcp.Envelope
		env, bad = arcp.Decode(store.AppendFrame(nil, head, 0, "", ev))
		events = append(events, env)
		return bad == nil
	})
	return events, errors.Join(err, bad)
}
