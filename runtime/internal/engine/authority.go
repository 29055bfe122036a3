package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// leaseOf is what a submit's job may do: what it asks for, if its principal may,
// and without a lease_request, of which an empty one is one, what the principal's
// jobs may by default, until the end and for the amounts that it names.
func leaseOf(now time.Time, o *arcp.SubmitOptions, limit *lease.Lease) (*lease.Lease, *arcp.Error) {
	silent := len(o.LeaseRequest) == 0 || o.LeaseRequest.Kind() == 'n'
	if silent && len(o.CostBudget) == 0 && o.LeaseConstraints == nil { // as nearly always
		return limit, nil
	}
	asked, err := lease.Parse(now, lease.Request{Lease: o.LeaseRequest, Constraints: o.LeaseConstraints, CostBudget: o.CostBudget})
	if err != nil {
		return nil, err
	}
	if limit == nil {
		return asked, nil
	}
	if silent {
		asked = asked.With(limit)
	}
	if err := asked.Within(limit); err != nil {
		return nil, err
	}
	return asked.Inherit(limit, limit.Budget()), nil
}

// describe says what a lease allows, as clients read it.
func describeLease(l *lease.Lease) (raw arcp.Raw, constraints *arcp.LeaseConstraints) {
	if l == nil {
		return nil, nil
	}
	if end := l.ExpiresAt(); !end.IsZero() {
		constraints = &arcp.LeaseConstraints{ExpiresAt: end.UTC()}
	}
	return l.RFC(), constraints
}

// LeaseOf is the lease of a job as clients read it, and the rest of its budget if
// the job has not ended; it is empty if the job has no lease.
func (e *Engine) LeaseOf(j *store.Job) (raw arcp.Raw, constraints *arcp.LeaseConstraints, budget arcp.Raw) {
	options := optionsOf(j)
	raw, constraints = describeLease(options.lease())
	if raw == nil {
		raw = arcp.Raw("{}")
	}
	if r := e.run(j.ID); r != nil && !j.State.Terminal() {
		r.mu.Lock()
		defer r.mu.Unlock()
		budget = r.auth.Budget.JSON()
	}
	return raw, constraints, budget
}

// now is the time by which leases end: however the clock of the machine is set,
// it goes on from when the process first saw the job.
func (r *run) now() time.Time { return r.seen.Add(time.Since(r.seen)) }

// Allow asks the job's authority. It is the only way to it.
func (j toolJob) Allow(namespace, target string) error {
	return j.s.check(namespace, func(a *lease.Authority, now time.Time) *arcp.Error {
		return a.Check(now, namespace, target, "")
	})
}

func (j toolJob) Files() *access.Files { return access.NewFiles(j.Allow).Telling(j.s.denied) }

func (j toolJob) Fetcher() *access.Fetcher { return j.s.e.cfg.Fetcher.For(j.Allow).Telling(j.s.denied) }

// UseModel asks the lease; one that says nothing of models allows all of them,
// unless the server demands that it does.
func (j toolJob) UseModel(model string) error {
	return j.s.check(arcp.NamespaceModelUse, func(a *lease.Authority, now time.Time) *arcp.Error {
		if !a.Lease.Has(arcp.NamespaceModelUse) && !j.s.e.cfg.RequireModelLease {
			return a.Operate(now)
		}
		return a.Check(now, arcp.NamespaceModelUse, model, "")
	})
}

// check asks for an operation. Nothing acts after its attempt has ended.
func (s *supervisor) check(namespace string, ask func(*lease.Authority, time.Time) *arcp.Error) error {
	s.mu.Lock()
	var err *arcp.Error
	switch {
	case s.over || s.stopped || s.ctx.Err() != nil:
		err = errEnded
	default:
		err = ask(&s.auth, s.now())
	}
	if err == nil {
		s.mu.Unlock()
		return nil
	}
	s.lapsed = s.lapsed || err.Code == arcp.CodeLeaseExpired && s.leaseOver(s.now())
	currency, _ := s.auth.Budget.Exhausted()
	s.mu.Unlock()
	if err.Code == arcp.CodeBudgetExhausted {
		s.e.cfg.Metrics.Exhausted(currency)
	}
	s.denied(namespace, err)
	return err
}

