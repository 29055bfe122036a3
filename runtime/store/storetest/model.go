package storetest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// model is the contract of a store, for readers rather than for speed. A write is applied
// to a copy, which is dropped when the write is refused.
type model struct {
	sessions map[arcp.SessionID]*modelSession
	jobs     map[arcp.JobID]*modelJob
	feeds    map[string]*modelFeed
	keys     map[[2]string]arcp.JobID
	submits  map[[2]string]arcp.JobID // by session and id
	records  map[string]modelRecord
	deleted  uint64 // highest revision that a deleted record had
	ended    map[arcp.SessionID]bool
	removed  map[arcp.JobID]bool
}

type modelSession struct {
	features []arcp.Feature
	epoch    uint32
	log      []modelDelivery
	trimmed  uint64
}

type modelFeed struct {
	events  []modelDelivery
	trimmed uint64
}

type modelJob struct {
	session   arcp.SessionID
	submitID  arcp.MessageID
	principal string
	digest    string
	state     arcp.JobState
	attempt   uint32
	events    []modelEvent
	follows   []modelFollow
}

type modelEvent struct {
	typ       arcp.Type
	originSeq uint64
}

type modelFollow struct {
	session   arcp.SessionID
	corr      arcp.MessageID
	types     arcp.TypeSet // 0: everything
	plain     arcp.TypeSet // of these, the types followed without forwarded
	forwarded bool
	primary   bool // its numbers are the OriginSeq of the job's events
}

const every = ^arcp.TypeSet(0)

type modelDelivery struct {
	job       arcp.JobID
	jseq      uint64
	corr      arcp.MessageID
	forwarded bool
}

type modelRecord struct {
	rev   uint64
	value string
}

func newModel(deleted uint64) *model {
	return &model{sessions: map[arcp.SessionID]*modelSession{}, jobs: map[arcp.JobID]*modelJob{}, feeds: map[string]*modelFeed{},
		keys: map[[2]string]arcp.JobID{}, submits: map[[2]string]arcp.JobID{}, records: map[string]modelRecord{}, deleted: deleted,
		ended: map[arcp.SessionID]bool{}, removed: map[arcp.JobID]bool{}}
}

func (m *model) clone() *model {
	c := newModel(m.deleted)
	c.keys, c.submits, c.records = maps.Clone(m.keys), maps.Clone(m.submits), maps.Clone(m.records)
	c.ended, c.removed = maps.Clone(m.ended), maps.Clone(m.removed)
	for p, f := range m.feeds {
		c.feeds[p] = &modelFeed{events: slices.Clone(f.events), trimmed: f.trimmed}
	}
	for id, s := range m.sessions {
		s := *s
		s.log = slices.Clone(s.log)
		c.sessions[id] = &s
	}
	for id, j := range m.jobs {
		j := *j
		j.events, j.follows = slices.Clone(j.events), slices.Clone(j.follows)
		c.jobs[id] = &j
	}
	return c
}

// modelWrite has at most one operation of each kind, so that the model can look for them.
type modelWrite struct {
	Session            *store.Session
	NewSession, Attach bool
	EndSession         arcp.SessionID
	Submit             *store.Job
	Recheck            bool
	Follow             *store.Follow
	Unfollow           *store.Unfollow
	Deliver            []store.DeliverEvent
	store.AppendEvents
	Announce  *store.Announce
	Trim      *store.TrimSession
	Records   []store.Record
	DeleteJob arcp.JobID
	TrimFeed  *store.TrimFeed
}

