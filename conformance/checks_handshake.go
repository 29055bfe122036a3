package conformance

import (
	"context"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

func handshakeAccepted(_ context.Context, t *T) {
	c := t.Dial()
	id := c.Send(arcp.SessionOpen, t.openPayload())
	f := c.Expect("a right session.open is accepted", arcp.SessionAccepted, id)

	p := payload[arcp.SessionAcceptedPayload](t, f)
	t.Want("a session id begins with sess_", p.SessionID.Valid(), "got %q", p.SessionID)
	want(t, "the envelope names the session too", f.SessionID, p.SessionID)
	t.Want("a client learns who serves it", p.Runtime.Kind != "" && p.Runtime.Version != "", "got kind %q, version %q",
		p.Runtime.Kind, p.Runtime.Version)
	t.Want("a client decodes capabilities without asking whether they are there", hasMember(f.Payload, "capabilities"), "there is none")
	c.ExpectNothing("nothing but answers comes unasked")
}

func handshakeSessionsDiffer(_ context.Context, t *T) {
	a, b := t.Open(), t.Open()
	t.Want("two sessions are two", a.Session != b.Session, "both are %q", a.Session)
	if a.Accepted.ResumeToken == "" {
		return // resuming is not offered
	}
	t.Want("a resume token opens one session", a.Accepted.ResumeToken != b.Accepted.ResumeToken, "both sessions have the same")
	t.Want("a resume token has 128 bits that cannot be guessed", len(a.Accepted.ResumeToken) >= 22, "it has %d characters",
		len(a.Accepted.ResumeToken))
}

func handshakeVersionEcho(_ context.Context, t *T) {
	for _, version := range []string{"1", "1.0", "1.1", "1.9", "1.10"} {
		c := t.Dial()
		c.version = version
		c.Open() // the validator wants every frame to say the same version
		c.ExpectNothing("version " + version + " is spoken to the end")
		c.Drop()
	}
}

func handshakeVersionMajor(_ context.Context, t *T) {
	for _, version := range []string{"2.0", "2", "0.9", "11.0", "1.x", "banana"} {
		c := t.Dial()
		id := c.Send(arcp.SessionOpen, t.openPayload(), func(env *arcp.Envelope) { env.ARCP = version })
		c.v.version = "" // which version an answer has to a version that is not spoken is open
		f := c.Expect("version "+version+" is not spoken", arcp.SessionRejected, id)
		t.wantCode("version "+version+" is not spoken", f, arcp.CodeUnimplemented)
		c.Open()
		c.Drop()
	}
}

func handshakeNothingBeforeOpen(_ context.Context, t *T) {
	c := t.Dial()
	early := c.sendEarly()
	c.Open() // its answer is the first frame
	c.expectDropped(early...)
}

// expectDropped wants messages that came too early to be at most refused.
func (c *Conn) expectDropped(early ...arcp.MessageID) {
	ping, _ := c.Ping()
	for {
		f := c.event("the session is usable")
		if f.Type == arcp.Pong && f.CorrelationID == ping {
			return
		}
		c.t.Want("what came too early is at most refused", f.Type == arcp.Nack && slices.Contains(early, f.CorrelationID), "got %s", f)
	}
}

// sendEarly sends messages that need a session.
func (c *Conn) sendEarly() []arcp.MessageID {
	ping, _ := c.Ping()
	return []arcp.MessageID{ping,
		c.Send(arcp.SessionListJobs, arcp.SessionListJobsPayload{}),
		c.Submit("demo.echo", map[string]any{}),
		c.Send(arcp.SessionClose, arcp.SessionClosePayload{})}
}

// handshakeEarlyRefused is about a client that does not wait for its session: it learns
// what to send again, and may do so under the same id.
func handshakeEarlyRefused(_ context.Context, t *T) {
	c := t.Dial()
	early := c.sendEarly()
	c.Open()
	for _, id := range early {
		c.ExpectNack("what came too early is to be sent again", id, arcp.CodeFailedPrecondition)
	}
	c.Send(arcp.Ping, arcp.PingPayload{Nonce: "again"}, func(env *arcp.Envelope) { env.ID = early[0] })
	c.Expect("it is served then", arcp.Pong, early[0])
}

func handshakeGarbageBeforeOpen(_ context.Context, t *T) {
	c := t.Dial()
	c.SendRaw(`{"arcp":"1.1","id":"msg_early","type":"ping"}`, "msg_early")
	c.SendRaw(`{`)
	c.SendRaw(`[]`)
	c.Open()
}

func handshakeServerTypesBeforeOpen(_ context.Context, t *T) {
	c := t.Dial()
	c.Send(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_forged",
		Runtime: arcp.RuntimeInfo{Kind: "forged", Version: "1"}})
	c.Send(arcp.SessionChallenge, arcp.SessionChallengePayload{Challenge: "forged"})
	c.Ping()
	c.Open()
}

func handshakeAuthenticateUnasked(_ context.Context, t *T) {
	c := t.Dial()
	c.Send(arcp.SessionAuthenticate, arcp.SessionAuthenticatePayload{Response: "nobody asked"})
	c.Open()
}

func handshakeOpenTwice(_ context.Context, t *T) {
	c := t.Open()
	id := c.Send(arcp.SessionOpen, t.openPayload())
	c.ExpectNack("a connection has one session", id, arcp.CodeFailedPrecondition)
	c.ExpectNothing("the session is unharmed")
}

