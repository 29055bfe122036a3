package jobview

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// countingStore counts the jobs that lists read.
type countingStore struct {
	store.Store
	rows   []int  // of each call of Jobs
	onCall func() // called at the start of Jobs
}

func (s *countingStore) Jobs(ctx context.Context, q store.JobQuery, fn func(store.Job) bool) error {
	s.onCall()
	s.rows = append(s.rows, 0)
	return s.Store.Jobs(ctx, q, func(j store.Job) bool {
		s.rows[len(s.rows)-1]++
		return fn(j)
	})
}

// fixture is a Reader of a store in memory.
type fixture struct {
	*testing.T
	*Reader
	st    *countingStore
	n     int // jobs
	batch []*store.Write
}

type noLeases struct{}

func (noLeases) LeaseOf(*store.Job) (arcp.Raw, *arcp.LeaseConstraints, arcp.Raw) {
	return nil, nil, nil
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, st: &countingStore{Store: mem.Open(mem.Options{}), onCall: func() {}}}
	t.Cleanup(func() { _ = f.st.Close() }) // always nil
	f.Reader = &Reader{Store: f.st, Engine: noLeases{}, Cursors: paging.NewCursors(make([]byte, 32)), Audit: audit.New(zerolog.Nop()),
		IsBuiltin: func(string) bool { return false }}
	return f
}

// submit adds a job in a state to the batch and returns its id. Each job is created after the one
// before.
func (f *fixture) submit(state arcp.JobState) arcp.JobID {
	f.n++
	row := &store.Job{ID: arcp.JobID(fmt.Sprintf("job_%06d", f.n)), Principal: "alice", Agent: "echo@1", State: arcp.StateRunning,
		CreatedAt: time.Unix(int64(f.n), 0)}
	f.batch = append(f.batch, store.NewWrite(&store.SubmitJob{Row: row}))
	if state.Terminal() {
		f.batch = append(f.batch, end(row.ID, state))
	}
	return row.ID
}

func end(id arcp.JobID, state arcp.JobState) *store.Write {
	event := store.NewEvent(arcp.JobCompleted, time.Unix(1, 0), &store.JobContext{JobID: id}, "", []byte(`{}`))
	return store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: []*store.Event{event}, State: state})
}

// commit commits the batch.
func (f *fixture) commit() {
	f.Helper()
	results := make([]store.Result, len(f.batch))
	if err := f.st.Commit(f.batch, results); err != nil {
		f.Fatalf("Commit = %v", err)
	}
	for _, r := range results {
		if r.Err != nil {
			f.Fatalf("a write was refused: %v", r.Err)
		}
	}
	f.batch = nil
}

// page lists jobs with one of the states.
func (f *fixture) page(limit uint32, cursor string, states ...string) (ids []arcp.JobID, next string) {
	f.Helper()
	f.st.rows = nil
	page, err := f.list(f.Context(), limit, cursor, states...)
	if err != nil {
		f.Fatalf("page of %v = %v", states, err)
	}
	for _, j := range page.Jobs {
		ids = append(ids, j.JobID)
	}
	if page.NextCursor != nil {
		next = *page.NextCursor
	}
	return ids, next
}

func (f *fixture) list(ctx context.Context, limit uint32, cursor string, states ...string) (*arcp.SessionJobsPayload, *arcp.Error) {
	request := &arcp.SessionListJobsPayload{Filter: &arcp.JobFilter{Status: states}, Limit: &limit, Cursor: cursor}
	form := PageForm{Status: func(j *store.Job) string { return string(j.State) }}
	return f.Page(ctx, &approval.Actor{Principal: "alice"}, request, form)
}

func (f *fixture) wantPage(why string, ids []arcp.JobID, next string, want ...arcp.JobID) {
	f.Helper()
	if !slices.Equal(ids, want) || next != "" {
		f.Errorf("%s: jobs %v, next cursor %q; want %v and no cursor", why, ids, next, want)
	}
}

// The newest jobs of many are listed without a look at the others.
func TestListOfNewestJobsReadsOnlyThem(t *testing.T) {
	f := newFixture(t)
	var want []arcp.JobID
	for range 2_000 {
		want = append(want, f.submit(arcp.StateCompleted))
	}
	f.commit()
	slices.Reverse(want)
	request := &arcp.SessionListJobsPayload{Limit: new(uint32(50)), Order: arcp.NewestFirst}
	form := PageForm{Status: func(j *store.Job) string { return string(j.State) }}
	page, err := f.Page(t.Context(), &approval.Actor{Principal: "alice"}, request, form)
	if err != nil {
		t.Fatal(err)
	}
	var got []arcp.JobID
	for _, j := range page.Jobs {
		got = append(got, j.JobID)
	}
	if !slices.Equal(got, want[:50]) || !slices.Equal(f.st.rows, []int{51}) || page.Order != arcp.NewestFirst {
		t.Errorf("the list has %v, order %q, and read %v jobs, want the newest 50", got, page.Order, f.st.rows)
	}
}

