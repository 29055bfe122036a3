package conformance

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// refused wants the session.open id to be refused as not authenticated.
func (c *Conn) refused(why string, id arcp.MessageID) arcp.ErrorPayload {
	f := c.event(why)
	if f.Type != arcp.SessionRejected && f.Type != arcp.SessionUnauthenticated {
		c.t.Failf("%s: got %s, want session.rejected or session.unauthenticated", why, f)
	}
	want(c.t, "the refusal is correlated", f.CorrelationID, id)
	c.t.wantCode(why, f, arcp.CodeUnauthenticated)
	return payload[arcp.ErrorPayload](c.t, f)
}

// openWith sends a session.open with these credentials.
func (c *Conn) openWith(auth arcp.Auth) arcp.MessageID {
	p := c.t.openPayload()
	p.Auth = auth
	return c.Send(arcp.SessionOpen, p)
}

func authBearerWrong(_ context.Context, t *T) {
	c := t.Dial()
	const wrong = "conformance-wrong-token"
	c.v.secrets = append(slices.Clone(c.v.secrets), wrong)
	id := c.openWith(arcp.Auth{Scheme: "bearer", Token: wrong})
	p := c.refused("an unknown token opens nothing", id)
	wantText(t, "the reason is the known one", p.Message, "unknown bearer token")
}

func authBearerMissing(_ context.Context, t *T) {
	for _, auth := range []string{`{"scheme":"bearer"}`, `{"scheme":"bearer","token":""}`, `{"scheme":"bearer","token":null}`} {
		c := t.Dial()
		c.SendRaw(`{"arcp":"1.1","id":"msg_open","type":"session.open","timestamp":"2026-01-02T03:04:05Z","payload":{"auth":`+
			auth+`,"client":{"kind":"arcp-conformance","version":"1.0.0"}}}`, "msg_open")
		p := c.refused("bearer is nothing without a token: "+auth, "msg_open")
		wantText(t, "the reason is the known one", p.Message, "bearer scheme requires a token")
		c.Drop()
	}
}

func authNotConfigured(_ context.Context, t *T) {
	tried := 0
	for _, scheme := range []string{"signed_jwt", "oauth2", "mtls"} {
		if slices.Contains(t.target.Schemes, scheme) || scheme == "signed_jwt" && t.target.JWT != nil {
			continue
		}
		tried++
		c := t.Dial()
		p := c.refused("scheme "+scheme+" is not configured", c.openWith(arcp.Auth{Scheme: scheme, Token: "x.y.z"}))
		wantText(t, "the reason is the known one", p.Message, "not configured")
		c.Drop()
	}
	if tried == 0 {
		t.Skipf("every known scheme is configured")
	}
}

func authUnknownScheme(_ context.Context, t *T) {
	for _, scheme := range []string{"carrier-pigeon", "Bearer", "BEARER", ""} {
		c := t.Dial()
		id := c.openWith(arcp.Auth{Scheme: scheme, Token: "x"})
		c.refused("scheme "+scheme+" is not known", id)
		c.Open()
		c.Drop()
	}
}

func authAnonymous(_ context.Context, t *T) {
	switch {
	case t.server.offers(arcp.FeatureAnonymous):
		t.Skipf("the server admits anonymous clients")
	case t.target.local():
		t.Skipf("on a unix socket the system says who a client is")
	}
	for _, ask := range []bool{false, true} {
		c := t.Dial()
		p := t.openPayload()
		p.Auth = arcp.Auth{Scheme: "none"}
		p.Capabilities.Flags = map[arcp.Feature]bool{arcp.FeatureAnonymous: ask}
		refusal := c.refused("anonymous clients are refused by default", c.Send(arcp.SessionOpen, p))
		wantText(t, "the reason is the known one", refusal.Message, "anonymous")
		c.Drop()
	}
}

func authRetry(_ context.Context, t *T) {
	c := t.Dial()
	c.refused("an unknown token opens nothing", c.openWith(arcp.Auth{Scheme: "bearer", Token: "conformance-wrong-token"}))
	early, _ := c.Ping() // still before a session: dropped
	c.Open()
	c.expectDropped(early)
}

