package conn

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session"
)

// sessionConn is a connection as its session sees it.
type sessionConn conn

var _ session.Conn = (*sessionConn)(nil)

func (s *sessionConn) conn() *conn { return (*conn)(s) }

func (s *sessionConn) Position() uint64 { return s.conn().ack.reached.position() }

func (s *sessionConn) Sync(ctx context.Context) { s.conn().catchUp(ctx) }

func (s *sessionConn) Send(request arcp.MessageID, t arcp.Type, payload any) {
	c := s.conn()
	c.post(func(now time.Time) { c.reply(now, request, t, payload) })
}

func (s *sessionConn) ToolsChanged() { s.conn().post(s.conn().staleTools) }

func (s *sessionConn) Overflow(seq uint64) {
	c := s.conn()
	c.post(func(now time.Time) { c.overflow(now, seq) })
}

func (s *sessionConn) Evict(code arcp.Code, reason string) {
	c := s.conn()
	c.post(func(time.Time) { c.m.Evict(code, reason) })
}

func (s *sessionConn) Supersede() { s.conn().wake() }

func (s *sessionConn) Transport() (kind, remote string) {
	info := s.conn().tc.Info()
	return info.Kind, info.RemoteAddr
}
