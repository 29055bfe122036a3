package pebble

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// TestFormat1IsMigrated opens a directory of format 1: a session, a job that ended late, a live job
// and a job that its submit ended.
func TestFormat1IsMigrated(t *testing.T) {
	dir := copyDir(t, filepath.Join("testdata", "format-1"))
	for range 2 { // at the migration, and after it
		s := mustOpen(t, dir, Options{})
		checkMigrated(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "format-1.manifest")); err != nil {
		t.Errorf("the manifest was not kept: %v", err)
	}

	s := mustOpen(t, dir, Options{})
	if n, err := (opener{s}).readFormat(); n != format || err != nil {
		t.Errorf("the format is %d, %v", n, err)
	}
	r := make([]store.Result, 1)
	repeat := newJob("job_9")
	submit := store.Find[*store.SubmitJob](repeat)
	submit.Row.SubmitID, submit.Recheck = "m3", true
	if err := s.Commit([]*store.Write{repeat}, r); err != nil || r[0].Existing != "job_3" || !r[0].Repeated || r[0].Digest != "d3" {
		t.Errorf("an old submit again = %+v, %v", r[0], err)
	}
	attach := &store.AttachSession{Row: store.Find[*store.PutSession](newSession(sess)).Row}
	attach.Row.Epoch = 1
	commit(t, s, store.NewWrite(attach), emit("job_2", 1), store.NewWrite(&store.DeleteJob{Job: job}), store.NewWrite(&store.DeleteJob{Job: "job_3"}))
	if n, _ := keys(t, s, tEnded); n != 0 {
		t.Errorf("%d jobs are listed as ended after they were deleted", n)
	}
	_, last, err := s.FeedBounds(context.Background(), "ann")
	if err != nil || last != 1 {
		t.Errorf("the feed goes to %d, %v; want 1", last, err)
	}
}

func checkMigrated(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	row, err := s.Session(ctx, sess)
	want := store.Session{ID: sess, Principal: "ann", Version: "1.1", ClientKind: "test", TokenHash: [32]byte{1, 2, 3},
		Negotiated: []arcp.Feature{arcp.FeatureStreaming}, CreatedAt: t0, Epoch: 1, LastSeq: 6, TrimmedTo: 2}
	if diff := cmp.Diff(want, row); err != nil || diff != "" {
		t.Errorf("session: %v (-want +got):\n%s", err, diff)
	}
	var got []arcp.JobID
	err = s.EndedJobs(ctx, t0.Add(time.Second), func(j store.Job) bool { got = append(got, j.ID); return true })
	if diff := cmp.Diff([]arcp.JobID{job, "job_3"}, got); err != nil || diff != "" {
		t.Errorf("ended: %v (-want +got):\n%s", err, diff)
	}
	if n := count(t, s, sess, 2); n != 4 {
		t.Errorf("%d events after 2, want 4", n)
	}
	if st := s.Stat(); st.Jobs != 3 || st.LiveJobs != 1 || st.Sessions != 1 {
		t.Errorf("Stat = %+v", st)
	}
	if _, last, err := s.FeedBounds(ctx, "ann"); last != 0 || err != nil {
		t.Errorf("the feed goes to %d, %v; want none", last, err)
	}
}

// TestBackupHasAcknowledgedWrites checks that a copy made during commits has all writes
// acknowledged before, and that the store stays usable.
func TestBackupHasAcknowledgedWrites(t *testing.T) {
	ctx := context.Background()
	s := mustOpen(t, t.TempDir(), Options{MemTableBytes: 1 << 20})
	commit(t, s, newSession(sess), newJob(job))
	for range 50 {
		commit(t, s, emit(job, 100))
	}
	large := ended(t, s, 50, 4000) // stored apart from its keys
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	commit(t, s, &store.Write{Ops: []store.Op{&store.TrimSession{Session: sess, Seq: 10}}, NoSync: true})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				commit(t, s, emit(job, 1))
			}
		}
	}()
	dir := filepath.Join(t.TempDir(), "backups", "monday")
	if err := s.Backup(ctx, dir); err != nil {
		t.Fatalf("Backup = %v", err)
	}
	close(stop)
	<-done
	if err := s.Backup(ctx, dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("Backup into a directory that exists = %v", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the copy is %v, %v", info, err)
	}
	if rest, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(rest) != 1 {
		t.Errorf("beside the copy: %v, %v", rest, err)
	}

	b := mustOpen(t, dir, Options{})
	row, err := b.Session(ctx, sess)
	now, err2 := s.Session(ctx, sess)
	if err != nil || err2 != nil || row.LastSeq < 5000 || row.LastSeq > now.LastSeq || row.TrimmedTo != 10 {
		t.Errorf("the copy goes to %d and is trimmed to %d, the store goes to %d: %v, %v", row.LastSeq, row.TrimmedTo, now.LastSeq, err, err2)
	}
	if n := count(t, b, sess, 10); n != int(row.LastSeq)-10 {
		t.Errorf("the copy has %d events, want %d", n, row.LastSeq-10)
	}
	bytes := 0
	err = b.JobEvents(ctx, large, 0, func(e *store.Event) bool { bytes += len(e.Body); return true })
	if err != nil || bytes < 200_000 {
		t.Errorf("the copy has %d bytes of a large job: %v", bytes, err)
	}
	commit(t, b, emit(job, 1))
	commit(t, s, emit(job, 1))
	if n := count(t, s, sess, 10); n != int(now.LastSeq)-9 {
		t.Errorf("the store has %d events after the backup, want %d", n, now.LastSeq-9)
	}
}
