package runtime

import (
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// audit begins a record of something that a principal does, by one of its sessions
// if there is one, or is denied. It is logged whatever the level.
func (r *Runtime) audit(action, actor string, session arcp.SessionID) *zerolog.Event {
	ev := r.cfg.Log.Log().Str(zerolog.LevelFieldName, "info").Str("logger", "audit").Str("action", action).Str("actor", actor)
	if session != "" {
		ev = ev.Str("session_id", string(session))
	}
	return ev
}

// audit begins a record of something that is done with what is not the session's
// own.
func (c *conn) audit(action string) *zerolog.Event {
	return c.log.Log().Str(zerolog.LevelFieldName, "info").Str("logger", "audit").Str("action", action).Str("actor", c.identity.Principal).Str("session_id", string(c.id))
}

// auditDecision records that somebody did something, or was refused it.
func (r *Runtime) auditDecision(action string, w *approval.Who, target string, err *arcp.Error) {
	ev := r.audit(action, w.Principal, w.Session).Str("target", target)
	if err == nil {
		ev.Str("decision", "allowed").Msg("audit")
		return
	}
	ev.Str("decision", "denied").Str("reason", err.Message).Msg("audit")
}
