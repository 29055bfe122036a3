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

func (s *stub) Ended(arcp.JobID) (bool, error)    { return false, s.err }
func (s *stub) Job(arcp.JobID) (store.Job, error) { return store.Job{}, s.err }
func (s *stub) Submitted(arcp.SessionID, arcp.MessageID) (arcp.JobID, string, error) {
	return "", "", s.err
}
func (s *stub) Feed(string) (uint64, uint64, error)                      { return 0, 0, s.err }
func (s *stub) Keys(string, func(string)) error                          { return s.err }
func (s *stub) Key(string, string) (arcp.JobID, string, error)           { return "", "", s.err }
func (s *stub) Rev(string) (uint64, error)                               { return 0, s.err }
func (s *stub) Events(arcp.JobID, uint64, func(*store.Event) bool) error { return s.err }
func (s *stub) apply(chg *Changes) {
	for _, c := range chg.Sessions {
		row := s.sessions[c.ID]
		if c.Row != nil {
			row = *c.Row
		}
		row.LastSeq, row.TrimmedTo = c.Last, c.Trim
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

// TestEvictedSessionsKeepTheirNumbers checks that sessions are evicted without losing their
// numbers, except sessions that follow a live job.
func TestEvictedSessionsKeepTheirNumbers(t *testing.T) {
	s := &stub{sessions: map[arcp.SessionID]store.Session{}}
	c := New(s, new(arcp.IDSource), 0)
	c.sessions.limit = 8
	event := func(id arcp.JobID) []*store.Event {
		return []*store.Event{store.NewEvent(arcp.Log, time.Unix(1, 0), &store.JobContext{JobID: id}, "", []byte("{}"))}
	}
	job := func(id arcp.JobID, sess arcp.SessionID) *store.Write {
		return store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: id, Session: sess, State: arcp.StateAccepted}})
	}
	for i := range 20 {
		id := arcp.SessionID(fmt.Sprint("sess_", i))
		decide(t, c, s, store.NewWrite(&store.OpenSession{Row: &store.Session{ID: id}}))
		w := job(arcp.JobID(fmt.Sprint("job_", i)), id)
		log := &store.AppendEvents{Events: event(store.Find[*store.SubmitJob](w).Row.ID)}
		if i > 0 { // the first stays live
			log.Events[0].Type, log.State = arcp.JobCompleted, arcp.StateCompleted
		}
		decide(t, c, s, w.Add(log))
	}
	if len(c.sessions.byID) > 8 || c.sessions.byID["sess_0"] == nil || len(c.jobs.live) != 1 {
		t.Errorf("%d sessions and %d jobs in memory, want at most 8 with sess_0, and 1", len(c.sessions.byID), len(c.jobs.live))
	}
	for i, want := range map[int]uint64{0: 1, 1: 1} {
		r := decide(t, c, s, store.NewWrite(&store.ReadPosition{Session: arcp.SessionID(fmt.Sprint("sess_", i))}))
		if r.LastSeq != want {
			t.Errorf("sess_%d is at %d, want %d", i, r.LastSeq, want)
		}
	}
	if r := decide(t, c, s, store.NewWrite(&store.AppendEvents{Job: "job_0", Attempt: 1, Events: event("job_0")})); r.Runs[0].First != 2 {
		t.Errorf("runs = %+v, want from 2", r.Runs)
	}
}

// TestSessionsOfLiveJobsStayInMemory checks that sessions of live jobs stay in memory, and that the
// limit grows with them.
func TestSessionsOfLiveJobsStayInMemory(t *testing.T) {
	s := &stub{sessions: map[arcp.SessionID]store.Session{}}
	c := New(s, new(arcp.IDSource), 0)
	c.sessions.limit = 8
	for i := range 30 {
		id := arcp.SessionID(fmt.Sprint("sess_", i))
		decide(t, c, s, store.NewWrite(&store.OpenSession{Row: &store.Session{ID: id}},
			&store.SubmitJob{Row: &store.Job{ID: arcp.JobID(fmt.Sprint("job_", i)), Session: id, State: arcp.StateAccepted}}))
	}
	if len(c.sessions.byID) != 30 || c.sessions.limit < 30 {
		t.Errorf("%d sessions in memory, limit %d; want 30 and more than that", len(c.sessions.byID), c.sessions.limit)
	}
}

