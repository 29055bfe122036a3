package registry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/store"
)

// row is a lease as it was read.
type row struct {
	Lease
	rev uint64
}

// pointer is what a row under an identity or a time says: which lease it is.
type pointer struct {
	Principal string       `json:"principal"`
	ID        arcp.LeaseID `json:"lease_id"`
}

func noLease(id arcp.LeaseID) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such lease: %s", clip.Text(string(id), arcp.MaxIDLen))
}

// read reads a lease of a principal; NOT_FOUND if there is none.
func (b *Store) read(ctx context.Context, principal string, id arcp.LeaseID) (row, error) {
	rec, err := b.opts.Store.Get(ctx, leaseKey(principal, id))
	if err != nil {
		return row{}, err
	}
	if rec.Rev != 0 {
		if l, ok := b.lease(rec); ok && l.ID == id {
			return row{l, rec.Rev}, nil
		}
	}
	return row{}, noLease(id)
}

// Lease returns a lease of a principal; NOT_FOUND if there is none.
func (b *Store) Lease(ctx context.Context, principal string, id arcp.LeaseID) (Lease, error) {
	r, err := b.read(ctx, principal, id)
	return r.Lease, err
}

// indexOf is the row under a time that a lease has; "": none.
func (b *Store) indexOf(l *Lease) string {
	if due := l.Due(); !due.IsZero() {
		return timeKey(duePrefix, due, l.ID)
	}
	if l.State == Gone && b.opts.Retention > 0 {
		return timeKey(oldPrefix, l.ReleasedAt.Add(b.opts.Retention), l.ID)
	}
	return ""
}

// change writes a lease in place of what was read, with the rows that lead to it;
// old is nil for a new one, which was reserved, and is not any more if it is not
// written.
func (b *Store) change(ctx context.Context, old *row, next *Lease) (conflict bool, err error) {
	records, err := b.changeRecords(ctx, old, next)
	lease := *next
	done := func(err error) {
		switch {
		case err == nil:
			b.noteLease(old, &lease)
		case old == nil:
			giveBack(&b.mu, b.leases, lease.Principal)
		}
	}
	if err != nil {
		done(err)
		return false, err
	}
	return b.commit(ctx, records, done)
}

// changeRecords are the records of a change.
func (b *Store) changeRecords(ctx context.Context, old *row, next *Lease) (records []store.Record, err error) {
	raw, err := arcp.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", next.ID, err)
	}
	lead, err := arcp.Marshal(pointer{next.Principal, next.ID})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", next.ID, err)
	}
	rec := store.Record{Key: leaseKey(next.Principal, next.ID), Value: raw}
	was, is := "", b.indexOf(next)
	if old != nil {
		rec.Rev, was = old.rev, b.indexOf(&old.Lease)
	}
	records = []store.Record{rec}
	if was != is {
		more, err := b.reindex(ctx, was, is, lead)
		if err != nil {
			return nil, err
		}
		records = append(records, more...)
	}
	switch {
	case old == nil:
		records = append(records, store.Record{Key: identityKey(&next.Identity), Value: lead})
	case next.State == Gone && old.State != Gone:
		return b.unname(ctx, records, next)
	}
	return records, nil
}

// reindex moves the row under a time. The revisions that are read hold as long as
// that of the lease does: each is written with it.
func (b *Store) reindex(ctx context.Context, was, is string, lead arcp.Raw) (records []store.Record, err error) {
	if was != "" {
		rec, err := b.opts.Store.Get(ctx, was)
		if err != nil {
			return nil, err
		}
		if rec.Rev != 0 {
			records = append(records, store.Record{Key: was, Rev: rec.Rev})
		}
	}
	if is != "" {
		rec, err := b.opts.Store.Get(ctx, is)
		if err != nil {
			return nil, err
		}
		records = append(records, store.Record{Key: is, Rev: rec.Rev, Value: lead})
	}
	return records, nil
}

// unname frees the identity of a lease.
func (b *Store) unname(ctx context.Context, records []store.Record, l *Lease) ([]store.Record, error) {
	rec, p, err := b.named(ctx, &l.Identity)
	if err == nil && p.ID == l.ID {
		records = append(records, store.Record{Key: rec.Key, Rev: rec.Rev})
	}
	return records, err
}

