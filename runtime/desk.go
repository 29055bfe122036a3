package runtime

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// desk is where questions and people meet: it knows the sessions that can be
// asked, and what is asked now. What is kept of a question, and which answer
// counts, is decided by the engine.
type desk struct {
	metrics  *metrics.Metrics
	sessions *session.Directory
	offer    func(arcp.JobID, string, approval.Who) // gives a question to one more session
	show     func(kind string, q *approval.Row)     // tells who watches the host
	since    time.Time                              // what was asked before was shown by another process

	mu       sync.Mutex
	pending  map[string]*asked // by the question's id
	requests map[arcp.MessageID]*asked
	byOwner  map[string]map[string]*asked // by principal
	waiting  map[string][]chan struct{}   // closed when a question is settled, or there is a new one
}

// asked is a question that is pending.
type asked struct {
	row     approval.Row
	request arcp.MessageID
}

func newDesk(m *metrics.Metrics, sessions *session.Directory, show func(kind string, q *approval.Row)) *desk {
	return &desk{metrics: m, sessions: sessions, show: show, since: time.Now().Truncate(time.Microsecond), pending: make(map[string]*asked),
		requests: make(map[arcp.MessageID]*asked), byOwner: make(map[string]map[string]*asked), waiting: make(map[string][]chan struct{})}
}

var _ engine.Desk = (*desk)(nil)

// who is the session of a connection as one that is asked.
func (c *conn) who() approval.Who {
	return whoOf(&c.identity, c.id, c.negotiated(arcp.FeatureHumanInput))
}

// whoOf is a session of an identity as one that is asked, or asks.
func whoOf(id *auth.Identity, session arcp.SessionID, humanInput bool) approval.Who {
	return approval.Who{Principal: id.Principal, Session: session, HumanInput: humanInput, Observer: !mayCommand(id),
		Approver: auth.HasRole(*id, auth.RoleApprover), Worker: auth.HasRole(*id, auth.RoleWorker), Admin: auth.HasRole(*id, auth.RoleAdmin),
		Sees: matcher(id.Sees), Serves: matcher(id.Serves)}
}

// matcher reports whether a name is matched by one of the globs; nil if there
// are none.
func matcher(globs []string) func(name string) bool {
	if len(globs) == 0 {
		return nil
	}
	return func(name string) bool { return matchesAny(globs, name) }
}

// negotiated reports whether the session negotiated a feature, also while the
// machine does not know yet which session it is.
func (c *conn) negotiated(f arcp.Feature) bool { return slices.Contains(c.row.Negotiated, f) }

// introduce says to everybody who the session is now.
func (c *conn) introduce() {
	if c.session == nil { // it is being attached
		return
	}
	w := c.who()
	c.session.Identify((*sessionConn)(c), w)
	c.rt.desk.arrive(w)
	c.offerWork(w)
}

// matchesAny reports whether a name is matched by one of the globs. A glob that
// is none matches nothing.
func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, name)
		return ok && err == nil
	})
}

// everybody calls f for whoever might be asked a question: those of its
// principal and, for a gate, all who may give approvals.
func (d *desk) everybody(q *approval.Row, f func(*approval.Who)) {
	if q.Kind != approval.Gate {
		d.sessions.EachHuman(q.Principal, f)
		return
	}
	d.sessions.EachApprover(f)
}

// Audience is who is given a new question: who is connected and may answer it
// and, of a permission, the session that submitted the job in any case.
func (d *desk) Audience(q *approval.Row, now time.Time) []arcp.SessionID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.audience(q, now)
}

func (d *desk) audience(q *approval.Row, now time.Time) (ids []arcp.SessionID) {
	own := approval.Who{Principal: q.Principal, Session: q.Session}
	if q.Kind != approval.Gate && q.Session != "" {
		own.HumanInput = true // whether it is shown one is a matter of its view
		if q.Wants(&own, now) {
			ids = append(ids, q.Session)
		}
	}
	d.everybody(q, func(w *approval.Who) {
		if w.Session != q.Session && q.Wants(w, now) {
			ids = append(ids, w.Session)
		}
	})
	slices.Sort(ids)
	return ids
}

// Asked notes a question that is pending, and tells those who watch the host of a new
// one.
func (d *desk) Asked(q approval.Row, request arcp.MessageID) {
	if d.asked(q, request) {
		d.show(host.ApprovalRequested, &q)
	}
}

