package sequence

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// stub is a source of session rows.
type stub struct {
	sessions map[arcp.SessionID]store.Session
	asked    int
	err      error
}

func (s *stub) Session(id arcp.SessionID) (store.Session, error) {
	s.asked++
	row, ok := s.sessions[id]
	if s.err != nil {
		return row, s.err
	}
	if !ok {
		return row, store.ErrNotFound
	}
	return row, nil
}

func (s *stub) Ended(arcp.JobID) (bool, error)                           { return false, s.err }
func (s *stub) Key(string, string) (arcp.JobID, string, error)           { return "", "", s.err }
func (s *stub) Rev(string) (uint64, error)                               { return 0, s.err }
func (s *stub) Events(arcp.JobID, uint64, func(*store.Event) bool) error { return s.err }
func (s *stub) apply(chg *Changes) {
	for _, c := range chg.Sessions {
		row := s.sessions[c.ID]
		if c.Row != nil {
			row = *c.Row
		}
		row.LastSeq, row.TrimmedTo = c.LastSeq, c.Trim
		s.sessions[c.ID] = row
	}
}

func decide(t *testing.T, c *Core, s *stub, w *store.Write) store.Result {
	t.Helper()
	results := make([]store.Result, 1)
	chg, err := c.Decide([]*store.Write{w}, results)
	if err != nil || results[0].Err != nil {
		t.Fatalf("Decide = %v, %v", err, results[0].Err)
	}
	s.apply(chg)
	return results[0]
}

// TestEviction: sessions leave memory without losing their place, except those
// that follow a live job.
func TestEviction(t *testing.T) {
	s := &stub{sessions: map[arcp.SessionID]store.Session{}}
	c := New(s, new(arcp.IDSource), 0)
	c.limit = 8
	event := func(id arcp.JobID) []*store.Event {
		return []*store.Event{store.NewEvent(arcp.Log, time.Unix(1, 0), &store.Common{JobID: id}, "", []byte("{}"))}
	}
	job := func(id arcp.JobID, sess arcp.SessionID) *store.Write {
		return &store.Write{Submit: &store.Job{ID: id, Session: sess, State: arcp.StateAccepted}}
	}
	for i := range 20 {
		id := arcp.SessionID(fmt.Sprint("sess_", i))
		decide(t, c, s, &store.Write{Session: &store.Session{ID: id}, NewSession: true})
		w := job(arcp.JobID(fmt.Sprint("job_", i)), id)
		w.Events = event(w.Submit.ID)
		if i > 0 { // the first stays live
			w.Events[0].Type, w.State = arcp.JobCompleted, arcp.StateCompleted
		}
		decide(t, c, s, w)
	}
	if len(c.sessions) > 8 || c.sessions["sess_0"] == nil || len(c.jobs) != 1 {
		t.Errorf("%d sessions and %d jobs in memory, want at most 8 with sess_0, and 1", len(c.sessions), len(c.jobs))
	}
	for i, want := range map[int]uint64{0: 1, 1: 1} {
		r := decide(t, c, s, &store.Write{Mark: arcp.SessionID(fmt.Sprint("sess_", i))})
		if r.LastSeq != want {
			t.Errorf("sess_%d is at %d, want %d", i, r.LastSeq, want)
		}
	}
	if r := decide(t, c, s, &store.Write{Job: "job_0", Attempt: 1, Events: event("job_0")}); r.Runs[0].First != 2 {
		t.Errorf("runs = %+v, want from 2", r.Runs)
	}
}

// TestPinned: sessions that all follow live jobs stay, and not every batch
// searches for one that could go.
func TestPinned(t *testing.T) {
	s := &stub{sessions: map[arcp.SessionID]store.Session{}}
	c := New(s, new(arcp.IDSource), 0)
	c.limit = 8
	for i := range 30 {
		id := arcp.SessionID(fmt.Sprint("sess_", i))
		decide(t, c, s, &store.Write{Session: &store.Session{ID: id}, NewSession: true,
			Submit: &store.Job{ID: arcp.JobID(fmt.Sprint("job_", i)), Session: id, State: arcp.StateAccepted}})
	}
	if len(c.sessions) != 30 || c.limit < 30 {
		t.Errorf("%d sessions in memory, limit %d; want 30 and more than that", len(c.sessions), c.limit)
	}
}

// TestSourceFails: an error of the source is not a refusal.
func TestSourceFails(t *testing.T) {
	broken := errors.New("disk on fire")
	s := &stub{sessions: map[arcp.SessionID]store.Session{}, err: broken}
	for _, w := range []*store.Write{
		{Mark: "sess_1"},
		{Session: &store.Session{ID: "sess_1"}, NewSession: true},
		{Submit: &store.Job{ID: "job_1", State: arcp.StateQueued}},
		{Submit: &store.Job{ID: "job_1", State: arcp.StateQueued, IdempotencyKey: "k"}},
		{Job: "job_1", Attempt: 1},
		{Records: []store.Record{{Key: "k", Value: []byte("v")}}},
	} {
		c := New(s, new(arcp.IDSource), 0)
		if _, err := c.Decide([]*store.Write{w}, make([]store.Result, 1)); !errors.Is(err, broken) {
			t.Errorf("Decide(%+v) = %v, want the source's error", w, err)
		}
	}
}
