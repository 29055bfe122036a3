package conn

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// renewal replaces the credential and the resume token of the session. The previous token stays
// valid until the client sends a frame on a later connection, made with either token (SPEC.md §5.1).
type renewal struct {
	c            *conn
	credential   *auth.Identity // verified and not stored yet; nil: none
	unconfirmed  bool           // the token was renewed on this connection, so that no frame confirms it
	tokenPending bool           // confirmToken has not completed: no frame is handled
}

// authenticate verifies a new credential. Other frames are handled meanwhile.
func (rn *renewal) authenticate(now time.Time, q machine.ReauthenticateRequest) {
	if q.Scheme == "" {
		q.Scheme = rn.c.principal.identity.Scheme
	}
	r := rn.c.principal.request(rn.c.tc.Info(), now, q.Credentials)
	ctx := rn.c.tasks.connected
	rn.c.tasks.backgroundThenLoop(func(context.Context) func(time.Time) {
		result := rn.c.srv.authenticate(ctx, r, q.Challenge, q.Response)
		return func(now time.Time) {
			if ctx.Err() == nil {
				rn.verified(now, q, result)
			}
		}
	})
}

// verified completes authenticate.
func (rn *renewal) verified(now time.Time, q machine.ReauthenticateRequest, result credentialResult) {
	if result.err == nil && result.challenge == "" {
		result.err = rn.c.principal.identity.CanBeReplacedBy(result.identity)
	}
	if result.err == nil && result.challenge == "" { // the configuration may have changed meanwhile
		r := rn.c.principal.request(rn.c.tc.Info(), now, q.Credentials)
		result.identity, result.err = rn.c.srv.opts.Auth.Revalidate(result.identity, r)
	}
	answer := machine.CredentialDecision{Challenge: result.challenge.Reveal()}
	switch {
	case result.err != nil:
		answer.Refused = rn.refuse(q.Scheme, result.err)
		if q.Challenge != "" {
			answer.Challenge = auth.NewChallenge().Reveal()
		}
	case result.challenge == "":
		rn.credential = &result.identity
		answer.Identity = identityOf(&result.identity)
	}
	rn.c.machine.Reauthenticated(now, answer)
}

// store stores the new credential with a new resume token.
func (rn *renewal) store() {
	rn.c.principal.identity, rn.credential = *rn.credential, nil
	rn.c.handshake.scheme = rn.c.principal.identity.Scheme
	rn.c.principal.updateActor()
	token := rn.c.newResumeToken(rn.c.id)
	rn.unconfirmed = true
	row := rn.c.session.renew(token, &rn.c.principal.identity)
	rn.c.unanswered.add()
	rn.c.srv.opts.Log.Append(store.NewWrite(&store.PutSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		if err == nil {
			rn.c.session.TokenIssued(row.Epoch)
		}
		rn.c.unanswered.done()
		rn.c.inbox.runOnLoop(func(now time.Time) { rn.stored(now, token, err) })
	})
}

// stored completes store.
func (rn *renewal) stored(now time.Time, token auth.Secret, err error) {
	if err != nil {
		rn.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(rn.c.id)).Msg("new credential not stored")
		refused := arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions").RetryAfter(1)
		rn.c.machine.Renewed(now, machine.SessionResult{Refused: refused})
		return
	}
	rn.c.srv.opts.Logger.Info().Str("session_id", string(rn.c.id)).Str("principal", rn.c.principal.identity.Principal).
		Str("scheme", schemeLabel(rn.c.handshake.scheme)).Msg("credential renewed")
	rn.c.machine.Renewed(now, machine.SessionResult{ResumeToken: token.Reveal(), Agents: rn.c.catalog.agents()})
}

// Reauthenticate checks the identity of every session again: of a connected one now, without waiting
// for the result, and of another one before its rights are used.
func (s *Server) Reauthenticate() {
	s.opts.Sessions.InvalidateActors() // before the connections set them again
	for _, c := range s.connections() {
		c.inbox.post(revalidation{})
	}
}

// causeRevoked is the cause of an eviction because of a changed configuration.
const causeRevoked = machine.Cause("credential_revoked")

// revalidate checks the identity of the session again. It evicts the session if the identity is no
// longer valid.
func (rn *renewal) revalidate(now time.Time) {
	if p := rn.c.machine.Phase(); p != machine.Accepted && p != machine.Establishing || rn.c.principal.identity.Principal == "" {
		return // not authenticated yet
	}
	id, err := rn.c.srv.opts.Auth.Revalidate(rn.c.principal.identity, rn.c.principal.peer(rn.c.tc.Info(), now))
	if err != nil {
		refused, _ := refusal(err)
		rn.c.srv.recordEviction(rn.c.id, causeRevoked, refused.Message)
		rn.c.machine.Evict(arcp.CodeUnauthenticated, refused.Message)
		return
	}
	rn.c.principal.identity = id
	rn.c.machine.SetIdentity(*identityOf(&id))
	rn.c.catalog.markStale() // the trust level may have changed
	rn.c.principal.updateActor()
}

// refuse counts and logs the refusal of a new credential.
func (rn *renewal) refuse(scheme string, err error) *machine.Refusal {
	r, reason := refusal(err)
	rn.c.srv.opts.Metrics.AuthFailures.WithLabelValues(schemeLabel(scheme), reason).Inc()
	rn.c.srv.opts.Logger.Warn().Err(err).Str("session_id", string(rn.c.id)).Str("principal", rn.c.principal.identity.Principal).
		Str("scheme", schemeLabel(scheme)).Msg("new credential refused")
	return r
}

// confirmToken invalidates the previous resume tokens when the first frame arrives, because the
// client then has the new token. It reports false until that is durable. The frame has to wait: a
// crash must not make a used token valid again.
func (rn *renewal) confirmToken() bool {
	if rn.c.session.row.PrevHashes == nil || rn.unconfirmed {
		return !rn.tokenPending
	}
	rn.c.session.row.PrevHashes, rn.tokenPending = nil, true
	rn.c.session.ConfirmToken(rn.c.session.row.Epoch)
	row := rn.c.session.row
	rn.c.unanswered.add()
	rn.c.srv.opts.Log.Append(store.NewWrite(&store.PutSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		rn.c.unanswered.done()
		rn.c.inbox.runOnLoop(func(time.Time) { rn.tokenStored(err) })
	})
	return false
}

// tokenStored completes confirmToken.
func (rn *renewal) tokenStored(err error) {
	rn.tokenPending = false
	if err != nil && rn.c.ending.close == nil {
		rn.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(rn.c.id)).Msg("new resume token not stored")
		rn.c.ending.closeWith(transport.CloseInternal, "the store does not accept sessions")
	}
	rn.c.scheduler.wake() // handles the frames that have waited
}
