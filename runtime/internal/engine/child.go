package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// childCall is a call of another tool by the tool of an attempt, on the tool's goroutine.
type childCall struct {
	tool.Call
	parent    *supervisor
	request   string // digest that identifies the request
	namespace string // of the lease that covers the call
}

// Call runs another tool as a child of the job. The child has an entry in the ledger of its parent
// before it is submitted, so a later attempt with the same request finds the child instead of creating
// another one. Equal requests find their children in the order of the calls. The order of different
// requests does not matter. Requests with a key are equal if their keys are.
func (j toolJob) Call(ctx context.Context, call tool.Call) (arcp.Raw, error) {
	cc := childCall{Call: call, parent: j.s, namespace: arcp.NamespaceToolCall}
	if call.Delegate {
		cc.namespace = arcp.NamespaceAgentDelegate
	}
	child, err := cc.findOrCreate()
	if err != nil {
		return nil, err
	}
	defer cc.recordOutcome(child)
	if call.OnChild != nil {
		call.OnChild(child.Job)
	}
	o, err := cc.await(ctx, child)
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
func (cc *childCall) findOrCreate() (*family.Child, error) {
	switch {
	case len(cc.Arguments) > 0 && !cc.Arguments.IsValid(), len(cc.Lease) > 0 && !cc.Lease.IsValid():
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "call: the arguments and the lease must be valid JSON")
	case cc.MaxRuntime < 0 || cc.MaxRuntime > maxRuntimeLimit*time.Second:
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "call: a maximum runtime of %v; want at most %d s", cc.MaxRuntime, maxRuntimeLimit)
	}
	cc.request = callDigest(&cc.Call)
	for child := cc.match(); child != nil; child = cc.match() {
		created, err := cc.awaitCreation(child)
		switch {
		case err != nil:
			return nil, err
		case created && !cc.stale(child):
			return child, nil
		}
	}
	if cc.FindOnly {
		return nil, tool.ErrNotCalled
	}
	child, err := cc.create()
	if err != nil {
		cc.recordRefusal(err)
	}
	return child, err
}

// callDigest returns the digest that identifies a request for a child.
func callDigest(call *tool.Call) string {
	if call.Key != "" {
		sum := sha256.Sum256([]byte(call.Key))
		return "key/" + hex.EncodeToString(sum[:]) // no digest of a request has a prefix
	}
	p := arcp.ToolInvokePayload{Tool: call.Tool, SubmitOptions: arcp.SubmitOptions{
		Detach:           call.Detach,
		LeaseConstraints: call.Constraints,
		CostBudget:       call.CostBudget,
	}}
	if len(call.Arguments) > 0 {
		p.Arguments = call.Arguments
	}
	if len(call.Lease) > 0 {
		p.LeaseRequest = call.Lease
	}
	if call.MaxRuntime > 0 {
		p.MaxRuntimeSec = new(arcp.FloatNumber(call.MaxRuntime.Seconds()))
	}
	return requestDigest(&p, new(rowOptions))
}

func (cc *childCall) match() *family.Child {
	cc.parent.mu.Lock()
	defer cc.parent.mu.Unlock()
	return cc.parent.ledger.Match(cc.request, cc.parent.attempt)
}

// beginCreation records that a child is being created. Called with s.mu.
func (s *supervisor) beginCreation(child arcp.JobID) {
	if s.creating == nil {
		s.creating = make(map[arcp.JobID]chan struct{})
	}
	s.creating[child] = make(chan struct{})
}

// endCreation records whether there is a job for a child.
func (cc *childCall) endCreation(child *family.Child, created bool) {
	cc.parent.mu.Lock()
	defer cc.parent.mu.Unlock()
	child.NotCreated = !created
	close(cc.parent.creating[child.Job])
	delete(cc.parent.creating, child.Job)
}

// awaitCreation waits while a call of an earlier attempt creates a child. It reports whether there is
// a job.
func (cc *childCall) awaitCreation(child *family.Child) (created bool, err error) {
	cc.parent.mu.Lock()
	c := cc.parent.creating[child.Job]
	cc.parent.mu.Unlock()
	if c != nil {
		select {
		case <-c:
		case <-cc.parent.ctx.Done():
			return false, context.Cause(cc.parent.ctx)
		}
	}
	cc.parent.mu.Lock()
	defer cc.parent.mu.Unlock()
	return !child.NotCreated, nil
}

// stale reports whether a child is to be created anew; see family.Child.Stale.
func (cc *childCall) stale(child *family.Child) bool {
	if child.Failed >= cc.parent.call.failedBefore || cc.parent.e.Lives(child.Job) { // as nearly always
		return false
	}
	j, err := cc.parent.e.cfg.Store.Job(cc.parent.ctx, child.Job)
	return err == nil && child.Stale(cc.parent.call.failedBefore, j.State)
}

