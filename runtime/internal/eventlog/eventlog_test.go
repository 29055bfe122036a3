package eventlog

import (
	"context"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// An answer posted by the done callback of a write comes after all earlier events and
// before the events of the write.
func TestPostKeepsOrder(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	f.Append(logs("job_1", "a", "b"), func(*store.Result) { c.AnswerAfterEvents("first") })
	f.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: "sess_1"}}, NoSync: true},
		func(*store.Result) { c.AnswerAfterEvents("second") })
	f.Append(logs("job_1", "c"), func(*store.Result) { c.AnswerAfterEvents("third") })
	f.flush()
	f.wantItems("the order of the log", c, "first", "1", "2", "second", "third", "3")
}

// No event of a write is delivered before its done callback was called.
func TestDoneBeforeDelivery(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	for range 100 {
		early := make(chan Item, 1)
		f.Append(logs("job_1", "x"), func(res *store.Result) {
			if res.Err != nil || len(res.Runs) != 1 {
				t.Errorf("result %+v, want one run", res)
			}
			early <- f.next(c)
		})
		if it := <-early; it.Event != nil {
			t.Fatalf("event %d was delivered before its commit was reported", it.Seq)
		}
		f.flush()
		if f.next(c).Event == nil {
			t.Fatal("an event that is durable was not delivered")
		}
	}
}

// An answer overtakes the events that Next has not returned, also the rest of a long run.
func TestAnswerOvertakesQueuedEvents(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "a", "b", "c", "d"))
	if got := text(f.next(c)); got != "1" {
		t.Fatalf("first item %s, want 1", got)
	}
	c.AnswerBeforeEvents("now")
	c.AnswerBeforeEvents("and now")
	if c.QueuedAnswers() != 2 {
		t.Errorf("%d answers are waiting, want 2", c.QueuedAnswers())
	}
	c.AnswerAfterEvents("then")
	f.wantItems("answers overtake events", c, "now", "and now", "2", "3", "4", "then")
	if c.QueuedAnswers() != 0 {
		t.Errorf("%d answers are waiting, want none: all were taken", c.QueuedAnswers())
	}
}

// An answer overtakes the events that a lagging cursor has read from the store.
func TestAnswerOvertakesTheStore(t *testing.T) {
	f := newFixture(t, Options{TailBytes: 1})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	for range 5 {
		f.do(logs("job_1", "a"))
	}
	f.take(c, 2)
	c.AnswerBeforeEvents("now")
	f.wantItems("a lagging cursor", c, "now", "3", "4", "5")
}

// A cursor that lags reads the store, then continues from memory, with the answers in order.
func TestLaggingCursorCatchesUp(t *testing.T) {
	f := newFixture(t, Options{TailBytes: 2000})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	const before = 2*readAhead + 100
	for n := range before {
		f.do(logs("job_1", "x"))
		if n == 600 {
			c.AnswerAfterEvents("after 601")
		}
	}
	f.flush()
	if kept := pieces(c); kept > 20 {
		t.Fatalf("%d writes kept in memory, want what 2,000 bytes have room for", kept)
	}
	items := f.take(c, everythingLeft)
	if len(items) != before+1 || text(items[601]) != "after 601" {
		t.Fatalf("%d items, the 602nd %s; want %d and the answer there", len(items), text(items[601]), before+1)
	}
	checkGapless(t, slices.Delete(items, 601, 602), 1)

	reads := f.st.reads
	for range 50 {
		f.do(logs("job_1", "x"))
		checkGapless(t, f.take(c, everythingLeft), c.Position())
	}
	if f.st.reads != reads {
		t.Errorf("a cursor that keeps up has read the store %d times", f.st.reads-reads)
	}
}

func pieces(c *Cursor) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tail)
}

func checkGapless(t testing.TB, items []Item, first uint64) {
	t.Helper()
	for i, it := range items {
		if it.Seq != first+uint64(i) {
			t.Fatalf("item %d has the number %d, want %d", i, it.Seq, first+uint64(i))
		}
	}
}

