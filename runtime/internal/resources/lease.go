package resources

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/backoff"
	"github.com/arcpd/arcpd/internal/clip"
)

// State is the state of a lease.
type State = arcp.ResourceLeaseState

// The states.
const (
	StateActive        = arcp.LeaseActive
	StateCleaning      = arcp.LeaseCleaning
	StateReleased      = arcp.LeaseReleased
	StateCleanupFailed = arcp.LeaseCleanupFailed
)

// Times of clean-up.
const (
	// StaleClaim is the time after which the claim of a cleaner ends without a report.
	StaleClaim = 300 * time.Second

	// Bounds of the extension of a due lease that is still named. The upper one limits the
	// delay of the clean-up when it is no longer named.
	minExtension = 5 * time.Second
	maxExtension = 5 * time.Minute

	maxError = 1 << 10 // bytes of last_cleanup_error
)

// cleanupBackoff is the delay of the next attempt to clean up after one that failed.
var cleanupBackoff = backoff.Policy{Min: 30 * time.Second, Max: time.Hour}

// Identity identifies a leased resource.
type Identity struct {
	Provider   string `json:"provider"`
	Type       string `json:"resource_type"`
	ExternalID string `json:"external_id"`
}

// Holder is the holder of a lease.
type Holder struct {
	Principal string         `json:"principal"`
	Session   arcp.SessionID `json:"session_id,omitzero"` // its registry lists the lease
	Job       arcp.JobID     `json:"job_id,omitzero"`     // the lease does not end before the job

	// Authority of the clean-up job. This package does not interpret it.
	Authority arcp.Raw `json:"authority,omitzero"`
}

// LeaseRequest asks for a lease.
type LeaseRequest struct {
	Identity
	Seconds     int64 // lease_duration_seconds; 0: it is due at once
	DisplayName string
	Metadata    arcp.Raw // an object; nil: empty
	Unlisted    bool     // the registry of the session does not list the lease
	CleanupTool string   // is called if there is no handler
}

// Lease is a lease on a resource outside of the runtime.
type Lease struct {
	ID arcp.LeaseID `json:"lease_id"`
	Identity
	Holder
	DisplayName string   `json:"display_name,omitzero"`
	Metadata    arcp.Raw `json:"metadata"`
	CleanupTool string   `json:"cleanup_tool,omitzero"`

	State     State     `json:"state"`
	Seconds   int64     `json:"lease_duration_seconds"`
	CreatedAt time.Time `json:"created_at"`
	TouchedAt time.Time `json:"last_touched_at"`
	ExpiresAt time.Time `json:"lease_expires_at"` // after a failed clean-up: time of the next attempt

	CleanupStartedAt time.Time `json:"cleanup_started_at,omitzero"`
	CleanupAttempts  int       `json:"cleanup_attempts"`
	LastError        string    `json:"last_cleanup_error,omitzero"`
	ReleasedAt       time.Time `json:"released_at,omitzero"`
}

func (r *LeaseRequest) check() *arcp.Error {
	if r.Seconds < 0 || r.Seconds > int64(MaxDuration/time.Second) {
		return invalid("lease_duration_seconds must be 0 to %d", int64(MaxDuration/time.Second))
	}
	return firstError(
		text("provider", r.Provider, 1, MaxKind),
		text("resource_type", r.Type, 1, MaxKind),
		text("external_id", r.ExternalID, 1, MaxExternalID),
		text("display_name", r.DisplayName, 0, MaxDisplayName),
		text("cleanup_tool", r.CleanupTool, 0, arcp.MaxIDLen),
		object(metadata(r.Metadata)))
}

// newLease returns a new lease.
func newLease(now time.Time, id arcp.LeaseID, h Holder, a *LeaseRequest) Lease {
	l := Lease{ID: id, Identity: a.Identity, CreatedAt: now}
	return l.acquired(now, h, a)
}

// acquired returns the lease with the holder and the terms of a request.
func (l Lease) acquired(now time.Time, h Holder, a *LeaseRequest) Lease {
	l.Holder, l.DisplayName, l.Metadata, l.CleanupTool = h, a.DisplayName, metadata(a.Metadata), a.CleanupTool
	l.State, l.Seconds, l.TouchedAt, l.ExpiresAt = StateActive, a.Seconds, now, now.Add(time.Duration(a.Seconds)*time.Second)
	l.CleanupStartedAt, l.CleanupAttempts, l.LastError = time.Time{}, 0, ""
	return l
}

