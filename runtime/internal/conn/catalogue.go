package conn

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// Bounds of the announcements of changed catalogues: at most one frame a second for each session.
const (
	announceDelay = 100 * time.Millisecond // changes within it are announced together
	announcePause = time.Second
	maxAnnounced  = 100 // names in each list
)

// announcer makes the connections compare their catalogues after the tools have changed.
type announcer struct {
	srv *Server

	mu      sync.Mutex
	timer   *time.Timer // nil: no change since last
	last    time.Time   // of the last announcement
	stopped bool
}

// changed is called after a change. It does not block.
func (a *announcer) changed(uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer == nil && !a.stopped {
		a.timer = time.AfterFunc(max(announceDelay, announcePause-time.Since(a.last)), a.fire)
	}
}

func (a *announcer) fire() {
	a.mu.Lock()
	a.timer, a.last = nil, time.Now()
	stopped := a.stopped
	a.mu.Unlock()
	if stopped {
		return
	}
	for _, c := range a.srv.connections() {
		c.inbox.post(catalogueChanged{})
	}
}

func (a *announcer) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped = true; a.timer != nil {
		a.timer.Stop()
	}
}

// catalogue has the catalogue of tools that the client knows.
type catalogue struct {
	c     *conn
	shown *catalog.Snapshot // last announced catalogue; nil: none yet
	stale bool              // the catalogue may differ from shown
}

// agents returns the catalogue for session.accepted.
func (t *catalogue) agents() []arcp.Agent {
	t.shown = t.c.session.Catalogue(t.c.trust())
	return t.shown.Agents()
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

// announce sends tools.changed if the catalogue has changed. While the client does not read,
// changes are collected into one later announcement.
func (t *catalogue) announce(now time.Time) {
	if !t.stale || t.shown == nil || t.c.ending.close != nil || t.c.machine.Phase() != machine.Accepted {
		return
	}
	if n, _ := t.c.output.outbox.size(); n >= outboxSoft {
		return // the writer wakes the loop when there is room
	}
	t.stale = false
	next := t.c.session.Catalogue(t.c.trust())
	d := next.Since(t.shown)
	t.shown = next
	if d.Empty() {
		return
	}
	p := toolsChanged{Generation: next.Generation(), Revision: t.c.session.Overlay().Revision}
	p.Added, p.More = p.firstNames(d.Added)
	p.Removed, p.More = p.firstNames(d.Removed)
	p.Changed, p.More = p.firstNames(d.Changed)
	raw, err := arcp.Marshal(p)
	if err != nil { // strings and numbers
		panic("runtime: tools changed: " + err.Error())
	}
	t.c.send(now, arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventToolsChanged, Data: raw}))
}

// firstNames returns the first names of a list, and p.More plus the number of the omitted ones.
func (p *toolsChanged) firstNames(list []string) ([]string, int) {
	n := min(len(list), maxAnnounced)
	return append([]string{}, list[:n]...), p.More + len(list) - n
}
