package conn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
)

// resumePrefix is the start of a resume token of the RFC's dialect. The body of the session's id
// follows, so that the session can be found, and then the secret.
const resumePrefix = "rt_"

// newResumeToken returns a resume token of a session of the connection's dialect.
func (c *conn) newResumeToken(id arcp.SessionID) auth.Secret {
	return auth.NewToken(c.dialect.tokenPrefix() + strings.TrimPrefix(string(id), arcp.SessionPrefix))
}

// tokenSessionID returns the id of the session that a resume token names.
func tokenSessionID(token string) (arcp.SessionID, bool) {
	rest, ok := strings.CutPrefix(token, resumePrefix)
	if !ok {
		rest, ok = strings.CutPrefix(token, draft.ResumePrefix)
	}
	if !ok || len(rest) <= arcp.IDBodyLen {
		return "", false
	}
	return arcp.SessionID(arcp.SessionPrefix + rest[:arcp.IDBodyLen]), true
}

// maxRetries bounds how often a connection retries to attach to a session to which other
// connections attach at the same time.
const maxRetries = 3

// attachment is the state of attaching to an existing session.
type attachment struct {
	row            store.Session // as stored
	validHashes    [][32]byte    // hashes of tokens that stay valid until the client confirms the new one
	after          uint64        // the last event before the position to continue from
	awaitsPosition bool          // session.open without a position: the client may send resume
	token          auth.Secret   // new resume token
	byOpen         bool          // by session.open; false: by session.resume
	followed       []arcp.JobID  // live jobs of other sessions that the session follows

	retry func(now time.Time) // attaches again after another connection has attached
}

// resume attaches to the session of a resume token (SPEC.md §5.10).
func (h *handshake) resume(q machine.ResumeRequest) {
	credentials := h.c.dialect.credentials()
	h.c.tasks.backgroundInOrder(func(ctx context.Context) func(time.Time) {
		row, refused := h.c.srv.readTokenSession(ctx, auth.Secret(q.Token))
		if refused == nil && credentials != nil {
			refused = h.c.srv.checkOwner(ctx, *credentials, &row)
		}
		return func(now time.Time) { h.resumeRow(now, q, row, refused) }
	})
}

// checkOwner refuses credentials that are invalid or of another principal than the session's. It
// may wait for the issuer of the credentials.
func (s *Server) checkOwner(ctx context.Context, credentials auth.Request, row *store.Session) *arcp.Error {
	result := s.authenticate(ctx, credentials, "", "")
	switch {
	case result.err != nil:
		r, _ := refusal(result.err)
		return arcp.Errorf(arcp.CodeUnauthenticated, "%s", r.Message)
	case result.challenge != "":
		return arcp.Errorf(arcp.CodeUnauthenticated, "the credentials must be proven: resume the session without them")
	case result.identity.Principal != row.Principal:
		return errNoSession()
	}
	return nil
}

// resumeRow continues resume with the row of the session, or with the refusal of the token.
func (h *handshake) resumeRow(now time.Time, q machine.ResumeRequest, row store.Session, refused *arcp.Error) {
	if refused == nil {
		refused = h.c.checkDialect(&row)
	}
	if refused == nil {
		refused = h.checkResume(now, &row, q.After)
	}
	if refused != nil {
		h.refuseAttachment(now, false, refused)
		return
	}
	h.storeAttachment(attachment{
		row:         row,
		validHashes: validTokens(auth.HashToken(auth.Secret(q.Token)), &row),
		after:       q.After,
		retry:       func(time.Time) { h.resume(q) },
	})
}

