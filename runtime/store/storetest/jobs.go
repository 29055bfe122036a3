package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// fullJob returns a row with every field set.
func fullJob(sess arcp.SessionID) *store.Job {
	return &store.Job{
		ID: arcp.NewJobID(), Principal: "ann", Session: sess, SubmitID: arcp.NewMessageID(), Agent: "echo@1.2",
		Arguments: arcp.Raw(`{"a": [1,2]}`), Options: arcp.Raw(`{"max_runtime_sec":1.50}`),
		TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331", ParentSpanID: "p",
		Priority: arcp.PriorityHigh, Parent: "job_parent", IdempotencyKey: "k\x00ö", Digest: "sha256:00ff",
		CreatedAt: t0, State: arcp.StateQueued, Attempt: 1,
	}
}

// testFirstStartIsStored checks that the time of the first start remains after a new attempt.
func testFirstStartIsStored(t *testing.T, open Open) { checkFirstStart(openEmpty(t, open), func() {}) }

func testReopenedStoreHasFirstStart(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	checkFirstStart(d, func() { d.reopen(open, dir) })
}

func checkFirstStart(d *db, between func()) {
	row := jobRow("job_1", "")
	d.do(store.NewWrite(&store.SubmitJob{Row: row}))
	if got := d.job(row.ID).StartedAt; !got.IsZero() {
		d.Errorf("a job without an event has started at %s", got)
	}
	d.emit(row.ID, arcp.EventEmit)
	first := d.events(row.ID, arcp.Log, arcp.JobStarted)
	d.do(store.NewWrite(&store.AppendEvents{Job: row.ID, Attempt: 1, Events: first}))
	between()
	d.do(store.NewWrite(&store.AppendEvents{Job: row.ID, Attempt: 1, NewAttempt: true, Events: d.events(row.ID, arcp.JobStarted)}))
	d.do(store.NewWrite(&store.AppendEvents{Job: row.ID, Attempt: 2, Events: d.events(row.ID, arcp.JobCompleted), State: arcp.StateCompleted}))
	between()
	if got := d.job(row.ID).StartedAt; !got.Equal(first[1].Time) {
		d.Errorf("the job has started at %s, want %s", got, first[1].Time)
	}
}

func testJobRowsAreStored(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	row := fullJob(s)
	d.do(store.NewWrite(&store.SubmitJob{Row: row}))
	if diff := cmp.Diff(*row, d.job(row.ID)); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	d.refuse(store.NewWrite(&store.SubmitJob{Row: jobRow(row.ID, s)}), store.ErrExists)
	d.refuse(store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", "sess_none")}), store.ErrNotFound)
	start := &store.AppendEvents{Job: row.ID, Attempt: 1, Events: d.events(row.ID, arcp.JobStarted), State: arcp.StateRunning}
	d.do(store.NewWrite(start))
	want := *row
	want.State, want.StartedAt, want.LastJSeq, want.LastSeq = arcp.StateRunning, start.Events[0].Time, 1, 1
	if diff := cmp.Diff(want, d.job(row.ID)); diff != "" {
		t.Errorf("running row (-want +got):\n%s", diff)
	}
	d.emit(row.ID, arcp.JobProgress)
	end := &store.AppendEvents{Job: row.ID, Attempt: 1, Events: d.events(row.ID, arcp.JobFailed), State: arcp.StateFailed,
		Code: arcp.CodeAborted}
	d.do(store.NewWrite(end))
	want.State, want.Code, want.EndedAt, want.LastJSeq, want.LastSeq = arcp.StateFailed, arcp.CodeAborted, end.Events[0].Time, 3, 3
	if diff := cmp.Diff(want, d.job(row.ID)); diff != "" {
		t.Errorf("ended row (-want +got):\n%s", diff)
	}
	d.refuse(store.NewWrite(&store.SubmitJob{Row: jobRow(row.ID, s)}), store.ErrExists)
	if _, err := d.Job(context.Background(), "job_none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Job of none = %v, want ErrNotFound", err)
	}
	err := d.JobEvents(context.Background(), "job_none", 0, func(*store.Event) bool { return true })
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("JobEvents of none = %v, want ErrNotFound", err)
	}
	if st := d.Stat(); st.Jobs != 1 || st.LiveJobs != 0 || st.Sessions != 1 || st.Bytes <= 0 {
		t.Errorf("Stat = %+v", st)
	}
}

