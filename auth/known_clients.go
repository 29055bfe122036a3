package auth

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

const (
	seenFor = 30 * 24 * time.Hour // a client not seen for longer is new again
	maxSeen = 100_000             // about 30 MB; beyond, the one seen longest ago is forgotten and challenged again

	// seenStep is how far the stored time of a client may lag behind its last connection. It
	// bounds how often a frequent client is written.
	seenStep = time.Hour
)

// Client is the hash of a principal, a scheme and a fingerprint.
type Client [sha256.Size]byte

// KnownClient is when a client that has proved itself was last seen; a zero time
// says that it is forgotten.
type KnownClient struct {
	Client Client
	At     time.Time
}

// knownClients remembers which clients have proved their identity. Its methods may be called by
// many goroutines. They hold the lock for one map access; changes holds it for as many as
// are asked for.
type knownClients struct {
	mu      sync.Mutex
	limit   int
	at      map[Client]*list.Element
	order   list.List           // of *memory, latest first
	changed map[Client]struct{} // since changes told of them: of those in at, and of forgotten ones that are kept elsewhere
}

// memory is the state of one known client.
type memory struct {
	KnownClient
	stored bool      // elsewhere: changes has told of it
	keptAt time.Time // of the last Sighting that changes returned
}

func newSeen(limit int) *knownClients {
	return &knownClients{limit: limit, at: map[Client]*list.Element{}, changed: map[Client]struct{}{}}
}

// clientOf returns false without a fingerprint: such a client is never recognized.
func clientOf(id Identity, fingerprint string) (Client, bool) {
	h := sha256.New()
	for _, s := range []string{id.Scheme, id.Principal, fingerprint} {
		part := sha256.Sum256([]byte(s)) // fixed width: no two triples run together
		h.Write(part[:])
	}
	return Client(h.Sum(nil)), fingerprint != ""
}

// knows reports whether the client was marked in the last seenFor, and marks it.
func (s *knownClients) knows(who Client, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.at[who]
	if !ok || now.Sub(e.Value.(*memory).At) > seenFor {
		return false
	}
	s.addLocked(who, now)
	return true
}

func (s *knownClients) add(who Client, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(who, now)
}

func (s *knownClients) addLocked(who Client, now time.Time) {
	e, ok := s.at[who]
	if !ok {
		_, kept := s.changed[who]
		e = s.order.PushFront(&memory{KnownClient: KnownClient{Client: who}, stored: kept})
		s.at[who] = e
	}
	m := e.Value.(*memory)
	if m.At = now; now.Sub(m.keptAt) >= seenStep {
		s.changed[who] = struct{}{}
	}
	s.order.MoveToFront(e)
	if s.order.Len() > s.limit {
		s.forgetLocked(s.order.Back())
	}
}

func (s *knownClients) forgetLocked(e *list.Element) {
	m := s.order.Remove(e).(*memory)
	delete(s.at, m.Client)
	if delete(s.changed, m.Client); m.stored {
		s.changed[m.Client] = struct{}{}
	}
}

// restore adds the stored sightings of an earlier process. A sighting in memory is newer and
// stays.
func (s *knownClients) restore(kept []KnownClient) {
	kept = slices.SortedFunc(slices.Values(kept), func(a, b KnownClient) int {
		return cmp.Or(b.At.Compare(a.At), slices.Compare(a.Client[:], b.Client[:]))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kept {
		if _, ok := s.at[k.Client]; ok {
			continue
		}
		e := s.order.PushBack(&memory{KnownClient: k, stored: true, keptAt: k.At})
		if s.at[k.Client] = e; s.order.Len() > s.limit {
			s.forgetLocked(e)
		}
	}
}

// changes returns up to limit changes that no earlier call returned. It forgets clients that
// were not seen in the last seenFor.
func (s *knownClients) changes(now time.Time, limit int) (list []KnownClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; n < limit && s.order.Len() > 0 && now.Sub(s.order.Back().Value.(*memory).At) > seenFor; n++ {
		s.forgetLocked(s.order.Back())
	}
	for who := range s.changed {
		if len(list) == limit {
			break
		}
		delete(s.changed, who)
		change := KnownClient{Client: who}
		if e, ok := s.at[who]; ok {
			m := e.Value.(*memory)
			m.stored, m.keptAt, change = true, m.At, m.KnownClient
		}
		list = append(list, change)
	}
	return list
}
