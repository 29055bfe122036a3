package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// DirectoryAsk is a lease on a directory that a tool needs.
type DirectoryAsk struct {
	For      time.Duration // as of ResourceAsk
	Unlisted bool          // as of ResourceAsk
}

// ResourceAsk is a lease that a tool needs.
type ResourceAsk struct {
	Provider   string        // who has the thing, 1 to 64 bytes; with Type it finds the clean-up handler
	Type       string        // what it is, 1 to 64 bytes; the kind under which the registry shows it
	ExternalID string        // which it is, 1 to 1024 bytes
	For        time.Duration // whole seconds, at most 30 d; 0: until the job has ended

	DisplayName string   // default the external id
	Metadata    arcp.Raw // an object of at most 16 KiB, for people: no secrets
	Unlisted    bool     // the session's registry does not show it: it is of no concern outside the call
	CleanupTool string   // called with {provider, resource_type, external_id, attempt} if there is no handler
}

// ResourceLease is a lease that was taken. Its methods may be called by many
// goroutines, also after the job has ended; what they do is durable when they
// return.
type ResourceLease interface {
	ID() arcp.LeaseID
	Provider() string
	Type() string
	ExternalID() string
	ExpiresAt() time.Time // when it was taken or touched last

	// Touch has the lease last for its whole duration again. FAILED_PRECONDITION if it
	// is over.
	Touch(ctx context.Context) (time.Time, error)

	// Release ends the lease: there is nothing to clean up any more.
	Release(ctx context.Context) error
}
