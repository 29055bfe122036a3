package tool

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// Viewer holds the principal and the trust level that select which tools a session sees.
type Viewer struct {
	Trust     string // a level of TrustLevels; one that is none is the lowest
	Principal string // who it is: some tools exist only for some
}

// rank is the fingerprint of the viewer's authority: all that a composition depends on.
func (v Viewer) rank() int { return max(trustRank(v.Trust), 0) }

// Bounds of the composed catalogues that are kept. One takes some 300 bytes, and
// 100 for each name that its overlay speaks of: at most 50 MB.
const (
	maxSnapshots = 4096
	maxLaidNames = 500_000
)

// Catalog composes catalogues: a registry as the base, an overlay on top, seen by
// somebody, with hooks before each call. What it has composed it keeps, the
// latest used ones, as long as the registry does not change. It may be used by many
// goroutines.
type Catalog struct {
	reg   *Registry
	hooks atomic.Pointer[hooks]
	plain atomic.Pointer[plain]

	mu   sync.Mutex
	of   epoch
	kept map[key]*list.Element // of *composed
	used list.List             // the latest first
	laid int                   // names that the overlays of all of them speak of
}

// epoch identifies the generation of the registry from which the cached entries were composed.
type epoch struct {
	generation uint64
	revision   uint64 // of the hooks
}

// key is what a composed catalogue depends on beside the epoch. Whether the base
// is included is part of the overlay's identity.
type key struct {
	rank      int
	principal string // empty where it makes no difference
	id        identity
}

type composed struct {
	key  key
	laid int
	once sync.Once // the first that asks composes, the others wait
	snap *Snapshot
}

// plain are the snapshots without an overlay, of one epoch.
type plain struct {
	base   *catalogue
	hooks  *hooks
	byRank []Snapshot
}

// NewCatalog returns a catalogue on a registry.
func NewCatalog(r *Registry, before []Hook) *Catalog {
	c := &Catalog{reg: r, kept: make(map[key]*list.Element)}
	c.SetHooks(before)
	return c
}

// SetHooks replaces the hooks, for what is called from now on.
func (c *Catalog) SetHooks(hooks []Hook) {
	for {
		old := c.hooks.Load()
		if c.hooks.CompareAndSwap(old, newHooks(old, hooks)) {
			return
		}
	}
}

// HookRevision is the number of times that the hooks were set.
func (c *Catalog) HookRevision() uint64 { return c.hooks.Load().revision }

// Snapshot returns the catalogue as it is now for somebody with an overlay; nil:
// without. A tool of the overlay that the registry does not have, or no longer,
// is not there until it is.
func (c *Catalog) Snapshot(v Viewer, l *Layer) *Snapshot {
	base, hooks := c.reg.state.Load(), c.hooks.Load()
	k, laid := key{rank: v.rank()}, 0
	if len(base.restricted) > 0 {
		k.principal = v.Principal
	}
	switch {
	case l != nil:
		k.id, laid = l.id, len(l.Tools)+len(l.Hide)
	case k.principal == "":
		return c.bare(v, base, hooks)
	}
	e := c.find(k, laid, epoch{base.generation, hooks.revision})
	if e == nil { // the registry has changed since
		return compose(base, hooks, &k, l)
	}
	e.once.Do(func() { e.snap = compose(base, hooks, &k, l) })
	return e.snap
}

// Check composes the catalogue of an overlay that is to be set. It is refused, as
// Resolve would be, if it names a tool that is not there.
func (c *Catalog) Check(v Viewer, l *Layer) (*Snapshot, *arcp.Error) {
	if l != nil {
		if err := l.missing(c.Snapshot(v, nil)); err != nil {
			return nil, err
		}
	}
	return c.Snapshot(v, l), nil
}

// bare returns a snapshot without an overlay.
func (c *Catalog) bare(v Viewer, base *catalogue, hooks *hooks) *Snapshot {
	p := c.plain.Load()
	if p == nil || p.base != base || p.hooks != hooks {
		p = &plain{base, hooks, make([]Snapshot, len(TrustLevels))}
		for rank := range p.byRank {
			p.byRank[rank] = Snapshot{base: base, rank: rank, hooks: hooks}
		}
		c.plain.Store(p)
	}
	return &p.byRank[v.rank()]
}

// find returns what is kept under a key, maybe not composed yet; nil if what is
// kept is of a later epoch.
func (c *Catalog) find(k key, laid int, now epoch) *composed {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case now.generation < c.of.generation, now.revision < c.of.revision:
		return nil
	case now != c.of: // nobody asks for these any more
		clear(c.kept)
		c.used.Init()
		c.of, c.laid = now, 0
	}
	if el := c.kept[k]; el != nil {
		c.used.MoveToFront(el)
		return el.Value.(*composed)
	}
	for c.used.Len() > 0 && (c.used.Len() >= maxSnapshots || c.laid+laid > maxLaidNames) {
		oldest := c.used.Remove(c.used.Back()).(*composed)
		delete(c.kept, oldest.key)
		c.laid -= oldest.laid
	}
	e := &composed{key: k, laid: laid}
	c.kept[k] = c.used.PushFront(e)
	c.laid += laid
	return e
}

func compose(base *catalogue, hooks *hooks, k *key, l *Layer) *Snapshot {
	s := &Snapshot{base: base, rank: k.rank, principal: k.principal, layer: l, hooks: hooks}
	for _, t := range base.restricted {
		if !t.May(k.principal) {
			s.refused = append(s.refused, t)
		}
	}
	if l == nil {
		return s
	}
	s.laid = l.compose(base)
	for name, f := range s.laid {
		if f != nil {
			s.names = append(s.names, name)
		}
	}
	return s
}
