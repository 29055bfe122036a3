package auth

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestKnownClientIsForgottenAfterThirtyDays(t *testing.T) {
	s, client := newKnownClients(10), ClientKey{1}
	want(t, "a client is new at first", s.knows(client, now), false)
	want(t, "asking does not make it known", s.knows(client, now), false)
	s.add(client, now)
	want(t, "30 days later it is known, and is seen then", s.knows(client, now.Add(knownFor)), true)
	want(t, "30 days after that it is still known", s.knows(client, now.Add(2*knownFor)), true)
	want(t, "a second too late it is new", s.knows(client, now.Add(3*knownFor+time.Second)), false)
}

// The model is a list of at most limit clients, latest first.
func TestKnownClientsAreALRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3
		s, at := newKnownClients(limit), now
		var model []ClientKey
		touch := func(client ClientKey) (known bool) {
			rest := model[:0:0]
			for _, m := range model {
				if m == client {
					known = true
				} else {
					rest = append(rest, m)
				}
			}
			model = append([]ClientKey{client}, rest...)
			return known
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			client := ClientKey{byte(rapid.IntRange(1, 5).Draw(t, "who"))}
			at = at.Add(time.Second)
			if rapid.Bool().Draw(t, "mark") {
				s.add(client, at)
				touch(client)
				model = model[:min(len(model), limit)]
				continue
			}
			before := append([]ClientKey(nil), model...)
			known := touch(client)
			if !known {
				model = before
			}
			want(t, "known", s.knows(client, at), known)
		}
		want(t, "both sides hold as many", []int{len(s.at), s.order.Len()}, []int{len(model), len(model)})
	})
}

func TestClientKeyNeedsAFingerprint(t *testing.T) {
	base := Identity{Scheme: Bearer, Principal: "alice"}
	a, ok := clientOf(base, "sha256:ab")
	want(t, "a client with a fingerprint can be recognized", ok, true)
	_, ok = clientOf(base, "")
	want(t, "one without cannot", ok, false)
	for why, other := range map[string]ClientKey{
		"another fingerprint": first(clientOf(base, "sha256:abc")),
		"another principal":   first(clientOf(Identity{Scheme: Bearer, Principal: "alices"}, "ha256:ab")),
		"another scheme":      first(clientOf(Identity{Scheme: SignedJWT, Principal: "alice"}, "sha256:ab")),
	} {
		want(t, why+" is another client", a == other, false)
	}
}

func first[A, B any](a A, _ B) A { return a }

// The changes returned so far always restore the same known clients in a later process.
func TestKnownClientChangesRestoreTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3
		s, at, kept := newKnownClients(limit), now, map[ClientKey]time.Time{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			at = at.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "minutes")) * time.Minute)
			client := ClientKey{byte(rapid.IntRange(1, 6).Draw(t, "who"))}
			switch rapid.SampledFrom([]string{"mark", "knows", "keep", "restart"}).Draw(t, "step") {
			case "mark":
				s.add(client, at)
			case "knows":
				s.knows(client, at)
			case "keep":
				applyChanges(kept, s.changes(at, rapid.IntRange(1, 4).Draw(t, "limit")))
			case "restart":
				s = restarted(kept, limit)
			}
		}
		for changes := s.changes(at, 2); len(changes) > 0; changes = s.changes(at, 2) {
			applyChanges(kept, changes)
		}
		for client, e := range s.at {
			late := e.Value.(*knownEntry).At.Sub(kept[client])
			want(t, "what is kept is at most so late", late >= 0 && late < storeInterval, true)
		}
		want(t, "nobody else is kept", len(kept), len(s.at))
		want(t, "nothing is left to be told of", len(s.changed), 0)
		want(t, "a later process knows as many", len(restarted(kept, limit).at), len(s.at))
	})
}

func applyChanges(kept map[ClientKey]time.Time, changes []KnownClient) {
	for _, c := range changes {
		if kept[c.Client] = c.At; c.At.IsZero() {
			delete(kept, c.Client)
		}
	}
}

func restarted(kept map[ClientKey]time.Time, limit int) *knownClients {
	var list []KnownClient
	for client, at := range kept {
		list = append(list, KnownClient{client, at})
	}
	s := newKnownClients(limit)
	s.restore(list)
	return s
}

// Sightings beyond the bound, or older than knownFor, are withdrawn.
func TestKnownClientsAreBounded(t *testing.T) {
	s := newKnownClients(2)
	s.restore([]KnownClient{{ClientKey{1}, now}, {ClientKey{2}, now.Add(-time.Minute)}, {ClientKey{3}, now.Add(-2 * time.Minute)}})
	want(t, "the one seen longest ago is forgotten", s.changes(now, 10), []KnownClient{{Client: ClientKey{3}}})
	want(t, "the others are known",
		[]bool{s.knows(ClientKey{1}, now), s.knows(ClientKey{2}, now), s.knows(ClientKey{3}, now)}, []bool{true, true, false})
	want(t, "who comes again within the hour needs no writing", len(s.changes(now.Add(time.Minute), 10)), 0)
	want(t, "who has not come for 30 days is forgotten", len(s.changes(now.Add(knownFor+time.Second), 10)), 2)
	want(t, "and takes no room", len(s.at)+s.order.Len(), 0)
}
