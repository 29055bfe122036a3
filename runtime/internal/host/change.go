package host

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Claim is asked before the row of an agent is written, in the agent's turn, with
// what it will be and, if its session has it already, what it is. It may refuse.
// settle, which may be nil, is told whether the row was written.
type Claim func(next, old *Agent) (settle func(ok bool), err *arcp.Error)

// Register enters an agent, idle, for its session, or enters it again. One that
// another session owns is refused; one whose session has ended for good is taken
// over. claim may be nil.
func (h *Host) Register(ctx context.Context, a Agent, claim Claim) (Agent, error) {
	room, err := h.reserve(ctx, &a)
	if err != nil {
		return Agent{}, err
	}
	decide := func(old *Agent) (*decision, error) { return h.registration(&a, old, claim, room) }
	waits, err := h.changeIn(ctx, a.Principal, a.ID, joined, decide)
	for o, is := errors.AsType[*orphan](err); is; o, is = errors.AsType[*orphan](err) {
		if err = h.stop(ctx, o.agent, alone); err == nil {
			waits, err = h.changeIn(ctx, a.Principal, a.ID, joined, decide)
		}
	}
	switch {
	case err != nil:
		h.giveBack(room)
		return Agent{}, err
	case !waits && !h.opts.Lives(a.Session): // it has ended meanwhile, and the agent was not seen then
		err = h.EndSession(ctx, a.Session)
	}
	return a, err
}

func (h *Host) registration(a, old *Agent, claim Claim, room *room) (d *decision, err error) {
	had := old != nil && old.EndedAt.IsZero()
	switch {
	case !h.opts.Lives(a.Session):
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")
	case had && !h.opts.Lives(old.Session):
		return nil, &orphan{old}
	case had && old.Session != a.Session:
		return nil, foreign(a.ID)
	}
	a.Status, a.CurrentTask, a.EndedAt = Idle, "", time.Time{}
	a.UpdatedAt = moment()
	if a.RegisteredAt = a.UpdatedAt; had {
		a.RegisteredAt = old.RegisteredAt
	} else {
		old = nil
	}
	d = &decision{next: new(*a), room: room}
	if d.event, err = eventOf(AgentRegistered, a, a.Name+" is registered", nil); err != nil {
		return d, err
	}
	if claim == nil {
		return d, nil
	}
	settle, refused := claim(a, old)
	if refused != nil {
		return nil, refused
	}
	d.settle = settle
	return d, nil
}

// orphan is an agent whose session has ended, which nobody has noticed yet.
type orphan struct{ agent *Agent }

func (o *orphan) Error() string { return "the session of agent " + o.agent.ID + " has ended" }

// room is what is kept free for an agent that is about to be registered: until it
// is there, or is not going to be.
type room struct {
	principal     *principal
	session       arcp.SessionID
	agents, bytes int // of the principal
	ofSession     int
}

// reserve makes room for an agent: the one of a principal that has been without a
// session for longest makes way.
func (h *Host) reserve(ctx context.Context, a *Agent) (*room, error) {
	raw, err := arcp.Marshal(a)
	if err != nil {
		return nil, err
	}
	for {
		room, oldest, full := h.enter(a, len(raw))
		switch {
		case full == nil:
			return room, nil
		case oldest == nil:
			return nil, full
		}
		if err := h.forget(ctx, oldest); err != nil {
			return nil, err
		}
	}
}

