package arcp

import "time"

// Names of events that the runtime emits on its own account, as event.emit, and that
// clients act on.
const (
	// EventCaughtUp tells a subscription that its history is complete: live events follow (§5.9).
	EventCaughtUp = "subscription.backfill_complete"

	EventGap               = "subscription.gap"   // the data is a FeedGap
	EventApprovalRequested = "approval.requested" // the data is an ApprovalRequested
	EventToolsChanged      = "tools.changed"      // of the session's catalogue (§7.5)
	EventHost              = "host.event"         // of agents, approvals and resources (§7.7)
)

// FeedGap describes the events left out of a subscription for a slow consumer (§5.9).
type FeedGap struct {
	Skipped uint64    `json:"skipped"` // events, at least 1
	FirstID MessageID `json:"first_id"`
	LastID  MessageID `json:"last_id"`
}

// ApprovalRequested tells the followers of a job that another session must approve it (§5.14).
type ApprovalRequested struct {
	ApprovalID string    `json:"approval_id"`
	Action     string    `json:"action"`
	ExpiresAt  time.Time `json:"expires_at"`
}
