package runtime

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/resources"
)

// Cleanup registers the Cleaner for the resources of one provider and type. See Config.Cleanups.
type Cleanup struct {
	Provider string  // required
	Type     string  // "": all types of the provider that have no other Cleanup
	Cleaner  Cleaner // required

	// Clients permits clients to lease such resources with registry.lease. If false, only tools
	// can, because the end of a lease removes the resource.
	Clients bool
}

// Cleaner removes resources whose lease has ended.
type Cleaner interface {
	// Clean removes a resource. It may be called concurrently. ctx ends after a minute; a call
	// that has not returned by then has failed.
	//
	// Clean is called again for the same lease after a failure, and after 300 s without a result,
	// for example because the runtime was restarted. It must be idempotent: a resource that does
	// not exist is a success. attempt counts from 1.
	Clean(ctx context.Context, r LeasedResource, attempt int) error
}

// CleanerFunc is a Cleaner that calls the function.
type CleanerFunc func(ctx context.Context, r LeasedResource, attempt int) error

// Clean calls f(ctx, r, attempt).
func (f CleanerFunc) Clean(ctx context.Context, r LeasedResource, attempt int) error {
	return f(ctx, r, attempt)
}

// LeasedResource is a resource and its lease.
type LeasedResource struct {
	LeaseID     arcp.LeaseID
	Provider    string
	Type        string
	ExternalID  string // id of the resource at the provider
	DisplayName string
	Metadata    arcp.Raw // JSON object
	CleanupTool string   // tool to clean up with; "": none

	Principal string         // holder of the lease
	Session   arcp.SessionID // session whose registry shows the lease; "": none
	Job       arcp.JobID     // job that keeps the lease alive; "": none

	Duration  time.Duration // duration of the lease
	CreatedAt time.Time
	TouchedAt time.Time // start of Duration
	ExpiresAt time.Time // end of the lease; after a failed attempt, start of this attempt
	LastError string    // error of the previous attempt; "": none
}

// registrations returns Config.Cleanups for the registry.
func (r *Runtime) registrations() (list []resources.Registration) {
	for _, c := range r.cfg.Cleanups {
		reg := resources.Registration{Provider: c.Provider, Type: c.Type, Clients: c.Clients}
		if c.Cleaner != nil {
			reg.Handler = resources.HandlerFunc(func(ctx context.Context, l resources.Lease, attempt int) error {
				return c.Cleaner.Clean(ctx, leasedResource(&l), attempt)
			})
		}
		list = append(list, reg)
	}
	return list
}

func leasedResource(l *resources.Lease) LeasedResource {
	return LeasedResource{
		LeaseID: l.ID, Provider: l.Provider, Type: l.Type, ExternalID: l.ExternalID,
		DisplayName: l.DisplayName, Metadata: l.Metadata, CleanupTool: l.CleanupTool,
		Principal: l.Principal, Session: l.Session, Job: l.Job,
		Duration: time.Duration(l.Seconds) * time.Second, CreatedAt: l.CreatedAt, TouchedAt: l.TouchedAt, ExpiresAt: l.ExpiresAt,
		LastError: l.LastError,
	}
}
