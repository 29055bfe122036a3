package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Leaser takes leases on what a tool makes outside of the runtime, so that it is
// taken away when nobody needs it any more: also when the tool never comes to it,
// its session ends, or the runtime is killed.
type Leaser interface {
	// Lease takes a lease on a thing, in the name of the job's principal and session,
	// or refreshes the one there is on the same provider, type and external id. It is
	// durable when Lease returns. While the job lives the lease does not end; then it
	// lasts for its duration, and longer while another job or an approval names it.
	//
	// To lose nothing, take the lease before the thing is made, if its name can be
	// known by then.
	Lease(ctx context.Context, a ResourceAsk) (ResourceLease, error)

	// LeaseDirectory makes a directory for the job, which is there when it returns,
	// and is removed with all it has when the lease is over. FAILED_PRECONDITION if the
	// runtime has no place for them.
	LeaseDirectory(ctx context.Context, a DirectoryAsk) (path string, l ResourceLease, err error)
}

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
