package conn

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// handshake performs the requests of the machine. These are the steps of a session.open:
//
//  1. The machine makes an AuthenticateRequest. authenticate verifies the credentials
//     (authenticate.go), and Machine.Authenticated gets the result. After a challenge, the same
//     follows for a VerifyRequest.
//  2. The machine makes an EstablishRequest. establish calls openSession, or attachOpen for the id of
//     a session of the same principal (attach.go).
//  3. openSession calls createSession, which counts the session and appends its row.
//  4. When the row is stored, completeSession runs on the loop. It calls accept and
//     Machine.Established, which sends session.accepted.
//
// For a session.resume there is one ResumeRequest, which resume performs (attach.go). After
// session.accepted, the requests renew the credential (renewal.go) or end the session.
type handshake struct {
	c         *conn
	startedAt time.Time
	scheme    string          // of the credentials
	retries   uint8           // of attaching to the session
	resumed   bool            // the connection has attached to an existing session
	pass      *transport.Pass // counts the connection in the gate
}

// handle performs a request of the machine. It or a later callback on the loop calls the method
// of the machine that completes the request.
func (h *handshake) handle(now time.Time, request machine.Request) {
	c := h.c
	switch q := request.(type) {
	case machine.AuthenticateRequest:
		h.scheme = q.Scheme
		if c.principal.program != nil {
			h.scheme = auth.Program
		}
		h.authenticate(now, machine.VerifyRequest{Credentials: q.Credentials})
	case machine.VerifyRequest:
		h.authenticate(now, q)
	case machine.EstablishRequest:
		h.establish(now, q)
	case machine.ResumeRequest:
		h.resume(q)
	case machine.PrepareRefreshRequest:
		c.machine.RefreshPrepared(now, c.srv.opts.Auth.Challenge(c.principal.identity.Scheme).Reveal())
	case machine.ReauthenticateRequest:
		c.renewal.authenticate(now, q)
	case machine.RenewRequest:
		c.renewal.store()
	case machine.EndRequest:
		h.endSession()
	default:
		panic(fmt.Sprintf("conn: request %T of the machine", request))
	}
}

// establish attaches to the session that session.open names, if it is one of the same principal.
// Otherwise it opens a new session.
func (h *handshake) establish(now time.Time, q machine.EstablishRequest) {
	s := h.c.srv.opts.Sessions.Find(q.Attach)
	if s == nil || s.Principal != q.Identity.Principal {
		h.openSession(now, q)
		return
	}
	h.c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		row, err := h.c.srv.opts.Store.Session(ctx, q.Attach)
		return func(now time.Time) { h.attachOpen(now, q, s, row, err) }
	})
}

// openSession opens a new session. A program first ends the sessions of its earlier processes, whose
// agents would otherwise keep their ids.
func (h *handshake) openSession(now time.Time, q machine.EstablishRequest) {
	if h.c.principal.program == nil {
		h.createSession(now, q)
		return
	}
	h.c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		endSessions(ctx, h.c.srv.opts.Sessions, func(principal string) bool { return principal == q.Identity.Principal }, anotherProcess)
		return func(now time.Time) { h.createSession(now, q) }
	})
}

// createSession counts the session, stores its row, and attaches a cursor to its log when the row
// is stored. It does not wait for a sync: an empty session is nothing to lose, and whatever follows
// is synced together with the row.
func (h *handshake) createSession(now time.Time, q machine.EstablishRequest) {
	if err := h.c.srv.registerSession(h.c); err != nil {
		h.recordRejected(rejectionOf(err), err.Message)
		h.c.machine.Established(now, machine.SessionResult{Refused: err})
		return
	}
	token := h.c.newResumeToken(h.c.id)
	row := store.Session{
		ID:         h.c.id,
		Principal:  q.Identity.Principal,
		Anonymous:  q.Identity.Anonymous,
		Version:    q.Version,
		ClientKind: q.Client.Kind,
		Dialect:    h.c.dialect.name(),
		Profile:    h.c.dialect.profile(),
		Negotiated: q.Negotiated,
		TokenHash:  auth.HashToken(token),
		Identity:   encodeIdentity(&h.c.principal.identity),
		Acks:       h.c.machine.Has(arcp.FeatureAck),
		CreatedAt:  now,
	}
	h.c.srv.opts.Log.AppendUnsynced(store.NewWrite(&store.OpenSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		var cursor *eventlog.Cursor
		if err == nil {
			cursor = h.c.srv.opts.Log.Attach(h.c.id, 0, 0, h.c.session.loop())
		}
		if !h.c.inbox.runOnLoop(func(now time.Time) { h.completeSession(now, row, token, cursor, err) }) && cursor != nil {
			cursor.Close()
		}
	})
}

// refuseSession returns the refusal of a session beyond a limit. own is the limit that the principal has of its own;
// 0: none.
func refuseSession(full *session.ExceededLimit, own int) *arcp.Error {
	setting := "max-" + strings.ReplaceAll(full.Limit, "_", "-")
	switch {
	case full.Share:
		setting = "its share of max-sessions; close some, or set " + setting
	case own > 0 && full.Limit == "sessions_per_principal":
		setting = "limits.sessions of the principal"
	}
	return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d %s reached (%s)", full.N, strings.ReplaceAll(full.Limit, "_", " "),
		setting).RetryAfter(1)
}

