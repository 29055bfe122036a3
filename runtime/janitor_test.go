package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// wantTrimmed checks that nothing of a principal's feed is left.
func (b *fixture) wantTrimmed(why, principal string) {
	b.Helper()
	trimmed, last, err := b.st.FeedBounds(context.Background(), principal)
	if err != nil || trimmed != last || last == 0 {
		b.Errorf("%s: the feed of %s is trimmed to %d of %d, %v; want all of it", why, principal, trimmed, last, err)
	}
}

// Events are committed nearly in the order of time. A deleted event behind one that is kept
// does not end the feed's retention.
func TestRetentionOfTheFeed(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Retention = time.Hour }, func(b *fixture) {
		now := time.Now()
		var writes []*store.Write
		for _, id := range []arcp.JobID{"job_1", "job_2"} {
			writes = append(writes, store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: id, Principal: "alice", CreatedAt: now, State: arcp.StateAccepted}}))
		}
		add := func(id arcp.JobID, typ arcp.Type, after time.Duration, state arcp.JobState) {
			e := store.NewEvent(typ, now.Add(after), &store.Common{JobID: id}, "", []byte("{}"))
			writes = append(writes, store.NewWrite(&store.AppendEvents{Job: id, Attempt: 1, Events: []*store.Event{e}, State: state}))
		}
		add("job_1", arcp.JobStarted, 30*time.Minute, "")
		add("job_2", arcp.JobCompleted, time.Minute, arcp.StateCompleted)
		add("job_1", arcp.JobCompleted, 40*time.Minute, arcp.StateCompleted)
		if err := b.st.Store.Commit(writes, make([]store.Result, len(writes))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(80 * time.Minute)
		if st := b.st.Stat(); st.Jobs != 1 {
			t.Errorf("%d jobs are left, want the second alone to be deleted", st.Jobs)
		}
		if trimmed, _, err := b.st.FeedBounds(t.Context(), "alice"); err != nil || trimmed != 0 {
			t.Errorf("the feed is trimmed to %d, %v; want its first event to be kept", trimmed, err)
		}
		time.Sleep(time.Hour)
		b.wantTrimmed("all jobs ended long ago", "alice")
	})
}

// Jobs deleted for disk space take their part of the feed along, and a later since is refused.
func TestDiskBoundTrimsTheFeed(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Retention, c.MaxDisk = time.Hour, 1 }, func(b *fixture) {
		p := b.dial("alice")
		p.submit("demo.echo", `{}`)
		first := p.expect("job.started").ID
		p.until("job.completed")
		time.Sleep(6 * time.Second) // one look
		if n := b.st.Stat().Jobs; n != 0 {
			t.Fatalf("%d jobs are kept beyond the bound", n)
		}
		b.wantTrimmed("the job is gone", "alice")
		p.send("subscribe", fmt.Sprintf(`{"since":{"after_message_id":%q}}`, first))
		if e := refusal(t, p.expect("nack")); e.Code != arcp.CodeDataLoss {
			t.Errorf("since a message of a job that is gone: %+v", e)
		}
		p.submit("demo.echo", `{}`)
		p.until("job.completed")
		time.Sleep(3 * time.Hour)
		b.wantTrimmed("the retention is over", "alice")
	})
}

// unreadable is a store that cannot read one principal's feed.
type unreadable struct {
	store.Store
	principal string
}

func (u unreadable) Feed(ctx context.Context, principal string, after uint64, fn func(store.FeedEvent) bool) error {
	if principal == u.principal {
		return errors.New("a file is damaged")
	}
	return u.Store.Feed(ctx, principal, after, fn)
}

// A feed that cannot be read does not keep those after it from being trimmed.
func TestRetentionOfOtherFeeds(t *testing.T) {
	inBubble(t, func(c *runtime.Config) {
		c.Retention, c.Store = time.Hour, unreadable{c.Store, "alice"}
	}, func(b *fixture) {
		for _, name := range []string{"alice", "bob"} {
			p := b.dial(name)
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
		}
		time.Sleep(3 * time.Hour)
		b.wantTrimmed("it comes after one that cannot be read", "bob")
	})
}

// A session that follows a deleted job is told once that it lost events, and then continues
// behind them.
func TestFollowerOfADeletedJob(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.MaxDisk = 20_000 }, func(b *fixture) {
		p := b.dial("alice")
		q, token := b.dialToken("alice")
		q.send("session.ack", `{"last_processed_seq":0}`)
		job := p.submit("demo.emit", `{"count":50,"bytes":1000,"interval_ms":10}`)
		q.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, job))
		q.until("job.subscribed")
		_ = q.conn.Abort()
		p.until("job.completed")
		time.Sleep(10 * time.Second)
		q = b.resume(token, 0)
		token = resumeToken(t, q.expect("session.resumed"))
		q.closed("the job is gone", transport.CloseOverloaded)
		synctest.Wait()
		if e := refusal(t, b.resume(token, 0).expect("session.rejected")); e.Code != arcp.CodeResumeWindowExpired {
			t.Errorf("from before the deleted job: %+v", e)
		}
		row, err := b.st.Session(t.Context(), q.session)
		if err != nil || row.TrimmedTo != row.LastSeq {
			t.Errorf("the session is trimmed to %d of %d, %v", row.TrimmedTo, row.LastSeq, err)
		}
		q = b.resume(token, row.LastSeq)
		q.expect("session.resumed")
		q.submit("demo.echo", `{}`)
		q.expect("job.started", "job.completed")
	})
}

