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
	Runtime      arcp.RuntimeInfo
	Capabilities arcp.Capabilities // as negotiated
	ResumeToken  Secret            // single use; a later accept or resume brings another
	ResumeWindow time.Duration     // how long the session outlives its connection
	Heartbeat    time.Duration     // interval of session.ping; 0: none
	ExpiresAt    time.Time         // end of the session's lease; zero: not announced
	Resumed      bool              // by token: ReplayedFrom is set
	ReplayedFrom uint64
}

// sessionOf reads session.accepted, of the handshake or of a refresh.
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

// sessionState holds the session and the tokens that resume it.
type sessionState struct {
	ackEvery atomic.Uint64 // Options.AckEvery, or less if the window is smaller

	mu      sync.Mutex
	session Session
	tokens  []Secret // the newest two, newest first
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

// set replaces the session. Two of its tokens are retained: the previous one is valid
// until the runtime has received a frame on the connection of the new one.
func (s *sessionState) set(session Session, ackEvery uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = session
	s.ackEvery.Store(boundedAckEvery(ackEvery, session.Capabilities.AckWindow))
	if session.ResumeToken != "" && !slices.Contains(s.tokens, session.ResumeToken) {
		s.tokens = append([]Secret{session.ResumeToken}, s.tokens[:min(len(s.tokens), 1)]...)
	}
}

// boundedAckEvery bounds the number of events that are acknowledged together by half
// of the window: a full window stops the events.
func boundedAckEvery(events uint64, window uint32) uint64 {
	if window == 0 {
		return events
	}
	return min(events, max(uint64(window)/2, 1))
}
