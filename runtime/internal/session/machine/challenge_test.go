package machine

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// clientFrame is a frame as a client sends it.
func clientFrame(id arcp.MessageID, typ arcp.Type, payload string) *arcp.Envelope {
	return &arcp.Envelope{ARCP: arcp.Version, ID: id, Type: typ, Payload: arcp.Raw(payload)}
}

const challengedOpen = `{"auth":{"scheme":"bearer"},"client":{"kind":"cli","version":"2","principal":"alice"}}`

// An answer counts until the challenge expires, also where nothing else bounds the
// handshake.
func TestChallengeExpires(t *testing.T) {
	for late, counts := range map[time.Duration]bool{-time.Nanosecond: true, 0: false, time.Hour: false} {
		cfg := testConfig()
		cfg.Handshake = 0
		m := New(t0, cfg, ownID)
		m.Receive(t0, clientFrame("msg_1", arcp.SessionOpen, challengedOpen))
		m.TakeOutput()
		m.Authenticated(t0, CredentialDecision{Challenge: "n1"})
		m.TakeOutput()
		m.Receive(t0.Add(cfg.ChallengeTTL+late), clientFrame("msg_2", arcp.SessionAuthenticate, `{"response":"right"}`))
		out := m.TakeOutput()
		if _, asked := out.Request.(VerifyRequest); asked != counts {
			t.Errorf("an answer %v after the end of the challenge: looked at: %t, want %t", late, asked, counts)
		}
		if !counts && (len(out.Send) != 1 || out.Send[0].Type != arcp.SessionUnauthenticated) {
			t.Errorf("an answer %v after the end of the challenge brings %v", late, out.Send)
		}
	}
}

// A challenge is answered once, with any result.
func TestChallengeAnsweredOnce(t *testing.T) {
	for outcome, decision := range map[string]CredentialDecision{
		"good":         {Identity: &Identity{Principal: "alice", Commands: true}},
		"wrong":        {Refused: &Refusal{Message: "wrong answer"}},
		"under way":    {},
		"another came": {Refused: &Refusal{Message: "wrong answer"}, Challenge: "n2"},
	} {
		m := New(t0, testConfig(), ownID)
		m.Receive(t0, clientFrame("msg_1", arcp.SessionOpen, challengedOpen))
		m.TakeOutput()
		m.Authenticated(t0, CredentialDecision{Challenge: "n1"})
		m.TakeOutput()
		m.Receive(t0, clientFrame("msg_2", arcp.SessionAuthenticate, `{"response":"first"}`))
		if v, ok := m.TakeOutput().Request.(VerifyRequest); !ok || v.Challenge != "n1" {
			t.Fatalf("%s: the first answer is not looked at", outcome)
		}
		if outcome != "under way" {
			m.Authenticated(t0, decision)
			m.TakeOutput()
		}
		m.Receive(t0, clientFrame("msg_3", arcp.SessionAuthenticate, `{"response":"second"}`))
		if v, asked := m.TakeOutput().Request.(VerifyRequest); asked && v.Challenge == "n1" {
			t.Errorf("%s: a second answer to the challenge is looked at", outcome)
		}
	}
}
