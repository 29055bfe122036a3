package resources

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/store"
)

// leaseTable has the leases of all principals, with an index of their identities and one of
// the times at which they are due or deleted. A lease and its index rows are written together.
// The quota counts the leases of each principal that are not released.
type leaseTable struct {
	*base
	entries  *entryTable // with an entry for each listed lease of a session
	table    records.Table[Lease]
	pointers records.Table[pointer]
	quota    *quota[string]
}

type leaseRow = records.Row[Lease]

// pointer is the value of an index row.
type pointer struct {
	Principal string       `json:"principal"`
	ID        arcp.LeaseID `json:"lease_id"`
}

func newLeaseTable(b *base, entries *entryTable) *leaseTable {
	return &leaseTable{b, entries, records.Table[Lease]{Reader: b.opts.Store}, records.Table[pointer]{Reader: b.opts.Store},
		newQuota[string](MaxLeases, "leases of a principal")}
}

func (t *leaseTable) load(ctx context.Context) error {
	return t.Leases(ctx, "", "", func(_ string, l *Lease) bool {
		if l.State != StateReleased {
			t.quota.add(l.Principal, 1)
			t.opts.OnLeaseCount(l.State, 1)
		}
		return true
	})
}

// usable reports whether a row is listed. An unreadable row is logged and not listed. A row with an
// unknown state is logged and listed.
func (t *leaseTable) usable(row *leaseRow, bad error) bool {
	switch {
	case bad != nil:
		t.report(row.Key, func(ev *zerolog.Event) { ev.Err(bad).Msg("a lease of a resource cannot be read and is left out") })
		return false
	case row.Rev == 0:
		return false
	case !row.Value.State.Known():
		t.report(row.Key, func(ev *zerolog.Event) {
			ev.Str("state", string(row.Value.State)).Msg("a lease of a resource has a state that this version does not know: it is not cleaned up")
		})
	}
	return true
}

func noLease(id arcp.LeaseID) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such lease: %s", clip.Text(string(id), arcp.MaxIDLen))
}

// read returns the row of a lease: NOT_FOUND if there is none.
func (t *leaseTable) read(ctx context.Context, principal string, id arcp.LeaseID) (leaseRow, error) {
	rec, err := t.opts.Store.Get(ctx, leaseKey(principal, id))
	if err != nil {
		return leaseRow{}, err
	}
	if row, bad := t.table.Decode(rec); t.usable(&row, bad) && row.Value.ID == id {
		return row, nil
	}
	return leaseRow{}, noLease(id)
}

// Lease returns a lease of a principal: NOT_FOUND if there is none.
func (t *leaseTable) Lease(ctx context.Context, principal string, id arcp.LeaseID) (Lease, error) {
	row, err := t.read(ctx, principal, id)
	return row.Value, err
}

// timeIndex returns the key of the lease in the index of times; "": it has none.
func (t *leaseTable) timeIndex(l *Lease) string {
	if due := l.Due(); !due.IsZero() {
		return timeKey(duePrefix, due, l.ID)
	}
	if l.State == StateReleased && t.opts.Retention > 0 {
		return timeKey(releasedPrefix, l.ReleasedAt.Add(t.opts.Retention), l.ID)
	}
	return ""
}

// put replaces a lease and its index rows; old is nil for a new lease, which the quota has
// reserved.
func (t *leaseTable) put(ctx context.Context, old *leaseRow, next Lease) error {
	list, err := t.changes(ctx, old, &next)
	done := func(err error) {
		switch {
		case err == nil:
			t.count(old, &next)
		case old == nil:
			t.quota.add(next.Principal, -1)
		}
	}
	if err != nil {
		done(err)
		return err
	}
	return t.commit(ctx, list, done)
}

// changes returns the records that replace a lease and its index rows.
func (t *leaseTable) changes(ctx context.Context, old *leaseRow, next *Lease) ([]store.Record, error) {
	row := leaseRow{Key: leaseKey(next.Principal, next.ID)}
	from, to := "", t.timeIndex(next)
	if old != nil {
		row, from = *old, t.timeIndex(&old.Value)
	}
	rec, err := row.Put(next)
	if err != nil {
		return nil, err
	}
	p := pointer{next.Principal, next.ID}
	list := []store.Record{rec}
	if from != to {
		if list, err = t.reindex(ctx, list, from, to, &p); err != nil {
			return nil, err
		}
	}
	switch {
	case old == nil:
		rec, err = records.Row[pointer]{Key: identityKey(&next.Identity)}.Put(&p)
		list = append(list, rec)
	case next.State == StateReleased && old.Value.State != StateReleased:
		var index records.Row[pointer]
		if index, err = t.readPointer(ctx, &next.Identity); err == nil && index.Value.ID == next.ID {
			list = append(list, index.Delete())
		}
	}
	return list, err
}

