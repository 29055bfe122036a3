package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// testOneOfTwoAttachesSucceeds checks that of two connections that attach at the same time one succeeds,
// and that writes of the connection before are refused.
func testOneOfTwoAttachesSucceeds(t *testing.T, open Open) {
	d := openEmpty(t, open)
	attach := func(epoch uint32) *store.Write {
		row := sessionRow("sess_1")
		row.Epoch = epoch
		return store.NewWrite(&store.AttachSession{Row: row})
	}
	d.refuse(attach(0), store.ErrNotFound)
	if r := d.do(store.NewWrite(&store.OpenSession{Row: sessionRow("sess_1")})); r.Epoch != 1 {
		t.Errorf("a new session has epoch %d", r.Epoch)
	}
	d.emit(d.submit("job_1", "sess_1"), arcp.JobStarted)
	results := d.batch(attach(1), attach(1))
	if results[0].Err != nil || results[0].Epoch != 2 || !errors.Is(results[1].Err, store.ErrFenced) {
		t.Errorf("two connections attach: %+v, %+v", results[0], results[1])
	}
	put := func(id arcp.SessionID, epoch uint32) *store.Write {
		row := sessionRow(id)
		row.Epoch = epoch
		return store.NewWrite(&store.PutSession{Row: row})
	}
	d.refuse(put("sess_1", 1), store.ErrFenced)
	if r := d.do(put("sess_1", 2)); r.Epoch != 2 || r.LastSeq != 1 || d.row("sess_1").Epoch != 2 {
		t.Errorf("the row was replaced: %+v, %+v", r, d.row("sess_1"))
	}
	d.refuse(put("sess_gone", 1), store.ErrFenced)
	d.submit("job_other", d.session("sess_other"))
	d.do(store.NewWrite(&store.Follow{Session: "sess_1", Job: "job_other", CorrelationID: "c"}))
	if r := d.do(attach(2)); !slices.Equal(r.Followed, []arcp.JobID{"job_other"}) {
		t.Errorf("the session that attaches follows %v, want the job of the other session", r.Followed)
	}
	d.finish("job_other")
	if r := d.do(attach(3)); len(r.Followed) > 0 {
		t.Errorf("the session follows %v, which have ended", r.Followed)
	}
}

func testContradictoryWritesAreInvalid(t *testing.T, open Open) {
	d := openEmpty(t, open)
	d.submit("job_1", d.session("sess_1"))
	for i, w := range []*store.Write{
		store.NewWrite(&store.OpenSession{}), store.NewWrite(&store.AttachSession{Row: new(store.Session)}),
		store.NewWrite(&store.OpenSession{Row: sessionRow("sess_2")}, &store.AttachSession{Row: sessionRow("sess_2")}),
		store.NewWrite(&store.EndSession{Session: "sess_2"}, &store.OpenSession{Row: sessionRow("sess_2")}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1}, &store.AppendEvents{Job: "job_1", Attempt: 1}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1}, &store.SubmitJob{Row: jobRow("job_2", "")}),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", "")}, &store.AppendEvents{Job: "job_1", Attempt: 1}),
		store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", "")}, &store.AppendEvents{NewAttempt: true}),
		store.NewWrite(&store.AppendEvents{Attempt: 1}), store.NewWrite(&store.DeliverUnlogged{Event: d.events("", arcp.JobHeartbeat)[0]}),
		store.NewWrite(&store.OpenSession{Row: sessionRow("sess_2")}, &store.EndSession{Session: "sess_2"}), store.NewWrite(&store.TrimFeed{Position: 1}),
		store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1}, &store.DeleteJob{Job: "job_1"}), store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", "")}, &store.DeleteJob{Job: "job_2"}),
		store.NewWrite(&store.Follow{Session: "sess_1", Job: "job_1"}, &store.DeleteJob{Job: "job_1"}),
	} {
		if r := d.batch(w)[0]; !errors.Is(r.Err, store.ErrInvalid) {
			t.Errorf("write %d = %v, want ErrInvalid", i, r.Err)
		}
	}
}

// testEndedSessionLeavesItsJobs checks that a session is deleted with its log and follows. Its jobs go
// on, and their OriginSeq counts on from the last.
func testEndedSessionLeavesItsJobs(t *testing.T, open Open) {
	d := openEmpty(t, open)
	checkEndSession(d, func() {})
}

