package auth

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSeenForgetsAfterThirtyDays(t *testing.T) {
	s, who := newSeen(10), client{1}
	want(t, "a client is new at first", s.knows(who, now), false)
	want(t, "asking does not make it known", s.knows(who, now), false)
	s.mark(who, now)
	want(t, "30 days later it is known, and is seen then", s.knows(who, now.Add(seenFor)), true)
	want(t, "30 days after that it is still known", s.knows(who, now.Add(2*seenFor)), true)
	want(t, "a second too late it is new", s.knows(who, now.Add(3*seenFor+time.Second)), false)
}

// The model is a list of at most limit clients, latest first.
func TestSeenIsALRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3
		s, at := newSeen(limit), now
		var model []client
		touch := func(who client) (known bool) {
			rest := model[:0:0]
			for _, m := range model {
				if m == who {
					known = true
				} else {
					rest = append(rest, m)
				}
			}
			model = append([]client{who}, rest...)
			return known
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			who := client{byte(rapid.IntRange(1, 5).Draw(t, "who"))}
			at = at.Add(time.Second)
			if rapid.Bool().Draw(t, "mark") {
				s.mark(who, at)
				touch(who)
				model = model[:min(len(model), limit)]
				continue
			}
			before := append([]client(nil), model...)
			known := touch(who)
			if !known {
				model = before
			}
			want(t, "known", s.knows(who, at), known)
		}
		want(t, "both sides hold as many", []int{len(s.at), s.order.Len()}, []int{len(model), len(model)})
	})
}

func TestClientOf(t *testing.T) {
	base := Identity{Scheme: Bearer, Principal: "alice"}
	a, ok := clientOf(base, "sha256:ab")
	want(t, "a client with a fingerprint can be recognized", ok, true)
	_, ok = clientOf(base, "")
	want(t, "one without cannot", ok, false)
	for why, other := range map[string]client{
		"another fingerprint": first(clientOf(base, "sha256:abc")),
		"another principal":   first(clientOf(Identity{Scheme: Bearer, Principal: "alices"}, "ha256:ab")),
		"another scheme":      first(clientOf(Identity{Scheme: SignedJWT, Principal: "alice"}, "sha256:ab")),
	} {
		want(t, why+" is another client", a == other, false)
	}
}

func first[A, B any](a A, _ B) A { return a }