func testEarlierAttemptIsFenced(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	progress := func(attempt uint32) *store.Write {
		return store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: attempt, Events: d.events("job_1", arcp.JobProgress)})
	}
	d.refuse(progress(0), store.ErrFenced)
	d.refuse(progress(2), store.ErrFenced)
	d.do(progress(1))

	takeover := progress(1)
	store.Find[*store.AppendEvents](takeover).NewAttempt = true
	d.do(takeover)
	if j := d.job("job_1"); j.Attempt != 2 || j.LastJSeq != 2 {
		t.Errorf("attempt %d, LastJSeq %d; want 2, 2", j.Attempt, j.LastJSeq)
	}
	d.refuse(progress(1), store.ErrFenced)
	d.refuse(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, NewAttempt: true}), store.ErrFenced)
	d.refuse(d.completion("job_1", 1), store.ErrFenced)
	results := d.batch(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 2, NewAttempt: true}), progress(2), progress(3))
	if results[0].Err != nil || !errors.Is(results[1].Err, store.ErrFenced) || results[2].Err != nil {
		t.Errorf("in one batch: %v, %v, %v", results[0].Err, results[1].Err, results[2].Err)
	}
	d.do(d.completion("job_1", 3))
	d.want(s, arcp.JobProgress, arcp.JobProgress, arcp.JobProgress, arcp.JobCompleted)
	d.refuse(store.NewWrite(&store.AppendEvents{Job: "job_none", Attempt: 1}), store.ErrNotFound)
}

func testEndedJobAcceptsNoEvents(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	d.refuse(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, State: arcp.StateCompleted}), store.ErrInvalid)
	d.refuse(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1, Events: d.events("job_1", arcp.JobCompleted)}), store.ErrInvalid)
	d.refuse(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: 1,
		Events: d.events("job_1", arcp.JobFailed, arcp.JobFailed), State: arcp.StateFailed}),
		store.ErrInvalid)
	d.finish("job_1")
	for _, attempt := range []uint32{0, 1, 2} {
		d.refuse(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: attempt, Events: d.events("job_1", arcp.Log)}), store.ErrTerminal)
		d.refuse(d.completion("job_1", attempt), store.ErrTerminal)
		d.refuse(store.NewWrite(&store.AppendEvents{Job: "job_1", Attempt: attempt, NewAttempt: true}), store.ErrTerminal)
	}
	d.want(s, arcp.JobCompleted)

	events := d.events("job_2", arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted)
	w := store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", s)}, &store.AppendEvents{Events: events, State: arcp.StateCompleted})
	results := d.batch(w, d.completion("job_2", 1))
	if results[0].Err != nil || !errors.Is(results[1].Err, store.ErrTerminal) {
		t.Errorf("an end after the end in one batch: %v, %v", results[0].Err, results[1].Err)
	}
	if j := d.job("job_2"); j.State != arcp.StateCompleted || !j.EndedAt.Equal(events[2].Time) || j.LastJSeq != 3 {
		t.Errorf("job ended by its submit = %+v", j)
	}
}

// committer commits the writes of many goroutines in batches.
type committer struct {
	queue chan request
	done  chan struct{}
}

type request struct {
	w    *store.Write
	done chan store.Result
}

func startCommitter(d *db) *committer {
	c := &committer{queue: make(chan request, 64), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for first := range c.queue {
			batch := []request{first}
			for len(batch) < 64 && len(c.queue) > 0 {
				batch = append(batch, <-c.queue)
			}
			c.commit(d, batch)
		}
	}()
	return c
}