// The tails of all cursors together are bounded by the budget, however many cursors do
// not pull, and by the number of runs, however small the events are.
func TestTailsStayWithinTheBudget(t *testing.T) {
	const budget = 64 << 10
	f := newFixture(t, Options{TailBytes: budget})
	ids := []arcp.SessionID{"sess_1", "sess_2", "sess_3"}
	var cursors []*Cursor
	for _, id := range ids {
		cursors = append(cursors, f.session(id))
	}
	f.job("job_1", "sess_1")
	f.follow("job_1", "sess_2", 0)
	f.job("job_2", "sess_3")
	for range 500 {
		f.do(logs("job_1", strings.Repeat("x", 1000)))
		f.do(logs("job_2", strings.Repeat("y", 500), "z"))
	}
	if n := tailSize(cursors); n > budget+4000 {
		t.Errorf("%d bytes of events in memory, want no more than %d and a write", n, budget)
	}
	for i, c := range cursors {
		items := f.take(c, everythingLeft)
		if len(items) != []int{500, 500, 1000}[i] {
			t.Errorf("%s: %d items", ids[i], len(items))
		}
		checkGapless(t, items, 1)
	}
}

// tailSize returns the memory of the events in tails, each counted once.
func tailSize(cursors []*Cursor) (n int) {
	seen := make(map[*store.Event]bool)
	for _, c := range cursors {
		c.mu.Lock()
		for _, run := range c.tail {
			for _, e := range run.Events {
				if !seen[e] {
					seen[e] = true
					n += len(e.Body)
				}
			}
		}
		c.mu.Unlock()
	}
	return n
}

func TestMarksAreBounded(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	for range tailMarks + 500 {
		f.Append(logs("job_1", "x"), nil)
	}
	f.flush()
	if n := pieces(c); n > tailMarks {
		t.Errorf("%d writes in memory, want at most %d", n, tailMarks)
	}
	if n := len(f.take(c, everythingLeft)); n != tailMarks+500 {
		t.Errorf("%d items, want all %d", n, tailMarks+500)
	}
	f.Close()
	if f.tails.marks > tailMarks || len(f.tails.entries) > 2*tailMarks+1024 {
		t.Errorf("%d marks in %d entries kept", f.tails.marks, len(f.tails.entries))
	}
}

// Events are counted once for followers that share them, and all of them when
// one follower sees more than another.
func TestBudgetCountsSharedEventsOnce(t *testing.T) {
	events := store.Find[*store.AppendEvents](logs("job_1", "a", "b", "c")).Events
	size := 0
	for _, e := range events {
		size += e.Memory()
	}
	var k tailEntry
	k.count(events[:1])
	k.count(events)
	k.count(events[:2])
	k.count(events)
	if k.bytes != size {
		t.Errorf("%d bytes counted, want %d: each event once", k.bytes, size)
	}
}

// Followers that use forms share them, and their memory is counted once. A single receiver, and
// followers that use none, cost nothing.
func TestFollowersShareForms(t *testing.T) {
	f := newFixture(t, Options{})
	plain, one, two := f.session("sess_1"), f.session("sess_2"), f.session("sess_3")
	one.loop.UsesForms, two.loop.UsesForms = true, true
	f.job("job_1", "sess_1")
	f.job("job_2", "sess_2")
	f.follow("job_1", "sess_2", 0)
	f.follow("job_1", "sess_3", 0)
	before := f.tails.bytes
	f.do(logs("job_1", "a"))
	a, b, c := f.take(one, 1)[0], f.take(two, 1)[0], f.take(plain, 1)[0]
	if a.Forms == nil || a.Forms != b.Forms || c.Forms != nil {
		t.Fatalf("%+v, %+v and %+v: want two items that share forms", a, b, c)
	}
	encoded := 0
	encode := func() any { encoded++; return encoded }
	for _, item := range []Item{a, b, a} {
		if v := item.Forms.Of(item.Event, 0).Get(encode); v != 1 {
			t.Errorf("the form is %v, want the first one", v)
		}
	}
	if v := b.Forms.Of(b.Event, 1).Get(encode); v != 2 {
		t.Errorf("the other form is %v, want one of its own", v)
	}
	if got, want := f.tails.bytes-before, a.Event.Memory()+2*cap(a.Event.Body)+formsBytes; got != want {
		t.Errorf("%d bytes counted, want %d", got, want)
	}
	f.do(logs("job_2", "a"))
	if alone := f.take(one, 1)[0]; alone.Forms != nil {
		t.Errorf("%+v has forms, and a single receiver", alone)
	}
}