// TestSubmitterOfALiveJobStaysInMemory checks that a session stays in memory while a job that it
// submitted lives, whether it follows the job or not: it numbers the job's events.
func TestSubmitterOfALiveJobStaysInMemory(t *testing.T) {
	s := &stub{sessions: map[arcp.SessionID]store.Session{}}
	c := New(s, new(arcp.IDSource), 0)
	c.sessions.limit, c.feeds.limit = 8, 8
	session := func(id arcp.SessionID) {
		decide(t, c, s, store.NewWrite(&store.OpenSession{Row: &store.Session{ID: id}}))
	}
	session("sess_submitter")
	decide(t, c, s, store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: "job_1", Session: "sess_submitter", SubmitID: "m", Principal: "ann", State: arcp.StateAccepted}},
		&store.Unfollow{Session: "sess_submitter", Job: "job_1", CorrelationID: "m"}))
	for i := range 20 {
		session(arcp.SessionID(fmt.Sprint("sess_", i)))
		decide(t, c, s, store.NewWrite(&store.TrimFeed{Principal: fmt.Sprint("p", i), Position: 1}))
	}
	if len(c.sessions.byID) > 8 || c.sessions.byID["sess_submitter"] == nil || len(c.feeds.byPrincipal) > 8 || c.feeds.byPrincipal["ann"] == nil {
		t.Errorf("%d sessions and %d feeds in memory; want at most 8 each, with those of the live job", len(c.sessions.byID), len(c.feeds.byPrincipal))
	}
	decide(t, c, s, store.NewWrite(&store.EndSession{Session: "sess_submitter"}))
	if c.sessions.byID["sess_submitter"] != nil || c.jobs.live["job_1"].submitter != nil {
		t.Error("a session that has ended is in memory")
	}
}

// TestDecideReturnsErrorsOfTheSource checks that an error of the source is an error of Decide.
func TestDecideReturnsErrorsOfTheSource(t *testing.T) {
	broken := errors.New("disk on fire")
	s := &stub{sessions: map[arcp.SessionID]store.Session{}, err: broken}
	for _, w := range []*store.Write{
		store.NewWrite(&store.ReadPosition{Session: "sess_1"}),
		store.NewWrite(&store.OpenSession{Row: &store.Session{ID: "sess_1"}}),
		store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: "job_1", State: arcp.StateQueued}}),
		store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: "job_1", State: arcp.StateQueued, IdempotencyKey: "k"}}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1}),
		store.NewWrite().Put(store.Record{Key: "k", Value: []byte("v")}),
		store.NewWrite(&store.EndSession{Session: "sess_1"}),
		store.NewWrite(&store.DeleteJob{Job: "job_1"}),
		store.NewWrite(&store.TrimFeed{Principal: "ann", Position: 1}),
		store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: "job_1", State: arcp.StateQueued, Session: "sess_1", SubmitID: "m"}, Recheck: true}),
	} {
		c := New(s, new(arcp.IDSource), 0)
		if _, err := c.Decide([]*store.Write{w}, make([]store.Result, 1)); !errors.Is(err, broken) {
			t.Errorf("Decide(%+v) = %v, want the source's error", w, err)
		}
	}
}

// LastID covers announced events, too. So ids ascend over a restart, whatever the clock does.
func TestLastIDIncludesAnnouncedEvents(t *testing.T) {
	s := &stub{sessions: map[arcp.SessionID]store.Session{}}
	c := New(s, new(arcp.IDSource), 0)
	ev := store.NewEvent(arcp.EventEmit, time.Unix(1, 0), new(store.JobContext), "", []byte("{}"))
	results := make([]store.Result, 1)
	chg, err := c.Decide([]*store.Write{store.NewWrite(&store.Announce{Principal: "alice", Events: []*store.Event{ev}})}, results)
	if err != nil || results[0].Err != nil {
		t.Fatalf("Decide = %v, %v", err, results[0].Err)
	}
	if chg.LastID == "" || chg.LastID != ev.ID() {
		t.Errorf("the last id is %q, want %q", chg.LastID, ev.ID())
	}
}
