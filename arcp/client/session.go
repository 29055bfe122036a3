package client

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Session holds the members of session.accepted.
type Session struct {
	ID           arcp.SessionID
	Dialect      arcp.Dialect
	Runtime      arcp.RuntimeInfo
	Capabilities arcp.Capabilities // negotiated capabilities
	ResumeToken  Secret            // valid once; replaced by each session.accepted and session.resumed
	ResumeWindow time.Duration     // lifetime of the session without a connection
	Heartbeat    time.Duration     // interval of session.ping; 0: none
	ExpiresAt    time.Time         // end of the session's lease; zero: not announced
	Resumed      bool              // the session was resumed with a token: ReplayedFrom is set
	ReplayedFrom uint64
}

// sessionOf decodes session.accepted, from the handshake or a refresh.
func sessionOf(env *arcp.Envelope) (Session, error) {
	p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](env)
	if err != nil {
		return Session{}, &ProtocolError{"session.accepted", err}
	}
	s := Session{ID: p.SessionID, Runtime: p.Runtime, Capabilities: p.Capabilities, ResumeToken: Secret(p.ResumeToken),
		ResumeWindow: time.Duration(p.ResumeWindowSec) * time.Second, Heartbeat: time.Duration(p.HeartbeatIntervalSec) * time.Second}
	if p.Lease != nil {
		s.ExpiresAt = p.Lease.ExpiresAt
	}
	return s, nil
}

// sessionState is the session and its resume tokens.
type sessionState struct {
	ackEvery atomic.Uint64 // Options.AckEvery, or less if the window is smaller

	mu      sync.Mutex
	session Session
	tokens  []Secret // the newest two, the newest first
}

func (s *sessionState) get() Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

func (s *sessionState) id() arcp.SessionID { return s.get().ID }

func (s *sessionState) resumeTokens() []Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens
}

// set replaces the session and retains two resume tokens. The previous token is valid until the
// runtime has received a frame on the new connection.
func (s *sessionState) set(session Session, ackEvery uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = session
	s.ackEvery.Store(boundedAckEvery(ackEvery, session.Capabilities.AckWindow))
	if session.ResumeToken != "" && !slices.Contains(s.tokens, session.ResumeToken) {
		s.tokens = append([]Secret{session.ResumeToken}, s.tokens[:min(len(s.tokens), 1)]...)
	}
}

// boundedAckEvery returns events, or half of the window if that is less. A full window stops the
// events.
func boundedAckEvery(events uint64, window uint32) uint64 {
	if window == 0 {
		return events
	}
	return min(events, max(uint64(window)/2, 1))
}
