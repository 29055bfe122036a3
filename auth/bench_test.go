package auth

import (
	"fmt"
	"testing"
)

func BenchmarkBearer(b *testing.B) {
	c := new(Config)
	for i := range 1000 {
		must(b, c.AddToken(Token{Principal: fmt.Sprint("principal-", i), Secret: NewToken("tok_")}))
	}
	token := NewToken("tok_")
	must(b, c.AddToken(Token{Principal: "alice", Secret: token, Roles: LocalRoles()}))
	set := NewSet(c)
	r := Request{Scheme: Bearer, Token: token, Now: now}
	b.Run("begin", func(b *testing.B) { benchmarkBegin(b, set, r) })
	r.Token = NewToken("tok_")
	b.Run("unknown", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := set.Begin(b.Context(), r); err == nil {
				b.Fatal("an unknown token came in")
			}
		}
	})
	r.Token = token
	challenge := NewChallenge()
	proof := Proof{challenge, ChallengeResponse(token, challenge)}
	b.Run("verify", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := set.Verify(b.Context(), r, proof); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmarkBegin(b *testing.B, set *Set, r Request) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := set.Begin(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBearerKnownClient(b *testing.B) {
	c := parse(b, "", "challenge: {bearer: new}")
	must(b, c.AddToken(Token{Principal: "alice", Secret: "tok", Roles: LocalRoles()}))
	set := NewSet(c)
	r := Request{Scheme: Bearer, Token: "tok", Fingerprint: "sha256:ab", Now: now}
	challenge := challenged(b, set, r)
	_, err := set.Verify(b.Context(), r, Proof{challenge, ChallengeResponse("tok", challenge)})
	must(b, err)
	benchmarkBegin(b, set, r)
}

func BenchmarkSignedJWT(b *testing.B) {
	for _, algorithm := range []string{"HS256", "RS256", "ES256", "EdDSA"} {
		s := signers()[kindOf(algorithm)]
		dir := writeFiles(b, map[string]string{"set.json": jwksOf(s.jwk)})
		set := NewSet(parse(b, dir, "issuers: [{issuer: https://issuer.example, jwks: set.json, algorithms: ["+algorithm+"]}]"))
		r := jwtRequest(sign(b, algorithm, s.private, claims(nil), nil))
		b.Run(algorithm, func(b *testing.B) { benchmarkBegin(b, set, r) })
	}
}

func BenchmarkNone(b *testing.B) {
	benchmarkBegin(b, NewSet(new(Config)), Request{Scheme: None, Local: true, PeerUID: 1000, Now: now})
}

// A full memory of clients, each of which is seen for the first time.
func BenchmarkSeen(b *testing.B) {
	s, n := newKnownClients(maxKnown), 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		s.add(ClientKey{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, now)
	}
}