// Renewed returns the lease after another request of its principal. A lease whose clean-up has
// failed is active again.
func (l Lease) Renewed(now time.Time, h Holder, a *LeaseRequest) (Lease, *arcp.Error) {
	switch {
	case l.Principal != h.Principal:
		return l, arcp.Errorf(arcp.CodeAlreadyExists, "somebody else holds a lease on this %s", l.Type)
	case l.State != StateActive && l.State != StateCleanupFailed:
		return l, l.refuseOperation("taken again")
	}
	return l.acquired(now, h, a), nil
}

// Touched returns an active lease with its whole duration from now.
func (l Lease) Touched(now time.Time) (Lease, *arcp.Error) {
	if l.State != StateActive {
		return l, l.refuseOperation("touched")
	}
	l.TouchedAt, l.ExpiresAt = now, now.Add(time.Duration(l.Seconds)*time.Second)
	return l, nil
}

// refuseOperation refuses an operation in the state of the lease.
func (l *Lease) refuseOperation(operation string) *arcp.Error {
	switch l.State {
	case StateCleaning:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the lease is over and is being cleaned up: it cannot be %s", operation)
	case StateCleanupFailed:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the lease is over and its clean-up has failed: take it again instead")
	}
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the lease is %s: it cannot be %s", l.State, operation)
}

// Released returns the released lease, which is not cleaned up. A cleaner that has claimed the
// lease loses its claim. A released lease does not change.
func (l Lease) Released(now time.Time) Lease {
	if l.State != StateReleased {
		l.State, l.ReleasedAt, l.CleanupStartedAt = StateReleased, now, time.Time{}
	}
	return l
}

// Due returns the time from which a cleaner may claim the lease; zero: never.
func (l *Lease) Due() time.Time {
	switch l.State {
	case StateActive, StateCleanupFailed:
		return l.ExpiresAt
	case StateCleaning:
		return l.CleanupStartedAt.Add(StaleClaim)
	}
	return time.Time{}
}

// IsDue reports whether a cleaner may claim the lease.
func (l *Lease) IsDue(now time.Time) bool {
	due := l.Due()
	return !due.IsZero() && !now.Before(due)
}

// extended returns a due lease that is still named. Its end, or the next attempt of its clean-up,
// is later.
func (l Lease) extended(now time.Time) Lease {
	l.ExpiresAt = now.Add(min(max(time.Duration(l.Seconds)*time.Second, minExtension), maxExtension))
	return l
}

// claimed returns a due lease that a cleaner has claimed.
func (l Lease) claimed(now time.Time) Lease {
	l.State, l.CleanupStartedAt = StateCleaning, now
	l.CleanupAttempts++
	return l
}

// hasClaim reports whether the claim of a cleaner is still valid.
func (l *Lease) hasClaim(claim *Lease) bool {
	return l.State == StateCleaning && l.CleanupStartedAt.Equal(claim.CleanupStartedAt) && l.CleanupAttempts == claim.CleanupAttempts
}

// cleaned returns a claimed lease after a successful clean-up.
func (l Lease) cleaned(now time.Time) Lease {
	l.LastError = ""
	return l.Released(now)
}

// failed returns a claimed lease after a failed clean-up, with the time of the next attempt.
func (l Lease) failed(now time.Time, reason string) Lease {
	l.State, l.LastError, l.CleanupStartedAt = StateCleanupFailed, clip.Text(reason, maxError), time.Time{}
	l.ExpiresAt = now.Add(cleanupBackoff.Delay(l.CleanupAttempts))
	return l
}

// entry returns the registry entry of the lease.
func (l *Lease) entry(s Status) Entry {
	name := l.DisplayName
	if name == "" {
		name = clip.Text(l.ExternalID, MaxDisplayName)
	}
	return Entry{
		ResourceID:  string(l.ID),
		Session:     l.Session,
		Principal:   l.Principal,
		Kind:        l.Type,
		DisplayName: name,
		Status:      s,
		Metadata:    metadata(l.Metadata),
	}
}