// refuseAttachment refuses session.resume, or a session.open with the id of a session.
func (h *handshake) refuseAttachment(now time.Time, opens bool, refused *arcp.Error) {
	h.c.srv.opts.Metrics.Resumes.WithLabelValues(resumeResult(refused)).Inc()
	h.recordRejected(rejectionOf(refused), refused.Message)
	if opens {
		h.c.machine.Established(now, machine.SessionResult{Refused: refused})
		return
	}
	h.c.machine.Resumed(now, machine.ResumeResult{Refused: refused})
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

// errNoSession returns the refusal of a token that is wrong, old, or of a session that has ended. It
// does not reveal which.
func errNoSession() *arcp.Error {
	return arcp.Errorf(arcp.CodeResumeWindowExpired,
		"the token resumes no session: it was used, or the session has ended; open a new one: jobs go on and are listed")
}

// checkResume refuses to resume a session whose identity is no longer valid, or from a position
// that is not kept.
func (h *handshake) checkResume(now time.Time, row *store.Session, after uint64) *arcp.Error {
	if refused := h.revalidate(now, row); refused != nil {
		return refused
	}
	if refused := h.c.srv.checkRunning(); refused != nil {
		return refused
	}
	return h.c.srv.checkPosition(row, after)
}

// readTokenSession returns the row of the session of a resume token.
func (s *Server) readTokenSession(ctx context.Context, token auth.Secret) (store.Session, *arcp.Error) {
	id, ok := tokenSessionID(token.Reveal())
	if !ok {
		return store.Session{}, errNoSession()
	}
	row, err := s.opts.Store.Session(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return row, errNoSession()
	case err != nil:
		s.opts.Logger.Error().Err(err).Msg("read session")
		return row, errUnreadable()
	}
	existing := s.opts.Sessions.Find(id)
	current := auth.TokenMatches(row.TokenHash, token)
	previous := existing != nil && !existing.TokenConfirmed(row.Epoch) &&
		slices.ContainsFunc(row.PrevHashes, func(h [32]byte) bool { return auth.TokenMatches(h, token) })
	if existing == nil || !current && !previous {
		return row, errNoSession()
	}
	return row, nil
}

// maxValidTokens bounds the valid tokens of a session besides the newest one.
const maxValidTokens = 4

// validTokens returns the hashes of the tokens that stay valid when a connection attaches with the
// token shown, which is the first. The client may have any of them, if several connections have
// attached before it sent a frame.
func validTokens(shown [32]byte, row *store.Session) [][32]byte {
	valid := [][32]byte{shown}
	for _, h := range append([][32]byte{row.TokenHash}, row.PrevHashes...) {
		if len(valid) < maxValidTokens && !slices.Contains(valid, h) {
			valid = append(valid, h)
		}
	}
	return valid
}

// errUnreadable returns the refusal of a request for which the store cannot be read.
func errUnreadable() *arcp.Error {
	return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
}

// revalidate checks the stored identity of the session. A resume token is not valid for longer than
// that identity.
func (h *handshake) revalidate(now time.Time, row *store.Session) *arcp.Error {
	var stored auth.Identity
	if err := arcp.Unmarshal(row.Identity, &stored); err != nil {
		h.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(row.ID)).Msg("identity of a session")
		return errUnreadable()
	}
	h.scheme = stored.Scheme
	id, err := h.c.srv.opts.Auth.Revalidate(stored, h.c.principal.peer(h.c.tc.Info(), now))
	if err != nil {
		return arcp.Errorf(arcp.CodeUnauthenticated, "%s", h.refuseCredential(err).Message)
	}
	h.c.principal.identity = id
	return nil
}

// checkPosition refuses a position that the session has not reached, or after which events are
// missing. Acknowledged events count as missing, because they may be deleted at any time.
func (s *Server) checkPosition(row *store.Session, after uint64) *arcp.Error {
	trimmed := row.TrimmedTo
	if existing := s.opts.Sessions.Find(row.ID); existing != nil && existing.Acks() {
		trimmed = max(trimmed, min(existing.Position(), row.LastSeq))
	}
	switch {
	case after > row.LastSeq:
		return arcp.Errorf(arcp.CodeResumeWindowExpired, "last_event_seq %d is not reached: the session's last event is %d", after, row.LastSeq)
	case after < trimmed:
		return arcp.Errorf(arcp.CodeResumeWindowExpired, "the events after %d are not kept any more: the first one is %d", after, trimmed+1)
	}
	return nil
}

// attachOpen attaches to the session that session.open names (SPEC.md §5.10). row and err are the
// result of reading its row.
func (h *handshake) attachOpen(now time.Time, q machine.EstablishRequest, s *session.Session, row store.Session, err error) {
	switch {
	case errors.Is(err, store.ErrNotFound): // the session has ended
		h.openSession(now, q)
		return
	case err != nil:
		h.c.srv.opts.Logger.Error().Err(err).Msg("read session")
		h.refuseAttachment(now, true, errUnreadable())
		return
	}
	if refused := h.c.checkDialect(&row); refused != nil {
		h.refuseAttachment(now, true, refused)
		return
	}
	if refused := h.c.srv.checkRunning(); refused != nil {
		h.refuseAttachment(now, true, refused)
		return
	}
	a := attachment{
		row:            row,
		validHashes:    validTokens(row.TokenHash, &row),
		after:          row.TrimmedTo,
		awaitsPosition: q.After == nil,
		byOpen:         true,
		retry:          func(now time.Time) { h.establish(now, q) },
	}
	if q.After != nil {
		a.after = *q.After
	} else {
		a.after = min(max(row.TrimmedTo, s.Position()), row.LastSeq)
	}
	if refused := h.c.srv.checkPosition(&row, a.after); refused != nil {
		h.refuseAttachment(now, true, refused)
		return
	}
	h.storeAttachment(a)
}

// storeAttachment stores the attachment, which supersedes the previous connection, and attaches a
// cursor when it is durable.
func (h *handshake) storeAttachment(a attachment) {
	a.token = h.c.newResumeToken(a.row.ID)
	row := a.row
	row.PrevHashes, row.TokenHash = a.validHashes, auth.HashToken(a.token)
	row.Identity = encodeIdentity(&h.c.principal.identity)
	if row.Written = a.after; a.awaitsPosition { // the client may ask for an earlier position, also after a crash
		row.Written = 0
	}
	h.c.srv.opts.Log.Append(store.NewWrite(&store.AttachSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		var cursor *eventlog.Cursor
		if err == nil {
			a.row, a.followed = row, r.Followed
			a.row.Epoch, a.row.LastSeq = r.Epoch, r.LastSeq
			cursor = h.c.srv.opts.Log.Attach(row.ID, a.after, r.LastSeq, h.c.session.loop())
		}
		if !h.c.inbox.runOnLoop(func(now time.Time) { h.awaitPreviousConn(now, a, cursor, err) }) && cursor != nil {
			cursor.Close()
		}
	})
}

