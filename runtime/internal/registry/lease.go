package registry

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/backoff"
	"github.com/arcpd/arcpd/internal/clip"
)

// State is where a lease is.
type State = arcp.ResourceLeaseState

// The states.
const (
	Held          = arcp.LeaseActive
	Cleaning      = arcp.LeaseCleaning
	Gone          = arcp.LeaseReleased
	CleanupFailed = arcp.LeaseCleanupFailed
)

// Times of clean-up.
const (
	// StaleClaim is after how long a cleaner that has not reported is given up.
	StaleClaim = 300 * time.Second

	// A lease that somebody still names is extended by its duration, within these:
	// what is named no longer is not kept for long because of it.
	extendLeast = 5 * time.Second
	extendMost  = 5 * time.Minute

	maxError = 1 << 10 // bytes of last_cleanup_error
)

// cleanupBackoff is the delay of the next attempt to clean up after one that failed.
var cleanupBackoff = backoff.Policy{Min: 30 * time.Second, Max: time.Hour}

// Identity is what a lease is on.
type Identity struct {
	Provider   string `json:"provider"`
	Type       string `json:"resource_type"`
	ExternalID string `json:"external_id"`
}

// Holder is in whose name a lease is taken.
type Holder struct {
	Principal string         `json:"principal"`
	Session   arcp.SessionID `json:"session_id,omitzero"` // whose registry shows it
	Job       arcp.JobID     `json:"job_id,omitzero"`     // while it lives the lease does not end

	// Authority is what the job may do that cleans up: opaque here.
	Authority arcp.Raw `json:"authority,omitzero"`
}

// Ask is a lease that somebody wants.
type Ask struct {
	Identity
	Seconds     int64 // lease_duration_seconds; 0: it may be cleaned up at once
	DisplayName string
	Metadata    arcp.Raw // an object; nil: empty
	Unlisted    bool     // the registry of the session does not show it
	CleanupTool string   // called if there is no handler
}

// Lease is a lease on something outside of the runtime.
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
	ExpiresAt time.Time `json:"lease_expires_at"` // of one whose clean-up has failed: when it is tried again

	CleanupStartedAt time.Time `json:"cleanup_started_at,omitzero"`
	CleanupAttempts  int       `json:"cleanup_attempts"`
	LastError        string    `json:"last_cleanup_error,omitzero"`
	ReleasedAt       time.Time `json:"released_at,omitzero"`
}

func (a *Ask) check() *arcp.Error {
	if a.Seconds < 0 || a.Seconds > int64(MaxDuration/time.Second) {
		return invalid("lease_duration_seconds must be 0 to %d", int64(MaxDuration/time.Second))
	}
	return firstOf(
		text("provider", a.Provider, 1, MaxKind),
		text("resource_type", a.Type, 1, MaxKind),
		text("external_id", a.ExternalID, 1, MaxExternalID),
		text("display_name", a.DisplayName, 0, MaxDisplayName),
		text("cleanup_tool", a.CleanupTool, 0, arcp.MaxIDLen),
		object(metadata(a.Metadata)))
}

// newLease is a lease that begins.
func newLease(now time.Time, id arcp.LeaseID, h Holder, a *Ask) Lease {
	l := Lease{ID: id, Identity: a.Identity, CreatedAt: now}
	return l.taken(now, h, a)
}

// taken is the lease as its holder wants it from now on.
func (l Lease) taken(now time.Time, h Holder, a *Ask) Lease {
	l.Holder, l.DisplayName, l.Metadata, l.CleanupTool = h, a.DisplayName, metadata(a.Metadata), a.CleanupTool
	l.State, l.Seconds, l.TouchedAt, l.ExpiresAt = Held, a.Seconds, now, now.Add(time.Duration(a.Seconds)*time.Second)
	l.CleanupStartedAt, l.CleanupAttempts, l.LastError = time.Time{}, 0, ""
	return l
}