// write returns the operations in the order in which the model performs them.
func (w *modelWrite) write() *store.Write {
	out := new(store.Write)
	switch {
	case w.NewSession:
		out.Add(&store.OpenSession{Row: w.Session})
	case w.Attach:
		out.Add(&store.AttachSession{Row: w.Session})
	case w.Session != nil:
		out.Add(&store.PutSession{Row: w.Session})
	}
	if w.EndSession != "" {
		out.Add(&store.EndSession{Session: w.EndSession})
	}
	if w.Submit != nil {
		out.Add(&store.SubmitJob{Row: w.Submit, Recheck: w.Recheck})
	}
	if w.Follow != nil {
		out.Add(w.Follow)
	}
	if w.Unfollow != nil {
		out.Add(w.Unfollow)
	}
	for i := range w.Deliver {
		out.Add(&w.Deliver[i])
	}
	if w.Job != "" || w.Submit != nil {
		out.Add(&w.AppendEvents)
	}
	if w.Announce != nil {
		out.Add(w.Announce)
	}
	if w.Trim != nil {
		out.Add(w.Trim)
	}
	out.Put(w.Records...)
	if w.DeleteJob != "" {
		out.Add(&store.DeleteJob{Job: w.DeleteJob})
	}
	if w.TrimFeed != nil {
		out.Add(w.TrimFeed)
	}
	return out
}

// apply returns the model after a write, or the model itself and the error of the write.
func (m *model) apply(w *modelWrite) (*model, error) {
	c := m.clone()
	for _, part := range []func(*modelWrite) error{c.session, c.endSession, c.submit, c.follow, c.unfollow, c.deliverEvents,
		c.advance, c.announce, c.trim, c.record, c.deleteJob, c.trimFeed} {
		if err := part(w); err != nil {
			return m, err
		}
	}
	return c, nil
}

// existing returns the job that a submit would create a second time, and whether it has
// the same SubmitID rather than the same idempotency key.
func (m *model) existing(w *modelWrite) (id arcp.JobID, repeated bool) {
	row := w.Submit
	if row == nil {
		return "", false
	}
	if id := m.submits[[2]string{string(row.Session), string(row.SubmitID)}]; w.Recheck && id != "" {
		return id, true
	}
	return m.keys[[2]string{row.Principal, row.IdempotencyKey}], false
}

func (m *model) session(w *modelWrite) error {
	if w.Session == nil {
		return nil
	}
	s := m.sessions[w.Session.ID]
	switch {
	case s != nil && w.NewSession, m.ended[w.Session.ID]:
		return store.ErrExists
	case s == nil && w.Attach:
		return store.ErrNotFound
	case s == nil && !w.NewSession && w.Session.Epoch != 0, s != nil && s.epoch != w.Session.Epoch:
		return store.ErrFenced
	case s == nil:
		s = &modelSession{epoch: 1}
		m.sessions[w.Session.ID] = s
	case w.Attach:
		s.epoch++
	}
	s.features = w.Session.Negotiated
	return nil
}

func (m *model) endSession(w *modelWrite) error {
	if m.sessions[w.EndSession] == nil {
		return nil
	}
	m.ended[w.EndSession] = true
	delete(m.sessions, w.EndSession)
	maps.DeleteFunc(m.submits, func(k [2]string, _ arcp.JobID) bool { return k[0] == string(w.EndSession) })
	for _, j := range m.jobs {
		j.follows = slices.DeleteFunc(j.follows, func(f modelFollow) bool { return f.session == w.EndSession })
	}
	return nil
}

func (m *model) submit(w *modelWrite) error {
	row := w.Submit
	switch {
	case row == nil:
		return nil
	case m.jobs[row.ID] != nil || m.removed[row.ID]:
		return store.ErrExists
	case row.Session != "" && m.sessions[row.Session] == nil:
		return store.ErrNotFound
	}
	j := &modelJob{session: row.Session, submitID: row.SubmitID, principal: row.Principal, digest: row.Digest, state: row.State, attempt: 1}
	if row.Session != "" {
		m.submits[[2]string{string(row.Session), string(row.SubmitID)}] = row.ID
		j.follows = []modelFollow{{session: row.Session, corr: row.SubmitID, plain: every, primary: true}}
	}
	m.jobs[row.ID] = j
	if row.IdempotencyKey != "" {
		m.keys[[2]string{row.Principal, row.IdempotencyKey}] = row.ID
	}
	return nil
}

// sees reports whether a follow delivers a type.
func (m *model) sees(f modelFollow, t arcp.Type) bool {
	spec := arcp.Lookup(t)
	return (spec == nil || !spec.Directed) && m.shows(f, t)
}

