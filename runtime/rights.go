package runtime

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/actor"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// rights returns what a principal may do now that had a stored identity. It refuses a principal that is not
// configured any more.
func (r *Runtime) rights(stored arcp.Raw) (engine.Rights, *arcp.Error) {
	identity, err := actor.Principal(r.cfg.Auth, stored)
	if err == nil && !actor.MayCommand(&identity) {
		err = arcp.Errorf(arcp.CodePermissionDenied, "its role may not submit jobs")
	}
	if err != nil {
		return engine.Rights{}, arcp.Errorf(arcp.CodePermissionDenied, "the principal may not submit jobs any more: %v", err)
	}
	rights := engine.Rights{Trust: identity.Trust, MaxJobs: identity.Limits.Jobs}
	for _, role := range identity.Roles {
		rights.Roles = append(rights.Roles, string(role))
	}
	if len(identity.Lease) == 0 {
		return rights, nil
	}
	if rights.Lease, err = lease.Decode(identity.Lease); err != nil {
		return engine.Rights{}, arcp.Errorf(arcp.CodePermissionDenied, "the lease of the principal cannot be read: %v", err)
	}
	return rights, nil
}
