package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/store"
)

// Committer makes writes durable. Many goroutines may call it.
type Committer interface {
	// Commit makes a write durable, or part of the call that ctx belongs to: then it
	// returns nil at once, and the write becomes durable with that call. done is called
	// once when the write is durable or will not be. It must not block.
	Commit(ctx context.Context, w *store.Write, done func(error)) error
}

// Reader is the part of a store.Store that is read.
type Reader interface {
	Get(ctx context.Context, key string) (store.Record, error)
	Records(ctx context.Context, prefix, after string, fn func(store.Record) bool) error
}

// The events of OnEvent.
const (
	EventRegistered    = "resource.registered"
	EventUpdated       = "resource.updated"
	EventReleased      = "resource.released"
	EventDeregistered  = "resource.deregistered"
	EventCleanupFailed = "resource.cleanup_failed"
)

// Options of a Book. They are not changed after use. The functions must neither
// block nor call the book.
type Options struct {
	Log    Committer
	Store  Reader
	Logger zerolog.Logger

	// Retention is how long a released lease is kept; zero or negative: for ever.
	Retention time.Duration

	// Lives, if set, reports whether a session has not ended for good. What is leased
	// in the name of one that has is in no registry.
	Lives func(arcp.SessionID) bool

	// Entries and Leases, if set, count: by how many more there are of a kind.
	Entries func(kind string, status Status, more int)
	Leases  func(state State, more int)

	// RegistryFailed, if set, is told that the registry does not show what has become
	// of a lease.
	RegistryFailed func()

	// OnEvent, if set, is told of what happened, after it is durable or while it is still
	// a part of the call that ctx belongs to: an Entry, or the Lease whose clean-up has
	// failed.
	OnEvent func(ctx context.Context, event string, payload any)
}

// Store keeps entries and leases. Its methods may be called by many goroutines,
// after Load. They return *arcp.Error for what the caller did wrong, and any other
// error for the store.
type Store struct {
	opts Options

	mu      sync.Mutex
	entries map[arcp.SessionID]int // of each session
	leases  map[string]int         // of each principal, not released
	odd     map[string]bool        // keys of rows that were reported already; bounded by maxOdd
}

// maxOdd bounds the rows of which it is remembered that they were reported.
const maxOdd = 1024

// NewStore returns a book.
func NewStore(o Options) *Store {
	if o.Lives == nil {
		o.Lives = func(arcp.SessionID) bool { return true }
	}
	if o.Entries == nil {
		o.Entries = func(string, Status, int) {}
	}
	if o.Leases == nil {
		o.Leases = func(State, int) {}
	}
	if o.RegistryFailed == nil {
		o.RegistryFailed = func() {}
	}
	if o.OnEvent == nil {
		o.OnEvent = func(context.Context, string, any) {}
	}
	return &Store{opts: o, entries: make(map[arcp.SessionID]int), leases: make(map[string]int), odd: make(map[string]bool)}
}

// Load counts what there is. It is called once, before anything else.
func (b *Store) Load(ctx context.Context) error {
	err := b.opts.Store.Records(ctx, entryPrefix, "", func(rec store.Record) bool {
		if e, ok := b.entry(rec); ok {
			b.entries[e.Session]++
			b.opts.Entries(e.Kind, e.Status, 1)
		}
		return true
	})
	return errors.Join(err, b.opts.Store.Records(ctx, leasePrefix, "", func(rec store.Record) bool {
		if l, ok := b.lease(rec); ok && l.State != Gone {
			b.leases[l.Principal]++
			b.opts.Leases(l.State, 1)
		}
		return true
	}))
}

// entry reads a row. One that cannot be read is reported and left out; a status
// that this version does not know is reported and stays.
func (b *Store) entry(rec store.Record) (e Entry, ok bool) {
	if err := arcp.Unmarshal(rec.Value, &e); err != nil {
		b.report(rec.Key, func(ev *zerolog.Event) { ev.Err(err).Msg("a resource cannot be read and is left out") })
		return e, false
	}
	if !e.Status.Known() {
		b.report(rec.Key, func(ev *zerolog.Event) {
			ev.Str("status", string(e.Status)).Msg("a resource has a status that this version does not know")
		})
	}
	e.Metadata = metadata(e.Metadata)
	return e, true
}

// lease reads a row as entry does.
func (b *Store) lease(rec store.Record) (l Lease, ok bool) {
	if err := arcp.Unmarshal(rec.Value, &l); err != nil {
		b.report(rec.Key, func(ev *zerolog.Event) { ev.Err(err).Msg("a lease of a resource cannot be read and is left out") })
		return l, false
	}
	if !l.State.Known() {
		b.report(rec.Key, func(ev *zerolog.Event) {
			ev.Str("state", string(l.State)).Msg("a lease of a resource has a state that this version does not know: it is not cleaned up")
		})
	}
	return l, true
}

// report logs something about a row, once.
func (b *Store) report(key string, log func(*zerolog.Event)) {
	b.mu.Lock()
	known := b.odd[key]
	if !known && len(b.odd) < maxOdd {
		b.odd[key] = true
	}
	b.mu.Unlock()
	if !known {
		log(b.opts.Logger.Warn().Str("record", key))
	}
}

