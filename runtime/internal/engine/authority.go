package engine

import (
	"errors"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// jobAuthority has the leases and the budget of a job, and the clock of the leases: they end by the
// time that has passed since loadedAt, whatever the machine's clock is set to.
type jobAuthority struct {
	authority.State
	loadedAt time.Time // when the process first saw the job
}

// now returns the time of the lease clock.
func (a *jobAuthority) now() time.Time { return a.loadedAt.Add(time.Since(a.loadedAt)) }

// wallTime converts a time of the lease clock to the clock of timers; zero stays zero.
func (a *jobAuthority) wallTime(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.Now().Add(t.Sub(a.now()))
}

func (a *jobAuthority) expired() bool { return a.Expired(a.now()) }

// LeaseOf returns the lease of a job in its wire form; an empty object if the job has none. budget is
// the rest of the budget of a job that has not ended.
func (e *Engine) LeaseOf(row *store.Job) (raw arcp.Raw, constraints *arcp.LeaseConstraints, budget arcp.Raw) {
	options := optionsOf(row)
	raw, constraints = authority.WireForm(options.lease())
	if raw == nil {
		raw = arcp.Raw("{}")
	}
	if r := e.run(row.ID); r != nil && !row.State.Terminal() {
		r.mu.Lock()
		defer r.mu.Unlock()
		budget = r.authority.Budget.JSON()
	}
	return raw, constraints, budget
}

// Allow checks an operation against the job's authority.
func (j toolJob) Allow(namespace, target string) error {
	return j.check(namespace, func(a *lease.Authority, now time.Time) *arcp.Error {
		return a.Check(now, namespace, target, "")
	})
}

func (j toolJob) Files() *access.Files { return access.NewFiles(j.Allow).OnRefusal(j.s.recordDenial) }

func (j toolJob) Fetcher() *access.Fetcher {
	return j.s.e.cfg.Fetcher.For(j.Allow).OnRefusal(j.s.recordDenial)
}

// mayWriteThought reports whether the job's lease lets the text of a thought be recorded.
func (tg toolGoroutine) mayWriteThought(role string) bool {
	tg.s.mu.Lock()
	defer tg.s.mu.Unlock()
	return tg.s.authority.MayWriteThought(role)
}

// noRole stands for a role that is no string. No pattern covers it, because it cannot be a target.
const noRole = "\x00"

// leasedThought returns an event with the name thought, without its text if the job's lease does not let it
// be recorded.
func (tg toolGoroutine) leasedThought(p arcp.EventEmitPayload) arcp.EventEmitPayload {
	var thought struct {
		Role arcp.Raw `json:"role"`
	}
	var role string
	if err := arcp.Unmarshal(p.Data, &thought); err == nil && len(thought.Role) > 0 { // else it is a text, or has no role
		if err := arcp.Unmarshal(thought.Role, &role); err != nil {
			role = noRole
		}
	}
	if !tg.mayWriteThought(role) {
		p.Data = arcp.Raw(`{"text":"","redacted":true}`)
	}
	return p
}

// UseModel checks the lease. A lease without a model namespace allows every model, unless
// Config.RequireModelLease is set.
func (j toolJob) UseModel(model string) error {
	return j.check(arcp.NamespaceModelUse, authority.UseModel(model, j.s.e.cfg.RequireModelLease))
}

func (j toolJob) Permitted(permission, resource, operation string) error {
	return j.check(permission, func(a *lease.Authority, now time.Time) *arcp.Error {
		return a.Check(now, permission, resource, operation)
	})
}

// check decides about an operation by the job's authority. After the attempt has ended it refuses.
// A refusal is counted and audited.
func (tg toolGoroutine) check(namespace string, operation func(*lease.Authority, time.Time) *arcp.Error) error {
	s := tg.s
	s.mu.Lock()
	var err *arcp.Error
	switch {
	case s.events.closed || s.lifecycle.aborted() || s.ctx.Err() != nil:
		err = errEnded
	default:
		err = s.authority.Decide(s.authority.now(), operation)
	}
	if err == nil {
		s.mu.Unlock()
		return nil
	}
	currency, _ := s.authority.Budget.Exhausted()
	s.mu.Unlock()
	if err.Code == arcp.CodeBudgetExhausted {
		s.e.cfg.Metrics.CountExhausted(currency)
	}
	s.recordDenial(namespace, err)
	return err
}

// CheckLease refuses to call the tool after the end of the job's lease, and ends the job then.
func (tg toolGoroutine) CheckLease() error {
	if tg.s.authority.Lease.ExpiresAt().IsZero() { // as nearly always
		return nil
	}
	return tg.check(arcp.NamespaceToolCall, (*lease.Authority).CheckExpiry)
}

// recordDenial counts and audits a refusal. If the job's lease has ended it ends the job.
func (s *supervisor) recordDenial(namespace string, err *arcp.Error) {
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
	s.e.cfg.Metrics.CountDenial(namespace, reason)
	s.e.cfg.audit().Event("denial", s.row.Principal, s.row.Session).Str("job_id", string(s.row.ID)).Str("tool", s.row.Agent).
		Str("namespace", namespace).Str("decision", "denied").Str("reason", reason).Msg("audit")
	switch {
	case s.authority.expired():
		s.post(expireLease{})
	case err.Code == arcp.CodeLeaseExpired:
		s.countExpiredGrants()
	}
}

// expireLease ends a job whose lease has ended.
type expireLease struct{ noAnswer }

func (expireLease) apply(s *supervisor, now time.Time) { s.endExpired(now) }

// endExpired ends the job if its lease has ended.
func (s *supervisor) endExpired(now time.Time) {
	if !s.machine.State().Terminal() && s.authority.expired() {
		s.e.cfg.Metrics.LeasesExpired.Inc()
		s.e.cfg.Logger.Info().Str("job_id", string(s.row.ID)).Msg("lease expired")
		s.machine.Fail(now, s.authority.ExpiredError())
	}
}

func (j toolJob) Charge(name, currency string, amount arcp.Number) error {
	m := arcp.MetricPayload{Name: "cost." + name, Value: amount, Unit: currency}
	if name == "" || currency == "" || !lease.IsCost(m.Name) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "a charge needs a name other than budget, and a currency")
	}
	return j.spend(m, func() (*arcp.MetricPayload, *arcp.Error) {
		return j.s.authority.Charge(j.s.authority.now(), m.Unit, m.Value)
	})
}

