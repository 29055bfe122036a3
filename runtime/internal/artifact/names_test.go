package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// entriesOf returns entries of alice with ids of the usual form.
func entriesOf(n int) []*entry {
	list := make([]*entry, n)
	for i := range list {
		list[i] = &entry{row: Row{ID: arcp.ArtifactID(fmt.Sprintf("art_%026d", i)), Principal: "alice"}}
	}
	return list
}

// liveJobs is an Options.Live of jobs of alice.
func liveJobs(arguments ...arcp.Raw) func(func(string, arcp.JobID, arcp.Raw) bool) {
	return func(fn func(string, arcp.JobID, arcp.Raw) bool) {
		for _, a := range arguments {
			if !fn("alice", "job_1", a) {
				return
			}
		}
	}
}

func TestRemoveNamedAgreesWithNames(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	list := entriesOf(4)
	pieces := []string{`"`, `"`, `"`, `\`, `art_`, `x`, `,`, `"art_"`, `\u0061rt_`}
	for _, e := range list {
		id := string(e.row.ID)
		pieces = append(pieces, id, id, `"`+id+`"`, `\"`+id+`\"`, `"`+id+`x"`, `"x`+id+`"`, `"`+id[:20], id[4:])
	}
	named := 0
	for range 20_000 {
		var text strings.Builder
		for range r.IntN(12) {
			text.WriteString(pieces[r.IntN(len(pieces))])
		}
		arguments := arcp.Raw(text.String())
		left := make(map[arcp.ArtifactID]*entry)
		for _, e := range list {
			left[e.row.ID] = e
		}
		removeNamed(left, arguments)
		for _, e := range list {
			want := Names(arguments, e.row.ID)
			if want {
				named++
			}
			if got := left[e.row.ID] == nil; got != want {
				t.Fatalf("seed %d: removeNamed says %v of %s, Names %v: %s", seed, got, e.row.ID, want, arguments)
			}
		}
	}
	if named < 1000 {
		t.Errorf("only %d names", named)
	}
}

// To search the arguments for each artifact by itself would take hours.
func TestUnnamedOfManyArtifactsAndLargeArguments(t *testing.T) {
	list := entriesOf(100_000)
	first, last := list[0].row.ID, list[len(list)-1].row.ID
	large := bytes.Repeat([]byte("art_01h0"), 4<<20/8)
	var arguments []arcp.Raw
	for range 10 {
		arguments = append(arguments, arcp.Raw(`["`+string(large)+`","`+string(last)+`"]`))
	}
	o := Options{Live: liveJobs(arguments...)}
	unnamed, err := o.unnamed(t.Context(), list)
	if err != nil || len(unnamed) != len(list)-1 || unnamed[0].row.ID != first {
		t.Errorf("unnamed: %d artifacts, %v; want all but the one that is named", len(unnamed), err)
	}
}

// A sweep that is stopped among many jobs ends, and deletes nothing: the jobs that are left may name any artifact.
func TestSweepEndsBetweenJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, new(Memory), Limits{})
		f.put("alice", "hello")
		time.Sleep(MaxRetention)
		ctx, cancel := context.WithCancel(t.Context())
		jobs := 0
		f.opts.Live = func(fn func(string, arcp.JobID, arcp.Raw) bool) {
			for fn("alice", "job_1", arcp.Raw(`{}`)) && jobs < 1000 {
				if jobs++; jobs == 3 {
					cancel()
				}
			}
		}
		if err := f.Sweep(ctx, time.Now()); !errors.Is(err, context.Canceled) || jobs != 3 {
			t.Errorf("Sweep = %v after %d jobs, want %v after 3", err, jobs, context.Canceled)
		}
		if n, _ := f.Usage(); n != 1 {
			t.Errorf("%d artifacts, want 1", n)
		}
		if err := f.Sweep(t.Context(), time.Now()); err != nil {
			t.Error(err)
		}
		if n, _ := f.Usage(); n != 0 {
			t.Errorf("%d artifacts after the next sweep, want 0", n)
		}
	})
}

// cancellingLog is a committer that cancels a context with the first commit.
type cancellingLog struct {
	*committer
	cancel context.CancelFunc
}

func (c *cancellingLog) Commit(ctx context.Context, w *store.Write, done func(error)) error {
	c.cancel()
	return c.committer.Commit(ctx, w, done)
}

func TestSweepEndsBetweenDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, new(Memory), Limits{})
		for range 2 * sweepBatch {
			f.put("alice", "hello")
		}
		time.Sleep(MaxRetention)
		ctx, cancel := context.WithCancel(t.Context())
		f.opts.Log = &cancellingLog{committer: f.log, cancel: cancel}
		if err := f.Sweep(ctx, time.Now()); !errors.Is(err, context.Canceled) {
			t.Errorf("Sweep = %v, want %v", err, context.Canceled)
		}
		if n, _ := f.Usage(); n != sweepBatch {
			t.Errorf("%d artifacts, want %d: the sweep was stopped after the first write", n, sweepBatch)
		}
	})
}

// A client may fetch an artifact at any rate after its retention: the jobs are searched again only after the
// end of the job that names it.
func TestFetchAfterTheRetentionSearchesTheJobsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, new(Memory), Limits{})
		row := f.put("alice", "hello")
		arguments := arcp.Raw(`["` + row.ID + `"]`)
		live, searches := []arcp.JobID{"job_1", "job_2"}, 0
		f.opts.Live = func(fn func(string, arcp.JobID, arcp.Raw) bool) {
			searches++
			for _, id := range live {
				if !fn("alice", id, arguments) {
					return
				}
			}
		}
		f.opts.IsLive = func(id arcp.JobID) bool { return slices.Contains(live, id) }
		want := func(why string, found bool, n int) {
			t.Helper()
			for range 10 {
				if _, err := f.Get("alice", row.ID); (err == nil) != found {
					t.Fatalf("%s: Get = %v, want found %v", why, err, found)
				}
			}
			if searches != n {
				t.Errorf("%s: %d searches, want %d", why, searches, n)
			}
		}
		want("within the retention", true, 0)
		time.Sleep(DefaultRetention)
		want("two jobs name it", true, 1)
		live = live[1:]
		want("the other job names it", true, 2)
		live = nil
		want("no job names it", false, 3)
	})
}