// reserve counts one more in m, or refuses.
func reserve[K comparable](mu *sync.Mutex, m map[K]int, k K, most int, what string) *arcp.Error {
	mu.Lock()
	defer mu.Unlock()
	if m[k] >= most {
		return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d %s reached: release or deregister what is not needed any more", most, what)
	}
	m[k]++
	return nil
}

func giveBack[K comparable](mu *sync.Mutex, m map[K]int, k K) {
	mu.Lock()
	defer mu.Unlock()
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}

// commit makes a change durable; conflict says that a row was changed meanwhile. done
// follows the change in memory; see Committer. A write that has begun is waited for
// whatever becomes of ctx: what is counted has to be what is stored.
func (b *Store) commit(ctx context.Context, records []store.Record, done func(error)) (conflict bool, err error) {
	if ctx.Err() != nil {
		done(context.Cause(ctx))
		return false, context.Cause(ctx)
	}
	err = b.opts.Log.Commit(context.WithoutCancel(ctx), store.NewWrite().Put(records...), done)
	if errors.Is(err, store.ErrConflict) {
		return true, nil
	}
	return false, err
}

// Register enters a resource, or replaces what there is under its session and
// resource_id. Session, Principal, ResourceID and Kind are required; an empty
// Status is Active.
func (b *Store) Register(ctx context.Context, now time.Time, e Entry) (Entry, error) {
	e.Status, e.Metadata = cmp.Or(e.Status, Active), metadata(e.Metadata)
	if err := e.check(); err != nil {
		return e, err
	}
	key := entryKey(e.Session, e.ResourceID)
	for {
		rec, err := b.opts.Store.Get(ctx, key)
		if err != nil {
			return e, err
		}
		var old *Entry
		if rec.Rev != 0 {
			if was, ok := b.entry(rec); ok {
				old = &was
			}
		}
		next := e.replaced(exact(now), old)
		conflict, err := b.putEntry(ctx, rec, old, &next)
		if err != nil || !conflict {
			return next, err
		}
	}
}

// putEntry writes an entry in place of what was read.
func (b *Store) putEntry(ctx context.Context, rec store.Record, old, e *Entry) (conflict bool, err error) {
	raw, err := arcp.Marshal(e)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", e.ResourceID, err)
	}
	if rec.Rev == 0 {
		if err := reserve(&b.mu, b.entries, e.Session, MaxEntries, "resources of a session"); err != nil {
			return false, err
		}
	}
	entry := *e
	conflict, err = b.commit(ctx, []store.Record{{Key: rec.Key, Rev: rec.Rev, Value: raw}}, func(err error) {
		switch {
		case err == nil:
			b.countEntry(old, &entry)
		case rec.Rev == 0:
			giveBack(&b.mu, b.entries, entry.Session)
		}
	})
	if err == nil && !conflict {
		b.tellEntry(ctx, old, e)
	}
	return conflict, err
}

// countEntry counts a change of an entry. old is nil for a new one, e for one that is
// deleted.
func (b *Store) countEntry(old, e *Entry) {
	if old != nil {
		b.opts.Entries(old.Kind, old.Status, -1)
	}
	if e != nil {
		b.opts.Entries(e.Kind, e.Status, 1)
	}
}

// tellEntry tells OnEvent of a change of an entry.
func (b *Store) tellEntry(ctx context.Context, old, e *Entry) {
	switch {
	case e == nil:
		b.opts.OnEvent(ctx, EventDeregistered, *old)
	case e.Status == Released && (old == nil || old.Status != Released):
		b.opts.OnEvent(ctx, EventReleased, *e)
	case old == nil:
		b.opts.OnEvent(ctx, EventRegistered, *e)
	default:
		b.opts.OnEvent(ctx, EventUpdated, *e)
	}
}

func noResource(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such resource: %s", clip.Text(id, MaxResourceID))
}

// Entry returns a resource of a session; NOT_FOUND if there is none.
func (b *Store) Entry(ctx context.Context, session arcp.SessionID, id string) (Entry, error) {
	rec, err := b.opts.Store.Get(ctx, entryKey(session, id))
	if err != nil {
		return Entry{}, err
	}
	if rec.Rev != 0 {
		if e, ok := b.entry(rec); ok {
			return e, nil
		}
	}
	return Entry{}, noResource(id)
}

// UpdateStatus changes the status of a resource.
func (b *Store) UpdateStatus(ctx context.Context, now time.Time, session arcp.SessionID, id string, s Status) (Entry, error) {
	if !s.Known() {
		return Entry{}, invalid("status: %q is none of active, completed, failed, released", s)
	}
	key := entryKey(session, id)
	for {
		rec, err := b.opts.Store.Get(ctx, key)
		if err != nil {
			return Entry{}, err
		}
		old, ok := b.entryIn(rec)
		if !ok {
			return Entry{}, noResource(id)
		}
		next := old
		next.Status, next.UpdatedAt = s, exact(now)
		conflict, err := b.putEntry(ctx, rec, &old, &next)
		if err != nil || !conflict {
			return next, err
		}
	}
}

