package engine

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Caller identifies the session that calls a built-in tool.
type Caller interface {
	Principal() string
	Session() arcp.SessionID
}

// Viewer has the caller's catalog, trust level, roles and lease at the time of the call.
type Viewer interface {
	Caller
	Catalog() *catalog.Snapshot
	Trust() arcp.TrustLevel
	Roles() []string
	JobLease() *lease.Lease // of the job; nil: it has none
	JobRefusal() *arcp.Error
}

func (j builtinJob) Catalog() *catalog.Snapshot { return j.s.catalog }
func (j builtinJob) Trust() arcp.TrustLevel     { return j.s.trust }
func (j builtinJob) Roles() []string            { return j.s.roles }

func (j builtinJob) JobLease() *lease.Lease {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.s.authority.Lease
}

// Gates asks for approvals on behalf of a built-in tool, and grants permission leases to its job.
type Gates interface {
	Caller
	// Gate asks and waits for the decision. The sessions in row.Barred and the caller's session
	// must not answer. A row without an ID gets one.
	Gate(ctx context.Context, row approval.Row, wait time.Duration) (approval.Row, error)
	// Grant adds a permission lease to the job. A later attempt finds the lease of an earlier one:
	// then created is false.
	Grant(GateGrant) (expiresAt time.Time, created bool, err error)
	Permits(permission, resource, operation string) bool
}

// GateGrant is a permission lease that Gates.Grant adds.
type GateGrant struct {
	Permission lease.Permission
	Duration   time.Duration
	Gate       *approval.Row  // the session that has resolved it grants the lease
	Holder     arcp.SessionID // gets lease.granted as the answer to Request
	Request    arcp.MessageID
	Events     []JobEvent // written together with the lease, once
}

// JobEvent is the type and the payload of an event of a job.
type JobEvent struct {
	Type    arcp.Type
	Payload any
}

// Permits reports whether a permission lease or the job's lease covers an operation. A refusal is not
// counted as a denial.
func (j builtinJob) Permits(permission, resource, operation string) bool {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return !j.s.events.closed && j.s.authority.Check(j.s.authority.now(), permission, resource, operation) == nil
}

// builtinJob is the job of a built-in tool.
type builtinJob struct {
	toolJob
}

func (j builtinJob) Principal() string       { return j.s.row.Principal }
func (j builtinJob) Session() arcp.SessionID { return j.s.row.Session }

func (j builtinJob) Gate(ctx context.Context, row approval.Row, wait time.Duration) (approval.Row, error) {
	row.Kind, row.Options = approval.Gate, approval.ApproveOrDeny
	if j.s.row.Session != "" {
		row.Barred = append(slices.Clip(row.Barred), j.s.row.Session)
	}
	return j.ask(ctx, row, wait)
}

func (j builtinJob) Grant(grant GateGrant) (expiresAt time.Time, created bool, err error) {
	g := &addGrant{GateGrant: grant, done: make(chan error, 1)}
	if !j.s.post(g) {
		return time.Time{}, false, errEnded
	}
	err = <-g.done
	return g.expiresAt, g.created, err
}

// addGrant adds a permission lease to the job of a built-in tool.
type addGrant struct {
	GateGrant
	expiresAt time.Time
	created   bool
	done      chan error // buffered 1
}

func (g *addGrant) apply(s *supervisor, now time.Time) {
	if earlier, found := s.authority.FindGrant(g.Permission.Permission); found {
		g.expiresAt = earlier.ExpiresAt
		g.done <- nil
		return
	}
	s.mu.Lock()
	c, err := s.authority.Grant(s.authority.now(), authority.Grant{
		ID:         newLeaseID(),
		Permission: g.Permission,
		Duration:   g.Duration,
		By:         authority.Party{Principal: g.Gate.ResolvedBy, Session: g.Gate.ResolvedIn},
		Holder:     g.Holder,
	})
	s.mu.Unlock()
	if err != nil {
		g.done <- err
		return
	}
	g.expiresAt, g.created = c.Lease.ExpiresAt, true
	s.leaseChanged(now, &c, g.Holder, g.Request)
	for _, e := range g.Events {
		s.emitRouted(now, e.Type, e.Payload, new(store.Route))
	}
	s.write.addCommands(g)
}

func (g *addGrant) committed(_ *jobWriter, err error) { g.done <- err }
func (g *addGrant) rejected(*Engine, bool)            { g.done <- errEnded }

// job returns the job as the tool uses it.
func (s *supervisor) job() tool.Job {
	if s.builtin() {
		return tool.NewJob(builtinJob{toolJob{toolGoroutine{s}}})
	}
	return tool.NewJob(toolJob{toolGoroutine{s}})
}

// runInline runs a built-in tool on the goroutine of the submit, and commits the outcome together with
// the claim. It reports whether the next submit may follow at once. The goroutine is the loop of the
// connection, or one of the engine's pool if the submit had to wait.
func (s *Submit) runInline(r *run) (blocks bool) {
	sv := newCallSupervisor(r)
	timeout := r.tool.Limits.Timeout
	if timeout <= 0 {
		timeout = math.MaxInt64
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	o := &job.Outcome{State: arcp.StateCompleted}
	began := time.Now()
	o.Value, o.Err = r.tool.Run(ctx, sv.job(), r.row.Arguments)
	r.metrics.CountCall(callStatus(o.Err), time.Since(began))
	if o.Err != nil {
		o = failedOutcome(o.Err)
	}
	log := new(store.AppendEvents)
	if !r.direct {
		log.Events = append(log.Events, r.acceptedEvent(&r.authority.State))
	}
	var ended *job.Outcome
	log.Events, ended = r.appendOutcome(log.Events, time.Now(), o, r.e.cfg.scrubber())
	log.State, log.Code = ended.State, outcomeCode(ended)
	w := store.NewWrite(&store.SubmitJob{Row: &r.row, Recheck: s.Recheck}, log)
	return s.append(r, w, func(created bool) {
		if created {
			r.e.pool.Run(func() { r.logFinished(&r.e.cfg, ended, time.Now()) }) // the committer does not wait for the log
		}
	}, func() {})
}