// asked notes a question that is pending, and gives it to those who have come
// since it was addressed. It reports whether the question is new.
func (d *desk) asked(q approval.Row, request arcp.MessageID) (first bool) {
	now := time.Now()
	d.mu.Lock()
	a := d.pending[q.ID]
	first = a == nil && !q.CreatedAt.Before(d.since)
	if a == nil {
		a = new(asked)
		d.pending[q.ID] = a
		if d.byOwner[q.Principal] == nil {
			d.byOwner[q.Principal] = make(map[string]*asked)
		}
		d.byOwner[q.Principal][q.ID] = a
		d.metrics.ApprovalsPending.Set(float64(len(d.pending)))
	}
	a.row = q
	if a.request = request; request != "" {
		d.requests[request] = a
	}
	var late []approval.Who
	d.everybody(&q, func(w *approval.Who) {
		if q.Job != "" && q.Wants(w, now) {
			late = append(late, *w)
		}
	})
	d.wakeLocked(q.ID)
	d.mu.Unlock()
	if len(late) > 0 {
		go func() { // the caller must not be held up by the engine
			for _, w := range late {
				d.offer(q.Job, q.ID, w)
			}
		}()
	}
	return first
}

// Settled forgets a question, and tells those who watch the host.
func (d *desk) Settled(q approval.Row) {
	d.settled(q)
	d.show(shownAs(&q), &q)
}

// shownAs is the event that shows a question that is not pending any more.
func shownAs(q *approval.Row) string {
	if q.Status == approval.Expired {
		return host.ApprovalExpired
	}
	return host.ApprovalResolved
}

// settled forgets a question.
func (d *desk) settled(q approval.Row) {
	d.mu.Lock()
	if a := d.pending[q.ID]; a != nil {
		delete(d.pending, q.ID)
		delete(d.requests, a.request)
		if own := d.byOwner[q.Principal]; len(own) == 1 {
			delete(d.byOwner, q.Principal)
		} else {
			delete(own, q.ID)
		}
		d.metrics.ApprovalsPending.Set(float64(len(d.pending)))
	}
	d.wakeLocked(q.ID)
	d.mu.Unlock()
	d.metrics.Approvals.WithLabelValues(string(q.Kind), string(cmp.Or(q.Status, approval.Cancelled))).Inc()
	d.metrics.ApprovalWait.Observe(max(0, q.ResolvedAt.Sub(q.CreatedAt).Seconds()))
}

func (d *desk) wakeLocked(id string) {
	for _, c := range d.waiting[id] {
		close(c)
	}
	delete(d.waiting, id)
}

// changed returns a channel that is closed when a question is asked, changed or
// settled; stop it when it is not waited for any more.
func (d *desk) changed(id string) (c chan struct{}, stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c = make(chan struct{})
	d.waiting[id] = append(d.waiting[id], c)
	return c, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if list := slices.DeleteFunc(d.waiting[id], func(x chan struct{}) bool { return x == c }); len(list) > 0 {
			d.waiting[id] = list
		} else {
			delete(d.waiting, id)
		}
	}
}

// arrive gives a session that has a connection now, and that the directory knows as one
// that can be asked, the questions that it may answer.
func (d *desk) arrive(w approval.Who) {
	if !w.HumanInput {
		return
	}
	now := time.Now()
	var list []approval.Row
	d.mu.Lock()
	for _, a := range d.visibleLocked(&w) {
		if a.row.Job != "" && a.row.Wants(&w, now) {
			list = append(list, a.row)
		}
	}
	d.mu.Unlock()
	for _, q := range list[max(0, len(list)-maxOffers):] {
		d.offer(q.Job, q.ID, w)
	}
}

// maxOffers bounds the questions that a session is given when it comes, the
// newest: each is a write. The others it finds with approval.questions.
const maxOffers = 100

// visibleLocked are the questions that somebody may know of, the oldest first.
func (d *desk) visibleLocked(w *approval.Who) (list []*asked) {
	if w.Admin || w.Sees != nil {
		for _, a := range d.pending {
			if a.row.Principal == w.Principal || w.Admin || w.Sees(a.row.Principal) {
				list = append(list, a)
			}
		}
	} else {
		list = slices.Collect(maps.Values(d.byOwner[w.Principal]))
	}
	slices.SortFunc(list, func(a, b *asked) int { return cmp.Compare(a.row.ID, b.row.ID) })
	return list
}

// visible returns copies of the questions that somebody may know of.
func (d *desk) visible(w *approval.Who) []asked {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []asked
	for _, a := range d.visibleLocked(w) {
		list = append(list, *a)
	}
	return list
}

// owned is what has to be known of a pending question that no job asks, to end it.
type owned struct {
	id, principal string
	session       arcp.SessionID
	expires       time.Time
}

// owned returns the pending questions that no job asks.
func (d *desk) owned() (list []owned) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, a := range d.pending {
		if a.row.Job == "" {
			list = append(list, owned{id, a.row.Principal, a.row.Session, a.row.ExpiresAt})
		}
	}
	return list
}

// find returns a pending question by its id, or by that of its event.
func (d *desk) find(id string) (asked, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.pending[id]
	if a == nil {
		a = d.requests[arcp.MessageID(id)]
	}
	if a == nil {
		return asked{}, false
	}
	return *a, true
}