// shows reports whether a session can get a type.
func (m *model) shows(f modelFollow, t arcp.Type) bool {
	spec := arcp.Lookup(t)
	if spec == nil || spec.Delivery != arcp.Sequenced || f.types != 0 && f.types&spec.Bit == 0 {
		return false
	}
	return spec.Need == "" || slices.Contains(m.sessions[f.session].features, spec.Need)
}

func (m *model) follow(w *modelWrite) error {
	if w.Follow == nil {
		return nil
	}
	s, j := m.sessions[w.Follow.Session], m.jobs[w.Follow.Job]
	if s == nil || j == nil {
		return store.ErrNotFound
	}
	if m.pastLimit(w.Follow, j) {
		return store.ErrTooMany
	}
	f := modelFollow{session: w.Follow.Session, corr: w.Follow.CorrelationID, types: w.Follow.Types, forwarded: w.Follow.Forwarded}
	f.primary = f.session == j.session && f.corr == j.submitID
	if !f.forwarded {
		f.plain = cmp.Or(f.types, every)
	}
	known := w.Follow.New && j.reaches(f)
	left := w.Follow.Max
	for i, e := range j.events {
		if known || uint64(i) < w.Follow.From {
			continue
		}
		if left == 0 && w.Follow.Max > 0 {
			return nil
		}
		left--
		if m.sees(f, e.typ) {
			s.log = append(s.log, modelDelivery{job: w.Follow.Job, jseq: uint64(i) + 1, corr: f.corr, forwarded: f.forwarded})
		}
	}
	i := j.find(w.Follow.Session, w.Follow.CorrelationID)
	if w.Follow.Once || known && i < 0 {
		return nil
	}
	if i >= 0 {
		before := j.follows[i]
		if f.types |= before.types; before.types == 0 || w.Follow.Types == 0 {
			f.types = 0
		}
		f.plain |= before.plain
		f.forwarded = f.forwarded || before.forwarded
		j.follows[i] = f
	} else {
		j.follows = append(j.follows, f)
	}
	slices.SortFunc(j.follows, j.order)
	return nil
}

// pastLimit reports whether a follow exceeds its Limit.
func (m *model) pastLimit(f *store.Follow, job *modelJob) bool {
	follows := func(j *modelJob) bool {
		return j.session == f.Session || slices.ContainsFunc(j.follows, func(x modelFollow) bool { return x.session == f.Session })
	}
	if f.Limit == 0 || f.Once || job.state.Terminal() || follows(job) {
		return false
	}
	n := 0
	for _, j := range m.jobs {
		if j.session != f.Session && !j.state.Terminal() && follows(j) {
			n++
		}
	}
	return n >= f.Limit
}

// order compares follows: the follow of the submit is first.
func (j *modelJob) order(a, b modelFollow) int {
	switch {
	case a.primary:
		return -1
	case b.primary:
		return 1
	}
	return cmp.Or(strings.Compare(string(a.session), string(b.session)), strings.Compare(string(a.corr), string(b.corr)))
}

func (j *modelJob) find(s arcp.SessionID, corr arcp.MessageID) int {
	return slices.IndexFunc(j.follows, func(x modelFollow) bool { return x.session == s && x.corr == corr })
}

// reaches reports whether the job has not ended and the session of f follows it with all types of f.
func (j *modelJob) reaches(f modelFollow) bool {
	return !j.state.Terminal() && slices.ContainsFunc(j.follows, func(x modelFollow) bool {
		return x.session == f.session && (x.types == 0 || f.types != 0 && x.types&f.types == f.types)
	})
}

