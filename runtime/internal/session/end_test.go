package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// recordLog commits writes in order on a goroutine of its own, and keeps the records of a session.
type recordLog struct {
	t     *testing.T
	queue chan func()

	mu      sync.Mutex
	records map[string]bool
	ends    int // writes that end the session
}

func newRecordLog(t *testing.T) *recordLog {
	l := &recordLog{t: t, queue: make(chan func(), 1024), records: make(map[string]bool)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for commit := range l.queue {
			runtime.Gosched()
			commit()
		}
	}()
	t.Cleanup(func() {
		close(l.queue)
		<-done
	})
	return l
}

func (l *recordLog) Append(w *store.Write, done func(*store.Result)) {
	l.queue <- func() {
		l.mu.Lock()
		for _, part := range append(slices.Clone(w.With), w) {
			for _, op := range part.Ops {
				switch op := op.(type) {
				case *store.PutRecord:
					if l.ends > 0 {
						l.t.Errorf("%s changes after the end of its session", op.Key)
					}
					l.records[op.Key] = op.Value != nil
				case *store.EndSession:
					l.ends++
				}
			}
		}
		if l.ends > 0 && len(l.live()) > 0 {
			l.t.Errorf("the session has ended, and %v have not", l.live())
		}
		l.mu.Unlock()
		done(&store.Result{})
	}
}

func (l *recordLog) Forget(arcp.SessionID) {}

func (l *recordLog) live() (keys []string) {
	for key, lives := range l.records {
		if lives {
			keys = append(keys, key)
		}
	}
	return keys
}

// stageEnd stages the deletion of the records in the transaction of ctx.
func (l *recordLog) stageEnd(ctx context.Context, _ *Session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range l.live() {
		if err := (txn.Committer{Log: l}).Commit(ctx, store.NewWrite().Put(store.Record{Key: key, Rev: 1}), func(error) {}); err != nil {
			return err
		}
	}
	return nil
}

// An addition that races the end of a session is in the write that ends the session, or is
// refused, also if calls that end the session are abandoned.
func TestAdditionsRaceTheEnd(t *testing.T) {
	for range 200 {
		log := newRecordLog(t)
		d := NewDirectory(Options{Log: log})
		d.Connect(noJobs{}, log.stageEnd)
		s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: &testConn{}})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 8 {
					release, err := d.DeferEnd(t.Context(), s.ID)
					if err != nil {
						if !errors.Is(err, errEnded) {
							t.Errorf("DeferEnd = %v, want %v", err, errEnded)
						}
						return
					}
					rec := store.Record{Key: fmt.Sprint(i, "/", n), Value: arcp.Raw("{}")}
					log.Append(store.NewWrite().Put(rec), func(*store.Result) { release() })
				}
			})
		}
		for i := range 4 {
			all.Go(func() {
				for range rand.IntN(64) {
					runtime.Gosched()
				}
				if i == 0 {
					d.End(s, Eviction{}, nil)
					return
				}
				var call txn.Txn
				if err := d.EndWithCall(txn.With(t.Context(), &call), s, Eviction{}, func() {}); err != nil || i == 1 {
					call.Finish(errors.New("abandoned"))
					return
				}
				w, _ := call.Combine(nil)
				call.Append(log, w, func(*store.Result) { call.Finish(nil) })
			})
		}
		all.Wait()
		d.WaitEnds()
		log.mu.Lock()
		if log.ends != 1 {
			t.Errorf("the session ended in %d writes", log.ends)
		}
		log.mu.Unlock()
	}
}

// A call that ends a session makes additions wait. They go on if the call is abandoned.
func TestAdditionsWaitForTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newTestDirectory()
		s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: &testConn{}})
		for _, abandoned := range []bool{true, false} {
			var call txn.Txn
			if err := d.EndWithCall(txn.With(t.Context(), &call), s, Eviction{}, func() {}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			results := make(chan error, 2)
			for _, ctx := range []context.Context{ctx, t.Context()} {
				go func() {
					release, err := d.DeferEnd(ctx, s.ID)
					if err == nil {
						release()
					}
					results <- err
				}()
			}
			synctest.Wait()
			impatient := errors.New("impatient")
			if cancel(impatient); <-results != impatient {
				t.Error("the end of the context does not end the wait")
			}
			want := errEnded
			if abandoned {
				want = nil
				call.Finish(errors.New("abandoned"))
			} else {
				call.Finish(nil)
			}
			if err := <-results; want == nil && err != nil || want != nil && !errors.Is(err, want) {
				t.Errorf("abandoned %t: %v, want %v", abandoned, err, want)
			}
		}
	})
}

// blockedLog commits writes when it is told to.
type blockedLog struct {
	testLog
	commits []func(error)
}

