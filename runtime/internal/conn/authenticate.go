package conn

import (
	"context"
	"errors"
	"time"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/transport"
)

// authenticate verifies the credentials of session.open or, with a challenge, the response to the
// challenge. It uses another goroutine if the scheme may wait.
func (h *handshake) authenticate(now time.Time, q machine.VerifyRequest) {
	r := h.c.principal.request(h.c.tc.Info(), now, q.Credentials)
	ctx := h.c.tasks.connected
	if h.c.srv.opts.Auth.Immediate(r.Scheme) {
		h.c.machine.Authenticated(now, h.decision(q, h.c.srv.verify(ctx, r, q.Challenge, q.Response)))
		return
	}
	h.c.tasks.backgroundInOrder(func(context.Context) func(time.Time) {
		result := h.c.srv.authenticate(ctx, r, q.Challenge, q.Response)
		return func(now time.Time) {
			if ctx.Err() == nil {
				h.c.machine.Authenticated(now, h.decision(q, result))
			}
		}
	})
}

// request returns the request of package auth for credentials on a connection.
func (p *principal) request(info transport.Info, now time.Time, q machine.Credentials) auth.Request {
	r := p.peer(info, now)
	r.Scheme, r.Token, r.Principal, r.Fingerprint, r.Anonymous = q.Scheme, auth.Secret(q.Token), q.Principal, q.Fingerprint, q.Anonymous
	return r
}

// peer returns a request without credentials: only the locality, the user id, the certificates
// and the program of the peer.
func (p *principal) peer(info transport.Info, now time.Time) auth.Request {
	r := auth.Request{Local: info.Local, PeerUID: info.PeerUID, PeerCerts: info.PeerCerts, Now: now}
	if p.program != nil {
		r.Program = &p.program.Identity
	}
	return r
}

// maxAuthentication bounds an authentication when handshakes have no time limit.
const maxAuthentication = 10 * time.Second

// credentialResult is the result of an authentication: identity, challenge or err is set.
type credentialResult struct {
	identity  auth.Identity
	challenge auth.Secret // to send
	err       error
}

// authenticate verifies a credential or, with a challenge, the response to it. It may wait for the
// issuer of the credential, at most for the time of a handshake.
func (s *Server) authenticate(ctx context.Context, req auth.Request, challenge, response string) credentialResult {
	timeout := s.opts.HandshakeTimeout
	if timeout <= 0 {
		timeout = maxAuthentication
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.verify(ctx, req, challenge, response)
}

// verify is authenticate without a bound of its own.
func (s *Server) verify(ctx context.Context, req auth.Request, challenge, response string) (result credentialResult) {
	if challenge == "" {
		result.identity, result.challenge, result.err = s.opts.Auth.Begin(ctx, req)
		return result
	}
	result.identity, result.err = s.opts.Auth.Verify(ctx, req, auth.Proof{Challenge: auth.Secret(challenge), Response: auth.Secret(response)})
	return result
}

// decision converts the result of an authentication for the machine.
func (h *handshake) decision(q machine.VerifyRequest, result credentialResult) machine.CredentialDecision {
	switch {
	case result.err != nil && q.Challenge != "":
		return machine.CredentialDecision{Refused: h.refuseCredential(result.err), Challenge: auth.NewChallenge().Reveal()}
	case result.err != nil:
		return machine.CredentialDecision{Refused: h.refuseCredential(result.err)}
	case result.challenge != "":
		return machine.CredentialDecision{Challenge: result.challenge.Reveal()}
	}
	return h.setIdentity(result.identity)
}

// setIdentity sets the identity of the client, and returns it for the machine.
func (h *handshake) setIdentity(id auth.Identity) machine.CredentialDecision {
	h.c.principal.identity = id
	return machine.CredentialDecision{Identity: identityOf(&id)}
}

// identityOf converts an identity for the machine.
func identityOf(id *auth.Identity) *machine.Identity {
	return &machine.Identity{
		Principal: id.Principal,
		Trust:     id.Trust,
		Anonymous: id.Anonymous,
		Commands:  actor.MayCommand(id),
		Worker:    id.HasRole(auth.RoleWorker),
		Expires:   id.Expires,
	}
}

// refuseCredential converts an error of package auth to a refusal, and counts and logs it.
func (h *handshake) refuseCredential(err error) *machine.Refusal {
	r, reason := refusal(err)
	h.c.srv.opts.Metrics.AuthFailures.WithLabelValues(schemeLabel(h.scheme), reason).Inc()
	h.record(h.c.srv.opts.Logger.Warn().Err(err), "refused")
	return r
}

// refusal converts an error of package auth to a refusal for the client and a reason for the
// metrics.
func refusal(err error) (r *machine.Refusal, reason string) {
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return &machine.Refusal{Message: e.Message, Final: e.Final}, e.Reason
	}
	return &machine.Refusal{Message: "authentication failed"}, auth.ReasonUnavailable
}

// schemeLabel returns the metric label of a scheme, from a closed set.
func schemeLabel(scheme string) string {
	switch scheme {
	case auth.Bearer, auth.SignedJWT, auth.OAuth2, auth.MTLS, auth.None, auth.Program:
		return scheme
	}
	return "other"
}