func handshakeResumeInSession(_ context.Context, t *T) {
	c := t.Open()
	id := c.Send(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: "rt_of_nobody"})
	c.ExpectNack("a connection has one session", id, arcp.CodeFailedPrecondition)
	c.ExpectNothing("the session is unharmed")
}

func handshakeResumeUnknownToken(_ context.Context, t *T) {
	c := t.Dial()
	id := c.Send(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: "rt_of_nobody"})
	f := c.Expect("an unknown token resumes nothing", arcp.SessionRejected, id)
	t.wantCode("an unknown token resumes nothing", f, arcp.CodeResumeWindowExpired)
	c.Open()
}

func handshakeRequiredCapability(_ context.Context, t *T) {
	c := t.Dial()
	p := t.openPayload()
	p.Capabilities.Required = []string{"no_server_has_this"}
	id := c.Send(arcp.SessionOpen, p)
	f := c.Expect("what is required must be there", arcp.SessionRejected, id)
	t.wantCode("what is required must be there", f, arcp.CodeUnimplemented)
	c.Open()
}

func handshakeRequiredOffered(_ context.Context, t *T) {
	for f, on := range t.server.accepted.Capabilities.Flags {
		if !on {
			continue
		}
		c := t.Open(offer(f, arcp.FeatureHumanInput), func(p *arcp.SessionOpenPayload) { p.Capabilities.Required = []string{string(f)} })
		t.Want("a required feature that is offered is negotiated", c.Accepted.Capabilities.Has(f), "%s is not", f)
		return
	}
	t.Skipf("the server offers no feature")
}

func handshakeCapabilitiesTolerant(_ context.Context, t *T) {
	for _, caps := range []string{
		``, `,"capabilities":{}`, `,"capabilities":null`,
		`,"capabilities":{"features":["ack","list_jobs","something_new"],"encodings":["json"]}`,
		`,"capabilities":{"something_new":{"deep":[1,2,null]},"another":null,"streaming":true}`,
		`,"capabilities":{"agents":["a",{"name":"b"}],"extensions":["arcpx.nobody.v1"],"binary_encoding":["base64"]}`,
	} {
		c := t.Dial()
		c.v.version, c.v.offered = arcp.Version, offerEverything()
		c.SendRaw(`{"arcp":"1.1","id":"msg_open","type":"session.open","timestamp":"2026-01-02T03:04:05Z","payload":{`+
			`"auth":{"scheme":"bearer","token":`+string(c.raw(t.target.Token))+`},`+
			`"client":{"kind":"arcp-conformance","version":"1.0.0"}`+caps+`}}`, "msg_open")
		c.Expect("a server ignores capabilities it does not know: "+caps, arcp.SessionAccepted, "msg_open")
		c.Drop()
	}
}

func handshakeNegotiated(_ context.Context, t *T) {
	c := t.Open(func(p *arcp.SessionOpenPayload) {
		p.Capabilities.Flags = map[arcp.Feature]bool{}
		for _, f := range arcp.Features {
			p.Capabilities.Flags[f] = false
		}
	})
	for _, f := range arcp.Features {
		t.Want("a feature the client said no to is not agreed on", !c.Accepted.Capabilities.Flags[f], "%s is", f)
	}
}

func handshakeNulls(_ context.Context, t *T) {
	c := t.Dial()
	c.v.version = arcp.Version
	c.SendRaw(`{"arcp":"1.1","id":"msg_nulls","type":"session.open","timestamp":"2026-01-02T03:04:05Z","source":null,`+
		`"target":null,"session_id":null,"job_id":null,"stream_id":null,"subscription_id":null,"trace_id":null,`+
		`"span_id":null,"parent_span_id":null,"correlation_id":null,"causation_id":null,"idempotency_key":null,`+
		`"priority":null,"event_seq":null,"extensions":null,"payload":{"auth":{"scheme":"bearer","token":`+
		string(c.raw(t.target.Token))+`},"client":{"kind":"arcp-conformance","version":"1.0.0","fingerprint":null,`+
		`"principal":null},"capabilities":null,"last_event_seq":null}}`, "msg_nulls")
	c.Expect("null stands for an absent member", arcp.SessionAccepted, "msg_nulls")
}

func handshakeUnknownSession(_ context.Context, t *T) {
	c := t.Dial()
	id := c.Send(arcp.SessionOpen, t.openPayload(), func(env *arcp.Envelope) { env.SessionID = "sess_00000000000000000000000000" })
	f := c.Expect("a session that is not known is made anew", arcp.SessionAccepted, id)
	t.Want("a client does not choose the id of its session", f.SessionID != "sess_00000000000000000000000000", "it did")
}

func handshakeMalformedOpen(_ context.Context, t *T) {
	for _, p := range []string{`{}`, `{"auth":{}}`, `{"auth":"bearer","client":{}}`, `{"auth":{"scheme":5}}`} {
		c := t.Dial()
		c.SendRaw(`{"arcp":"1.1","id":"msg_bad","type":"session.open","timestamp":"2026-01-02T03:04:05Z","payload":`+p+`}`, "msg_bad")
		c.openAfter("a client can correct its session.open "+p, "msg_bad")
		c.Drop()
	}
}

// openAfter opens a session on a connection where bad may have been refused:
// one refusal of it is allowed to come first.
func (c *Conn) openAfter(why string, bad arcp.MessageID) {
	id := c.Send(arcp.SessionOpen, c.t.openPayload())
	f := c.event(why)
	if f.CorrelationID == bad && (f.Type == arcp.SessionRejected || f.Type == arcp.SessionUnauthenticated) {
		f = c.event(why)
	}
	c.match(why, f, arcp.SessionAccepted, id)
}