// Refreshed is a lease that is taken again by its principal: also one whose
// clean-up has failed, for its thing is said to be wanted.
func (l Lease) Refreshed(now time.Time, h Holder, a *Ask) (Lease, *arcp.Error) {
	switch {
	case l.Principal != h.Principal:
		return l, arcp.Errorf(arcp.CodeAlreadyExists, "somebody else holds a lease on this %s", l.Type)
	case l.State != Held && l.State != CleanupFailed:
		return l, l.cannot("taken again")
	}
	return l.taken(now, h, a), nil
}

// Touched is a held lease that lasts for its whole duration again.
func (l Lease) Touched(now time.Time) (Lease, *arcp.Error) {
	if l.State != Held {
		return l, l.cannot("touched")
	}
	l.TouchedAt, l.ExpiresAt = now, now.Add(time.Duration(l.Seconds)*time.Second)
	return l, nil
}

func (l *Lease) cannot(be string) *arcp.Error {
	switch l.State {
	case Cleaning:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the lease is over and is being cleaned up: it cannot be %s", be)
	case CleanupFailed:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the lease is over and its clean-up has failed: take it again instead")
	}
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the lease is %s: it cannot be %s", l.State, be)
}

// LetGo is a lease whose owner says that there is nothing to clean up. Whoever
// cleans up meanwhile loses. One that is released stays as it is.
func (l Lease) LetGo(now time.Time) Lease {
	if l.State != Gone {
		l.State, l.ReleasedAt, l.CleanupStartedAt = Gone, now, time.Time{}
	}
	return l
}

// Due is when the lease may be claimed by a cleaner; zero: never.
func (l *Lease) Due() time.Time {
	switch l.State {
	case Held, CleanupFailed:
		return l.ExpiresAt
	case Cleaning:
		return l.CleanupStartedAt.Add(StaleClaim)
	}
	return time.Time{}
}

// IsDue reports whether a cleaner may claim the lease.
func (l *Lease) IsDue(now time.Time) bool {
	due := l.Due()
	return !due.IsZero() && !now.Before(due)
}

// extended is a lease that is due and still named by somebody: it ends later, or its
// clean-up, which has failed, is tried again later.
func (l Lease) extended(now time.Time) Lease {
	l.ExpiresAt = now.Add(min(max(time.Duration(l.Seconds)*time.Second, extendLeast), extendMost))
	return l
}

// claimed is a lease that is due and that a cleaner has taken on.
func (l Lease) claimed(now time.Time) Lease {
	l.State, l.CleanupStartedAt = Cleaning, now
	l.CleanupAttempts++
	return l
}

// is reports whether the lease is as a cleaner has claimed it.
func (l *Lease) is(claim *Lease) bool {
	return l.State == Cleaning && l.CleanupStartedAt.Equal(claim.CleanupStartedAt) && l.CleanupAttempts == claim.CleanupAttempts
}

// cleaned is a claimed lease whose thing is gone.
func (l Lease) cleaned(now time.Time) Lease {
	l.LastError = ""
	return l.LetGo(now)
}

// failed is a claimed lease whose thing could not be taken away. It is tried
// again later, and later each time.
func (l Lease) failed(now time.Time, why string) Lease {
	l.State, l.LastError, l.CleanupStartedAt = CleanupFailed, clip.Text(why, maxError), time.Time{}
	l.ExpiresAt = now.Add(cleanupBackoff.Delay(l.CleanupAttempts))
	return l
}

// entry is what the registry of the lease's session says of it.
func (l *Lease) entry(s Status) Entry {
	name := l.DisplayName
	if name == "" {
		name = clip.Text(l.ExternalID, MaxDisplayName)
	}
	return Entry{ResourceID: string(l.ID), Session: l.Session, Principal: l.Principal, Kind: l.Type, DisplayName: name, Status: s, Metadata: metadata(l.Metadata)}
}
