package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Claim is called before the row of an agent is written, with the locks of the agent and of the
// replaced ones held. It may refuse the registration. old is the agent as its session has registered
// it before, or nil. replaced are agents of other sessions, which stop in the same write. done, which
// may be nil, receives whether the rows were written.
type Claim func(next, old *Agent, replaced []Agent) (done func(ok bool), err *arcp.Error)

// Register adds an idle agent for its session, or replaces it. It refuses an agent that another
// session owns, unless replaces has its id. An agent whose session has ended gets a new owner. The
// agents of the principal with the ids of replaces stop in the same write. claim may be nil.
func (s *Store) Register(ctx context.Context, a Agent, claim Claim, replaces ...string) (Agent, error) {
	space, err := s.makeSpace(ctx, &a)
	if err != nil {
		return Agent{}, err
	}
	register := func() error {
		release, err := s.opts.Sessions.DeferEnd(ctx, a.Session)
		if err != nil {
			return err
		}
		unlock, err := s.lock(ctx, a.Principal, append(slices.Clone(replaces), a.ID)...)
		if err != nil {
			release()
			return err
		}
		return s.changeLocked(ctx, a.Principal, a.ID, inTxn,
			func(old *Agent) (*decision, error) { return s.registration(ctx, &a, old, replaces, claim, space) },
			func() { unlock(); release() })
	}
	err = register()
	for o, ok := errors.AsType[*ownedError](err); ok; o, ok = errors.AsType[*ownedError](err) {
		if err = s.stopEnded(ctx, o.agent); err == nil {
			err = register()
		}
	}
	if err != nil {
		s.release(space)
		return Agent{}, err
	}
	return a, nil
}

// registration decides the registration of an agent. The caller has locked a and the agents of replaces.
func (s *Store) registration(ctx context.Context, a, old *Agent, replaces []string, claim Claim, space *reservation) (d *decision, err error) {
	owned := old != nil && old.EndedAt.IsZero()
	var replaced []Agent
	if owned && old.Session != a.Session {
		if !slices.Contains(replaces, a.ID) {
			return nil, &ownedError{old}
		}
		replaced, owned = append(replaced, *old), false
	}
	a.Status, a.CurrentTask, a.EndedAt = Idle, "", time.Time{}
	a.UpdatedAt = now()
	if a.RegisteredAt = a.UpdatedAt; owned {
		a.RegisteredAt = old.RegisteredAt
	} else {
		old = nil
	}
	d = &decision{next: new(*a), reservation: space}
	if d.event, err = eventOf(AgentRegistered, a, a.Name+" is registered", nil); err != nil {
		return d, err
	}
	if d.replaced, err = s.replacements(ctx, a, replaces); err != nil {
		return nil, err
	}
	for i := range d.replaced {
		replaced = append(replaced, d.replaced[i].before)
	}
	if claim == nil {
		return d, nil
	}
	done, refused := claim(a, old, replaced)
	if refused != nil {
		return nil, refused
	}
	d.done = done
	return d, nil
}

// replacement stops an agent that the registration of another agent replaces.
type replacement struct {
	before, stopped Agent
	record          store.Record // of stopped
	event           Event
}