// create submits a child: the engine counts it for the limits, its parent's supervisor admits it, and
// one write commits the job with its entry. After the admission only the end of the parent or a refusal
// by the store prevents the child.
func (cc *childCall) create() (*family.Child, error) {
	t, err := cc.resolveCallee()
	position := family.Position{}
	if err == nil {
		position, err = cc.parent.position.Child(cc.Detach)
	}
	if err != nil {
		if err.Code == arcp.CodePermissionDenied {
			cc.parent.recordDenial(cc.namespace, err)
		}
		return nil, err
	}
	if err := (toolJob{toolGoroutine{cc.parent}}).Allow(cc.namespace, t.Name); err != nil {
		return nil, err
	}
	endCreation := cc.parent.e.handoffs.beginCreation(cc.parent.row.Principal)
	defer endCreation()
	r, requested, err := cc.newChild(t, position)
	if err == nil {
		err = cc.parent.e.admit(r, r.maxJobs)
	}
	if err != nil && cc.parent.e.shutdown.quitting() { // not an answer to the tool, which runs again after a restart
		<-cc.parent.ctx.Done()
		return nil, context.Cause(cc.parent.ctx)
	}
	if err != nil {
		return nil, err
	}
	a := &addChild{parent: cc.parent, namespace: cc.namespace, toolReply: newToolReply(), call: family.Call{
		Job:        r.row.ID,
		Agent:      r.row.Agent,
		Request:    cc.request,
		Lease:      requested,
		Attempt:    cc.parent.attempt,
		DelegateID: arcp.NewID("dlg_"),
		MaxEvent:   maxPayload,
	}}
	if !cc.parent.post(a) {
		a.done <- errEnded
	}
	if err := <-a.done; err != nil { // apply, committed or rejected always sends
		r.discard()
		return nil, err
	}
	child := a.admission.Child
	if err := cc.commitChild(r, child, a.admission.Lease); err != nil {
		r.discard()
		cc.revert(child, r)
		cc.endCreation(child, false)
		return nil, err
	}
	cc.endCreation(child, true)
	return child, nil
}

// revert removes a child that was not created from the ledger. If the job has ended meanwhile, its
// nearest ancestor that has not ended gets the report that nothing was spent.
func (cc *childCall) revert(child *family.Child, r *run) {
	c := &revertChild{child, newToolReply()}
	if !cc.parent.post(c) {
		c.done <- errEnded
	}
	if <-c.done != nil {
		reportEnd(r)
	}
}

// resolveCallee resolves the tool of a call in the catalog of the job, and refuses a tool that the job
// must not call.
func (cc *childCall) resolveCallee() (*tool.Tool, *arcp.Error) {
	t, err := cc.parent.catalog.Resolve(cc.Tool)
	switch {
	case err != nil && err.Code == arcp.CodeInvalidArgument:
		err.Message = "call: " + err.Message
		return nil, err
	case err != nil:
		return nil, err
	}
	callee := family.Callee{
		Name:     t.Name,
		Builtin:  t.Source == tool.SourceBuiltin,
		Trusted:  t.AllowsTrust(cc.parent.trust),
		MinTrust: t.MinTrust,
	}
	return t, callee.Check()
}

// newChild makes the run of a child, without its lease.
func (cc *childCall) newChild(t *tool.Tool, position family.Position) (*run, *lease.Lease, *arcp.Error) {
	requested, err := family.RequestedLease(time.Now(), cc.parent.authority.Lease, lease.Request{
		Lease:       cc.Lease,
		CostBudget:  cc.CostBudget,
		Constraints: cc.Constraints,
	})
	if err != nil {
		if err.Code == arcp.CodeLeaseSubsetViolation {
			cc.parent.recordDenial(cc.namespace, err)
		}
		return nil, nil, err
	}
	if err := t.Validate(cc.Arguments); err != nil {
		return nil, nil, err
	}
	r := newRun(cc.parent.e, t)
	r.catalog, r.roles, r.identity = cc.parent.catalog, cc.parent.roles, cc.parent.identity
	r.barred = barredOfChildren(cc.parent.run)
	r.created = time.Now().Truncate(time.Microsecond)
	r.retry, r.strictCancel, r.trust, r.maxJobs = t.Retry, cc.parent.strictCancel, cc.parent.trust, cc.parent.maxJobs
	r.metricEvents = cc.parent.metricEvents && !r.builtin()
	r.maxRuntime = cc.MaxRuntime
	r.position, r.done.donec = position, make(chan struct{})
	p := &cc.parent.row
	r.row = store.Job{
		ID:           arcp.NewJobID(),
		Parent:       p.ID,
		Principal:    p.Principal,
		Session:      cc.parent.owner(),
		Agent:        t.Ref(),
		Arguments:    slices.Clone(cc.Arguments),
		Priority:     p.Priority,
		TraceID:      p.TraceID,
		SpanID:       randomHex(8),
		ParentSpanID: p.SpanID,
		CreatedAt:    r.created,
		State:        arcp.StateAccepted,
		Attempt:      1,
	}
	r.common, r.span = commonOf(&r.row), r.e.cfg.Tracer.StartJob(&r.row)
	return r, requested, nil
}

