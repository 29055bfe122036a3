// Package questions holds the questions to people that are pending, and the approvals that
// no job waits for.
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
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Broker holds the pending questions and the connected sessions that can be asked. The engine
// stores a job's question and decides which answer counts. The methods may be called by any
// goroutine.
type Broker struct {
	opts  Options
	offer func(job arcp.JobID, question string, to approval.Actor) // offers a question to one more session
	since time.Time                                                // start of the process; earlier questions were shown before

	mu       sync.Mutex
	pending  map[string]*Question            // by id
	requests map[arcp.MessageID]*Question    // by the id of the event
	byOwner  map[string]map[string]*Question // by principal and id
	waiting  map[string][]chan struct{}      // closed when a question is asked, changed or settled
}

// MaxPending bounds the pending questions of a principal.
const MaxPending = 1000

// Options of a Broker.
type Options struct {
	Store    store.Store
	Changes  txn.Committer
	Sessions *session.Directory
	Host     *host.Store // shows questions to its subscribers
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
		requests: make(map[arcp.MessageID]*Question), byOwner: make(map[string]map[string]*Question), waiting: make(map[string][]chan struct{})}
}

// Connect sets the function that offers a question of a job to one more session. It is
// called once, before anything is served.
func (b *Broker) Connect(offer func(job arcp.JobID, question string, to approval.Actor)) {
	b.offer = offer
}

// eachAsked calls f for the attached sessions that may be asked a question: the sessions of
// its principal and, for a gate, all sessions that may approve.
func (b *Broker) eachAsked(q *approval.Row, f func(*approval.Actor)) {
	if q.Kind != approval.Gate {
		b.opts.Sessions.EachHuman(q.Principal, f)
		return
	}
	b.opts.Sessions.EachApprover(f)
}

// Audience returns the sessions that receive a new question: the attached ones that may
// answer it. The session that submitted the job always receives a permission.
func (b *Broker) Audience(q *approval.Row, now time.Time) []arcp.SessionID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.audience(q, now)
}

func (b *Broker) audience(q *approval.Row, now time.Time) (ids []arcp.SessionID) {
	own := approval.Actor{Principal: q.Principal, Session: q.Session}
	if q.Kind != approval.Gate && q.Session != "" {
		own.HumanInput = true // the view of the session decides whether it is shown
		if q.IsFor(&own, now) {
			ids = append(ids, q.Session)
		}
	}
	b.eachAsked(q, func(w *approval.Actor) {
		if w.Session != q.Session && q.IsFor(w, now) {
			ids = append(ids, w.Session)
		}
	})
	slices.Sort(ids)
	return ids
}

// Asked adds or updates a pending question of a job. request is the id of its event. A new
// question is shown to the subscribers of the host.
func (b *Broker) Asked(q approval.Row, request arcp.MessageID) {
	if b.asked(q, request) {
		b.show(context.Background(), host.ApprovalRequested, &q)
	}
}

// asked adds or updates a pending question, and offers it to sessions that have attached
// since its audience was chosen. It reports whether the question is new.
func (b *Broker) asked(q approval.Row, request arcp.MessageID) (first bool) {
	now := time.Now()
	b.mu.Lock()
	a := b.pending[q.ID]
	first = a == nil && !q.CreatedAt.Before(b.since)
	if a == nil {
		a = new(Question)
		b.pending[q.ID] = a
		if b.byOwner[q.Principal] == nil {
			b.byOwner[q.Principal] = make(map[string]*Question)
		}
		b.byOwner[q.Principal][q.ID] = a
		b.opts.Metrics.ApprovalsPending.Set(float64(len(b.pending)))
	}
	a.Row = q
	if a.Request = request; request != "" {
		b.requests[request] = a
	}
	var late []approval.Actor
	b.eachAsked(&q, func(w *approval.Actor) {
		if q.Job != "" && q.IsFor(w, now) {
			late = append(late, *w)
		}
	})
	b.wakeLocked(q.ID)
	b.mu.Unlock()
	if len(late) > 0 {
		go func() { // the engine may block, the caller must not
			for _, w := range late {
				b.offer(q.Job, q.ID, w)
			}
		}()
	}
	return first
}

// Closed removes a question that is no longer pending, and shows its end to the subscribers
// of the host.
func (b *Broker) Closed(q approval.Row) {
	b.remove(q)
	b.show(context.Background(), eventOf(&q), &q)
}

// eventOf returns the kind of the event that shows the end of a question.
func eventOf(q *approval.Row) string {
	if q.Status == approval.Expired {
		return host.ApprovalExpired
	}
	return host.ApprovalResolved
}

