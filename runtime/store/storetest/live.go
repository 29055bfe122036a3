package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func testLiveQueryEqualsASlice(t *testing.T, open Open) { runLive(openEmpty(t, open), t, func() {}) }

// testReopenedLiveQueryEqualsASlice closes and opens the store now and then.
func testReopenedLiveQueryEqualsASlice(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	steps := 0
	runLive(d, t, func() {
		if steps++; steps%40 == 0 {
			d.reopen(open, dir)
		}
	})
}

// runLive compares queries for live jobs with a slice of all jobs, and calls between after
// each step. All scripts use one store, each with its own principals.
func runLive(d *db, t *testing.T, between func()) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &liveScript{t: rt, d: d, principals: [2]string{string(arcp.NewJobID()), string(arcp.NewJobID())}}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			rapid.SampledFrom([]func(){s.submit, s.end, s.end, s.delete}).Draw(rt, "step")()
			between()
			s.compare()
		}
	})
}

type liveScript struct {
	t          *rapid.T
	d          *db
	principals [2]string
	jobs       []store.Job
}

// submit submits jobs in one batch, more than a store reads at once. Some end in the batch.
func (s *liveScript) submit() {
	var writes []*store.Write
	for range rapid.SampledFrom([]int{1, 2, 5, 150}).Draw(s.t, "n") {
		row := jobRow(arcp.NewJobID(), "")
		row.Principal = rapid.SampledFrom(s.principals[:]).Draw(s.t, "principal")
		row.CreatedAt = s.time("created")
		writes = append(writes, store.NewWrite(&store.SubmitJob{Row: row}))
		s.jobs = append(s.jobs, *row)
		switch rapid.IntRange(0, 9).Draw(s.t, "end") {
		case 0:
			writes = append(writes, s.completion(len(s.jobs)-1))
		case 1:
			writes = append(writes, s.completion(len(s.jobs)-1), store.NewWrite(&store.DeleteJob{Job: row.ID}))
			s.jobs = s.jobs[:len(s.jobs)-1]
		}
	}
	s.d.batch(writes...)
}

// time draws one of few times, so that jobs are created at the same time.
func (s *liveScript) time(label string) time.Time {
	return t0.Add(time.Duration(rapid.IntRange(0, 6).Draw(s.t, label)))
}

func (s *liveScript) completion(i int) *store.Write {
	s.jobs[i].State = arcp.StateCompleted
	return s.d.completion(s.jobs[i].ID, 1)
}

// end ends some live jobs in one batch.
func (s *liveScript) end() {
	every := rapid.IntRange(1, 4).Draw(s.t, "every")
	var writes []*store.Write
	for i := range s.jobs {
		if i%every == 0 && !s.jobs[i].State.Terminal() {
			writes = append(writes, s.completion(i))
		}
	}
	s.d.batch(writes...)
}

// delete deletes some ended jobs in one batch.
func (s *liveScript) delete() {
	var writes []*store.Write
	s.jobs = slices.DeleteFunc(s.jobs, func(j store.Job) bool {
		if !j.State.Terminal() || len(writes) == 10 {
			return false
		}
		writes = append(writes, store.NewWrite(&store.DeleteJob{Job: j.ID}))
		return true
	})
	s.d.batch(writes...)
}

// compare compares a random query.
func (s *liveScript) compare() {
	q := store.JobQuery{Principal: rapid.SampledFrom(s.principals[:]).Draw(s.t, "of"), Live: true}
	if rapid.Bool().Draw(s.t, "bounded") {
		q.CreatedAfter, q.CreatedBefore = s.time("after"), s.time("before")
	}
	if len(s.jobs) > 0 && rapid.Bool().Draw(s.t, "continued") {
		last := rapid.SampledFrom(s.jobs).Draw(s.t, "last")
		q.AfterTime, q.AfterID = last.CreatedAt, last.ID
	}
	q.Newest = rapid.Bool().Draw(s.t, "newest")
	limit := rapid.SampledFrom([]int{0, 1, 3, 64, 100}).Draw(s.t, "limit")
	if diff := cmp.Diff(s.selected(&q, limit), ids(s.d, q, limit)); diff != "" {
		s.t.Fatalf("%+v (-want +got):\n%s", q, diff)
	}
}

// selected returns the ids that a query for live jobs finds.
func (s *liveScript) selected(q *store.JobQuery, limit int) (out []arcp.JobID) {
	order := func(a, b store.Job) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	}
	position := store.Job{CreatedAt: q.AfterTime, ID: q.AfterID}
	sorted := slices.SortedFunc(slices.Values(s.jobs), order)
	behind := func(j store.Job) bool { return order(j, position) > 0 }
	if q.Newest {
		slices.Reverse(sorted)
		behind = func(j store.Job) bool { return q.AfterID == "" || order(j, position) < 0 }
	}
	for _, j := range sorted {
		if j.Principal == q.Principal && !j.State.Terminal() && behind(j) && j.CreatedAt.After(q.CreatedAfter) &&
			(q.CreatedBefore.IsZero() || j.CreatedAt.Before(q.CreatedBefore)) && (limit == 0 || len(out) < limit) {
			out = append(out, j.ID)
		}
	}
	return out
}

// testLivePagesListAJobAtMostOnce checks that pages continue while jobs end between them: a
// job that has not ended before its page is listed once.
func testLivePagesListAJobAtMostOnce(t *testing.T, open Open) {
	d := openEmpty(t, open)
	all := slices.DeleteFunc(listed(d), func(id arcp.JobID) bool { return d.job(id).State.Terminal() })
	var want, got []arcp.JobID
	q := store.JobQuery{Principal: "ann", Live: true}
	for page := ids(d, q, 7); len(page) > 0; page = ids(d, q, 7) {
		n := min(7, len(all))
		want, all = append(want, all[:n]...), all[n:]
		got = append(got, page...)
		last := d.job(page[len(page)-1])
		q.AfterTime, q.AfterID = last.CreatedAt, last.ID
		d.finish(last.ID)
		if len(all) > 0 {
			d.finish(all[0])
			all = all[1:]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(all) > 0 {
		t.Errorf("%d jobs are not listed; pages (-want +got):\n%s", len(all), diff)
	}
}

// testLiveQueryReadsNoEndedJobs checks that the work for live jobs does not grow with the
// ended ones. Every row that is read allocates memory.
func testLiveQueryReadsNoEndedJobs(t *testing.T, open Open) {
	d := openEmpty(t, open)
	const jobs, batch = 2000, 200
	for range jobs / batch {
		writes := make([]*store.Write, batch)
		for i := range writes {
			writes[i] = endedEcho("ann")
		}
		d.batch(writes...)
		d.submit(arcp.NewJobID(), "")
	}
	all := allocations(d, store.JobQuery{Principal: "ann"}, jobs+jobs/batch)
	live := allocations(d, store.JobQuery{Principal: "ann", Live: true}, jobs/batch)
	if live > all/20 {
		t.Errorf("a query for %d live jobs allocates %d times, for all %d jobs %d times", jobs/batch, live, jobs, all)
	}
}

// allocations returns the least number of allocations of a query: the store may allocate in the
// background.
func allocations(d *db, q store.JobQuery, want int) (least int) {
	for i := range 5 {
		n := int(testing.AllocsPerRun(1, func() {
			if got := len(ids(d, q, 0)); got != want {
				d.Fatalf("Jobs(%+v) finds %d jobs, want %d", q, got, want)
			}
		}))
		if i == 0 || n < least {
			least = n
		}
	}
	return least
}
