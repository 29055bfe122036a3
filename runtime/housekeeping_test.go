package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// wantTrimmed checks that the feed of a principal is empty, and was not always.
func (f *fixture) wantTrimmed(why, principal string) {
	f.Helper()
	trimmed, last, err := f.st.FeedBounds(context.Background(), principal)
	if err != nil || trimmed != last || last == 0 {
		f.Errorf("%s: the feed of %s is trimmed to %d of %d, %v; want all of it", why, principal, trimmed, last, err)
	}
}

// Events are committed nearly in the order of time. A deleted event behind one that is kept
// does not end the feed's retention.
func TestRetentionOfTheFeed(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Retention = time.Hour }, func(f *fixture) {
		now := time.Now()
		var writes []*store.Write
		for _, id := range []arcp.JobID{"job_1", "job_2"} {
			writes = append(writes, store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: id, Principal: "alice", CreatedAt: now, State: arcp.StateAccepted}}))
		}
		add := func(id arcp.JobID, typ arcp.Type, after time.Duration, state arcp.JobState) {
			e := store.NewEvent(typ, now.Add(after), &store.JobContext{JobID: id}, "", []byte("{}"))
			writes = append(writes, store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: []*store.Event{e}, State: state}))
		}
		add("job_1", arcp.JobStarted, 30*time.Minute, "")
		add("job_2", arcp.JobCompleted, time.Minute, arcp.StateCompleted)
		add("job_1", arcp.JobCompleted, 40*time.Minute, arcp.StateCompleted)
		if err := f.st.Store.Commit(writes, make([]store.Result, len(writes))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(80 * time.Minute)
		if st := f.st.Stat(); st.Jobs != 1 {
			t.Errorf("%d jobs are left, want the second alone to be deleted", st.Jobs)
		}
		if trimmed, _, err := f.st.FeedBounds(t.Context(), "alice"); err != nil || trimmed != 0 {
			t.Errorf("the feed is trimmed to %d, %v; want its first event to be kept", trimmed, err)
		}
		time.Sleep(time.Hour)
		f.wantTrimmed("all jobs ended long ago", "alice")
	})
}

// unreadableFeed is a store that cannot read one principal's feed.
type unreadableFeed struct {
	store.Store
	principal string
}

func (uf unreadableFeed) Feed(ctx context.Context, principal string, after uint64, fn func(store.FeedEvent) bool) error {
	if principal == uf.principal {
		return errors.New("a file is damaged")
	}
	return uf.Store.Feed(ctx, principal, after, fn)
}

// A feed that cannot be read does not keep those after it from being trimmed.
func TestRetentionOfOtherFeeds(t *testing.T) {
	inBubble(t, func(c *runtime.Config) {
		c.Retention, c.Store = time.Hour, unreadableFeed{c.Store, "alice"}
	}, func(f *fixture) {
		for _, name := range []string{"alice", "bob"} {
			p := f.dial(name)
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
		}
		time.Sleep(3 * time.Hour)
		f.wantTrimmed("it comes after one that cannot be read", "bob")
	})
}

// undeletableJobs is a store that does not delete jobs.
type undeletableJobs struct {
	store.Store
	tries *atomic.Int64
}

func (uj undeletableJobs) Commit(writes []*store.Write, results []store.Result) error {
	var kept []int
	for i, w := range writes {
		if store.Find[*store.DeleteJob](w) != nil {
			uj.tries.Add(1)
			writes[i] = &store.Write{NoSync: true}
			kept = append(kept, i)
		}
	}
	err := uj.Store.Commit(writes, results)
	for _, i := range kept {
		results[i].Err = errors.New("the job stays")
	}
	return err
}

// A failed task is repeated at the next interval, not at once.
func TestJanitorDoesNotSpin(t *testing.T) {
	var tries atomic.Int64
	inBubble(t, func(c *runtime.Config) {
		c.Retention, c.MaxDisk, c.Store = time.Second, 1, undeletableJobs{c.Store, &tries}
	}, func(f *fixture) {
		p := f.dial("alice")
		for range 300 {
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
		}
		before := tries.Load()
		time.Sleep(11 * time.Second)
		if n := tries.Load() - before; n == 0 || n > 2000 {
			t.Errorf("%d jobs were to be deleted in two intervals", n)
		}
	})
}