// registerSession adds the session of a connection to the directory, or refuses it because of a
// limit.
func (s *Server) registerSession(c *conn) *arcp.Error {
	if err := s.checkRunning(); err != nil {
		return err
	}
	if s.opts.Full() {
		return errNearlyFull()
	}
	s.mu.Lock()
	limits := s.limits.Sessions
	s.mu.Unlock()
	own := c.principal.identity.Limits.Sessions
	if own > 0 {
		limits.PerPrincipal = own
	}
	if !s.opts.Auth.HasSeveralPrincipals() {
		limits.Share = 0
	}
	opened, evicted, full := s.opts.Sessions.Open(session.OpenParams{
		ID:        c.id,
		Principal: c.principal.identity.Principal,
		Now:       c.handshake.startedAt,
		Acks:      c.machine.Has(arcp.FeatureAck),
		Conn:      (*sessionConn)(c),
		Limits:    limits,
	})
	if full != nil {
		s.opts.Metrics.RateLimited.WithLabelValues(full.Limit).Inc()
		return refuseSession(full, own)
	}
	if evicted {
		s.opts.Metrics.Evictions.WithLabelValues("limit").Inc()
	}
	c.session.Session = opened
	c.handshake.pass.Authenticated()
	return nil
}

// checkRunning refuses sessions while the runtime shuts down.
func (s *Server) checkRunning() *arcp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(1)
	}
	return nil
}

// errNearlyFull returns the refusal while the disk is nearly full.
func errNearlyFull() *arcp.Error {
	return arcp.Errorf(arcp.CodeResourceExhausted, "the disk of the runtime is nearly full").RetryAfter(30)
}

// completeSession completes createSession. It accepts the session unless err is set.
func (h *handshake) completeSession(now time.Time, row store.Session, token auth.Secret, cursor *eventlog.Cursor, err error) {
	h.c.events.cursor = cursor
	if err != nil {
		h.c.srv.opts.Sessions.Abandon(h.c.session.Session)
		h.c.session.Session = nil
		h.record(h.c.srv.opts.Logger.Error().Err(err), "failed")
		h.c.machine.Established(now, machine.SessionResult{Refused: arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions")})
		return
	}
	h.c.session.MarkAttached()
	row.Epoch = 1
	h.c.session.attach(row)
	h.c.ack.attach(0, 0, row.Acks)
	h.accept(now)
	h.c.ack.unpause()
	h.c.machine.Established(now, machine.SessionResult{ResumeToken: token.Reveal(), Agents: h.c.catalog.agents()})
}

// accept starts the accepted phase: limits, keepalive, actor and catalog of the session.
func (h *handshake) accept(now time.Time) {
	h.c.output.head = store.FrameHead(h.c.machine.Version(), h.c.id)
	h.c.tc.SetReadLimit(h.c.srv.opts.MaxFrame)
	h.c.acceptSidecars()
	h.c.keepalive.begin(now)
	h.c.principal.updateActor()
	h.c.catalog.shown = h.c.session.Catalog(h.c.principal.trust())
	if n := h.c.principal.identity.Limits.RatePerMin; n > 0 {
		h.c.rates.principal = h.c.srv.limiters.join(now, h.c.principal.identity.Principal, n)
	}
	h.c.srv.opts.Metrics.HandshakeDuration.Observe(now.Sub(h.startedAt).Seconds())
	h.c.srv.opts.Tracer.StartHandshake(h.startedAt).End("")
	h.record(h.c.srv.opts.Logger.Info(), "accepted")
}

// endSession ends the session for session.close with forget. The connection is not evicted: it
// answers with session.closed.
func (h *handshake) endSession() {
	c := h.c
	c.srv.opts.Sessions.End(c.session.Session, session.Eviction{}, func(err error) {
		var refused *arcp.Error
		if err != nil {
			refused = errEndNotStored()
		}
		c.inbox.runOnLoop(func(time.Time) { c.machine.Ended(refused) })
	})
}

// record counts and logs the result of a handshake.
func (h *handshake) record(ev *zerolog.Event, result string) {
	h.c.srv.opts.Metrics.Handshakes.WithLabelValues(schemeLabel(h.scheme), h.c.dialect.name().String(), result).Inc()
	if !ev.Enabled() {
		return
	}
	info := h.c.tc.Info()
	ev = addText(ev, "principal", h.c.principal.identity.Principal)
	ev = addText(ev, "remote", info.RemoteAddr)
	ev.Str("session_id", string(h.c.id)).Str("scheme", schemeLabel(h.scheme)).
		Str("transport", info.Kind).Str("result", result).
		Dur("duration_ms", time.Since(h.startedAt)).Msg("handshake")
}

// addText adds a field to a log line, unless it is empty.
func addText(ev *zerolog.Event, name, text string) *zerolog.Event {
	if text == "" {
		return ev
	}
	return ev.Str(name, text)
}

// recordRejected counts and logs a handshake that is rejected for another reason than the credentials. reason is a
// metric label.
func (h *handshake) recordRejected(reason, detail string) {
	h.c.srv.opts.Metrics.HandshakesRejected.WithLabelValues(reason).Inc()
	h.record(addText(h.c.srv.opts.Logger.Warn(), "reason", detail), "rejected")
}

// rejectionOf returns the metric label of a refused session.
func rejectionOf(refused *arcp.Error) string {
	switch refused.Code {
	case arcp.CodeResourceExhausted:
		return metrics.RejectedLimit
	case arcp.CodeResumeWindowExpired:
		return metrics.RejectedResumeWindow
	case arcp.CodeUnauthenticated:
		return metrics.RejectedUnauthenticated
	case arcp.CodeFailedPrecondition:
		return metrics.RejectedDialect
	case arcp.CodeUnavailable:
		return metrics.RejectedUnavailable
	}
	return metrics.RejectedOther
}

// releasePass removes the connection from the gate. A connection of Gate().Listener is removed
// when it is closed.
func (h *handshake) releasePass() {
	if h.c.tc.Info().Pass == nil {
		h.pass.Leave()
	}
}
