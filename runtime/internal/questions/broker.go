// Package questions delivers pending questions to the sessions that may answer them, and stores the
// approvals that no job waits for.
package questions

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/RaduBerinde/btreemap"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Broker has the pending questions. The engine stores a job's question and decides which answer
// counts; the broker stores an approval without a job. Its methods may be called by many goroutines.
type Broker struct {
	opts  Options
	offer func(job arcp.JobID, question string, to approval.Actor) // delivers a job's question to one more session
	since time.Time                                                // start of the process, which emits no event of an earlier question

	mu      sync.Mutex // the committer needs it: no method iterates over the questions under it
	pending index
	changec map[string][]chan struct{} // by question; closed when the question is asked, changed or closed
}

// MaxPending bounds the pending questions of a principal.
const MaxPending = 1000

// Options of a Broker.
type Options struct {
	Store    store.Store
	Changes  txn.Committer
	Sessions *session.Directory
	Agents   *agents.Store // gets the events about questions
	Metrics  *metrics.Metrics
	Logger   zerolog.Logger
	Audit    audit.Log
}

// Question is a pending question.
type Question struct {
	Row     approval.Row
	Request arcp.MessageID // of its event; empty: no job asks it
}

// New returns a broker without questions.
func New(o Options) *Broker {
	return &Broker{opts: o, since: time.Now().Truncate(time.Microsecond), pending: newIndex(), changec: make(map[string][]chan struct{})}
}

// Connect sets the function that delivers a question of a job to one more session. It is called
// once, before the first question. offer must not block: the caller may be the committer.
func (b *Broker) Connect(offer func(job arcp.JobID, question string, to approval.Actor)) {
	b.offer = offer
}

// eachCandidate calls f for the attached sessions that may get a question: for a gate all sessions
// that may approve, otherwise the sessions of its principal.
func (b *Broker) eachCandidate(q *approval.Row, f func(*approval.Actor)) {
	if q.Kind != approval.Gate {
		b.opts.Sessions.EachHuman(q.Principal, f)
		return
	}
	b.opts.Sessions.EachApprover(f)
}

// Audience returns the sessions that get a new question: the attached sessions that may answer it.
// The session that submitted the job always gets a permission request.
func (b *Broker) Audience(q *approval.Row, now time.Time) (ids []arcp.SessionID) {
	submitter := approval.Actor{Principal: q.Principal, Session: q.Session}
	if q.Kind != approval.Gate && q.Session != "" {
		submitter.HumanInput = true // the client decides whether to display the question
		if q.IsFor(&submitter, now) {
			ids = append(ids, q.Session)
		}
	}
	isFor := q.Recipients(now)
	b.eachCandidate(q, func(actor *approval.Actor) {
		if actor.Session != q.Session && isFor(actor) {
			ids = append(ids, actor.Session)
		}
	})
	slices.Sort(ids)
	return ids
}

// Asked adds or updates a pending question of a job. request is the id of the question's event. The
// host gets an event about a new question.
func (b *Broker) Asked(row approval.Row, request arcp.MessageID) {
	if b.asked(row, request) {
		b.emitChange(context.Background(), agents.ApprovalRequested, &row)
	}
}

// asked adds or updates a pending question, and offers it to sessions that have attached since its
// audience was chosen. It reports whether the question is new.
func (b *Broker) asked(row approval.Row, request arcp.MessageID) (first bool) {
	b.mu.Lock()
	first = b.pending.find(row.ID) == nil && !row.CreatedAt.Before(b.since)
	b.pending.put(&Question{Row: row, Request: request})
	b.opts.Metrics.ApprovalsPending.Set(float64(b.pending.byID.Len()))
	b.wakeLocked(row.ID)
	b.mu.Unlock()
	b.offerToNewcomers(&row)
	return first
}

// offerToNewcomers offers a question to the attached sessions that have not got it. The caller has
// added the question: a session that attaches from now on gets it from SessionAttached.
func (b *Broker) offerToNewcomers(row *approval.Row) {
	if row.Job == "" || len(row.Sent) >= approval.MaxSent { // Sent has lost sessions that have got it
		return
	}
	var newcomers []approval.Actor
	isFor := row.Recipients(time.Now())
	b.eachCandidate(row, func(actor *approval.Actor) {
		if isFor(actor) {
			newcomers = append(newcomers, *actor)
		}
	})
	for _, actor := range newcomers {
		b.offer(row.Job, row.ID, actor)
	}
}

// Closed removes a question that is no longer pending. The host gets an event about its end.
func (b *Broker) Closed(row approval.Row) {
	b.remove(row)
	b.emitChange(context.Background(), eventKind(&row), &row)
}

// eventKind returns the kind of the event about the end of a question.
func eventKind(q *approval.Row) string {
	if q.Status == approval.Expired {
		return agents.ApprovalExpired
	}
	return agents.ApprovalResolved
}

