package agentservice

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/session"
)

// awayGrace is how long the session of an agent may be without a connection before an event says so.
const awayGrace = time.Second

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
	s.announcing.Lock()
	defer s.announcing.Unlock()
	owned := s.Store.OwnedBy(own.Principal, own.ID)
	if len(owned) == 0 || !s.isAway(own.ID) || !s.Store.SetAway(own.Principal, own.ID, true) {
		return
	}
	for _, a := range owned {
		if a.IsLive() {
			a.Status = agents.Disconnected
			s.Store.Announce(*a)
		}
	}
}

func (s *Service) announceBack(own *session.Session) {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	if !s.Store.SetAway(own.Principal, own.ID, false) {
		return
	}
	for _, a := range s.Store.OwnedBy(own.Principal, own.ID) {
		if a.IsLive() {
			s.Store.Announce(*a)
		}
	}
}

// forgetAway is called when a session has lost an agent. It does nothing while the session has others.
func (s *Service) forgetAway(principal string, id arcp.SessionID) {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	if len(s.Store.OwnedBy(principal, id)) == 0 {
		s.Store.SetAway(principal, id, false)
	}
}

// isAway reports whether a session that has not ended has no connection.
func (s *Service) isAway(id arcp.SessionID) bool {
	own := s.opts.Sessions.Find(id)
	return own != nil && own.Conn() == nil
}
