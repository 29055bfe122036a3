package agentservice

import (
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/session"
)

// awayGrace is how long the session of an agent may be without a connection before an event says so.
const awayGrace = time.Second

// awaySessions has the sessions whose agents are announced as Disconnected: by an event, or because the
// runtime was started with them.
type awaySessions struct {
	mu        sync.Mutex // also held while the events are queued, so that they have the order of the changes
	announced map[arcp.SessionID]struct{}
}

// forget removes a session that has ended.
func (w *awaySessions) forget(id arcp.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.announced, id)
}

// ConnectionChanged announces that the agents of a session are Disconnected once it has been without a
// connection for awayGrace, and their own status when it has a connection again. It does not block.
func (s *Service) ConnectionChanged(own *session.Session, connected bool) {
	switch {
	case connected:
		s.announceBack(own)
	case len(s.Store.OwnedBy(own.Principal, own.ID)) > 0:
		time.AfterFunc(awayGrace, func() { s.announceAway(own) })
	}
}

func (s *Service) announceAway(own *session.Session) {
	s.away.mu.Lock()
	defer s.away.mu.Unlock()
	if _, done := s.away.announced[own.ID]; done || !s.isAway(own.ID) {
		return
	}
	for _, a := range s.Store.OwnedBy(own.Principal, own.ID) {
		if isLive(a) {
			s.away.announced[own.ID] = struct{}{}
			a.Status = agents.Disconnected
			s.Store.Announce(*a)
		}
	}
}

func (s *Service) announceBack(own *session.Session) {
	s.away.mu.Lock()
	defer s.away.mu.Unlock()
	if _, away := s.away.announced[own.ID]; !away {
		return
	}
	delete(s.away.announced, own.ID)
	for _, a := range s.Store.OwnedBy(own.Principal, own.ID) {
		if isLive(a) {
			s.Store.Announce(*a)
		}
	}
}

// isAway reports whether a session that has not ended has no connection.
func (s *Service) isAway(id arcp.SessionID) bool {
	own := s.opts.Sessions.Find(id)
	return own != nil && own.Conn() == nil
}

// isLive reports whether an agent has not ended by its own status.
func isLive(a *agents.Agent) bool {
	switch a.Status {
	case agents.Completed, agents.Errored, agents.Stopped:
		return false
	}
	return true
}
