package conn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// resumePrefix begins a resume token. The body of the session's id follows, so that the
// session can be found, and then the secret.
const resumePrefix = "rt_"

func newResumeToken(id arcp.SessionID) auth.Secret {
	return auth.NewToken(resumePrefix + strings.TrimPrefix(string(id), arcp.SessionPrefix))
}

// tokenSession returns the session that a token names.
func tokenSession(token string) (arcp.SessionID, bool) {
	rest, ok := strings.CutPrefix(token, resumePrefix)
	if !ok || len(rest) <= arcp.IDBodyLen {
		return "", false
	}
	return arcp.SessionID(arcp.SessionPrefix + rest[:arcp.IDBodyLen]), true
}

// maxTries bounds how often a connection tries again to attach to a session that
// others attach to at the same time.
const maxTries = 3

// attachment is a session to which the connection attaches.
type attachment struct {
	row   store.Session // as stored
	valid [][32]byte    // tokens that stay valid until the client confirms the new one
	after uint64        // position
	held  bool          // the client may still ask for a position
	token auth.Secret   // the new one
	opens bool          // by session.open; otherwise by session.resume

	retry func(now time.Time) // attaches again when another connection was faster
}

// resume attaches to the session that a token names (SPEC.md §5.10).
func (h *handshake) resume(q machine.Resume) {
	h.c.tasks.read(func(ctx context.Context) func(time.Time) {
		row, refused := h.c.srv.holder(ctx, auth.Secret(q.Token))
		return func(now time.Time) { h.resumeRow(now, q, row, refused) }
	})
}

// resumeRow continues resume with the row of the session, or the refusal of the token.
func (h *handshake) resumeRow(now time.Time, q machine.Resume, row store.Session, refused *arcp.Error) {
	if refused == nil {
		refused = h.check(now, &row, q.After)
	}
	if refused != nil {
		h.refuse(now, false, refused)
		return
	}
	h.attach(attachment{row: row, valid: validTokens(auth.HashToken(auth.Secret(q.Token)), &row), after: q.After,
		retry: func(time.Time) { h.resume(q) }})
}

// refuse answers session.resume, or session.open that names a session.
func (h *handshake) refuse(now time.Time, opens bool, refused *arcp.Error) {
	h.c.srv.opts.Metrics.Resumes.WithLabelValues(resumeResult(refused)).Inc()
	h.log(h.c.srv.opts.Logger.Warn().Str("reason", refused.Message), "rejected")
	if opens {
		h.c.m.Established(now, machine.Established{Refused: refused})
		return
	}
	h.c.m.Resumed(now, machine.Resumed{Refused: refused})
}

func resumeResult(refused *arcp.Error) string {
	switch refused.Code {
	case arcp.CodeResumeWindowExpired:
		return "expired"
	case arcp.CodeUnauthenticated:
		return "unauthenticated"
	}
	return "unavailable"
}

// noSession is the answer to a token that is wrong, old, or of a session that has ended. It does
// not reveal which.
func noSession() *arcp.Error {
	return arcp.Errorf(arcp.CodeResumeWindowExpired,
		"the token resumes no session: it was used, or the session has ended; open a new one: jobs go on and are listed")
}

// check refuses to resume a session whose identity is no longer accepted, or after an event that
// is not kept.
func (h *handshake) check(now time.Time, row *store.Session, after uint64) *arcp.Error {
	if refused := h.revalidate(now, row); refused != nil {
		return refused
	}
	if refused := h.c.srv.available(); refused != nil {
		return refused
	}
	return h.c.srv.covers(row, after)
}

// holder returns the session of a token.
func (s *Server) holder(ctx context.Context, token auth.Secret) (store.Session, *arcp.Error) {
	id, ok := tokenSession(token.Reveal())
	if !ok {
		return store.Session{}, noSession()
	}
	row, err := s.opts.Store.Session(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return row, noSession()
	case err != nil:
		s.opts.Logger.Error().Err(err).Msg("read session")
		return row, unreadable()
	}
	own := s.opts.Sessions.Find(id)
	current := auth.Matches(row.TokenHash, token)
	before := own != nil && !own.Heard(row.Epoch) && slices.ContainsFunc(row.PrevHashes, func(h [32]byte) bool { return auth.Matches(h, token) })
	if own == nil || !current && !before {
		return row, noSession()
	}
	return row, nil
}

// maxValidTokens bounds the valid tokens of a session beside the newest.
const maxValidTokens = 4

