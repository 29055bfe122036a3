package housekeeping

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// feeds is a store that counts the reads of feeds.
type feeds struct {
	store.Store
	reads, entries int
}

func (f *feeds) Feed(ctx context.Context, principal string, after uint64, fn func(store.FeedEvent) bool) error {
	f.reads++
	return f.Store.Feed(ctx, principal, after, func(e store.FeedEvent) bool {
		f.entries++
		return fn(e)
	})
}

func (f *feeds) commit(t *testing.T, w *store.Write) {
	t.Helper()
	var results [1]store.Result
	if err := f.Commit([]*store.Write{w}, results[:]); err != nil || results[0].Err != nil {
		t.Fatal(err, results[0].Err)
	}
}

// The old entries of a feed are found with few reads, also before and after entries of deleted jobs.
func TestFeedSearch(t *testing.T) {
	const n = 1000 // jobs with one event each: that of job i has the position i+1 and the time i
	for name, c := range map[string]struct {
		deleted func(i int) bool
		before  int64
		want    uint64
	}{
		"none":                      {before: 0, want: 0},
		"the first":                 {before: 1, want: 1},
		"some":                      {before: 400, want: 400},
		"all":                       {before: n, want: n},
		"none but deleted":          {deleted: func(i int) bool { return i < 10 }, before: 0, want: 10},
		"some and deleted ones":     {deleted: func(i int) bool { return i >= 395 && i < 410 }, before: 400, want: 410},
		"deleted ones that are new": {deleted: func(i int) bool { return i >= 500 && i < 990 }, before: 400, want: 400},
		"a few of the old deleted":  {deleted: func(i int) bool { return i%3 == 0 }, before: 400, want: 400},
		"all deleted at the end":    {deleted: func(i int) bool { return i >= n-50 }, before: n, want: n},
	} {
		t.Run(name, func(t *testing.T) {
			f := &feeds{Store: mem.Open(mem.Options{})}
			defer f.Close()
			for i := range n {
				id, at := arcp.JobID(fmt.Sprintf("job_%026d", i)), time.Unix(int64(i), 0)
				e := store.NewEvent(arcp.JobCompleted, at, &store.JobContext{JobID: id}, "", []byte(`{}`))
				f.commit(t, store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: id, Principal: "ann", CreatedAt: at, State: arcp.StateAccepted, Attempt: 1}}))
				f.commit(t, store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: []*store.Event{e}, State: arcp.StateCompleted}))
				if c.deleted != nil && c.deleted(i) {
					f.commit(t, store.NewWrite(&store.DeleteJob{Job: id}))
				}
			}
			s := feedSearch{f, "ann", time.Unix(c.before, 0)}
			got, err := s.lastOld(t.Context(), 0, n)
			if got != c.want || err != nil {
				t.Errorf("%d, %v; want %d", got, err, c.want)
			}
			if f.entries > 20 || f.reads > 4*maxDeletedRuns {
				t.Errorf("%d reads of %d entries", f.reads, f.entries)
			}
		})
	}
}
