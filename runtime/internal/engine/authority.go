package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// leaseOf returns the lease of a submit's job: the lease_request, if the principal's limit
// covers it, or the limit if there is no lease_request. An empty lease_request is one.
// lease_constraints and cost_budget apply to both.
func leaseOf(now time.Time, o *arcp.SubmitOptions, limit *lease.Lease) (*lease.Lease, *arcp.Error) {
	unasked := len(o.LeaseRequest) == 0 || o.LeaseRequest.Kind() == 'n'
	if unasked && len(o.CostBudget) == 0 && o.LeaseConstraints == nil { // as nearly always
		return limit, nil
	}
	asked, err := lease.Parse(now, lease.Request{Lease: o.LeaseRequest, Constraints: o.LeaseConstraints, CostBudget: o.CostBudget})
	if err != nil {
		return nil, err
	}
	if limit == nil {
		return asked, nil
	}
	if unasked {
		asked = asked.With(limit)
	}
	if err := asked.Within(limit); err != nil {
		return nil, err
	}
	return asked.Inherit(limit, limit.Budget()), nil
}

// describeLease returns a lease in its wire form.
func describeLease(l *lease.Lease) (raw arcp.Raw, constraints *arcp.LeaseConstraints) {
	if l == nil {
		return nil, nil
	}
	if end := l.ExpiresAt(); !end.IsZero() {
		constraints = &arcp.LeaseConstraints{ExpiresAt: end.UTC()}
	}
	return l.RFC(), constraints
}

// LeaseOf returns the lease of a job in its wire form; an empty object if it has none. budget
// is the rest of the budget if the job has not ended.
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

// Allow checks an operation against the job's authority.
func (j toolJob) Allow(namespace, target string) error {
	return j.check(namespace, func(a *lease.Authority, now time.Time) *arcp.Error {
		return a.Check(now, namespace, target, "")
	})
}

func (j toolJob) Files() *access.Files { return access.NewFiles(j.Allow).OnRefusal(j.s.denied) }

func (j toolJob) Fetcher() *access.Fetcher { return j.s.e.cfg.Fetcher.For(j.Allow).OnRefusal(j.s.denied) }

// UseModel checks the lease. A lease without a model namespace allows every model, unless
// Config.RequireModelLease is set.
func (j toolJob) UseModel(model string) error {
	return j.check(arcp.NamespaceModelUse, func(a *lease.Authority, now time.Time) *arcp.Error {
		if !a.Lease.Has(arcp.NamespaceModelUse) && !j.s.e.cfg.RequireModelLease {
			return a.Operate(now)
		}
		return a.Check(now, arcp.NamespaceModelUse, model, "")
	})
}

// check asks the job's authority for an operation. After the attempt has ended it refuses.
func (j toolSide) check(namespace string, ask func(*lease.Authority, time.Time) *arcp.Error) error {
	s := j.s
	s.mu.Lock()
	var err *arcp.Error
	switch {
	case s.events.closed || s.life.aborted() || s.ctx.Err() != nil:
		err = errEnded
	default:
		err = ask(&s.auth.Authority, s.auth.now())
	}
	if err == nil {
		s.mu.Unlock()
		return nil
	}
	s.auth.lapsed = s.auth.lapsed || err.Code == arcp.CodeLeaseExpired && s.auth.expired()
	currency, _ := s.auth.Budget.Exhausted()
	s.mu.Unlock()
	if err.Code == arcp.CodeBudgetExhausted {
		s.e.cfg.Metrics.Exhausted(currency)
	}
	s.denied(namespace, err)
	return err
}

// denied counts and audits a refusal. If the job's lease has ended it ends the job.
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
	case s.auth.expired():
		s.post(expireLease{})
	case err.Code == arcp.CodeLeaseExpired:
		s.noteExpired()
	}
}

// sweepGrants counts the permission leases that have ended since the last sweep.
func (s *supervisor) sweepGrants() {
	at := s.auth.now()
	s.noteExpired()
	s.progress.Swept, s.progress.unsaved = at.UTC(), true
}

// noteExpired counts and logs the permission leases that have ended and were not counted.
func (s *supervisor) noteExpired() {
	s.mu.Lock()
	var expired []lease.Grant
	for _, g := range s.auth.Grants.All() {
		if _, err := s.auth.Grants.Live(s.auth.now(), g.ID); err != nil && err.Code == arcp.CodeLeaseExpired {
			expired = append(expired, g)
		}
	}
	s.mu.Unlock()
	for _, g := range expired {
		if s.e.leases.end(g.ID) {
			s.e.cfg.Metrics.LeasesExpired.Inc()
			s.e.cfg.Logger.Info().Str("job_id", string(s.row.ID)).Str("lease_id", string(g.ID)).Str("permission", g.Permission).Msg("permission lease expired")
		}
	}
}