// replacements returns a replacement for each agent in ids that has not ended and belongs to another session. The agent a
// is left out.
func (s *Store) replacements(ctx context.Context, a *Agent, ids []string) (list []replacement, err error) {
	for _, id := range ids {
		row, err := s.table().Get(ctx, key(a.Principal, id))
		if err != nil {
			return nil, fmt.Errorf("read agent: %w", err)
		}
		if row.Rev == 0 || id == a.ID || !row.Value.EndedAt.IsZero() || row.Value.Session == a.Session {
			continue
		}
		r := replacement{before: row.Value, stopped: row.Value}
		r.stopped.Status, r.stopped.UpdatedAt = Stopped, now()
		r.stopped.EndedAt = r.stopped.UpdatedAt
		if r.event, err = eventOf(AgentStatus, &r.stopped, fmt.Sprintf("%s is stopped: agent %s replaces it", r.stopped.Name, a.ID), nil); err != nil {
			return nil, err
		}
		if r.record, err = row.Put(&r.stopped); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// ownedError is the error for an agent whose row names another session as the owner.
type ownedError struct{ agent *Agent }

func (o *ownedError) Error() string { return errForeign(o.agent.ID).Error() }

// stopEnded stops an agent if its session has ended, and refuses another one. It waits for an end
// that is being written, which stops the agent.
func (s *Store) stopEnded(ctx context.Context, a *Agent) error {
	ended, err := s.opts.Sessions.AwaitEnd(ctx, a.Session)
	switch {
	case err != nil:
		return err
	case !ended:
		return errForeign(a.ID)
	}
	return s.stop(ctx, a, ownWrite)
}

// makeSpace reserves space for an agent. If there is none it deletes agents without a session,
// the oldest first.
func (s *Store) makeSpace(ctx context.Context, a *Agent) (*reservation, error) {
	raw, err := arcp.Marshal(a)
	if err != nil {
		return nil, err
	}
	for {
		space, oldest, full := s.reserve(a, len(raw))
		switch {
		case full == nil:
			return space, nil
		case oldest == nil:
			return nil, full
		}
		if err := s.deleteEnded(ctx, oldest); err != nil {
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
func (s *Store) SetStatus(ctx context.Context, principal string, session arcp.SessionID, id string, c StatusChange) (a Agent, err error) {
	err = s.change(ctx, principal, id, inTxn, func(old *Agent) (*decision, error) {
		switch {
		case old == nil:
			return nil, errNotFound(id)
		case old.Session == session && !old.EndedAt.IsZero():
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "agent %s was replaced by an agent of another session; register it again", id)
		case !s.owned(old):
			return nil, arcp.Errorf(arcp.CodePermissionDenied, "agent %s was owned by another session, which has ended; register it again", id)
		case old.Session != session:
			return nil, errForeign(id)
		}
		a = *old
		a.Status, a.UpdatedAt = c.Status, now()
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
func (s *Store) Unregister(ctx context.Context, principal string, session arcp.SessionID, id string) error {
	return s.change(ctx, principal, id, inTxn, func(old *Agent) (*decision, error) {
		switch {
		case old == nil:
			return nil, errNotFound(id)
		case old.Session != session && s.owned(old):
			return nil, errForeign(id)
		}
		return s.deletion(old, old.Name+" is unregistered")
	})
}

func (s *Store) deletion(a *Agent, message string) (*decision, error) {
	event, err := eventOf(AgentUnregistered, a, message, nil)
	return &decision{event: event, done: func(ok bool) {
		if ok && a.EndedAt.IsZero() {
			s.opts.OnRelease(*a)
		}
	}}, err
}

// Fail sets the status of an agent to Errored.
func (s *Store) Fail(ctx context.Context, principal, id, message string) error {
	return s.change(ctx, principal, id, ownWrite, func(old *Agent) (*decision, error) {
		if old == nil || !old.EndedAt.IsZero() {
			return nil, nil
		}
		a := *old
		a.Status, a.UpdatedAt = Errored, now()
		event, err := eventOf(AgentStatus, &a, message, nil)
		return &decision{next: &a, event: event}, err
	})
}

// EndSession stops the agents of a session that has ended, or ends in the transaction of ctx.
// They have no owner after that.
func (s *Store) EndSession(ctx context.Context, principal string, id arcp.SessionID) (err error) {
	list := s.OwnedBy(principal, id)
	slices.SortFunc(list, func(a, b *Agent) int { return cmp.Compare(a.ID, b.ID) }) // one order of locking for all
	for _, a := range list {
		err = errors.Join(err, s.stop(ctx, a, inTxn))
	}
	return err
}

// stop stops an agent unless it was unregistered or has another owner.
func (s *Store) stop(ctx context.Context, agent *Agent, j txnMode) error {
	return s.change(ctx, agent.Principal, agent.ID, j, func(old *Agent) (*decision, error) {
		if old == nil || old.Session != agent.Session || !old.EndedAt.IsZero() {
			return nil, nil
		}
		a := *old
		a.Status, a.UpdatedAt = Stopped, now()
		a.EndedAt = a.UpdatedAt
		event, err := eventOf(AgentStatus, &a, a.Name+" is stopped: its session has ended", nil)
		return &decision{next: &a, event: event, done: func(ok bool) {
			if ok {
				s.opts.OnRelease(*old)
			}
		}}, err
	})
}

// deleteEnded deletes an agent unless it has an owner.
func (s *Store) deleteEnded(ctx context.Context, a *Agent) error {
	return s.change(ctx, a.Principal, a.ID, ownWrite, func(old *Agent) (*decision, error) {
		if old == nil || old.EndedAt.IsZero() {
			return nil, nil
		}
		return s.deletion(old, old.Name+" is forgotten: its session has ended")
	})
}

// Sweep stops agents of ended sessions, deletes agents whose sessions ended before a time (zero:
// none), and drops the events of principals without sessions and subscribers.
func (s *Store) Sweep(ctx context.Context, before time.Time, hasSessions func(principal string) bool) (err error) {
	for id, principal := range s.owners() {
		if !s.opts.Sessions.Lives(id) {
			err = errors.Join(err, s.EndSession(ctx, principal, id))
		}
	}
	for _, a := range s.endedBefore(before) {
		if ctx.Err() != nil {
			return err
		}
		err = errors.Join(err, s.deleteEnded(ctx, a))
	}
	for _, principal := range s.idlePrincipals() {
		if !hasSessions(principal) {
			s.dropEvents(principal)
		}
	}
	return err
}
