package storetest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// reopen closes the store and opens it again.
func (d *db) reopen(open Open, dir string) {
	d.Helper()
	if err := d.Close(); err != nil {
		d.Fatalf("Close = %v", err)
	}
	d.Store = open(d.TB, dir)
}

// image is all readable data of a store.
type image struct {
	Sessions   []store.Session
	Deliveries map[arcp.SessionID][]store.Delivery
	Jobs       []store.Job
	Live       []store.Job
	LiveOf     []arcp.JobID
	Events     map[arcp.JobID][]*store.Event
	Records    []store.Record
	Stat       store.Stat
}

func (d *db) image(principals, records []string) image {
	d.Helper()
	im := image{Deliveries: map[arcp.SessionID][]store.Delivery{}, Events: map[arcp.JobID][]*store.Event{}, Live: live(d), Stat: d.Stat()}
	im.Stat.Bytes = 0
	err := d.Sessions(context.Background(), func(s store.Session) bool {
		im.Sessions = append(im.Sessions, s)
		im.Deliveries[s.ID] = d.sessionLog(s.ID, s.TrimmedTo)
		return true
	})
	if err != nil {
		d.Fatalf("Sessions = %v", err)
	}
	for _, p := range principals {
		im.LiveOf = append(im.LiveOf, ids(d, store.JobQuery{Principal: p, Live: true}, 0)...)
		for _, id := range ids(d, store.JobQuery{Principal: p}, 0) {
			im.Jobs = append(im.Jobs, d.job(id))
			im.Events[id] = d.jobLog(id, 0)
		}
	}
	for _, key := range records {
		im.Records = append(im.Records, d.record(key))
	}
	return im
}

// testReopenedStoreHasAllData checks that all data is the same after closing and opening.
func testReopenedStoreHasAllData(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	s, other := d.session("sess_1", arcp.FeatureCheckpoints), d.session(arcp.NewSessionID())
	full := fullJob(s)
	d.do(store.NewWrite(&store.SubmitJob{Row: full}, &store.AppendEvents{Events: d.events(full.ID, arcp.JobAccepted)}))
	d.submit("job_ended", other)
	d.do(store.NewWrite(&store.Follow{Session: other, Job: full.ID, CorrelationID: arcp.NewMessageID(), Forwarded: true}))
	d.do(store.NewWrite(&store.AppendEvents{Job: full.ID, Attempt: 1, NewAttempt: true,
		Events: d.events(full.ID, arcp.JobCheckpoint, arcp.JobProgress), State: arcp.StateBlocked}))
	d.emit("job_ended", "arcpx.test.thing", arcp.Log)
	d.finish("job_ended")
	d.do(put("a", 0, "x"))
	d.do(put("a", 1, "y"))
	d.do(put("gone", 0, "x"))
	d.do(store.NewWrite().Put(store.Record{Key: "gone", Rev: d.record("gone").Rev}))

	read := func() image { return d.image([]string{"ann"}, []string{"a", "gone", "never"}) }
	before := read()
	d.reopen(open, dir)
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Fatalf("after reopening (-before +after):\n%s", diff)
	}
	lastRev := d.record("a").Rev
	d.do(put("gone", 0, "again"))
	if rev := d.record("gone").Rev; rev <= 1 {
		t.Errorf("the revision of a record that was deleted and put again = %d, want more than 1", rev)
	}
	d.do(put("a", lastRev, "z"))
	d.refuse(store.NewWrite(&store.AppendEvents{Job: full.ID, Attempt: 1}), store.ErrFenced)
	d.refuse(d.completion("job_ended", 1), store.ErrTerminal)
	d.refuse(store.NewWrite(&store.SubmitJob{Row: jobRow("job_ended", s)}), store.ErrExists)
	d.refuse(store.NewWrite(&store.SubmitJob{Row: jobRow(full.ID, s)}), store.ErrExists)
	if r := d.batch(store.NewWrite(&store.SubmitJob{Row: fullJob(s)}))[0]; r.Existing != full.ID || r.Digest != full.Digest {
		t.Errorf("a submit with the idempotency key of %s = %+v, want that job and its digest", full.ID, r)
	}
	r := d.do(d.completion(full.ID, 2))
	if len(r.Runs) != 2 || r.Runs[0].Events[0].JSeq != 4 {
		t.Errorf("runs of the completion = %+v, want 2, the first from JSeq 4", r.Runs)
	}
	d.want(s, arcp.JobAccepted, arcp.JobCheckpoint, arcp.JobProgress, arcp.JobCompleted)
}

