package pebble

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

var letters = func() []byte {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = 'a' + byte(rand.IntN(26))
	}
	return b
}()

// randomBytes is a payload that does not compress.
func randomBytes(n int) []byte {
	at := rand.IntN(len(letters) - n)
	return fmt.Appendf(nil, `{"text":"%s"}`, letters[at:at+n])
}

// ended creates a job that has ended, with n events of a size.
func ended(t *testing.T, s *Store, n, size int) arcp.JobID {
	t.Helper()
	id := arcp.NewJobID()
	var log []*store.Event
	for range n {
		log = append(log, store.NewEvent(arcp.Log, t0, &store.JobContext{JobID: id}, "", randomBytes(size)))
	}
	log = append(log, events(id, arcp.JobCompleted)...)
	commit(t, s, newJob(id), store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: log, State: arcp.StateCompleted}))
	return id
}

// TestSpaceOfDeletedJobsIsReclaimed checks that the space of deleted jobs is reclaimed without
// later writes, whether their events are stored apart from their keys or not.
func TestSpaceOfDeletedJobsIsReclaimed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for _, size := range []int{200, 4000} {
		s := mustOpen(t, t.TempDir(), Options{MemTableBytes: 2 << 20, reclaimPause: 50 * time.Millisecond, rewriteAge: time.Second})
		commit(t, s, newSession(sess))
		var jobs []arcp.JobID
		for range 200 {
			jobs = append(jobs, ended(t, s, 200_000/size, size))
		}
		full := s.Stat()
		for _, id := range jobs[:180] {
			commit(t, s, store.NewWrite(&store.DeleteJob{Job: id}))
		}
		deadline := time.Now().Add(time.Minute)
		for s.Stat().Bytes > full.Bytes/2 { // a tenth is live; files with some of it are rewritten later
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes with 200 jobs, %d with 20 (events of %d)\n%s", full.Bytes, s.Stat().Bytes, size, s.db.Metrics())
			}
			time.Sleep(20 * time.Millisecond)
		}
		if st := s.Stat(); full.Jobs != 200 || st.Jobs != 20 {
			t.Errorf("%d jobs, then %d; want 200, 20", full.Jobs, st.Jobs)
		}
	}
}

// Announced events are deleted soon after the feed was trimmed; later ones stay.
func TestAnnouncedIsDeleted(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{})
	const n = 3 * trimFeedStep
	for range n {
		e := store.NewEvent(arcp.EventEmit, t0, new(store.JobContext), "", randomBytes(200))
		commit(t, s, store.NewWrite(&store.Announce{Principal: "ann", Events: []*store.Event{e}}))
	}
	stored := func() (n int) {
		it, err := s.view(table(tFeedOwn))
		if err != nil {
			t.Fatal(err)
		}
		defer s.release(it)
		for ok := it.First(); ok; ok = it.Next() {
			n++
		}
		return n
	}
	if got := stored(); got != n {
		t.Fatalf("%d events are stored, want %d", got, n)
	}
	for position := uint64(0); position < n; position += 10 {
		commit(t, s, &store.Write{Ops: []store.Op{&store.TrimFeed{Principal: "ann", Position: position}}, NoSync: true})
	}
	if got := stored(); got > trimFeedStep+10 {
		t.Errorf("%d events are stored when nearly all of %d were trimmed", got, n)
	}
	left := 0
	if err := s.Feed(t.Context(), "ann", n-n%10, func(store.FeedEvent) bool { left++; return true }); err != nil || left != n%10 {
		t.Errorf("%d events are left, %v", left, err)
	}
}

// The size of the store has the log that is written to, whose bytes may be in no table for hours.
func TestSizeHasTheLog(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{})
	commit(t, s, newSession(sess))
	before := s.Stat().Bytes
	ended(t, s, 100, 10_000)
	if grown := s.Stat().Bytes - before; grown < 1_000_000 {
		t.Errorf("the store has grown by %d bytes, want at least those of the events", grown)
	}
}

// The size of the store has the files that an earlier process has written.
func TestSizeAfterAReopen(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	commit(t, s, newSession(sess))
	ended(t, s, 100, 10_000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, Options{})
	if size := s.Stat().Bytes; size < 1_000_000 || size > 1_500_000 {
		t.Errorf("after a reopen the store has %d bytes, want those of the events and little more", size)
	}
}
