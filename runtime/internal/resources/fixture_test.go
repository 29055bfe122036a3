package resources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

var errCrash = errors.New("the process has crashed")

// disk is a store that commits one write at a time. A test crashes the process at a commit.
type disk struct {
	store.Store

	mu         sync.Mutex
	before     func()             // called once, before the next commit
	crashAt    int                // number of the commit that crashes, counted from the next one; 0: none
	crashAfter bool               // the crash is after that commit, not before
	onWrite    func(store.Record) // called for each written record
	writes     int                // commits that were not refused
}

func (d *disk) Commit(_ context.Context, w *store.Write, done func(error)) error {
	err := d.commit(w)
	done(err)
	return err
}

func (d *disk) commit(w *store.Write) error {
	d.mu.Lock()
	first := d.before
	d.before = nil
	d.mu.Unlock()
	if first != nil {
		first()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	crash := d.crashAt == 1
	if d.crashAt > 0 {
		d.crashAt--
	}
	if crash && !d.crashAfter {
		return errCrash
	}
	results := make([]store.Result, 1)
	if err := d.Store.Commit([]*store.Write{w}, results); err != nil {
		return err
	}
	if results[0].Err == nil {
		d.writes++
		for _, op := range w.Ops {
			if rec, ok := op.(*store.PutRecord); ok && d.onWrite != nil {
				d.onWrite(store.Record(*rec))
			}
		}
	}
	if crash {
		return errCrash
	}
	return results[0].Err
}

// begin is the time at which the tests begin.
var begin = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a registry on a store in memory.
type fixture struct {
	*testing.T
	disk     *disk
	registry *Store
	now      time.Time
	events   []string
	entries  map[string]int // reported counts, by kind and status
	leases   map[State]int
	failed   int                     // calls of OnRegistryError
	ended    map[arcp.SessionID]bool // sessions
	mu       sync.Mutex
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, disk: &disk{Store: mem.Open(mem.Options{})}, now: begin, entries: map[string]int{},
		leases: map[State]int{}, ended: map[arcp.SessionID]bool{}}
	t.Cleanup(func() { _ = f.disk.Close() })
	f.boot()
	return f
}

func (f *fixture) Lives(id arcp.SessionID) bool { return !f.ended[id] }

func (f *fixture) DeferEnd(_ context.Context, id arcp.SessionID) (release func(), err error) {
	if !f.Lives(id) {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")
	}
	return func() {}, nil
}

// boot starts the registry again on the same store.
func (f *fixture) boot() {
	f.Helper()
	clear(f.entries)
	clear(f.leases)
	locked := func(update func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		update()
	}
	f.registry = NewStore(Options{Log: f.disk, Store: f.disk, Retention: time.Hour, Sessions: f,
		OnEntryCount:    func(kind string, s Status, more int) { locked(func() { f.entries[kind+" "+string(s)] += more }) },
		OnLeaseCount:    func(s State, more int) { locked(func() { f.leases[s] += more }) },
		OnRegistryError: func() { locked(func() { f.failed++ }) },
		OnEvent: func(_ context.Context, event string, payload any) {
			locked(func() {
				switch p := payload.(type) {
				case Entry:
					event += " " + p.ResourceID
				case Lease:
					event += " " + p.ExternalID
				}
				f.events = append(f.events, strings.TrimPrefix(event, "resource."))
			})
		}})
	if err := f.registry.Load(context.Background()); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) after(d time.Duration) { f.now = f.now.Add(d) }

// want fails the test unless something holds.
func (f *fixture) want(why string, ok bool, format string, args ...any) {
	f.Helper()
	if !ok {
		f.Errorf("%s: %s", why, fmt.Sprintf(format, args...))
	}
}

func (f *fixture) wantCode(why string, err error, code arcp.Code) {
	f.Helper()
	e, ok := errors.AsType[*arcp.Error](err)
	f.want(why, ok && e.Code == code, "error %v, want %s", err, code)
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) register(e Entry) Entry {
	f.Helper()
	if e.Session == "" {
		e.Session = "sess_a"
	}
	e.Principal = "alice"
	got, err := f.registry.Register(f.Context(), f.now, e)
	f.must(err)
	return got
}

var alice = Holder{Principal: "alice", Session: "sess_a", Job: "job_1"}

func sandbox(id string, seconds int64) LeaseRequest {
	return LeaseRequest{Identity: Identity{"cloud", "sandbox", id}, Seconds: seconds}
}

func (f *fixture) acquire(h Holder, a LeaseRequest) Lease {
	f.Helper()
	l, err := f.registry.Acquire(f.Context(), f.now, h, a)
	f.must(err)
	return l
}

func (f *fixture) lease(l Lease) Lease {
	f.Helper()
	got, err := f.registry.Lease(f.Context(), l.Principal, l.ID)
	f.must(err)
	return got
}

// keys returns the keys of the records with a prefix.
func (f *fixture) keys(prefix string) (keys []string) {
	f.Helper()
	f.must(f.disk.Records(context.Background(), prefix, "", func(rec store.Record) bool {
		keys = append(keys, rec.Key)
		return true
	}))
	return keys
}

func (f *fixture) put(rec store.Record) error {
	return f.disk.commit(store.NewWrite().Put(rec))
}