// named reads which lease an identity has; its ID is empty if there is none.
func (b *Store) named(ctx context.Context, i *Identity) (rec store.Record, p pointer, err error) {
	rec, err = b.opts.Store.Get(ctx, identityKey(i))
	if err == nil && rec.Rev != 0 {
		if err = arcp.Unmarshal(rec.Value, &p); err != nil {
			err = fmt.Errorf("record %s: %w", rec.Key, err)
		}
	}
	return rec, p, err
}

// noteLease counts what has become of a lease.
func (b *Store) noteLease(old *row, next *Lease) {
	if old != nil && old.State != Gone {
		b.opts.Leases(old.State, -1)
	}
	if next.State != Gone {
		b.opts.Leases(next.State, 1)
	} else if old != nil && old.State != Gone {
		giveBack(&b.mu, b.leases, next.Principal)
	}
}

// Take takes a lease in the name of a holder, or refreshes the one there is on the
// same identity. It is durable when Take returns; that the registry shows it is
// attempted, and reported if it fails.
func (b *Store) Take(ctx context.Context, now time.Time, h Holder, a Ask) (Lease, error) {
	if err := a.check(); err != nil {
		return Lease{}, err
	}
	if h.Principal == "" {
		return Lease{}, errors.New("a lease needs a principal")
	}
	now = exact(now)
	for {
		old, next, err := b.take(ctx, now, h, &a)
		if err != nil {
			return Lease{}, err
		}
		if next == nil { // it was changed meanwhile
			continue
		}
		if old != nil && old.Session != "" && old.Session != h.Session {
			b.show(ctx, now, &old.Lease, Released)
		}
		if !a.Unlisted {
			b.show(ctx, now, next, Active)
		}
		return *next, nil
	}
}

// take returns the lease and what it was before; next is nil after a conflict.
func (b *Store) take(ctx context.Context, now time.Time, h Holder, a *Ask) (old *row, next *Lease, err error) {
	_, p, err := b.named(ctx, &a.Identity)
	if err != nil {
		return nil, nil, err
	}
	if p.ID == "" {
		return b.takeNew(ctx, now, h, a)
	}
	found, err := b.read(ctx, p.Principal, p.ID)
	if err != nil {
		if isNotFound(err) { // released meanwhile, or unreadable
			return nil, nil, b.still(ctx, a, p, err)
		}
		return nil, nil, err
	}
	l, refused := found.Refreshed(now, h, a)
	if refused != nil {
		if found.State == Gone { // released meanwhile
			return nil, nil, b.still(ctx, a, p, refused)
		}
		return nil, nil, refused
	}
	conflict, err := b.change(ctx, &found, &l)
	if conflict || err != nil {
		return nil, nil, err
	}
	return &found, &l, nil
}

// still returns err if an identity leads where it led before.
func (b *Store) still(ctx context.Context, a *Ask, p pointer, err error) error {
	_, now, failed := b.named(ctx, &a.Identity)
	if failed == nil && now == p {
		return err
	}
	return failed
}

func (b *Store) takeNew(ctx context.Context, now time.Time, h Holder, a *Ask) (*row, *Lease, error) {
	if err := reserve(&b.mu, b.leases, h.Principal, MaxLeases, "leases of a principal"); err != nil {
		return nil, nil, err
	}
	l := newLease(now, arcp.LeaseID(arcp.NewID(arcp.LeasePrefix)), h, a)
	if conflict, err := b.change(ctx, nil, &l); conflict || err != nil {
		return nil, nil, err
	}
	return nil, &l, nil
}

// show has the registry of the lease's session say what has become of it. That it
// cannot costs the lease nothing.
func (b *Store) show(ctx context.Context, now time.Time, l *Lease, s Status) {
	if l.Session == "" || !b.opts.Lives(l.Session) {
		return
	}
	var err error
	if s == Active {
		_, err = b.Register(ctx, now, l.entry(s))
	} else if _, err = b.UpdateStatus(ctx, now, l.Session, string(l.ID), s); isNotFound(err) {
		err = nil // it was deregistered
	}
	if err != nil {
		b.opts.RegistryFailed()
		b.opts.Logger.Error().Err(err).Str("lease_id", string(l.ID)).Str("status", string(s)).Msg("the registry does not show what has become of a lease")
	}
}

