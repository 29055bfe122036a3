package resources

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

// The events of OnEvent.
const (
	EventRegistered    = "resource.registered"
	EventUpdated       = "resource.updated"
	EventReleased      = "resource.released"
	EventDeregistered  = "resource.deregistered"
	EventCleanupFailed = "resource.cleanup_failed"
)

// Options of a Store. They do not change after NewStore. The functions must neither block nor
// call the Store.
type Options struct {
	Log    records.Committer
	Store  records.Reader
	Logger zerolog.Logger

	// Retention is the time after which a released lease is deleted; not positive: never.
	Retention time.Duration

	// Sessions own the entries. The leases of an ended session are in no registry.
	Sessions Sessions

	// OnEntryCount and OnLeaseCount, if set, receive every change of the number of entries and leases.
	OnEntryCount func(kind string, status Status, more int)
	OnLeaseCount func(state State, more int)

	// OnRegistryError, if set, is called when a change of a lease could not be listed in the registry.
	OnRegistryError func()

	// OnEvent, if set, is called for each event, when it is durable or staged in the
	// transaction of ctx. The payload is an Entry, or the Lease of EventCleanupFailed.
	OnEvent func(ctx context.Context, event string, payload any)
}

// Sessions are the sessions that own entries; see session.Directory.
type Sessions interface {
	// Lives reports whether a session has not ended durably.
	Lives(id arcp.SessionID) bool
	// DeferEnd delays the end of a session until release is called. An ended session is refused
	// with FAILED_PRECONDITION.
	DeferEnd(ctx context.Context, id arcp.SessionID) (release func(), err error)
}

// Store has the entries and the leases. Its methods may be called by any goroutine after Load.
// They return an *arcp.Error for a mistake of the caller, and another error if the store fails.
type Store struct {
	opts *Options
	*entryTable
	*leaseTable
}

// NewStore returns a Store that is not loaded.
func NewStore(o Options) *Store {
	if o.OnEntryCount == nil {
		o.OnEntryCount = func(string, Status, int) {}
	}
	if o.OnLeaseCount == nil {
		o.OnLeaseCount = func(State, int) {}
	}
	if o.OnRegistryError == nil {
		o.OnRegistryError = func() {}
	}
	if o.OnEvent == nil {
		o.OnEvent = func(context.Context, string, any) {}
	}
	b := &base{opts: &o, reported: make(map[string]bool)}
	entries := newEntryTable(b)
	return &Store{&o, entries, newLeaseTable(b, entries)}
}

// Load counts the stored entries and leases. It is called once, before any other method.
func (s *Store) Load(ctx context.Context) error {
	return errors.Join(s.entryTable.load(ctx), s.leaseTable.load(ctx))
}

// base is shared by the tables of a Store.
type base struct {
	opts *Options

	mu       sync.Mutex
	reported map[string]bool // keys of unreadable or unknown rows; at most maxReported
}

// maxReported bounds the keys in reported. Problems of other rows are logged each time.
const maxReported = 1024

// report logs a problem of a row, once.
func (b *base) report(key string, log func(*zerolog.Event)) {
	b.mu.Lock()
	known := b.reported[key]
	if !known && len(b.reported) < maxReported {
		b.reported[key] = true
	}
	b.mu.Unlock()
	if !known {
		log(b.opts.Logger.Warn().Str("record", key))
	}
}

// commit makes records durable. A write that has begun is waited for even if ctx ends: the
// counts in memory must follow the store. done changes them; see records.Committer.
func (b *base) commit(ctx context.Context, list []store.Record, done func(error)) error {
	if ctx.Err() != nil {
		done(context.Cause(ctx))
		return context.Cause(ctx)
	}
	return b.opts.Log.Commit(context.WithoutCancel(ctx), store.NewWrite().Put(list...), done)
}

// quota counts the rows of each owner and bounds their number.
type quota[K comparable] struct {
	max   int
	owned string // names the rows in the refusal

	mu sync.Mutex
	n  map[K]int // by id of the owner: the rows outlive the process and name their owners by id
}

func newQuota[K comparable](max int, owned string) *quota[K] {
	return &quota[K]{max: max, owned: owned, n: make(map[K]int)}
}

// reserve counts a row that is about to be written: RESOURCE_EXHAUSTED if there are too many.
func (q *quota[K]) reserve(owner K) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n[owner] >= q.max {
		return arcp.Errorf(arcp.CodeResourceExhausted,
			"limit of %d %s reached: release or deregister what is not needed any more", q.max, q.owned)
	}
	q.n[owner]++
	return nil
}

// add changes the number of rows of an owner.
func (q *quota[K]) add(owner K, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n[owner] += n; q.n[owner] <= 0 {
		delete(q.n, owner)
	}
}

func hasCode(err error, code arcp.Code) bool {
	e, ok := errors.AsType[*arcp.Error](err)
	return ok && e.Code == code
}
