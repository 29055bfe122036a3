package engine

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/internal/job/question"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

func (j toolJob) Permit(ctx context.Context, req tool.PermissionRequest) (tool.PermissionLease, error) {
	term := &arcp.PermissionTerm{
		Permission: req.Permission,
		Resource:   req.Resource,
		Operation:  req.Operation,
		Seconds:    uint64((max(req.For, 0) + time.Second - 1) / time.Second), // rounded up
	}
	row, err := j.ask(ctx, approval.Row{Kind: approval.Permission, Action: req.Reason, Permission: term}, req.Expires)
	switch {
	case err != nil:
		return tool.PermissionLease{}, err
	case row.Resolution != approval.Granted:
		return tool.PermissionLease{}, question.Refusal(&row)
	}
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	g, refused := s.authority.Grants.Live(s.authority.now(), row.Lease)
	switch {
	case refused != nil && refused.Code == arcp.CodeNotFound:
		return tool.PermissionLease{}, arcp.Errorf(arcp.CodeLeaseExpired, "the permission has ended")
	case refused != nil:
		return tool.PermissionLease{}, refused
	}
	return tool.PermissionLease{
		ID:         g.ID,
		Permission: g.Permission,
		Resource:   g.Resource,
		Operation:  g.Operation,
		ExpiresAt:  g.ExpiresAt,
	}, nil
}

// leaseChanged records a changed permission lease and emits its event, which answers the message
// request of the session reply.
func (s *supervisor) leaseChanged(now time.Time, c *authority.Change, reply arcp.SessionID, request arcp.MessageID) {
	s.progress.unsaved = true
	switch c.Type {
	case arcp.LeaseGranted:
		s.e.leases.add(c.Lease.ID, s.row.ID)
	case arcp.LeaseRevoked:
		s.e.leases.end(c.Lease.ID)
	}
	for _, id := range c.Dropped {
		s.e.leases.remove(id)
	}
	s.emitRouted(now, c.Type, c.Payload, &store.Route{Reply: reply, ReplyTo: request, To: c.To})
}

// emitRouted emits a routedEvent.
func (s *supervisor) emitRouted(now time.Time, t arcp.Type, payload any, route *store.Route) {
	ev := s.routedEvent(now, t, payload, route)
	s.mu.Lock()
	s.events.push(ev)
	s.mu.Unlock()
}

// routedEvent returns an event that also answers a session's message, or reaches sessions that do not
// follow the job.
func (d *definition) routedEvent(now time.Time, t arcp.Type, payload any, route *store.Route) *store.Event {
	ev := d.event(t, now, d.row.Priority, payload)
	if route.ReplyTo != "" || len(route.To) > 0 {
		ev.Route = route
	}
	return ev
}

// newLeaseID returns a new id of a permission lease.
func newLeaseID() arcp.LeaseID { return arcp.LeaseID(arcp.NewID(arcp.LeasePrefix)) }

// sweepGrants counts the permission leases that have expired, and stores the time of the count.
func (s *supervisor) sweepGrants() {
	at := s.authority.now()
	s.countExpiredGrants()
	s.progress.Swept, s.progress.unsaved = at.UTC(), true
}

// countExpiredGrants counts and logs the expired permission leases that were not counted.
func (s *supervisor) countExpiredGrants() {
	s.mu.Lock()
	expired := s.authority.ExpiredGrants(s.authority.now())
	s.mu.Unlock()
	for _, g := range expired {
		if s.e.leases.end(g.ID) {
			s.e.cfg.Metrics.LeasesExpired.Inc()
			s.e.cfg.Logger.Info().Str("job_id", string(s.row.ID)).Str("lease_id", string(g.ID)).Str("permission", g.Permission).
				Msg("permission lease expired")
		}
	}
}

// ownerOf returns the owner of a job, on any goroutine.
func ownerOf(r *run) authority.Party {
	return authority.Party{Principal: r.row.Principal, Session: r.owner()}
}

func (r *Requester) party() authority.Party {
	return authority.Party{Principal: r.Principal, Session: r.Session}
}

