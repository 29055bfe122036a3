package session

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// testConn is a connection that records evictions.
type testConn struct {
	Conn
	evictions []Eviction
}

func (*testConn) Position() uint64 { return 0 }

func (c *testConn) Evict(e Eviction) { c.evictions = append(c.evictions, e) }

// testLog commits each write at once.
type testLog struct{ ended []arcp.SessionID }

func (l *testLog) Append(w *store.Write, done func(*store.Result)) {
	if end := store.Find[*store.EndSession](w); end != nil {
		l.ended = append(l.ended, end.Session)
	}
	done(&store.Result{})
}

func (l *testLog) Forget(arcp.SessionID) {}

type noJobs struct{}

func (noJobs) Has(arcp.SessionID) bool                     { return false }
func (noJobs) AwaitClaims(context.Context, arcp.SessionID) {}
func (noJobs) EndStreams(arcp.SessionID)                   {}
func (noJobs) CancelOnDisconnect(arcp.SessionID, string)   {}

func newTestDirectory() (*Directory, *testLog) {
	log := new(testLog)
	d := NewDirectory(Options{Log: log})
	d.Connect(noJobs{})
	return d, log
}

// heldClaims are jobs whose claims are in the log when the channel is closed.
type heldClaims struct {
	noJobs
	placedc chan struct{}
}

func (h heldClaims) AwaitClaims(ctx context.Context, _ arcp.SessionID) {
	select {
	case <-h.placedc:
	case <-ctx.Done():
	}
}

// The end of a session is written after the claims of its submits, or when these take too long.
func TestEndFollowsTheClaims(t *testing.T) {
	for _, placed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d, log := newTestDirectory()
			jobs := heldClaims{placedc: make(chan struct{})}
			d.Connect(jobs)
			s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: &testConn{}})
			d.End(s, Eviction{}, nil)
			synctest.Wait()
			if d.endWritten(s) {
				t.Error("the end precedes a claim")
			}
			if placed {
				close(jobs.placedc)
			}
			d.WaitEnds()
			if !slices.Equal(log.ended, []arcp.SessionID{"sess_1"}) {
				t.Errorf("ended %q, want the session", log.ended)
			}
		})
	}
}

// A session that came back and detached again since Expired found it has its whole resume
// window before it.
func TestDetachedAgainHasTheWholeResumeWindow(t *testing.T) {
	d, log := newTestDirectory()
	start := time.Now()
	first, second := &testConn{}, &testConn{}
	s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: start, Conn: first})
	s.Detach(first, start)
	later := start.Add(time.Hour)
	found := d.Expired(later, later, 10)
	if len(found) != 1 {
		t.Fatalf("%d sessions have expired, want 1", len(found))
	}
	if _, _, ok := s.Attach(second, 1); !ok {
		t.Fatal("the connection does not attach")
	}
	s.Detach(second, later)
	if d.EndDetached(s, found[0].Since, nil) {
		t.Error("a session that detached a moment ago was ended")
	}
	if !d.EndDetached(s, later, nil) {
		t.Error("a detached session is not ended")
	}
	d.WaitEnds()
	if len(log.ended) != 1 || d.Lives("sess_1") || d.HasSessions("alice") {
		t.Errorf("ended %v, lives %t", log.ended, d.Lives("sess_1"))
	}
}

// The test walks the states of a session and checks which transitions are allowed and what is
// counted.
func TestLifecycle(t *testing.T) {
	d, _ := newTestDirectory()
	now := time.Now()
	c1, c2 := &testConn{}, &testConn{}
	want := func(s *Session, why string, state State) {
		t.Helper()
		if got := s.State(); got != state {
			t.Errorf("%s: %v, want %v", why, got, state)
		}
	}
	s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: now, Conn: c1})
	want(s, "a new session", Opened)
	s.MarkAttached()
	want(s, "its row is durable", Attached)
	if _, _, ok := s.Attach(c2, 2); !ok {
		t.Fatal("a newer connection does not attach")
	}
	if s.Detach(c1, now) {
		t.Error("a connection that was superseded detaches the session")
	}
	if _, _, ok := s.Attach(c1, 1); ok {
		t.Error("an older connection attaches")
	}
	want(s, "after an older connection", Attached)
	if !s.Detach(c2, now) {
		t.Error("the connection does not detach")
	}
	want(s, "without a connection", Detached)
	done := make(chan error, 2)
	d.End(s, Eviction{}, func(err error) { done <- err })
	want(s, "at its end", Ended)
	d.End(s, Eviction{}, func(err error) { done <- err })
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("End of a session, twice: %v", err)
		}
	}
	if _, _, ok := s.Attach(c1, 3); ok || d.Find("sess_1") != nil {
		t.Error("a connection attaches to a session that has ended")
	}
	d.WaitEnds()
	if len(d.byID)+len(d.ended)+len(d.owners)+len(d.approvers)+d.detached != 0 {
		t.Errorf("kept of nothing: %+v", d)
	}
}