// testReopenedStoreHasFollows checks that follows, and the ends of follows, survive a restart.
func testReopenedStoreHasFollows(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	s, other := d.session("sess_1"), d.session("sess_2")
	d.submit("job_1", s)
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c1", Types: arcp.Lookup(arcp.Log).Bit, Forwarded: true}))
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c2"}))
	d.do(store.NewWrite(&store.Follow{Session: other, Job: "job_1", CorrelationID: "c3"}))
	d.do(store.NewWrite(&store.Unfollow{Session: other, Job: "job_1", CorrelationID: "c3"}))
	d.do(store.NewWrite(&store.Unfollow{Session: s, Job: "job_1", CorrelationID: "submit-job_1"}))
	d.reopen(open, dir)
	r := d.emit("job_1", arcp.JobProgress, arcp.Log)
	if len(r.Runs) != 2 {
		t.Fatalf("runs of job.progress and log = %+v, want one for each follow, c1 and c2", r.Runs)
	}
	if c1 := r.Runs[0]; c1.CorrelationID != "c1" || len(c1.Events) != 1 || !c1.Forwarded || r.Runs[1].Forwarded {
		t.Errorf("runs of job.progress and log = %+v, want only the log for c1, forwarded, and no other forwarded run", r.Runs)
	}
	d.submit("job_2", s)
	d.refuse(store.NewWrite(&store.Follow{Session: other, Job: "job_2", CorrelationID: "c", Limit: 1}), store.ErrTooMany)
	d.do(store.NewWrite(&store.Follow{Session: s, Job: "job_1", CorrelationID: "submit-job_1", From: 2}))
	d.reopen(open, dir)
	if r := d.finish("job_1"); len(r.Runs) != 2 || r.Runs[0].Session != s || r.Runs[0].Events[0].OriginSeq != 1 {
		t.Errorf("runs of the completion = %+v, want 2, the first for %s with OriginSeq 1", r.Runs, s)
	}
	d.reopen(open, dir)
	d.want(s, arcp.JobCompleted)
	d.want(other, arcp.Log, arcp.JobProgress, arcp.Log, arcp.JobCompleted)
}

// testNumbersContinueAfterReopen checks that numbers continue after a restart, also when all events
// were trimmed.
func testNumbersContinueAfterReopen(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	s, part := d.session("sess_1"), d.session("sess_2")
	d.submit("job_1", s)
	d.do(store.NewWrite(&store.Follow{Session: part, Job: "job_1", CorrelationID: "c"}))
	for range 100 {
		d.emit("job_1", arcp.JobProgress, arcp.Log)
	}
	d.do(store.NewWrite(&store.TrimSession{Session: s, Seq: 200}))
	d.do(store.NewWrite(&store.TrimSession{Session: part, Seq: 151}))
	row := sessionRow(part)
	row.Epoch = 1
	d.do(store.NewWrite(&store.PutSession{Row: row}))
	d.reopen(open, dir)
	if row := d.row(s); row.LastSeq != 200 || row.TrimmedTo != 200 {
		t.Errorf("row of the trimmed session: LastSeq %d, TrimmedTo %d, want 200, 200", row.LastSeq, row.TrimmedTo)
	}
	if row := d.row(part); row.LastSeq != 200 || row.TrimmedTo != 151 {
		t.Errorf("row of the partly trimmed session: LastSeq %d, TrimmedTo %d, want 200, 151", row.LastSeq, row.TrimmedTo)
	}
	if n := len(d.sessionLog(part, 151)); n != 49 {
		t.Errorf("%d events after 151, want 49", n)
	}
	if r := d.finish("job_1"); r.Runs[0].First != 201 || r.Runs[1].First != 201 {
		t.Errorf("runs of the completion = %+v, want both from 201", r.Runs)
	}
	d.want(s, arcp.JobCompleted)
}

// testIDsAscendWhenTheClockStepsBack checks that ids ascend over a restart at which the clock is
// set back, here to the year 2000 in which a bubble begins.
func testIDsAscendWhenTheClockStepsBack(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	d.submit("job_1", "")
	if before := d.emit("job_1", arcp.Log); len(before.Runs) != 0 {
		t.Errorf("runs of a log of a job without a session = %+v, want none", before.Runs)
	}
	last := d.jobLog("job_1", 0)[0].ID()
	if err := d.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &db{TB: t, Store: open(t, dir), now: t0}
		for range 3 {
			events := d.events("job_1", arcp.Log, arcp.Log)
			d.do(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: events}))
			for _, e := range events {
				if e.ID() <= last {
					t.Errorf("event id %s after %s, want ascending ids", e.ID(), last)
				}
				last = e.ID()
			}
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}
