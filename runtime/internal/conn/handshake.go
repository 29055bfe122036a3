package conn

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// handshake opens a session, or attaches the connection to one. It answers the questions of the
// machine, which decides.
type handshake struct {
	c       *conn
	begun   time.Time
	scheme  string // of the credentials
	tries   uint8  // to attach to the session
	resumed bool   // the session had a connection before
	pass    *transport.Pass
}

// answer answers a question of the machine; the questions say which method completes them.
func (h *handshake) answer(now time.Time, question any) {
	c := h.c
	switch q := question.(type) {
	case machine.Authenticate:
		h.scheme = q.Scheme
		if c.principal.program != nil {
			h.scheme = auth.Program
		}
		h.authenticate(now, machine.Verify{Authenticate: q})
	case machine.Verify:
		h.authenticate(now, q)
	case machine.Establish:
		h.establish(now, q)
	case machine.Resume:
		h.resume(q)
	case machine.PrepareRefresh:
		c.m.RefreshPrepared(now, c.srv.opts.Auth.Challenge(c.principal.identity.Scheme).Reveal())
	case machine.Reauthenticate:
		c.renewal.authenticate(now, q)
	case machine.Renew:
		c.renewal.store()
	case machine.End:
		h.endSession()
	}
}

// endSession ends the session of the connection for session.close with forget. The connection
// is not evicted: it answers with session.closed.
func (h *handshake) endSession() {
	c := h.c
	c.srv.opts.Sessions.End(c.session, session.Eviction{}, func(err error) {
		var refused *arcp.Error
		if err != nil {
			refused = errEndNotStored()
		}
		c.inbox.complete(func(time.Time) { c.m.Ended(refused) })
	})
}

// request returns the request to authenticate credentials that came on a connection.
func (p *principal) request(info transport.Info, now time.Time, q machine.Authenticate) auth.Request {
	r := p.peer(info, now)
	r.Scheme, r.Token, r.Principal, r.Fingerprint, r.Anonymous = q.Scheme, auth.Secret(q.Token), q.Principal, q.Fingerprint, q.Anonymous
	return r
}

// peer returns a request without credentials: it holds the local address, the peer's user id,
// its certificates and its program.
func (p *principal) peer(info transport.Info, now time.Time) auth.Request {
	r := auth.Request{Local: info.Local, PeerUID: info.PeerUID, PeerCerts: info.PeerCerts, Now: now}
	if p.program != nil {
		r.Program = &p.program.Identity
	}
	return r
}

// authenticate judges the credentials of a handshake or, with a challenge, the response to
// it.
func (h *handshake) authenticate(now time.Time, q machine.Verify) {
	r := h.c.principal.request(h.c.tc.Info(), now, q.Authenticate)
	judging := h.c.tasks.beginJudgement()
	h.c.tasks.read(func(context.Context) func(time.Time) {
		j := h.c.srv.judge(judging, r, q.Challenge, q.Response)
		return func(now time.Time) {
			if h.c.tasks.endJudgement() {
				h.c.m.Authenticated(now, h.decision(q, j))
			}
		}
	})
}

// decision returns the result of authenticate for the machine.
func (h *handshake) decision(q machine.Verify, j credentialDecision) machine.CredentialDecision {
	switch {
	case j.err != nil && q.Challenge != "":
		return machine.CredentialDecision{Refused: h.refuseCredential(j.err), Challenge: auth.NewChallenge().Reveal()}
	case j.err != nil:
		return machine.CredentialDecision{Refused: h.refuseCredential(j.err)}
	case j.challenge != "":
		return machine.CredentialDecision{Challenge: j.challenge.Reveal()}
	}
	return h.identify(j.identity)
}

// credentialDecision is the result of authenticating a credential.
type credentialDecision struct {
	identity  auth.Identity
	challenge auth.Secret // to send; empty: the credential was judged
	err       error
}

// maxJudgement bounds the judgement of a credential when a handshake has no time limit.
const maxJudgement = 10 * time.Second

// judge judges a credential or, with a challenge, the response to it. It may ask the
// issuer of the credential, for as long as a handshake may take.
func (s *Server) judge(ctx context.Context, req auth.Request, challenge, response string) (j credentialDecision) {
	timeout := s.opts.HandshakeTimeout
	if timeout <= 0 {
		timeout = maxJudgement
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if challenge == "" {
		j.identity, j.challenge, j.err = s.opts.Auth.Begin(ctx, req)
		return j
	}
	j.identity, j.err = s.opts.Auth.Verify(ctx, req, auth.Proof{Challenge: auth.Secret(challenge), Response: auth.Secret(response)})
	return j
}

// identify sets the identity of the client.
func (h *handshake) identify(id auth.Identity) machine.CredentialDecision {
	h.c.principal.identity = id
	return machine.CredentialDecision{Identity: identityOf(&id)}
}

func identityOf(id *auth.Identity) *machine.Identity {
	return &machine.Identity{Principal: id.Principal, Trust: id.Trust, Anonymous: id.Anonymous, Expires: id.Expires,
		Commands: actor.MayCommand(id), Worker: auth.HasRole(*id, auth.RoleWorker)}
}

// refusal returns the refusal for the client and the reason for the metrics of an error of auth.
func refusal(err error) (r *machine.Refusal, reason string) {
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return &machine.Refusal{Message: e.Message, Final: e.Final}, e.Reason
	}
	return &machine.Refusal{Message: "authentication failed"}, auth.ReasonUnavailable
}

