package engine

import (
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

// HandOver hands jobs over in one commit: all of them or none. It returns the jobs. Both sessions get the
// event handoff of each job. From then on To gets the events of the jobs, and it alone has the rights of the
// session that has submitted them. A job that To owns already is no error. HandOver returns when the commit
// is durable.
//
// The calls of built-in tools and direct jobs, which are the answers to requests of a session, stay, and so do
// the jobs that they have called.
func (j SessionJobs) HandOver(ctx context.Context, h *Handoff) (moved []arcp.JobID, err *arcp.Error) {
	e := j.e
	end := e.handoffs.beginHandoff(h.Principal)
	defer end()
	if h.Job != "" {
		switch named := e.run(h.Job); {
		case named == nil:
			if _, err := endedJob(ctx, &e.cfg, h.Job, h.Principal, false); err != nil {
				return nil, err
			}
			return nil, errHasEnded()
		case named.row.Principal != h.Principal:
			return nil, errNoSuchJob()
		case named.owner() == h.To:
			return nil, nil
		case named.owner() != h.Session:
			e.cfg.audit().denied("handoff", h.Principal, h.Session, string(h.Job), "owner")
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "only the session that owns the job hands it over")
		case !named.movable():
			return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the job answers a request of its session and stays there")
		}
	}
	g, err := h.move(e, nil)
	if err != nil {
		return nil, err
	}
	// A schedule may have submitted a job meanwhile.
	for len(g.members) > 0 {
		for _, m := range g.joined {
			moved = append(moved, m.run.row.ID)
		}
		if g, err = h.move(e, g.members); err != nil {
			e.cfg.Logger.Error().Err(err).Str("session_id", string(h.Session)).Msg("job of a schedule not handed over with the schedule")
			return moved, nil
		}
	}
	if h.Job != "" && len(moved) == 0 {
		return nil, errHasEnded()
	}
	return moved, nil
}

// members returns the jobs to hand over, without those of an earlier commit.
func (h *Handoff) members(e *Engine, earlier map[*run]bool) ([]*run, *arcp.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs.uncountConcluded()
	var members []*run
	counted := 0
	for r := range e.jobs.perSession[h.Session].all() {
		if earlier[r] || !e.jobs.moves(r, h.Job) {
			continue
		}
		members = append(members, r)
		if !r.isSchedule() && !r.entry.concluded {
			counted++
		}
	}
	if limit := e.jobs.limits.MaxJobsPerSession; limit > 0 && counted > 0 && e.jobs.perSession[h.To].counted+counted > limit {
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d jobs per session reached", limit).RetryAfter(retryAfter)
	}
	return members, nil
}

// movable reports whether the job can be handed over.
func (d *definition) movable() bool { return !d.direct && (!d.builtin() || d.isSchedule()) }

// moves reports whether a job takes part in the handoff of a job; empty: of a session. A job that was called
// by one that stays does not.
func (t *jobTable) moves(r *run, id arcp.JobID) bool {
	found := id == ""
	for ; r != nil; r = t.runs[r.row.Parent] {
		if !r.movable() {
			return false
		}
		found = found || r.row.ID == id
	}
	return found
}

// owner returns the session that owns the job: the one that has submitted it, or to which it was handed over.
func (r *run) owner() arcp.SessionID {
	if ids := r.entry.handedTo.Load(); ids != nil {
		return (*ids)[len(*ids)-1]
	}
	return r.row.Session
}

// sessionsOf returns the sessions that have submitted a job, or own it or have owned it.
func sessionsOf(r *run) []arcp.SessionID {
	var ids []arcp.SessionID
	if r.row.Session != "" {
		ids = append(ids, r.row.Session)
	}
	if later := r.entry.handedTo.Load(); later != nil {
		ids = append(ids, *later...)
	}
	return ids
}

// barredOfChildren returns the sessions that must not answer the gates of the jobs that r calls, besides
// the session of those jobs.
func barredOfChildren(r *run) []arcp.SessionID {
	if r.entry.handedTo.Load() == nil {
		return r.barred
	}
	return slices.Concat(r.barred, sessionsOf(r))
}

