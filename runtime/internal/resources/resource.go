// Package resources stores the resources of sessions and the leases on external resources, and
// cleans up leased resources.
//
// An Entry describes a resource of a session: a sandbox, a sub-agent, a browser. It ends with
// its session. A Lease gives a resource outside of the runtime an owner for a time, and outlives
// the session. When the lease ends, a handler removes the resource.
//
// The methods of Lease are pure: they return the next state (lease.go). A Store keeps entries
// and leases as records. Of two concurrent changes of a row one fails with a conflict, so a
// cleaner that reports late finds that its claim is no longer valid. A Scanner finds due leases
// and calls the handlers.
package resources

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

	MaxEntries  = 1000                // of a session, so that a person can read the list
	MaxLeases   = 10_000              // of a principal that are not released
	MaxDuration = 30 * 24 * time.Hour // of a lease, since it was last touched
)

// Status is the status of a resource.
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

// Known reports whether this version knows the status. Another version may have stored others.
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

// check refuses an entry that is not valid.
func (e *Entry) check() *arcp.Error {
	switch {
	case !e.Status.Known():
		return invalid("status: %q is none of active, completed, failed, released", e.Status)
	case e.Session == "":
		return arcp.Errorf(arcp.CodeFailedPrecondition, "resources are registered in a session; this job has none")
	}
	return firstError(
		text("resource_id", e.ResourceID, 1, MaxResourceID),
		text("kind", e.Kind, 1, MaxKind),
		text("display_name", e.DisplayName, 0, MaxDisplayName),
		object(e.Metadata))
}

// text refuses a text with fewer than min or more than max bytes, or that is not UTF-8.
func text(name, s string, min, max int) *arcp.Error {
	switch {
	case len(s) < min || len(s) > max:
		return invalid("%s must have %d to %d bytes; it has %d", name, min, max, len(s))
	case !utf8.ValidString(s):
		return invalid("%s must be UTF-8", name)
	}
	return nil
}

// object refuses metadata that is not an object, or too large.
func object(raw arcp.Raw) *arcp.Error {
	switch {
	case len(raw) > MaxMetadata:
		return invalid("metadata may have at most %d bytes; it has %d", MaxMetadata, len(raw))
	case !raw.IsValid() || raw.Kind() != '{':
		return invalid("metadata must be a JSON object")
	}
	return nil
}

// NoMetadata is the empty metadata object.
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

func firstError(errs ...*arcp.Error) *arcp.Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// roundTime returns a time with the precision of stored and encoded times.
func roundTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
