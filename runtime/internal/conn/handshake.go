package conn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// answer does what the machine has to know before it can go on.
func (c *conn) answer(now time.Time, question any) {
	switch q := question.(type) {
	case machine.Authenticate:
		c.opening.scheme = q.Scheme
		c.authenticate(now, machine.Verify{Authenticate: q})
	case machine.Verify:
		c.authenticate(now, q)
	case machine.Establish:
		c.establish(now, q)
	case machine.Resume:
		c.resume(q)
	case machine.Remind:
		c.m.Reminded(now, c.srv.opts.Auth.Challenge(c.principal.identity.Scheme).Reveal())
	case machine.Reauthenticate:
		c.reauthenticate(now, q)
	case machine.Renew:
		c.renew()
	case machine.End:
		c.endSession()
	}
}

func (c *conn) request(now time.Time, q machine.Authenticate) auth.Request {
	info := c.tc.Info()
	return auth.Request{Scheme: q.Scheme, Token: auth.Secret(q.Token), Principal: q.Principal, Fingerprint: q.Fingerprint,
		Anonymous: q.Anonymous, Local: info.Local, PeerUID: info.PeerUID, PeerCerts: info.PeerCerts, Now: now}
}

// authenticate judges the credentials of a handshake or, with a challenge, the response to
// it.
func (c *conn) authenticate(now time.Time, q machine.Verify) {
	r := c.request(now, q.Authenticate)
	judging := c.tasks.beginJudgement()
	c.read(func(context.Context) func(time.Time) {
		j := c.srv.judge(judging, r, q.Challenge, q.Response)
		return func(now time.Time) {
			if c.tasks.endJudgement() {
				c.m.Judge(now, c.judged(q, j))
			}
		}
	})
}

func (c *conn) judged(q machine.Verify, j credentialDecision) machine.CredentialDecision {
	switch {
	case j.err != nil && q.Challenge != "":
		return machine.CredentialDecision{Refused: c.refused(j.err), Challenge: auth.NewChallenge().Reveal()}
	case j.err != nil:
		return machine.CredentialDecision{Refused: c.refused(j.err)}
	case j.challenge != "":
		return machine.CredentialDecision{Challenge: j.challenge.Reveal()}
	}
	return c.identified(j.identity)
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

func (c *conn) identified(id auth.Identity) machine.CredentialDecision {
	c.principal.identity = id
	return machine.CredentialDecision{Identity: identityOf(&id)}
}

func identityOf(id *auth.Identity) *machine.Identity {
	return &machine.Identity{Principal: id.Principal, Trust: id.Trust, Anonymous: id.Anonymous, Expires: id.Expires,
		Commands: actor.MayCommand(id), Worker: auth.HasRole(*id, auth.RoleWorker)}
}

// refusal is what the peer and the metrics are told of an error of auth.
func refusal(err error) (r *machine.Refusal, reason string) {
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return &machine.Refusal{Message: e.Message, Final: e.Final}, e.Reason
	}
	return &machine.Refusal{Message: "authentication failed"}, auth.ReasonUnavailable
}

func (c *conn) refused(err error) *machine.Refusal {
	r, reason := refusal(err)
	c.srv.opts.Metrics.AuthFailures.WithLabelValues(schemeLabel(c.opening.scheme), reason).Inc()
	c.logHandshake(c.srv.opts.Logger.Warn().Err(err), "refused")
	return r
}

// schemeLabel keeps the label set closed.
func schemeLabel(scheme string) string {
	switch scheme {
	case auth.Bearer, auth.SignedJWT, auth.OAuth2, auth.MTLS, auth.None:
		return scheme
	}
	return "other"
}