// expireLease ends a job whose lease has ended.
type expireLease struct{}

func (expireLease) apply(s *supervisor, now time.Time) { s.endExpired(now) }

// endExpired ends the job if its lease has ended.
func (s *supervisor) endExpired(now time.Time) {
	if !s.m.State().Terminal() && s.auth.expired() {
		s.e.cfg.Metrics.LeasesExpired.Inc()
		s.e.cfg.Logger.Info().Str("job_id", string(s.row.ID)).Msg("lease expired")
		s.m.Fail(now, arcp.Errorf(arcp.CodeLeaseExpired, "the job's lease ended at %s", s.auth.Lease.ExpiresAt().UTC().Format(time.RFC3339)))
	}
}

func (expireLease) committed(*supervisor, error) {}
func (expireLease) rejected(*Engine, bool)       {}

func (j toolJob) Charge(name, currency string, amount arcp.Number) error {
	m := arcp.MetricPayload{Name: "cost." + name, Value: amount, Unit: currency}
	if name == "" || currency == "" || !lease.Debits(m.Name) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "a charge needs a name other than budget, and a currency")
	}
	return j.spend(m, func(b *lease.Budget, unit string, cost arcp.Number) (lease.Amount, bool, *arcp.Error) {
		if err := j.s.auth.Ended(j.s.auth.now()); err != nil { // the rest of an ended lease cannot be spent
			j.s.auth.lapsed = true
			return lease.Amount{}, false, err
		}
		return b.Charge(unit, cost)
	})
}

