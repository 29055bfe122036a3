package auth

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

const (
	seenFor = 30 * 24 * time.Hour // a client not seen for longer is new again
	maxSeen = 100_000             // about 20 MB; beyond, the one seen longest ago is forgotten and challenged again
)

// seen remembers which clients proved themselves. It may be used by many
// goroutines at once, and holds its lock for a map access.
type seen struct {
	mu    sync.Mutex
	limit int
	at    map[client]*list.Element
	order list.List // of sighting, latest first
}

// client is the hash of who, how and with which fingerprint.
type client [sha256.Size]byte

type sighting struct {
	who  client
	when time.Time
}

func newSeen(limit int) *seen { return &seen{limit: limit, at: map[client]*list.Element{}} }

// clientOf is false without a fingerprint: such a client is never recognized.
func clientOf(id Identity, fingerprint string) (client, bool) {
	h := sha256.New()
	for _, s := range []string{id.Scheme, id.Principal, fingerprint} {
		part := sha256.Sum256([]byte(s)) // fixed width: no two triples run together
		h.Write(part[:])
	}
	return client(h.Sum(nil)), fingerprint != ""
}

// knows says whether the client was marked in the last seenFor, and marks it.
func (s *seen) knows(who client, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.at[who]
	if !ok || now.Sub(e.Value.(sighting).when) > seenFor {
		return false
	}
	s.markLocked(who, now)
	return true
}

func (s *seen) mark(who client, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markLocked(who, now)
}

func (s *seen) markLocked(who client, now time.Time) {
	if e, ok := s.at[who]; ok {
		e.Value = sighting{who, now}
		s.order.MoveToFront(e)
		return
	}
	s.at[who] = s.order.PushFront(sighting{who, now})
	if s.order.Len() > s.limit {
		oldest := s.order.Remove(s.order.Back()).(sighting)
		delete(s.at, oldest.who)
	}
}