// reportedSize is a store that reports a size of its own, like a store that frees space later.
type reportedSize struct {
	store.Store
	bytes *atomic.Int64 // the reported size; 0: the real one
}

func (s reportedSize) Stat() store.Stat {
	st := s.Store.Stat()
	if n := s.bytes.Load(); n > 0 {
		st.Bytes = n
	}
	return st
}

// The store is brought within its bound at once, however many jobs that takes. Space that is
// not freed yet is not counted for further deletions.
func TestStoreStaysWithinItsBound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	var bytes atomic.Int64
	inBubble(t, func(c *runtime.Config) { c.MaxDisk, c.Store = 1<<20, reportedSize{c.Store, &bytes} }, func(f *fixture) {
		bytes.Store(1)
		p := f.dial("alice")
		for range 1200 {
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
		}
		size := f.st.Stat().Bytes / 1200
		wantJobs := func(why string, want int) {
			t.Helper()
			if n := f.st.Stat().Jobs; n < want-2 || n > want+2 {
				t.Errorf("%s: %d jobs are left, want %d", why, n, want)
			}
		}
		bytes.Store(1<<20 + 600*size)
		time.Sleep(6 * time.Second)
		wantJobs("over by 600 jobs", 600)
		time.Sleep(20 * time.Second)
		wantJobs("nothing was given back yet", 600)
		bytes.Store(1 << 20)
		time.Sleep(10 * time.Minute)
		wantJobs("all was given back", 600)
		bytes.Store(1<<20 + 100*size)
		time.Sleep(20 * time.Minute)
		if n := f.st.Stat().Jobs; n != 0 {
			t.Errorf("%d jobs are left though nothing was ever given back", n)
		}
	})
}

// blockedFeeds is a store whose Feeds blocks until its context ends, while busy is set.
type blockedFeeds struct {
	store.Store
	busy *atomic.Bool
}

func (bf blockedFeeds) Feeds(ctx context.Context, fn func(string) bool) error {
	if bf.busy.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return bf.Store.Feeds(ctx, fn)
}

// The disk watch does not wait for the janitor, and runs until the drain ends, so tools that wait for
// space can end.
func TestDiskWatchWhileBusyAndDraining(t *testing.T) {
	var free atomic.Uint64
	var busy atomic.Bool
	free.Store(1 << 40)
	busy.Store(true)
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return free.Load(), nil }
		c.Store = blockedFeeds{c.Store, &busy}
	}, func(f *fixture) {
		p := f.dial("alice")
		p.submit("demo.emit", `{"count":3,"bytes":1,"interval_ms":20000}`)
		p.expect("job.started", "log")
		time.Sleep(10 * time.Second)
		free.Store(1 << 20)
		time.Sleep(2 * time.Second)
		p.send("tool.invoke", `{"tool":"demo.echo"}`)
		if e := refusal(t, p.until("job.failed")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("a submit while the disk is full: %+v", e)
		}
		time.AfterFunc(10*time.Minute, func() { free.Store(1 << 40) })
		start := time.Now()
		f.shutdown(time.Hour)
		if d := time.Since(start); d < 10*time.Minute || d > 20*time.Minute {
			t.Errorf("the drain took %s, want it to end when there is room again", d)
		}
		p.until("job.completed")
	})
}

// A tool that waits for room on the disk can be cancelled.
func TestCancelWhileFull(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 30)
	left := make(chan error, 1)
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return free.Load(), nil }
		waits := tool.MustNew(tool.Capability{Name: "waits", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (int, error) {
			for {
				if err := job.Log("info", "on", nil); err != nil {
					left <- err
					return 0, err
				}
				time.Sleep(time.Second)
			}
		})
		if err := c.Tools.Register(waits); err != nil {
			t.Fatal(err)
		}
	}, func(f *fixture) {
		p := f.dial("alice")
		job := p.submit("waits", `{}`)
		p.until("job.started")
		free.Store(1 << 20)
		time.Sleep(time.Minute)
		asked := time.Now()
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
		p.until("job.cancelled")
		if d := time.Since(asked); d > time.Second {
			t.Errorf("the job is cancelled after %v: the tool was not woken", d)
		}
		if err := <-left; err == nil {
			t.Error("the tool is not told that it wrote nothing")
		}
	})
}
