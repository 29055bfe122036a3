package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// renewal replaces the session's credential and resume token. Resume tokens stay valid until the
// client is known to have the new one: until it sends a frame on a connection that was made
// with it.
type renewal struct {
	c            *conn
	credential   *auth.Identity // accepted and not stored yet; nil: none
	unconfirmed  bool           // the token was renewed on this connection: no frame shows that the client has it
	tokenPending bool           // the end of the earlier tokens is being stored; no frame is handled
}

// authenticate verifies a new credential. The session continues meanwhile.
func (rn *renewal) authenticate(now time.Time, q machine.Reauthenticate) {
	if q.Scheme == "" {
		q.Scheme = rn.c.principal.identity.Scheme
	}
	r := rn.c.principal.request(rn.c.tc.Info(), now, q.Authenticate)
	judging := rn.c.tasks.beginJudgement()
	rn.c.tasks.async(func() {
		j := rn.c.srv.judge(judging, r, q.Challenge, q.Response)
		rn.c.inbox.complete(func(now time.Time) {
			if rn.c.tasks.endJudgement() {
				rn.decide(now, q, j)
			}
		})
	})
}

// decide completes authenticate.
func (rn *renewal) decide(now time.Time, q machine.Reauthenticate, j credentialDecision) {
	if j.err == nil && j.challenge == "" {
		j.err = rn.c.principal.identity.CanBeReplacedBy(j.identity)
	}
	if j.err == nil && j.challenge == "" { // the configuration may have changed meanwhile
		j.identity, j.err = rn.c.srv.opts.Auth.Revalidate(j.identity, rn.c.principal.request(rn.c.tc.Info(), now, q.Authenticate))
	}
	answer := machine.CredentialDecision{Challenge: j.challenge.Reveal()}
	switch {
	case j.err != nil:
		answer.Refused = rn.refuse(q.Scheme, j.err)
		if q.Challenge != "" {
			answer.Challenge = auth.NewChallenge().Reveal()
		}
	case j.challenge == "":
		rn.credential = &j.identity
		answer.Identity = identityOf(&j.identity)
	}
	rn.c.m.Reauthenticated(now, answer)
}

// store stores the new credential as the session's, with a new resume token. The token before
// stays valid until the client sends a frame on a connection made with either: no frame on
// this connection shows that the client has the new one.
func (rn *renewal) store() {
	rn.c.principal.identity, rn.credential = *rn.credential, nil
	rn.c.handshake.scheme = rn.c.principal.identity.Scheme
	rn.c.identify()
	token := newResumeToken(rn.c.id)
	rn.unconfirmed = true
	rn.c.row.PrevHashes, rn.c.row.TokenHash = [][32]byte{rn.c.row.TokenHash}, auth.HashToken(token)
	rn.c.row.Identity = encodeIdentity(&rn.c.principal.identity)
	row := rn.c.row
	rn.c.pending.add()
	rn.c.srv.opts.Log.Append(store.NewWrite(&store.PutSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		if err == nil {
			rn.c.session.ClearHeard(row.Epoch)
		}
		rn.c.pending.done()
		rn.c.inbox.complete(func(now time.Time) { rn.finish(now, token, err) })
	})
}

// finish completes store.
func (rn *renewal) finish(now time.Time, token auth.Secret, err error) {
	if err != nil {
		rn.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(rn.c.id)).Msg("fresh credential not stored")
		rn.c.m.Renewed(now, machine.Established{Refused: arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions").RetryAfter(1)})
		return
	}
	rn.c.srv.opts.Logger.Info().Str("session_id", string(rn.c.id)).Str("principal", rn.c.principal.identity.Principal).Str("scheme", schemeLabel(rn.c.handshake.scheme)).
		Msg("credential renewed")
	rn.c.m.Renewed(now, machine.Established{ResumeToken: token.Reveal(), Agents: rn.c.catalogue.agents()})
}

// Reauthenticate judges the identity of every session that has a connection again.
func (s *Server) Reauthenticate() {
	for _, c := range s.connections() {
		c.inbox.post(recheck{})
	}
}

// causeRevoked is the cause of an eviction after a change of the configuration.
const causeRevoked = machine.Cause("credential_revoked")

// recheck judges the identity of the session again, and evicts it if it is no longer accepted.
func (rn *renewal) recheck(now time.Time) {
	if p := rn.c.m.Phase(); p != machine.Accepted && p != machine.Establishing || rn.c.principal.identity.Principal == "" {
		return // the credential is not judged yet
	}
	id, err := rn.c.srv.opts.Auth.Revalidate(rn.c.principal.identity, rn.c.principal.peer(rn.c.tc.Info(), now))
	if err != nil {
		why, _ := refusal(err)
		rn.c.srv.evictedByRuntime(rn.c.id, causeRevoked, why.Message)
		rn.c.m.Evict(arcp.CodeUnauthenticated, why.Message)
		return
	}
	rn.c.principal.identity = id
	rn.c.m.SetIdentity(*identityOf(&id))
	rn.c.catalogue.stale = true // the session's trust may have changed
	rn.c.identify()
}

// refuse counts and logs a new credential that was not accepted.
func (rn *renewal) refuse(scheme string, err error) *machine.Refusal {
	r, reason := refusal(err)
	rn.c.srv.opts.Metrics.AuthFailures.WithLabelValues(schemeLabel(scheme), reason).Inc()
	rn.c.srv.opts.Logger.Warn().Err(err).Str("session_id", string(rn.c.id)).Str("principal", rn.c.principal.identity.Principal).
		Str("scheme", schemeLabel(scheme)).Msg("fresh credential refused")
	return r
}

// confirmToken invalidates the earlier resume tokens when the first frame arrives: the client
// has the new token. It reports false until that is durable. The frame has to wait until then: a
// crash must not make a used token valid again.
func (rn *renewal) confirmToken() bool {
	if rn.c.row.PrevHashes == nil || rn.unconfirmed {
		return !rn.tokenPending
	}
	rn.c.row.PrevHashes, rn.tokenPending = nil, true
	rn.c.session.SetHeard(rn.c.row.Epoch)
	row := rn.c.row
	rn.c.pending.add()
	rn.c.srv.opts.Log.Append(store.NewWrite(&store.PutSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		rn.c.pending.done()
		rn.c.inbox.complete(func(time.Time) { rn.tokenStored(err) })
	})
	return false
}

// tokenStored completes confirmToken.
func (rn *renewal) tokenStored(err error) {
	rn.tokenPending = false
	if err != nil && rn.c.ending.close == nil {
		rn.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(rn.c.id)).Msg("new resume token not stored")
		rn.c.ending.close = &machine.Close{Code: int(transport.CloseInternal), Reason: "the store does not accept sessions"}
	}
	rn.c.scheduler.wake() // to handle the frames that have waited
}
