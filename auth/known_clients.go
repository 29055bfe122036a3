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
	knownFor = 30 * 24 * time.Hour // after this time without a connection a client is new again
	maxKnown = 100_000             // about 30 MB; above, the oldest client is forgotten and challenged again

	// storeInterval bounds the rate at which the times of one client are stored. The stored
	// time may be older than the last connection by this much.
	storeInterval = time.Hour
)

// ClientKey is the hash of a principal, a scheme and a fingerprint.
type ClientKey [sha256.Size]byte

// KnownClient is a client that answered a challenge, and the time of its last connection. A zero time
// means that the client is forgotten.
type KnownClient struct {
	Client ClientKey
	At     time.Time
}

// knownClients is the set of clients that answered a challenge. It is safe for concurrent use. The
// mutex is held for one map access, or by changes for as many as requested.
type knownClients struct {
	mu      sync.Mutex
	limit   int
	at      map[ClientKey]*list.Element
	order   list.List              // of *knownEntry, the latest first
	changed map[ClientKey]struct{} // not yet returned by changes; includes forgotten clients that are stored
}

// knownEntry is the state of one known client.
type knownEntry struct {
	KnownClient
	stored   bool      // changes has returned it
	storedAt time.Time // time last returned by changes
}

func newKnownClients(limit int) *knownClients {
	return &knownClients{limit: limit, at: map[ClientKey]*list.Element{}, changed: map[ClientKey]struct{}{}}
}

// clientOf returns false without a fingerprint. Such a client is never known.
func clientOf(id Identity, fingerprint string) (ClientKey, bool) {
	h := sha256.New()
	for _, s := range []string{id.Scheme, id.Principal, fingerprint} {
		part := sha256.Sum256([]byte(s)) // fixed width: different triples have different input
		h.Write(part[:])
	}
	return ClientKey(h.Sum(nil)), fingerprint != ""
}

// knows reports whether the client connected in the last knownFor, and records this connection.
func (s *knownClients) knows(client ClientKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.at[client]
	if !ok || now.Sub(e.Value.(*knownEntry).At) > knownFor {
		return false
	}
	s.addLocked(client, now)
	return true
}

func (s *knownClients) add(client ClientKey, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(client, now)
}

func (s *knownClients) addLocked(client ClientKey, now time.Time) {
	e, ok := s.at[client]
	if !ok {
		_, stored := s.changed[client]
		e = s.order.PushFront(&knownEntry{KnownClient: KnownClient{Client: client}, stored: stored})
		s.at[client] = e
	}
	m := e.Value.(*knownEntry)
	if m.At = now; now.Sub(m.storedAt) >= storeInterval {
		s.changed[client] = struct{}{}
	}
	s.order.MoveToFront(e)
	if s.order.Len() > s.limit {
		s.forgetLocked(s.order.Back())
	}
}

func (s *knownClients) forgetLocked(e *list.Element) {
	m := s.order.Remove(e).(*knownEntry)
	delete(s.at, m.Client)
	if delete(s.changed, m.Client); m.stored {
		s.changed[m.Client] = struct{}{}
	}
}

// restore adds the stored clients of an earlier process. Clients in memory are newer and stay unchanged.
func (s *knownClients) restore(stored []KnownClient) {
	stored = slices.SortedFunc(slices.Values(stored), func(a, b KnownClient) int {
		return cmp.Or(b.At.Compare(a.At), slices.Compare(a.Client[:], b.Client[:]))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range stored {
		if _, ok := s.at[k.Client]; ok {
			continue
		}
		e := s.order.PushBack(&knownEntry{KnownClient: k, stored: true, storedAt: k.At})
		if s.at[k.Client] = e; s.order.Len() > s.limit {
			s.forgetLocked(e)
		}
	}
}

// changes returns up to limit changes that no earlier call returned. It forgets clients without a
// connection in the last knownFor.
func (s *knownClients) changes(now time.Time, limit int) (list []KnownClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; n < limit && s.order.Len() > 0 && now.Sub(s.order.Back().Value.(*knownEntry).At) > knownFor; n++ {
		s.forgetLocked(s.order.Back())
	}
	for client := range s.changed {
		if len(list) == limit {
			break
		}
		delete(s.changed, client)
		change := KnownClient{Client: client}
		if e, ok := s.at[client]; ok {
			m := e.Value.(*knownEntry)
			m.stored, m.storedAt, change = true, m.At, m.KnownClient
		}
		list = append(list, change)
	}
	return list
}
