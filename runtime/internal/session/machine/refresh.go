package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Remind asks whether a fresh credential has to prove itself by a challenge. It is
// completed by Reminded.
type Remind struct{}

// Reauthenticate asks for a judgement of a fresh credential, and if a challenge
// was sent of the response to it. The scheme is empty if it is the session's. It is completed
// by Rejudge, which may be given a challenge to send. Other frames are handled meanwhile.
type Reauthenticate struct {
	Authenticate
	Challenge, Response string
}

// Renew asks to store a fresh credential as that of the session, with a new resume token. It is
// completed by Renewed.
type Renew struct{ Identity Identity }

// remind starts a session.refresh. request is the message that it answers; empty the first
// time.
func (m *Machine) remind(request arcp.MessageID) {
	m.life.renewal, m.life.request = reminding, request
	m.out.Question = Remind{}
}

// Reminded completes Remind. The challenge is empty if there is none.
func (m *Machine) Reminded(now time.Time, nonce string) {
	if m.phase == Accepted && m.life.renewal == reminding {
		m.refresh(now, nonce)
	}
}

// refresh asks the client for a fresh credential.
func (m *Machine) refresh(now time.Time, nonce string) {
	m.life.renewal, m.life.proof = awaiting, challenge{}
	if nonce != "" {
		m.life.proof = challenge{nonce, now.Add(m.cfg.ChallengeTTL)}
	}
	m.send(arcp.SessionRefresh, m.life.request, arcp.SessionRefreshPayload{Deadline: m.life.expires, Challenge: nonce})
}

// reauthenticate takes the answer to session.refresh. Without a credential of its
// own the response has to be one.
func (m *Machine) reauthenticate(now time.Time, env *arcp.Envelope) error {
	if m.life.renewal != awaiting {
		m.note("no_challenge", env.Type, "") // dropped (§5.1)
		return nil
	}
	p, err := arcp.DecodePayload[arcp.SessionAuthenticatePayload](env)
	if err != nil {
		return err
	}
	proof := m.life.proof
	if proof.nonce != "" && !now.Before(proof.expires) { // obtaining a credential may take a while
		m.remind(env.ID)
		return nil
	}
	q := Reauthenticate{Authenticate: Authenticate{Principal: m.identity.Principal}, Challenge: proof.nonce, Response: p.Response}
	switch {
	case p.Auth != nil:
		q.Scheme, q.Token = p.Auth.Scheme, p.Auth.Token
	case proof.nonce == "":
		q.Token = p.Response
	}
	m.life.renewal, m.life.request, m.life.proof = judging, env.ID, challenge{}
	m.out.Question = q
	return nil
}

// Rejudge completes Reauthenticate.
func (m *Machine) Rejudge(now time.Time, j CredentialDecision) {
	if m.phase != Accepted || m.life.renewal != judging {
		return
	}
	m.life.renewal = awaiting
	switch {
	case j.Refused != nil:
		m.refuseCredential(now, j)
	case j.Challenge != "":
		m.refresh(now, j.Challenge)
	default:
		m.life.renewal = renewing
		m.life.identity = j.Identity
		m.out.Question = Renew{*j.Identity}
	}
}

// refuseCredential lets the client try again with a better one, three times.
func (m *Machine) refuseCredential(now time.Time, j CredentialDecision) {
	code := j.Refused.Code
	if code == "" {
		code = arcp.CodeUnauthenticated
	}
	m.send(arcp.SessionUnauthenticated, m.life.request, arcp.Errorf(code, "%s", j.Refused.Message))
	if m.failures++; m.failures >= maxFailures {
		m.evict(CredentialRefused, arcp.CodeUnauthenticated, "too many authentication failures")
		return
	}
	if j.Challenge != "" {
		m.refresh(now, j.Challenge)
	}
}

// Renewed completes Renew.
func (m *Machine) Renewed(now time.Time, e Established) {
	if m.phase != Accepted || m.life.renewal != renewing {
		return
	}
	if e.Refused != nil {
		m.life.renewal = awaiting
		m.send(arcp.Nack, m.life.request, e.Refused)
		return
	}
	m.identity, m.life.identity = *m.life.identity, nil
	m.failures = 0
	m.credit(now)
	m.send(arcp.SessionAccepted, m.life.request, m.accepted(now, e))
}