// remove removes a question.
func (b *Broker) remove(q approval.Row) {
	b.mu.Lock()
	if a := b.pending[q.ID]; a != nil {
		delete(b.pending, q.ID)
		delete(b.requests, a.Request)
		if own := b.byOwner[q.Principal]; len(own) == 1 {
			delete(b.byOwner, q.Principal)
		} else {
			delete(own, q.ID)
		}
		b.opts.Metrics.ApprovalsPending.Set(float64(len(b.pending)))
	}
	b.wakeLocked(q.ID)
	b.mu.Unlock()
	b.opts.Metrics.Approvals.WithLabelValues(string(q.Kind), string(cmp.Or(q.Status, approval.Cancelled))).Inc()
	b.opts.Metrics.ApprovalWait.Observe(max(0, q.ResolvedAt.Sub(q.CreatedAt).Seconds()))
}

func (b *Broker) wakeLocked(id string) {
	for _, c := range b.waiting[id] {
		close(c)
	}
	delete(b.waiting, id)
}

// Changed returns a channel that is closed when a question is asked, changed or resolved. The
// caller calls stop when it no longer waits.
func (b *Broker) Changed(id string) (c chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c = make(chan struct{})
	b.waiting[id] = append(b.waiting[id], c)
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if list := slices.DeleteFunc(b.waiting[id], func(x chan struct{}) bool { return x == c }); len(list) > 0 {
			b.waiting[id] = list
		} else {
			delete(b.waiting, id)
		}
	}
}

// Arrive offers the pending questions that it may answer to a session that has just
// attached and takes part in human input.
func (b *Broker) Arrive(w approval.Actor) {
	if !w.HumanInput {
		return
	}
	now := time.Now()
	var list []approval.Row
	b.mu.Lock()
	for _, a := range b.visibleLocked(&w) {
		if a.Row.Job != "" && a.Row.IsFor(&w, now) {
			list = append(list, a.Row)
		}
	}
	b.mu.Unlock()
	for _, q := range list[max(0, len(list)-maxOffers):] {
		b.offer(q.Job, q.ID, w)
	}
}

// maxOffers bounds the questions that Arrive offers, the newest ones: each is a write. The
// session finds the others with approval.questions.
const maxOffers = 100

// visibleLocked returns the questions that w may see, the oldest first.
func (b *Broker) visibleLocked(w *approval.Actor) (list []*Question) {
	if w.Admin || w.Sees != nil {
		for _, a := range b.pending {
			if a.Row.Principal == w.Principal || w.Admin || w.Sees(a.Row.Principal) {
				list = append(list, a)
			}
		}
	} else {
		list = slices.Collect(maps.Values(b.byOwner[w.Principal]))
	}
	slices.SortFunc(list, func(x, y *Question) int { return cmp.Compare(x.Row.ID, y.Row.ID) })
	return list
}

// Visible returns copies of the questions that w may see, the oldest first.
func (b *Broker) Visible(w *approval.Actor) []Question {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []Question
	for _, a := range b.visibleLocked(w) {
		list = append(list, *a)
	}
	return list
}

// owned identifies a pending question without a job.
type owned struct {
	id, principal string
	session       arcp.SessionID
	expires       time.Time
}

// owned returns the pending questions without a job, of one session or, if that is empty, of
// all.
func (b *Broker) owned(session arcp.SessionID) (list []owned) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, a := range b.pending {
		if a.Row.Job == "" && (session == "" || a.Row.Session == session) {
			list = append(list, owned{id, a.Row.Principal, a.Row.Session, a.Row.ExpiresAt})
		}
	}
	return list
}

// Find returns a pending question by its id or the id of its event.
func (b *Broker) Find(id string) (Question, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.pending[id]
	if a == nil {
		a = b.requests[arcp.MessageID(id)]
	}
	if a == nil {
		return Question{}, false
	}
	return *a, true
}

// Room refuses another question of a principal that has MaxPending: RESOURCE_EXHAUSTED.
func (b *Broker) Room(principal string) *arcp.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byOwner[principal]) < MaxPending {
		return nil
	}
	return arcp.Errorf(arcp.CodeResourceExhausted, "%d questions of %s are pending already", MaxPending, principal).RetryAfter(1)
}

// Wake closes the channels of Changed for a question.
func (b *Broker) Wake(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeLocked(id)
}

// Of returns the pending questions of a principal, the oldest first.
func (b *Broker) Of(principal string) []approval.Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]approval.Row, 0, len(b.byOwner[principal]))
	for _, a := range b.byOwner[principal] {
		list = append(list, a.Row)
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
