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

// model is the contract of a store, written to be read rather than to be fast:
// a write is tried on a copy, which is thrown away when it is refused.
type model struct {
	sessions map[arcp.SessionID]*modelSession
	jobs     map[arcp.JobID]*modelJob
	keys     map[[2]string]arcp.JobID
	records  map[string]modelRecord
	deleted  uint64 // highest revision that a deleted record had
}

type modelSession struct {
	features []arcp.Feature
	given    []modelDelivery
	trimmed  uint64
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
	typ    arcp.Type
	origin uint64
}

type modelFollow struct {
	session arcp.SessionID
	corr    arcp.MessageID
	types   arcp.TypeSet
	origin  bool
}

type modelDelivery struct {
	job    arcp.JobID
	jseq   uint64
	corr   arcp.MessageID
	origin bool
}

type modelRecord struct {
	rev   uint64
	value string
}

func newModel(deleted uint64) *model {
	return &model{sessions: map[arcp.SessionID]*modelSession{}, jobs: map[arcp.JobID]*modelJob{},
		keys: map[[2]string]arcp.JobID{}, records: map[string]modelRecord{}, deleted: deleted}
}

func (m *model) clone() *model {
	c := &model{sessions: map[arcp.SessionID]*modelSession{}, jobs: map[arcp.JobID]*modelJob{},
		keys: maps.Clone(m.keys), records: maps.Clone(m.records), deleted: m.deleted}
	for id, s := range m.sessions {
		s := *s
		s.given = slices.Clone(s.given)
		c.sessions[id] = &s
	}
	for id, j := range m.jobs {
		j := *j
		j.events, j.follows = slices.Clone(j.events), slices.Clone(j.follows)
		c.jobs[id] = &j
	}
	return c
}

// apply returns the model after a write, or the model itself and why the write
// is refused.
func (m *model) apply(w *store.Write) (*model, error) {
	c := m.clone()
	for _, part := range []func(*store.Write) error{c.session, c.submit, c.follow, c.unfollow, c.advance, c.trim, c.record} {
		if err := part(w); err != nil {
			return m, err
		}
	}
	return c, nil
}

// existing returns the job that holds the key of a submit.
func (m *model) existing(w *store.Write) arcp.JobID {
	if w.Submit == nil || w.Submit.IdempotencyKey == "" {
		return ""
	}
	return m.keys[[2]string{w.Submit.Principal, w.Submit.IdempotencyKey}]
}

func (m *model) session(w *store.Write) error {
	if w.Session == nil {
		return nil
	}
	s := m.sessions[w.Session.ID]
	if s != nil && w.NewSession {
		return store.ErrExists
	}
	if s == nil {
		s = new(modelSession)
		m.sessions[w.Session.ID] = s
	}
	s.features = w.Session.Negotiated
	return nil
}

func (m *model) submit(w *store.Write) error {
	row := w.Submit
	switch {
	case row == nil:
		return nil
	case m.jobs[row.ID] != nil:
		return store.ErrExists
	case row.Session != "" && m.sessions[row.Session] == nil:
		return store.ErrNotFound
	}
	j := &modelJob{session: row.Session, submitID: row.SubmitID, principal: row.Principal, digest: row.Digest, state: row.State, attempt: 1}
	if row.Session != "" {
		j.follows = []modelFollow{{session: row.Session, corr: row.SubmitID}}
	}
	m.jobs[row.ID] = j
	if row.IdempotencyKey != "" {
		m.keys[[2]string{row.Principal, row.IdempotencyKey}] = row.ID
	}
	return nil
}

// sees says whether a session is given a type by a follow.
func (m *model) sees(f modelFollow, t arcp.Type) bool {
	spec := arcp.Lookup(t)
	if spec == nil || spec.Delivery != arcp.Sequenced || f.types != 0 && f.types&spec.Bit == 0 {
		return false
	}
	return spec.Need == "" || slices.Contains(m.sessions[f.session].features, spec.Need)
}