func (c *committer) commit(d *db, batch []request) {
	writes, results := make([]*store.Write, len(batch)), make([]store.Result, len(batch))
	for i := range batch {
		writes[i] = batch[i].w
	}
	if err := d.Commit(writes, results); err != nil {
		d.Errorf("Commit = %v", err)
	}
	for i := range batch {
		batch[i].done <- results[i]
	}
}

func (c *committer) do(w *store.Write) store.Result {
	done := make(chan store.Result, 1)
	c.queue <- request{w, done}
	return <-done
}

func (c *committer) stop() {
	close(c.queue)
	<-c.done
}

// testOneOfManyEndsHappens checks that one of a thousand concurrent ends of a job happens.
func testOneOfManyEndsHappens(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	d.submit("job_1", s)
	c := startCommitter(d)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won, lost := 0, 0
	for i := range 1000 {
		w := d.completion("job_1", 1)
		if i%2 == 1 {
			end := store.Find[*store.AppendEvents](w)
			end.State, end.Events = arcp.StateCancelled, d.events("job_1", arcp.Log, arcp.JobCancelled)
		}
		wg.Go(func() {
			r := c.do(w)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.Err == nil:
				won++
			case errors.Is(r.Err, store.ErrTerminal):
				lost++
			}
		})
	}
	wg.Wait()
	c.stop()
	if won != 1 || lost != 999 {
		t.Errorf("%d ends happened and %d were refused, want 1 and 999", won, lost)
	}
	terminals := 0
	for _, x := range d.sessionLog(s, 0) {
		if x.Event.Type.Terminal() {
			terminals++
		}
	}
	if terminals != 1 {
		t.Errorf("%d terminal events in the log, want 1", terminals)
	}
}

func testIdempotencyKeySubmitsOneJob(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	submit := func(id arcp.JobID, principal, key, digest string) *store.Write {
		row := jobRow(id, s)
		row.Principal, row.IdempotencyKey, row.Digest = principal, key, digest
		return store.NewWrite(&store.SubmitJob{Row: row}, &store.AppendEvents{Events: d.events(id, arcp.JobAccepted)})
	}
	existing := func(r store.Result, id arcp.JobID, digest string) {
		t.Helper()
		if r.Err != nil || r.Existing != id || r.Digest != digest || len(r.Runs) != 0 {
			t.Fatalf("result = %+v, want the existing %s", r, id)
		}
	}
	refused := submit("job_0", "ann", "k", "d0")
	refused.Put(store.Record{Key: "r", Rev: 7, Value: []byte("x")})
	d.refuse(refused, store.ErrConflict) // does not hold the key

	d.do(submit("job_1", "ann", "k", "d1"))
	again := submit("job_2", "ann", "k", "d2")
	again.Put(store.Record{Key: "r", Value: []byte("x")})
	existing(d.batch(again)[0], "job_1", "d1")
	if rec, err := d.Get(context.Background(), "r"); err != nil || rec.Rev != 0 {
		t.Errorf("a write for a taken key left the record %+v, %v", rec, err)
	}
	if _, err := d.Job(context.Background(), "job_2"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a write for a taken key left a job: %v", err)
	}
	if r := d.do(submit("job_3", "bob", "k", "d3")); r.Existing != "" {
		t.Errorf("another principal's key is taken by %s", r.Existing)
	}
	results := d.batch(submit("job_4", "ann", "k2", "d4"), submit("job_5", "ann", "k2", "d5"), d.completion("job_4", 1),
		submit("job_6", "ann", "k2", "d6"))
	existing(results[1], "job_4", "d4")
	existing(results[3], "job_4", "d4")
	existing(d.batch(submit("job_7", "ann", "k2", "d7"))[0], "job_4", "d4")
	d.finish("job_1")
	existing(d.batch(submit("job_8", "ann", "k", "d8"))[0], "job_1", "d1")
	existing(d.batch(submit("job_1", "ann", "k", "d1"))[0], "job_1", "d1")
}

