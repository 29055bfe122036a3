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
	"github.com/arcpd/arcpd/transport"
)

// resumePrefix begins a resume token. The body of the session's id follows, so
// that the token finds its session, and then the secret.
const resumePrefix = "rt_"

func newResumeToken(id arcp.SessionID) auth.Secret {
	return auth.NewToken(resumePrefix + strings.TrimPrefix(string(id), arcp.SessionPrefix))
}

// tokenSession is the session that a token claims to be of.
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

// attachment is a session that a connection is about to take over.
type attachment struct {
	row   store.Session // as stored
	good  [][32]byte    // the tokens that stay good until the client is heard
	after uint64        // position
	held  bool          // the client may still say where to go on
	token auth.Secret   // the new one
	opens bool          // by session.open

	again func(now time.Time) // looks anew when another connection was faster
}

// resume takes over the session that a token names (SPEC.md §5.10).
func (c *conn) resume(q machine.Resume) {
	c.read(func(ctx context.Context) func(time.Time) {
		row, refused := c.srv.holder(ctx, auth.Secret(q.Token))
		return func(now time.Time) { c.resumeRow(now, q, row, refused) }
	})
}

// resumeRow is resume with the row of the session, or the reason why there is none.
func (c *conn) resumeRow(now time.Time, q machine.Resume, row store.Session, refused *arcp.Error) {
	if refused == nil {
		refused = c.mayResume(now, &row, q.After)
	}
	if refused != nil {
		c.refuseAttach(now, false, refused)
		return
	}
	c.attach(attachment{row: row, good: stillGood(auth.HashToken(auth.Secret(q.Token)), &row), after: q.After,
		again: func(time.Time) { c.resume(q) }})
}

