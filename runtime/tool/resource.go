package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// DirectoryAsk is a request for a lease on a directory.
type DirectoryAsk struct {
	For      time.Duration // see ResourceAsk
	Unlisted bool          // see ResourceAsk
}

// ResourceAsk is a request for a lease on an external resource.
type ResourceAsk struct {
	Provider   string        // owner of the resource, 1 to 64 bytes; with Type the key of the clean-up handler
	Type       string        // 1 to 64 bytes; the kind in the session's registry
	ExternalID string        // id at the provider, 1 to 1024 bytes
	For        time.Duration // whole seconds, at most 30 d; 0: until the job ends

	DisplayName string   // default: the external id
	Metadata    arcp.Raw // an object of at most 16 KiB without secrets
	Unlisted    bool     // the session's registry does not show the resource
	CleanupTool string   // called with {provider, resource_type, external_id, attempt} if there is no handler
}

// ResourceLease is a lease on an external resource. Many goroutines may call its methods,
// also after the end of the job. Their effects are durable when they return.
type ResourceLease interface {
	ID() arcp.LeaseID
	Provider() string
	Type() string
	ExternalID() string
	ExpiresAt() time.Time // as of the last Touch

	// Touch renews the lease for its whole duration. The error is FAILED_PRECONDITION if it
	// has ended.
	Touch(ctx context.Context) (time.Time, error)

	// Release ends the lease of a resource that needs no clean-up any more.
	Release(ctx context.Context) error
}
