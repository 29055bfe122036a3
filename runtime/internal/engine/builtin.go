package engine

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Caller is what a built-in tool may ask its job for: who called.
type Caller interface {
	Principal() string
	Session() arcp.SessionID
}

// Viewer is what a built-in tool may ask its job for: what the caller sees and may
// do, as of the call.
type Viewer interface {
	Caller
	Catalogue() *tool.Snapshot
	Trust() string
	Roles() []string
	MayDo() *lease.Lease // of the job; nil: it has none
}

func (j builtinJob) Catalogue() *tool.Snapshot { return j.s.catalogue }
func (j builtinJob) Trust() string             { return j.s.trust }
func (j builtinJob) Roles() []string           { return j.s.roles }

func (j builtinJob) MayDo() *lease.Lease {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.s.auth.Lease
}

// Gates is what a built-in tool may have its job do: ask somebody for an
// approval.
type Gates interface {
	Caller
	// Gate asks and waits for what becomes of it. The caller's session is barred
	// besides those in row.Barred. A row without an ID is given one.
	Gate(ctx context.Context, row approval.Row, wait time.Duration) (approval.Row, error)
	// Grant gives the job a permission lease, in the name of who has resolved a
	// gate, and has it announced to a session as the answer to its message. It
	// returns when the lease ends, and whether it was made now: another attempt finds
	// the one there is. What the job says of it is written together with it, once.
	Grant(ctx context.Context, p lease.Permission, d time.Duration, by *approval.Row, to arcp.SessionID, request arcp.MessageID, said ...JobEvent) (until time.Time, made bool, err error)
	Holds(permission, resource, operation string) bool
}

// JobEvent is the type and the payload of an event of a job.
type JobEvent struct {
	Type    arcp.Type
	Payload any
}

// Holds reports whether the job has a permission lease, or its lease covers an
// operation. It is no operation itself: what is not is not counted as denied.
func (j builtinJob) Holds(permission, resource, operation string) bool {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return !j.s.over && j.s.auth.Check(j.s.now(), permission, resource, operation) == nil
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
	return j.s.ask(ctx, row, wait)
}

func (j builtinJob) Grant(_ context.Context, p lease.Permission, d time.Duration, by *approval.Row, to arcp.SessionID, request arcp.MessageID, said ...JobEvent) (until time.Time, made bool, err error) {
	g := &addGrant{permission: p, d: d, by: by, to: to, request: request, said: said, done: make(chan error, 1)}
	if !j.s.post(g) {
		return time.Time{}, false, errEnded
	}
	err = <-g.done
	return g.until, g.made, err
}

// addGrant grants a permission lease of a built-in tool to its job.
type addGrant struct {
	permission lease.Permission
	d          time.Duration
	by         *approval.Row
	to         arcp.SessionID
	request    arcp.MessageID
	said       []JobEvent
	until      time.Time
	made       bool
	done       chan error // buffered 1
}

func (g *addGrant) meet(s *supervisor, now time.Time) {
	for _, old := range s.auth.Grants.All() {
		if old.Permission == g.permission.Permission {
			g.until = old.ExpiresAt
			g.done <- nil
			return
		}
	}
	made, err := s.addGrant(g.permission, g.d, approval.Actor{Principal: g.by.ResolvedBy, Session: g.by.ResolvedIn}, g.to)
	if err != nil {
		g.done <- err
		return
	}
	g.until, g.made = made.ExpiresAt, true
	s.announce(now, arcp.LeaseGranted, grantedOf(&made), &store.Route{Reply: g.to, ReplyTo: g.request})
	for _, e := range g.said {
		s.announce(now, e.Type, e.Payload, new(store.Route))
	}
	s.asked = append(s.asked, g)
}

func (g *addGrant) settled(_ *supervisor, err error) { g.done <- err }
func (g *addGrant) tooLate(*Engine, bool)            { g.done <- errEnded }

// job is the job as the tool sees it.
func (s *supervisor) job() tool.Job {
	if s.builtin() {
		return tool.NewJob(builtinJob{toolJob{s}})
	}
	return tool.NewJob(toolJob{s})
}

// builtin reports whether the job is of the runtime's own tools. No limit counts
// it, and it emits no job.started.
func (r *run) builtin() bool { return r.tool.Source == tool.SourceBuiltin }

// inline reports whether the tool is run before the job is claimed: a built-in
// one that changes nothing, so that nothing is done twice when the claim turns
// out to be a repetition.
func (r *run) inline() bool { return r.builtin() && r.tool.SideEffect.Early() }

// runInline runs a built-in tool at once. What comes of it is committed together
// with the claim. It reports whether the next submit may follow at once.
func (e *Engine) runInline(r *run, submit *Submit) (next bool) {
	s := &supervisor{run: r, attempt: r.attempt, over: true} // its events would come too late
	s.space.L = &r.mu
	timeout := r.tool.Limits.Timeout
	if timeout <= 0 {
		timeout = math.MaxInt64
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	o := &job.Outcome{State: arcp.StateCompleted}
	began := time.Now()
	o.Value, o.Err = r.tool.Run(ctx, s.job(), r.row.Arguments)
	r.tm.Called(callStatus(o.Err), time.Since(began))
	if o.Err != nil {
		o = failedOutcome(o.Err)
	}
	s.outcome = o
	log := new(store.AppendEvents)
	if !r.direct {
		log.Events = append(log.Events, r.acceptedEvent())
	}
	log.Events = append(log.Events, s.outcomeEvents(time.Now())...)
	log.State, log.Code = s.outcome.State, outcomeCode(s.outcome)
	w := store.NewWrite(&store.SubmitJob{Row: &r.row, Recheck: submit.Recheck}, log)
	return e.enter(submit, r, w, func(made bool) {
		if made {
			e.pool.Run(func() { r.finished(s.outcome, time.Now()) }) // the committer does not wait for the log
		}
	}, func() {})
}