// enter keeps room for an agent, or refuses it, with the one that might make way.
func (h *Host) enter(a *Agent, size int) (r *room, oldest *Agent, full *arcp.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, o := h.principalLocked(a.Principal), h.ownerLocked(a)
	defer h.idleOwnerLocked(a.Session)
	r = &room{principal: p, session: a.Session, bytes: size, agents: 1, ofSession: 1}
	if old, there := p.agents[a.ID]; there {
		r.agents, r.bytes = 0, max(0, size-old.size)
	}
	if _, again := o.agents[a.ID]; again {
		r.ofSession = 0
	}
	switch {
	case len(o.agents)+o.coming+r.ofSession > maxOfSession:
		return nil, nil, arcp.Errorf(arcp.CodeResourceExhausted, "the session has %d agents already; unregister some", maxOfSession)
	case len(p.agents)+p.coming+r.agents > maxOfPrincipal:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "%s has %d agents already; unregister some", a.Principal, maxOfPrincipal)
	case p.bytes+p.comingBytes+r.bytes > maxBytes:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "the agents of %s take more than %d bytes; unregister some, or say less about them", a.Principal, maxBytes)
	case h.bytes+r.bytes > maxAllBytes:
		full = arcp.Errorf(arcp.CodeResourceExhausted, "all agents together take more than %d bytes", maxAllBytes).RetryAfter(60)
		for _, p := range h.principals {
			oldest = p.oldest(oldest, a)
		}
		return nil, oldest, full
	default:
		p.users++
		p.coming += r.agents
		p.comingBytes += r.bytes
		h.bytes += r.bytes
		o.coming += r.ofSession
		return r, nil, nil
	}
	return nil, p.oldest(nil, a), full
}

// oldest is the agent that has been without a session for longest: than is one of
// another principal, or nil. It is never the agent that is about to come.
func (p *principal) oldest(than, coming *Agent) *Agent {
	for _, k := range p.agents {
		if k.EndedAt.IsZero() || k.ID == coming.ID && k.Principal == coming.Principal {
			continue
		}
		if than == nil || k.EndedAt.Before(than.EndedAt) {
			than = new(k.Agent)
		}
	}
	return than
}

// giveBack ends a reservation. Once the agent has come there is nothing to do.
func (h *Host) giveBack(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveBackLocked(r)
}

func (h *Host) giveBackLocked(r *room) {
	p := r.principal
	if p == nil {
		return
	}
	p.users--
	p.coming -= r.agents
	p.comingBytes -= r.bytes
	h.bytes -= r.bytes
	if o := h.sessions[r.session]; o != nil {
		o.coming -= r.ofSession
		h.idleOwnerLocked(r.session)
	}
	*r = room{}
}

// StatusChange is what an owner says its agent does.
type StatusChange struct {
	Status      Status
	CurrentTask *string  // nil: as before
	Message     string   // of the event
	Payload     arcp.Raw // of the event; nil: the agent
}

// SetStatus changes the status of an agent of a session. The agent of another one
// is refused.
func (h *Host) SetStatus(ctx context.Context, name string, session arcp.SessionID, id string, c StatusChange) (a Agent, err error) {
	err = h.change(ctx, name, id, joined, func(old *Agent) (*decision, error) {
		switch {
		case old == nil:
			return nil, notFound(id)
		case !h.owned(old):
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "agent %s was owned by another session, which has ended; register it again", id)
		case old.Session != session:
			return nil, foreign(id)
		}
		a = *old
		a.Status, a.UpdatedAt = c.Status, moment()
		if c.CurrentTask != nil {
			a.CurrentTask = *c.CurrentTask
		}
		event, err := eventOf(AgentStatus, &a, c.Message, c.Payload)
		return &decision{next: &a, event: event}, err
	})
	return a, err
}

// Unregister deletes an agent of a session, or one whose session has ended for
// good. The agent of another one is refused.
func (h *Host) Unregister(ctx context.Context, name string, session arcp.SessionID, id string) error {
	return h.change(ctx, name, id, joined, func(old *Agent) (*decision, error) {
		switch {
		case old == nil:
			return nil, notFound(id)
		case old.Session != session && h.owned(old):
			return nil, foreign(id)
		}
		return h.deletion(old, old.Name+" is unregistered")
	})
}

func (h *Host) deletion(a *Agent, message string) (*decision, error) {
	event, err := eventOf(AgentUnregistered, a, message, nil)
	return &decision{event: event, settle: func(ok bool) {
		if ok && a.EndedAt.IsZero() {
			h.opts.Released(*a)
		}
	}}, err
}