func testReopenedStoreHasEndedSessions(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	checkEndSession(d, func() { d.reopen(open, dir) })
}

func checkEndSession(d *db, between func()) {
	home, other := d.session("sess_1"), d.session("sess_2")
	d.submit("job_x", home)
	d.emit("job_x", arcp.JobProgress, arcp.JobProgress)
	d.submit("job_1", home)
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c"}))
	d.do(store.NewWrite(&store.Follow{Session: home, Job: "job_1", CorrelationID: "again"}))
	d.emit("job_1", arcp.JobStarted)
	last := d.job("job_1").LastSeq
	between()
	ended := d.do(store.NewWrite(&store.EndSession{Session: home},
		&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.JobProgress)}))
	if len(ended.Runs) != 1 || ended.Runs[0].Session != other || ended.Feed.Session != home {
		d.Errorf("with the end: runs %+v, feed %+v", ended.Runs, ended.Feed)
	}
	between()
	d.do(store.NewWrite(&store.EndSession{Session: home}))
	d.do(store.NewWrite(&store.EndSession{Session: "sess_none"}))
	d.emit("job_1", arcp.JobProgress, arcp.JobProgress)
	between()
	d.finish("job_1")
	for i, e := range d.jobLog("job_1", 1) {
		if e.OriginSeq != last+uint64(i)+1 {
			d.Errorf("event %d has OriginSeq %d, want %d", e.JSeq, e.OriginSeq, last+uint64(i)+1)
		}
	}
	if _, err := d.Session(context.Background(), home); !errors.Is(err, store.ErrNotFound) {
		d.Errorf("Session = %v", err)
	}
	if st := d.Stat(); st.Sessions != 1 || st.Jobs != 2 {
		d.Errorf("Stat = %+v", st)
	}
	d.refuse(store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", home)}), store.ErrNotFound)
	d.want(other, arcp.JobStarted, arcp.JobProgress, arcp.JobProgress, arcp.JobProgress, arcp.JobCompleted)
	between()
	d.do(store.NewWrite(&store.DeleteJob{Job: "job_1"}))
}

func testRecheckFindsTheRepeatedSubmit(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	submit := func(id arcp.JobID, digest string) *store.Write {
		row := jobRow(id, s)
		row.SubmitID, row.Digest = "m1", digest
		return store.NewWrite(&store.SubmitJob{Row: row, Recheck: true}, &store.AppendEvents{Events: d.events(id, arcp.JobAccepted)})
	}
	want := func(why string, r store.Result, id arcp.JobID) {
		t.Helper()
		if r.Err != nil || r.Existing != id || r.Repeated != (id != "") || id != "" && r.Digest != "d1" {
			t.Errorf("%s: %+v, want %q", why, r, id)
		}
	}
	results := d.batch(submit("job_1", "d1"), submit("job_2", "d2"))
	want("the first", results[0], "")
	want("again in the batch", results[1], "job_1")
	want("again later", d.batch(submit("job_3", "d3"))[0], "job_1")
	d.finish("job_1")
	keyed := submit("job_4", "d4")
	store.Find[*store.SubmitJob](keyed).Row.IdempotencyKey = "k"
	want("again after the end", d.batch(keyed)[0], "job_1")
	d.session("sess_2")
	elsewhere := submit("job_5", "d5")
	store.Find[*store.SubmitJob](elsewhere).Row.Session = "sess_2"
	want("from another session", d.batch(elsewhere)[0], "")
	d.do(store.NewWrite(&store.DeleteJob{Job: "job_1"}))
	want("after it was deleted", d.batch(submit("job_6", "d6"))[0], "")
	if n := len(d.jobLog("job_6", 0)); n != 1 {
		t.Errorf("%d events", n)
	}
}

// testFollowOnceDeliversOnlyHistory checks that a Follow with Once delivers the history and changes
// nothing else.
func testFollowOnceDeliversOnlyHistory(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other := d.session("sess_1"), d.session("sess_2")
	d.submit("job_1", s)
	d.emit("job_1", arcp.JobAccepted, arcp.JobStarted, arcp.Log)
	types := arcp.Lookup(arcp.JobAccepted).Bit | arcp.Lookup(arcp.Log).Bit
	once := func(corr arcp.MessageID, from uint64) *store.Write {
		return store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: corr, From: from, Types: types, Once: true})
	}
	if r := d.do(once("a", 1)); r.LastSeq != 1 || len(r.Runs) != 1 || r.Runs[0].CorrelationID != "a" {
		t.Errorf("once = %+v", r)
	}
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "b", From: 3}))
	d.do(once("b", 2))
	d.emit("job_1", arcp.JobProgress)
	d.want(other, arcp.Log, arcp.Log, arcp.JobProgress)
	d.finish("job_1")
	d.do(once("c", 0))
	d.want(other, arcp.Log, arcp.Log, arcp.JobProgress, arcp.JobCompleted, arcp.JobAccepted, arcp.Log)
}

