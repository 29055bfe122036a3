package machine

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// renewal asks the client for a new credential before the present one expires (SPEC.md §5.1). An
// expired credential evicts the session, unless a new one is being verified or stored.
type renewal struct {
	m         *Machine
	state     renewalState
	expires   time.Time      // expiry of the credential; zero: never
	askAt     time.Time      // when to ask for a new one; zero: never, or asked already
	request   arcp.MessageID // the session.authenticate to answer
	challenge challenge      // sent with session.refresh
	identity  *Identity      // verified and not stored yet
}

// renewalState is the state of a renewal.
type renewalState uint8

const (
	idle      renewalState = iota // entered by session.accepted; left at askAt
	preparing                     // entered at askAt; left when the challenge is known, or that there is none
	awaiting                      // entered by session.refresh; left by session.authenticate
	verifying                     // entered by session.authenticate; left when the credential is verified
	storing                       // entered by a valid credential; left when it is durable
)

// A new credential is asked for when 1/noticeFraction of the lifetime is left, and at least
// minNotice. For a lifetime below minNotice it is half of the lifetime.
const (
	noticeFraction = 10
	minNotice      = time.Minute
)

// start sets the times for the credential of the session's identity.
func (r *renewal) start(now time.Time) {
	r.expires, r.askAt, r.state = r.m.identity.Expires, time.Time{}, idle
	if r.expires.IsZero() || !r.m.negotiate.has(arcp.FeatureRefresh) {
		return
	}
	whole := r.expires.Sub(now)
	notice := max(whole/noticeFraction, minNotice)
	if notice >= whole {
		notice = whole / 2
	}
	r.askAt = r.expires.Add(-notice)
}

// evictAt returns when the expired credential evicts the session; zero: never, or not while a new
// one is verified or stored.
func (r *renewal) evictAt() time.Time {
	if r.state >= verifying {
		return time.Time{}
	}
	return r.expires
}

func (r *renewal) deadline() time.Time { return earliest(r.evictAt(), r.askAt) }

// prepare requests the challenge for a session.refresh. request is the session.authenticate that
// the session.refresh answers; "" the first time.
func (r *renewal) prepare(request arcp.MessageID) {
	r.state, r.request = preparing, request
	r.m.out.Request = PrepareRefreshRequest{}
}

// sendRefresh asks the client for a new credential.
func (r *renewal) sendRefresh(now time.Time, nonce string) {
	r.state, r.challenge = awaiting, challenge{}
	if nonce != "" {
		r.challenge = challenge{nonce, now.Add(r.m.cfg.ChallengeTTL)}
	}
	r.m.send(arcp.SessionRefresh, r.request, arcp.SessionRefreshPayload{Deadline: r.expires, Challenge: nonce})
}

// receive handles session.authenticate. Without a challenge and a credential, the response is
// the token.
func (r *renewal) receive(now time.Time, env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.SessionAuthenticatePayload](env)
	if err != nil {
		return err
	}
	sent := r.challenge
	if sent.nonce != "" && !now.Before(sent.expires) { // obtaining a credential may take longer than the challenge is valid
		r.prepare(env.ID)
		return nil
	}
	q := ReauthenticateRequest{
		Credentials: Credentials{Principal: r.m.identity.Principal},
		Challenge:   sent.nonce,
		Response:    p.Response,
	}
	switch {
	case p.Auth != nil:
		q.Scheme, q.Token = p.Auth.Scheme, p.Auth.Token
	case sent.nonce == "":
		q.Token = p.Response
	}
	r.state, r.request, r.challenge = verifying, env.ID, challenge{}
	r.m.out.Request = q
	return nil
}

// verified handles the decision about the new credential.
func (r *renewal) verified(now time.Time, d CredentialDecision) {
	r.state = awaiting
	switch {
	case d.Refused != nil:
		r.refuse(now, d)
	case d.Challenge != "":
		r.sendRefresh(now, d.Challenge)
	default:
		r.state, r.identity = storing, d.Identity
		r.m.out.Request = RenewRequest{*d.Identity}
	}
}

// refuse refuses a new credential. The maxFailures-th refusal evicts the session.
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
		r.sendRefresh(now, d.Challenge)
	}
}

// stored handles the result of storing the new credential.
func (r *renewal) stored(now time.Time, e SessionResult) {
	if e.Refused != nil {
		r.state = awaiting
		r.m.send(arcp.Nack, r.request, e.Refused)
		return
	}
	r.m.identity, r.identity = *r.identity, nil
	r.m.failures = 0
	r.start(now)
	r.m.send(arcp.SessionAccepted, r.request, r.m.acceptedPayload(now, e))
}

// reauthenticate handles session.authenticate in an accepted session. The message is dropped
// unless a new credential was asked for (§5.1).
func (a admission) reauthenticate(now time.Time, env *arcp.Envelope) error {
	if a.renewal.state != awaiting {
		a.report("no_challenge", env.Type, "")
		return nil
	}
	return a.renewal.receive(now, env)
}

// RefreshPrepared completes a PrepareRefreshRequest. nonce is empty if there is no challenge.
func (m *Machine) RefreshPrepared(now time.Time, nonce string) {
	if m.phase == Accepted && m.renewal.state == preparing {
		m.renewal.sendRefresh(now, nonce)
	}
}

// Reauthenticated completes a ReauthenticateRequest.
func (m *Machine) Reauthenticated(now time.Time, d CredentialDecision) {
	if m.phase == Accepted && m.renewal.state == verifying {
		m.renewal.verified(now, d)
	}
}

// Renewed completes a RenewRequest.
func (m *Machine) Renewed(now time.Time, e SessionResult) {
	if m.phase == Accepted && m.renewal.state == storing {
		m.renewal.stored(now, e)
	}
}