// Fail makes an agent errored, whoever owns it.
func (h *Host) Fail(ctx context.Context, name, id, message string) error {
	return h.change(ctx, name, id, alone, func(old *Agent) (*decision, error) {
		if old == nil || !old.EndedAt.IsZero() {
			return nil, nil
		}
		a := *old
		a.Status, a.UpdatedAt = Errored, moment()
		event, err := eventOf(AgentStatus, &a, message, nil)
		return &decision{next: &a, event: event}, err
	})
}

// EndSession stops the agents of a session that has ended for good, or ends with the
// call that ctx belongs to. No session owns them any more.
func (h *Host) EndSession(ctx context.Context, id arcp.SessionID) (err error) {
	list := h.ofSession(id)
	slices.SortFunc(list, func(a, b *Agent) int { return cmp.Compare(a.ID, b.ID) }) // a call holds their turns together
	for _, a := range list {
		err = errors.Join(err, h.stop(ctx, a, joined))
	}
	return err
}

// HasAgents reports whether a session has agents.
func (h *Host) HasAgents(id arcp.SessionID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[id] != nil
}

func (h *Host) ofSession(id arcp.SessionID) (list []*Agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.sessions[id]
	if o == nil {
		return nil
	}
	for aid := range o.agents {
		list = append(list, new(h.principals[o.principal].agents[aid].Agent))
	}
	return list
}

func (h *Host) stop(ctx context.Context, was *Agent, j joins) error {
	return h.change(ctx, was.Principal, was.ID, j, func(old *Agent) (*decision, error) {
		if old == nil || old.Session != was.Session || !old.EndedAt.IsZero() {
			return nil, nil // it was unregistered, or taken over
		}
		a := *old
		a.Status, a.UpdatedAt = Stopped, moment()
		a.EndedAt = a.UpdatedAt
		event, err := eventOf(AgentStatus, &a, a.Name+" is stopped: its session has ended", nil)
		return &decision{next: &a, event: event, settle: func(ok bool) {
			if ok {
				h.opts.Released(*old)
			}
		}}, err
	})
}

// forget deletes an agent that nobody owns.
func (h *Host) forget(ctx context.Context, was *Agent) error {
	return h.change(ctx, was.Principal, was.ID, alone, func(old *Agent) (*decision, error) {
		if old == nil || old.EndedAt.IsZero() {
			return nil, nil
		}
		return h.deletion(old, old.Name+" is forgotten: its session has ended")
	})
}

// Sweep stops the agents whose sessions have ended unnoticed, forgets those whose
// sessions ended before a time, zero: none, and drops the events of principals
// of whom nobody is here.
func (h *Host) Sweep(ctx context.Context, before time.Time, here func(principal string) bool) (err error) {
	for _, id := range h.owners() {
		if !h.opts.Lives(id) {
			err = errors.Join(err, h.EndSession(ctx, id))
		}
	}
	for _, a := range h.ended(before) {
		if ctx.Err() != nil {
			return err
		}
		err = errors.Join(err, h.forget(ctx, a))
	}
	for _, name := range h.unwatched() {
		if !here(name) {
			h.drop(name)
		}
	}
	return err
}

func (h *Host) owners() (ids []arcp.SessionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.sessions {
		ids = append(ids, id)
	}
	return ids
}

func (h *Host) ended(before time.Time) (list []*Agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.principals {
		for _, k := range p.agents {
			if !k.EndedAt.IsZero() && k.EndedAt.Before(before) {
				list = append(list, new(k.Agent))
			}
		}
	}
	return list
}

func (h *Host) unwatched() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, p := range h.principals {
		if p.users == 0 {
			names = append(names, name)
		}
	}
	return names
}

// drop forgets the events of a principal, and the principal if there is nothing
// else.
func (h *Host) drop(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.principals[name]
	if p == nil || p.users > 0 {
		return
	}
	h.ringBytes -= p.ring.bytes
	p.ring.clear()
	if len(p.agents) == 0 {
		delete(h.principals, name)
	}
}