// report debits the cost that a metric of the tool reports.
func (tg toolGoroutine) report(m arcp.MetricPayload) error {
	return tg.spend(m, func() (*arcp.MetricPayload, *arcp.Error) { return tg.s.authority.Report(m.Unit, m.Value) })
}

// spend emits the metric of a cost. debit is called with run.mu. The budget is written together
// with the metric.
func (tg toolGoroutine) spend(m arcp.MetricPayload, debit func() (rest *arcp.MetricPayload, err *arcp.Error)) error {
	s := tg.s
	ev, err := tg.encode(arcp.Metric, m, &tg.s.common)
	if err != nil {
		return err
	}
	err = tg.enqueue(ev, nil, func() (*store.Event, *arcp.Error) {
		rest, err := debit()
		if err != nil || rest == nil {
			return nil, err
		}
		return s.event(arcp.Metric, time.Now(), s.row.Priority, *rest), nil
	})
	refused, _ := errors.AsType[*arcp.Error](err)
	switch {
	case refused == nil:
	case refused.Code == arcp.CodeBudgetExhausted:
		s.e.cfg.Metrics.CountExhausted(m.Unit)
		s.recordDenial(arcp.NamespaceCostBudget, refused)
	case refused.Code == arcp.CodeLeaseExpired:
		s.recordDenial(arcp.NamespaceCostBudget, refused)
	}
	return err
}