// A list of running jobs reads none of the jobs that have ended.
func TestListOfLiveJobsReadsNoEndedJob(t *testing.T) {
	f := newFixture(t)
	const ended, live = 100_000, 10
	var want []arcp.JobID
	for range live {
		for range ended / live {
			f.submit(arcp.StateCompleted)
		}
		want = append(want, f.submit(arcp.StateRunning))
		f.commit()
	}
	for _, states := range [][]string{{"running"}, {"running", "pending", "paused"}} {
		ids, next := f.page(100, "", states...)
		f.wantPage(fmt.Sprint(states), ids, next, want...)
		if !slices.Equal(f.st.rows, []int{live}) {
			t.Errorf("%v: the lists read %v jobs, want one list of %d", states, f.st.rows, live)
		}
	}
	ids, next := f.page(100, "", "no such state")
	f.wantPage("an unknown state", ids, next)
}

// Pages of live jobs continue behind a job that has ended since.
func TestPagesOfLiveJobsContinueAfterAnEnd(t *testing.T) {
	f := newFixture(t)
	var jobs []arcp.JobID
	for range 5 {
		jobs = append(jobs, f.submit(arcp.StateRunning))
		f.submit(arcp.StateFailed)
	}
	f.commit()
	first, cursor := f.page(2, "", "running")
	if !slices.Equal(first, jobs[:2]) || cursor == "" {
		t.Fatalf("the first page has %v and the cursor %q, want %v and a cursor", first, cursor, jobs[:2])
	}
	f.batch = append(f.batch, end(jobs[1], arcp.StateCompleted), end(jobs[3], arcp.StateCompleted))
	f.commit()
	ids, next := f.page(10, cursor, "running")
	f.wantPage("the second page", ids, next, jobs[2], jobs[4])
}

// A page without jobs is the last one, however many jobs the filter leaves out.
func TestPageWithoutJobsIsTheLast(t *testing.T) {
	f := newFixture(t)
	for range 2*paging.MaxScan + 100 {
		f.submit(arcp.StateCompleted)
	}
	failed := f.submit(arcp.StateFailed)
	f.commit()

	ids, next := f.page(100, "", "failed")
	f.wantPage("the last job", ids, next, failed)
	if len(f.st.rows) != 3 || slices.Max(f.st.rows) > paging.MaxScan+1 {
		t.Errorf("the list reads %v jobs, want 3 parts of at most %d", f.st.rows, paging.MaxScan+1)
	}
	ids, next = f.page(100, "", "cancelled")
	f.wantPage("no job", ids, next)
}

// A list ends when its context ends, before it has found a job.
func TestListEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	for range 3 * paging.MaxScan {
		f.submit(arcp.StateCompleted)
	}
	f.commit()
	ctx, cancel := context.WithCancel(t.Context())
	f.st.onCall = func() {
		if len(f.st.rows) == 1 {
			cancel()
		}
	}
	if page, err := f.list(ctx, 100, "", "failed"); err == nil || err.Code != arcp.CodeUnavailable {
		t.Errorf("the list ends with %v, %v; want %s", page, err, arcp.CodeUnavailable)
	}
	if len(f.st.rows) != 2 || f.st.rows[1] >= paging.MaxScan {
		t.Errorf("the list reads %v jobs, want less than %d in the second part", f.st.rows, paging.MaxScan)
	}
}

// A filter that selects an ended job is not answered from the live jobs.
func TestSelectsEnded(t *testing.T) {
	ended := []store.Job{{State: arcp.StateCompleted}, {State: arcp.StateCancelled}, {State: arcp.StateFailed},
		{State: arcp.StateFailed, Code: arcp.CodeTimeout}}
	words := []string{"pending", "success", "error", "timed_out", "", "unknown"}
	for _, s := range arcp.JobStates {
		words = append(words, string(s))
	}
	for _, word := range words {
		want := slices.ContainsFunc(ended, func(j store.Job) bool { return hasStatus(&j, word) })
		if got := selectsEnded(&arcp.JobFilter{Status: []string{"running", word}}); got != want {
			t.Errorf("selectsEnded with status %q = %t, want %t", word, got, want)
		}
	}
	if !selectsEnded(new(arcp.JobFilter)) {
		t.Error("a filter without status selects no ended jobs")
	}
}