func (l *blockedLog) Append(_ *store.Write, done func(*store.Result)) {
	l.commits = append(l.commits, func(err error) { done(&store.Result{Err: err}) })
}

// AwaitEnd waits for the outcome of an end that is being written.
func TestAwaitEndWaitsForTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(blockedLog)
		d := NewDirectory(Options{Log: log})
		d.Connect(noJobs{})
		s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: &testConn{}})
		want := func(why string, want bool) {
			t.Helper()
			if ended, err := d.AwaitEnd(t.Context(), s.ID); ended != want || err != nil {
				t.Errorf("%s: ended %t, %v", why, ended, err)
			}
		}
		want("before the end", false)
		for _, failure := range []error{store.ErrBroken, nil} {
			d.End(s, Eviction{}, nil)
			result := make(chan bool, 1)
			go func() {
				ended, _ := d.AwaitEnd(t.Context(), s.ID) // its context does not end
				result <- ended
			}()
			synctest.Wait()
			if len(result) > 0 || !d.Lives(s.ID) {
				t.Error("the session has ended before the end is written")
			}
			log.commits[len(log.commits)-1](failure)
			if ended := <-result; ended != (failure == nil) {
				t.Errorf("ended %t after %v", ended, failure)
			}
			d.WaitEnds()
		}
		want("after the end", true)
	})
}

// failedLog refuses every write.
type failedLog struct{ testLog }

func (*failedLog) Append(_ *store.Write, done func(*store.Result)) {
	done(&store.Result{Err: store.ErrBroken})
}

// A session whose end cannot be stored lives on, with its connection.
func TestEndThatCannotBeStored(t *testing.T) {
	d := NewDirectory(Options{Log: new(failedLog)})
	d.Connect(noJobs{})
	c := new(testConn)
	s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: c})
	s.MarkAttached()
	for range 2 {
		failed := make(chan error, 1)
		d.End(s, Eviction{arcp.CodeCancelled, "cancelled"}, func(err error) { failed <- err })
		if err := <-failed; !errors.Is(err, store.ErrBroken) {
			t.Fatalf("error %v", err)
		}
		d.WaitEnds()
		if s.State() != Attached || d.Find("sess_1") != s || len(c.evictions) != 0 {
			t.Errorf("%v after the failure, evictions %v", s.State(), c.evictions)
		}
	}
	since := time.Now()
	s.Detach(c, since)
	if !d.EndDetached(s, since, nil) {
		t.Error("a detached session does not end")
	}
	d.WaitEnds()
	if s.State() != Detached || !d.HasSessions("alice") {
		t.Errorf("%v, sessions %t", s.State(), d.HasSessions("alice"))
	}
}

// The changes that end a session's records are staged in the write that ends the session.
// After a conflict the records are read again.
func TestEndIsAtomic(t *testing.T) {
	log := new(conflictingLog)
	d := NewDirectory(Options{Log: log})
	reads := 0
	d.Connect(noJobs{}, func(ctx context.Context, s *Session) error {
		reads++
		return stageRecord(ctx, log, "agent/"+string(s.ID))
	})
	s, _, _ := d.Open(OpenParams{ID: "sess_1", Principal: "alice", Now: time.Now(), Conn: &testConn{}})
	done := make(chan error, 1)
	d.End(s, Eviction{}, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	d.WaitEnds()
	if reads != 2 || len(log.writes) != 2 {
		t.Fatalf("read %d times, %d writes, want 2 of each: the first is a conflict", reads, len(log.writes))
	}
	w := log.writes[1]
	end := store.Find[*store.EndSession](w)
	if end.Session != "sess_1" || len(w.With) != 1 || store.Find[*store.PutRecord](w.With[0]).Key != "agent/sess_1" {
		t.Errorf("the write is %+v, want the end of sess_1 with the change of agent/sess_1", w)
	}
}

func stageRecord(ctx context.Context, log Log, key string) error {
	return txn.Committer{Log: log}.Commit(ctx, store.NewWrite().Put(store.Record{Key: key}), func(error) {})
}

// conflictingLog refuses the first write that ends a session with a conflict.
type conflictingLog struct{ writes []*store.Write }

func (l *conflictingLog) Append(w *store.Write, done func(*store.Result)) {
	if store.Find[*store.EndSession](w) == nil {
		done(&store.Result{})
		return
	}
	l.writes = append(l.writes, w)
	if len(l.writes) > 1 {
		done(&store.Result{})
		return
	}
	done(&store.Result{Err: store.ErrTogether, With: []store.Result{{Err: store.ErrConflict}}})
}

func (l *conflictingLog) Forget(arcp.SessionID) {}
