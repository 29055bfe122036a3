package tool

import (
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/arcpd/arcpd/arcp"
)

// Viewer holds the principal and the trust level that select which tools a session sees.
type Viewer struct {
	Trust     string // one of TrustLevels; an unknown one counts as the lowest
	Principal string // argument of Capability.Audience
}

func (v Viewer) rank() int { return max(trustRank(v.Trust), 0) }

// Bounds of the cached snapshots. Each takes some 200 bytes beside what it shares.
const (
	maxSnapshots    = 4096
	maxOverlayBytes = 16 << 20 // of their overlays: sessions that have ended do not share theirs
)

// Catalog makes snapshots of a registry for viewers with overlays. It caches the latest used
// ones of the current generation; sessions with the same key share one. It may be used by
// many goroutines.
type Catalog struct {
	reg   *Registry
	hooks atomic.Pointer[hooks]
	cache *lru.Cache[snapshotKey, func() *Snapshot]

	overlayBytes atomic.Int64 // of the cached snapshots
}

// snapshotKey is all that a snapshot depends on.
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
	r.Watch(func(uint64) { c.cache.Purge() }) // snapshots of other generations are not asked for again
	return c
}

// SetHooks replaces the hooks for later snapshots.
func (c *Catalog) SetHooks(hooks []Hook) {
	for {
		old := c.hooks.Load()
		if c.hooks.CompareAndSwap(old, newHooks(old, hooks)) {
			c.cache.Purge()
			return
		}
	}
}

// HookRevision returns how often the hooks were set.
func (c *Catalog) HookRevision() uint64 { return c.hooks.Load().revision }

// Snapshot returns the current catalogue of a viewer with an overlay; nil is none. A tool
// that the overlay names and the registry lacks appears when it is registered.
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

// compose makes the snapshot of a key, once however many goroutines ask for it.
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

// Check returns the snapshot for an overlay that is to be set. It refuses an overlay that
// names a missing tool, with the error of Resolve.
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
		if !t.May(k.principal) {
			s.refused = append(s.refused, t)
		}
	}
	return s
}
