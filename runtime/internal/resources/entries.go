package resources

import (
	"cmp"
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

// entryTable has the entries of all sessions. Its quota counts the stored rows of each session,
// and those that are being written.
type entryTable struct {
	*base
	table records.Table[Entry]
	quota *quota[arcp.SessionID]
}

type entryRow = records.Row[Entry]

func newEntryTable(b *base) *entryTable {
	return &entryTable{b, records.Table[Entry]{Reader: b.opts.Store}, newQuota[arcp.SessionID](MaxEntries, "resources of a session")}
}

func (t *entryTable) load(ctx context.Context) error {
	return t.scan(ctx, entryPrefix, func(row entryRow) bool {
		t.quota.add(row.Value.Session, 1)
		t.opts.OnEntryCount(row.Value.Kind, row.Value.Status, 1)
		return true
	})
}

// usable reports whether a row can be used. An unreadable one is logged and left out, an
// unknown status is logged and stays.
func (t *entryTable) usable(row *entryRow, bad error) bool {
	switch {
	case bad != nil:
		t.report(row.Key, func(ev *zerolog.Event) { ev.Err(bad).Msg("a resource cannot be read and is left out") })
		row.Value = Entry{}
		return false
	case row.Rev == 0:
		return false
	case !row.Value.Status.Known():
		t.report(row.Key, func(ev *zerolog.Event) {
			ev.Str("status", string(row.Value.Status)).Msg("a resource has a status that this version does not know")
		})
	}
	row.Value.Metadata = metadata(row.Value.Metadata)
	return true
}

// scan calls fn for the usable rows with a prefix until it returns false.
func (t *entryTable) scan(ctx context.Context, prefix string, fn func(entryRow) bool) error {
	return t.table.Scan(ctx, prefix, "", func(row entryRow, bad error) bool { return !t.usable(&row, bad) || fn(row) })
}

// get reads a row. entry is nil if there is none, or it is unreadable.
func (t *entryTable) get(ctx context.Context, session arcp.SessionID, id string) (row entryRow, entry *Entry, err error) {
	rec, err := t.opts.Store.Get(ctx, entryKey(session, id))
	if err != nil {
		return row, nil, err
	}
	row, bad := t.table.Decode(rec)
	if t.usable(&row, bad) {
		entry = &row.Value
	}
	return row, entry, nil
}

// Register adds an entry, or replaces the one with the same session and resource_id. Session,
// Principal, ResourceID and Kind are required; an empty Status is Active.
func (t *entryTable) Register(ctx context.Context, now time.Time, e Entry) (next Entry, err error) {
	e.Status, e.Metadata = cmp.Or(e.Status, Active), metadata(e.Metadata)
	if err := e.check(); err != nil {
		return e, err
	}
	err = records.Retry(func() error {
		release, err := t.opts.Sessions.DeferEnd(ctx, e.Session)
		if err != nil {
			return err
		}
		row, old, err := t.get(ctx, e.Session, e.ResourceID)
		if err != nil {
			release()
			return err
		}
		next = e
		next.CreatedAt, next.UpdatedAt = roundTime(now), roundTime(now)
		if old != nil {
			next.CreatedAt = old.CreatedAt
		}
		return t.put(ctx, row, old, next, release)
	})
	return next, err
}

// put replaces a row. old is its entry; nil: it has none. after is called once, when the row is
// written or will not be.
func (t *entryTable) put(ctx context.Context, row entryRow, old *Entry, e Entry, after func()) error {
	rec, err := row.Put(&e)
	if err == nil && row.Rev == 0 {
		err = t.quota.reserve(e.Session)
	}
	if err != nil {
		after()
		return err
	}
	err = t.commit(ctx, []store.Record{rec}, func(err error) {
		defer after()
		switch {
		case err == nil:
			t.count(old, &e)
		case row.Rev == 0:
			t.quota.add(e.Session, -1)
		}
	})
	if err == nil {
		t.notify(ctx, old, &e)
	}
	return err
}

// count changes the counts of kinds and statuses. old is nil for a new entry, e for a deleted
// one.
func (t *entryTable) count(old, e *Entry) {
	if old != nil {
		t.opts.OnEntryCount(old.Kind, old.Status, -1)
	}
	if e != nil {
		t.opts.OnEntryCount(e.Kind, e.Status, 1)
	}
}

// notify calls OnEvent for a change of an entry. e is nil for a deleted one.
func (t *entryTable) notify(ctx context.Context, old, e *Entry) {
	switch {
	case e == nil:
		t.opts.OnEvent(ctx, EventDeregistered, *old)
	case e.Status == Released && (old == nil || old.Status != Released):
		t.opts.OnEvent(ctx, EventReleased, *e)
	case old == nil:
		t.opts.OnEvent(ctx, EventRegistered, *e)
	default:
		t.opts.OnEvent(ctx, EventUpdated, *e)
	}
}

func noResource(id string) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such resource: %s", clip.Text(id, MaxResourceID))
}