// testFollowInPiecesEqualsFollowAtOnce checks that a history in pieces is the same as a history at once,
// whatever happens between the pieces.
func testFollowInPiecesEqualsFollowAtOnce(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other := d.session("sess_1"), d.session("sess_2")
	d.submit("job_1", s)
	d.emit("job_1", arcp.JobAccepted, arcp.JobStarted, arcp.Log, arcp.Log)
	f := store.Follow{Session: other, Job: "job_1", CorrelationID: "c", Max: 3}
	r := d.do(store.NewWrite(&f))
	if !r.More || r.From != 3 || r.LastSeq != 3 {
		t.Fatalf("the first piece = %+v", r)
	}
	d.emit("job_1", arcp.JobProgress)
	f.From = r.From
	if r = d.do(store.NewWrite(&f)); r.More {
		t.Fatalf("the last piece = %+v", r)
	}
	d.emit("job_1", arcp.JobProgress)
	d.want(other, arcp.JobAccepted, arcp.JobStarted, arcp.Log, arcp.Log, arcp.JobProgress, arcp.JobProgress)
}

// testDeletedJobLeavesNothing checks that nothing is left of a deleted job, and that a read past it
// returns a TrimmedError.
func testDeletedJobLeavesNothing(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other := d.session("sess_1"), d.session("sess_2")
	row := fullJob(s)
	d.do(store.NewWrite(&store.SubmitJob{Row: row}, &store.AppendEvents{Events: d.events(row.ID, arcp.JobAccepted)}))
	d.do(store.NewWrite(&store.Follow{Session: other, Job: row.ID, CorrelationID: "c"}))
	d.do(put(store.JobRecordPrefix(row.ID)+"checkpoint", 0, "x"))
	d.do(put("job/"+string(row.ID), 0, "its name only begins so"))
	d.refuse(store.NewWrite(&store.DeleteJob{Job: row.ID}), store.ErrLive)
	d.submit("job_2", s)
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_2", CorrelationID: "c2"}))
	before := d.Stat()
	d.finish(row.ID)
	d.emit("job_2", arcp.JobStarted)

	rev := d.record(store.JobRecordPrefix(row.ID) + "checkpoint").Rev
	d.do(store.NewWrite(&store.AppendEvents{Job: "job_2", Attempt: 1, Events: d.events("job_2", arcp.JobProgress)},
		&store.DeleteJob{Job: row.ID}))
	d.do(store.NewWrite(&store.DeleteJob{Job: row.ID}))
	ctx := context.Background()
	if _, err := d.Job(ctx, row.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Job = %v", err)
	}
	if err := d.JobEvents(ctx, row.ID, 0, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("JobEvents = %v", err)
	}
	if diff := cmp.Diff([]arcp.JobID{"job_2"}, ids(d, store.JobQuery{Principal: "ann"}, 0)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	if st := d.Stat(); st.Jobs != before.Jobs-1 {
		t.Errorf("Stat = %+v, before %+v", st, before)
	}
	if row := d.row(s); row.TrimmedTo != 2 || row.LastSeq != 4 {
		t.Errorf("the submitting session is trimmed to %d of %d, want 2 of 4", row.TrimmedTo, row.LastSeq)
	}
	d.want(s, arcp.JobStarted, arcp.JobProgress)
	for name, err := range map[string]error{
		"session": d.SessionEvents(ctx, other, 0, func(store.Delivery) bool { return true }),
		"feed":    d.Feed(ctx, "ann", 0, func(store.FeedEvent) bool { return true }),
	} {
		if !errors.Is(err, store.ErrTrimmed) {
			t.Errorf("reading a %s over a deleted job = %v, want ErrTrimmed", name, err)
		}
	}
	if n := len(d.sessionLog(other, 2)); n != 2 {
		t.Errorf("%d events after the deleted job, want 2", n)
	}
	d.refuse(store.NewWrite(&store.AppendEvents{Job: row.ID, Attempt: 1}), store.ErrNotFound)
	d.refuse(store.NewWrite(&store.Follow{Session: s, Job: row.ID}), store.ErrNotFound)
	d.do(put(store.JobRecordPrefix(row.ID)+"checkpoint", 0, "new"))
	if got := d.record(store.JobRecordPrefix(row.ID) + "checkpoint").Rev; got <= rev {
		t.Errorf("revision %d came back after %d", got, rev)
	}
	again := fullJob(s)
	if r := d.do(store.NewWrite(&store.SubmitJob{Row: again, Recheck: true})); r.Existing != "" {
		t.Errorf("the key of a deleted job is held by %s", r.Existing)
	}
}

// testTrimmedErrorSkipsADeletedJob checks that a TrimmedError says where the events of a deleted
// job end, and that a read from there continues.
func testTrimmedErrorSkipsADeletedJob(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s, other := d.session("sess_1"), d.session("sess_2")
	for _, id := range []arcp.JobID{"job_1", "job_2"} {
		d.submit(id, s)
		d.do(store.NewWrite(&store.Follow{Session: other, Job: id, CorrelationID: "c"}))
	}
	d.emit("job_1", arcp.JobStarted)
	for range 3 {
		d.emit("job_2", arcp.Log, arcp.Log)
		d.emit("job_1", arcp.Log)
	}
	d.finish("job_2")
	d.finish("job_1")
	d.do(store.NewWrite(&store.DeleteJob{Job: "job_2"}))
	ctx := context.Background()
	readers := map[string]func(after uint64, seen func(seq uint64)) error{
		"feed": func(after uint64, seen func(uint64)) error {
			return d.Feed(ctx, "ann", after, func(x store.FeedEvent) bool { seen(x.Position); return true })
		},
		"session": func(after uint64, seen func(uint64)) error {
			return d.SessionEvents(ctx, other, after, func(x store.Delivery) bool { seen(x.Seq); return true })
		},
	}
	for name, read := range readers {
		var seen, missing []uint64
		after := uint64(0)
		for range 100 {
			err := read(after, func(seq uint64) { seen = append(seen, seq) })
			gap, ok := errors.AsType[*store.TrimmedError](err)
			if err == nil {
				break
			}
			if !ok || !errors.Is(err, store.ErrTrimmed) || gap.UpTo <= gap.After || len(seen) > 0 && gap.After != max(after, seen[len(seen)-1]) {
				t.Fatalf("%s after %d: %v, behind %v", name, after, err, seen)
			}
			for after = gap.After; after < gap.UpTo; {
				after++
				missing = append(missing, after)
			}
		}
		if diff := cmp.Diff([]uint64{1, 4, 7, 10, 12}, seen); diff != "" {
			t.Errorf("%s: of the job that is left (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([]uint64{2, 3, 5, 6, 8, 9, 11}, missing); diff != "" {
			t.Errorf("%s: of the deleted one (-want +got):\n%s", name, diff)
		}
	}
	d.do(store.NewWrite(&store.TrimFeed{Principal: "ann", Position: 4}))
	err := d.Feed(ctx, "ann", 1, nil)
	if gap, ok := errors.AsType[*store.TrimmedError](err); !ok || gap.After != 1 || gap.UpTo != 4 {
		t.Errorf("reading what was trimmed = %v, want to be told up to where", err)
	}
}

// testJobIsSubmittedAndDeletedInOneBatch checks that a job can be submitted and deleted in one
// batch, and that another job can get its idempotency key and SubmitID.
func testJobIsSubmittedAndDeletedInOneBatch(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	keyed := func(id arcp.JobID) *store.Write {
		row := jobRow(id, s)
		row.IdempotencyKey, row.SubmitID, row.Digest = "k", "m1", "digest "+string(id)
		return store.NewWrite(&store.SubmitJob{Row: row, Recheck: true}, &store.AppendEvents{Events: d.events(id, arcp.JobAccepted)})
	}
	d.do(keyed("job_1"))
	results := d.batch(d.completion("job_1", 1), store.NewWrite(&store.DeleteJob{Job: "job_1"}), keyed("job_2"),
		d.completion("job_2", 1), store.NewWrite(&store.DeleteJob{Job: "job_2"}), keyed("job_1"), keyed("job_3"))
	for i, want := range []error{nil, nil, nil, nil, nil, store.ErrExists, nil} {
		if !errors.Is(results[i].Err, want) || results[i].Existing != "" {
			t.Errorf("write %d = %+v, want %v", i, results[i], want)
		}
	}
	again := keyed("job_4")
	if r := d.batch(again)[0]; r.Existing != "job_3" || !r.Repeated || r.Digest != "digest job_3" {
		t.Errorf("the names are of %+v, want job_3", r)
	}
	store.Find[*store.SubmitJob](again).Recheck = false
	if r := d.batch(again)[0]; r.Existing != "job_3" || r.Repeated {
		t.Errorf("the key is of %+v, want job_3", r)
	}
	if st := d.Stat(); st.Jobs != 1 || st.LiveJobs != 1 {
		t.Errorf("Stat = %+v", st)
	}
	d.want(s, arcp.JobAccepted)
}

// testEndedJobsAreListedByTimeOfEnd checks that jobs that ended before a time are listed by time of end.
func testEndedJobsAreListedByTimeOfEnd(t *testing.T, open Open) {
	d := openEmpty(t, open)
	var want []arcp.JobID
	end := func(id arcp.JobID, at time.Time) {
		row := jobRow(id, "")
		row.Principal = "p" + string(id)
		d.do(store.NewWrite(&store.SubmitJob{Row: row}))
		d.now = at
		d.finish(id)
	}
	for i := range 150 {
		id := arcp.NewJobID()
		end(id, t0.Add(time.Duration(i)*time.Second))
		want = append(want, id)
	}
	end("job_first", t0.Add(-time.Hour))
	want = append([]arcp.JobID{"job_first"}, want...)
	d.submit("job_live", "")
	d.do(store.NewWrite(&store.DeleteJob{Job: want[7]}))
	want = append(want[:7:7], want[8:]...)
	listed := func(before time.Time, limit int) (got []arcp.JobID) {
		err := d.EndedJobs(context.Background(), before, func(j store.Job) bool {
			got = append(got, j.ID)
			return len(got) != limit
		})
		if err != nil {
			t.Fatalf("Ended = %v", err)
		}
		return got
	}
	if diff := cmp.Diff(want, listed(t0.Add(time.Hour), 0)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:100], listed(t0.Add(time.Hour), 100)); diff != "" {
		t.Errorf("the first 100 (-want +got):\n%s", diff)
	}
	at := d.job(want[80]).EndedAt
	if diff := cmp.Diff(want[:80], listed(at, 0)); diff != "" {
		t.Errorf("before %s (-want +got):\n%s", at, diff)
	}
	if got := listed(time.Time{}, 0); len(got) != 0 {
		t.Errorf("before all time: %v", got)
	}
}

func testRecordsAreListedByPrefix(t *testing.T, open Open) {
	d := openEmpty(t, open)
	var want []string
	for i := range 1500 {
		key := fmt.Sprintf("p/%04d", (i*7)%1500)
		d.do(put(key, 0, key))
	}
	for i := range 1500 {
		if key := fmt.Sprintf("p/%04d", i); i%3 == 0 {
			d.do(store.NewWrite().Put(store.Record{Key: key, Rev: d.record(key).Rev}))
		} else {
			want = append(want, key)
		}
	}
	d.do(put("p", 0, "before"))
	d.do(put("p0", 0, "after"))
	list := func(prefix, after string, limit int) (got []string) {
		err := d.Store.Records(context.Background(), prefix, after, func(rec store.Record) bool {
			if rec.Rev == 0 || prefix == "p/" && string(rec.Value) != rec.Key {
				t.Errorf("record %+v", rec)
			}
			got = append(got, rec.Key)
			return len(got) != limit
		})
		if err != nil {
			t.Fatalf("Records = %v", err)
		}
		return got
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"p/", "", 0, want}, {"p/", "p/", 0, want}, {"p/", want[200], 10, want[201:211]}, {"p/", "p/0003", 0, want[2:]},
		{"p/", "z", 0, nil}, {"q", "", 0, nil}, {"", "p/1499", 0, []string{"p0"}}, {"p", "o", 2, []string{"p", want[0]}},
	} {
		if diff := cmp.Diff(c.want, list(c.prefix, c.after, c.limit)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.prefix+" after "+c.after, diff)
		}
	}
}
