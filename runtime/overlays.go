package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// maxOverlayBytes bounds what the overlays of all sessions of a principal have
// together: they are kept in memory as long as the sessions live.
const maxOverlayBytes = 16 << 20

// overlays are what sessions have made of their catalogues. The zero value is
// ready for use, by any number of goroutines.
type overlays struct {
	mu    sync.RWMutex
	of    map[arcp.SessionID]overlay
	bytes map[string]int // by principal
}

// overlay is that of one session. The zero value is that of one that never set any.
type overlay struct {
	revision  uint64      // real changes so far
	layer     *tool.Layer // nil: it changes nothing
	principal string
}

// overlayRecord is an overlay as it is kept.
type overlayRecord struct {
	Revision    uint64   `json:"revision"`
	IncludeBase bool     `json:"include_base"`
	Tools       []string `json:"tools,omitzero"`
	Hide        []string `json:"hide,omitzero"`
	Prompts     []string `json:"prompts,omitzero"`
}

// overlayPrefix begins the keys of the records; the session's id follows.
const overlayPrefix = "overlay/"

func (o *overlay) size() (n int) {
	if o.layer == nil {
		return 0
	}
	for _, list := range [...][]string{o.layer.Tools, o.layer.Hide, o.layer.Prompts} {
		for _, s := range list {
			n += len(s)
		}
	}
	return n
}

func (o *overlay) record() overlayRecord {
	rec := overlayRecord{Revision: o.revision, IncludeBase: true}
	if l := o.layer; l != nil {
		rec.IncludeBase, rec.Tools, rec.Hide, rec.Prompts = l.IncludeBase, l.Tools, l.Hide, l.Prompts
	}
	return rec
}

func readOverlay(rec *store.Record, principal string) (overlay, error) {
	var r overlayRecord
	if err := arcp.Unmarshal(rec.Value, &r); err != nil {
		return overlay{}, fmt.Errorf("%s: %w", rec.Key, err)
	}
	layer, refused := tool.NewLayer(tool.Overlay{IncludeBase: r.IncludeBase, Tools: r.Tools, Hide: r.Hide, Prompts: r.Prompts})
	if refused != nil {
		return overlay{}, fmt.Errorf("%s: %w", rec.Key, refused)
	}
	return overlay{r.Revision, layer, principal}, nil
}

func (o *overlays) find(id arcp.SessionID) overlay {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.of[id]
}

// put takes an overlay over.
func (o *overlays) put(id arcp.SessionID, next overlay) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.of[id]
	if o.of == nil {
		o.of, o.bytes = make(map[arcp.SessionID]overlay), make(map[string]int)
	}
	o.of[id] = next
	o.countLocked(next.principal, next.size()-old.size())
}

func (o *overlays) countLocked(principal string, d int) {
	if o.bytes[principal] += d; o.bytes[principal] == 0 {
		delete(o.bytes, principal)
	}
}

// take forgets an overlay and reports whether there was one.
func (o *overlays) take(id arcp.SessionID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, ok := o.of[id]
	if ok {
		delete(o.of, id)
		o.countLocked(old.principal, -old.size())
	}
	return ok
}

// owners are the sessions that have set one.
func (o *overlays) owners() []arcp.SessionID {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Collect(maps.Keys(o.of))
}

// room refuses an overlay in place of another one if it is too large.
func (o *overlays) room(old, next *overlay) *arcp.Error {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.bytes[next.principal]+next.size()-old.size() > maxOverlayBytes {
		return arcp.Errorf(arcp.CodeResourceExhausted, "the overlays of your sessions would have more than %d bytes together", maxOverlayBytes)
	}
	return nil
}

// catalogue is what a session of a principal that is trusted so much sees of the
// tools, now.
func (r *Runtime) catalogue(id arcp.SessionID, principal, trust string) *tool.Snapshot {
	var layer *tool.Layer
	if id != "" {
		layer = r.overlays.find(id).layer
	}
	return r.catalog.Snapshot(tool.Viewer{Trust: trust, Principal: principal}, layer)
}