// commitChild commits the child with its job.accepted and its entry.
func (cc *childCall) commitChild(r *run, child *family.Child, l *lease.Lease) error {
	if cc.parent.currentLifecycle().isFinal() {
		return errEnded
	}
	r.mu.Lock()
	r.authority.SetLease(l)
	r.mu.Unlock()
	options := rowOptions{
		StrictCancel: r.strictCancel,
		Lease:        l.Encode(),
		Depth:        r.position.Depth,
		Detach:       r.position.Detached,
		Trust:        trustOption(r.trust),
		MaxJobs:      r.maxJobs,
		Barred:       r.barred,
		Metrics:      r.metricEvents,
	}
	if r.maxRuntime > 0 {
		options.MaxRuntimeSec = arcp.FloatNumber(r.maxRuntime.Seconds())
	}
	if r.tool.Approval.Rule != "" {
		options.Roles = r.roles
	}
	r.row.Options = options.encode()
	w := store.NewWrite(&store.SubmitJob{Row: &r.row}, &store.AppendEvents{Events: []*store.Event{r.acceptedEvent(&r.authority.State)}})
	r.lastJSeq = 1
	entry, err := cc.createdRecord(child)
	if err != nil {
		return cc.childRefused(r, err)
	}
	var grant *credential.Grant
	if r.credentials().provisioned() {
		var err *arcp.Error
		if grant, err = issueCredentials(r); err != nil {
			return err
		}
		w.Put(grant.Records...)
	}
	w.Put(entry)
	made := make(chan error, 1)
	r.e.cfg.Log.Append(w, func(res *store.Result) {
		if res.Err == nil {
			child.Created = true
			countAccepted(r)
			r.markAccepted(true)
		} else if grant != nil {
			grant.Discard()
		}
		made <- res.Err
	})
	if err := <-made; err != nil {
		return cc.childRefused(r, err)
	}
	return nil
}

// createdRecord returns the entry of a child for the write that creates the child. With it a restart
// distinguishes a child that was deleted later from a child that was never created.
func (cc *childCall) createdRecord(child *family.Child) (store.Record, error) {
	key := childKey(cc.parent.row.ID, child.N)
	rev, err := cc.parent.records().revision(key, 0)
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

func (cc *childCall) childRefused(r *run, err error) error {
	cc.parent.e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Msg("child not accepted")
	return arcp.Errorf(arcp.CodeUnavailable, "the store does not accept jobs")
}

// recordOutcome records that the attempt knows the outcome of a child, on which its later checkpoints
// may depend.
func (cc *childCall) recordOutcome(child *family.Child) {
	cc.parent.mu.Lock()
	defer cc.parent.mu.Unlock()
	child.RecordOutcome(cc.parent.attempt)
}

// await waits until a child has ended and the rest of its budget is returned.
func (cc *childCall) await(ctx context.Context, child *family.Child) (*job.Outcome, error) {
	var o *job.Outcome
	r := cc.parent.e.run(child.Job)
	if r != nil {
		select {
		case <-r.done.donec:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-cc.parent.ctx.Done():
			return nil, context.Cause(cc.parent.ctx)
		}
		o = r.done.outcome
	}
	if o == nil || o.Reference != nil {
		if cc.parent.ctx.Err() != nil {
			return nil, context.Cause(cc.parent.ctx)
		}
		var err error
		if o, err = cc.storedOutcome(child.Job); err != nil {
			return nil, err
		}
	}
	if cc.parent.authority.Budget != nil {
		d := &returnBudget{child: child.Job, run: r, done: make(chan error, 1)}
		if cc.parent.post(d) {
			<-d.done
		}
	}
	return o, nil
}

// storedOutcome reads the outcome of a child that has ended.
func (cc *childCall) storedOutcome(id arcp.JobID) (*job.Outcome, error) {
	j, err := cc.parent.e.cfg.Store.Job(cc.parent.ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, arcp.Errorf(arcp.CodeDataLoss, "the outcome of the child %s is deleted", id)
	case err == nil && !j.State.Terminal():
		return nil, arcp.Errorf(arcp.CodeUnavailable, "the child %s is not run by this process", id).RetryAfter(retryAfter)
	}
	var o *job.Outcome
	if err == nil {
		o, err = readOutcome(cc.parent.ctx, cc.parent.e.cfg.Store, &j)
	}
	if err != nil {
		cc.parent.e.cfg.Logger.Error().Err(err).Str("job_id", string(id)).Msg("outcome of a child cannot be read")
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
		reportEnd(s.run)
	}
	close(s.done.donec)
}
