// Package session holds the sessions of the runtime.
//
// A Session is the one object of a client session, from its first connection until its end. It owns
// the state of the session beside its row in the store: the connection, the position of the client,
// the actor, elevations, and the tool overlay. The agents and resources of a session are not part of
// it: they are rows of the packages agents and resources. They end in the write that ends the
// session.
//
// The Directory finds sessions and is the only place where they begin, attach, detach and end.
//
// All methods may be called by any goroutine. They do not block unless their comment says so.
package session

import (
	"container/list"
	"context"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
)

// State is the state of a session.
type State uint8

// The states, in their order. Attached and Detached alternate. A session whose end cannot be stored
// returns from Ended to Attached or Detached.
const (
	Opened   State = iota // has its first connection; the row is being written
	Attached              // has a connection
	Detached              // has no connection, and may be resumed
	Ended                 // its end is being written, or is durable: no connection attaches to it. Its jobs may run
)

func (s State) String() string { return [...]string{"opened", "attached", "detached", "ended"}[s] }

// Conn is the connection of a session, as the rest of the runtime sees it. Its methods
// may be called by any goroutine. Only Sync blocks.
type Conn interface {
	// Position returns the last event that the client has acknowledged or, if the client
	// does not acknowledge events, the last event that was written to the client.
	Position() uint64
	// Sync waits until Position counts all acknowledgements and writes before the call. The
	// connection's own loop must not call Sync.
	Sync(ctx context.Context)
	// Send sends an envelope outside of the session's log.
	Send(request arcp.MessageID, t arcp.Type, payload any)
	// ToolsChanged makes the connection compare the session's catalog with the catalog that
	// the client knows.
	ToolsChanged()
	// Overflow closes the connection if it still has to send events up to seq.
	Overflow(seq uint64)
	// Evict closes the connection with session.evicted.
	Evict(e Eviction)
	// Supersede closes the connection if another one has attached to the session.
	Supersede()
	// Transport returns the kind of transport and the address of the peer.
	Transport() (kind, remote string)
}

// Eviction has the reason for which the runtime closes the connection of a client.
type Eviction struct {
	Code   arcp.Code
	Reason string
}

// Session is one client session. The identity never changes. Replay has a lock of its own. All other
// state changes with the lock of the Directory held, and is read with the methods.
type Session struct {
	ID        arcp.SessionID
	Principal string
	CreatedAt time.Time
	Replay    ReplayWindow // of events that were sent and not acknowledged

	dir  *Directory
	conn Conn // nil while Detached

	epoch          uint32 // of the newest connection
	confirmedEpoch uint32 // of the newest connection whose client has sent a frame, so it has the resume token
	position       uint64 // of the last connection, while Detached; 0: not known

	changed   chan struct{} // closed when deferrals or endHeld changes; nil: no goroutine waits
	deferrals int32         // callers of DeferEnd that have not called release
	endHeld   bool          // lockEnd excludes calls of DeferEnd
	state     State
	acks      bool // the client acknowledges events

	detached *detachment // nil: not Detached
	end      *endState   // nil: not Ended

	actor      *approval.Actor              // of the newest connection; nil: none since the start of the runtime
	actorStale bool                         // see Directory.InvalidateActors
	elevations atomic.Pointer[[]*Elevation] // to a list that is never changed
	overlay    atomic.Pointer[Overlay]      // nil: none was ever set
}

// detachment is the state of a Detached session.
type detachment struct {
	since     time.Time
	elem      *list.Element // in owner.detached
	notBefore time.Time     // Expired leaves the session out before
}

// endState is the state of an Ended session.
type endState struct {
	written  bool          // the end is durable
	eviction Eviction      // of the connection, when written; zero: the connection closes itself
	waiters  []func(error) // called when written
}

// State returns the state.
func (s *Session) State() State {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	return s.state
}

// Conn returns the connection, nil if there is none.
func (s *Session) Conn() Conn {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	return s.conn
}

// Acks reports whether the client acknowledges events.
func (s *Session) Acks() bool {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	return s.acks
}

// SetAcks records that the client acknowledges events. The position of conn must be the position
// of an acknowledgement by then. Connections other than the current one are ignored.
func (s *Session) SetAcks(conn Conn) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.conn == conn {
		s.acks = true
	}
}

// Position returns the position of the connection, or of the last connection.
func (s *Session) Position() uint64 {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	return s.positionLocked()
}

func (s *Session) positionLocked() uint64 {
	if s.conn != nil {
		return s.conn.Position()
	}
	return s.position
}

// DetachedSince returns the time since which the session has been Detached. It returns false for
// another state.
func (s *Session) DetachedSince() (time.Time, bool) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.detached == nil {
		return time.Time{}, false
	}
	return s.detached.since, true
}

// TokenConfirmed reports whether the client has sent a frame on the connection of an epoch.
func (s *Session) TokenConfirmed(epoch uint32) bool {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	return s.confirmedEpoch == epoch
}

// ConfirmToken records that the client has sent a frame on the connection of an epoch.
func (s *Session) ConfirmToken(epoch uint32) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	s.confirmedEpoch = max(s.confirmedEpoch, epoch)
}

// TokenIssued records that the connection of an epoch has a new resume token, which the client may
// not have received.
func (s *Session) TokenIssued(epoch uint32) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.epoch == epoch {
		s.confirmedEpoch = 0
	}
}

// Actor returns the actor of the session. It returns false if no connection has set one since the
// start of the runtime, or since the last call of Directory.InvalidateActors.
func (s *Session) Actor() (approval.Actor, bool) {
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if s.actor == nil || s.actorStale {
		return approval.Actor{}, false
	}
	return *s.actor, true
}

// Catalog returns the tools that the session sees with a trust level.
func (s *Session) Catalog(trust arcp.TrustLevel) *catalog.Snapshot {
	return s.dir.opts.Catalog.Snapshot(catalog.Viewer{Trust: trust, Principal: s.Principal}, s.Overlay().Overlay)
}