func (m *model) follow(w *store.Write) error {
	if w.Follow == nil {
		return nil
	}
	s, j := m.sessions[w.Follow.Session], m.jobs[w.Follow.Job]
	if s == nil || j == nil {
		return store.ErrNotFound
	}
	f := modelFollow{w.Follow.Session, w.Follow.CorrelationID, w.Follow.Types, w.Follow.Origin}
	for i, e := range j.events {
		if uint64(i) >= w.Follow.From && m.sees(f, e.typ) {
			s.given = append(s.given, modelDelivery{w.Follow.Job, uint64(i) + 1, f.corr, f.origin})
		}
	}
	if i := j.find(w.Follow); i >= 0 {
		j.follows[i] = f
	} else {
		j.follows = append(j.follows, f)
	}
	slices.SortFunc(j.follows, j.order)
	return nil
}

// order puts the follow that the submit made first.
func (j *modelJob) order(a, b modelFollow) int {
	own := func(f modelFollow) bool { return f.session == j.session && f.corr == j.submitID }
	switch {
	case own(a):
		return -1
	case own(b):
		return 1
	}
	return cmp.Or(strings.Compare(string(a.session), string(b.session)), strings.Compare(string(a.corr), string(b.corr)))
}

func (j *modelJob) find(f *store.Follow) int {
	return slices.IndexFunc(j.follows, func(x modelFollow) bool { return x.session == f.Session && x.corr == f.CorrelationID })
}

func (m *model) unfollow(w *store.Write) error {
	if w.Unfollow == nil {
		return nil
	}
	j := m.jobs[w.Unfollow.Job]
	if m.sessions[w.Unfollow.Session] == nil || j == nil {
		return store.ErrNotFound
	}
	if i := j.find(w.Unfollow); i >= 0 {
		j.follows = slices.Delete(j.follows, i, i+1)
	}
	return nil
}

func (m *model) advance(w *store.Write) error {
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

// append gives followers the events, one follower after the other.
func (m *model) append(id arcp.JobID, j *modelJob, events []*store.Event) {
	base := uint64(len(j.events))
	for i, e := range events {
		origin := base + uint64(i) + 1
		if j.session != "" {
			origin = uint64(len(m.sessions[j.session].given))
		}
		j.events = append(j.events, modelEvent{e.Type, origin})
	}
	for _, f := range j.follows {
		s := m.sessions[f.session]
		for i, e := range events {
			if m.sees(f, e.Type) {
				s.given = append(s.given, modelDelivery{id, base + uint64(i) + 1, f.corr, f.origin})
			}
			if f.session == j.session && f.corr == j.submitID {
				j.events[base+uint64(i)].origin = uint64(len(s.given))
			}
		}
	}
}

func (m *model) trim(w *store.Write) error {
	if w.Trim == nil {
		return nil
	}
	s := m.sessions[w.Trim.Session]
	if s == nil {
		return store.ErrNotFound
	}
	s.trimmed = max(s.trimmed, min(w.Trim.Seq, uint64(len(s.given))))
	return nil
}

func (m *model) record(w *store.Write) error {
	for _, r := range w.Records {
		old := m.records[r.Key]
		switch {
		case old.rev != r.Rev:
			return store.ErrConflict
		case r.Value == nil:
			m.deleted = max(m.deleted, r.Rev)
			delete(m.records, r.Key)
		case r.Rev == 0:
			m.records[r.Key] = modelRecord{m.deleted + 1, string(r.Value)}
		default:
			m.records[r.Key] = modelRecord{r.Rev + 1, string(r.Value)}
		}
	}
	return nil
}

// sameRefusal reports whether the model and the store agree that a write is
// refused; which of several reasons wins is up to the store.
func sameRefusal(model, got error) bool {
	return (model == nil) == (got == nil) && !errors.Is(got, store.ErrInvalid)
}
