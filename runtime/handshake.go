package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/eventlog"
	"github.com/arcpd/arcpd/runtime/session"
	"github.com/arcpd/arcpd/runtime/store"
)

// answer does what the machine has to know before it can go on.
func (c *conn) answer(now time.Time, question any) {
	switch q := question.(type) {
	case session.Authenticate:
		c.scheme = q.Scheme
		c.m.Judge(now, c.authenticate(now, q))
	case session.Verify:
		c.m.Judge(now, c.verify(now, q))
	case session.Establish:
		c.establish(now, q)
	}
}

func (c *conn) request(now time.Time, q session.Authenticate) auth.Request {
	info := c.tc.Info()
	return auth.Request{Scheme: q.Scheme, Token: auth.Secret(q.Token), Principal: q.Principal, Fingerprint: q.Fingerprint,
		Anonymous: q.Anonymous, Local: info.Local, PeerUID: info.PeerUID, PeerCerts: info.PeerCerts, Now: now}
}

// authContext bounds the judgement of credentials by the handshake's deadline.
func (c *conn) authContext() (context.Context, context.CancelFunc) {
	d := c.m.Deadline()
	if d.IsZero() {
		d = time.Now().Add(DefaultHandshakeTimeout)
	}
	return context.WithDeadline(context.Background(), d)
}

func (c *conn) authenticate(now time.Time, q session.Authenticate) session.Judgement {
	ctx, cancel := c.authContext()
	defer cancel()
	id, challenge, err := c.rt.cfg.Auth.Begin(ctx, c.request(now, q))
	if err != nil {
		return session.Judgement{Refused: c.refused(err)}
	}
	if challenge != "" {
		return session.Judgement{Challenge: challenge.Reveal()}
	}
	return c.identified(id)
}

func (c *conn) verify(now time.Time, q session.Verify) session.Judgement {
	ctx, cancel := c.authContext()
	defer cancel()
	id, err := c.rt.cfg.Auth.Verify(ctx, c.request(now, q.Authenticate),
		auth.Proof{Challenge: auth.Secret(q.Challenge), Response: auth.Secret(q.Response)})
	if err != nil {
		return session.Judgement{Refused: c.refused(err), Challenge: auth.NewChallenge().Reveal()}
	}
	return c.identified(id)
}

func (c *conn) identified(id auth.Identity) session.Judgement {
	c.identity = id
	return session.Judgement{Identity: &session.Identity{Principal: id.Principal, Trust: id.Trust, Anonymous: id.Anonymous,
		Commands: auth.HasRole(id, auth.RoleClient) || auth.HasRole(id, auth.RoleWorker) || auth.HasRole(id, auth.RoleAdmin)}}
}

func (c *conn) refused(err error) *session.Refusal {
	r := &session.Refusal{Message: "authentication failed"}
	reason := auth.ReasonUnavailable
	if e, ok := errors.AsType[*auth.Error](err); ok {
		r.Message, r.Final, reason = e.Message, e.Final, e.Reason
	}
	c.rt.metrics.AuthFailures.WithLabelValues(schemeLabel(c.scheme), reason).Inc()
	c.logHandshake(c.log.Warn().Err(err), "refused")
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
	c.rt.metrics.Handshakes.WithLabelValues(schemeLabel(c.scheme), "rfc", result).Inc()
	if !ev.Enabled() {
		return
	}
	info := c.tc.Info()
	ev.Str("session_id", string(c.id)).Str("principal", c.identity.Principal).Str("scheme", schemeLabel(c.scheme)).
		Str("transport", info.Kind).Str("remote", info.RemoteAddr).Str("result", result).
		Dur("duration", time.Since(c.begun)).Msg("handshake")
}

// establish makes the session durable; it is accepted when that is done.
func (c *conn) establish(now time.Time, q session.Establish) {
	if err := c.rt.enter(c); err != nil {
		c.logHandshake(c.log.Warn().Str("reason", err.Message), "rejected")
		c.m.Established(now, session.Established{Refused: err})
		return
	}
	token := auth.NewToken("rt_")
	row := &store.Session{ID: c.id, Principal: q.Identity.Principal, Anonymous: q.Identity.Anonymous, Version: q.Version,
		ClientKind: q.Client.Kind, Negotiated: q.Negotiated, TokenHash: auth.HashToken(token), CreatedAt: now}
	c.rt.log.Append(&store.Write{Session: row, NewSession: true}, func(r *store.Result) {
		err := r.Err
		var cursor *eventlog.Cursor
		if err == nil {
			cursor = c.rt.log.AttachNew(c.id, c.waker())
		}
		if !c.post(func(now time.Time) { c.established(now, token, cursor, err) }) && cursor != nil {
			cursor.Close()
		}
	})
}

func (c *conn) established(now time.Time, token auth.Secret, cursor *eventlog.Cursor, err error) {
	c.cursor = cursor
	if err != nil {
		c.rt.exit(c)
		c.log.Error().Err(err).Str("session_id", string(c.id)).Msg("session not stored")
		c.m.Established(now, session.Established{Refused: arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions")})
		return
	}
	c.head = store.FrameHead(c.m.Version(), c.id)
	c.tc.SetReadLimit(c.rt.cfg.MaxFrame)
	c.rt.opened(c)
	c.rt.metrics.HandshakeDuration.Observe(now.Sub(c.begun).Seconds())
	c.logHandshake(c.log.Info(), "accepted")
	c.m.Established(now, session.Established{ResumeToken: token.Reveal(), Agents: c.rt.cfg.Tools.Agents()})
}
