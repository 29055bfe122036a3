// Package catalog composes the tools that a session sees: the registry, the overlay of the session
// and the hooks of the runtime. Resolving takes no lock. Sessions with equal keys share a snapshot.
package catalog

import (
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Viewer holds the principal and the trust level that select the tools of a session.
type Viewer struct {
	Trust     arcp.TrustLevel // an unknown level counts as the lowest one
	Principal string          // argument of tool.Capability.Audience
}

func (v Viewer) rank() int { return max(v.Trust.Rank(), 0) }

// Bounds of the cached snapshots. Each snapshot has some 200 bytes of its own.
const (
	maxSnapshots    = 4096
	maxOverlayBytes = 16 << 20 // of the overlays of all cached snapshots
)

// Catalog creates snapshots of a registry for viewers with overlays. It caches the most recently
// used snapshots of the current generation; sessions with equal keys share a snapshot. Many
// goroutines may use a Catalog.
type Catalog struct {
	reg   *tool.Registry
	hooks atomic.Pointer[hooks]
	cache *lru.Cache[snapshotKey, func() *Snapshot]
	all   atomic.Pointer[inventory] // of the latest state

	overlayBytes atomic.Int64 // of the cached snapshots
}

// snapshotKey holds the values that determine a snapshot.
type snapshotKey struct {
	base      *tool.State
	hooks     *hooks
	overlay   *Overlay
	rank      int
	principal string // empty if no tool of the base is restricted
}

// New returns a catalog of a registry with hooks before each call.
func New(r *tool.Registry, before []tool.Hook) *Catalog {
	c := &Catalog{reg: r}
	var err error
	c.cache, err = lru.NewWithEvict(maxSnapshots, func(k snapshotKey, _ func() *Snapshot) { c.overlayBytes.Add(-k.overlay.bytes()) })
	if err != nil { // the size is positive
		panic("catalog: " + err.Error())
	}
	c.SetHooks(before)
	r.Watch(func(uint64) { c.cache.Purge() }) // nothing requests older generations
	return c
}

// SetHooks replaces the hooks of later snapshots.
func (c *Catalog) SetHooks(hooks []tool.Hook) {
	for {
		old := c.hooks.Load()
		if c.hooks.CompareAndSwap(old, newHooks(old, hooks)) {
			c.cache.Purge()
			return
		}
	}
}

// HookRevision returns the number of calls of SetHooks, New's included.
func (c *Catalog) HookRevision() uint64 { return c.hooks.Load().revision }

// Snapshot returns the current catalog of a viewer with an overlay; nil is no overlay. The
// overlay may name tools that are not registered.
func (c *Catalog) Snapshot(v Viewer, o *Overlay) *Snapshot {
	k := snapshotKey{base: c.reg.State(), hooks: c.hooks.Load(), overlay: o, rank: v.rank()}
	if len(k.base.Restricted()) > 0 {
		k.principal = v.Principal
	}
	if compose, ok := c.cache.Get(k); ok {
		return compose()
	}
	return c.compose(k)
}

// compose creates the snapshot of a key. Concurrent calls with the same key create one snapshot.
func (c *Catalog) compose(k snapshotKey) *Snapshot {
	compose := sync.OnceValue(func() *Snapshot { return newSnapshot(c, &k) })
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

func newSnapshot(c *Catalog, k *snapshotKey) *Snapshot {
	s := &Snapshot{catalog: c, base: k.base, hooks: k.hooks, overlay: k.overlay, rank: k.rank, principal: k.principal}
	for _, t := range k.base.Restricted() {
		if !t.VisibleTo(k.principal) {
			s.refused = append(s.refused, t)
		}
	}
	return s
}

// inventory lists the agents of a state. It is separate from the snapshots because running jobs
// refer to snapshots and need no list.
type inventory struct {
	base   *tool.State
	agents []arcp.Agent
	rank   int // highest trust rank that a tool needs
}

// inventory returns the inventory of a state. It caches the inventory of the current state.
func (c *Catalog) inventory(base *tool.State) *inventory {
	if l := c.all.Load(); l != nil && l.base == base {
		return l
	}
	l := &inventory{base: base}
	for _, f := range base.Families("") {
		l.agents = append(l.agents, f.Agent)
		l.rank = max(l.rank, f.TrustRank)
	}
	if base == c.reg.State() {
		c.all.Store(l)
	}
	return l
}
