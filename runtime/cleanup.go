package runtime

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/registry"
)

// Cleanup registers the Cleaner of one provider and resource type. See Config.Cleanups.
type Cleanup struct {
	Provider string  // required
	Type     string  // "": all types of the provider without a Cleaner of their own
	Cleaner  Cleaner // required

	// Clients permits clients to lease such resources. Without it only tools can: a lease
	// on a process or a file has it removed.
	Clients bool
}

// Cleaner removes leased resources of one kind. Goroutines may call Clean at the same time. Clean
// is called again for the same lease after a failure, or when 300 s have passed without a report.
// So it must be idempotent: a resource that is gone already is a success. attempt counts from 1.
// ctx has a time limit of a minute. A Cleaner that does not return in time has failed.
type Cleaner interface {
	Clean(ctx context.Context, r LeasedResource, attempt int) error
}

// CleanerFunc is a function as a Cleaner.
type CleanerFunc func(ctx context.Context, r LeasedResource, attempt int) error

// Clean calls f.
func (f CleanerFunc) Clean(ctx context.Context, r LeasedResource, attempt int) error {
	return f(ctx, r, attempt)
}

// LeasedResource is a resource with its lease, as a Cleaner receives it.
type LeasedResource struct {
	LeaseID     arcp.LeaseID
	Provider    string
	Type        string
	ExternalID  string // id at the provider
	DisplayName string
	Metadata    arcp.Raw // an object
	CleanupTool string   // "": the lease names none

	Principal string         // holder of the lease
	Session   arcp.SessionID // its registry shows the lease; "": none
	Job       arcp.JobID     // the lease does not end before the job; "": none

	Duration  time.Duration // of the lease
	CreatedAt time.Time
	TouchedAt time.Time // begin of Duration
	ExpiresAt time.Time // end of the lease; after a failed clean-up: begin of this attempt
	LastError string    // of the attempt before; "": none
}

// registrations returns Config.Cleanups for the registry.
func (r *Runtime) registrations() (list []registry.Registration) {
	for _, c := range r.cfg.Cleanups {
		reg := registry.Registration{Provider: c.Provider, Type: c.Type, Clients: c.Clients}
		if c.Cleaner != nil {
			reg.Handler = registry.HandlerFunc(func(ctx context.Context, l registry.Lease, attempt int) error {
				return c.Cleaner.Clean(ctx, leasedResource(&l), attempt)
			})
		}
		list = append(list, reg)
	}
	return list
}

func leasedResource(l *registry.Lease) LeasedResource {
	return LeasedResource{
		LeaseID: l.ID, Provider: l.Provider, Type: l.Type, ExternalID: l.ExternalID,
		DisplayName: l.DisplayName, Metadata: l.Metadata, CleanupTool: l.CleanupTool,
		Principal: l.Principal, Session: l.Session, Job: l.Job,
		Duration: time.Duration(l.Seconds) * time.Second, CreatedAt: l.CreatedAt, TouchedAt: l.TouchedAt, ExpiresAt: l.ExpiresAt,
		LastError: l.LastError,
	}
}