func authThreeFailures(_ context.Context, t *T) {
	c := t.Dial()
	for range 3 {
		c.refused("an unknown token opens nothing", c.openWith(arcp.Auth{Scheme: "bearer", Token: "conformance-wrong-token"}))
	}
	c.ExpectClosed("three failures end the connection", transport.ClosePolicy)
}

// challenged sends a session.open without a token that names the principal.
func (c *Conn) challenged(principal string) (nonce string, challenge *Frame) {
	p := c.t.openPayload()
	p.Auth.Token, p.Client.Principal = "", principal
	f := c.Expect("who shows no token is challenged", arcp.SessionChallenge, c.Send(arcp.SessionOpen, p))
	return payload[arcp.SessionChallengePayload](c.t, f).Challenge, f
}

// proves answers a challenge.
func (c *Conn) proves(challenge *Frame, response string) arcp.MessageID {
	return c.Send(arcp.SessionAuthenticate, arcp.SessionAuthenticatePayload{Response: response},
		func(env *arcp.Envelope) { env.SessionID = challenge.SessionID })
}

// proof is the answer to a challenge by who has the token.
func proof(token, nonce string) string {
	key := sha256.Sum256([]byte(token))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(nonce)) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

func authChallenge(_ context.Context, t *T) {
	c := t.Dial()
	nonce, challenge := c.challenged(t.target.Principal)
	t.Want("a challenge has 128 bits that cannot be guessed", len(nonce) >= 22, "it has %d characters", len(nonce))
	id := c.proves(challenge, proof(t.target.Token, nonce))
	c.Accepted = payload[arcp.SessionAcceptedPayload](t, c.Expect("a right answer opens the session", arcp.SessionAccepted, id))
	c.ExpectNothing("the session works like any other")
}

func authChallengeWrong(_ context.Context, t *T) {
	var said []string
	for _, principal := range []string{t.target.Principal, "conformance-nobody"} {
		c := t.Dial()
		nonce, challenge := c.challenged(principal)
		id := c.proves(challenge, proof("conformance-wrong-token", nonce))
		said = append(said, c.refused("a wrong answer opens nothing", id).Message)
		again := c.Expect("the client may try again", arcp.SessionChallenge, id)
		fresh := payload[arcp.SessionChallengePayload](t, again).Challenge
		t.Want("a challenge is good for one answer", fresh != nonce, "the same came again")
		c.refused("an answer to an earlier challenge opens nothing", c.proves(again, proof(t.target.Token, nonce)))
		c.Drop()
	}
	want(t, "nobody learns which principals there are", said[1], said[0])
}

func authChallengeReplayed(_ context.Context, t *T) {
	c := t.Dial()
	nonce, challenge := c.challenged(t.target.Principal)
	answer := proof(t.target.Token, nonce)
	c.Accepted = payload[arcp.SessionAcceptedPayload](t, c.Expect("a right answer opens the session", arcp.SessionAccepted, c.proves(challenge, answer)))
	c.proves(challenge, answer)
	c.ExpectNothing("an answer that nobody asked for is dropped")
	other := t.Dial()
	_, asked := other.challenged(t.target.Principal)
	other.refused("an answer that has opened a session opens no other", other.proves(asked, answer))
}

func authPrincipalNotTrusted(_ context.Context, t *T) {
	claiming := t.Open(func(p *arcp.SessionOpenPayload) { p.Client.Principal = "somebody-else" })
	job := claiming.Invoke("demo.echo", map[string]any{})
	plain := t.Open()
	t.Want("the job belongs to the token's principal, whatever the client claimed",
		plain.lists(job.ID, claiming.Session), "it is not listed in another session of the same token")
}

func authPrincipalsApart(_ context.Context, t *T) {
	owner := t.Open()
	job := owner.Invoke("demo.echo", map[string]any{})
	thief := t.Open(as(t.target.OtherToken), func(p *arcp.SessionOpenPayload) { p.Client.Principal = t.target.Principal })
	t.Want("jobs are seen by their principal only", !thief.lists(job.ID, ""), "another principal lists it")
}
