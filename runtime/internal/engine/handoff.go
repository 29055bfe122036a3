package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
)

// Handoff is a request of a session to hand jobs over to another session of its principal.
type Handoff struct {
	Session   arcp.SessionID // that owns the jobs
	Principal string         // of both sessions
	Job       arcp.JobID     // with the jobs that it has called; empty: all jobs of the session
	To        arcp.SessionID // which is stored, and does not end before HandOver returns
	Reason    string
}

// HandOver hands jobs over in one commit: all of them or none. Both sessions get the event handoff of
// each job. From then on To gets the events of the jobs, and it alone has the rights of the session that
// has submitted them. A job that To owns already is no error. Jobs that are called meanwhile by the
// handed jobs follow in commits of their own. HandOver returns when all commits are durable.
//
// The calls of built-in tools and direct jobs, which are the answers to requests of a session, stay.
func (j SessionJobs) HandOver(ctx context.Context, h *Handoff) *arcp.Error {
	e := j.e
	if h.Job != "" && !e.Lives(h.Job) {
		if _, err := endedJob(ctx, &e.cfg, h.Job, h.Principal, false); err != nil {
			return err
		}
		return errHasEnded()
	}
	e.handoffs.Lock() // a supervisor takes part in one handoff at a time
	defer e.handoffs.Unlock()
	moved := make(map[*run]bool)
	for {
		members, err := h.members(e, moved)
		if err != nil || len(members) == 0 {
			return err
		}
		if err := h.move(e, members); err != nil {
			return err
		}
		for _, r := range members {
			moved[r] = true
		}
	}
}

// members returns the jobs to hand over that are not in moved.
func (h *Handoff) members(e *Engine, moved map[*run]bool) ([]*run, *arcp.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var named *run
	if h.Job != "" && len(moved) == 0 {
		named = e.jobs.runs[h.Job]
		switch {
		case named == nil:
			return nil, errNoSuchJob() // it has just ended
		case named.row.Principal != h.Principal:
			return nil, errNoSuchJob()
		case named.entry.owner == h.To:
			return nil, nil
		case named.entry.owner != h.Session:
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "only the session that owns the job hands it over")
		case !named.movable():
			return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the job answers a request of its session and stays there")
		}
	}
	var members []*run
	counted := 0
	for r := range e.jobs.perSession[h.Session].all() {
		if moved[r] || !r.movable() || h.Job != "" && !e.jobs.descends(r, h.Job) {
			continue
		}
		members = append(members, r)
		if !r.isSchedule() {
			counted++
		}
	}
	if limit := e.jobs.limits.MaxJobsPerSession; limit > 0 && e.jobs.perSession[h.To].counted+counted > limit {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d jobs per session reached", limit).RetryAfter(retryAfter)
	}
	return members, nil
}

// owner returns the session that owns a job. Its supervisor uses run.owner.
func (e *Engine) owner(r *run) arcp.SessionID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return r.entry.owner
}

// owner returns the session that owns the job, on the goroutine of the supervisor.
func (r *run) owner() arcp.SessionID { return cmp.Or(r.progress.Owner, r.row.Session) }

// sessionsOf returns the sessions that have submitted a job and own it.
func sessionsOf(r *run) []arcp.SessionID {
	ids := []arcp.SessionID{r.row.Session, r.e.owner(r)}
	return slices.Compact(slices.DeleteFunc(ids, func(id arcp.SessionID) bool { return id == "" }))
}

// barredOfChildren returns the sessions that must not answer the gates of the jobs that r calls, besides
// the owner, which is the session of those jobs.
func barredOfChildren(r *run) []arcp.SessionID {
	if r.e.owner(r) == r.row.Session {
		return r.barred
	}
	return append(slices.Clip(r.barred), r.row.Session)
}

// movable reports whether the job can be handed over.
func (d *definition) movable() bool { return !d.direct && (!d.builtin() || d.isSchedule()) }

// descends reports whether a job has an id, or was called by such a job, directly or not.
func (t *jobTable) descends(r *run, id arcp.JobID) bool {
	for ; r != nil; r = t.runs[r.row.Parent] {
		if r.row.ID == id {
			return true
		}
	}
	return false
}

// move hands members over in one commit. Members that end meanwhile do not take part.
func (h *Handoff) move(e *Engine, members []*run) *arcp.Error {
	g := handoffGroup{Handoff: h, deciding: len(members), decided: make(chan struct{})}
	for _, r := range members {
		if m := (&handoffMember{group: &g, run: r, result: make(chan error, 1)}); !r.post(m) {
			g.leave()
		}
	}
	<-g.decided
	if err := g.commit(e); err != nil {
		g.conclude(err)
		return err
	}
	e.mu.Lock()
	for _, m := range g.joined {
		e.jobs.move(m.run, h.To)
	}
	e.mu.Unlock()
	for _, m := range g.joined {
		e.cfg.audit().handedOver(m.run, h)
	}
	g.conclude(nil)
	return nil
}

