package eventlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// t0 is the time of the tests.
var t0 = time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)

// faulty is a store whose commits can be delayed or made to fail.
type faulty struct {
	store.Store

	mu      sync.Mutex
	gate    chan struct{} // a commit receives from it; nil: no delay
	fail    error         // of every commit
	readErr error         // of every read
	batches []int         // number of writes of each commit
	synced  int           // number of commits that were synced
	reads   int           // of sessions' logs
}

func (f *faulty) Commit(writes []*store.Write, results []store.Result) error {
	f.mu.Lock()
	gate, err := f.gate, f.fail
	f.batches = append(f.batches, len(writes))
	if slices.ContainsFunc(writes, func(w *store.Write) bool { return !w.NoSync }) {
		f.synced++
	}
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if err != nil {
		return err
	}
	return f.Store.Commit(writes, results)
}

func (f *faulty) SessionEvents(ctx context.Context, id arcp.SessionID, after uint64, fn func(store.Delivery) bool) error {
	f.mu.Lock()
	f.reads++
	err := f.readErr
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Store.SessionEvents(ctx, id, after, fn)
}

func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fixture is a log on a store in memory, with short methods for tests. A failure ends the
// test.
type fixture struct {
	testing.TB
	*Log
	st *faulty
}

func newFixture(t testing.TB, opts Options) *fixture {
	f := &fixture{TB: t, st: &faulty{Store: mem.Open(mem.Options{})}}
	f.Log = New(f.st, opts)
	t.Cleanup(f.Close)
	return f
}

func nop() {}

// do commits a write that succeeds and returns when its events were delivered.
func (f *fixture) do(w *store.Write) store.Result {
	f.Helper()
	res := f.commit(w)
	f.flush()
	return res
}

// commit commits a write that succeeds. Its events may be delivered after commit returns.
func (f *fixture) commit(w *store.Write) store.Result {
	f.Helper()
	res, err := f.Commit(context.Background(), w)
	if err != nil {
		f.Fatalf("a write was refused: %v", err)
	}
	return res
}

func sessionRow(id arcp.SessionID) *store.Session {
	return &store.Session{ID: id, Principal: "alice", Version: "1.1", CreatedAt: t0}
}

// session opens a session and attaches a cursor.
func (f *fixture) session(id arcp.SessionID) *Cursor {
	f.Helper()
	var c *Cursor
	done := make(chan error, 1)
	f.Append(store.NewWrite(&store.OpenSession{Row: sessionRow(id)}), func(res *store.Result) {
		c = f.Attach(id, 0, 0, Loop{Wake: nop, Go: func(fn func()) { fn() }})
		done <- res.Err
	})
	if err := <-done; err != nil {
		f.Fatal(err)
	}
	return c
}

// attach attaches a cursor to a session.
func (f *fixture) attach(id arcp.SessionID, after uint64) *Cursor {
	f.Helper()
	c, err := f.attachLoop(id, after, nop)
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// attachLoop attaches a cursor that calls wake. Any goroutine may call it.
func (f *fixture) attachLoop(id arcp.SessionID, after uint64, wake func()) (c *Cursor, err error) {
	done := make(chan error, 1)
	f.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: id}}, NoSync: true}, func(res *store.Result) {
		if res.Err == nil {
			c = f.Attach(id, after, res.LastSeq, Loop{Wake: wake, Go: func(fn func()) { fn() }})
		}
		done <- res.Err
	})
	err = <-done
	return c, err
}

func submitOf(id arcp.JobID, session arcp.SessionID) *store.Write {
	return store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: id, Principal: "alice", Session: session, SubmitID: arcp.MessageID("msg_" + id),
		Agent: "t@1", CreatedAt: t0, State: arcp.StateAccepted, Attempt: 1}})
}

// job submits a job of a session, without an event.
func (f *fixture) job(id arcp.JobID, session arcp.SessionID) { f.Helper(); f.do(submitOf(id, session)) }

func logs(id arcp.JobID, texts ...string) *store.Write {
	log := &store.AppendEvents{Job: id, Attempt: 1}
	for _, text := range texts {
		log.Events = append(log.Events, store.NewEvent(arcp.Log, t0, &store.JobContext{JobID: id}, "",
			fmt.Appendf(nil, `{"level":"info","message":%q}`, text)))
	}
	return store.NewWrite(log)
}

func heartbeat(id arcp.JobID) *store.Write {
	return &store.Write{Ops: []store.Op{&store.DeliverUnlogged{Job: id, Attempt: 1,
		Event: store.NewEvent(arcp.JobHeartbeat, t0, &store.JobContext{JobID: id}, "",
			[]byte(`{"sequence":1,"state":"running"}`))}}, NoSync: true}
}

func (f *fixture) follow(id arcp.JobID, session arcp.SessionID, from uint64) {
	f.Helper()
	f.do(store.NewWrite(&store.Follow{Session: session, Job: id, CorrelationID: "msg_f", From: from, Forwarded: true}))
}

// flush returns when the events of all earlier writes were delivered.
func (f *fixture) flush() { f.Helper(); f.commit(&store.Write{NoSync: true}) }

// next returns the next item; the zero Item if there is none.
func (f *fixture) next(c *Cursor) Item {
	f.Helper()
	item, _, err := c.Next()
	if err != nil {
		f.Fatal(err)
	}
	return item
}

// take returns up to n items.
func (f *fixture) take(c *Cursor, n int) (items []Item) {
	f.Helper()
	for len(items) < n {
		item, ok, err := c.Next()
		if err != nil {
			f.Fatal(err)
		}
		if !ok {
			break
		}
		items = append(items, item)
	}
	return items
}

const everythingLeft = 1 << 30

// text formats an item for comparison: an event's number, an answer, or a heartbeat.
func text(it Item) string {
	switch {
	case it.Event == nil:
		return fmt.Sprint(it.Answer)
	case it.Seq == 0:
		return "beat"
	}
	return fmt.Sprint(it.Seq)
}

func texts(items []Item) (all []string) {
	for _, it := range items {
		all = append(all, text(it))
	}
	return all
}

// wantItems compares the items of a cursor.
func (f *fixture) wantItems(why string, c *Cursor, want ...string) {
	f.Helper()
	if got := texts(f.take(c, everythingLeft)); !slices.Equal(got, want) {
		f.Fatalf("%s: items %v, want %v", why, got, want)
	}
}
