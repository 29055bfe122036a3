package mcpserve

import (
	"context"
	"errors"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// places are the sessions of clients over HTTP. There are only so many, and most
// clients go without a word: a newcomer gets the place of the session that has been
// idle for longest. One that is in use is never ended for another. One that has been
// idle for idleSessions is ended in any case.
//
// A place is promised to a request before the SDK sees it, filled when the request
// begins a session, and given back when the session has ended, however that came
// about, or when none has begun.
type places struct {
	most  int
	watch sync.WaitGroup // for the ends of sessions

	mu       sync.Mutex
	taken    map[string]*sessionSlot // by the id of the session
	promised int
	clock    uint64      // counts the times that a session became idle
	timer    *time.Timer // for sweep; nil: nothing waits for it
	closed   bool
}

// sessionSlot is a session of a client, or the room reserved for one. Its fields are guarded by
// places.
type sessionSlot struct {
	session *sdk.ServerSession // nil: none has begun
	uses    int                // requests under way; also those whose client has lost the connection
	idle    uint64             // when the last of them ended
	since   time.Time          // the same
	lost    bool               // to another session, or given back before there was one
}

func newPlaces(most int) *places { return &places{most: most, taken: make(map[string]*sessionSlot)} }

// promise is a place for a request that may begin a session; nil if all are in use.
// settle follows it. It returns when the session that had to make room has ended.
func (p *places) promise() *sessionSlot {
	p.mu.Lock()
	oldest := ""
	if len(p.taken)+p.promised >= p.most {
		if oldest = p.idlest(); oldest == "" {
			p.mu.Unlock()
			return nil
		}
	}
	ended := p.taken[oldest]
	if ended != nil {
		ended.lost = true
		delete(p.taken, oldest)
	}
	p.promised++
	p.mu.Unlock()
	if ended != nil {
		_ = ended.session.Close() // nobody waits for what it might say
	}
	return &sessionSlot{uses: 1}
}

// idlest is the session that has been idle for longest; "": all are in use.
func (p *places) idlest() (id string) {
	for candidate, c := range p.taken {
		if c.uses == 0 && (id == "" || c.idle < p.taken[id].idle) {
			id = candidate
		}
	}
	return id
}

// fill is called before the SDK begins a session. It reports whether it may: the
// request that the place was promised to may be over.
func (p *places) fill(c *sessionSlot, session *sdk.ServerSession) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.session != nil { // it has begun, which is for the SDK to say
		return true
	}
	if c.lost || p.closed {
		return false
	}
	p.promised--
	c.session = session
	p.taken[session.ID()] = c
	p.watch.Go(func() {
		_ = session.Wait() // that it has ended is what matters
		p.remove(c)
	})
	return true
}

// settle ends the request that a place was promised to.
func (p *places) settle(c *sessionSlot) {
	p.mu.Lock()
	if c.session == nil {
		p.promised--
		c.lost = true
	}
	p.mu.Unlock()
	if c.session != nil && c.session.InitializeParams() == nil {
		p.remove(c) // the SDK has ended it
	}
	p.leave(c)
}

func (p *places) remove(c *sessionSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := c.session.ID(); p.taken[id] == c {
		delete(p.taken, id)
	}
}

// of is the place of a session, which is then in use until leave; nil if there is
// no such session, or not any more.
func (p *places) of(id string) *sessionSlot {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.taken[id]
	if c != nil {
		c.uses++
	}
	return c
}

// enter is of for what came by a request that may be over: the place may be lost
// meanwhile, and what began then would hold up the end of the session.
func (p *places) enter(c *sessionSlot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.lost {
		c.uses++
	}
	return !c.lost
}

func (p *places) leave(c *sessionSlot) {
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

// sweep ends the sessions that have been idle for idleSessions, and comes again for
// the next one.
func (p *places) sweep() {
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
		c := p.taken[id]
		if left := idleSessions - time.Since(c.since); left > 0 {
			p.timer = time.AfterFunc(left, p.sweep)
			break
		}
		c.lost = true
		delete(p.taken, id)
		list = append(list, c.session)
	}
	p.mu.Unlock()
	for _, session := range list {
		_ = session.Close() // as in promise
	}
}

// close ends all sessions, and no other begins.
func (p *places) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	list := make([]*sdk.ServerSession, 0, len(p.taken))
	for _, c := range p.taken {
		list = append(list, c.session)
	}
	p.mu.Unlock()
	for _, session := range list {
		_ = session.Close() // as in promise
	}
	p.watch.Wait()
}

// placeKey is of the place in the context of a session's requests; nil for those that
// have no session and begin none.
type placeKey struct{}

var errNoPlace = errors.New("a session begins with a request of its own")

// inPlace has what a session does counted in its place: also calls that go on when
// the connection they came by is lost, which the end of the session would cancel.
func (s *Server) inPlace(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		c, ok := ctx.Value(placeKey{}).(*sessionSlot)
		if !ok { // it is not over HTTP
			return next(ctx, method, req)
		}
		if c == nil { // it has no session
			if method == "initialize" {
				return nil, errNoPlace
			}
			return next(ctx, method, req)
		}
		if session, ok := req.GetSession().(*sdk.ServerSession); ok && method == "initialize" && !s.places.fill(c, session) {
			return nil, errGone
		}
		if !s.places.enter(c) {
			return nil, errGone
		}
		defer s.places.leave(c)
		return next(ctx, method, req)
	}
}