// validTokens returns the tokens that stay valid when a connection attaches with one of them. The
// client may have any of them if connections have attached more than once before it sent a
// frame. The token that was shown comes first.
func validTokens(shown [32]byte, row *store.Session) [][32]byte {
	valid := [][32]byte{shown}
	for _, h := range append([][32]byte{row.TokenHash}, row.PrevHashes...) {
		if len(valid) < maxValidTokens && !slices.Contains(valid, h) {
			valid = append(valid, h)
		}
	}
	return valid
}

func unreadable() *arcp.Error {
	return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
}

// revalidate judges the identity again with which the session was opened. A resume token is not
// valid for longer than the identity.
func (h *handshake) revalidate(now time.Time, row *store.Session) *arcp.Error {
	var stored auth.Identity
	if err := arcp.Unmarshal(row.Identity, &stored); err != nil {
		h.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(row.ID)).Msg("identity of a session")
		return unreadable()
	}
	h.scheme = stored.Scheme
	id, err := h.c.srv.opts.Auth.Revalidate(stored, h.c.principal.peer(h.c.tc.Info(), now))
	if err != nil {
		return arcp.Errorf(arcp.CodeUnauthenticated, "%s", h.refuseCredential(err).Message)
	}
	h.c.principal.identity = id
	return nil
}

// covers refuses a position that the session has not reached, or after which not all events are
// kept. Acknowledged events may be deleted at any moment.
func (s *Server) covers(row *store.Session, after uint64) *arcp.Error {
	kept := row.TrimmedTo
	if own := s.opts.Sessions.Find(row.ID); own != nil && own.Acks() {
		kept = max(kept, min(own.Position(), row.LastSeq))
	}
	switch {
	case after > row.LastSeq:
		return arcp.Errorf(arcp.CodeResumeWindowExpired, "last_event_seq %d is not reached: the session's last event is %d", after, row.LastSeq)
	case after < kept:
		return arcp.Errorf(arcp.CodeResumeWindowExpired, "the events after %d are not kept any more: the first one is %d", after, kept+1)
	}
	return nil
}

// attachOpen attaches to a session of the same principal that session.open names, with the
// session's row or the error of reading it (SPEC.md §5.10).
func (h *handshake) attachOpen(now time.Time, q machine.Establish, s *session.Session, row store.Session, err error) {
	switch {
	case errors.Is(err, store.ErrNotFound): // it has ended
		h.create(now, q)
		return
	case err != nil:
		h.c.srv.opts.Logger.Error().Err(err).Msg("read session")
		h.refuse(now, true, unreadable())
		return
	}
	if refused := h.c.srv.available(); refused != nil {
		h.refuse(now, true, refused)
		return
	}
	a := attachment{row: row, valid: validTokens(row.TokenHash, &row), opens: true, held: q.After == nil, after: row.TrimmedTo}
	a.retry = func(now time.Time) { h.establish(now, q) }
	if q.After != nil {
		a.after = *q.After
	} else {
		a.after = min(max(row.TrimmedTo, s.Position()), row.LastSeq)
	}
	if refused := h.c.srv.covers(&row, a.after); refused != nil {
		h.refuse(now, true, refused)
		return
	}
	h.attach(a)
}

// attach stores that the connection has the session. The connection before is superseded.
func (h *handshake) attach(a attachment) {
	a.token = newResumeToken(a.row.ID)
	row := a.row
	row.PrevHashes, row.TokenHash = a.valid, auth.HashToken(a.token)
	row.Identity = encodeIdentity(&h.c.principal.identity)
	if row.Written = a.after; a.held { // the client may ask for an earlier position, also after a crash
		row.Written = 0
	}
	h.c.srv.opts.Log.Append(store.NewWrite(&store.AttachSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		var cursor *eventlog.Cursor
		if err == nil {
			a.row = row
			a.row.Epoch, a.row.LastSeq = r.Epoch, r.LastSeq
			cursor = h.c.srv.opts.Log.AttachNow(row.ID, a.after, r.LastSeq, h.c.tasks.loop())
		}
		if !h.c.inbox.complete(func(now time.Time) { h.handOver(now, a, cursor, err) }) && cursor != nil {
			cursor.Close()
		}
	})
}

// handOverTime bounds the wait for the frames that the connection before is writing.
const handOverTime = 50 * time.Millisecond