func ids(d *db, q store.JobQuery, limit int) (out []arcp.JobID) {
	d.Helper()
	err := d.Store.Jobs(context.Background(), q, func(j store.Job) bool {
		out = append(out, j.ID)
		return len(out) != limit
	})
	if err != nil {
		d.Fatalf("Jobs(%+v) = %v", q, err)
	}
	return out
}

// listed creates jobs of principal ann: 150 with the same time, submitted in the reverse
// order of their ids, one before and one after; and jobs of another principal between.
func listed(d *db) (want []arcp.JobID) {
	for range 150 {
		want = append(want, arcp.NewJobID())
	}
	shuffled := slices.Clone(want)
	slices.Reverse(shuffled)
	for i, id := range shuffled {
		d.created(id, "ann", t0)
		d.created(arcp.JobID(fmt.Sprintf("job_bob%d", i)), "ann2", t0)
	}
	first, last := arcp.NewJobID(), arcp.NewJobID()
	d.created(last, "ann", t0.Add(1))
	d.created(first, "ann", t0.Add(-1))
	d.finish(want[3])
	return append(append([]arcp.JobID{first}, want...), last)
}

func (d *db) created(id arcp.JobID, principal string, at time.Time) {
	d.Helper()
	row := jobRow(id, "")
	row.Principal, row.CreatedAt = principal, at
	d.do(store.NewWrite(&store.SubmitJob{Row: row}))
}