// move hands jobs over in one commit, all but the earlier ones, to which it adds them; nil: it is the first
// commit. Jobs that end meanwhile do not take part.
func (h *Handoff) move(e *Engine, earlier map[*run]bool) (*handoffGroup, *arcp.Error) {
	members, err := h.members(e, earlier)
	if err != nil || len(members) == 0 {
		return new(handoffGroup), err
	}
	first := earlier == nil
	if first {
		earlier = make(map[*run]bool, len(members))
	}
	g := &handoffGroup{Handoff: h, members: earlier, deciding: len(members), decided: make(chan struct{})}
	for _, r := range members {
		earlier[r] = true
		if m := (&handoffMember{group: g, run: r, result: make(chan error, 1)}); !r.post(m) {
			g.leave()
		}
	}
	<-g.decided
	if err := g.commit(e, first); err != nil {
		g.conclude(err)
		return nil, err
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
	return g, nil
}

// handoffGroup has the members of one commit. A member joins with its part of the commit and waits for the
// result, or it leaves because its job ends.
type handoffGroup struct {
	*Handoff
	members map[*run]bool // of this commit and of earlier ones

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
// its job has ended, leaves, and the other parts are committed without it. first says that the job that the
// request names, if it names one, has to be among them.
func (g *handoffGroup) commit(e *Engine, first bool) *arcp.Error {
	if g.refusal != nil {
		return g.refusal
	}
	for len(g.joined) > 0 && (!first || g.complete()) {
		w := new(store.Write)
		for _, m := range g.joined {
			w.With = append(w.With, m.part)
		}
		res, err := g.append(e, w)
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
	if first && g.Job != "" {
		return errHasEnded()
	}
	return nil
}

// append appends a write and waits for its result. The jobs have their new owner before a client gets the
// events.
func (g *handoffGroup) append(e *Engine, w *store.Write) (store.Result, error) {
	result := make(chan store.Result, 1)
	e.cfg.Log.Append(w, func(res *store.Result) {
		if res.Err == nil {
			for _, m := range g.joined {
				m.run.entry.handedTo.Store(&m.owners)
			}
		}
		result <- *res
	})
	res := <-result
	return res, res.Err
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
	owners []arcp.SessionID // to which the job was handed over, this one included
	result chan error       // buffered 1: of the commit
}

func (m *handoffMember) apply(s *supervisor, now time.Time) {
	if s.machine.State().Terminal() {
		m.group.leave()
		return
	}
	if !s.write.isEmpty() || s.progress.unsaved { // the part must not have a change without its events
		if !postFirst(s, m) {
			m.group.leave()
		}
		return
	}
	s.write.placeClaim()
	progress := s.progress
	m.owners = append(slices.DeleteFunc(slices.Clone(progress.Owners), func(id arcp.SessionID) bool { return id == m.group.To }), m.group.To)
	progress.Owners, progress.unsaved = m.owners, true
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
	s.questioner().moveTo(now, m.group.To, sessionsOf(s.run))
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

// moveTo makes a session, the last of owners, the one that the pending questions of the job ask. It is sent the
// permission requests; it gets other questions if it has a human user. None of the owners answers a gate.
func (qr questioner) moveTo(now time.Time, to arcp.SessionID, owners []arcp.SessionID) {
	actor := approval.Actor{Principal: qr.job.row.Principal, Session: to, HumanInput: true}
	for _, q := range qr.questions.All() {
		if !q.Pending() {
			continue
		}
		qr.questions.mu.Lock()
		q.MoveTo(to, owners)
		qr.questions.mu.Unlock()
		if q.Row.Kind == approval.Permission && q.CanDeliver(&actor, now) && !qr.executes(&q.Row, to) {
			qr.deliver(q, []arcp.SessionID{to})
		}
		qr.write.addCommands(&questionChanged{q: q})
	}
}

// postFirst posts a command of a supervisor again, before the commands that have come since.
func postFirst(s *supervisor, c command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lifecycle.open() {
		return false
	}
	s.commands.list, s.commands.wanted = slices.Insert(s.commands.list, 0, c), true
	s.wake()
	return true
}

// isEmpty reports whether the write has no part besides the events of the tool.
func (pw *pendingWrite) isEmpty() bool {
	return pw.started == nil && pw.newState == "" && pw.checkpoint == nil &&
		len(pw.questions)+len(pw.deliveries)+len(pw.rotations)+len(pw.calls)+len(pw.commands) == 0
}
