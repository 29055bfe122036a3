package authority

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

// Party is a session and its principal.
type Party struct {
	Principal string
	Session   arcp.SessionID
}

// Grant is a request to add a permission lease to the job.
type Grant struct {
	ID         arcp.LeaseID
	Permission lease.Permission
	Duration   time.Duration
	By         Party          // grants the permission
	Holder     arcp.SessionID // gets the lease; empty: the job's session
}

// Extension is a request for more time for a permission lease.
type Extension struct {
	Lease arcp.LeaseID
	More  time.Duration
	By    Party
	Owner Party // of the job
}

// Revocation is a request to end a permission lease.
type Revocation struct {
	Lease  arcp.LeaseID
	Reason string
	By     Party
	Admin  bool
	Owner  Party // of the job
}

// Change is a changed permission lease with the event that announces it.
type Change struct {
	Lease   lease.Grant // after the change
	Type    arcp.Type
	Payload any
	To      []arcp.SessionID // get the event also if they do not follow the job
	Dropped []arcp.LeaseID   // ended leases that are not remembered any more
}

// Grant adds a permission lease. lease.Grants.Add documents the errors.
func (s *State) Grant(now time.Time, r Grant) (Change, *arcp.Error) {
	at := now.UTC().Truncate(time.Microsecond)
	g := lease.Grant{ID: r.ID, Permission: r.Permission.Permission, Resource: r.Permission.Resource, Operation: r.Permission.Operation,
		GrantedAt: at, ExpiresAt: at.Add(r.Duration), Session: r.By.Session, Principal: r.By.Principal, Holder: r.Holder}
	before := s.Grants.All()
	if err := s.Grants.Add(g); err != nil {
		return Change{}, err
	}
	c := Change{
		Lease: g,
		Type:  arcp.LeaseGranted,
		Payload: arcp.LeaseGrantedPayload{LeaseID: g.ID, Permission: g.Permission, Resource: g.Resource,
			Operation: g.Operation, ExpiresAt: g.ExpiresAt},
	}
	for _, old := range before {
		if _, found := s.Grants.Get(old.ID); !found {
			c.Dropped = append(c.Dropped, old.ID)
		}
	}
	return c, nil
}

// GrantAnswer adds the permission lease of a question that was answered with a grant. The error is
// INVALID_ARGUMENT for a grant that is wider than the question, or without a duration. limit is the configured
// lease of the grantor; nil: none. It bounds what a principal grants to its own jobs: beyond it the error is
// PERMISSION_DENIED, after its end LEASE_EXPIRED.
func (s *State) GrantAnswer(now time.Time, id arcp.LeaseID, answered *approval.Row, limit *lease.Lease) (Change, *arcp.Error) {
	asked, granted := permission(answered.Permission), permission(answered.Grant)
	if err := lease.CheckNarrower(asked, granted); err != nil {
		return Change{}, err
	}
	if limit != nil && answered.ResolvedBy == answered.Principal {
		if limit.Expired(now) {
			return Change{}, errLimitEnded(limit)
		}
		if err := limit.CheckPermission(granted); err != nil {
			return Change{}, err
		}
	}
	d := lease.Duration(lease.Seconds(answered.Permission.Seconds), lease.Seconds(answered.Grant.Seconds))
	if d <= 0 {
		return Change{}, arcp.Errorf(arcp.CodeInvalidArgument, "lease_seconds must be at least 1")
	}
	return s.Grant(now, Grant{ID: id, Permission: granted, Duration: d, By: Party{answered.ResolvedBy, answered.ResolvedIn}})
}

func permission(t *arcp.PermissionTerm) lease.Permission {
	return lease.Permission{Permission: t.Permission, Resource: t.Resource, Operation: t.Operation}
}

// FindGrant returns the first lease of a permission, live or ended.
func (s *State) FindGrant(permission string) (lease.Grant, bool) {
	for _, g := range s.Grants.All() {
		if g.Permission == permission {
			return g, true
		}
	}
	return lease.Grant{}, false
}

// Extend extends a live permission lease. The job's own session extends it; for sessions of other
// principals there is NOT_FOUND.
func (s *State) Extend(now time.Time, x Extension) (Change, *arcp.Error) {
	switch {
	case x.By.Principal != x.Owner.Principal:
		return Change{}, NoSuchLease(x.Lease)
	case x.By.Session != x.Owner.Session:
		return Change{}, arcp.Errorf(arcp.CodePermissionDenied, "only the session that submitted the job extends its leases")
	case x.More <= 0:
		return Change{}, arcp.Errorf(arcp.CodeInvalidArgument, "additional_seconds must be at least 1")
	}
	g, err := s.Grants.Refresh(now, x.Lease, x.More)
	if err != nil {
		return Change{}, err
	}
	return Change{Lease: g, Type: arcp.LeaseExtended, Payload: arcp.LeaseExtendedPayload{LeaseID: g.ID, ExpiresAt: g.ExpiresAt}}, nil
}

// Revoke ends a live permission lease for the principal that granted it, or for an admin. Its holder
// gets the event.
func (s *State) Revoke(now time.Time, r Revocation) (Change, *arcp.Error) {
	g, found := s.Grants.Get(r.Lease)
	switch {
	case !found || r.By.Principal != r.Owner.Principal && r.By.Principal != g.Principal && !r.Admin:
		return Change{}, NoSuchLease(r.Lease)
	case r.By.Principal != g.Principal && !r.Admin:
		return Change{}, arcp.Errorf(arcp.CodePermissionDenied, "only %s, who granted it, and an admin may revoke this lease", g.Principal)
	}
	g, err := s.Grants.Revoke(now, r.Lease)
	if err != nil {
		return Change{}, err
	}
	c := Change{Lease: g, Type: arcp.LeaseRevoked, Payload: arcp.LeaseRevokedPayload{LeaseID: r.Lease, Reason: r.Reason}}
	if g.Holder != "" {
		c.To = []arcp.SessionID{g.Holder}
	}
	return c, nil
}

// NoSuchLease is the refusal of a request about a lease that does not exist or that the party must
// not see: NOT_FOUND.
func NoSuchLease(id arcp.LeaseID) *arcp.Error {
	return arcp.Errorf(arcp.CodeNotFound, "no such lease: %s", id)
}

// ExpiredGrants returns the permission leases that have expired.
func (s *State) ExpiredGrants(now time.Time) (expired []lease.Grant) {
	for _, g := range s.Grants.All() {
		if _, err := s.Grants.Live(now, g.ID); err != nil && err.Code == arcp.CodeLeaseExpired {
			expired = append(expired, g)
		}
	}
	return expired
}
