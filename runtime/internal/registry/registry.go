// Package registry answers what is running, and cleans up what was left behind.
//
// An Entry says that a session has something: a sandbox, a sub-agent, a browser.
// It goes with its session. A Lease says that something outside of the runtime has
// an owner for a while, and outlives the session: when its time is over, whoever
// knows how takes the thing away.
//
// What becomes of a lease is decided by functions that take the time and return
// the lease as it is to be (lease.go). Book keeps entries and leases as records of
// the store, each change compared with what was read: of two that change the same
// row one succeeds, and a cleaner that comes back late finds that it has lost.
// Scanner finds what is due and has it cleaned up.
package registry

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of entries and leases (SPEC.md §7.6).
const (
	MaxResourceID  = 256 // bytes
	MaxKind        = 64
	MaxDisplayName = 256
	MaxExternalID  = 1024
	MaxMetadata    = 16 << 10

	MaxEntries  = 1000                // of a session: as many as a person can look through
	MaxLeases   = 10_000              // of a principal that are not released
	MaxDuration = 30 * 24 * time.Hour // of a lease, since it was last touched
)

// Status is what an entry says has become of a resource.
type Status string

// The statuses.
const (
	Active    Status = "active"
	Completed Status = "completed"
	Failed    Status = "failed"
	Released  Status = "released"
)

// Statuses lists the statuses in the order of SPEC.md §7.6.
var Statuses = []Status{Active, Completed, Failed, Released}

// Known reports whether this version knows the status. Another one may have
// stored others.
func (s Status) Known() bool { return slices.Contains(Statuses, s) }

// Entry is a resource of a session.
type Entry struct {
	ResourceID  string         `json:"resource_id"`
	Session     arcp.SessionID `json:"session_id"`
	Principal   string         `json:"principal"`
	Kind        string         `json:"kind"`
	DisplayName string         `json:"display_name,omitzero"`
	Status      Status         `json:"status"`
	Metadata    arcp.Raw       `json:"metadata"` // an object, never nil
	CreatedAt   time.Time      `json:"created_at"`
	UpdatedAt   time.Time      `json:"updated_at"`
}

// check refuses what no entry may be.
func (e *Entry) check() *arcp.Error {
	switch {
	case !e.Status.Known():
		return invalid("status: %q is none of active, completed, failed, released", e.Status)
	case e.Session == "":
		return arcp.Errorf(arcp.CodeFailedPrecondition, "resources are registered in a session; this job has none")
	}
	return firstOf(
		text("resource_id", e.ResourceID, 1, MaxResourceID),
		text("kind", e.Kind, 1, MaxKind),
		text("display_name", e.DisplayName, 0, MaxDisplayName),
		object(e.Metadata))
}

// replaced is an entry that is registered: what there was gives it the time at
// which it was made.
func (e Entry) replaced(now time.Time, old *Entry) Entry {
	e.CreatedAt, e.UpdatedAt = now, now
	if old != nil {
		e.CreatedAt = old.CreatedAt
	}
	return e
}

func text(name, s string, least, most int) *arcp.Error {
	switch {
	case len(s) < least || len(s) > most:
		return invalid("%s must have %d to %d bytes; it has %d", name, least, most, len(s))
	case !utf8.ValidString(s):
		return invalid("%s must be UTF-8", name)
	}
	return nil
}

// object refuses metadata that is none.
func object(raw arcp.Raw) *arcp.Error {
	switch {
	case len(raw) > MaxMetadata:
		return invalid("metadata may have at most %d bytes; it has %d", MaxMetadata, len(raw))
	case !raw.IsValid() || raw.Kind() != '{':
		return invalid("metadata must be a JSON object")
	}
	return nil
}

// NoMetadata is that of what brings none.
var NoMetadata = arcp.Raw("{}")

func metadata(raw arcp.Raw) arcp.Raw {
	if len(raw) == 0 {
		return NoMetadata
	}
	return raw
}

func invalid(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidArgument, format, args...)
}

func firstOf(errs ...*arcp.Error) *arcp.Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// exact is a time as it is stored, and said.
func exact(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