// denied counts and records a refusal. A lease that has ended ends the job.
func (s *supervisor) denied(namespace string, err *arcp.Error) {
	if err == errEnded {
		return
	}
	reason := "not_covered"
	switch err.Code {
	case arcp.CodeLeaseExpired:
		reason = "expired"
	case arcp.CodeLeaseRevoked:
		reason = "revoked"
	case arcp.CodeBudgetExhausted:
		reason = "exhausted"
	}
	s.e.cfg.Metrics.Denied(namespace, reason)
	s.e.audit().Event("denial", s.row.Principal, s.row.Session).Str("job_id", string(s.row.ID)).Str("tool", s.row.Agent).
		Str("namespace", namespace).Str("decision", "denied").Str("reason", reason).Msg("audit")
	switch {
	case s.leaseOver(s.now()):
		s.post(preemption{})
	case err.Code == arcp.CodeLeaseExpired:
		s.noteExpired()
	}
}

// sweep notices the permission leases that have ended.
func (s *supervisor) sweep() {
	at := s.now()
	s.noteExpired()
	s.progress.Swept, s.unsaved = at.UTC(), true
}

// permitEnd is when the next permission lease ends whose end was not noticed, by
// run.now; zero: there is none.
func (r *run) permitEnd() time.Time { return r.auth.Grants.NextEnd(r.progress.Swept) }

// noteExpired counts and logs the permission leases whose end is noticed now.
func (s *supervisor) noteExpired() {
	s.mu.Lock()
	var expired []lease.Grant
	for _, g := range s.auth.Grants.All() {
		if _, err := s.auth.Grants.Live(s.now(), g.ID); err != nil && err.Code == arcp.CodeLeaseExpired {
			expired = append(expired, g)
		}
	}
	s.mu.Unlock()
	for _, g := range expired {
		if s.e.endLease(g.ID) {
			s.e.cfg.Metrics.LeasesExpired.Inc()
			s.e.cfg.Logger.Info().Str("job_id", string(s.row.ID)).Str("lease_id", string(g.ID)).Str("permission", g.Permission).Msg("permission lease expired")
		}
	}
}

// leaseOver reports whether the job's lease has ended.
func (r *run) leaseOver(now time.Time) bool {
	end := r.leaseEnd()
	return !end.IsZero() && !now.Before(end)
}

// leaseEnd is when the lease counts no more; zero: never.
func (r *run) leaseEnd() time.Time {
	end := r.auth.Lease.ExpiresAt()
	if end.IsZero() {
		return end
	}
	return end.Add(lease.Grace)
}

// preemption ends a job whose lease has ended.
type preemption struct{}

func (preemption) meet(s *supervisor, now time.Time) { s.preempt(now) }

func (s *supervisor) preempt(now time.Time) {
	if !s.m.State().Terminal() && s.leaseOver(s.now()) {
		s.e.cfg.Metrics.LeasesExpired.Inc()
		s.e.cfg.Logger.Info().Str("job_id", string(s.row.ID)).Msg("lease expired")
		s.m.Fail(now, arcp.Errorf(arcp.CodeLeaseExpired, "the job's lease ended at %s", s.auth.Lease.ExpiresAt().UTC().Format(time.RFC3339)))
	}
}

func (preemption) settled(*supervisor, error) {}
func (preemption) tooLate(*Engine, bool)      {}

// preempts is when the job is ended because its lease has; zero: at its next
// operation.
func (r *run) preempts() time.Time {
	if !r.e.cfg.PreemptExpired {
		return time.Time{}
	}
	return r.clocked(r.leaseEnd())
}

// clocked is a moment of run.now by the clock that everything else goes by; zero
// stays zero.
func (r *run) clocked(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.Now().Add(t.Sub(r.now()))
}

