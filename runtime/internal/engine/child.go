package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// childCaller calls children for the tool of an attempt, on the tool's goroutine.
type childCaller struct{ *supervisor }

// Call runs another tool as a child of the job. The child has an entry in the ledger of its parent
// before it is submitted, so a later attempt with the same request finds the child instead of creating
// another one. Equal requests find their children in the order of the calls. The order of different
// requests does not matter.
func (j toolJob) Call(ctx context.Context, call tool.Call) (arcp.Raw, error) {
	s := childCaller{j.s}
	child, err := s.findOrCreate(&call)
	if err != nil {
		return nil, err
	}
	defer s.recordOutcome(child)
	if call.OnChild != nil {
		call.OnChild(child.Job)
	}
	o, err := s.await(ctx, child)
	switch {
	case err != nil:
		return nil, err
	case o.State == arcp.StateCompleted:
		return o.Value, nil
	case o.State == arcp.StateFailed:
		e := *o.Err
		return nil, &e
	}
	return nil, arcp.Errorf(o.Code, "%s was cancelled: %s", call.Tool, o.Reason)
}

// findOrCreate returns the child that an earlier attempt has called, or a new one.
func (s childCaller) findOrCreate(call *tool.Call) (*family.Child, error) {
	switch {
	case len(call.Arguments) > 0 && !call.Arguments.IsValid(), len(call.Lease) > 0 && !call.Lease.IsValid():
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "call: the arguments and the lease must be valid JSON")
	}
	request := callDigest(call)
	for child := s.match(request); child != nil; child = s.match(request) {
		created, err := s.awaitCreation(child)
		switch {
		case err != nil:
			return nil, err
		case created && !s.stale(child):
			return child, nil
		}
	}
	child, err := s.create(call, request)
	if err != nil {
		s.recordRefusal(call, err)
	}
	return child, err
}

// callDigest returns the digest that identifies a request for a child.
func callDigest(call *tool.Call) string {
	p := arcp.ToolInvokePayload{Tool: call.Tool, SubmitOptions: arcp.SubmitOptions{Detach: call.Detach, LeaseConstraints: call.Constraints, CostBudget: call.CostBudget}}
	if len(call.Arguments) > 0 {
		p.Arguments = call.Arguments
	}
	if len(call.Lease) > 0 {
		p.LeaseRequest = call.Lease
	}
	return requestDigest(&p, nil)
}

func (s childCaller) match(request string) *family.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Match(request, s.attempt)
}

// beginCreation records that a child is being created. Called with s.mu.
func (s *supervisor) beginCreation(child arcp.JobID) {
	if s.creating == nil {
		s.creating = make(map[arcp.JobID]chan struct{})
	}
	s.creating[child] = make(chan struct{})
}

// endCreation records whether there is a job for a child.
func (s childCaller) endCreation(child *family.Child, created bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	child.NotCreated = !created
	close(s.creating[child.Job])
	delete(s.creating, child.Job)
}

