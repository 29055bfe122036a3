package conn

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Pace at which sessions are told of changes of their catalogues: a source that comes and goes
// costs a frame a second at most.
const (
	announceDelay = 100 * time.Millisecond // changes within it are told together
	announcePause = time.Second
	maxAnnounced  = 100 // names of each list
)

// announcer makes the connections compare their catalogues after a change.
type announcer struct {
	srv *Server

	mu      sync.Mutex
	timer   *time.Timer // nil: nothing has changed since last
	last    time.Time
	stopped bool
}

// changed reports a change. It does not block.
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

// catalogue is the catalogue of tools that the client knows.
type catalogue struct {
	c     *conn
	shown *tool.Snapshot // that the client was told of; nil: none yet
	stale bool           // the catalogue may have changed since
}

// agents returns the catalogue that the client is told of when its session is accepted.
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
	More       int      `json:"more,omitzero"` // names that are left out
}

// announce sends the client the changes of its catalogue since the last announcement. While
// the client does not read, changes are collected into one later announcement.
func (t *catalogue) announce(now time.Time) {
	if !t.stale || t.shown == nil || t.c.ending.close != nil || t.c.m.Phase() != machine.Accepted {
		return
	}
	if n, _ := t.c.output.box.size(); n >= outboxSoft {
		return // the writer wakes the loop
	}
	t.stale = false
	next := t.c.session.Catalogue(t.c.trust())
	d := next.Since(t.shown)
	t.shown = next
	if d.Empty() {
		return
	}
	p := toolsChanged{Generation: next.Generation(), Revision: t.c.session.Overlay().Revision}
	p.Added, p.More = p.some(d.Added)
	p.Removed, p.More = p.some(d.Removed)
	p.Changed, p.More = p.some(d.Changed)
	raw, err := arcp.Marshal(p)
	if err != nil { // strings and numbers
		panic("runtime: tools changed: " + err.Error())
	}
	t.c.send(now, arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventToolsChanged, Data: raw}))
}

// some returns the first names of a list, and the number of names that are left out so far.
func (p *toolsChanged) some(list []string) ([]string, int) {
	n := min(len(list), maxAnnounced)
	return append([]string{}, list[:n]...), p.More + len(list) - n
}
