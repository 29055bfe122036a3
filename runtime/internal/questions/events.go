package questions

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// Bounds of the text of a question's action in an event, in bytes.
const (
	maxSummaryAction = 2 << 10
	maxMessageAction = 100
)

// Summary is the payload of the events about a question. It has no answer.
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
func Summarize(row *approval.Row) Summary {
	return Summary{
		ApprovalID: row.ID,
		Kind:       row.Kind,
		Status:     cmp.Or(row.Status, approval.Cancelled),
		SessionID:  row.Session,
		JobID:      row.Job,
		AgentID:    row.AgentID,
		System:     row.System,
		Action:     clip.Text(row.Subject(), maxSummaryAction),
		CreatedAt:  row.CreatedAt.UTC(),
		ExpiresAt:  row.ExpiresAt.UTC(),
		Resolution: row.Resolution,
		ResolvedBy: row.ResolvedBy,
		ResolvedAt: row.ResolvedAt,
	}
}

// emitChange emits an event about a new or closed question to the host of its principal.
func (b *Broker) emitChange(ctx context.Context, kind string, q *approval.Row) {
	b.emit(ctx, q, kind, fmt.Sprintf("%q is %s", clip.Text(q.Subject(), maxMessageAction), describeStatus(q)), Summarize(q))
}

// outcomes are the resolutions that the runtime makes, as texts.
var outcomes = map[string]string{approval.Approve: "approved", approval.Deny: "denied", approval.Granted: "granted",
	approval.Answered: "answered", approval.ByDefault: "answered with its default"}

// describeStatus returns the status of a question, and for a resolved one its resolution and the principal
// that resolved it, which the payload of the event has, too.
func describeStatus(q *approval.Row) string {
	if q.Status != approval.Resolved {
		return string(cmp.Or(q.Status, approval.Cancelled))
	}
	outcome, ok := outcomes[q.Resolution]
	switch {
	case !ok:
		outcome = fmt.Sprintf("resolved to %q", clip.Text(q.Resolution, maxMessageAction))
	case q.Resolution == approval.ByDefault:
		return outcome
	}
	if q.ResolvedBy == "" {
		return outcome
	}
	return outcome + " by " + q.ResolvedBy
}

// EmitResolveRequested emits the event that a session other than the owner requests the resolution of
// an approval.
func (b *Broker) EmitResolveRequested(ctx context.Context, actor *approval.Actor, q *approval.Row, resolution string) {
	message := fmt.Sprintf("another session of %s wants %q for %q", actor.Principal, resolution, clip.Text(q.Subject(), maxMessageAction))
	b.emit(ctx, q, agents.ApprovalResolveRequested, message, struct {
		Summary
		Wanted    string         `json:"wanted"` // the resolution
		By        string         `json:"requested_by"`
		BySession arcp.SessionID `json:"requesting_session_id,omitzero"`
	}{Summarize(q), resolution, actor.Principal, SessionOf(actor, q)})
}

func (b *Broker) emit(ctx context.Context, q *approval.Row, kind, message string, payload any) {
	raw, err := arcp.Marshal(payload)
	if err != nil { // texts and times
		panic("questions: approval event: " + err.Error())
	}
	b.opts.Agents.EmitIn(ctx, q.Principal, agents.Event{Kind: kind, AgentID: q.AgentID, Message: message, Payload: raw})
}

// AuditAnswer records the actor and the question of an answer, but not its value.
func (b *Broker) AuditAnswer(actor *approval.Actor, q *approval.Row, answer *approval.Answer, err *arcp.Error) {
	decision := "allowed"
	if err != nil {
		decision = "denied"
	}
	ev := b.opts.Audit.Event("answer", actor.Principal, actor.Session).Str("target", q.ID).Str("kind", string(q.Kind)).
		Str("job_id", string(q.Job)).Str("owner", q.Principal).Str("decision", decision)
	if q.Kind == approval.Gate {
		ev = ev.Str("resolution", answer.Resolution)
	}
	if err != nil {
		ev = ev.Str("reason", err.Message)
	}
	ev.Msg("audit")
}

// SessionOf returns the session of an actor for the principal of a question. It is empty if the actor
// is another principal.
func SessionOf(actor *approval.Actor, q *approval.Row) arcp.SessionID {
	if actor.Principal != q.Principal {
		return ""
	}
	return actor.Session
}