// Entry returns an entry of a session: NOT_FOUND if there is none.
func (t *entryTable) Entry(ctx context.Context, session arcp.SessionID, id string) (Entry, error) {
	_, e, err := t.get(ctx, session, id)
	switch {
	case err != nil:
		return Entry{}, err
	case e == nil:
		return Entry{}, noResource(id)
	}
	return *e, nil
}

// UpdateStatus changes the status of an entry.
func (t *entryTable) UpdateStatus(ctx context.Context, now time.Time, session arcp.SessionID, id string, s Status) (next Entry, err error) {
	if !s.Known() {
		return Entry{}, invalid("status: %q is none of active, completed, failed, released", s)
	}
	err = records.Retry(func() error {
		row, old, err := t.get(ctx, session, id)
		switch {
		case err != nil:
			return err
		case old == nil:
			return noResource(id)
		}
		next = *old
		next.Status, next.UpdatedAt = s, roundTime(now)
		return t.put(ctx, row, old, next, func() {})
	})
	return next, err
}

// Deregister deletes an entry and reports whether there was one.
func (t *entryTable) Deregister(ctx context.Context, session arcp.SessionID, id string) (removed bool, err error) {
	err = records.Retry(func() error {
		row, _, err := t.get(ctx, session, id)
		if removed = row.Rev != 0 && err == nil; !removed {
			return err
		}
		return t.delete(ctx, session, row)
	})
	return removed && err == nil, err
}

// delete deletes rows of a session together.
func (t *entryTable) delete(ctx context.Context, session arcp.SessionID, rows ...entryRow) error {
	var deletions []store.Record
	var entries []*Entry
	for i := range rows {
		deletions = append(deletions, rows[i].Delete())
		if rows[i].Value.ResourceID != "" {
			entries = append(entries, &rows[i].Value)
		}
	}
	err := t.commit(ctx, deletions, func(err error) {
		if err != nil {
			return
		}
		t.quota.add(session, -len(deletions))
		for _, e := range entries {
			t.count(e, nil)
		}
	})
	for i := 0; i < len(entries) && err == nil; i++ {
		t.notify(ctx, entries[i], nil)
	}
	return err
}

// EntryPosition is the position of an entry in the list of its session.
type EntryPosition struct {
	CreatedAt  time.Time
	ResourceID string
}

// compare orders positions, the newest first.
func (p EntryPosition) compare(q EntryPosition) int {
	return cmp.Or(q.CreatedAt.Compare(p.CreatedAt), cmp.Compare(q.ResourceID, p.ResourceID))
}

// Entries calls fn for the entries of a session with the kind and the status, each unless it
// is empty, behind a position, the newest first, until fn returns false.
func (t *entryTable) Entries(ctx context.Context, session arcp.SessionID, kind string, status Status,
	after *EntryPosition, fn func(*Entry) bool) error {
	var positions []EntryPosition // the rows themselves may be large
	err := t.scan(ctx, sessionPrefix(session), func(row entryRow) bool {
		if e := &row.Value; (kind == "" || e.Kind == kind) && (status == "" || e.Status == status) {
			if p := (EntryPosition{e.CreatedAt, e.ResourceID}); after == nil || p.compare(*after) > 0 {
				positions = append(positions, p)
			}
		}
		return true
	})
	slices.SortFunc(positions, EntryPosition.compare)
	for i := 0; i < len(positions) && err == nil; i++ {
		var e *Entry
		if _, e, err = t.get(ctx, session, positions[i].ResourceID); e != nil && !fn(e) {
			return nil
		}
	}
	return err
}

// Sweep deletes entries of sessions that have ended. It starts behind the key from, reads at
// most step sessions and rows, and returns the key for the next call; "": it has reached the
// end.
func (t *entryTable) Sweep(ctx context.Context, from string, step int) (next string, err error) {
	for range step {
		id, end, err := records.NextGroup(ctx, t.opts.Store, entryPrefix, from)
		if err != nil || id == "" {
			return "", err
		}
		if t.opts.Sessions.Lives(arcp.SessionID(id)) {
			from = end
			continue
		}
		from = sessionPrefix(arcp.SessionID(id))
		if n, err := t.sweepSession(ctx, arcp.SessionID(id), step); err != nil || n == step {
			return from, err
		}
	}
	return from, nil
}

// EndSession deletes the entries of a session that ends, in the transaction of ctx if there is
// one.
func (t *entryTable) EndSession(ctx context.Context, id arcp.SessionID) error {
	_, err := t.sweepSession(ctx, id, maxEndEntries)
	return err
}

// maxEndEntries bounds the entries that are deleted in the write that ends a session. No session has
// more.
const maxEndEntries = MaxEntries

// sweepSession deletes at most n entries of a session together, and returns their number.
// After a conflict it returns n: there may be others.
func (t *entryTable) sweepSession(ctx context.Context, id arcp.SessionID, n int) (int, error) {
	var rows []entryRow
	err := t.table.Scan(ctx, sessionPrefix(id), "", func(row entryRow, bad error) bool {
		t.usable(&row, bad)
		rows = append(rows, row)
		return len(rows) < n
	})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	err = t.delete(ctx, id, rows...)
	if errors.Is(err, store.ErrConflict) {
		return n, nil
	}
	return len(rows), err
}
