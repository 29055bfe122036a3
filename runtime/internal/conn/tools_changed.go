package conn

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// Bounds of the announcements of changed catalogs: at most one frame a second for each session.
const (
	announceDelay = 100 * time.Millisecond // changes within it are announced together
	announcePause = time.Second
	maxAnnounced  = 100 // names in each list
)

// toolsNotifier makes every connection compare its catalog with the shown one after a change of
// the tools. It combines the changes of a short time.
type toolsNotifier struct {
	srv *Server

	mu      sync.Mutex
	timer   *time.Timer // nil: no change since last
	last    time.Time   // of the last announcement
	stopped bool
}

// changed is called after a change. It does not block.
func (n *toolsNotifier) changed(uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer == nil && !n.stopped {
		n.timer = time.AfterFunc(max(announceDelay, announcePause-time.Since(n.last)), n.fire)
	}
}

func (n *toolsNotifier) fire() {
	n.mu.Lock()
	n.timer, n.last = nil, time.Now()
	stopped := n.stopped
	n.mu.Unlock()
	if stopped {
		return
	}
	for _, c := range n.srv.connections() {
		c.inbox.post(catalogChanged{})
	}
}

func (n *toolsNotifier) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped = true; n.timer != nil {
		n.timer.Stop()
	}
}

// shownCatalog is the catalog of tools that the client knows.
type shownCatalog struct {
	c     *conn
	shown *catalog.Snapshot // last announced catalog; nil: none yet
	stale bool              // the session's catalog may differ from shown
	total int               // tools of the last inventory
	sent  int               // of these, the tools in the inventory for the client
}

// markStale makes the loop compare the session's catalog with the shown one.
func (sc *shownCatalog) markStale() { sc.stale = true }

// agents returns the inventory for the answer that opens a session: as many tools of the catalog
// as fit.
func (sc *shownCatalog) agents() []arcp.Agent {
	sc.shown = sc.c.session.Catalog(sc.c.principal.trust())
	all := sc.shown.Agents()
	some := sc.c.srv.inventory.bound(all)
	sc.total, sc.sent = len(all), len(some)
	return some
}

// extend adds to an answer with an inventory how many tools the inventory omits.
func (sc *shownCatalog) extend(env *arcp.Envelope) {
	if sc.sent < sc.total && sc.c.dialect.hasInventory(env.Type) {
		env.Extensions = inventoryExtension(sc.total, sc.sent)
	}
}

// toolsChanged is the data of the event tools.changed (SPEC.md §7.5).
type toolsChanged struct {
	Generation uint64   `json:"generation"`
	Revision   uint64   `json:"revision,omitzero"` // of the session's overlay
	Added      []string `json:"added"`
	Removed    []string `json:"removed"`
	Changed    []string `json:"changed,omitzero"`
	More       int      `json:"more,omitzero"` // number of omitted names
}

// announce sends tools.changed if the catalog has changed. While the client does not read,
// changes are collected into one later announcement.
func (sc *shownCatalog) announce(now time.Time) {
	if !sc.stale || sc.shown == nil || sc.c.ending.close != nil || sc.c.machine.Phase() != machine.Accepted {
		return
	}
	if n, _ := sc.c.output.outbox.size(); n >= outboxSoft {
		return // the writer wakes the loop when there is room
	}
	sc.stale = false
	next := sc.c.session.Catalog(sc.c.principal.trust())
	d := next.Since(sc.shown)
	sc.shown = next
	if d.Empty() {
		return
	}
	p := toolsChanged{Generation: next.Generation(), Revision: sc.c.session.Overlay().Revision}
	p.Added, p.More = p.firstNames(d.Added)
	p.Removed, p.More = p.firstNames(d.Removed)
	p.Changed, p.More = p.firstNames(d.Changed)
	raw, err := arcp.Marshal(p)
	if err != nil { // strings and numbers
		panic("conn: tools changed: " + err.Error())
	}
	sc.c.send(now, arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventToolsChanged, Data: raw}))
}

// firstNames returns the first names of a list, and p.More plus the number of the omitted ones.
func (tc *toolsChanged) firstNames(list []string) ([]string, int) {
	n := min(len(list), maxAnnounced)
	return append([]string{}, list[:n]...), tc.More + len(list) - n
}