// alter changes a lease of a principal.
func (b *Store) alter(ctx context.Context, principal string, id arcp.LeaseID, with func(Lease) (Lease, *arcp.Error)) (Lease, error) {
	for {
		old, err := b.read(ctx, principal, id)
		if err != nil {
			return Lease{}, err
		}
		next, refused := with(old.Lease)
		switch {
		case refused != nil:
			return Lease{}, refused
		case old.State == Gone: // as it stays
			return next, nil
		}
		conflict, err := b.change(ctx, &old, &next)
		if err != nil || !conflict {
			return next, err
		}
	}
}

// Touch has a lease last for its whole duration again.
func (b *Store) Touch(ctx context.Context, now time.Time, principal string, id arcp.LeaseID) (Lease, error) {
	return b.alter(ctx, principal, id, func(l Lease) (Lease, *arcp.Error) { return l.Touched(exact(now)) })
}

// Release ends a lease: its owner says that there is nothing to clean up any more.
// One that is released already stays as it is.
func (b *Store) Release(ctx context.Context, now time.Time, principal string, id arcp.LeaseID) (Lease, error) {
	var was State
	l, err := b.alter(ctx, principal, id, func(l Lease) (Lease, *arcp.Error) {
		was = l.State
		return l.LetGo(exact(now)), nil
	})
	if err == nil && was != Gone {
		b.show(ctx, now, &l, Released)
	}
	return l, err
}

// Leases calls fn for the leases of a principal, the newest first, or those of
// everybody, principal by principal, from behind a key on, until fn returns false.
// fn is given the key to go on from.
func (b *Store) Leases(ctx context.Context, principal, after string, fn func(key string, l *Lease) bool) error {
	return b.opts.Store.Records(ctx, leasesOf(principal), after, func(rec store.Record) bool {
		l, ok := b.lease(rec)
		return !ok || fn(rec.Key, &l)
	})
}

// Find looks for a lease of anybody. It looks once a principal, however many leases
// there are of each.
func (b *Store) Find(ctx context.Context, id arcp.LeaseID) (Lease, error) {
	for after := ""; ; {
		first := ""
		err := b.opts.Store.Records(ctx, leasePrefix, after, func(rec store.Record) bool {
			first = rec.Key
			return false
		})
		if err != nil {
			return Lease{}, err
		}
		own, _, ok := strings.Cut(strings.TrimPrefix(first, leasePrefix), "/")
		if !ok {
			return Lease{}, noLease(id)
		}
		after = leasePrefix + own + "/\xff" // behind all of this principal
		principal, err := url.PathUnescape(own)
		if err != nil {
			continue
		}
		if r, err := b.read(ctx, principal, id); !isNotFound(err) {
			return r.Lease, err
		}
	}
}

// Forget deletes leases that were released longer ago than the retention, a number
// at most, together; more says whether there may be others.
func (b *Store) Forget(ctx context.Context, now time.Time, step int) (more bool, err error) {
	var gone []store.Record
	var keys []string
	err = b.opts.Store.Records(ctx, oldPrefix, "", func(rec store.Record) bool {
		if timeOf(rec.Key, oldPrefix).After(now) {
			return false
		}
		gone = append(gone, store.Record{Key: rec.Key, Rev: rec.Rev})
		var p pointer
		if arcp.Unmarshal(rec.Value, &p) == nil {
			keys = append(keys, leaseKey(p.Principal, p.ID))
		}
		return len(gone) < step
	})
	if err != nil || len(gone) == 0 {
		return false, err
	}
	n := len(gone)
	for _, key := range slices.Compact(keys) {
		rec, err := b.opts.Store.Get(ctx, key)
		if err != nil {
			return false, err
		}
		if rec.Rev != 0 {
			gone = append(gone, store.Record{Key: key, Rev: rec.Rev})
		}
	}
	_, err = b.commit(ctx, gone, func(error) {}) // a conflict is for the next time
	return n == step, err
}