func (j toolJob) Charge(name, currency string, amount arcp.Number) error {
	m := arcp.MetricPayload{Name: "cost." + name, Value: amount, Unit: currency}
	if name == "" || currency == "" || !lease.Debits(m.Name) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "a charge needs a name other than budget, and a currency")
	}
	return j.s.spend(m, func(b *lease.Budget, unit string, cost arcp.Number) (lease.Amount, bool, *arcp.Error) {
		if err := j.s.auth.Ended(j.s.now()); err != nil { // what a lease had left is nobody's any more
			j.s.lapsed = true
			return lease.Amount{}, false, err
		}
		return b.Charge(unit, cost)
	})
}

// spend reports a cost. What it costs, and what is left, is written together
// with the metric.
func (s *supervisor) spend(m arcp.MetricPayload, debit func(*lease.Budget, string, arcp.Number) (lease.Amount, bool, *arcp.Error)) error {
	ev, err := s.encode(arcp.Metric, m)
	if err != nil {
		return err
	}
	err = s.enqueue(ev, nil, func() (*store.Event, *arcp.Error) {
		left, announce, err := debit(s.auth.Budget, m.Unit, m.Value)
		if err != nil {
			return nil, err
		}
		s.spent = s.spent || s.auth.Budget != nil
		if !announce {
			return nil, nil
		}
		return s.event(arcp.Metric, time.Now(), s.row.Priority, remaining(left)), nil
	})
	refused, _ := errors.AsType[*arcp.Error](err)
	switch {
	case refused == nil:
	case refused.Code == arcp.CodeBudgetExhausted:
		s.e.cfg.Metrics.Exhausted(m.Unit)
		s.denied(arcp.NamespaceCostBudget, refused)
	case refused.Code == arcp.CodeLeaseExpired:
		s.denied(arcp.NamespaceCostBudget, refused)
	}
	return err
}

// remaining is how it is told what is left of a budget.
func remaining(left lease.Amount) arcp.MetricPayload {
	return arcp.MetricPayload{Name: "cost.budget.remaining", Value: left.Number(), Unit: left.Currency()}
}

func (j toolJob) Permit(ctx context.Context, p tool.PermissionAsk) (tool.PermissionLease, error) {
	term := &arcp.PermissionTerm{Permission: p.Permission, Resource: p.Resource, Operation: p.Operation, Seconds: uint64((max(p.For, 0) + time.Second - 1) / time.Second)}
	row, err := j.s.ask(ctx, approval.Row{Kind: approval.Permission, Action: p.Reason, Permission: term}, p.Expires)
	switch {
	case err != nil:
		return tool.PermissionLease{}, err
	case row.Resolution != approval.Granted:
		return tool.PermissionLease{}, refusal(&row)
	}
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	g, refused := s.auth.Grants.Live(s.now(), row.Lease)
	switch {
	case refused != nil && refused.Code == arcp.CodeNotFound:
		return tool.PermissionLease{}, arcp.Errorf(arcp.CodeLeaseExpired, "the permission has ended")
	case refused != nil:
		return tool.PermissionLease{}, refused
	}
	return tool.PermissionLease{ID: g.ID, Permission: g.Permission, Resource: g.Resource, Operation: g.Operation, ExpiresAt: g.ExpiresAt}, nil
}

// refusal says why what was asked for does not happen.
func refusal(q *approval.Row) *arcp.Error {
	var e *arcp.Error
	switch {
	case q.Status == approval.Expired && (q.Kind == approval.Input || q.Kind == approval.Choice):
		return arcp.Errorf(arcp.CodeDeadlineExceeded, "nobody answered in time")
	case q.Status == approval.Expired:
		e = arcp.Errorf(arcp.CodePermissionDenied, "nobody answered in time")
		e.Cause = &arcp.Cause{Code: arcp.CodeDeadlineExceeded, Message: "the question expired"}
	case q.Status == approval.Cancelled:
		e = arcp.Errorf(arcp.CodeCancelled, "the question was withdrawn: %s", q.Reason)
	case q.Reason != "":
		e = arcp.Errorf(arcp.CodePermissionDenied, "denied: %s", q.Reason)
	default:
		e = arcp.Errorf(arcp.CodePermissionDenied, "denied")
	}
	return e
}

