package conformance

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func signedJWT(token string) arcp.Auth { return arcp.Auth{Scheme: "signed_jwt", Token: token} }

// opensJWT wants a token to open a session.
func (t *T) opensJWT(why, token string) *Conn {
	c := t.Dial()
	c.Accepted = payload[arcp.SessionAcceptedPayload](t, c.Expect(why, arcp.SessionAccepted, c.openWith(signedJWT(token))))
	return c
}

// opensNothing wants tokens to be refused, each of which differs from one that
// opens a session in what the check is about.
func (t *T) opensNothing(why string, tokens ...string) {
	t.opensJWT("a right token opens a session", t.jwt(nil))
	for _, token := range tokens {
		c := t.Dial()
		c.refused(why, c.openWith(signedJWT(token)))
		c.Drop()
	}
}

// far is further than the clocks of two machines differ.
const far = time.Hour

func jwtAccepted(_ context.Context, t *T) {
	for _, changes := range []claims{nil, {"nbf": time.Now().Add(-far).Unix()}, {"aud": []string{"somebody-else", t.target.audience()}}} {
		t.opensJWT("a right token opens a session", t.jwt(changes)).ExpectNothing("the session works like any other")
	}
}

func jwtAudience(_ context.Context, t *T) {
	t.opensNothing("the token is not for this server", t.jwt(claims{"aud": "somebody-else"}), t.jwt(claims{"aud": nil}),
		t.jwt(claims{"aud": []string{}}), t.jwt(claims{"aud": t.target.audience() + "2"}), t.jwt(claims{"aud": []string{"somebody-else"}}))
}

func jwtIssuer(_ context.Context, t *T) {
	t.opensNothing("nobody answers for the issuer", t.jwt(claims{"iss": "https://conformance.invalid"}), t.jwt(claims{"iss": nil}),
		t.jwt(claims{"iss": t.target.JWT.Issuer + "/"}))
}

func jwtExpired(_ context.Context, t *T) {
	t.opensNothing("the token has expired", t.jwt(claims{"exp": time.Now().Add(-far).Unix()}))
}

func jwtNotYet(_ context.Context, t *T) {
	t.opensNothing("the token is not valid yet", t.jwt(claims{"nbf": time.Now().Add(far).Unix(), "exp": time.Now().Add(2 * far).Unix()}))
}

func jwtNoExp(_ context.Context, t *T) {
	t.opensNothing("a token needs an end", t.jwt(claims{"exp": nil}))
}

func jwtNoSub(_ context.Context, t *T) {
	t.opensNothing("a token is about somebody", t.jwt(claims{"sub": nil}), t.jwt(claims{"sub": ""}))
}

func jwtKey(_ context.Context, t *T) {
	other, err := t.target.JWT.Key.another()
	if err != nil {
		t.Skipf("no other key can be made: %v", err)
	}
	t.opensNothing("another key is anybody's", t.token(other, t.claims(nil)))
}

func jwtUnsigned(_ context.Context, t *T) {
	t.opensNothing("anybody can leave out the signature", t.token(unsigned(), t.claims(nil)))
}

func jwtAlgorithm(_ context.Context, t *T) {
	t.opensNothing("the key is not for this algorithm", t.token(t.target.JWT.Key.misused(), t.claims(nil)))
}

func jwtExpires(_ context.Context, t *T) {
	end := time.Now().Add(5 * time.Minute)
	c := t.opensJWT("a right token opens a session", t.jwt(claims{"exp": end.Unix()}))
	t.Want("a session has a lease", c.Accepted.Lease != nil, "there is none")
	t.Want("the lease of a session ends with its credential", c.Accepted.Lease.ExpiresAt.Before(end.Add(2*time.Minute)),
		"it ends at %v, the token at %v", c.Accepted.Lease.ExpiresAt, end)
}

// challengedJWT sends a session.open that names the subject and shows no token.
func (c *Conn) challengedJWT() (nonce string, challenge *Frame) {
	p := c.t.openPayload()
	p.Auth, p.Client.Principal = signedJWT(""), c.t.target.subject()
	f := c.Expect("who shows no token is challenged", arcp.SessionChallenge, c.Send(arcp.SessionOpen, p))
	return payload[arcp.SessionChallengePayload](c.t, f).Challenge, f
}

func jwtChallenge(_ context.Context, t *T) {
	c := t.Dial()
	nonce, challenge := c.challengedJWT()
	id := c.proves(challenge, t.jwt(claims{"nonce": nonce}))
	c.Accepted = payload[arcp.SessionAcceptedPayload](t, c.Expect("a right answer opens the session", arcp.SessionAccepted, id))
	c.ExpectNothing("the session works like any other")
}

// answersNothing wants an answer to a challenge to be refused, and the one to the
// challenge that follows to be good.
func (t *T) answersNothing(why string, answer func(nonce string) string) {
	t.opensJWT("a right token opens a session", t.jwt(nil))
	c := t.Dial()
	nonce, challenge := c.challengedJWT()
	id := c.proves(challenge, answer(nonce))
	c.refused(why, id)
	again := c.Expect("the client may try again", arcp.SessionChallenge, id)
	fresh := payload[arcp.SessionChallengePayload](t, again).Challenge
	t.Want("a challenge is good for one answer", fresh != nonce, "the same came again")
	c.refused("an answer to an earlier challenge opens nothing", c.proves(again, t.jwt(claims{"nonce": nonce})))
	last := c.next("the client may try again")
	want(t, "the client may try again", last.Type, arcp.SessionChallenge)
	id = c.proves(last, t.jwt(claims{"nonce": payload[arcp.SessionChallengePayload](t, last).Challenge}))
	c.Expect("a right answer opens the session", arcp.SessionAccepted, id)
	c.Drop()
}

func jwtChallengeNonce(_ context.Context, t *T) {
	for _, nonce := range []any{nil, "", "conformance-another-challenge", 7} {
		t.answersNothing("the token was not made for this challenge", func(string) string { return t.jwt(claims{"nonce": nonce}) })
	}
}

func jwtChallengeInvalid(_ context.Context, t *T) {
	other, err := t.target.JWT.Key.another()
	if err != nil {
		t.Skipf("no other key can be made: %v", err)
	}
	t.answersNothing("another key is anybody's", func(nonce string) string { return t.token(other, t.claims(claims{"nonce": nonce})) })
	t.answersNothing("the token has expired", func(nonce string) string {
		return t.jwt(claims{"nonce": nonce, "exp": time.Now().Add(-far).Unix()})
	})
	t.answersNothing("the token is not for this server", func(nonce string) string {
		return t.jwt(claims{"nonce": nonce, "aud": "somebody-else"})
	})
}

func jwtChallengePrincipal(_ context.Context, t *T) {
	t.answersNothing("the token is about somebody else", func(nonce string) string {
		return t.jwt(claims{"nonce": nonce, "sub": "conformance-somebody-else"})
	})
}