// testPagesNeitherRepeatNorSkipJobs checks that jobs are listed by (CreatedAt, ID), and that pages
// neither repeat nor skip jobs.
func testPagesNeitherRepeatNorSkipJobs(t *testing.T, open Open) {
	d := openEmpty(t, open)
	want := listed(d)
	early := arcp.JobID("job_00000000000000000000000000")
	for _, size := range []int{1, 7, 100, 1000} {
		var got []arcp.JobID
		q := store.JobQuery{Principal: "ann"}
		for page := ids(d, q, size); len(page) > 0; page = ids(d, q, size) {
			got = append(got, page...)
			j := d.job(page[len(page)-1])
			q.AfterTime, q.AfterID = j.CreatedAt, j.ID
			if size == 1 && len(got) == 7 { // a job submitted meanwhile changes no later page
				d.created(early, "ann", t0.Add(-time.Hour))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pages of %d (-want +got):\n%s", size, diff)
		}
		if size == 1 {
			want = append([]arcp.JobID{early}, want...)
		}
	}
	if got := ids(d, store.JobQuery{Principal: "nobody"}, 0); len(got) != 0 {
		t.Errorf("nobody has %d jobs", len(got))
	}
}

// testNewestJobsAreListedFirst checks that the reverse order has the same jobs, and that its pages
// neither repeat nor skip jobs while jobs are added.
func testNewestJobsAreListedFirst(t *testing.T, open Open) {
	d := openEmpty(t, open)
	want := listed(d)
	slices.Reverse(want)
	for _, size := range []int{1, 7, 64, 1000} {
		var got []arcp.JobID
		q := store.JobQuery{Principal: "ann", Newest: true}
		for page := ids(d, q, size); len(page) > 0; page = ids(d, q, size) {
			got = append(got, page...)
			j := d.job(page[len(page)-1])
			q.AfterTime, q.AfterID = j.CreatedAt, j.ID
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pages of %d (-want +got):\n%s", size, diff)
		}
		late := arcp.NewJobID()
		d.created(late, "ann", t0.Add(time.Hour))
		if page := ids(d, q, size); len(page) > 0 {
			t.Errorf("a job submitted meanwhile is on a later page: %v", page)
		}
		d.finish(late)
		d.do(store.NewWrite(&store.DeleteJob{Job: late}))
	}
	if got := ids(d, store.JobQuery{Principal: "nobody", Newest: true}, 0); len(got) != 0 {
		t.Errorf("nobody has %d jobs", len(got))
	}
}

func testFiltersSelectJobsByTime(t *testing.T, open Open) {
	d := openEmpty(t, open)
	all := listed(d)
	first, last := all[0], all[151]
	for _, c := range []struct {
		name string
		q    store.JobQuery
		want []arcp.JobID
	}{
		{"after", store.JobQuery{CreatedAfter: t0}, all[151:]},
		{"before", store.JobQuery{CreatedBefore: t0}, all[:1]},
		{"between", store.JobQuery{CreatedAfter: t0.Add(-1), CreatedBefore: t0.Add(1)}, all[1:151]},
		{"a time", store.JobQuery{AfterTime: t0}, all[1:]},
		{"position past filter", store.JobQuery{CreatedAfter: t0.Add(-1), AfterTime: t0, AfterID: all[149]}, all[150:]},
		{"position before filter", store.JobQuery{CreatedAfter: t0, AfterTime: t0.Add(-1), AfterID: first}, []arcp.JobID{last}},
		{"newest of a time", store.JobQuery{AfterTime: t0, Newest: true}, all[:1]},
		{"newest before a position within a filter", store.JobQuery{CreatedAfter: t0.Add(-1), AfterTime: t0, AfterID: all[2], Newest: true}, all[1:2]},
		{"newest before a position past the filter", store.JobQuery{CreatedBefore: t0, AfterTime: t0.Add(1), AfterID: last, Newest: true}, all[:1]},
		{"nothing", store.JobQuery{CreatedAfter: t0.Add(time.Hour)}, nil},
		{"contradiction", store.JobQuery{CreatedAfter: t0, CreatedBefore: t0.Add(-1)}, nil},
	} {
		c.q.Principal = "ann"
		if diff := cmp.Diff(c.want, ids(d, c.q, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if c.q.AfterTime.IsZero() { // a position is of one direction
			c.q.Newest = true
			got := ids(d, c.q, 0)
			slices.Reverse(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, newest first (-want +got):\n%s", c.name, diff)
			}
		}
	}
}

func live(d *db) (out []store.Job) {
	d.Helper()
	if err := d.LiveJobs(context.Background(), func(j store.Job) bool { out = append(out, j); return true }); err != nil {
		d.Fatalf("Live = %v", err)
	}
	return out
}

func testLiveJobsHaveNotEnded(t *testing.T, open Open) {
	d := openEmpty(t, open)
	s := d.session("sess_1")
	var want []store.Job
	for i := range 20 {
		row := fullJob(s)
		row.IdempotencyKey = ""
		d.do(store.NewWrite(&store.SubmitJob{Row: row}))
		if i%3 == 0 {
			d.finish(row.ID)
			continue
		}
		d.do(store.NewWrite(&store.AppendEvents{Job: row.ID, Attempt: 1, Events: d.events(row.ID, arcp.JobStarted), State: arcp.StateRunning}))
		want = append(want, d.job(row.ID))
	}
	d.do(store.NewWrite(&store.SubmitJob{Row: jobRow("job_2", s)},
		&store.AppendEvents{Events: d.events("job_2", arcp.JobCompleted), State: arcp.StateCompleted}))
	if diff := cmp.Diff(want, live(d)); diff != "" {
		t.Errorf("Live (-want +got):\n%s", diff)
	}
	if st := d.Stat(); st.Jobs != 21 || st.LiveJobs != len(want) {
		t.Errorf("Stat = %+v, want 21 jobs of which %d live", st, len(want))
	}
	n := 0
	err := d.LiveJobs(context.Background(), func(store.Job) bool { n++; return false })
	if err != nil || n != 1 {
		t.Errorf("stopped after %d with %v", n, err)
	}
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