// loadOverlays reads the overlays of the sessions there are, and of those that
// have ended but may have jobs: sweepOverlays looks at them.
func (r *Runtime) loadOverlays(ctx context.Context) error {
	var bad error
	err := r.cfg.Store.Records(ctx, overlayPrefix, "", func(rec store.Record) bool {
		id := arcp.SessionID(strings.TrimPrefix(rec.Key, overlayPrefix))
		m, _ := r.members.find(id)
		var o overlay
		if o, bad = readOverlay(&rec, m.principal); bad != nil {
			return false
		}
		r.overlays.put(id, o)
		return true
	})
	return errors.Join(err, bad)
}

// sweepOverlays deletes the overlays of sessions that have ended, and whose jobs
// have, too.
func (r *Runtime) sweepOverlays() {
	for _, id := range r.overlays.owners() {
		if _, lives := r.members.find(id); !lives {
			r.dropOverlay(id)
		}
	}
}

// dropOverlay deletes the overlay of a session that has ended. While it has jobs
// that is left to a later sweep: what was hidden from them stays hidden.
func (r *Runtime) dropOverlay(id arcp.SessionID) {
	if r.engine.HasJobs(id) {
		return
	}
	if !r.overlays.take(id) {
		return
	}
	r.pool.Run(func() { // which reads the store
		if err := r.deleteOverlay(id); err != nil { // the next start looks at it again
			r.cfg.Log.Warn().Err(err).Str("session_id", string(id)).Msg("delete the overlay of a session")
		}
	})
}

func (r *Runtime) deleteOverlay(id arcp.SessionID) error {
	ctx := context.Background()
	rec, err := r.cfg.Store.Get(ctx, overlayPrefix+string(id))
	if err != nil || rec.Rev == 0 {
		return err
	}
	_, err = r.log.Commit(ctx, &store.Write{Records: []store.Record{{Key: rec.Key, Rev: rec.Rev}}, NoSync: true})
	return err
}

// overlayChange is a request to set an overlay.
type overlayChange struct {
	session    arcp.SessionID
	trust      string
	layer      *tool.Layer
	revision   *uint64 // that it is a change of; nil: whatever there is
	generation *uint64 // of the tools that it was made for; nil: any
}

// setOverlay sets a session's overlay, durably. What it was stays in force if it
// is refused, or if it is the same.
func (r *Runtime) setOverlay(ctx context.Context, q overlayChange) (overlay, *tool.Snapshot, error) {
	m, lives := r.members.find(q.session)
	if !lives {
		return overlay{}, nil, arcp.Errorf(arcp.CodeFailedPrecondition, "only a session has an overlay, and yours has ended")
	}
	snap, refused := r.catalog.Check(tool.Viewer{Trust: q.trust, Principal: m.principal}, q.layer)
	if refused != nil {
		return overlay{}, nil, refused
	}
	if q.generation != nil && *q.generation != snap.Generation() {
		return overlay{}, nil, tool.Mismatch("generation", *q.generation, snap.Generation())
	}
	old := r.overlays.find(q.session)
	switch {
	case q.revision != nil && *q.revision != old.revision:
		return overlay{}, nil, tool.Mismatch("revision of the overlay", *q.revision, old.revision)
	case old.layer.Same(q.layer):
		return old, snap, nil
	}
	next := overlay{old.revision + 1, q.layer, m.principal}
	if refused := r.overlays.room(&old, &next); refused != nil {
		return overlay{}, nil, refused
	}
	if err := r.writeOverlay(ctx, q.session, next); err != nil {
		return overlay{}, nil, fmt.Errorf("write the overlay: %w", err)
	}
	return next, snap, nil
}

// writeOverlay writes an overlay in place of the one there is. Only the calls of the
// session change it, one after the other.
func (r *Runtime) writeOverlay(ctx context.Context, id arcp.SessionID, next overlay) error {
	raw, err := arcp.Marshal(next.record())
	if err != nil {
		return err
	}
	rec, err := r.cfg.Store.Get(ctx, overlayPrefix+string(id))
	if err != nil {
		return err
	}
	w := &store.Write{Records: []store.Record{{Key: rec.Key, Rev: rec.Rev, Value: raw}}}
	return r.changes().Commit(ctx, w, func(err error) {
		if err != nil {
			return
		}
		r.overlays.put(id, next)
		r.announceTo(id)
		if _, lives := r.members.find(id); !lives { // it has ended meanwhile
			r.dropOverlay(id)
		}
	})
}