func (m *model) unfollow(w *modelWrite) error {
	if w.Unfollow == nil {
		return nil
	}
	j := m.jobs[w.Unfollow.Job]
	if m.sessions[w.Unfollow.Session] == nil || j == nil {
		return store.ErrNotFound
	}
	i := j.find(w.Unfollow.Session, w.Unfollow.CorrelationID)
	if i < 0 {
		return nil
	}
	switch f := &j.follows[i]; {
	case w.Unfollow.Forwarded && !f.forwarded:
	case w.Unfollow.Forwarded && f.plain != 0:
		if f.types, f.forwarded = f.plain, false; f.plain == every {
			f.types = 0
		}
	default:
		j.follows = slices.Delete(j.follows, i, i+1)
	}
	return nil
}

func (m *model) advance(w *modelWrite) error {
	id, attempt := w.Job, w.Attempt
	if w.Submit != nil {
		id, attempt = w.Submit.ID, 1
	}
	if id == "" {
		return nil
	}
	j := m.jobs[id]
	switch {
	case j == nil:
		return store.ErrNotFound
	case j.state.Terminal():
		return store.ErrTerminal
	case j.attempt != attempt:
		return store.ErrFenced
	}
	if w.NewAttempt {
		j.attempt++
	}
	m.append(id, j, w.Events)
	if w.State != "" {
		j.state = w.State
	}
	return nil
}

// append delivers events to their receivers, events with a route one by one.
func (m *model) append(id arcp.JobID, j *modelJob, events []*store.Event) {
	for len(events) > 0 {
		n := 1
		if events[0].Route == nil {
			for n < len(events) && events[n].Route == nil {
				n++
			}
		}
		m.deliver(id, j, events[:n], j.receivers(m, events[0]))
		events = events[n:]
	}
}

// receivers returns the follows that deliver an event, and the events with it.
func (j *modelJob) receivers(m *model, e *store.Event) []modelFollow {
	if e.Route == nil {
		return j.follows
	}
	spec := arcp.Lookup(e.Type)
	directed := spec != nil && spec.Directed
	var list []modelFollow
	if !directed {
		list = slices.Clone(j.follows)
	}
	for _, id := range append(slices.Clone(e.Route.To), e.Route.Reply) {
		known := slices.ContainsFunc(list, func(f modelFollow) bool { return f.session == id })
		if !known && m.sessions[id] != nil {
			list = append(list, j.single(id))
		}
	}
	for i := range list {
		if e.Route.ReplyTo != "" && (directed || list[i].session == e.Route.Reply) {
			list[i].corr = e.Route.ReplyTo
		}
	}
	return list
}

// single returns the follow that delivers one event to a session that need not follow the
// job.
func (j *modelJob) single(id arcp.SessionID) modelFollow {
	if id == j.session {
		return modelFollow{session: id, corr: j.submitID, primary: true}
	}
	var plain []arcp.MessageID
	for _, f := range j.follows {
		if f.session == id && f.plain == every {
			plain = append(plain, f.corr)
		}
	}
	if len(plain) > 0 {
		return modelFollow{session: id, corr: slices.Min(plain)}
	}
	return modelFollow{session: id, forwarded: true}
}

// deliver delivers events by follows, one follow after the other.
func (m *model) deliver(id arcp.JobID, j *modelJob, events []*store.Event, follows []modelFollow) {
	base := uint64(len(j.events))
	for i, e := range events {
		originSeq := j.lastOriginSeq() + 1
		if submitter := m.sessions[j.session]; submitter != nil {
			originSeq = uint64(len(submitter.log))
		}
		j.events = append(j.events, modelEvent{typ: e.Type, originSeq: originSeq})
		m.publish(j.principal, modelDelivery{job: id, jseq: base + uint64(i) + 1})
	}
	for _, f := range follows {
		s := m.sessions[f.session]
		for i, e := range events {
			if m.sees(f, e.Type) || e.Route != nil && m.shows(f, e.Type) {
				s.log = append(s.log, modelDelivery{job: id, jseq: base + uint64(i) + 1, corr: f.corr, forwarded: f.forwarded})
			}
			if f.primary {
				j.events[base+uint64(i)].originSeq = uint64(len(s.log))
			}
		}
	}
}

func (m *model) deliverEvents(w *modelWrite) error {
	for _, g := range w.Deliver {
		if m.jobs[g.Job] == nil {
			return store.ErrNotFound
		}
		if m.sessions[g.Session] != nil {
			m.deliverOne(g)
		}
	}
	return nil
}

