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

var errCrash = errors.New("the process has died")

// disk is a store that commits one write at a time and may die at any of them.
type disk struct {
	store.Store

	mu      sync.Mutex
	before  func()             // run once, before the next commit
	dies    int                // at which commit from now on; 0: none
	delayed bool               // it dies after that commit, not before
	wrote   func(store.Record) // called for every written record
	writes  int                //
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
	dies := d.dies == 1
	if d.dies > 0 {
		d.dies--
	}
	if dies && !d.delayed {
		return errCrash
	}
	results := make([]store.Result, 1)
	if err := d.Store.Commit([]*store.Write{w}, results); err != nil {
		return err
	}
	if results[0].Err == nil {
		d.writes++
		for _, op := range w.Ops {
			if rec, ok := op.(*store.PutRecord); ok && d.wrote != nil {
				d.wrote(store.Record(*rec))
			}
		}
	}
	if dies {
		return errCrash
	}
	return results[0].Err
}

// begin is the time at which the stories begin.
var begin = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a book on a store in memory.
type fixture struct {
	*testing.T
	disk     *disk
	registry *Store
	now      time.Time
	events   []string
	entries  map[string]int // as counted, by kind and status
	leases   map[State]int
	lost     int // changes that the registry could not show
	dead     map[arcp.SessionID]bool
	mu       sync.Mutex
}

func newFixture(t *testing.T) *fixture {
	r := &fixture{T: t, disk: &disk{Store: mem.Open(mem.Options{})}, now: begin, entries: map[string]int{}, leases: map[State]int{}, dead: map[arcp.SessionID]bool{}}
	t.Cleanup(func() { _ = r.disk.Close() })
	r.boot()
	return r
}

func (r *fixture) Lives(id arcp.SessionID) bool { return !r.dead[id] }

func (r *fixture) DeferEnd(_ context.Context, id arcp.SessionID) (release func(), err error) {
	if !r.Lives(id) {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")
	}
	return func() {}, nil
}

// boot begins anew on the same store.
func (r *fixture) boot() {
	r.Helper()
	clear(r.entries)
	clear(r.leases)
	locked := func(f func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
	}
	r.registry = NewStore(Options{Log: r.disk, Store: r.disk, Retention: time.Hour, Sessions: r,
		Entries:        func(kind string, s Status, more int) { locked(func() { r.entries[kind+" "+string(s)] += more }) },
		Leases:         func(s State, more int) { locked(func() { r.leases[s] += more }) },
		RegistryFailed: func() { locked(func() { r.lost++ }) },
		OnEvent: func(_ context.Context, event string, payload any) {
			locked(func() {
				switch p := payload.(type) {
				case Entry:
					event += " " + p.ResourceID
				case Lease:
					event += " " + p.ExternalID
				}
				r.events = append(r.events, strings.TrimPrefix(event, "resource."))
			})
		}})
	if err := r.registry.Load(context.Background()); err != nil {
		r.Fatal(err)
	}
}

func (r *fixture) after(d time.Duration) { r.now = r.now.Add(d) }

// want fails the test unless something holds.
func (r *fixture) want(why string, ok bool, format string, args ...any) {
	r.Helper()
	if !ok {
		r.Errorf("%s: %s", why, fmt.Sprintf(format, args...))
	}
}

func (r *fixture) wantCode(why string, err error, code arcp.Code) {
	r.Helper()
	e, ok := errors.AsType[*arcp.Error](err)
	r.want(why, ok && e.Code == code, "error %v, want %s", err, code)
}

func (r *fixture) no(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *fixture) register(e Entry) Entry {
	r.Helper()
	if e.Session == "" {
		e.Session = "sess_a"
	}
	e.Principal = "alice"
	got, err := r.registry.Register(r.Context(), r.now, e)
	r.no(err)
	return got
}

var alice = Holder{Principal: "alice", Session: "sess_a", Job: "job_1"}

func sandbox(id string, seconds int64) LeaseRequest {
	return LeaseRequest{Identity: Identity{"cloud", "sandbox", id}, Seconds: seconds}
}

func (r *fixture) take(h Holder, a LeaseRequest) Lease {
	r.Helper()
	l, err := r.registry.Acquire(r.Context(), r.now, h, a)
	r.no(err)
	return l
}

func (r *fixture) lease(l Lease) Lease {
	r.Helper()
	got, err := r.registry.Lease(r.Context(), l.Principal, l.ID)
	r.no(err)
	return got
}

// keys are the records that begin with a prefix.
func (r *fixture) keys(prefix string) (keys []string) {
	r.Helper()
	r.no(r.disk.Records(context.Background(), prefix, "", func(rec store.Record) bool {
		keys = append(keys, rec.Key)
		return true
	}))
	return keys
}

func (r *fixture) put(rec store.Record) error {
	err := r.disk.commit(store.NewWrite().Put(rec))
	return err
}
