package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// DirectoryRequest is a request for a lease on a directory.
type DirectoryRequest struct {
	For      time.Duration // see ResourceRequest
	Unlisted bool          // see ResourceRequest
}

// ResourceRequest is a request for a lease on an external resource.
type ResourceRequest struct {
	Provider   string        // system that owns the resource, 1 to 64 bytes; Provider and Type select the clean-up handler
	Type       string        // 1 to 64 bytes; the session's registry shows it as the kind
	ExternalID string        // id at the provider, 1 to 1024 bytes
	For        time.Duration // whole seconds, at most 30 d; 0: until the job ends

	DisplayName string   // default: the external id
	Metadata    arcp.Raw // an object of at most 16 KiB without secrets
	Unlisted    bool     // hides the resource from the session's registry
	CleanupTool string   // tool that cleans up without a handler; arguments {provider, resource_type, external_id, attempt}
}

// ResourceLease is a lease on an external resource. Many goroutines may call its methods, also
// after the end of the job. A change is durable when its method returns.
type ResourceLease interface {
	ID() arcp.LeaseID
	Provider() string
	Type() string
	ExternalID() string
	ExpiresAt() time.Time // as of the last Touch

	// Touch renews the lease for its whole duration and returns its new end. The error is
	// FAILED_PRECONDITION after the end of the lease.
	Touch(ctx context.Context) (time.Time, error)

	// Release ends the lease without a clean-up: the tool has removed the resource.
	Release(ctx context.Context) error
}
