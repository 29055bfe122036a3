package mcpserve

import (
	"context"
	"errors"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionPool bounds the sessions of clients over HTTP. Most clients disconnect without ending their session, so
// a new session evicts the session that has been idle for longest. A session in use is never evicted. A session ends
// after idleSessions without a request.
//
// A slot is reserved for a request before the SDK handles the request, and assigned when the request begins a
// session. The slot is free again at the end of the session, or of a request that began no session.
type sessionPool struct {
	size  int            // number of slots
	watch sync.WaitGroup // goroutines that end or observe sessions

	mu       sync.Mutex
	slots    map[string]*sessionSlot // assigned slots, by session id
	reserved int                     // reserved slots without a session
	clock    uint64                  // incremented when a session becomes idle
	timer    *time.Timer             // calls sweep; nil: no session is idle
	closed   bool
}

// sessionSlot is a session of a client, or a reservation. sessionPool.mu guards its fields.
type sessionSlot struct {
	session *sdk.ServerSession // nil: a reservation
	uses    int                // requests under way, also of lost connections
	idle    uint64             // sessionPool.clock at the end of the last request
	since   time.Time          // end of the last request
	lost    bool               // evicted, or released without a session
}

func newSessionPool(size int) *sessionPool {
	return &sessionPool{size: size, slots: make(map[string]*sessionSlot)}
}

// reserve reserves a slot for a request that may begin a session, and ends the evicted session. It returns nil
// if all sessions are in use. The caller must call release.
func (p *sessionPool) reserve() *sessionSlot {
	p.mu.Lock()
	oldest := ""
	if len(p.slots)+p.reserved >= p.size {
		if oldest = p.longestIdle(); oldest == "" {
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
		_ = ended.session.Close() // the session is removed in any case
	}
	return &sessionSlot{uses: 1}
}

// longestIdle returns the id of the session that has been idle for longest, or "" if all are in use. The
// caller holds mu.
func (p *sessionPool) longestIdle() (id string) {
	for candidate, c := range p.slots {
		if c.uses == 0 && (id == "" || c.idle < p.slots[id].idle) {
			id = candidate
		}
	}
	return id
}

// assign assigns a slot to a session that the SDK is beginning. It returns false if the request of the reservation
// has ended.
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
		_ = session.Wait() // the reason is not used
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
		p.remove(c) // the SDK has ended the session
	}
	p.leave(c)
}

// remove frees the slot of a session that has ended.
func (p *sessionPool) remove(c *sessionSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := c.session.ID(); p.slots[id] == c {
		delete(p.slots, id)
	}
}

// acquire returns the slot of a session, in use until leave. It returns nil for an unknown session.
func (p *sessionPool) acquire(id string) *sessionSlot {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.slots[id]
	if c != nil {
		c.uses++
	}
	return c
}

// enter adds a use of a slot until leave. It returns false for a lost slot: a new use would delay the end of the
// session.
func (p *sessionPool) enter(c *sessionSlot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.lost {
		c.uses++
	}
	return !c.lost
}

// leave removes a use of a slot. The session is idle after the last use.
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

// sweep ends the sessions that have been idle for idleSessions, and sets the timer for the next session.
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
	for id := p.longestIdle(); id != ""; id = p.longestIdle() {
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

// close ends all sessions. No further session begins.
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

// slotKey is the context key of the slot of a request's session. A nil slot means that the request has no session
// and begins no session.
type slotKey struct{}

var errNoSlot = errors.New("a session begins with a request of its own")

// countUses is middleware that counts each request of a session as a use of its slot, also a call that continues
// after the loss of its connection. The end of the session would cancel such a call.
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