func (j toolJob) Permitted(permission, resource, operation string) error {
	return j.s.check(permission, func(a *lease.Authority, now time.Time) *arcp.Error {
		return a.Check(now, permission, resource, operation)
	})
}

func (j toolJob) Extend(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error) {
	done := make(chan error, 1)
	x := &Extend{Lease: id, More: more, tool: j.s, Done: func(err *arcp.Error) {
		if err != nil {
			done <- err
		} else {
			done <- nil
		}
	}}
	if j.s.isOver() || !j.s.post(x) {
		return time.Time{}, errEnded
	}
	if err := <-done; err != nil {
		return time.Time{}, err
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	g, _ := j.s.auth.Grants.Get(id)
	return g.ExpiresAt, nil
}

func (j toolJob) Ask(ctx context.Context, a tool.InputAsk) (tool.Answer, error) {
	return j.answer(ctx, approval.Row{Kind: approval.Input, Action: a.Prompt, Schema: a.Schema, Default: a.Default}, a.Expires)
}

func (j toolJob) Choose(ctx context.Context, c tool.ChoiceAsk) (tool.Answer, error) {
	if err := approval.CheckOptions(c.Options); err != nil {
		return tool.Answer{}, err
	}
	return j.answer(ctx, approval.Row{Kind: approval.Choice, Action: c.Prompt, Options: c.Options}, c.Expires)
}

func (j toolJob) answer(ctx context.Context, row approval.Row, wait time.Duration) (tool.Answer, error) {
	row, err := j.s.ask(ctx, row, wait)
	switch {
	case err != nil:
		return tool.Answer{}, err
	case row.Status != approval.Resolved:
		return tool.Answer{}, refusal(&row)
	}
	return tool.Answer{Value: row.Value, ChoiceID: row.Resolution, RespondedBy: row.RespondedBy, ResolvedBy: row.ResolvedBy, At: row.ResolvedAt}, nil
}

// Gate asks somebody else for an approval; anything but that is an error.
func (s *supervisor) gate(ctx context.Context, row approval.Row, wait time.Duration) error {
	row.Kind, row.Options = approval.Gate, approval.ApproveOrDeny
	row.Barred = slices.Clone(s.barred)
	if s.row.Session != "" {
		row.Barred = append(row.Barred, s.row.Session)
	}
	row, err := s.ask(ctx, row, wait)
	switch {
	case err != nil:
		return err
	case !row.Approved():
		return refusal(&row)
	}
	return nil
}

func permissionOf(t *arcp.PermissionTerm) lease.Permission {
	return lease.Permission{Permission: t.Permission, Resource: t.Resource, Operation: t.Operation}
}

// grant makes a permission lease of a grant and has it announced.
func (s *supervisor) grant(now time.Time, row *approval.Row, a *Respond) *arcp.Error {
	asked, given := row.Permission, a.Answer.Grant
	if err := lease.Narrower(permissionOf(asked), permissionOf(given)); err != nil {
		return err
	}
	d := lease.Duration(lease.Seconds(asked.Seconds), lease.Seconds(given.Seconds))
	if d <= 0 {
		return arcp.Errorf(arcp.CodeInvalidArgument, "lease_seconds must be at least 1")
	}
	g, err := s.addGrant(permissionOf(given), d, a.Who, "")
	if err != nil {
		return err
	}
	row.Lease = g.ID
	s.announce(now, arcp.LeaseGranted, grantedOf(&g), &store.Route{Reply: a.Who.Session, ReplyTo: a.Request})
	return nil
}

// addGrant gives the job a permission lease; holder is the session that it is for,
// if that is not the job's.
func (s *supervisor) addGrant(p lease.Permission, d time.Duration, by approval.Actor, holder arcp.SessionID) (lease.Grant, *arcp.Error) {
	at := s.now().UTC().Truncate(time.Microsecond)
	g := lease.Grant{ID: arcp.LeaseID(arcp.NewID(arcp.LeasePrefix)), Permission: p.Permission, Resource: p.Resource, Operation: p.Operation,
		GrantedAt: at, ExpiresAt: at.Add(d), Session: by.Session, Principal: by.Principal, Holder: holder}
	before := s.auth.Grants.All()
	s.mu.Lock()
	err := s.auth.Grants.Add(g)
	s.mu.Unlock()
	if err != nil {
		return g, err
	}
	s.unsaved = true
	s.e.noteLease(g.ID, s.row.ID)
	for _, old := range before {
		if _, kept := s.auth.Grants.Get(old.ID); !kept { // it has ended long ago
			s.e.dropLease(old.ID)
		}
	}
	return g, nil
}

func grantedOf(g *lease.Grant) arcp.LeaseGrantedPayload {
	return arcp.LeaseGrantedPayload{LeaseID: g.ID, Permission: g.Permission, Resource: g.Resource, Operation: g.Operation, ExpiresAt: g.ExpiresAt}
}

// announce emits an event that also answers a session's message, or tells
// somebody who does not follow the job.
func (s *supervisor) announce(now time.Time, t arcp.Type, payload any, route *store.Route) {
	ev := s.event(t, now, s.row.Priority, payload)
	if route.ReplyTo != "" || len(route.To) > 0 {
		ev.Route = route
	}
	s.mu.Lock()
	s.push(ev)
	s.mu.Unlock()
}

// Extend is a wish for more time for a permission lease: the submitter's, or the
// tool's.
type Extend struct {
	Lease   arcp.LeaseID
	More    time.Duration
	Request arcp.MessageID
	Who     approval.Actor
	Done    func(*arcp.Error) // told once; lease.extended is the answer if nil

	tool *supervisor // the tool's own; nil: a session's
}

// Extend has a permission lease go on for longer.
func (e *Engine) Extend(x Extend) { e.postLease(x.Lease, &x, x.Done) }

// postLease posts a demand to the job that has a permission lease.
func (e *Engine) postLease(id arcp.LeaseID, d demand, done func(*arcp.Error)) {
	e.mu.Lock()
	r := e.runs[e.leases[id].job]
	e.mu.Unlock()
	if r == nil || !r.post(d) {
		done(noSuchLease(id))
	}
}

func noSuchLease(id arcp.LeaseID) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such lease: %s", id)
}