// handoffGroup has the members of one commit. A member joins with its part of the commit and waits for the
// result, or it leaves because its job ends.
type handoffGroup struct {
	*Handoff

	mu       sync.Mutex
	deciding int // members that have neither joined nor left
	joined   []*handoffMember
	refusal  *arcp.Error   // of a member that could not join; nil: there is none
	decided  chan struct{} // closed when deciding is 0
}

func (g *handoffGroup) join(m *handoffMember) { g.decide(m) }
func (g *handoffGroup) leave()                { g.decide() }

func (g *handoffGroup) decide(joins ...*handoffMember) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joined = append(g.joined, joins...)
	if g.deciding--; g.deciding == 0 {
		close(g.decided)
	}
}

// refuse refuses the handoff as a whole.
func (g *handoffGroup) refuse(err *arcp.Error) {
	g.mu.Lock()
	g.refusal = err
	g.mu.Unlock()
	g.leave()
}

// conclude passes the result to the members that have joined.
func (g *handoffGroup) conclude(err error) {
	for _, m := range g.joined {
		m.result <- err
	}
}

// commit commits the parts of the members that have joined. A member whose part the store refuses, because
// its job has ended, leaves, and the other parts are committed without it.
func (g *handoffGroup) commit(e *Engine) *arcp.Error {
	if g.refusal != nil {
		return g.refusal
	}
	for g.complete() && len(g.joined) > 0 {
		w := new(store.Write)
		for _, m := range g.joined {
			w.With = append(w.With, m.part)
		}
		res, err := e.cfg.Log.Commit(context.Background(), w)
		if err == nil {
			return nil
		}
		var rest []*handoffMember
		for i, m := range g.joined {
			if i < len(res.With) && (jobEnded(res.With[i].Err) || errors.Is(res.With[i].Err, store.ErrFenced)) {
				m.result <- res.With[i].Err
			} else {
				rest = append(rest, m)
			}
		}
		if len(rest) == len(g.joined) {
			e.cfg.Logger.Error().Err(err).Str("session_id", string(g.Session)).Msg("handoff of jobs refused by the store")
			return errStore()
		}
		g.joined = rest
	}
	if g.Job != "" {
		return errHasEnded()
	}
	return nil
}

// complete reports whether the job that the request names, if it names one, has joined.
func (g *handoffGroup) complete() bool {
	return g.Job == "" || slices.ContainsFunc(g.joined, func(m *handoffMember) bool { return m.run.row.ID == g.Job })
}

// handoffMember hands one job over. Its supervisor waits for the commit, so it writes nothing meanwhile.
type handoffMember struct {
	group  *handoffGroup
	run    *run
	part   *store.Write
	result chan error // buffered 1: of the commit
}

func (m *handoffMember) apply(s *supervisor, now time.Time) {
	if s.machine.State().Terminal() {
		m.group.leave()
		return
	}
	s.write.placeClaim()
	progress := s.progress
	progress.Owner, progress.unsaved = m.group.To, true
	record, err := s.records().progress(&progress, s.authority.Grants.Encode())
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("progress of a job cannot be read")
		m.group.refuse(arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read"))
		return
	}
	event := s.handoffEvent(now, m.group.Handoff)
	// Both sessions get the event: it comes before the end of the old follow.
	m.part = store.NewWrite(
		&store.Follow{Session: m.group.To, Job: s.row.ID, CorrelationID: s.row.SubmitID, From: math.MaxUint64, New: true},
		&store.AppendEvents{Job: s.row.ID, Attempt: s.attempt, Events: []*store.Event{event}},
		&store.Unfollow{Session: m.group.Session, Job: s.row.ID, CorrelationID: s.row.SubmitID},
	).Put(record)
	m.group.join(m)
	if err := <-m.result; err != nil {
		return // the next write of the supervisor has the same error if it concerns the job
	}
	progress.committed()
	s.progress, s.lastJSeq = progress, event.JSeq
	s.questioner().offerPermissions(now, m.group.To)
}

func (m *handoffMember) committed(*jobWriter, error) {}
func (m *handoffMember) rejected(*Engine, bool)      { m.group.leave() }

// handoffEvent returns the event that both sessions get.
func (d *definition) handoffEvent(now time.Time, h *Handoff) *store.Event {
	data, err := arcp.Marshal(arcp.Handoff{From: h.Session, To: h.To, Reason: h.Reason})
	if err != nil { // plain members
		panic("engine: handoff: " + err.Error())
	}
	return d.event(arcp.EventEmit, now, d.row.Priority, arcp.EventEmitPayload{Name: "handoff", Data: data})
}

// offerPermissions delivers the pending permission requests of the job to the session that owns it now. It
// gets the others if it has a human user.
func (qr questioner) offerPermissions(now time.Time, to arcp.SessionID) {
	owner := approval.Actor{Principal: qr.job.row.Principal, Session: to, HumanInput: true}
	for _, q := range qr.questions.All() {
		if q.Row.Kind == approval.Permission && q.CanDeliver(&owner, now) {
			qr.deliver(q, []arcp.SessionID{to})
			qr.write.addCommands(&questionChanged{q: q})
		}
	}
}