// previousConnTimeout bounds the wait for the frames that the previous connection is writing.
const previousConnTimeout = 50 * time.Millisecond

// awaitPreviousConn calls completeAttachment. Without a position of the client, it first waits
// until the position of the previous connection is final.
func (h *handshake) awaitPreviousConn(now time.Time, a attachment, cursor *eventlog.Cursor, err error) {
	old := h.c.srv.opts.Sessions.ConnOf(a.row.ID)
	if !a.awaitsPosition || old == nil || err != nil {
		h.completeAttachment(now, a, cursor, err)
		return
	}
	h.c.tasks.background(func() {
		ctx, cancel := context.WithTimeout(context.Background(), previousConnTimeout)
		defer cancel()
		old.Sync(ctx)
		if !h.c.inbox.runOnLoop(func(now time.Time) { h.completeAttachment(now, a, cursor, nil) }) {
			cursor.Close()
		}
	})
}

// encodeIdentity encodes the part of an identity that auth.Set.Revalidate needs. For a bearer token
// that is the principal and the fingerprint of the token, which is revealed to be stored.
func encodeIdentity(id *auth.Identity) arcp.Raw {
	if id.Scheme == auth.Bearer {
		b := arcp.AppendString([]byte(`{"Scheme":"`+auth.Bearer+`","Principal":`), id.Principal)
		b = arcp.AppendString(append(b, `,"TokenPrint":`...), id.TokenFingerprint.Reveal())
		return append(b, '}')
	}
	raw, err := arcp.Marshal(id)
	if err != nil { // strings, numbers and times
		panic("conn: identity: " + err.Error())
	}
	return raw
}

// completeAttachment accepts the session, retries, or refuses the client.
func (h *handshake) completeAttachment(now time.Time, a attachment, cursor *eventlog.Cursor, err error) {
	if errors.Is(err, store.ErrFenced) && h.retries < maxRetries {
		h.retries++
		a.retry(now) // the token stays valid until the other connection receives a frame
		return
	}
	if refused := h.claimSession(&a, cursor, err); refused != nil {
		h.refuseAttachment(now, a.byOpen, refused)
		return
	}
	h.c.id, h.resumed = a.row.ID, true
	h.c.events.cursor = cursor
	h.c.session.attach(a.row)
	h.c.ack.attach(a.after, a.row.TrimmedTo, h.c.session.row.Acks)
	h.c.ack.followed = a.followed
	h.accept(now)
	h.c.srv.opts.Metrics.Resumes.WithLabelValues("ok").Inc()
	h.c.srv.opts.Metrics.ResumeReplayed.Observe(float64(a.row.LastSeq - a.after))
	at := machine.Attached{Session: h.c.id, Negotiated: a.row.Negotiated}
	if a.byOpen {
		h.c.machine.Established(now, machine.SessionResult{ResumeToken: a.token.Reveal(), Agents: h.c.catalog.agents(), Attached: &at})
	} else {
		h.c.machine.Resumed(now, machine.ResumeResult{
			Attached:    at,
			Identity:    *identityOf(&h.c.principal.identity),
			ResumeToken: a.token.Reveal(),
			After:       a.after,
			Replayed:    a.after < a.row.LastSeq,
		})
		h.c.dialect.resumed(now, &a.row, a.followed)
	}
	if a.awaitsPosition {
		h.c.ack.pause()
	} else {
		h.c.ack.unpause()
	}
}

// claimSession makes the connection the one of the session. It returns a refusal if the session
// has ended meanwhile, or another connection has attached.
func (h *handshake) claimSession(a *attachment, cursor *eventlog.Cursor, err error) *arcp.Error {
	switch {
	case errors.Is(err, store.ErrNotFound): // the session has ended meanwhile
		return errNoSession()
	case err != nil:
		h.c.srv.opts.Logger.Error().Err(err).Str("session_id", string(a.row.ID)).Msg("attach to session")
		return arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions").RetryAfter(1)
	}
	s := h.c.srv.opts.Sessions.Find(a.row.ID)
	if s == nil || !h.replaceConn(s, a, cursor) {
		cursor.Close()
		return errNoSession()
	}
	h.pass.Authenticated()
	return nil
}

// replaceConn attaches the connection to a session and supersedes the previous connection. It
// reports false if the session has ended, or a connection with a later epoch has attached.
func (h *handshake) replaceConn(s *session.Session, a *attachment, cursor *eventlog.Cursor) bool {
	h.c.ack.position.start(s.Position(), false, 0)
	old, position, ok := s.Attach((*sessionConn)(h.c), a.row.Epoch)
	if !ok {
		return false
	}
	h.c.session.Session = s
	if a.awaitsPosition && old != nil {
		a.after = max(a.after, min(position, a.row.LastSeq))
		cursor.Seek(a.after)
	}
	if old != nil {
		old.Supersede()
	}
	return true
}