func (b *Store) entryIn(rec store.Record) (Entry, bool) {
	if rec.Rev == 0 {
		return Entry{}, false
	}
	return b.entry(rec)
}

// Deregister removes a resource and reports whether there was one.
func (b *Store) Deregister(ctx context.Context, session arcp.SessionID, id string) (bool, error) {
	for {
		rec, err := b.opts.Store.Get(ctx, entryKey(session, id))
		if err != nil || rec.Rev == 0 {
			return false, err
		}
		conflict, err := b.delete(ctx, session, rec)
		if err != nil {
			return false, err
		}
		if !conflict {
			return true, nil
		}
	}
}

// delete removes rows of a session together.
func (b *Store) delete(ctx context.Context, session arcp.SessionID, rows ...store.Record) (conflict bool, err error) {
	var gone []store.Record
	var entries []*Entry
	for _, rec := range rows {
		gone = append(gone, store.Record{Key: rec.Key, Rev: rec.Rev})
		if e, ok := b.entryIn(rec); ok {
			entries = append(entries, &e)
		}
	}
	conflict, err = b.commit(ctx, gone, func(err error) {
		if err != nil {
			return
		}
		for range gone {
			giveBack(&b.mu, b.entries, session)
		}
		for _, e := range entries {
			b.countEntry(e, nil)
		}
	})
	for i := 0; i < len(entries) && err == nil && !conflict; i++ {
		b.tellEntry(ctx, entries[i], nil)
	}
	return conflict, err
}

// EntryPosition is the position of an entry in the list of its session.
type EntryPosition struct {
	CreatedAt  time.Time
	ResourceID string
}

// before orders places, the newest first.
func (p EntryPosition) before(q EntryPosition) int {
	return cmp.Or(q.CreatedAt.Compare(p.CreatedAt), cmp.Compare(q.ResourceID, p.ResourceID))
}

// Entries calls fn for the entries of a session with the kind and the status, each unless it
// is empty, behind a position, the newest first, until fn returns false.
func (b *Store) Entries(ctx context.Context, session arcp.SessionID, kind string, status Status, after *EntryPosition, fn func(*Entry) bool) error {
	var places []EntryPosition // the rows themselves may be large
	err := b.opts.Store.Records(ctx, sessionPrefix(session), "", func(rec store.Record) bool {
		if e, ok := b.entry(rec); ok && (kind == "" || e.Kind == kind) && (status == "" || e.Status == status) {
			if p := (EntryPosition{e.CreatedAt, e.ResourceID}); after == nil || p.before(*after) > 0 {
				places = append(places, p)
			}
		}
		return true
	})
	slices.SortFunc(places, EntryPosition.before)
	for i := 0; i < len(places) && err == nil; i++ {
		var e Entry
		switch e, err = b.Entry(ctx, session, places[i].ResourceID); {
		case isNotFound(err):
			err = nil
		case err == nil && !fn(&e):
			return nil
		}
	}
	return err
}

func isNotFound(err error) bool {
	e, ok := errors.AsType[*arcp.Error](err)
	return ok && e.Code == arcp.CodeNotFound
}

// Sweep removes entries of sessions that have ended for good, going through a
// number of rows and sessions from a place on, and returns where to go on; "": it
// has been through all.
func (b *Store) Sweep(ctx context.Context, from string, step int) (next string, err error) {
	for range step {
		first := ""
		err := b.opts.Store.Records(ctx, entryPrefix, from, func(rec store.Record) bool {
			first = rec.Key
			return false
		})
		if err != nil || first == "" {
			return "", err
		}
		own, _, _ := strings.Cut(first[len(entryPrefix):], "/")
		id, err := url.PathUnescape(own)
		if err != nil || b.opts.Lives(arcp.SessionID(id)) {
			from = entryPrefix + own + "/\xff" // behind all of this session
			continue
		}
		from = entryPrefix + own + "/"
		if n, err := b.sweepSession(ctx, arcp.SessionID(id), step); err != nil || n == step {
			return from, err
		}
	}
	return from, nil
}

// EndSession removes the entries of a session that ends, in the transaction of ctx if there
// is one. Of very many it removes the first; Sweep removes the others.
func (b *Store) EndSession(ctx context.Context, id arcp.SessionID) error {
	_, err := b.sweepSession(ctx, id, endStep)
	return err
}

// endStep bounds the entries that are removed in the write that ends a session.
const endStep = 1000

// sweepSession removes entries of a session, a number at most, together.
func (b *Store) sweepSession(ctx context.Context, id arcp.SessionID, most int) (n int, err error) {
	var rows []store.Record
	err = b.opts.Store.Records(ctx, sessionPrefix(id), "", func(rec store.Record) bool {
		rows = append(rows, rec)
		return len(rows) < most
	})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	if conflict, err := b.delete(ctx, id, rows...); conflict || err != nil {
		return most, err // the next time
	}
	return len(rows), nil
}