// Followers of one job get the same event, not a copy.
func TestFollowersShareEvents(t *testing.T) {
	f := newFixture(t, Options{})
	c1, c2 := f.session("sess_1"), f.session("sess_2")
	f.job("job_1", "sess_1")
	f.follow("job_1", "sess_2", 0)
	f.do(logs("job_1", "a", "b"))
	one, two := f.take(c1, 2), f.take(c2, 2)
	if len(one) != 2 || len(two) != 2 || one[0].Event != two[0].Event || one[1].Event != two[1].Event {
		t.Fatalf("%v and %v, want the same two events", one, two)
	}
	if one[0].Forwarded || !two[0].Forwarded || one[0].CorrelationID != "msg_job_1" || two[0].CorrelationID != "msg_f" {
		t.Errorf("%+v and %+v: each receiver has its own CorrelationID and Forwarded", one[0], two[0])
	}
}

// Attaching during commits misses no event and repeats none.
func TestAttachInTraffic(t *testing.T) {
	f := newFixture(t, Options{TailBytes: 3000})
	f.session("sess_1").Close()
	f.job("job_1", "sess_1")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := f.Commit(context.Background(), logs("job_1", "x", "y")); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	var pos uint64
	for range 200 {
		c := f.attach("sess_1", pos)
		f.flush()
		items := f.take(c, 1+int(pos%7))
		checkGapless(t, items, pos+1)
		if len(items) == 0 && pos == 0 {
			f.flush()
			continue
		}
		pos += uint64(len(items))
		c.Close()
	}
	close(stop)
	<-done
	f.flush()
	c := f.attach("sess_1", pos)
	checkGapless(t, f.take(c, everythingLeft), pos+1)
	if last := f.do(store.NewWrite(&store.ReadPosition{Session: "sess_1"})).LastSeq; c.Position() != last {
		t.Errorf("position %d at the end, want %d", c.Position(), last)
	}
}

// Attaching again supersedes the older cursor and wakes its loop.
func TestAttachSupersedesTheOlderCursor(t *testing.T) {
	f := newFixture(t, Options{})
	woken := make(chan struct{}, 100)
	f.session("sess_1")
	older, err := f.attachLoop("sess_1", 0, func() { woken <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	older.AnswerAfterEvents("lost")
	<-woken
	newer := f.attach("sess_1", 0)
	<-woken
	if older.AnswerAfterEvents("x") || older.AnswerBeforeEvents("x") {
		t.Error("a cursor that was superseded takes answers")
	}
	if older.QueuedAnswers() != 0 {
		t.Error("answers wait in a cursor that nobody will ask")
	}
	older.Close() // of no effect on the newer one
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "a"))
	f.wantItems("the newer cursor", newer, "1")
}

// Heartbeats are in order with the events. Their number is bounded while Next is not
// called, and new ones arrive after it is called.
func TestHeartbeatsAreInOrderAndBounded(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "a"))
	f.do(heartbeat("job_1"))
	f.do(logs("job_1", "b"))
	f.wantItems("a heartbeat between two events", c, "1", "beat", "2")

	for range 10 * maxUnlogged {
		f.do(heartbeat("job_1"))
	}
	if n := len(f.take(c, everythingLeft)); n != maxUnlogged {
		t.Errorf("%d heartbeats kept for a connection that does not read, want %d", n, maxUnlogged)
	}
	f.do(heartbeat("job_1"))
	f.wantItems("after the flood", c, "beat")
}

