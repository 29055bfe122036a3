// Package questions delivers pending questions to the sessions that may answer them, and stores the
// approvals that no job waits for.
package questions

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

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

	mu       sync.Mutex
	pending  map[string]*Question            // by id
	requests map[arcp.MessageID]*Question    // by the id of the event
	byOwner  map[string]map[string]*Question // by principal and id
	changec  map[string][]chan struct{}      // by question; closed when the question is asked, changed or closed
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
	return &Broker{opts: o, since: time.Now().Truncate(time.Microsecond), pending: make(map[string]*Question),
		requests: make(map[arcp.MessageID]*Question), byOwner: make(map[string]map[string]*Question), changec: make(map[string][]chan struct{})}
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
func (b *Broker) Audience(q *approval.Row, now time.Time) []arcp.SessionID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.audience(q, now)
}

func (b *Broker) audience(q *approval.Row, now time.Time) (ids []arcp.SessionID) {
	submitter := approval.Actor{Principal: q.Principal, Session: q.Session}
	if q.Kind != approval.Gate && q.Session != "" {
		submitter.HumanInput = true // the client decides whether to display the question
		if q.IsFor(&submitter, now) {
			ids = append(ids, q.Session)
		}
	}
	b.eachCandidate(q, func(actor *approval.Actor) {
		if actor.Session != q.Session && q.IsFor(actor, now) {
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
	now := time.Now()
	b.mu.Lock()
	q := b.pending[row.ID]
	first = q == nil && !row.CreatedAt.Before(b.since)
	if q == nil {
		q = new(Question)
		b.pending[row.ID] = q
		if b.byOwner[row.Principal] == nil {
			b.byOwner[row.Principal] = make(map[string]*Question)
		}
		b.byOwner[row.Principal][row.ID] = q
		b.opts.Metrics.ApprovalsPending.Set(float64(len(b.pending)))
	}
	q.Row = row
	if q.Request = request; request != "" {
		b.requests[request] = q
	}
	var newcomers []approval.Actor
	if row.Job != "" && len(row.Sent) < approval.MaxSent { // else Sent has lost sessions that have got it
		b.eachCandidate(&row, func(actor *approval.Actor) {
			if row.IsFor(actor, now) {
				newcomers = append(newcomers, *actor)
			}
		})
	}
	b.wakeLocked(row.ID)
	b.mu.Unlock()
	for _, actor := range newcomers {
		b.offer(row.Job, row.ID, actor)
	}
	return first
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
	if q := b.pending[row.ID]; q != nil {
		delete(b.pending, row.ID)
		delete(b.requests, q.Request)
		if ofOwner := b.byOwner[row.Principal]; len(ofOwner) == 1 {
			delete(b.byOwner, row.Principal)
		} else {
			delete(ofOwner, row.ID)
		}
		b.opts.Metrics.ApprovalsPending.Set(float64(len(b.pending)))
	}
	b.wakeLocked(row.ID)
	b.mu.Unlock()
	b.opts.Metrics.Approvals.WithLabelValues(string(row.Kind), string(cmp.Or(row.Status, approval.Cancelled))).Inc()
	b.opts.Metrics.ApprovalWait.Observe(max(0, row.ResolvedAt.Sub(row.CreatedAt).Seconds()))
}

// Oldest returns when the oldest pending question was asked; zero: none is pending.
func (b *Broker) Oldest() (oldest time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.pending {
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
	var rows []approval.Row
	b.mu.Lock()
	for _, q := range b.visibleLocked(&actor) {
		if q.Row.Job != "" && q.Row.IsFor(&actor, now) {
			rows = append(rows, q.Row)
		}
	}
	b.mu.Unlock()
	for _, row := range rows[max(0, len(rows)-maxOffers):] {
		b.offer(row.Job, row.ID, actor)
	}
}

// maxOffers bounds the questions that SessionAttached offers: each is a write. It offers the newest
// ones. The session finds the others with approval.questions.
const maxOffers = 100

// visibleLocked returns the questions that an actor may see, the oldest first.
func (b *Broker) visibleLocked(actor *approval.Actor) (list []*Question) {
	if actor.Admin || actor.Sees != nil {
		for _, q := range b.pending {
			if q.Row.Principal == actor.Principal || actor.Admin || actor.Sees(q.Row.Principal) {
				list = append(list, q)
			}
		}
	} else {
		list = slices.Collect(maps.Values(b.byOwner[actor.Principal]))
	}
	slices.SortFunc(list, func(x, y *Question) int { return cmp.Compare(x.Row.ID, y.Row.ID) })
	return list
}

// Visible returns copies of the questions that an actor may see, the oldest first.
func (b *Broker) Visible(actor *approval.Actor) []Question {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []Question
	for _, q := range b.visibleLocked(actor) {
		list = append(list, *q)
	}
	return list
}

// Find returns a pending question by its id or the id of its event.
func (b *Broker) Find(id string) (Question, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.pending[id]
	if q == nil {
		q = b.requests[arcp.MessageID(id)]
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
	if len(b.byOwner[principal]) < MaxPending {
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
func (b *Broker) PendingOf(principal string) []approval.Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]approval.Row, 0, len(b.byOwner[principal]))
	for _, q := range b.byOwner[principal] {
		list = append(list, q.Row)
	}
	slices.SortFunc(list, func(x, y approval.Row) int { return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.ID, y.ID)) })
	return list
}

// EachPending calls fn with the principal and the details of every pending question.
func (b *Broker) EachPending(fn func(principal string, details arcp.Raw)) {
	for _, q := range b.Visible(&approval.Actor{Admin: true}) {
		fn(q.Row.Principal, q.Row.Details)
	}
}
