package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agentref"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/records"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// maxOverlayBytes bounds the overlays of all sessions of a principal together. They are in
// memory as long as the sessions live.
const maxOverlayBytes = 16 << 20

// Overlay is the change of a session to its catalog. The zero value changes nothing.
type Overlay struct {
	Revision uint64           // changes so far
	Overlay  *catalog.Overlay // nil: it changes nothing
}

// overlayPrefix begins the keys of the records; the session's id follows.
const overlayPrefix = "overlay/"

// OverlayRecord is an overlay as it is stored.
type OverlayRecord struct {
	Revision    uint64   `json:"revision"`
	IncludeBase bool     `json:"include_base"`
	Tools       []string `json:"tools,omitzero"`
	Hide        []string `json:"hide,omitzero"`
	Prompts     []string `json:"prompts,omitzero"`
}

// Record returns the overlay as it is stored.
func (o Overlay) Record() OverlayRecord {
	rec := OverlayRecord{Revision: o.Revision, IncludeBase: true}
	if l := o.Overlay; l != nil {
		rec.IncludeBase, rec.Tools, rec.Hide, rec.Prompts = l.IncludeBase, l.Tools, l.Hide, l.Prompts
	}
	return rec
}

// overlay returns the overlay of a record.
func (r *OverlayRecord) overlay() (Overlay, error) {
	overlay, refused := catalog.ParseOverlay(catalog.Overlay{IncludeBase: r.IncludeBase, Tools: r.Tools, Hide: r.Hide, Prompts: r.Prompts})
	if refused != nil {
		return Overlay{}, refused
	}
	return Overlay{r.Revision, overlay}, nil
}

func (o Overlay) size() (n int) {
	if o.Overlay == nil {
		return 0
	}
	for _, list := range [...][]string{o.Overlay.Tools, o.Overlay.Hide, o.Overlay.Prompts} {
		for _, s := range list {
			n += len(s)
		}
	}
	return n
}

// Overlay returns the overlay of the session.
func (s *Session) Overlay() Overlay {
	if o := s.overlay.Load(); o != nil {
		return *o
	}
	return Overlay{}
}

// Catalog returns the tools that a session sees, also after its end if it has jobs. An unknown
// session, or none, has no overlay.
func (d *Directory) Catalog(id arcp.SessionID, principal string, trust arcp.TrustLevel) *catalog.Snapshot {
	var overlay *catalog.Overlay
	if id != "" {
		d.mu.Lock()
		s := d.byID[id]
		d.mu.Unlock()
		if s != nil {
			overlay = s.Overlay().Overlay
		}
	}
	return d.opts.Catalog.Snapshot(catalog.Viewer{Trust: trust, Principal: principal}, overlay)
}

// loadOverlaysLocked reads the overlays of the loaded sessions, and of Ended ones that may have
// jobs.
func (d *Directory) loadOverlaysLocked(ctx context.Context) error {
	var failed error
	err := d.overlays().Scan(ctx, overlayPrefix, "", func(row records.Row[OverlayRecord], bad error) bool {
		var o Overlay
		if failed = bad; failed == nil {
			o, failed = row.Value.overlay()
		}
		if failed != nil {
			failed = fmt.Errorf("%s: %w", row.Key, failed)
			return false
		}
		id := arcp.SessionID(strings.TrimPrefix(row.Key, overlayPrefix))
		s := d.byID[id]
		if s == nil {
			s = &Session{ID: id, dir: d, state: Ended, end: &endState{written: true}}
			d.byID[id], d.ended[s] = s, struct{}{}
		}
		d.putOverlayLocked(s, o)
		return true
	})
	return errors.Join(err, failed)
}

func (d *Directory) overlays() records.Table[OverlayRecord] {
	return records.Table[OverlayRecord]{Reader: d.opts.Store}
}

// OverlayChange is a request to set the overlay of a session.
type OverlayChange struct {
	Trust      arcp.TrustLevel // of the session
	Overlay    *catalog.Overlay
	Revision   *uint64 // of the overlay that is changed; nil: any
	Generation *uint64 // of the tools that the overlay was made for; nil: any
}

// SetOverlay sets the overlay of a session, durably or in the transaction of ctx. done is
// called when a changed overlay is in effect. An error of type *arcp.Error changes nothing:
// FAILED_PRECONDITION for another revision or generation, RESOURCE_EXHAUSTED if the overlays
// of the principal would be too large, or an error of catalog.Catalog.Check.
func (d *Directory) SetOverlay(ctx context.Context, s *Session, q OverlayChange, done func()) (Overlay, *catalog.Snapshot, error) {
	snap, refused := d.opts.Catalog.Check(catalog.Viewer{Trust: q.Trust, Principal: s.Principal}, q.Overlay)
	if refused != nil {
		return Overlay{}, nil, refused
	}
	if q.Generation != nil && *q.Generation != snap.Generation() {
		return Overlay{}, nil, agentref.Mismatch("generation", *q.Generation, snap.Generation())
	}
	old := s.Overlay()
	switch {
	case q.Revision != nil && *q.Revision != old.Revision:
		return Overlay{}, nil, agentref.Mismatch("revision of the overlay", *q.Revision, old.Revision)
	case old.Overlay.Same(q.Overlay):
		return old, snap, nil
	}
	next := Overlay{old.Revision + 1, q.Overlay}
	if refused := d.checkOverlaySize(s, next); refused != nil {
		return Overlay{}, nil, refused
	}
	if err := d.writeOverlay(ctx, s, next, done); err != nil {
		return Overlay{}, nil, fmt.Errorf("write the overlay: %w", err)
	}
	return next, snap, nil
}

func (d *Directory) checkOverlaySize(s *Session, next Overlay) *arcp.Error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ownerLocked(s.Principal).overlayBytes+next.size()-s.Overlay().size() > maxOverlayBytes {
		return arcp.Errorf(arcp.CodeResourceExhausted, "the overlays of your sessions would have more than %d bytes together", maxOverlayBytes)
	}
	return nil
}

// writeOverlay replaces the overlay of a session. Only calls of the session change it, one
// after the other.
func (d *Directory) writeOverlay(ctx context.Context, s *Session, next Overlay, done func()) error {
	release, err := d.DeferEnd(ctx, s.ID)
	if err != nil {
		return err
	}
	rec, err := d.overlayRecord(ctx, s.ID, next)
	if err != nil {
		release()
		return err
	}
	return txn.Committer{Log: d.opts.Log}.Commit(ctx, store.NewWrite().Put(rec), func(err error) {
		if err == nil {
			d.mu.Lock()
			d.putOverlayLocked(s, next)
			d.mu.Unlock()
			done()
		}
		release()
	})
}

// overlayRecord returns the record that replaces the overlay of a session.
func (d *Directory) overlayRecord(ctx context.Context, id arcp.SessionID, next Overlay) (store.Record, error) {
	row, err := d.overlays().Get(ctx, overlayPrefix+string(id))
	if err != nil {
		return store.Record{}, err
	}
	return row.Put(new(next.Record()))
}

// deleteOverlay deletes the record of an overlay, if there is one, durably or in the
// transaction of ctx.
func (d *Directory) deleteOverlay(ctx context.Context, id arcp.SessionID) error {
	rec, err := d.opts.Store.Get(ctx, overlayPrefix+string(id))
	if err != nil || rec.Rev == 0 {
		return err
	}
	w := &store.Write{Ops: []store.Op{&store.PutRecord{Key: rec.Key, Rev: rec.Rev}}, NoSync: true}
	return txn.Committer{Log: d.opts.Log}.Commit(ctx, w, func(error) {})
}
