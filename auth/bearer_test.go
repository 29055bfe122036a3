package auth

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

func TestBearerTokenNamesThePrincipal(t *testing.T) {
	set := NewSet(withTokens(t, map[Secret]string{"tok-a": "alice", "tok-b": "bob"}))
	id := begin(t, set, Request{Scheme: Bearer, Token: "tok-a", Principal: "bob", Now: now})
	want(t, "the principal comes from the token, not from the hint", id, Identity{
		Principal: "alice", Scheme: Bearer, Roles: localRoles, Trust: arcp.Trusted, TokenPrint: tokenPrint(HashToken("tok-a")),
	})
}

func TestBearerRefusalsHaveReasons(t *testing.T) {
	set := NewSet(withTokens(t, map[Secret]string{"tok-a": "alice"}))
	for _, c := range []struct {
		why             string
		token           Secret
		reason, message string
	}{
		{"no token", "", ReasonMissing, "bearer scheme requires a token"},
		{"nobody's token", "tok-z", ReasonUnknown, "unknown bearer token"},
		{"the start of a token", "tok-", ReasonUnknown, "unknown bearer token"},
		{"more than a token", "tok-a ", ReasonUnknown, "unknown bearer token"},
		{"the hash instead of the token", Secret(FileHash("tok-a")), ReasonUnknown, "unknown bearer token"},
	} {
		err := refused(t, set, Request{Scheme: Bearer, Token: c.token, Now: now})
		wantRefusal(t, c.why, err, c.reason, c.message)
		want(t, c.why+": another token would help", err.(*Error).Final, false)
	}
}

func TestBearerChallengeNeedsTheToken(t *testing.T) {
	set := NewSet(withTokens(t, map[Secret]string{"tok-a": "alice", "tok-a2": "alice", "tok-b": "bob"}))
	nonce := NewChallenge()
	for _, c := range []struct {
		why       string
		request   Request
		response  Secret
		principal string // "": refused
	}{
		{"with the token", Request{Token: "tok-a"}, ChallengeResponse("tok-a", nonce), "alice"},
		{"with the token, whatever the hint", Request{Token: "tok-a", Principal: "bob"}, ChallengeResponse("tok-a", nonce), "alice"},
		{"without a token, by the first", Request{Principal: "alice"}, ChallengeResponse("tok-a", nonce), "alice"},
		{"without a token, by the second", Request{Principal: "alice"}, ChallengeResponse("tok-a2", nonce), "alice"},
		{"with the token, keyed by another of the same principal", Request{Token: "tok-a"}, ChallengeResponse("tok-a2", nonce), ""},
		{"with the token, keyed by another's", Request{Token: "tok-a"}, ChallengeResponse("tok-b", nonce), ""},
		{"without a token, keyed by another's", Request{Principal: "alice"}, ChallengeResponse("tok-b", nonce), ""},
		{"another challenge", Request{Token: "tok-a"}, ChallengeResponse("tok-a", NewChallenge()), ""},
		{"upper-case hex", Request{Token: "tok-a"}, Secret(strings.ToUpper(ChallengeResponse("tok-a", nonce).Reveal())), ""},
		{"cut off", Request{Token: "tok-a"}, ChallengeResponse("tok-a", nonce)[:63], ""},
		{"nothing", Request{Token: "tok-a"}, "", ""},
		{"the token itself", Request{Token: "tok-a"}, "tok-a", ""},
		{"nobody's name", Request{Principal: "mallory"}, ChallengeResponse("tok-a", nonce), ""},
		{"nobody's name, keyed by the filler key", Request{Principal: "mallory"}, fillerAnswer(nonce), ""},
		{"a name with fewer tokens, keyed by the filler key", Request{Principal: "bob"}, fillerAnswer(nonce), ""},
		{"no name", Request{}, fillerAnswer(nonce), ""},
	} {
		c.request.Scheme, c.request.Now = Bearer, now
		id, err := set.Verify(t.Context(), c.request, Proof{nonce, c.response})
		if c.principal != "" {
			must(t, err)
			want(t, c.why, id.Principal, c.principal)
			continue
		}
		want(t, c.why, err, error(wrongAnswer(nil)))
		want(t, c.why, id, Identity{})
	}
}

// fillerAnswer is keyed as the HMACs made only to take time are.
func fillerAnswer(challenge Secret) Secret {
	a := challengeResponse([32]byte{}, challenge)
	return Secret(a[:])
}

func TestRemovedBearerTokenDoesNotVerify(t *testing.T) {
	set := NewSet(withTokens(t, map[Secret]string{"tok-a": "alice"}))
	r := Request{Scheme: Bearer, Token: "tok-a", Now: now}
	set.Reload(withTokens(t, map[Secret]string{"tok-b": "alice"}))
	_, err := set.Verify(t.Context(), r, Proof{"nonce", ChallengeResponse("tok-a", "nonce")})
	wantRefusal(t, "a removed token does not answer", err, ReasonUnknown, "unknown bearer token")
}

// An HMAC allocates, so equal allocations mean equally many HMACs.
func TestBearerVerifyCostsTheSameForAnyPrincipal(t *testing.T) {
	tokens := map[Secret]string{"one": "single"}
	for i := range maxTokens {
		tokens[Secret(fmt.Sprint("many-", i))] = "many"
	}
	set := NewSet(withTokens(t, tokens))
	cost := func(name string) float64 {
		return testing.AllocsPerRun(20, func() {
			_, _ = set.Verify(t.Context(), Request{Scheme: Bearer, Principal: name, Now: now}, Proof{"nonce", "wrong"}) // refused
		})
	}
	if cost("many") < maxTokens {
		t.Fatalf("%v allocations do not show the HMACs", cost("many"))
	}
	want(t, "a principal with one token", cost("single"), cost("many"))
	want(t, "nobody", cost("nobody"), cost("many"))
}

func TestBearerFindsTheHolder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,8}`), 1, 8, rapid.ID).Draw(t, "names")
		tokens := rapid.SliceOfNDistinct(rapid.StringMatching(`[ -~]{1,40}`), 1, maxTokens, rapid.ID).Draw(t, "tokens")
		holder := map[Secret]string{}
		for i, token := range tokens {
			holder[Secret(token)] = names[i%len(names)]
		}
		set := NewSet(withTokens(t, holder))
		for token, name := range holder {
			r := Request{Scheme: Bearer, Token: token, Now: now}
			want(t, "the holder of the token", begin(t, set, r).Principal, name)
		}
		other := Secret(rapid.String().Draw(t, "other"))
		if holder[other] == "" {
			_ = refused(t, set, Request{Scheme: Bearer, Token: other, Now: now})
		}
	})
}