// A heartbeat after evicted events waits for them.
func TestUnloggedBehindEvictedEvents(t *testing.T) {
	f := newFixture(t, Options{TailBytes: 1})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "a"))
	f.do(heartbeat("job_1"))
	f.do(logs("job_1", "b"))
	f.do(logs("job_1", "c"))
	f.wantItems("order survives eviction", c, "1", "beat", "2", "3")
}

// A trimmed position is an error, not a gap.
func TestTrimmedPositionIsAnError(t *testing.T) {
	f := newFixture(t, Options{})
	f.session("sess_1").Close()
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "a", "b", "c"))
	f.do(store.NewWrite(&store.TrimSession{Session: "sess_1", Seq: 2}))
	if _, _, err := f.attach("sess_1", 1).Next(); !errors.Is(err, store.ErrTrimmed) {
		t.Errorf("Next = %v, want ErrTrimmed", err)
	}
	f.wantItems("from where the log begins", f.attach("sess_1", 2), "3")
}

func TestStoreCannotBeRead(t *testing.T) {
	f := newFixture(t, Options{})
	f.session("sess_1").Close()
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "a"))
	c := f.attach("sess_1", 0)
	boom := errors.New("boom")
	f.st.set(func() { f.st.readErr = boom })
	if _, _, err := c.Next(); !errors.Is(err, boom) {
		t.Errorf("Next = %v, want the store's error", err)
	}
	f.st.set(func() { f.st.readErr = nil })
	f.wantItems("when it can be read again", c, "1")
}

// After a failed commit the store is not called again, every write gets the error, and no
// event is delivered.
func TestBrokenStoreIsNotCalledAgain(t *testing.T) {
	boom := errors.New("boom")
	var broken []error
	f := newFixture(t, Options{OnBroken: func(err error) { broken = append(broken, err) }})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	f.st.set(func() { f.st.fail = boom })
	for range 3 {
		_, err := f.Commit(context.Background(), logs("job_1", "a"))
		if !errors.Is(err, boom) || !errors.Is(err, store.ErrBroken) {
			t.Fatalf("Commit = %v, want the cause, and ErrBroken", err)
		}
	}
	commits := len(f.st.batches)
	f.st.set(func() { f.st.fail = nil })
	if _, err := f.Commit(context.Background(), logs("job_1", "a")); !errors.Is(err, store.ErrBroken) {
		t.Errorf("Commit = %v, want ErrBroken for good", err)
	}
	if len(f.st.batches) != commits {
		t.Error("a broken store was asked again")
	}
	f.wantItems("nothing is durable", c)
	if f.Close(); len(broken) != 1 || !errors.Is(broken[0], boom) {
		t.Errorf("OnBroken was told %v, want the cause once", broken)
	}
}

// A refused write does not affect the other writes of its commit.
func TestRefusedWriteAffectsNoOther(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	errs := make(chan error, 3)
	report := func(res *store.Result) { errs <- res.Err }
	f.Append(logs("job_1", "a"), report)
	f.Append(logs("job_none", "b"), report)
	f.Append(logs("job_1", "c"), report)
	if a, b, c := <-errs, <-errs, <-errs; a != nil || !errors.Is(b, store.ErrNotFound) || c != nil {
		t.Errorf("results %v, %v, %v; want only the middle one refused", a, b, c)
	}
	f.flush()
	f.wantItems("the others' events", c, "1", "2")
}

