package conn

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session"
)

// sessionConn is the view of a connection for its session. Any goroutine may call its methods.
type sessionConn conn

var _ session.Conn = (*sessionConn)(nil)

func (s *sessionConn) conn() *conn { return (*conn)(s) }

func (s *sessionConn) Position() uint64 { return s.conn().ack.position.load() }

// Sync returns when the loop has handled the earlier acknowledgements, and the writer has counted
// the frames that it has written. It waits until ctx ends, then 50 ms at most. The loop must not
// call it.
func (s *sessionConn) Sync(ctx context.Context) {
	handled := make(barrier)
	if s.inbox.post(handled) {
		select {
		case <-handled:
		case <-ctx.Done():
		}
	}
	s.output.outbox.awaitIdle()
}

func (s *sessionConn) Send(request arcp.MessageID, t arcp.Type, payload any) {
	s.conn().inbox.post(outgoing{request, t, payload})
}

func (s *sessionConn) ToolsChanged() { s.conn().inbox.post(catalogueChanged{}) }

func (s *sessionConn) Overflow(seq uint64) {
	s.conn().inbox.post(backlogOverflow{seq})
}

func (s *sessionConn) Evict(e session.Eviction) { s.conn().inbox.post(eviction(e)) }

func (s *sessionConn) Supersede() { s.scheduler.wake() }

func (s *sessionConn) Transport() (kind, remote string) {
	info := s.conn().tc.Info()
	return info.Kind, info.RemoteAddr
}
