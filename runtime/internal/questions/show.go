package questions

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
)

// Bounds of an event.
const (
	previewAction  = 2 << 10 // of the action of a question
	previewMessage = 100     // of the action in a message
)

// Summary is an approval as the subscribers of the host see it, without the answer.
type Summary struct {
	ApprovalID string          `json:"approval_id"`
	Kind       approval.Kind   `json:"kind"`
	Status     approval.Status `json:"status"`
	SessionID  arcp.SessionID  `json:"session_id,omitzero"`
	JobID      arcp.JobID      `json:"job_id,omitzero"`
	AgentID    string          `json:"agent_id,omitzero"`
	System     bool            `json:"system_level,omitzero"`
	Action     string          `json:"action"`
	CreatedAt  time.Time       `json:"created_at"`
	ExpiresAt  time.Time       `json:"expires_at"`
	Resolution string          `json:"resolution,omitzero"`
	ResolvedBy string          `json:"resolved_by,omitzero"`
	ResolvedAt time.Time       `json:"resolved_at,omitzero"`
}

// Summarize returns the summary of a question.
func Summarize(q *approval.Row) Summary {
	return Summary{ApprovalID: q.ID, Kind: q.Kind, Status: cmp.Or(q.Status, approval.Cancelled), SessionID: q.Session, JobID: q.Job, AgentID: q.AgentID,
		System: q.System, Action: clip.Text(q.Action, previewAction), CreatedAt: q.CreatedAt.UTC(), ExpiresAt: q.ExpiresAt.UTC(),
		Resolution: q.Resolution, ResolvedBy: q.ResolvedBy, ResolvedAt: q.ResolvedAt}
}

// show emits an event about a question to the host of its principal.
func (b *Broker) show(ctx context.Context, kind string, q *approval.Row) {
	g := Summarize(q)
	b.emit(ctx, q, kind, fmt.Sprintf("%q is %s", clip.Text(q.Action, previewMessage), g.Status), g)
}

// ShowResolveRequested emits the event that another session than the owner wants an approval
// resolved.
func (b *Broker) ShowResolveRequested(ctx context.Context, who *approval.Actor, q *approval.Row, resolution string) {
	b.emit(ctx, q, host.ApprovalResolveRequested, fmt.Sprintf("another session of %s wants %q for %q", who.Principal, resolution, clip.Text(q.Action, previewMessage)), struct {
		Summary
		Wanted    string         `json:"wanted"` // the resolution
		By        string         `json:"requested_by"`
		BySession arcp.SessionID `json:"requesting_session_id,omitzero"`
	}{Summarize(q), resolution, who.Principal, SessionOf(who, q)})
}

func (b *Broker) emit(ctx context.Context, q *approval.Row, kind, message string, payload any) {
	raw, err := arcp.Marshal(payload)
	if err != nil { // texts and times
		panic("questions: approval event: " + err.Error())
	}
	b.opts.Host.EmitIn(ctx, q.Principal, host.Event{Kind: kind, AgentID: q.AgentID, Message: message, Payload: raw})
}

// AuditAnswer records the actor and the question of an answer, but not its value.
func (b *Broker) AuditAnswer(w *approval.Actor, q *approval.Row, a *approval.Answer, err *arcp.Error) {
	decision := "allowed"
	if err != nil {
		decision = "denied"
	}
	ev := b.opts.Audit.Event("answer", w.Principal, w.Session).Str("target", q.ID).Str("kind", string(q.Kind)).Str("job_id", string(q.Job)).
		Str("owner", q.Principal).Str("decision", decision)
	if q.Kind == approval.Gate {
		ev = ev.Str("resolution", a.Resolution)
	}
	if err != nil {
		ev = ev.Str("reason", err.Message)
	}
	ev.Msg("audit")
}

// SessionOf returns the session of an actor if the principal of a question may know it: only
// its own.
func SessionOf(w *approval.Actor, q *approval.Row) arcp.SessionID {
	if w.Principal != q.Principal {
		return ""
	}
	return w.Session
}