// remove removes a question from the pending ones, and counts its end.
func (b *Broker) remove(row approval.Row) {
	b.mu.Lock()
	if b.pending.remove(row.ID) {
		b.opts.Metrics.ApprovalsPending.Set(float64(b.pending.byID.Len()))
	}
	b.wakeLocked(row.ID)
	b.mu.Unlock()
	b.opts.Metrics.Approvals.WithLabelValues(string(row.Kind), string(cmp.Or(row.Status, approval.Cancelled))).Inc()
	b.opts.Metrics.ApprovalWait.Observe(max(0, row.ResolvedAt.Sub(row.CreatedAt).Seconds()))
}

// Oldest returns when the oldest pending question was asked; zero: none is pending.
func (b *Broker) Oldest() (oldest time.Time) {
	for q := range b.Visible(&approval.Actor{Admin: true}, "") {
		if oldest.IsZero() || q.Row.CreatedAt.Before(oldest) {
			oldest = q.Row.CreatedAt
		}
	}
	return oldest
}

func (b *Broker) wakeLocked(id string) {
	for _, c := range b.changec[id] {
		close(c)
	}
	delete(b.changec, id)
}

// Changed returns a channel that is closed when a question is asked, changed or resolved. The
// caller calls stop when it no longer waits.
func (b *Broker) Changed(id string) (c chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c = make(chan struct{})
	b.changec[id] = append(b.changec[id], c)
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if list := slices.DeleteFunc(b.changec[id], func(x chan struct{}) bool { return x == c }); len(list) > 0 {
			b.changec[id] = list
		} else {
			delete(b.changec, id)
		}
	}
}

// SessionAttached offers the pending questions to a session that has just attached and has a human
// user, as far as the session may answer them.
func (b *Broker) SessionAttached(actor approval.Actor) {
	if !actor.HumanInput {
		return
	}
	now := time.Now()
	var newest []*Question
	for _, q := range b.snapshot(&actor).Descend(btreemap.Max[string](), btreemap.Min[string]()) {
		if q.Row.Job != "" && q.Row.Visible(&actor) && q.Row.IsFor(&actor, now) {
			newest = append(newest, q)
		}
		if len(newest) == maxOffers {
			break
		}
	}
	for _, q := range slices.Backward(newest) {
		b.offer(q.Row.Job, q.Row.ID, actor)
	}
}

// maxOffers bounds the questions that SessionAttached offers: each is a write. It offers the newest
// ones. The session finds the others with approval.questions.
const maxOffers = 100

// snapshot returns the questions pending now that an actor may see, and perhaps others.
func (b *Broker) snapshot(actor *approval.Actor) *tree {
	b.mu.Lock()
	defer b.mu.Unlock()
	if actor.Admin || actor.Sees != nil {
		return b.pending.byID.Clone()
	}
	return b.pending.cloneOf(actor.Principal)
}

// Visible returns the questions pending now that an actor may see and whose id is behind after,
// sorted by id: the oldest first. The caller must not change them. The iteration holds no lock.
func (b *Broker) Visible(actor *approval.Actor, after string) iter.Seq[*Question] {
	snapshot := b.snapshot(actor)
	return func(yield func(*Question) bool) {
		for _, q := range snapshot.Ascend(btreemap.GT(after), btreemap.Max[string]()) {
			if q.Row.Visible(actor) && !yield(q) {
				return
			}
		}
	}
}

// Find returns a pending question by its id or the id of its event.
func (b *Broker) Find(id string) (Question, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.pending.find(id)
	if q == nil {
		q = b.pending.requests[arcp.MessageID(id)]
	}
	if q == nil {
		return Question{}, false
	}
	return *q, true
}

// CheckRoom refuses another question of a principal that has MaxPending pending ones:
// RESOURCE_EXHAUSTED.
func (b *Broker) CheckRoom(principal string) *arcp.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending.countOf(principal) < MaxPending {
		return nil
	}
	return arcp.Errorf(arcp.CodeResourceExhausted, "%d questions of %s are pending already", MaxPending, principal).RetryAfter(1)
}

// Wake closes the channels of Changed for a question id.
func (b *Broker) Wake(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeLocked(id)
}

// PendingOf returns the pending questions of a principal, the oldest first.
func (b *Broker) PendingOf(principal string) (list []approval.Row) {
	for q := range b.Visible(&approval.Actor{Principal: principal}, "") {
		list = append(list, q.Row)
	}
	slices.SortFunc(list, func(x, y approval.Row) int { return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.ID, y.ID)) })
	return list
}

// EachPending calls fn with the principal and the details of every pending question.
func (b *Broker) EachPending(fn func(principal string, details arcp.Raw)) {
	for q := range b.Visible(&approval.Actor{Admin: true}, "") {
		fn(q.Row.Principal, q.Row.Details)
	}
}
