// Package audit writes the audit log. A record names a principal and the action it performed,
// or attempted, on an object of another principal. The records are lines of the log with
// "logger":"audit".
package audit

import (
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
)

// Log writes audit records. Its methods may be called by any goroutine.
type Log struct{ out zerolog.Logger }

// New returns a log that writes to out, whatever the level of out is.
func New(out zerolog.Logger) Log { return Log{out} }

// Event begins a record of an action of a principal, by one of its sessions if session is
// not empty. The caller adds the decision and ends the record with Msg("audit").
func (l Log) Event(action, actor string, session arcp.SessionID) *zerolog.Event {
	ev := l.out.Log().Str(zerolog.LevelFieldName, "info").Str("logger", "audit").Str("action", action).Str("actor", actor)
	if session != "" {
		ev = ev.Str("session_id", string(session))
	}
	return ev
}

// Decision records that an action was allowed, or with refused why it was denied.
func (l Log) Decision(action, actor string, session arcp.SessionID, target string, refused *arcp.Error) {
	ev := l.Event(action, actor, session).Str("target", target)
	if refused == nil {
		ev.Str("decision", "allowed").Msg("audit")
		return
	}
	ev.Str("decision", "denied").Str("reason", refused.Message).Msg("audit")
}