// room refuses another question of a principal that has very many pending.
func (d *desk) room(principal string) *arcp.Error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byOwner[principal]) < maxPendingApprovals {
		return nil
	}
	return arcp.Errorf(arcp.CodeResourceExhausted, "%d questions of %s are pending already", maxPendingApprovals, principal).RetryAfter(1)
}

// wake has those who wait for a question look again.
func (d *desk) wake(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wakeLocked(id)
}

// respond gives an answer that came over the wire to the job that asks.
func (c *conn) respond(now time.Time, cmd machine.Respond) {
	who := c.who()
	a, ok := c.rt.desk.find(string(cmd.Question))
	if !ok || a.row.Job == "" || notAsked(&a.row, &who) {
		c.nack(now, cmd.Request, arcp.Errorf(arcp.CodeNotFound, "no question %s is pending: it was answered, withdrawn or never asked", cmd.Question))
		return
	}
	if err := fits(&a.row, &cmd); err != nil {
		c.nack(now, cmd.Request, err)
		return
	}
	c.owed.Add(1)
	c.rt.engine.Respond(engine.Respond{Job: a.row.Job, ID: a.row.ID, Request: cmd.Request, Who: who, Answer: cmd.Answer,
		Done: func(row approval.Row, err *arcp.Error) {
			switch {
			case err != nil:
				owing{c}.Answer(answerTo(cmd.Request, arcp.Nack, err))
			case row.Resolution == approval.Granted: // lease.granted is the answer
				c.settle()
			default:
				owing{c}.Answer(answerTo(cmd.Request, arcp.Ack, arcp.AckPayload{}))
			}
			c.afterwards(func() { c.rt.auditAnswer(&who, &a.row, &cmd.Answer, err) })
		}})
}

// notAsked reports whether a question does not exist for somebody.
func notAsked(q *approval.Row, w *approval.Who) bool {
	err := q.MayAnswer(w)
	return err != nil && err.Code == arcp.CodeNotFound
}

// fits refuses an answer of another kind than the question.
func fits(q *approval.Row, cmd *machine.Respond) *arcp.Error {
	want := arcp.HumanChoiceResponse
	switch q.Kind {
	case approval.Permission:
		want = arcp.PermissionGrant
		if cmd.Type == arcp.PermissionDeny {
			want = arcp.PermissionDeny
		}
	case approval.Input:
		want = arcp.HumanInputResponse
	}
	if cmd.Type != want {
		return arcp.Errorf(arcp.CodeInvalidArgument, "the question is answered with %s, not %s", want, cmd.Type)
	}
	return nil
}

func answerTo(request arcp.MessageID, t arcp.Type, payload any) arcp.Envelope {
	env := arcp.Frame(t, payload)
	env.CorrelationID = request
	return env
}

// auditAnswer records who has answered what: not what was answered.
func (r *Runtime) auditAnswer(w *approval.Who, q *approval.Row, a *approval.Answer, err *arcp.Error) {
	decision := "allowed"
	if err != nil {
		decision = "denied"
	}
	ev := r.audit.Event("answer", w.Principal, w.Session).Str("target", q.ID).Str("kind", string(q.Kind)).Str("job_id", string(q.Job)).
		Str("owner", q.Principal).Str("decision", decision)
	if q.Kind == approval.Gate {
		ev = ev.Str("resolution", a.Resolution)
	}
	if err != nil {
		ev = ev.Str("reason", err.Message)
	}
	ev.Msg("audit")
}

// extendLease answers lease.refresh.
func (c *conn) extendLease(cmd machine.ExtendLease) {
	c.owed.Add(1)
	c.rt.engine.Extend(engine.Extend{Lease: cmd.Lease, More: cmd.More, Request: cmd.Request, Who: c.who(), Done: c.leaseDone(arcp.LeaseRefresh, cmd.Lease, cmd.Request)})
}

// revokeLease answers lease.revoked of a client.
func (c *conn) revokeLease(cmd machine.RevokeLease) {
	c.owed.Add(1)
	c.rt.engine.Revoke(engine.Revoke{Lease: cmd.Lease, Reason: cmd.Reason, Request: cmd.Request, Who: c.who(), Done: c.leaseDone(arcp.LeaseRevoked, cmd.Lease, cmd.Request)})
}

// leaseDone tells a client what it is not told by an event, and records what it
// wanted of a permission lease.
func (c *conn) leaseDone(action arcp.Type, id arcp.LeaseID, request arcp.MessageID) func(*arcp.Error) {
	who := c.who()
	return func(err *arcp.Error) {
		if err == nil {
			c.settle()
		} else {
			owing{c}.Answer(answerTo(request, arcp.Nack, err))
		}
		c.afterwards(func() { c.rt.audit.Decision(string(action), who.Principal, who.Session, string(id), err) })
	}
}

// afterwards does what whoever tells of something must not wait for, as a log.
func (c *conn) afterwards(do func()) {
	if !c.post(func(time.Time) { do() }) {
		c.rt.pool.Run(do)
	}
}
