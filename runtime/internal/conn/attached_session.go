package conn

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/store"
)

// attachedSession is the session of a connection.
type attachedSession struct {
	c                *conn
	*session.Session               // nil before session.accepted
	row              store.Session // as this connection last stored it
}

// negotiated reports whether the session negotiated a feature. It differs from machine.Has while
// the connection attaches to an existing session.
func (s *attachedSession) negotiated(f arcp.Feature) bool {
	return slices.Contains(s.row.Negotiated, f)
}

// attach sets the row of the session. The client may have acknowledged after the row was read.
func (s *attachedSession) attach(row store.Session) {
	s.row = row
	s.row.Acks = row.Acks || s.Acks()
	s.Replay.SetTrimmed(row.TrimmedTo)
}

// renew sets a new resume token and a new identity in the row, and returns the row to store. The
// previous token stays in it.
func (s *attachedSession) renew(token auth.Secret, id *auth.Identity) store.Session {
	s.row.PrevHashes, s.row.TokenHash = [][32]byte{s.row.TokenHash}, auth.HashToken(token)
	s.row.Identity = encodeIdentity(id)
	return s.row
}

// saveRow stores the row of the session. The change may be lost in a crash.
func (s *attachedSession) saveRow() {
	row := s.row
	s.c.append(&store.Write{Ops: []store.Op{&store.PutSession{Row: &row}}, NoSync: true})
}

// loop returns the view of the loop for the cursors of the connection.
func (s *attachedSession) loop() eventlog.Loop {
	return eventlog.Loop{Wake: s.c.scheduler.wake, Go: s.c.tasks.background, UsesForms: s.c.dialect.usesForms()}
}

// sessionConn is the view of a connection for its session. Any goroutine may call its methods.
type sessionConn conn

var _ session.Conn = (*sessionConn)(nil)

func (s *sessionConn) conn() *conn { return (*conn)(s) }

func (s *sessionConn) Position() uint64 { return s.conn().ack.position.load() }

// writerTimeout bounds how long Sync waits for the writer, which may wait for a client that does not
// read.
const writerTimeout = 50 * time.Millisecond

// Sync returns when the loop has handled the earlier acknowledgements and, at most writerTimeout
// later, the writer has counted the frames that it has written: the client may have frames before
// their write returns. It returns early when ctx ends. The loop must not call it.
func (s *sessionConn) Sync(ctx context.Context) {
	handled := make(barrier)
	if s.inbox.post(handled) {
		select {
		case <-handled:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	s.output.outbox.drain(ctx)
}

func (s *sessionConn) Send(request arcp.MessageID, t arcp.Type, payload any) {
	s.conn().inbox.post(outgoing{request, t, payload})
}

func (s *sessionConn) ToolsChanged() { s.conn().inbox.post(catalogChanged{}) }

func (s *sessionConn) Overflow(seq uint64) {
	s.conn().inbox.post(backlogOverflow{seq})
}

func (s *sessionConn) Evict(e session.Eviction) { s.conn().inbox.post(eviction(e)) }

func (s *sessionConn) Supersede() { s.scheduler.wake() }

func (s *sessionConn) Transport() (kind, remote string) {
	info := s.conn().tc.Info()
	return info.Kind, info.RemoteAddr
}