// logHandshake writes the one line of a handshake.
func (c *conn) logHandshake(ev *zerolog.Event, result string) {
	c.srv.opts.Metrics.Handshakes.WithLabelValues(schemeLabel(c.opening.scheme), "rfc", result).Inc()
	if !ev.Enabled() {
		return
	}
	info := c.tc.Info()
	ev.Str("session_id", string(c.id)).Str("principal", c.principal.identity.Principal).Str("scheme", schemeLabel(c.opening.scheme)).
		Str("transport", info.Kind).Str("remote", info.RemoteAddr).Str("result", result).
		Dur("duration", time.Since(c.opening.begun)).Msg("handshake")
}

// establish makes the session durable, or attaches to the one that the client names; it
// is accepted when that is done.
func (c *conn) establish(now time.Time, q machine.Establish) {
	s := c.srv.opts.Sessions.Find(q.Attach)
	if s == nil || s.Principal != q.Identity.Principal { // to the client it is as if there were none
		c.create(now, q)
		return
	}
	c.read(func(ctx context.Context) func(time.Time) {
		row, err := c.srv.opts.Store.Session(ctx, q.Attach)
		return func(now time.Time) { c.attachOpen(now, q, s, row, err) }
	})
}

// create makes a new session.
func (c *conn) create(now time.Time, q machine.Establish) {
	if err := c.srv.enter(c); err != nil {
		c.logHandshake(c.srv.opts.Logger.Warn().Str("reason", err.Message), "rejected")
		c.m.Established(now, machine.Established{Refused: err})
		return
	}
	token := newResumeToken(c.id)
	row := store.Session{ID: c.id, Principal: q.Identity.Principal, Anonymous: q.Identity.Anonymous, Version: q.Version,
		ClientKind: q.Client.Kind, Negotiated: q.Negotiated, TokenHash: auth.HashToken(token), Identity: encodeIdentity(&c.principal.identity),
		Acks: c.m.Has(arcp.FeatureAck), CreatedAt: now}
	c.srv.opts.Log.Append(store.NewWrite(&store.OpenSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		var cursor *eventlog.Cursor
		if err == nil {
			cursor = c.srv.opts.Log.AttachNow(c.id, 0, 0, c.loop())
		}
		if !c.complete(func(now time.Time) { c.established(now, row, token, cursor, err) }) && cursor != nil {
			cursor.Close()
		}
	})
}

func (c *conn) established(now time.Time, row store.Session, token auth.Secret, cursor *eventlog.Cursor, err error) {
	c.cursor = cursor
	if err != nil {
		c.srv.opts.Sessions.Abandon(c.session)
		c.session = nil
		c.logHandshake(c.srv.opts.Logger.Error().Err(err), "failed")
		c.m.Established(now, machine.Established{Refused: arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions")})
		return
	}
	c.session.Opened()
	row.Epoch = 1
	c.row, c.ack.acks = row, row.Acks
	c.ack.reached.start(0, c.ack.acks, 0)
	c.begin(now)
	c.release()
	c.m.Established(now, machine.Established{ResumeToken: token.Reveal(), Agents: c.agents()})
}

// begin is the end of a handshake that succeeded.
func (c *conn) begin(now time.Time) {
	c.output.head = store.FrameHead(c.m.Version(), c.id)
	c.tc.SetReadLimit(c.srv.opts.MaxFrame)
	c.keepalive.begin(c, now)
	c.identify()
	c.tools.shown = c.session.Catalogue(c.trust())
	c.bound(now)
	c.srv.opts.Metrics.HandshakeDuration.Observe(now.Sub(c.opening.begun).Seconds())
	c.logHandshake(c.srv.opts.Logger.Info(), "accepted")
}

// roleNames are the roles of the session's principal as rules and people read them:
// the same slice until they change.
func (c *conn) roleNames() []string {
	same := func(name string, role auth.Role) bool { return name == string(role) }
	if c.principal.roles == nil || !slices.EqualFunc(c.principal.roles, c.principal.identity.Roles, same) {
		c.principal.roles = make([]string, len(c.principal.identity.Roles))
		for i, role := range c.principal.identity.Roles {
			c.principal.roles[i] = string(role)
		}
	}
	return c.principal.roles
}
