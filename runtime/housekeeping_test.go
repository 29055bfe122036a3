package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	var tries, bytes atomic.Int64
	bytes.Store(95)
	inBubble(t, func(c *runtime.Config) {
		c.Retention, c.MaxData, c.Store = time.Second, 100, undeletableJobs{reportedSize{c.Store, &bytes}, &tries}
	}, func(f *fixture) {
		p := f.dial("alice")
		for range 300 {
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
		}
		before := tries.Load()
		time.Sleep(11 * time.Second)
		if n := tries.Load() - before; n == 0 || n > 5000 {
			t.Errorf("%d jobs were to be deleted in 11 checks of the store and two intervals", n)
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
		st.Bytes, st.Lags = n, true
	}
	return st
}

// A store that nears its bound is made smaller at once, however many jobs that takes. Space that is
// not freed yet is not counted for further deletions.
func TestStoreStaysBelowItsBound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const (
		maxData = 10_000_000
		high    = 9_000_000
		low     = 8_800_000
	)
	var bytes atomic.Int64
	bytes.Store(1)
	inBubble(t, func(c *runtime.Config) { c.MaxData, c.Store = maxData, reportedSize{c.Store, &bytes} }, func(f *fixture) {
		p := f.dial("alice")
		var size int64 // of the events of a job
		for range 1200 {
			job := p.submit("demo.echo", `{}`)
			p.until("job.completed")
			size = int64(len(`{}`)) // its arguments
			if err := f.st.JobEvents(t.Context(), job, 0, func(e *store.Event) bool { size += int64(len(e.Body)); return true }); err != nil {
				t.Fatal(err)
			}
		}
		wantJobs := func(why string, want int) {
			t.Helper()
			if n := f.st.Stat().Jobs; n < want-2 || n > want+2 {
				t.Errorf("%s: %d jobs are left, want %d", why, n, want)
			}
		}
		bytes.Store(high)
		time.Sleep(10 * time.Second)
		wantJobs("not above nine tenths", 1200)
		bytes.Store(low + 600*size)
		time.Sleep(2 * time.Second)
		wantJobs("600 jobs too large", 600)
		time.Sleep(20 * time.Second)
		wantJobs("nothing was given back yet", 600)
		bytes.Store(low)
		time.Sleep(10 * time.Minute)
		wantJobs("all was given back", 600)
		bytes.Store(high + 100*size)
		time.Sleep(20 * time.Minute)
		if n := f.st.Stat().Jobs; n != 0 {
			t.Errorf("%d jobs are left though nothing was ever given back", n)
		}
	})
}

// Finished jobs are deleted before their retention ends, the oldest first, so that the store in
// memory stays below its bound. When live jobs fill it, only built-in tools are called.
func TestDataBound(t *testing.T) {
	const maxData = 1 << 20
	inBubble(t, func(c *runtime.Config) {
		c.MaxData = maxData
		waits := tool.MustNew(tool.Capability{Name: "waits", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, _ tool.Job, _ struct {
			Text string `json:"text"`
		}) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		if err := c.Tools.Register(waits); err != nil {
			t.Fatal(err)
		}
	}, func(f *fixture) {
		p := f.dial("alice")
		stored := func(why string, id arcp.JobID, want bool) {
			t.Helper()
			if _, err := f.st.Job(t.Context(), id); (err == nil) != want {
				t.Errorf("%s: job %s: %v", why, id, err)
			}
		}
		running := p.submit("waits", `{"text":""}`)
		p.until("job.started")
		var echoes []arcp.JobID
		for range 2000 {
			echoes = append(echoes, p.submit("demo.echo", `{}`))
			p.until("job.completed")
			time.Sleep(10 * time.Millisecond)
			if n := f.st.Stat().Bytes; n >= maxData {
				t.Fatalf("the store has %d bytes", n)
			}
		}
		stored("the oldest", echoes[0], false)
		stored("the youngest", echoes[len(echoes)-1], true)
		stored("older, but it runs", running, true)

		invoke := func(name, args string) arcp.Envelope {
			t.Helper()
			p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, name, args))
			for {
				if env := p.read(); env.Type == arcp.JobStarted || env.Type == arcp.JobFailed {
					time.Sleep(time.Second / 2)
					return env
				}
			}
		}
		large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 300_000))
		var live []arcp.JobID
		for f.st.Stat().Bytes < maxData {
			if env := invoke("waits", large); env.Type == arcp.JobStarted {
				live = append(live, env.JobID)
			}
		}
		stored("nothing that has ended is left", echoes[len(echoes)-1], false)
		refused := invoke("demo.echo", `{}`)
		if e := refusal(t, refused); e.Code != arcp.CodeResourceExhausted || !strings.Contains(string(e.Details), "retry_after_seconds") {
			t.Errorf("a submit at the bound: %+v", e)
		}
		p.submit("jobs.get", fmt.Sprintf(`{"job_id":%q}`, running))
		p.until("job.completed")
		f.dial("bob")
		for _, job := range live {
			p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
			p.until("job.cancelled")
		}
		time.Sleep(time.Second / 2)
		p.submit("demo.echo", `{}`)
		p.until("job.completed")
		if gauges := f.sum("arcp_store_max_bytes", "") - f.sum("arcp_store_bytes", ""); gauges <= 0 || gauges >= maxData {
			t.Errorf("the gauges differ by %v", gauges)
		}
	})
}