// awaitCreation waits while a call of an earlier attempt creates a child. It reports whether there is
// a job.
func (s childCaller) awaitCreation(child *family.Child) (created bool, err error) {
	s.mu.Lock()
	c := s.creating[child.Job]
	s.mu.Unlock()
	if c != nil {
		select {
		case <-c:
		case <-s.ctx.Done():
			return false, context.Cause(s.ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !child.NotCreated, nil
}

// stale reports whether a child is to be created anew; see family.Child.Stale.
func (s childCaller) stale(child *family.Child) bool {
	if child.Failed >= s.call.failedBefore || s.e.Lives(child.Job) { // as nearly always
		return false
	}
	j, err := s.e.cfg.Store.Job(s.ctx, child.Job)
	return err == nil && child.Stale(s.call.failedBefore, j.State)
}

// create submits a child: the engine counts it for the limits, its parent's supervisor admits it, and
// one write commits the job with its entry. After the admission only the end of the parent or a refusal
// by the store prevents the child.
func (s childCaller) create(call *tool.Call, request string) (*family.Child, error) {
	namespace := arcp.NamespaceToolCall
	if call.Delegate {
		namespace = arcp.NamespaceAgentDelegate
	}
	t, err := s.resolveCallee(call)
	position := family.Position{}
	if err == nil {
		position, err = s.position.Child(call.Detach)
	}
	if err != nil {
		if err.Code == arcp.CodePermissionDenied {
			s.recordDenial(namespace, err)
		}
		return nil, err
	}
	if err := (toolJob{toolGoroutine{s.supervisor}}).Allow(namespace, t.Name); err != nil {
		return nil, err
	}
	r, requested, err := s.newChild(call, t, position, namespace)
	if err == nil {
		err = s.e.admit(r, r.maxJobs)
	}
	if err != nil && s.e.shutdown.quitting() { // not an answer to the tool, which runs again after a restart
		<-s.ctx.Done()
		return nil, context.Cause(s.ctx)
	}
	if err != nil {
		return nil, err
	}
	a := &addChild{parent: s.supervisor, namespace: namespace, toolReply: newToolReply(), call: family.Call{Job: r.row.ID, Agent: r.row.Agent,
		Request: request, Lease: requested, Attempt: s.attempt, DelegateID: arcp.NewID("dlg_"), MaxEvent: maxPayload}}
	if !s.post(a) {
		a.done <- errEnded
	}
	if err := <-a.done; err != nil { // apply, committed or rejected always sends
		r.discard()
		return nil, err
	}
	child := a.admission.Child
	if err := s.commitChild(r, child, a.admission.Lease); err != nil {
		r.discard()
		s.revert(child, r)
		s.endCreation(child, false)
		return nil, err
	}
	s.endCreation(child, true)
	return child, nil
}

// revert removes a child that was not created from the ledger. If the job has ended meanwhile, its
// nearest ancestor that has not ended gets the report that nothing was spent.
func (s childCaller) revert(child *family.Child, r *run) {
	c := &revertChild{child, newToolReply()}
	if !s.post(c) {
		c.done <- errEnded
	}
	if <-c.done != nil {
		r.reportEnd()
	}
}

// resolveCallee resolves the tool of a call in the catalog of the job, and refuses a tool that the job
// must not call.
func (s childCaller) resolveCallee(call *tool.Call) (*tool.Tool, *arcp.Error) {
	t, err := s.catalog.Resolve(call.Tool)
	switch {
	case err != nil && err.Code == arcp.CodeInvalidArgument:
		err.Message = "call: " + err.Message
		return nil, err
	case err != nil:
		return nil, err
	}
	callee := family.Callee{Name: t.Name, Builtin: t.Source == tool.SourceBuiltin, Trusted: t.AllowsTrust(s.trust), MinTrust: t.MinTrust}
	return t, callee.Check()
}

// newChild makes the run of a child, without its lease.
func (s childCaller) newChild(call *tool.Call, t *tool.Tool, position family.Position, namespace string) (*run, *lease.Lease, *arcp.Error) {
	requested, err := family.RequestedLease(time.Now(), s.authority.Lease, lease.Request{Lease: call.Lease, CostBudget: call.CostBudget, Constraints: call.Constraints})
	if err != nil {
		if err.Code == arcp.CodeLeaseSubsetViolation {
			s.recordDenial(namespace, err)
		}
		return nil, nil, err
	}
	if err := t.Validate(call.Arguments); err != nil {
		return nil, nil, err
	}
	r := newRun(s.e, t)
	r.catalog, r.roles, r.barred = s.catalog, s.roles, s.barred
	r.created = time.Now().Truncate(time.Microsecond)
	r.retry, r.strictCancel, r.trust, r.maxJobs = t.Retry, s.strictCancel, s.trust, s.maxJobs
	r.position, r.done.donec = position, make(chan struct{})
	p := &s.row
	r.row = store.Job{ID: arcp.NewJobID(), Parent: p.ID, Principal: p.Principal, Session: p.Session, Agent: t.Ref(), Arguments: slices.Clone(call.Arguments),
		Priority: p.Priority, TraceID: p.TraceID, SpanID: randomHex(8), ParentSpanID: p.SpanID,
		CreatedAt: r.created, State: arcp.StateAccepted, Attempt: 1}
	r.common = commonOf(&r.row)
	return r, requested, nil
}

// commitChild commits the child with its job.accepted and its entry.
func (s childCaller) commitChild(r *run, child *family.Child, l *lease.Lease) error {
	if s.currentLifecycle().isFinal() {
		return errEnded
	}
	r.mu.Lock()
	r.authority.SetLease(l)
	r.mu.Unlock()
	options := rowOptions{StrictCancel: r.strictCancel, Lease: l.Encode(), Depth: r.position.Depth, Detach: r.position.Detached, Trust: trustOption(r.trust), MaxJobs: r.maxJobs, Barred: r.barred}
	if r.tool.Approval.Rule != "" {
		options.Roles = r.roles
	}
	r.row.Options = options.encode()
	w := store.NewWrite(&store.SubmitJob{Row: &r.row}, &store.AppendEvents{Events: []*store.Event{r.acceptedEvent()}})
	r.lastJSeq = 1
	entry, err := s.createdRecord(child)
	if err != nil {
		return s.childRefused(r, err)
	}
	var grant *credential.Grant
	if r.credentials().provisioned() {
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
			child.Created = true
			r.metrics.Submitted.Inc()
			r.markAccepted(true)
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

// createdRecord returns the entry of a child for the write that creates the child. With it a restart
// distinguishes a child that was deleted later from a child that was never created.
func (s childCaller) createdRecord(child *family.Child) (store.Record, error) {
	key := childKey(s.row.ID, child.N)
	rev, err := s.records().revision(key, 0)
	if err == nil && rev == 0 { // the parent is deleted
		err = errEnded
	}
	if err != nil {
		return store.Record{}, err
	}
	created := child.Entry
	created.Created = true
	value, err := arcp.Marshal(created)
	return store.Record{Key: key, Rev: rev, Value: value}, err
}

func (s childCaller) childRefused(r *run, err error) error {
	s.e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Msg("child not accepted")
	return arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")
}

// recordOutcome records that the attempt knows the outcome of a child, on which its later checkpoints
// may depend.
func (s childCaller) recordOutcome(child *family.Child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	child.RecordOutcome(s.attempt)
}

// await waits until a child has ended and the rest of its budget is returned.
func (s childCaller) await(ctx context.Context, child *family.Child) (*job.Outcome, error) {
	var o *job.Outcome
	r := s.e.run(child.Job)
	if r != nil {
		select {
		case <-r.done.donec:
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
		if o, err = s.storedOutcome(child.Job); err != nil {
			return nil, err
		}
	}
	if s.authority.Budget != nil {
		d := &returnBudget{child: child.Job, run: r, done: make(chan error, 1)}
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
		return nil, arcp.Errorf(arcp.CodeDataLoss, "the outcome of the child %s is deleted", id)
	case err == nil && !j.State.Terminal():
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the child %s is not run by this process", id).RetryAfter(retryAfter)
	}
	var o *job.Outcome
	if err == nil {
		o, err = readOutcome(s.ctx, s.e.cfg.Store, &j)
	}
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(id)).Msg("outcome of a child cannot be read")
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the outcome of the child cannot be read")
	}
	return o, nil
}

// finishFamily cancels the children of a job that has ended, except the detached ones, and reports the
// end to the parent. It unblocks the caller that waits for the job.
func (s *supervisor) finishFamily() {
	if s.outcome != nil {
		for _, child := range s.ledger.Children() {
			if r := s.e.run(child.Job); r != nil && r.position.EndsWithParent() {
				r.post(internalCancel(child.Job, family.ParentEnded))
			}
		}
	}
	if s.done.donec == nil {
		return
	}
	s.done.outcome = s.outcome
	if s.outcome != nil {
		s.reportEnd()
	}
	close(s.done.donec)
}
