package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

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