func (j toolJob) Extend(ctx context.Context, id arcp.LeaseID, more time.Duration) (time.Time, error) {
	done := make(chan error, 1)
	x := &extendLease{Lease: id, More: more, attempt: j.s, Done: func(err *arcp.Error) {
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
	g, _ := j.s.authority.Grants.Get(id)
	return g.ExpiresAt, nil
}

// PermissionLeases changes the permission leases of jobs that have not ended. Its methods may be called
// by many goroutines. They do not block.
type PermissionLeases struct{ e *Engine }

// PermissionLeases returns the permission leases of the jobs.
func (e *Engine) PermissionLeases() PermissionLeases { return PermissionLeases{e} }

// extendLease is a request of the submitter or of the tool for more time for a permission lease.
type extendLease struct {
	Requester
	Lease arcp.LeaseID
	More  time.Duration
	Done  func(*arcp.Error) // called once; lease.extended is the answer if nil

	attempt *supervisor // the attempt whose tool asks; nil: a session asks
}

// maxExtension bounds an extension in seconds. It is longer than any lease.
const maxExtension = uint64(366 * 24 * time.Hour / time.Second)

// Extend extends a permission lease. done is called once, with nil if lease.extended is the
// answer.
func (l PermissionLeases) Extend(from Requester, p *arcp.LeaseRefreshPayload, done func(*arcp.Error)) {
	more := time.Duration(min(p.AdditionalSeconds, maxExtension)) * time.Second
	l.post(p.LeaseID, &extendLease{Requester: from, Lease: p.LeaseID, More: more, Done: done}, done)
}

// post posts a command to the job that has a permission lease.
func (l PermissionLeases) post(id arcp.LeaseID, c command, done func(*arcp.Error)) {
	if r := l.e.run(l.e.leases.job(id)); r == nil || !r.post(c) {
		done(authority.NoSuchLease(id))
	}
}

func (el *extendLease) apply(s *supervisor, now time.Time) {
	request := authority.Extension{Lease: el.Lease, More: el.More, By: el.party(), Owner: ownerOf(s.run)}
	if el.attempt != nil {
		if el.attempt != s { // it has ended
			el.Done(errEnded)
			return
		}
		request.By = request.Owner
	}
	s.mu.Lock()
	c, err := s.authority.Extend(s.authority.now(), request)
	s.mu.Unlock()
	if err != nil {
		el.Done(err)
		return
	}
	s.leaseChanged(now, &c, el.Session, el.Request)
	s.write.addCommands(el)
}

func (el *extendLease) committed(_ *jobWriter, err error) { el.Done(leaseError(err)) }

func leaseError(err error) *arcp.Error {
	switch {
	case err == nil:
		return nil
	case jobEnded(err):
		return errHasEnded()
	}
	return errStore()
}

func (el *extendLease) rejected(*Engine, bool) { el.Done(authority.NoSuchLease(el.Lease)) }

// revokeLease is a request of the grantor or of an admin to end a permission lease.
type revokeLease struct {
	Requester
	Lease  arcp.LeaseID
	Reason string
	Done   func(*arcp.Error) // called once; lease.revoked is the answer if nil
}

// Revoke ends a permission lease. done is called once, with nil if lease.revoked is the answer.
func (l PermissionLeases) Revoke(from Requester, p *arcp.LeaseRevokedPayload, done func(*arcp.Error)) {
	l.post(p.LeaseID, &revokeLease{Requester: from, Lease: p.LeaseID, Reason: p.Reason, Done: done}, done)
}

func (rl *revokeLease) apply(s *supervisor, now time.Time) {
	s.mu.Lock()
	c, err := s.authority.Revoke(s.authority.now(), authority.Revocation{
		Lease:  rl.Lease,
		Reason: rl.Reason,
		By:     rl.party(),
		Admin:  rl.Admin,
		Owner:  ownerOf(s.run),
	})
	s.mu.Unlock()
	if err != nil {
		rl.Done(err)
		return
	}
	s.leaseChanged(now, &c, rl.Session, rl.Request)
	s.write.addCommands(rl)
}

func (rl *revokeLease) committed(_ *jobWriter, err error) { rl.Done(leaseError(err)) }
func (rl *revokeLease) rejected(*Engine, bool)            { rl.Done(authority.NoSuchLease(rl.Lease)) }

// leaseIndex finds the job of a permission lease. A lease has an entry until its job ends. The gauge
// counts it until its end is counted. The methods may be called by many goroutines.
type leaseIndex struct {
	gauges *prometheus.GaugeVec

	mu   sync.Mutex
	byID map[arcp.LeaseID]leaseRef
}

type leaseRef struct {
	job   arcp.JobID
	ended bool // it was revoked, or its expiry is counted
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

// end records the end of a lease. It reports false if the end was recorded before.
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