// refuseAttach answers session.resume, or session.open that names a session.
func (c *conn) refuseAttach(now time.Time, opens bool, refused *arcp.Error) {
	c.srv.opts.Metrics.Resumes.WithLabelValues(resumeResult(refused)).Inc()
	c.logHandshake(c.srv.opts.Logger.Warn().Str("reason", refused.Message), "rejected")
	if opens {
		c.m.Established(now, machine.Established{Refused: refused})
		return
	}
	c.m.Resumed(now, machine.Resumed{Refused: refused})
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

// noSession is the one answer to a token that is wrong, old, or of a session
// that has ended: it does not tell which.
func noSession() *arcp.Error {
	return arcp.Errorf(arcp.CodeResumeWindowExpired,
		"the token resumes no session: it was used, or the session has ended; open a new one: jobs go on and are listed")
}

// mayResume judges the identity of a session and a position.
func (c *conn) mayResume(now time.Time, row *store.Session, after uint64) *arcp.Error {
	if refused := c.again(now, row); refused != nil {
		return refused
	}
	if refused := c.srv.available(); refused != nil {
		return refused
	}
	return c.srv.covers(row, after)
}

// holder returns the session whose token it is.
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

// maxGood bounds the tokens of a session that are good beside the newest.
const maxGood = 4

// stillGood are the tokens that stay good when the session is attached to by one
// of them: the client may have any of them, if it was attached to more than once
// before it was heard. The one that was shown comes first.
func stillGood(shown [32]byte, row *store.Session) [][32]byte {
	good := [][32]byte{shown}
	for _, h := range append([][32]byte{row.TokenHash}, row.PrevHashes...) {
		if len(good) < maxGood && !slices.Contains(good, h) {
			good = append(good, h)
		}
	}
	return good
}

func unreadable() *arcp.Error {
	return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
}

// again judges the identity that a session was opened with: a token alone must
// not outlive it.
func (c *conn) again(now time.Time, row *store.Session) *arcp.Error {
	var id auth.Identity
	if err := arcp.Unmarshal(row.Identity, &id); err != nil {
		c.srv.opts.Logger.Error().Err(err).Str("session_id", string(row.ID)).Msg("identity of a session")
		return unreadable()
	}
	info := c.tc.Info()
	c.opening.scheme = id.Scheme
	fresh, err := c.srv.opts.Auth.Again(id, auth.Request{Local: info.Local, PeerUID: info.PeerUID, Now: now})
	if err != nil {
		return arcp.Errorf(arcp.CodeUnauthenticated, "%s", c.refused(err).Message)
	}
	c.principal.identity = fresh
	return nil
}

// covers refuses a position that was never reached, or from which on not
// everything is kept any more: what was acknowledged goes at any moment.
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

// attachOpen takes over a session of the same principal that session.open names, with its
// row or the reason why there is none (SPEC.md §5.10).
func (c *conn) attachOpen(now time.Time, q machine.Establish, s *session.Session, row store.Session, err error) {
	switch {
	case errors.Is(err, store.ErrNotFound): // it has ended
		c.create(now, q)
		return
	case err != nil:
		c.srv.opts.Logger.Error().Err(err).Msg("read session")
		c.refuseAttach(now, true, unreadable())
		return
	}
	if refused := c.srv.available(); refused != nil {
		c.refuseAttach(now, true, refused)
		return
	}
	a := attachment{row: row, good: stillGood(row.TokenHash, &row), opens: true, held: q.After == nil, after: row.TrimmedTo}
	a.again = func(now time.Time) { c.establish(now, q) }
	if q.After != nil {
		a.after = *q.After
	} else {
		a.after = min(max(row.TrimmedTo, s.Position()), row.LastSeq)
	}
	if refused := c.srv.covers(&row, a.after); refused != nil {
		c.refuseAttach(now, true, refused)
		return
	}
	c.attach(a)
}

// attach makes the connection the session's, durably: whatever had it before is
// superseded.
func (c *conn) attach(a attachment) {
	a.token = newResumeToken(a.row.ID)
	row := a.row
	row.PrevHashes, row.TokenHash = a.good, auth.HashToken(a.token)
	row.Identity = encodeIdentity(&c.principal.identity)
	if row.Written = a.after; a.held { // it may yet go back: after a crash it must not be where it was before
		row.Written = 0
	}
	c.srv.opts.Log.Append(store.NewWrite(&store.AttachSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		var cursor *eventlog.Cursor
		if err == nil {
			a.row = row
			a.row.Epoch, a.row.LastSeq = r.Epoch, r.LastSeq
			cursor = c.srv.opts.Log.AttachNow(row.ID, a.after, r.LastSeq, c.loop())
		}
		if !c.complete(func(now time.Time) { c.handOver(now, a, cursor, err) }) && cursor != nil {
			cursor.Close()
		}
	})
}

// handOverTime bounds the wait for what the connection before is writing.
const handOverTime = 50 * time.Millisecond

// handOver completes the attachment. If the client did not say where to go on, that waits
// until the position of the connection before is settled.
func (c *conn) handOver(now time.Time, a attachment, cursor *eventlog.Cursor, err error) {
	old := c.srv.opts.Sessions.ConnOf(a.row.ID)
	if !a.held || old == nil || err != nil {
		c.attached(now, a, cursor, err)
		return
	}
	c.async(func() {
		ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
		defer cancel()
		old.Sync(ctx)
		if !c.complete(func(now time.Time) { c.attached(now, a, cursor, nil) }) {
			cursor.Close()
		}
	})
}

// encodeIdentity keeps of an identity what auth.Set.Again needs. Of the holder of
// a token that is the name and which token it was, as a print that is stored
// only if it is revealed: everything else is what the configuration says then.
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

func (c *conn) attached(now time.Time, a attachment, cursor *eventlog.Cursor, err error) {
	if errors.Is(err, store.ErrFenced) && c.opening.tries < maxTries {
		c.opening.tries++
		a.again(now) // its token may still be good: the winner's client has not been heard yet
		return
	}
	if refused := c.takeOver(&a, cursor, err); refused != nil {
		c.refuseAttach(now, a.opens, refused)
		return
	}
	c.id, c.row, c.cursor, c.opening.resumed = a.row.ID, a.row, cursor, true
	c.row.Acks = a.row.Acks || c.session.Acks() // the first acknowledgement may have come after the row was read
	c.ack.start, c.ack.acked, c.ack.acks = a.after, a.row.TrimmedTo, c.row.Acks
	c.session.Replay.Begin(a.row.TrimmedTo)
	c.ack.reached.start(c.ack.start, c.ack.acks, c.ack.acked)
	c.begin(now)
	c.srv.opts.Metrics.Resumes.WithLabelValues("ok").Inc()
	c.srv.opts.Metrics.ResumeReplayed.Observe(float64(a.row.LastSeq - a.after))
	at := machine.Attached{Session: c.id, Negotiated: a.row.Negotiated}
	if a.opens {
		c.m.Established(now, machine.Established{ResumeToken: a.token.Reveal(), Agents: c.agents(), Attached: &at})
	} else {
		c.m.Resumed(now, machine.Resumed{Attached: at, Identity: *c.identified(c.principal.identity).Identity, ResumeToken: a.token.Reveal(),
			After: a.after, Replayed: a.after < a.row.LastSeq})
	}
	if a.held {
		c.hold()
	} else {
		c.release()
	}
}

// takeOver enters the connection as the session's. It may be refused: the
// session has ended meanwhile, or another connection was faster.
func (c *conn) takeOver(a *attachment, cursor *eventlog.Cursor, err error) *arcp.Error {
	switch {
	case errors.Is(err, store.ErrNotFound): // it has ended meanwhile
		return noSession()
	case err != nil:
		c.srv.opts.Logger.Error().Err(err).Str("session_id", string(a.row.ID)).Msg("attach to session")
		return arcp.Errorf(arcp.CodeUnavailable, "the store does not accept sessions").RetryAfter(1)
	}
	s := c.srv.opts.Sessions.Find(a.row.ID)
	if s == nil || !c.takeSession(s, a, cursor) {
		cursor.Close()
		return noSession()
	}
	c.opening.pass.Authenticated()
	return nil
}

// takeSession attaches the connection to a session. It returns false if another connection
// was faster, or the session has ended.
func (c *conn) takeSession(s *session.Session, a *attachment, cursor *eventlog.Cursor) bool {
	c.ack.reached.start(s.Position(), false, 0)
	old, position, ok := s.Attach((*sessionConn)(c), a.row.Epoch)
	if !ok {
		return false
	}
	c.session = s
	if a.held && old != nil {
		a.after = max(a.after, min(position, a.row.LastSeq))
		cursor.Move(a.after)
	}
	if old != nil {
		old.Supersede()
	}
	return true
}

// heard invalidates the earlier resume tokens when the first frame arrives: the client has
// the new token. It returns false until that is durable, and the frame has to wait: a crash
// must not make a used token valid again.
func (c *conn) heard() bool {
	if c.row.PrevHashes == nil || c.lease.spare {
		return !c.tasks.tokenPending
	}
	c.row.PrevHashes, c.tasks.tokenPending = nil, true
	c.session.SetHeard(c.row.Epoch)
	row := c.row
	c.pending.owed.Add(1)
	c.srv.opts.Log.Append(store.NewWrite(&store.PutSession{Row: &row}), func(r *store.Result) {
		err := r.Err
		c.settle()
		c.complete(func(time.Time) { c.tokenStored(err) })
	})
	return false
}

func (c *conn) tokenStored(err error) {
	c.tasks.tokenPending = false
	if err != nil && c.ending.close == nil {
		c.srv.opts.Logger.Error().Err(err).Str("session_id", string(c.id)).Msg("new resume token not tokenStored")
		c.ending.close = &machine.Close{Code: int(transport.CloseInternal), Reason: "the store does not accept sessions"}
	}
	c.wake() // for what has waited
}

// saveRow stores a change that may be lost in a crash.
func (c *conn) saveRow() {
	row := c.row
	c.append(&store.Write{Ops: []store.Op{&store.PutSession{Row: &row}}, NoSync: true})
}

// saveWritten stores where the connection has ended, if the client does not
// acknowledge: where the session goes on after a restart.
func (c *conn) saveWritten() {
	if n := c.ack.reached.position(); !c.ack.acks && n != c.row.Written {
		c.row.Written = n
		c.saveRow()
	}
}

// replay sets the position that the client asks for (SPEC.md §5.10).
func (c *conn) replay(now time.Time, env *arcp.Envelope, p *arcp.ResumePayload) error {
	c.m.Positioned()
	switch {
	case c.ack.locating, c.cursor.Position() != c.ack.start:
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeFailedPrecondition,
			"resume has to be the first message after session.accepted: the session goes on already"))
	case p.AfterMessageID == "" && p.CheckpointID == "":
		c.reply(now, env.ID, arcp.Ack, arcp.AckPayload{})
		c.release()
	default:
		c.hold()
		c.ack.locating = true
		c.pending.owed.Add(1)
		c.async(func() {
			found := c.locate(p)
			c.settle()
			c.complete(func(now time.Time) { c.located(now, env.ID, found) })
		})
	}
	return nil
}