// spend debits a cost. The budget is written together with the metric.
func (j toolSide) spend(m arcp.MetricPayload, debit func(*lease.Budget, string, arcp.Number) (lease.Amount, bool, *arcp.Error)) error {
	s := j.s
	ev, err := j.encode(arcp.Metric, m)
	if err != nil {
		return err
	}
	err = j.enqueue(ev, nil, func() (*store.Event, *arcp.Error) {
		left, announce, err := debit(s.auth.Budget, m.Unit, m.Value)
		if err != nil {
			return nil, err
		}
		s.auth.spent = s.auth.spent || s.auth.Budget != nil
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

// remaining is the metric of the rest of a budget.
func remaining(left lease.Amount) arcp.MetricPayload {
	return arcp.MetricPayload{Name: "cost.budget.remaining", Value: left.Number(), Unit: left.Currency()}
}

func (j toolJob) Permit(ctx context.Context, p tool.PermissionAsk) (tool.PermissionLease, error) {
	term := &arcp.PermissionTerm{Permission: p.Permission, Resource: p.Resource, Operation: p.Operation, Seconds: uint64((max(p.For, 0) + time.Second - 1) / time.Second)}
	row, err := j.ask(ctx, approval.Row{Kind: approval.Permission, Action: p.Reason, Permission: term}, p.Expires)
	switch {
	case err != nil:
		return tool.PermissionLease{}, err
	case row.Resolution != approval.Granted:
		return tool.PermissionLease{}, refusal(&row)
	}
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	g, refused := s.auth.Grants.Live(s.auth.now(), row.Lease)
	switch {
	case refused != nil && refused.Code == arcp.CodeNotFound:
		return tool.PermissionLease{}, arcp.Errorf(arcp.CodeLeaseExpired, "the permission has ended")
	case refused != nil:
		return tool.PermissionLease{}, refused
	}
	return tool.PermissionLease{ID: g.ID, Permission: g.Permission, Resource: g.Resource, Operation: g.Operation, ExpiresAt: g.ExpiresAt}, nil
}

// refusal returns the error for a question that was not answered with yes.
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
	return j.check(permission, func(a *lease.Authority, now time.Time) *arcp.Error {
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
	if j.attemptEnded() || !j.s.post(x) {
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

func (j toolSide) answer(ctx context.Context, row approval.Row, wait time.Duration) (tool.Answer, error) {
	row, err := j.ask(ctx, row, wait)
	switch {
	case err != nil:
		return tool.Answer{}, err
	case row.Status != approval.Resolved:
		return tool.Answer{}, refusal(&row)
	}
	return tool.Answer{Value: row.Value, ChoiceID: row.Resolution, RespondedBy: row.RespondedBy, ResolvedBy: row.ResolvedBy, At: row.ResolvedAt}, nil
}

// gate asks another session for an approval. Every other answer is an error.
func (j toolSide) gate(ctx context.Context, row approval.Row, wait time.Duration) error {
	s := j.s
	row.Kind, row.Options = approval.Gate, approval.ApproveOrDeny
	row.Barred = slices.Clone(s.barred)
	if s.row.Session != "" {
		row.Barred = append(row.Barred, s.row.Session)
	}
	row, err := j.ask(ctx, row, wait)
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

// grant makes the permission lease of a grant and announces it.
func (a *Respond) grant(s *supervisor, now time.Time, row *approval.Row) *arcp.Error {
	asked, granted := row.Permission, a.Answer.Grant
	if err := lease.Narrower(permissionOf(asked), permissionOf(granted)); err != nil {
		return err
	}
	d := lease.Duration(lease.Seconds(asked.Seconds), lease.Seconds(granted.Seconds))
	if d <= 0 {
		return arcp.Errorf(arcp.CodeInvalidArgument, "lease_seconds must be at least 1")
	}
	g, err := s.addGrant(permissionOf(granted), d, a.Actor, "")
	if err != nil {
		return err
	}
	row.Lease = g.ID
	s.announce(now, arcp.LeaseGranted, grantedOf(&g), &store.Route{Reply: a.Actor.Session, ReplyTo: a.Request})
	return nil
}

// addGrant gives the job a permission lease. holder is the session that gets it; empty: the
// job's.
func (s *supervisor) addGrant(p lease.Permission, d time.Duration, by approval.Actor, holder arcp.SessionID) (lease.Grant, *arcp.Error) {
	at := s.auth.now().UTC().Truncate(time.Microsecond)
	g := lease.Grant{ID: arcp.LeaseID(arcp.NewID(arcp.LeasePrefix)), Permission: p.Permission, Resource: p.Resource, Operation: p.Operation,
		GrantedAt: at, ExpiresAt: at.Add(d), Session: by.Session, Principal: by.Principal, Holder: holder}
	before := s.auth.Grants.All()
	s.mu.Lock()
	err := s.auth.Grants.Add(g)
	s.mu.Unlock()
	if err != nil {
		return g, err
	}
	s.progress.unsaved = true
	s.e.leases.add(g.ID, s.row.ID)
	for _, old := range before {
		if _, kept := s.auth.Grants.Get(old.ID); !kept { // it ended long ago
			s.e.leases.remove(old.ID)
		}
	}
	return g, nil
}

func grantedOf(g *lease.Grant) arcp.LeaseGrantedPayload {
	return arcp.LeaseGrantedPayload{LeaseID: g.ID, Permission: g.Permission, Resource: g.Resource, Operation: g.Operation, ExpiresAt: g.ExpiresAt}
}

// announce emits an event that also answers a session's message, or reaches sessions that do
// not follow the job.
func (s *supervisor) announce(now time.Time, t arcp.Type, payload any, route *store.Route) {
	ev := s.event(t, now, s.row.Priority, payload)
	if route.ReplyTo != "" || len(route.To) > 0 {
		ev.Route = route
	}
	s.mu.Lock()
	s.events.push(ev)
	s.mu.Unlock()
}

// Extend is a request of the submitter or of the tool for more time for a permission lease.
type Extend struct {
	Requester
	Lease arcp.LeaseID
	More  time.Duration
	Done  func(*arcp.Error) // called once; lease.extended is the answer if nil

	tool *supervisor // of the tool that asks; nil: a session asks
}

// maxExtension bounds an extension in seconds. It is longer than any lease.
const maxExtension = uint64(366 * 24 * time.Hour / time.Second)

// Extend extends a permission lease. done is called once, with nil if lease.extended is the
// answer.
func (e *Engine) Extend(from Requester, p *arcp.LeaseRefreshPayload, done func(*arcp.Error)) {
	more := time.Duration(min(p.AdditionalSeconds, maxExtension)) * time.Second
	e.postLease(p.LeaseID, &Extend{Requester: from, Lease: p.LeaseID, More: more, Done: done}, done)
}

// postLease posts a command to the job that has a permission lease.
func (e *Engine) postLease(id arcp.LeaseID, d command, done func(*arcp.Error)) {
	if r := e.run(e.leases.job(id)); r == nil || !r.post(d) {
		done(noSuchLease(id))
	}
}

func noSuchLease(id arcp.LeaseID) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such lease: %s", id)
}

func (x *Extend) apply(s *supervisor, now time.Time) {
	switch {
	case x.tool != nil && x.tool != s: // of an attempt that has ended
		x.Done(errEnded)
		return
	case x.tool == nil && x.Principal != s.row.Principal:
		x.Done(noSuchLease(x.Lease))
		return
	case x.tool == nil && x.Session != s.row.Session:
		x.Done(arcp.Errorf(arcp.CodePermissionDenied, "only the session that submitted the job extends its leases"))
		return
	case x.More <= 0:
		x.Done(arcp.Errorf(arcp.CodeInvalidArgument, "additional_seconds must be at least 1"))
		return
	}
	s.mu.Lock()
	g, err := s.auth.Grants.Refresh(s.auth.now(), x.Lease, x.More)
	s.mu.Unlock()
	if err != nil {
		x.Done(err)
		return
	}
	s.progress.unsaved = true
	s.announce(now, arcp.LeaseExtended, arcp.LeaseExtendedPayload{LeaseID: g.ID, ExpiresAt: g.ExpiresAt},
		&store.Route{Reply: x.Session, ReplyTo: x.Request})
	s.write.answerWith(x)
}

func (x *Extend) committed(_ *supervisor, err error) { x.Done(leaseError(err)) }

func leaseError(err error) *arcp.Error {
	switch {
	case err == nil:
		return nil
	case gone(err):
		return errHasEnded()
	}
	return errStore()
}

func (x *Extend) rejected(*Engine, bool) { x.Done(noSuchLease(x.Lease)) }

// Revoke is a request of the grantor or of an admin to end a permission lease.
type Revoke struct {
	Requester
	Lease  arcp.LeaseID
	Reason string
	Done   func(*arcp.Error) // called once; lease.revoked is the answer if nil
}

// Revoke ends a permission lease. done is called once, with nil if lease.revoked is the answer.
func (e *Engine) Revoke(from Requester, p *arcp.LeaseRevokedPayload, done func(*arcp.Error)) {
	e.postLease(p.LeaseID, &Revoke{from, p.LeaseID, p.Reason, done}, done)
}

func (x *Revoke) apply(s *supervisor, now time.Time) {
	s.mu.Lock()
	g, ok := s.auth.Grants.Get(x.Lease)
	s.mu.Unlock()
	switch {
	case !ok || x.Principal != s.row.Principal && x.Principal != g.Principal && !x.Admin:
		x.Done(noSuchLease(x.Lease))
		return
	case x.Principal != g.Principal && !x.Admin:
		x.Done(arcp.Errorf(arcp.CodePermissionDenied, "only %s, who granted it, and an admin may revoke this lease", g.Principal))
		return
	}
	s.mu.Lock()
	_, err := s.auth.Grants.Revoke(s.auth.now(), x.Lease)
	s.mu.Unlock()
	if err != nil {
		x.Done(err)
		return
	}
	s.progress.unsaved = true
	route := &store.Route{Reply: x.Session, ReplyTo: x.Request}
	if g.Holder != "" {
		route.To = []arcp.SessionID{g.Holder}
	}
	s.e.leases.end(x.Lease)
	s.announce(now, arcp.LeaseRevoked, arcp.LeaseRevokedPayload{LeaseID: x.Lease, Reason: x.Reason}, route)
	s.write.answerWith(x)
}

func (x *Revoke) committed(_ *supervisor, err error) { x.Done(leaseError(err)) }
func (x *Revoke) rejected(*Engine, bool)             { x.Done(noSuchLease(x.Lease)) }

// leaseIndex finds the job of a permission lease. A lease has an entry until its job ends, and counts
// for the gauge until its end is noticed. Its methods may be called by many goroutines.
type leaseIndex struct {
	gauges *prometheus.GaugeVec

	mu   sync.Mutex
	byID map[arcp.LeaseID]leaseRef
}

type leaseRef struct {
	job   arcp.JobID
	ended bool // its end was noticed, or it was revoked
}

func (l *leaseIndex) gauge() prometheus.Gauge { return l.gauges.WithLabelValues("permission") }

// job returns the job of a lease; empty: there is none.
func (l *leaseIndex) job(id arcp.LeaseID) arcp.JobID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id].job
}

func (l *leaseIndex) add(id arcp.LeaseID, job arcp.JobID) {
	l.mu.Lock()
	l.byID[id] = leaseRef{job: job}
	l.mu.Unlock()
	l.gauge().Inc()
}

// end records the end of a lease and reports whether that is new.
func (l *leaseIndex) end(id arcp.LeaseID) bool {
	l.mu.Lock()
	ref, ok := l.byID[id]
	isNew := ok && !ref.ended
	if isNew {
		ref.ended = true
		l.byID[id] = ref
	}
	l.mu.Unlock()
	if isNew {
		l.gauge().Dec()
	}
	return isNew
}

func (l *leaseIndex) remove(id arcp.LeaseID) {
	l.end(id)
	l.mu.Lock()
	delete(l.byID, id)
	l.mu.Unlock()
}

func (j toolJob) Yield(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	s := j.s
	s.mu.Lock()
	if s.events.closed {
		s.mu.Unlock()
		return "", errEnded
	}
	q := s.questions.interrupt()
	if q == nil {
		guidance := s.interrupts.guidance
		s.interrupts.guidance = ""
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

func (j toolJob) Interrupted() <-chan struct{} {
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions.interrupt() != nil {
		return closedc
	}
	if s.interrupts.c == nil {
		s.interrupts.c = make(chan struct{})
	}
	return s.interrupts.c
}
