package tool

import (
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/arcpd/arcpd/arcp"
)

// Viewer holds the principal and the trust level that select the tools of a session.
type Viewer struct {
	Trust     string // one of TrustLevels; another text counts as the lowest level
	Principal string // argument of Capability.Audience
}

func (v Viewer) rank() int { return max(trustRank(v.Trust), 0) }

// Bounds of the cached snapshots. Each snapshot has some 200 bytes of its own.
const (
	maxSnapshots    = 4096
	maxOverlayBytes = 16 << 20 // of the overlays of all cached snapshots
)

// Catalog creates snapshots of a registry for viewers with overlays. It caches the most recently
// used snapshots of the current generation; sessions with equal keys share a snapshot. Many
// goroutines may use a Catalog.
type Catalog struct {
	reg   *Registry
	hooks atomic.Pointer[hooks]
	cache *lru.Cache[snapshotKey, func() *Snapshot]

	overlayBytes atomic.Int64 // of the cached snapshots
}

// snapshotKey holds the values that determine a snapshot.
type snapshotKey struct {
	base      *base
	hooks     *hooks
	overlay   *Overlay
	rank      int
	principal string // empty if no tool of the base is restricted
}

// NewCatalog returns a catalogue of a registry with hooks before each call.
func NewCatalog(r *Registry, before []Hook) *Catalog {
	c := &Catalog{reg: r}
	var err error
	c.cache, err = lru.NewWithEvict(maxSnapshots, func(k snapshotKey, _ func() *Snapshot) { c.overlayBytes.Add(-k.overlay.bytes()) })
	if err != nil { // the size is positive
		panic("tool: " + err.Error())
	}
	c.SetHooks(before)
	r.Watch(func(uint64) { c.cache.Purge() }) // nothing requests older generations
	return c
}

// SetHooks replaces the hooks of later snapshots.
func (c *Catalog) SetHooks(hooks []Hook) {
	for {
		old := c.hooks.Load()
		if c.hooks.CompareAndSwap(old, newHooks(old, hooks)) {
			c.cache.Purge()
			return
		}
	}
}

// HookRevision returns the number of calls of SetHooks, NewCatalog's included.
func (c *Catalog) HookRevision() uint64 { return c.hooks.Load().revision }

// Snapshot returns the current catalogue of a viewer with an overlay; nil is no overlay. The
// overlay may name tools that are not registered.
func (c *Catalog) Snapshot(v Viewer, o *Overlay) *Snapshot {
	k := snapshotKey{base: c.reg.state.Load(), hooks: c.hooks.Load(), overlay: o, rank: v.rank()}
	if len(k.base.restricted) > 0 {
		k.principal = v.Principal
	}
	if compose, ok := c.cache.Get(k); ok {
		return compose()
	}
	return c.compose(k)
}

// compose creates the snapshot of a key. Concurrent calls with the same key create one snapshot.
func (c *Catalog) compose(k snapshotKey) *Snapshot {
	compose := sync.OnceValue(func() *Snapshot { return newSnapshot(&k) })
	if first, ok, _ := c.cache.PeekOrAdd(k, compose); ok {
		return first()
	}
	for n := c.overlayBytes.Add(k.overlay.bytes()); n > maxOverlayBytes; n = c.overlayBytes.Load() {
		if _, _, ok := c.cache.RemoveOldest(); !ok {
			break
		}
	}
	return compose()
}

// Check returns the snapshot with a new overlay. The error is the error of Resolve for a tool in
// Overlay.Tools that does not exist.
func (c *Catalog) Check(v Viewer, o *Overlay) (*Snapshot, *arcp.Error) {
	if o != nil {
		plain := c.Snapshot(v, nil)
		for _, ref := range o.Tools {
			if _, err := plain.Resolve(ref); err != nil {
				return nil, err
			}
		}
	}
	return c.Snapshot(v, o), nil
}

func newSnapshot(k *snapshotKey) *Snapshot {
	s := &Snapshot{base: k.base, hooks: k.hooks, overlay: k.overlay, rank: k.rank, principal: k.principal}
	for _, t := range k.base.restricted {
		if !t.VisibleTo(k.principal) {
			s.refused = append(s.refused, t)
		}
	}
	return s
}