func (x *Extend) meet(s *supervisor, now time.Time) {
	switch {
	case x.tool != nil && x.tool != s: // of an attempt that has ended
		x.Done(errEnded)
		return
	case x.tool == nil && x.Who.Principal != s.row.Principal:
		x.Done(noSuchLease(x.Lease))
		return
	case x.tool == nil && x.Who.Session != s.row.Session:
		x.Done(arcp.Errorf(arcp.CodePermissionDenied, "only the session that submitted the job extends its leases"))
		return
	case x.More <= 0:
		x.Done(arcp.Errorf(arcp.CodeInvalidArgument, "additional_seconds must be at least 1"))
		return
	}
	s.mu.Lock()
	g, err := s.auth.Grants.Refresh(s.now(), x.Lease, x.More)
	s.mu.Unlock()
	if err != nil {
		x.Done(err)
		return
	}
	s.unsaved = true
	s.announce(now, arcp.LeaseExtended, arcp.LeaseExtendedPayload{LeaseID: g.ID, ExpiresAt: g.ExpiresAt},
		&store.Route{Reply: x.Who.Session, ReplyTo: x.Request})
	s.asked = append(s.asked, x)
}

func (x *Extend) settled(_ *supervisor, err error) { x.Done(leaseError(err)) }

func leaseError(err error) *arcp.Error {
	switch {
	case err == nil:
		return nil
	case gone(err):
		return errHasEnded()
	}
	return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be written")
}