// Writes queued during a commit go into one commit.
func TestQueuedWritesAreOneCommit(t *testing.T) {
	committed := 0
	f := newFixture(t, Options{OnCommit: func(events int, _ time.Duration, _ error) { committed += events }})
	f.session("sess_1")
	f.job("job_1", "sess_1")
	gate := make(chan struct{})
	f.st.set(func() { f.st.gate, f.st.batches = gate, nil })
	started := make(chan struct{})
	f.Append(&store.Write{NoSync: true}, func(*store.Result) { close(started) })
	gate <- struct{}{}
	<-started
	results := make(chan error, 6000)
	for range 3000 {
		f.Append(logs("job_1", "a", "b"), func(res *store.Result) { results <- res.Err })
	}
	close(gate)
	for range 3000 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	if n := len(f.st.batches); n < 4 || n > 10 {
		t.Errorf("6,000 events in %d commits, want them in groups of about %d", n, maxBatchEvents)
	}
	for _, n := range f.st.batches {
		if 2*n > maxBatchEvents+2 {
			t.Errorf("a commit of %d events, want at most about %d", 2*n, maxBatchEvents)
		}
	}
	if committed != 6000 {
		t.Errorf("OnCommit was told of %d events, want 6,000", committed)
	}
}

// TestUnsyncedWritesAreSyncedSoon checks that writes of AppendUnsynced succeed before a sync, and that one
// later commit syncs all of them.
func TestUnsyncedWritesAreSyncedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		open := func(ids ...arcp.SessionID) {
			for _, id := range ids {
				f.AppendUnsynced(store.NewWrite(&store.OpenSession{Row: sessionRow(id)}), func(r *store.Result) {
					if r.Err != nil {
						t.Errorf("%s: %v", id, r.Err)
					}
				})
			}
			synctest.Wait()
		}
		want := func(why string, synced int) {
			t.Helper()
			f.st.set(func() {
				if f.st.synced != synced {
					t.Errorf("%s: %d commits were synced, want %d", why, f.st.synced, synced)
				}
			})
		}
		open("sess_1", "sess_2")
		want("at once", 0)
		time.Sleep(SyncDelay - 1)
		open("sess_3")
		want("shortly before the end of the delay", 0)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		want("after the delay", 1)
		time.Sleep(10 * SyncDelay)
		want("without another write", 1)
		open("sess_4")
		time.Sleep(SyncDelay)
		synctest.Wait()
		want("after another write and the delay", 2)
		open("sess_5")
		f.Close()
		time.Sleep(SyncDelay) // the log is closed when the delay ends
	})
}

// A single writer never waits, also if it writes again in its done callback.
func TestCommitDelayOfALoneWriter(t *testing.T) {
	f := newFixture(t, Options{CommitDelay: MaxCommitDelay, now: time.Now, yield: func() { t.Error("a commit waits for more writes") }})
	f.session("sess_1")
	f.job("job_1", "sess_1")
	for range 20 {
		f.do(logs("job_1", "a"))
	}
	done := make(chan struct{})
	var again func(n int)
	again = func(n int) {
		if n == 0 {
			close(done)
			return
		}
		f.Append(logs("job_1", "a"), func(*store.Result) { again(n - 1) })
	}
	again(20)
	<-done
}

// Under load a commit waits for CommitDelay, and later writes join it. It does not wait
// when it is full or the log is closed.
func TestLaterWritesJoinADelayedCommit(t *testing.T) {
	const delay = 100 * time.Microsecond
	for name, c := range map[string]struct {
		delay          time.Duration
		join           func(f *fixture) // at the third yield
		yields, writes int
	}{
		"off":    {0, func(*fixture) {}, 0, 1},
		"joined": {delay, func(f *fixture) { f.Append(logs("job_1", "c"), nil) }, 10, 2},
		"full": {delay, func(f *fixture) {
			for range maxBatchEvents {
				f.Append(logs("job_1"), nil)
			}
		}, 3, 1 + maxBatchEvents},
		"closed":   {delay, func(f *fixture) { go f.Log.Close(); awaitClosed(f.Log) }, 3, 1},
		"too long": {time.Hour, func(*fixture) {}, 15, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var f *fixture
			now, yields := t0, 0
			f = newFixture(t, Options{CommitDelay: c.delay, now: func() time.Time { return now }, yield: func() {
				now = now.Add(10 * time.Microsecond)
				if yields++; yields == 3 {
					c.join(f)
				}
			}})
			f.session("sess_1")
			f.job("job_1", "sess_1")
			gate := make(chan struct{})
			f.st.set(func() { f.st.gate, f.st.batches = gate, nil })
			f.Append(logs("job_1", "a"), nil)
			for begun := false; !begun; { // the first is on its way
				f.st.set(func() { begun = len(f.st.batches) > 0 })
			}
			done := make(chan struct{})
			f.Append(logs("job_1", "b"), func(*store.Result) { close(done) })
			close(gate)
			<-done
			f.Log.Close()
			if got := f.st.batches; yields != c.yields || len(got) != 2 || got[1] != c.writes {
				t.Errorf("commits of %v writes after %d yields, want a second one of %d after %d", got, yields, c.writes, c.yields)
			}
		})
	}
}

