package engine

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/audit"
)

// strictCancel is the reason of refusals to other sessions of a job's principal.
const strictCancel = "strict_cancel"

// auditor writes the audit records of the engine.
type auditor struct{ audit.Log }

func (c *Config) audit() auditor { return auditor{audit.New(c.Logger)} }

// denied audits a refusal; target is a job or a tool.
func (a auditor) denied(action, actor string, session arcp.SessionID, target, reason string) {
	a.Event(action, actor, session).Str("target", target).Str("decision", "denied").Str("reason", reason).Msg("audit")
}

// handedOver audits that a session hands a job over.
func (a auditor) handedOver(r *run, h *Handoff) {
	a.Event("handoff", h.Principal, h.Session).Str("job_id", string(r.row.ID)).Str("target", string(h.To)).
		Str("decision", "allowed").Msg("audit")
}

// cancelled audits that an admin ends a job of another principal.
func (a auditor) cancelled(r *run, c *cancelJob) {
	a.Event("cancel", c.Principal, c.Session).Str("job_id", string(c.Job)).Str("owner", r.row.Principal).
		Str("decision", "allowed").Msg("audit")
}
