package conn

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Pace of what sessions are told of changes of their catalogues: a source that
// comes and goes costs a frame a second at most.
const (
	announceDelay = 100 * time.Millisecond // what changes together is told together
	announcePause = time.Second
	maxAnnounced  = 100 // names of each list
)

// announcer has the connections look at their catalogues after a change.
type announcer struct {
	srv *Server

	mu      sync.Mutex
	timer   *time.Timer // nil: nothing has changed since
	last    time.Time
	stopped bool
}

// changed is told of a change. It does not block.
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

// toldTools is what the client knows of the session's catalogue.
type toldTools struct {
	shown *tool.Snapshot // that the client was told of; nil: none yet
	stale bool           // the catalogue may have changed since
}

// agents is what the session is told of its catalogue when it is accepted.
func (c *conn) agents() []arcp.Agent {
	c.tools.shown = c.session.Catalogue(c.trust())
	return c.tools.shown.Agents()
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

// announce tells the client what has changed in its catalogue since it was told
// last. A client that does not read is told later, all at once.
func (c *conn) announce(now time.Time) {
	if !c.tools.stale || c.tools.shown == nil || c.ending.close != nil || c.m.Phase() != machine.Accepted {
		return
	}
	if n, _ := c.output.box.size(); n >= outboxSoft {
		return // the writer wakes the loop
	}
	c.tools.stale = false
	next := c.session.Catalogue(c.trust())
	d := next.Since(c.tools.shown)
	c.tools.shown = next
	if d.Empty() {
		return
	}
	p := toolsChanged{Generation: next.Generation(), Revision: c.session.Overlay().Revision}
	p.Added, p.More = p.some(d.Added)
	p.Removed, p.More = p.some(d.Removed)
	p.Changed, p.More = p.some(d.Changed)
	raw, err := arcp.Marshal(p)
	if err != nil { // texts and numbers
		panic("runtime: tools changed: " + err.Error())
	}
	c.send(now, arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventToolsChanged, Data: raw}))
}

// some returns the first of a list, and how many are left out so far.
func (p *toolsChanged) some(list []string) ([]string, int) {
	n := min(len(list), maxAnnounced)
	return append([]string{}, list[:n]...), p.More + len(list) - n
}