// refuseCredential counts and logs an error of auth.
func (h *handshake) refuseCredential(err error) *machine.Refusal {
	r, reason := refusal(err)
	h.c.srv.opts.Metrics.AuthFailures.WithLabelValues(schemeLabel(h.scheme), reason).Inc()
	h.log(h.c.srv.opts.Logger.Warn().Err(err), "refused")
	return r
}

// schemeLabel returns the metric label of a scheme, from a closed set.
func schemeLabel(scheme string) string {
	switch scheme {
	case auth.Bearer, auth.SignedJWT, auth.OAuth2, auth.MTLS, auth.None, auth.Program:
		return scheme
	}
	return "other"
}

// log counts the result of a handshake and writes its log record.
func (h *handshake) log(ev *zerolog.Event, result string) {
	h.c.srv.opts.Metrics.Handshakes.WithLabelValues(schemeLabel(h.scheme), "rfc", result).Inc()
	if !ev.Enabled() {
		return
	}
	info := h.c.tc.Info()
	ev.Str("session_id", string(h.c.id)).Str("principal", h.c.principal.identity.Principal).Str("scheme", schemeLabel(h.scheme)).
		Str("transport", info.Kind).Str("remote", info.RemoteAddr).Str("result", result).
		Dur("duration", time.Since(h.begun)).Msg("handshake")
}

// establish makes the session durable, or attaches to the one that the client names. The session
// is accepted when that is done.
func (h *handshake) establish(now time.Time, q machine.Establish) {
	s := h.c.srv.opts.Sessions.Find(q.Attach)
	if s == nil || s.Principal != q.Identity.Principal { // sessions of others do not exist for the client
		h.create(now, q)
		return
	}
	h.c.tasks.read(func(ctx context.Context) func(time.Time) {
		row, err := h.c.srv.opts.Store.Session(ctx, q.Attach)
		return func(now time.Time) { h.attachOpen(now, q, s, row, err) }
	})
}

// create makes a new session. Before it, the sessions of earlier processes of the same program
// end: their processes are gone, and their agents would keep their ids.
func (h *handshake) create(now time.Time, q machine.Establish) {
	if h.c.principal.program == nil {
		h.createSession(now, q)
		return
	}
	h.c.tasks.read(func(ctx context.Context) func(time.Time) {
		endSessions(ctx, h.c.srv.opts.Sessions, func(principal string) bool { return principal == q.Identity.Principal })
		return func(now time.Time) { h.createSession(now, q) }
	})
}

// createSession makes a new session.
func (h *handshake) createSession(now time.Time, q machine.Establish) {
	if err := h.c.srv.enter(h.c); err != nil {
		h.log(h.c.srv.opts.Logger.Warn().Str("reason", err.Message), "rejected")
		h.c.m.Established(now, machine.Established{Refused: err})
		return
	}
	token := newResumeToken(h.c.id)
	row := store.Session{ID: h.c.id, Principal: q.Identity.Principal, Anonymous: q.Identity.Anonymous, Version: q.Version,
		ClientKind: q.Client.Kind, Negotiated: q.Negotiated, TokenHash: auth.HashToken(token), Identity: encodeIdentity(&h.c.principal.identity),
		Acks: h.c.m.Has(arcp.FeatureAck), CreatedAt: now}
	h.c.srv.opts.Log.Append(store.NewWrite(&store.OpenSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		var cursor *eventlog.Cursor
		if err == nil {
			cursor = h.c.srv.opts.Log.AttachNow(h.c.id, 0, 0, h.c.tasks.loop())
		}
		if !h.c.inbox.complete(func(now time.Time) { h.established(now, row, token, cursor, err) }) && cursor != nil {
			cursor.Close()
		}
	})
}

// established completes create.
func (h *handshake) established(now time.Time, row store.Session, token auth.Secret, cursor *eventlog.Cursor, err error) {
	h.c.cursor = cursor
	if err != nil {
		h.c.srv.opts.Sessions.Abandon(h.c.session)
		h.c.session = nil
		h.log(h.c.srv.opts.Logger.Error().Err(err), "failed")
		h.c.m.Established(now, machine.Established{Refused: arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions")})
		return
	}
	h.c.session.Opened()
	row.Epoch = 1
	h.c.row, h.c.ack.acks = row, row.Acks
	h.c.ack.position.start(0, h.c.ack.acks, 0)
	h.finish(now)
	h.c.ack.release()
	h.c.m.Established(now, machine.Established{ResumeToken: token.Reveal(), Agents: h.c.catalogue.agents()})
}

// finish begins the accepted phase of the connection.
func (h *handshake) finish(now time.Time) {
	h.c.output.head = store.FrameHead(h.c.m.Version(), h.c.id)
	h.c.tc.SetReadLimit(h.c.srv.opts.MaxFrame)
	h.c.keepalive.begin(h.c, now)
	h.c.identify()
	h.c.catalogue.shown = h.c.session.Catalogue(h.c.trust())
	if n := h.c.principal.identity.Limits.RatePerMin; n > 0 {
		h.c.rates.share = h.c.srv.shares.join(now, h.c.principal.identity.Principal, n)
	}
	h.c.srv.opts.Metrics.HandshakeDuration.Observe(now.Sub(h.begun).Seconds())
	h.log(h.c.srv.opts.Logger.Info(), "accepted")
}