// reindex adds the records that move an index row from one key to another; each may be empty. An
// index row changes only together with its lease, so its revision is valid as long as the
// revision of the lease.
func (t *leaseTable) reindex(ctx context.Context, list []store.Record, from, to string, p *pointer) ([]store.Record, error) {
	if from != "" {
		rec, err := t.opts.Store.Get(ctx, from)
		if err != nil {
			return nil, err
		}
		if rec.Rev != 0 {
			list = append(list, store.Record{Key: from, Rev: rec.Rev})
		}
	}
	if to != "" {
		rec, err := t.opts.Store.Get(ctx, to)
		if err != nil {
			return nil, err
		}
		rec, err = records.Row[pointer]{Key: to, Rev: rec.Rev}.Put(p)
		if err != nil {
			return nil, err
		}
		list = append(list, rec)
	}
	return list, nil
}

// readPointer reads the index row of an identity.
func (t *leaseTable) readPointer(ctx context.Context, i *Identity) (records.Row[pointer], error) {
	return t.pointers.Get(ctx, identityKey(i))
}

// count changes the counts of leases after a change; old is nil for a new lease.
func (t *leaseTable) count(old *leaseRow, next *Lease) {
	counted := old != nil && old.Value.State != StateReleased
	if counted {
		t.opts.OnLeaseCount(old.Value.State, -1)
	}
	if next.State != StateReleased {
		t.opts.OnLeaseCount(next.State, 1)
	} else if counted {
		t.quota.add(next.Principal, -1)
	}
}

// Acquire adds a lease for a holder, or renews the lease of the same identity. It is durable
// when Acquire returns. A failure to list the lease in the registry is only reported.
func (t *leaseTable) Acquire(ctx context.Context, now time.Time, h Holder, a LeaseRequest) (next Lease, err error) {
	if err := a.check(); err != nil {
		return Lease{}, err
	}
	if h.Principal == "" {
		return Lease{}, errors.New("a lease needs a principal")
	}
	now = roundTime(now)
	var old *leaseRow
	err = records.Retry(func() (err error) {
		old, next, err = t.acquire(ctx, now, h, &a)
		return err
	})
	if err != nil {
		return Lease{}, err
	}
	if old != nil && old.Value.Session != "" && old.Value.Session != h.Session {
		t.updateEntry(ctx, now, &old.Value, Released)
	}
	if !a.Unlisted {
		t.updateEntry(ctx, now, &next, Active)
	}
	return next, nil
}

// acquire returns the lease and the row that it replaces, nil if it is new. The error is
// store.ErrConflict if the identity was released or leased meanwhile.
func (t *leaseTable) acquire(ctx context.Context, now time.Time, h Holder, a *LeaseRequest) (*leaseRow, Lease, error) {
	index, err := t.readPointer(ctx, &a.Identity)
	if err != nil {
		return nil, Lease{}, err
	}
	p := index.Value
	if p.ID == "" {
		if err := t.quota.reserve(h.Principal); err != nil {
			return nil, Lease{}, err
		}
		l := newLease(now, arcp.LeaseID(arcp.NewID(arcp.LeasePrefix)), h, a)
		return nil, l, t.put(ctx, nil, l)
	}
	found, err := t.read(ctx, p.Principal, p.ID)
	if hasCode(err, arcp.CodeNotFound) { // released meanwhile, or unreadable
		return nil, Lease{}, t.unlessReassigned(ctx, a, p, err)
	}
	if err != nil {
		return nil, Lease{}, err
	}
	l, refused := found.Value.Renewed(now, h, a)
	switch {
	case refused == nil:
		return &found, l, t.put(ctx, &found, l)
	case found.Value.State == StateReleased: // released meanwhile
		return nil, Lease{}, t.unlessReassigned(ctx, a, p, refused)
	}
	return nil, Lease{}, refused
}

// unlessReassigned returns err if the identity still has the pointer p, else store.ErrConflict.
func (t *leaseTable) unlessReassigned(ctx context.Context, a *LeaseRequest, p pointer, err error) error {
	now, failed := t.readPointer(ctx, &a.Identity)
	switch {
	case failed != nil:
		return failed
	case now.Value == p:
		return err
	}
	return store.ErrConflict
}