// located is where a replay begins.
type located struct {
	after  uint64
	ok     bool
	oldest arcp.MessageID
	err    error
}

// locate looks for a message and a checkpoint in what is kept of the session's
// events; the earlier one counts.
func (c *conn) locate(p *arcp.ResumePayload) (at located) {
	row, err := c.srv.opts.Store.Session(context.Background(), c.id)
	if err != nil {
		return located{err: err}
	}
	wanted := []func(*store.Event) bool{}
	if p.AfterMessageID != "" {
		wanted = append(wanted, func(e *store.Event) bool { return e.ID() == p.AfterMessageID })
	}
	if p.CheckpointID != "" {
		wanted = append(wanted, func(e *store.Event) bool { return e.Type == arcp.JobCheckpoint && checkpointID(e) == p.CheckpointID })
	}
	missing := len(wanted)
	at.err = c.srv.opts.Store.SessionEvents(context.Background(), c.id, row.TrimmedTo, func(d store.Delivery) bool {
		if at.oldest == "" {
			at.oldest = d.Event.ID()
		}
		for i, is := range wanted {
			if is != nil && is(d.Event) {
				wanted[i] = nil
				if missing--; !at.ok {
					at.after, at.ok = d.Seq, true
				}
			}
		}
		return missing > 0 && !c.inbox.isClosed()
	})
	if errors.Is(at.err, store.ErrTrimmed) { // a job of these events is not kept any more
		at.err, missing = nil, max(missing, 1)
	}
	at.ok = at.ok && missing == 0
	return at
}

func checkpointID(e *store.Event) string {
	env, err := arcp.Decode(store.AppendFrame(nil, []byte(`{"arcp":"1.1",`), 0, "", e))
	if err != nil {
		return ""
	}
	p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&env)
	if err != nil {
		return ""
	}
	return p.CheckpointID
}

func (c *conn) located(now time.Time, request arcp.MessageID, at located) {
	c.ack.locating = false
	switch {
	case at.err != nil:
		c.srv.opts.Logger.Error().Err(at.err).Str("session_id", string(c.id)).Msg("look for a position")
		c.nack(now, request, unreadable())
	case !at.ok:
		e := arcp.Errorf(arcp.CodeDataLoss, "the message or checkpoint is not among the events that are kept of this session")
		if at.oldest != "" {
			e = e.WithDetails(arcp.LostDetails{OldestMessageID: at.oldest})
		}
		c.nack(now, request, e)
	default:
		c.cursor.Move(max(at.after, c.ack.acked)) // what was acknowledged is not there any more
		c.reply(now, request, arcp.Ack, arcp.AckPayload{})
	}
	c.ack.start = c.cursor.Position()
	c.ack.reached.start(c.ack.start, c.ack.acks, c.ack.acked)
	c.release()
}
