package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// DirectoryAsk is a request for a leased directory.
type DirectoryAsk struct {
	For      time.Duration // see ResourceAsk
	Unlisted bool          // see ResourceAsk
}

// ResourceAsk is a request for a lease on a resource outside of the runtime.
type ResourceAsk struct {
	Provider   string        // of the resource, 1 to 64 bytes; with Type it selects the clean-up handler
	Type       string        // kind in the registry, 1 to 64 bytes
	ExternalID string        // identifier at the provider, 1 to 1024 bytes
	For        time.Duration // whole seconds, at most 30 d; 0: until the end of the job

	DisplayName string   // default the external id
	Metadata    arcp.Raw // object of at most 16 KiB, for people: no secrets
	Unlisted    bool     // the session's registry does not show the resource
	CleanupTool string   // called with {provider, resource_type, external_id, attempt} if there is no handler
}

// ResourceLease is a granted lease. Many goroutines may call its methods, also after
// the end of the job; their changes are durable when they return.
type ResourceLease interface {
	ID() arcp.LeaseID
	Provider() string
	Type() string
	ExternalID() string
	ExpiresAt() time.Time // as of Lease or the last Touch

	// Touch renews the lease for its whole duration. FAILED_PRECONDITION after its end.
	Touch(ctx context.Context) (time.Time, error)

	// Release ends the lease without a clean-up.
	Release(ctx context.Context) error
}