// updateEntry updates the entry of a lease in the registry of its session. A failure is counted and logged.
func (t *leaseTable) updateEntry(ctx context.Context, now time.Time, l *Lease, s Status) {
	if l.Session == "" || !t.opts.Sessions.Lives(l.Session) {
		return
	}
	var err error
	if s == Active {
		if _, err = t.entries.Register(ctx, now, l.entry(s)); hasCode(err, arcp.CodeFailedPrecondition) {
			err = nil // the session has ended meanwhile
		}
	} else if _, err = t.entries.UpdateStatus(ctx, now, l.Session, string(l.ID), s); hasCode(err, arcp.CodeNotFound) {
		err = nil // it was deregistered
	}
	if err != nil {
		t.opts.OnRegistryError()
		t.opts.Logger.Error().Err(err).Str("lease_id", string(l.ID)).Str("status", string(s)).
			Msg("the registry does not list the present status of a lease")
	}
}

// change replaces a lease of a principal by the result of update. A released lease does not change.
func (t *leaseTable) change(ctx context.Context, principal string, id arcp.LeaseID,
	update func(Lease) (Lease, *arcp.Error)) (next Lease, err error) {
	err = records.Retry(func() error {
		old, err := t.read(ctx, principal, id)
		if err != nil {
			return err
		}
		var refused *arcp.Error
		switch next, refused = update(old.Value); {
		case refused != nil:
			return refused
		case old.Value.State == StateReleased:
			return nil
		}
		return t.put(ctx, &old, next)
	})
	if err != nil {
		return Lease{}, err
	}
	return next, nil
}

// Touch extends a lease to its whole duration from now.
func (t *leaseTable) Touch(ctx context.Context, now time.Time, principal string, id arcp.LeaseID) (Lease, error) {
	return t.change(ctx, principal, id, func(l Lease) (Lease, *arcp.Error) { return l.Touched(roundTime(now)) })
}

// Release ends a lease without a clean-up. A released lease does not change.
func (t *leaseTable) Release(ctx context.Context, now time.Time, principal string, id arcp.LeaseID) (Lease, error) {
	var before State
	l, err := t.change(ctx, principal, id, func(l Lease) (Lease, *arcp.Error) {
		before = l.State
		return l.Released(roundTime(now)), nil
	})
	if err == nil && before != StateReleased {
		t.updateEntry(ctx, now, &l, Released)
	}
	return l, err
}

// Leases calls fn for the leases of a principal behind the key after, the newest first, until
// fn returns false. An empty principal stands for all, one after the other.
func (t *leaseTable) Leases(ctx context.Context, principal, after string, fn func(key string, l *Lease) bool) error {
	return t.table.Scan(ctx, leasesOf(principal), after, func(row leaseRow, bad error) bool {
		return !t.usable(&row, bad) || fn(row.Key, &row.Value)
	})
}

// Find returns a lease of any principal. It reads two records of each principal.
func (t *leaseTable) Find(ctx context.Context, id arcp.LeaseID) (Lease, error) {
	for after := ""; ; {
		principal, end, err := records.NextGroup(ctx, t.opts.Store, leasePrefix, after)
		switch {
		case err != nil:
			return Lease{}, err
		case principal == "":
			return Lease{}, noLease(id)
		}
		if l, err := t.Lease(ctx, principal, id); !hasCode(err, arcp.CodeNotFound) {
			return l, err
		}
		after = end
	}
}

// DeleteReleased deletes at most step leases together that were released before the retention; more
// reports whether there may be others.
func (t *leaseTable) DeleteReleased(ctx context.Context, now time.Time, step int) (more bool, err error) {
	var deletions []store.Record
	var keys []string
	err = t.pointers.Scan(ctx, releasedPrefix, "", func(row records.Row[pointer], bad error) bool {
		if timeOf(row.Key, releasedPrefix).After(now) {
			return false
		}
		deletions = append(deletions, row.Delete())
		if bad == nil {
			keys = append(keys, leaseKey(row.Value.Principal, row.Value.ID))
		}
		return len(deletions) < step
	})
	if err != nil || len(deletions) == 0 {
		return false, err
	}
	n := len(deletions)
	for _, key := range slices.Compact(keys) {
		rec, err := t.opts.Store.Get(ctx, key)
		if err != nil {
			return false, err
		}
		if rec.Rev != 0 {
			deletions = append(deletions, store.Record{Key: key, Rev: rec.Rev})
		}
	}
	if err = t.commit(ctx, deletions, func(error) {}); errors.Is(err, store.ErrConflict) {
		err = nil // the next call deletes them
	}
	return n == step, err
}