// The end of a session evicts its connection once, after the end is reported, with the reason of
// the first end. A connection that ends its own session is not evicted.
func TestEndEvictsTheConnection(t *testing.T) {
	first, second := Eviction{arcp.CodeCancelled, "first"}, Eviction{arcp.CodeAborted, "second"}
	for _, e := range []Eviction{first, {}} {
		d, _ := newTestDirectory()
		c := new(testConn)
		s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: c})
		before := -1
		d.End(s, e, func(error) { before = len(c.evictions) })
		d.End(s, second, nil)
		d.WaitEnds()
		var want []Eviction
		if e != (Eviction{}) {
			want = []Eviction{e}
		}
		if before != 0 || !slices.Equal(c.evictions, want) {
			t.Errorf("%v: %d evictions when the end is reported, then %v", e, before, c.evictions)
		}
	}
}

// At the limit a new session evicts the session that has been detached for longest.
func TestNewSessionReplacesTheLongestDetached(t *testing.T) {
	d, log := newTestDirectory()
	now := time.Now()
	open := func(id arcp.SessionID, principal string, l Limits) (*Session, *ExceededLimit) {
		s, _, full := d.Open(OpenParams{ID: id, Principal: principal, Now: now, Conn: &testConn{}, Limits: l})
		return s, full
	}
	a, _ := open("sess_a", "alice", Limits{})
	b, _ := open("sess_b", "alice", Limits{})
	if _, full := open("sess_c", "alice", Limits{PerPrincipal: 2}); full == nil || full.Limit != "sessions_per_principal" || full.N != 2 {
		t.Errorf("a third session of a principal that may have two: %+v", full)
	}
	if _, full := open("sess_c", "alice", Limits{All: 3, Share: 2}); full == nil || !full.Share || full.Limit != "sessions_per_principal" || full.N != 2 {
		t.Errorf("a third session of a principal whose share is two: %+v", full)
	}
	if _, full := open("sess_d", "alice", Limits{All: 3, PerPrincipal: 3, Share: 2}); full != nil {
		t.Errorf("a third session of a principal that may have three: %+v", full)
	}
	if _, full := open("sess_c", "bob", Limits{All: 3, PerPrincipal: 2}); full == nil || full.Limit != "sessions" {
		t.Errorf("a fourth session of three: %+v", full)
	}
	b.Detach(b.Conn(), now)
	a.Detach(a.Conn(), now.Add(time.Second))
	if s, full := open("sess_c", "alice", Limits{All: 3}); full != nil || s == nil {
		t.Errorf("no session made room: %+v", full)
	}
	d.WaitEnds()
	if len(log.ended) != 1 || log.ended[0] != "sess_b" {
		t.Errorf("%v ended, want the session that was detached first", log.ended)
	}
}

// A new connection may start at a position that was only written, not acknowledged. An
// acknowledgement on the superseded connection does not change that.
func TestAcksOfASupersededConnectionAreIgnored(t *testing.T) {
	d, _ := newTestDirectory()
	before, after := &testConn{}, &testConn{}
	s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: before})
	s.MarkAttached()
	if _, _, ok := s.Attach(after, 2); !ok {
		t.Fatal("not attached")
	}
	if s.SetAcks(before); s.Acks() {
		t.Error("an acknowledgement of the superseded connection counts")
	}
	if s.SetAcks(after); !s.Acks() {
		t.Error("an acknowledgement of the connection does not count")
	}
}