// Jobs that end with events that their session has not acknowledged are deleted after the others, but
// they are deleted when there are no others.
func TestDataBoundDeletesAcknowledgedFirst(t *testing.T) {
	const maxData = 1 << 20
	inBubble(t, func(c *runtime.Config) { c.MaxData = maxData }, func(f *fixture) {
		stored := func(why string, id arcp.JobID, want bool) {
			t.Helper()
			if _, err := f.st.Job(t.Context(), id); (err == nil) != want {
				t.Errorf("%s: job %s: %v", why, id, err)
			}
		}
		bob := f.dial("bob")
		bob.send("session.ack", `{"last_processed_seq":0}`)
		first := bob.submit("demo.echo", `{}`)
		last := bob.until("job.completed").EventSeq
		second := bob.submit("demo.echo", `{}`)
		bob.until("job.completed")

		alice := f.dial("alice")
		flood := func() (ids []arcp.JobID) {
			for range 1000 {
				ids = append(ids, alice.submit("demo.echo", `{}`))
				alice.until("job.completed")
				time.Sleep(10 * time.Millisecond)
			}
			return ids
		}
		received := flood()
		stored("received", received[0], false)
		stored("the oldest, but not acknowledged", first, true)
		bob.send("session.ack", fmt.Sprintf(`{"last_processed_seq":%d}`, last))
		flood()
		stored("acknowledged", first, false)
		stored("not acknowledged", second, true)

		for f.st.Stat().Bytes < maxData*95/100 {
			bob.submit("demo.emit", `{"count":1,"bytes":30000}`)
			bob.until("job.completed")
			time.Sleep(time.Second / 2)
			if _, err := f.st.Job(t.Context(), second); err != nil {
				return
			}
		}
		t.Error("nothing was deleted though all jobs have unacknowledged events")
	})
}

// A repeated attempt of a job asks for the outcomes of its children: they stay while it lives.
func TestDataBoundKeepsChildrenOfLiveJobs(t *testing.T) {
	children := make(chan arcp.JobID, 1)
	inBubble(t, func(c *runtime.Config) {
		c.MaxData = 1 << 20
		parent := tool.MustNew(tool.Capability{Name: "parent", Limits: tool.Limits{Timeout: -1}}, func(ctx context.Context, job tool.Job, _ struct{}) (int, error) {
			if _, err := job.Call(ctx, tool.Call{Tool: "demo.echo", OnChild: func(id arcp.JobID) { children <- id }}); err != nil {
				return 0, err
			}
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		if err := c.Tools.Register(parent); err != nil {
			t.Fatal(err)
		}
	}, func(f *fixture) {
		p := f.dial("alice")
		p.send("tool.invoke", `{"tool":"parent","lease_request":{"tool.call":["demo.echo"]}}`)
		parent := p.until("job.started").JobID
		child := <-children
		flood := func() {
			for range 1000 {
				p.submit("demo.echo", `{}`)
				p.until("job.completed")
				time.Sleep(10 * time.Millisecond)
			}
		}
		flood()
		if _, err := f.st.Job(t.Context(), child); err != nil {
			t.Errorf("the child of a live job: %v", err)
		}
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, parent))
		p.until("job.cancelled")
		flood()
		if _, err := f.st.Job(t.Context(), child); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the child of a job that has ended: %v, want it deleted", err)
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

// While jobs are refused, tools.policy has the refusal; while sessions are refused too, the runtime is not ready.
func TestFullDiskIsReported(t *testing.T) {
	var free atomic.Uint64
	free.Store(100)
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return free.Load(), nil }
		c.MinFree = 100
	}, func(f *fixture) {
		p := f.dial("alice")
		for _, c := range []struct {
			free  uint64
			ready error
			text  any // nil: jobs are accepted
		}{{100, nil, nil}, {99, nil, "the disk is nearly full"}, {50, nil, "the disk is nearly full"}, {49, runtime.ErrDiskFull, ""}, {120, nil, nil}} {
			free.Store(c.free)
			time.Sleep(10 * time.Second)
			if err := f.rt.Ready(); !errors.Is(err, c.ready) {
				t.Errorf("with %d bytes Ready returns %v, want %v", c.free, err, c.ready)
			}
			if c.ready != nil {
				continue // tools.policy is refused too
			}
			refusal, _ := p.must("tools.policy", `{}`)["refusal"].(map[string]any)
			if refusal["message"] != c.text {
				t.Errorf("with %d bytes tools.policy has the refusal %v, want %v", c.free, refusal, c.text)
			}
		}
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