// handOver completes the attachment. If the client did not name a position, it waits until the
// position of the connection before is final.
func (h *handshake) handOver(now time.Time, a attachment, cursor *eventlog.Cursor, err error) {
	old := h.c.srv.opts.Sessions.ConnOf(a.row.ID)
	if !a.held || old == nil || err != nil {
		h.attached(now, a, cursor, err)
		return
	}
	h.c.tasks.async(func() {
		ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
		defer cancel()
		old.Sync(ctx)
		if !h.c.inbox.complete(func(now time.Time) { h.attached(now, a, cursor, nil) }) {
			cursor.Close()
		}
	})
}

// encodeIdentity encodes the part of an identity that auth.Set.Again needs. For a bearer token
// that is the principal and the print of the token: everything else is read from the
// configuration. The print has to be revealed to be stored.
func encodeIdentity(id *auth.Identity) arcp.Raw {
	if id.Scheme == auth.Bearer {
		b := arcp.AppendString([]byte(`{"Scheme":"`+auth.Bearer+`","Principal":`), id.Principal)
		b = arcp.AppendString(append(b, `,"TokenPrint":`...), id.TokenPrint.Reveal())
		return append(b, '}')
	}
	raw, err := arcp.Marshal(id)
	if err != nil { // strings, numbers and times
		panic("runtime: identity: " + err.Error())
	}
	return raw
}

// attached begins the accepted phase, or refuses the client.
func (h *handshake) attached(now time.Time, a attachment, cursor *eventlog.Cursor, err error) {
	if errors.Is(err, store.ErrFenced) && h.tries < maxTries {
		h.tries++
		a.retry(now) // the token is valid until the client of the other connection sends a frame
		return
	}
	if refused := h.takeOver(&a, cursor, err); refused != nil {
		h.refuse(now, a.opens, refused)
		return
	}
	h.c.id, h.c.row, h.c.cursor, h.resumed = a.row.ID, a.row, cursor, true
	h.c.row.Acks = a.row.Acks || h.c.session.Acks() // the first acknowledgement may have come after the row was read
	h.c.ack.start, h.c.ack.acked, h.c.ack.acks = a.after, a.row.TrimmedTo, h.c.row.Acks
	h.c.session.Replay.Begin(a.row.TrimmedTo)
	h.c.ack.position.start(h.c.ack.start, h.c.ack.acks, h.c.ack.acked)
	h.finish(now)
	h.c.srv.opts.Metrics.Resumes.WithLabelValues("ok").Inc()
	h.c.srv.opts.Metrics.ResumeReplayed.Observe(float64(a.row.LastSeq - a.after))
	at := machine.Attached{Session: h.c.id, Negotiated: a.row.Negotiated}
	if a.opens {
		h.c.m.Established(now, machine.Established{ResumeToken: a.token.Reveal(), Agents: h.c.catalogue.agents(), Attached: &at})
	} else {
		h.c.m.Resumed(now, machine.Resumed{Attached: at, Identity: *h.identify(h.c.principal.identity).Identity, ResumeToken: a.token.Reveal(),
			After: a.after, Replayed: a.after < a.row.LastSeq})
	}
	if a.held {
		h.c.ack.hold()
	} else {
		h.c.ack.release()
	}
}

// takeOver makes the connection the session's. It is refused if the session has ended meanwhile,
// or another connection was faster.
func (h *handshake) takeOver(a *attachment, cursor *eventlog.Cursor, err error) *arcp.Error {
	switch {
	case errors.Is(err, store.ErrNotFound): // it has ended meanwhile
		return noSession()
	case err != nil:
		h.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(a.row.ID)).Msg("attach to session")
		return arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions").RetryAfter(1)
	}
	s := h.c.srv.opts.Sessions.Find(a.row.ID)
	if s == nil || !h.takeSession(s, a, cursor) {
		cursor.Close()
		return noSession()
	}
	h.pass.Authenticated()
	return nil
}

// takeSession attaches the connection to a session. It reports false if another connection
// was faster, or the session has ended.
func (h *handshake) takeSession(s *session.Session, a *attachment, cursor *eventlog.Cursor) bool {
	h.c.ack.position.start(s.Position(), false, 0)
	old, position, ok := s.Attach((*sessionConn)(h.c), a.row.Epoch)
	if !ok {
		return false
	}
	h.c.session = s
	if a.held && old != nil {
		a.after = max(a.after, min(position, a.row.LastSeq))
		cursor.Move(a.after)
	}
	if old != nil {
		old.Supersede()
	}
	return true
}