// Sessions that are kept do not hide those behind them, and end in their turn.
func TestKeptSessionsDoNotHideOthers(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Retention = 24 * time.Hour }, func(b *fixture) {
		for range 256 {
			p := b.dial("alice")
			p.send("session.ack", `{"last_processed_seq":0}`)
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
			_ = p.conn.Abort()
			synctest.Wait()
		}
		for range 50 {
			_ = b.dial("alice").conn.Abort()
			synctest.Wait()
		}
		time.Sleep(2 * time.Hour)
		if n := b.st.Stat().Sessions; n != 256 {
			t.Errorf("%d sessions long after the resume window, want the 256 with something to acknowledge", n)
		}
		time.Sleep(24 * time.Hour)
		if n := b.st.Stat().Sessions; n != 0 {
			t.Errorf("%d sessions after the retention", n)
		}
	})
}

// keepsJobs is a store that does not delete jobs.
type keepsJobs struct {
	store.Store
	tries *atomic.Int64
}

func (k keepsJobs) Commit(writes []*store.Write, results []store.Result) error {
	var kept []int
	for i, w := range writes {
		if store.Find[*store.DeleteJob](w) != nil {
			k.tries.Add(1)
			writes[i] = &store.Write{NoSync: true}
			kept = append(kept, i)
		}
	}
	err := k.Store.Commit(writes, results)
	for _, i := range kept {
		results[i].Err = errors.New("the job stays")
	}
	return err
}

// A failed task is repeated at the next interval, not at once.
func TestJanitorDoesNotSpin(t *testing.T) {
	var tries atomic.Int64
	inBubble(t, func(c *runtime.Config) {
		c.Retention, c.MaxDisk, c.Store = time.Second, 1, keepsJobs{c.Store, &tries}
	}, func(b *fixture) {
		p := b.dial("alice")
		for range 300 {
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
		}
		before := tries.Load()
		time.Sleep(11 * time.Second)
		if n := tries.Load() - before; n == 0 || n > 2000 {
			t.Errorf("%d jobs were to be deleted within two looks", n)
		}
	})
}

// slow is a store that frees deleted space later.
type slow struct {
	store.Store
	bytes *atomic.Int64 // the reported size; 0: the real one
}

func (s slow) Stat() store.Stat {
	st := s.Store.Stat()
	if n := s.bytes.Load(); n > 0 {
		st.Bytes = n
	}
	return st
}

// The store is brought within its bound at once, however many jobs that takes. Space that is
// not freed yet is not counted for further deletions.
func TestDiskBound(t *testing.T) {
	var bytes atomic.Int64
	inBubble(t, func(c *runtime.Config) { c.MaxDisk, c.Store = 1<<20, slow{c.Store, &bytes} }, func(b *fixture) {
		bytes.Store(1)
		p := b.dial("alice")
		for range 1200 {
			p.submit("demo.echo", `{}`)
			p.until("job.completed")
		}
		size := b.st.Stat().Bytes / 1200
		wantJobs := func(why string, want int) {
			t.Helper()
			if n := b.st.Stat().Jobs; n < want-2 || n > want+2 {
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
		if n := b.st.Stat().Jobs; n != 0 {
			t.Errorf("%d jobs are left though nothing was ever given back", n)
		}
	})
}

// stuck is a store whose feeds cannot be listed for long.
type stuck struct {
	store.Store
	busy *atomic.Bool
}

func (s stuck) Feeds(ctx context.Context, fn func(string) bool) error {
	if s.busy.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.Store.Feeds(ctx, fn)
}

// The floor is looked after whatever the janitor does, and to the end of the
// drain: tools that wait for room come to their end.
func TestDiskFloorWhileBusyAndDraining(t *testing.T) {
	var free atomic.Uint64
	var busy atomic.Bool
	free.Store(1 << 40)
	busy.Store(true)
	inBubble(t, func(c *runtime.Config) {
		c.FreeSpace = func() (uint64, error) { return free.Load(), nil }
		c.Store = stuck{c.Store, &busy}
	}, func(b *fixture) {
		p := b.dial("alice")
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
		b.shutdown(time.Hour)
		if d := time.Since(start); d < 10*time.Minute || d > 20*time.Minute {
			t.Errorf("the drain took %s, want it to end when there is room again", d)
		}
		p.until("job.completed")
	})
}