func (x *Extend) tooLate(*Engine, bool) { x.Done(noSuchLease(x.Lease)) }

// Revoke is a wish to end a permission lease: of who granted it, or of an admin.
type Revoke struct {
	Lease   arcp.LeaseID
	Reason  string
	Request arcp.MessageID
	Who     approval.Actor
	Done    func(*arcp.Error) // told once; lease.revoked is the answer if nil
}

// Revoke ends a permission lease.
func (e *Engine) Revoke(x Revoke) { e.postLease(x.Lease, &x, x.Done) }

func (x *Revoke) meet(s *supervisor, now time.Time) {
	s.mu.Lock()
	g, ok := s.auth.Grants.Get(x.Lease)
	s.mu.Unlock()
	switch {
	case !ok || x.Who.Principal != s.row.Principal && x.Who.Principal != g.Principal && !x.Who.Admin:
		x.Done(noSuchLease(x.Lease))
		return
	case x.Who.Principal != g.Principal && !x.Who.Admin:
		x.Done(arcp.Errorf(arcp.CodePermissionDenied, "only %s, who granted it, and an admin may revoke this lease", g.Principal))
		return
	}
	s.mu.Lock()
	_, err := s.auth.Grants.Revoke(s.now(), x.Lease)
	s.mu.Unlock()
	if err != nil {
		x.Done(err)
		return
	}
	s.unsaved = true
	route := &store.Route{Reply: x.Who.Session, ReplyTo: x.Request}
	if g.Holder != "" {
		route.To = []arcp.SessionID{g.Holder}
	}
	s.e.endLease(x.Lease)
	s.announce(now, arcp.LeaseRevoked, arcp.LeaseRevokedPayload{LeaseID: x.Lease, Reason: x.Reason}, route)
	s.asked = append(s.asked, x)
}

func (x *Revoke) settled(_ *supervisor, err error) { x.Done(leaseError(err)) }
func (x *Revoke) tooLate(*Engine, bool)            { x.Done(noSuchLease(x.Lease)) }

// permit is a permission lease as it is found by its id.
type permit struct {
	job  arcp.JobID
	over bool // its end was noticed, or it was taken back
}

// noteLease remembers which job a permission lease belongs to.
func (e *Engine) noteLease(id arcp.LeaseID, job arcp.JobID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leases[id] = permit{job: job}
	e.cfg.Metrics.Leases.WithLabelValues("permission").Inc()
}

// endLease notes that a permission lease is not in force any more, and reports
// whether that is news.
func (e *Engine) endLease(id arcp.LeaseID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.endLeaseLocked(id)
}

func (e *Engine) endLeaseLocked(id arcp.LeaseID) bool {
	p, ok := e.leases[id]
	if !ok || p.over {
		return false
	}
	p.over = true
	e.leases[id] = p
	e.cfg.Metrics.Leases.WithLabelValues("permission").Dec()
	return true
}

func (e *Engine) dropLease(id arcp.LeaseID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropLeaseLocked(id)
}

func (e *Engine) dropLeaseLocked(id arcp.LeaseID) {
	e.endLeaseLocked(id)
	delete(e.leases, id)
}

// forgetLeases is called with e.mu for a job that has ended.
func (e *Engine) forgetLeases(r *run) {
	for _, g := range r.auth.Grants.All() {
		e.dropLeaseLocked(g.ID)
	}
}

func (j toolJob) Yield(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	s := j.s
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return "", errEnded
	}
	q := s.interrupted()
	if q == nil {
		guidance := s.guidance
		s.guidance = ""
		s.mu.Unlock()
		return guidance, nil
	}
	s.mu.Unlock()
	select {
	case <-q.done:
		return j.Yield(ctx)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// interruptedc is the channel of a job that is interrupted.
var interruptedc = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (j toolJob) Interrupted() <-chan struct{} {
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted() != nil {
		return interruptedc
	}
	if s.halt == nil {
		s.halt = make(chan struct{})
	}
	return s.halt
}