func (m *model) deliverOne(g store.DeliverEvent) {
	j := m.jobs[g.Job]
	if g.JSeq > uint64(len(j.events)) {
		return
	}
	f := j.single(g.Session)
	if j.state.Terminal() {
		f = modelFollow{session: f.session, forwarded: true}
	}
	if m.shows(f, j.events[g.JSeq-1].typ) {
		s := m.sessions[f.session]
		s.log = append(s.log, modelDelivery{job: g.Job, jseq: g.JSeq, corr: f.corr, forwarded: f.forwarded})
	}
}

func (j *modelJob) lastOriginSeq() uint64 {
	if len(j.events) == 0 {
		return 0
	}
	return j.events[len(j.events)-1].originSeq
}

func (m *model) publish(principal string, x modelDelivery) {
	f := m.feeds[principal]
	if f == nil {
		f = new(modelFeed)
		m.feeds[principal] = f
	}
	f.events = append(f.events, x)
}

// announce appends events of no job to a feed.
func (m *model) announce(w *modelWrite) error {
	if w.Announce == nil {
		return nil
	}
	for range w.Announce.Events {
		p := w.Announce.Principal
		m.publish(p, modelDelivery{jseq: m.feedLen(p) + 1})
	}
	return nil
}

func (m *model) feedLen(principal string) uint64 {
	if f := m.feeds[principal]; f != nil {
		return uint64(len(f.events))
	}
	return 0
}

func (m *model) trimFeed(w *modelWrite) error {
	if w.TrimFeed == nil {
		return nil
	}
	if f := m.feeds[w.TrimFeed.Principal]; f != nil {
		f.trimmed = max(f.trimmed, min(w.TrimFeed.Position, uint64(len(f.events))))
	}
	return nil
}

func (m *model) deleteJob(w *modelWrite) error {
	j := m.jobs[w.DeleteJob]
	switch {
	case j == nil:
		return nil
	case !j.state.Terminal():
		return store.ErrLive
	}
	m.removed[w.DeleteJob] = true
	delete(m.jobs, w.DeleteJob)
	maps.DeleteFunc(m.keys, func(_ [2]string, id arcp.JobID) bool { return id == w.DeleteJob })
	maps.DeleteFunc(m.submits, func(_ [2]string, id arcp.JobID) bool { return id == w.DeleteJob })
	maps.DeleteFunc(m.records, func(key string, r modelRecord) bool {
		its := strings.HasPrefix(key, store.JobRecordPrefix(w.DeleteJob))
		if its {
			m.deleted = max(m.deleted, r.rev)
		}
		return its
	})
	if s := m.sessions[j.session]; s != nil {
		s.trimmed = max(s.trimmed, j.lastOriginSeq())
	}
	return nil
}

func (m *model) trim(w *modelWrite) error {
	if w.Trim == nil {
		return nil
	}
	s := m.sessions[w.Trim.Session]
	if s == nil {
		return store.ErrNotFound
	}
	s.trimmed = max(s.trimmed, min(w.Trim.Seq, uint64(len(s.log))))
	return nil
}

func (m *model) record(w *modelWrite) error {
	for _, r := range w.Records {
		old := m.records[r.Key]
		switch {
		case old.rev != r.Rev:
			return store.ErrConflict
		case r.Value == nil:
			m.deleted = max(m.deleted, r.Rev)
			delete(m.records, r.Key)
		case r.Rev == 0:
			m.records[r.Key] = modelRecord{rev: m.deleted + 1, value: string(r.Value)}
		default:
			m.records[r.Key] = modelRecord{rev: r.Rev + 1, value: string(r.Value)}
		}
	}
	return nil
}

// sameRefusal reports whether the model and the store agree that a write is refused. Of
// several errors the store may return any.
func sameRefusal(model, got error) bool {
	return (model == nil) == (got == nil) && !errors.Is(got, store.ErrInvalid)
}
