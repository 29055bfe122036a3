package mcpserve

import (
	"context"
	"errors"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionPool bounds the sessions of clients over HTTP. Most clients leave without ending theirs: a new
// session evicts the one that has been idle for longest. A session in use is never evicted. A
// session that has been idle for idleSessions is ended.
//
// A slot is reserved for a request before the SDK handles it, and assigned when the request begins a
// session. It is free again when the session has ended, or when the request has begun none.
type sessionPool struct {
	most  int
	watch sync.WaitGroup // for the ends of sessions

	mu       sync.Mutex
	slots    map[string]*sessionSlot // with sessions, by session id
	reserved int
	clock    uint64      // counts how often a session became idle
	timer    *time.Timer // for sweep; nil: nothing waits for it
	closed   bool
}

// sessionSlot is a session of a client, or a reservation. Its fields are guarded by the pool.
type sessionSlot struct {
	session *sdk.ServerSession // nil: none has begun
	uses    int                // requests under way, also of lost connections
	idle    uint64             // clock at the end of the last request
	since   time.Time          // time of the end of the last request
	lost    bool               // evicted, or released without a session
}

func newSessionPool(most int) *sessionPool {
	return &sessionPool{most: most, slots: make(map[string]*sessionSlot)}
}

// reserve reserves a slot for a request that may begin a session; nil: all are in use. It returns when the
// evicted session has ended. release follows.
func (p *sessionPool) reserve() *sessionSlot {
	p.mu.Lock()
	oldest := ""
	if len(p.slots)+p.reserved >= p.most {
		if oldest = p.idlest(); oldest == "" {
			p.mu.Unlock()
			return nil
		}
	}
	ended := p.slots[oldest]
	if ended != nil {
		ended.lost = true
		delete(p.slots, oldest)
	}
	p.reserved++
	p.mu.Unlock()
	if ended != nil {
		_ = ended.session.Close() // an error does not matter
	}
	return &sessionSlot{uses: 1}
}

// idlest returns the id of the session that has been idle for longest; "": all are in use.
func (p *sessionPool) idlest() (id string) {
	for candidate, c := range p.slots {
		if c.uses == 0 && (id == "" || c.idle < p.slots[id].idle) {
			id = candidate
		}
	}
	return id
}

// assign assigns a slot to a session that the SDK is about to begin. It reports false if the request of the
// reservation has ended.
func (p *sessionPool) assign(c *sessionSlot, session *sdk.ServerSession) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.session != nil { // the SDK refuses a second initialize
		return true
	}
	if c.lost || p.closed {
		return false
	}
	p.reserved--
	c.session = session
	p.slots[session.ID()] = c
	p.watch.Go(func() {
		_ = session.Wait() // only the end matters
		p.remove(c)
	})
	return true
}

// release ends the request of a reservation.
func (p *sessionPool) release(c *sessionSlot) {
	p.mu.Lock()
	if c.session == nil {
		p.reserved--
		c.lost = true
	}
	p.mu.Unlock()
	if c.session != nil && c.session.InitializeParams() == nil {
		p.remove(c) // the SDK has ended it
	}
	p.leave(c)
}

func (p *sessionPool) remove(c *sessionSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := c.session.ID(); p.slots[id] == c {
		delete(p.slots, id)
	}
}

// acquire returns the slot of a session, which is in use until leave; nil: there is no such session.
func (p *sessionPool) acquire(id string) *sessionSlot {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.slots[id]
	if c != nil {
		c.uses++
	}
	return c
}

// enter adds a use of a slot whose request may have ended. It reports false if the slot is lost: a new use would
// delay the end of the session.
func (p *sessionPool) enter(c *sessionSlot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.lost {
		c.uses++
	}
	return !c.lost
}

func (p *sessionPool) leave(c *sessionSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.uses--; c.uses == 0 {
		p.clock++
		c.idle, c.since = p.clock, time.Now()
		if p.timer == nil && !p.closed {
			p.timer = time.AfterFunc(idleSessions, p.sweep)
		}
	}
}

// sweep ends the sessions that have been idle for idleSessions, and sets the timer for the next one.
func (p *sessionPool) sweep() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.watch.Add(1)
	defer p.watch.Done()
	var list []*sdk.ServerSession
	p.timer = nil
	for id := p.idlest(); id != ""; id = p.idlest() {
		c := p.slots[id]
		if left := idleSessions - time.Since(c.since); left > 0 {
			p.timer = time.AfterFunc(left, p.sweep)
			break
		}
		c.lost = true
		delete(p.slots, id)
		list = append(list, c.session)
	}
	p.mu.Unlock()
	for _, session := range list {
		_ = session.Close() // as in reserve
	}
}

// close ends all sessions; no other begins.
func (p *sessionPool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	list := make([]*sdk.ServerSession, 0, len(p.slots))
	for _, c := range p.slots {
		list = append(list, c.session)
	}
	p.mu.Unlock()
	for _, session := range list {
		_ = session.Close() // as in reserve
	}
	p.watch.Wait()
}

// slotKey is the context key of the slot of a request's session; nil: the request has no session and begins
// none.
type slotKey struct{}

var errNoSlot = errors.New("a session begins with a request of its own")

// countUses is middleware that counts the methods of a session as uses of its slot, also calls that continue after
// the loss of their connection: the end of the session would cancel them.
func (s *Server) countUses(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		c, ok := ctx.Value(slotKey{}).(*sessionSlot)
		if !ok { // not over HTTP
			return next(ctx, method, req)
		}
		if c == nil { // without a session
			if method == "initialize" {
				return nil, errNoSlot
			}
			return next(ctx, method, req)
		}
		if session, ok := req.GetSession().(*sdk.ServerSession); ok && method == "initialize" && !s.sessions.assign(c, session) {
			return nil, errGone
		}
		if !s.sessions.enter(c) {
			return nil, errGone
		}
		defer s.sessions.leave(c)
		return next(ctx, method, req)
	}
}
