package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// renewal asks the client for a new credential before the session's ends, and judges it (SPEC.md
// §5.1). A credential that expires evicts the session, unless a new one came in time and is
// still being judged or stored.
type renewal struct {
	m        *Machine
	state    renewalState
	expires  time.Time      // end of the credential; zero: never
	ask      time.Time      // when to ask for a new one; zero: not at all, or it was asked for
	request  arcp.MessageID // session.authenticate that is being handled
	proof    challenge      // that the response has to answer
	identity *Identity      // that the session has when it is durable
}

// renewalState is the state of a renewal.
type renewalState uint8

const (
	unasked   renewalState = iota // entered by session.accepted; left when the credential's end nears
	reminding                     // entered when the end nears; left when it is known whether a challenge is due
	awaiting                      // entered by session.refresh; left by session.authenticate
	judging                       // entered by session.authenticate; left when the credential was judged
	renewing                      // entered by a good credential; left when it is durable
)

// A new credential is asked for when a part of the credential's time is left, and at least
// leastNotice. If it does not live longer than that, it is asked for in the middle of its time.
const (
	noticePart  = 10
	leastNotice = time.Minute
)

// start begins with the credential of the session's identity.
func (r *renewal) start(now time.Time) {
	r.expires, r.ask, r.state = r.m.identity.Expires, time.Time{}, unasked
	if r.expires.IsZero() || !r.m.negotiate.has(arcp.FeatureRefresh) {
		return
	}
	whole := r.expires.Sub(now)
	notice := max(whole/noticePart, leastNotice)
	if notice >= whole {
		notice = whole / 2
	}
	r.ask = r.expires.Add(-notice)
}

// end returns when the credential evicts the session; zero: never, or not now.
func (r *renewal) end() time.Time {
	if r.state >= judging {
		return time.Time{}
	}
	return r.expires
}

func (r *renewal) deadline() time.Time { return earliest(r.end(), r.ask) }

// remind starts a session.refresh. request is the message that it answers; empty the first
// time.
func (r *renewal) remind(request arcp.MessageID) {
	r.state, r.request = reminding, request
	r.m.out.Question = Remind{}
}

// refresh asks the client for a new credential.
func (r *renewal) refresh(now time.Time, nonce string) {
	r.state, r.proof = awaiting, challenge{}
	if nonce != "" {
		r.proof = challenge{nonce, now.Add(r.m.cfg.ChallengeTTL)}
	}
	r.m.send(arcp.SessionRefresh, r.request, arcp.SessionRefreshPayload{Deadline: r.expires, Challenge: nonce})
}

// receive handles the answer to session.refresh. Without a credential of its own the response
// has to be one.
func (r *renewal) receive(now time.Time, env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.SessionAuthenticatePayload](env)
	if err != nil {
		return err
	}
	proof := r.proof
	if proof.nonce != "" && !now.Before(proof.expires) { // it may take a while to obtain a credential
		r.remind(env.ID)
		return nil
	}
	q := Reauthenticate{Authenticate: Authenticate{Principal: r.m.identity.Principal}, Challenge: proof.nonce, Response: p.Response}
	switch {
	case p.Auth != nil:
		q.Scheme, q.Token = p.Auth.Scheme, p.Auth.Token
	case proof.nonce == "":
		q.Token = p.Response
	}
	r.state, r.request, r.proof = judging, env.ID, challenge{}
	r.m.out.Question = q
	return nil
}

// judge handles the decision about the new credential.
func (r *renewal) judge(now time.Time, d CredentialDecision) {
	r.state = awaiting
	switch {
	case d.Refused != nil:
		r.refuse(now, d)
	case d.Challenge != "":
		r.refresh(now, d.Challenge)
	default:
		r.state, r.identity = renewing, d.Identity
		r.m.out.Question = Renew{*d.Identity}
	}
}

// refuse lets the client try again with a better credential, three times.
func (r *renewal) refuse(now time.Time, d CredentialDecision) {
	code := d.Refused.Code
	if code == "" {
		code = arcp.CodeUnauthenticated
	}
	r.m.send(arcp.SessionUnauthenticated, r.request, arcp.Errorf(code, "%s", d.Refused.Message))
	if r.m.failures++; r.m.failures >= maxFailures {
		r.m.evict(CredentialRefused, arcp.CodeUnauthenticated, "too many authentication failures")
		return
	}
	if d.Challenge != "" {
		r.refresh(now, d.Challenge)
	}
}

// finish handles the result of storing the new credential.
func (r *renewal) finish(now time.Time, e Established) {
	if e.Refused != nil {
		r.state = awaiting
		r.m.send(arcp.Nack, r.request, e.Refused)
		return
	}
	r.m.identity, r.identity = *r.identity, nil
	r.m.failures = 0
	r.start(now)
	r.m.send(arcp.SessionAccepted, r.request, r.m.accepted(now, e))
}

// reauthenticate handles session.authenticate in an accepted session. It is dropped if no new
// credential was asked for (§5.1).
func (m *Machine) reauthenticate(now time.Time, env *arcp.Envelope) error {
	if m.renewal.state != awaiting {
		m.note("no_challenge", env.Type, "")
		return nil
	}
	return m.renewal.receive(now, env)
}

// Reminded completes Remind. The challenge is empty if there is none.
func (m *Machine) Reminded(now time.Time, nonce string) {
	if m.phase == Accepted && m.renewal.state == reminding {
		m.renewal.refresh(now, nonce)
	}
}

// Rejudge completes Reauthenticate.
func (m *Machine) Rejudge(now time.Time, d CredentialDecision) {
	if m.phase == Accepted && m.renewal.state == judging {
		m.renewal.judge(now, d)
	}
}

// Renewed completes Renew.
func (m *Machine) Renewed(now time.Time, e Established) {
	if m.phase == Accepted && m.renewal.state == renewing {
		m.renewal.finish(now, e)
	}
}
