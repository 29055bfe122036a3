package arcp

import "time"

// Names of events that the runtime itself emits as event.emit and that clients handle.
const (
	// EventCaughtUp ends the backfill of a subscription: live events follow (§5.9).
	EventCaughtUp = "subscription.backfill_complete"

	EventGap               = "subscription.gap"   // data is a FeedGap
	EventApprovalRequested = "approval.requested" // data is an ApprovalRequested
	EventToolsChanged      = "tools.changed"      // the tool catalog of the session has changed (§7.5)
	EventHost              = "host.event"         // an agent, approval or resource has changed (§7.7)
	EventHostSnapshot      = "host.snapshot"      // agents, pending approvals and past events (§7.7)
	EventWaiting           = "waiting"            // data is a JobWaiting
)

// FeedGap describes events that a subscription skipped for a slow consumer (§5.9).
type FeedGap struct {
	Skipped uint64    `json:"skipped"` // number of skipped events, at least 1
	FirstID MessageID `json:"first_id"`
	LastID  MessageID `json:"last_id"`
}

// ApprovalRequested informs the followers of a job that another session must approve an action
// (§5.14).
type ApprovalRequested struct {
	ApprovalID string    `json:"approval_id"`
	Action     string    `json:"action"`
	ExpiresAt  time.Time `json:"expires_at"`
}
