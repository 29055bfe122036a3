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
func (kc *knownClients) knows(client ClientKey, now time.Time) bool {
	kc.mu.Lock()
	defer kc.mu.Unlock()
	e, ok := kc.at[client]
	if !ok || now.Sub(e.Value.(*knownEntry).At) > knownFor {
		return false
	}
	kc.addLocked(client, now)
	return true
}

func (kc *knownClients) add(client ClientKey, now time.Time) {
	kc.mu.Lock()
	defer kc.mu.Unlock()
	kc.addLocked(client, now)
}

func (kc *knownClients) addLocked(client ClientKey, now time.Time) {
	e, ok := kc.at[client]
	if !ok {
		_, stored := kc.changed[client]
		e = kc.order.PushFront(&knownEntry{KnownClient: KnownClient{Client: client}, stored: stored})
		kc.at[client] = e
	}
	m := e.Value.(*knownEntry)
	if m.At = now; now.Sub(m.storedAt) >= storeInterval {
		kc.changed[client] = struct{}{}
	}
	kc.order.MoveToFront(e)
	if kc.order.Len() > kc.limit {
		kc.forgetLocked(kc.order.Back())
	}
}

func (kc *knownClients) forgetLocked(e *list.Element) {
	m := kc.order.Remove(e).(*knownEntry)
	delete(kc.at, m.Client)
	if delete(kc.changed, m.Client); m.stored {
		kc.changed[m.Client] = struct{}{}
	}
}

// restore adds the stored clients of an earlier process. Clients in memory are newer and stay unchanged.
func (kc *knownClients) restore(stored []KnownClient) {
	stored = slices.SortedFunc(slices.Values(stored), func(a, b KnownClient) int {
		return cmp.Or(b.At.Compare(a.At), slices.Compare(a.Client[:], b.Client[:]))
	})
	kc.mu.Lock()
	defer kc.mu.Unlock()
	for _, k := range stored {
		if _, ok := kc.at[k.Client]; ok {
			continue
		}
		e := kc.order.PushBack(&knownEntry{KnownClient: k, stored: true, storedAt: k.At})
		if kc.at[k.Client] = e; kc.order.Len() > kc.limit {
			kc.forgetLocked(e)
		}
	}
}

// changes returns up to limit changes that no earlier call returned. It forgets clients without a
// connection in the last knownFor.
func (kc *knownClients) changes(now time.Time, limit int) (list []KnownClient) {
	kc.mu.Lock()
	defer kc.mu.Unlock()
	for n := 0; n < limit && kc.order.Len() > 0 && now.Sub(kc.order.Back().Value.(*knownEntry).At) > knownFor; n++ {
		kc.forgetLocked(kc.order.Back())
	}
	for client := range kc.changed {
		if len(list) == limit {
			break
		}
		delete(kc.changed, client)
		change := KnownClient{Client: client}
		if e, ok := kc.at[client]; ok {
			m := e.Value.(*knownEntry)
			m.stored, m.storedAt, change = true, m.At, m.KnownClient
		}
		list = append(list, change)
	}
	return list
}
