package host

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Claim is called before the row of an agent is written, with the agent's lock held. It may
// refuse the registration. old is the agent as its session has registered it before, or nil.
// done, which may be nil, receives whether the row was written.
type Claim func(next, old *Agent) (done func(ok bool), err *arcp.Error)

// Register adds an idle agent for its session, or replaces it. It refuses an agent that another
// session owns. An agent whose session has ended gets a new owner. claim may be nil.
func (h *Store) Register(ctx context.Context, a Agent, claim Claim) (Agent, error) {
	space, err := h.makeSpace(ctx, &a)
	if err != nil {
		return Agent{}, err
	}
	decide := func(old *Agent) (*decision, error) { return h.registration(&a, old, claim, space) }
	waits, err := h.changeIn(ctx, a.Principal, a.ID, joined, decide)
	for o, is := errors.AsType[*orphan](err); is; o, is = errors.AsType[*orphan](err) {
		if err = h.stop(ctx, o.agent, alone); err == nil {
			waits, err = h.changeIn(ctx, a.Principal, a.ID, joined, decide)
		}
	}
	switch {
	case err != nil:
		h.release(space)
		return Agent{}, err
	case !waits && !h.opts.Lives(a.Session): // the session has ended meanwhile, without this agent
		err = h.EndSession(ctx, a.Session)
	}
	return a, err
}

func (h *Store) registration(a, old *Agent, claim Claim, space *reservation) (d *decision, err error) {
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
	d = &decision{next: new(*a), space: space}
	if d.event, err = eventOf(AgentRegistered, a, a.Name+" is registered", nil); err != nil {
		return d, err
	}
	if claim == nil {
		return d, nil
	}
	done, refused := claim(a, old)
	if refused != nil {
		return nil, refused
	}
	d.done = done
	return d, nil
}

// orphan is the error for an agent whose session has ended and that is not stopped yet.
type orphan struct{ agent *Agent }

func (o *orphan) Error() string { return "the session of agent " + o.agent.ID + " has ended" }

// makeSpace reserves space for an agent. If there is none it deletes agents without a session,
// the oldest first.
func (h *Store) makeSpace(ctx context.Context, a *Agent) (*reservation, error) {
	raw, err := arcp.Marshal(a)
	if err != nil {
		return nil, err
	}
	for {
		space, oldest, full := h.reserve(a, len(raw))
		switch {
		case full == nil:
			return space, nil
		case oldest == nil:
			return nil, full
		}
		if err := h.forget(ctx, oldest); err != nil {
			return nil, err
		}
	}
}

// StatusChange is a change of the status of an agent by its owner.
type StatusChange struct {
	Status      Status
	CurrentTask *string  // nil: as before
	Message     string   // of the event
	Payload     arcp.Raw // of the event; nil: the agent
}

// SetStatus changes the status of an agent of a session. It refuses the agent of another session.
func (h *Store) SetStatus(ctx context.Context, name string, session arcp.SessionID, id string, c StatusChange) (a Agent, err error) {
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

// Unregister deletes an agent of a session, or an agent whose session has ended. It refuses the
// agent of another session.
func (h *Store) Unregister(ctx context.Context, name string, session arcp.SessionID, id string) error {
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

func (h *Store) deletion(a *Agent, message string) (*decision, error) {
	event, err := eventOf(AgentUnregistered, a, message, nil)
	return &decision{event: event, done: func(ok bool) {
		if ok && a.EndedAt.IsZero() {
			h.opts.Released(*a)
		}
	}}, err
}

// Fail sets the status of an agent to Errored.
func (h *Store) Fail(ctx context.Context, name, id, message string) error {
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

// EndSession stops the agents of a session that has ended, or ends in the transaction of ctx.
// They have no owner after that.
func (h *Store) EndSession(ctx context.Context, id arcp.SessionID) (err error) {
	list := h.ofSession(id)
	slices.SortFunc(list, func(a, b *Agent) int { return cmp.Compare(a.ID, b.ID) }) // one order of locking for all
	for _, a := range list {
		err = errors.Join(err, h.stop(ctx, a, joined))
	}
	return err
}

func (h *Store) stop(ctx context.Context, was *Agent, j joins) error {
	return h.change(ctx, was.Principal, was.ID, j, func(old *Agent) (*decision, error) {
		if old == nil || old.Session != was.Session || !old.EndedAt.IsZero() {
			return nil, nil // it was unregistered, or has another owner
		}
		a := *old
		a.Status, a.UpdatedAt = Stopped, moment()
		a.EndedAt = a.UpdatedAt
		event, err := eventOf(AgentStatus, &a, a.Name+" is stopped: its session has ended", nil)
		return &decision{next: &a, event: event, done: func(ok bool) {
			if ok {
				h.opts.Released(*old)
			}
		}}, err
	})
}

// forget deletes an agent without an owner.
func (h *Store) forget(ctx context.Context, was *Agent) error {
	return h.change(ctx, was.Principal, was.ID, alone, func(old *Agent) (*decision, error) {
		if old == nil || old.EndedAt.IsZero() {
			return nil, nil
		}
		return h.deletion(old, old.Name+" is forgotten: its session has ended")
	})
}

// Sweep stops agents of ended sessions, deletes agents whose sessions ended before a time (zero:
// none), and drops the events of principals without sessions and subscribers.
func (h *Store) Sweep(ctx context.Context, before time.Time, hasSessions func(principal string) bool) (err error) {
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
		if !hasSessions(name) {
			h.drop(name)
		}
	}
	return err
}