// awaitClosed waits until Close has begun.
func awaitClosed(l *Log) {
	for l.hasRoom() {
		goruntime.Gosched()
	}
}

func TestBatchIsBoundedInBytes(t *testing.T) {
	var batch []entry
	for range 10 {
		batch = append(batch, entry{w: logs("job_1", strings.Repeat("x", 300<<10))})
	}
	if n, _ := batchLen(batch); n != 4 {
		t.Errorf("a batch of %d writes of 300 KiB, want 4: the bound is 1 MiB", n)
	}
	if n, _ := batchLen(batch[:2]); n != 2 {
		t.Errorf("a batch of %d, want all 2", n)
	}
}

// Close commits the queued writes and refuses later ones.
func TestCloseCommitsQueuedWrites(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	gate := make(chan struct{})
	f.st.set(func() { f.st.gate = gate })
	results := make(chan error, 10)
	for range 10 {
		f.Append(logs("job_1", "a"), func(res *store.Result) { results <- res.Err })
	}
	closed := make(chan struct{})
	go func() { f.Close(); close(closed) }()
	close(gate)
	<-closed
	for range 10 {
		if err := <-results; err != nil {
			t.Errorf("a write queued before Close: %v", err)
		}
	}
	if n := len(f.take(c, everythingLeft)); n != 10 {
		t.Errorf("%d events delivered, want 10", n)
	}
	if _, err := f.Commit(context.Background(), logs("job_1", "a")); !errors.Is(err, ErrClosed) {
		t.Errorf("Commit after Close = %v, want ErrClosed", err)
	}
	f.Append(logs("job_1", "a"), nil) // without a callback
	f.Close()                         // again
}

// A write happens also if the caller of Commit stops waiting.
func TestAbandonedCommitHappens(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	gate := make(chan struct{})
	f.st.set(func() { f.st.gate = gate })
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := f.Commit(ctx, logs("job_1", "a")); !errors.Is(err, gone) {
		t.Errorf("Commit = %v, want the cause of the context", err)
	}
	close(gate)
	f.flush()
	f.wantItems("the write happens all the same", c, "1")
}

// The cursor of a session that ends returns nothing, whenever Next is called during the
// end.
func TestCursorOfAnEndedSessionReturnsNothing(t *testing.T) {
	f := newFixture(t, Options{})
	c := f.session("sess_1")
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "one", "two"))
	nothing := func(when string) {
		t.Helper()
		if item, ok, err := c.Next(); ok || err != nil {
			t.Fatalf("%s: %+v, %v, %v; want nothing", when, item, ok, err)
		}
	}
	f.Forget("sess_1")
	nothing("before it is deleted")
	f.do(logs("job_1", "three"))
	f.do(store.NewWrite(&store.EndSession{Session: "sess_1"}))
	nothing("deleted")
	f.Forget("sess_1")
	nothing("forgotten")
	if c.AnswerAfterEvents("late") || c.AnswerBeforeEvents("late") {
		t.Error("an answer was taken that nobody will get")
	}
	if n := len(f.sessions); n != 0 {
		t.Errorf("%d places are kept", n)
	}
}
