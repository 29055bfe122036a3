package lease

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of permission leases.
const (
	MaxGrants   = 64             // live grants of a job
	MaxGrant    = time.Hour      // duration of a new grant
	MaxLifetime = 24 * time.Hour // duration of a grant with all refreshes
)

// Grant is a permission lease of a job. The times have microseconds.
type Grant struct {
	ID         arcp.LeaseID   `json:"id"`
	Permission string         `json:"permission"`
	Resource   string         `json:"resource"` // literal or pattern
	Operation  string         `json:"operation"`
	GrantedAt  time.Time      `json:"granted_at"`
	ExpiresAt  time.Time      `json:"expires_at"`
	Session    arcp.SessionID `json:"session,omitzero"`
	Principal  string         `json:"principal,omitzero"` // principal that granted the permission
	Holder     arcp.SessionID `json:"holder,omitzero"`    // session that owns the grant if the job has none
	Revoked    bool           `json:"revoked,omitzero"`
}

// live returns nil for a live grant, otherwise LEASE_REVOKED or LEASE_EXPIRED.
func (g *Grant) live(now time.Time) *arcp.Error {
	switch {
	case g.Revoked:
		return arcp.Errorf(arcp.CodeLeaseRevoked, "lease %s of %s was revoked", g.ID, quote(g.Permission))
	case expired(now, g.ExpiresAt):
		return arcp.Errorf(arcp.CodeLeaseExpired, "lease %s of %s has expired", g.ID, quote(g.Permission))
	}
	return nil
}

// Duration returns the duration of a grant: the minimum of the requested one, if it is positive,
// the granted one, and MaxGrant.
func Duration(requested, granted time.Duration) time.Duration {
	if requested > 0 {
		granted = min(granted, requested)
	}
	return max(0, min(granted, MaxGrant))
}

// Seconds returns n seconds, at most the longest Duration.
func Seconds(n uint64) time.Duration {
	if n > math.MaxInt64/uint64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// Permission is a requested or granted permission.
type Permission struct {
	Permission string
	Resource   string
	Operation  string
}

// CheckNarrower returns nil if granted is not wider than asked: the same permission and operation, and a
// resource that the requested one covers. Otherwise it returns INVALID_ARGUMENT.
func CheckNarrower(asked, granted Permission) *arcp.Error {
	switch {
	case canonicalNamespace(asked.Permission) != canonicalNamespace(granted.Permission):
		return arcp.Errorf(arcp.CodeInvalidArgument, "permission: %s was asked for", quote(asked.Permission))
	case asked.Operation != granted.Operation:
		return arcp.Errorf(arcp.CodeInvalidArgument, "operation: %s was asked for", quote(asked.Operation))
	}
	whole, err := compileResource(asked.Permission, asked.Resource)
	if err != nil {
		return err
	}
	part, err := compileResource(granted.Permission, granted.Resource)
	if err != nil {
		return err
	}
	if !newInclusion([]pattern{whole}, maxSteps).covers(&part) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "resource: %s was asked for, which does not cover %s",
			quote(asked.Resource), quote(granted.Resource))
	}
	return nil
}

func compileResource(permission, resource string) (pattern, *arcp.Error) {
	p, err := compile(canonicalNamespace(permission), resource)
	if err != nil {
		return p, arcp.Errorf(arcp.CodeInvalidArgument, "resource %s: %v", quote(resource), err)
	}
	return p, nil
}

// Grants has the permission leases of a job, the oldest first. The zero value is empty. It keeps up
// to MaxGrants ended ones, so that Check can report how a grant ended.
type Grants struct {
	list []compiledGrant
}

type compiledGrant struct {
	Grant
	resource pattern
}

// Add adds a grant. The errors are:
//
//   - INVALID_ARGUMENT: the resource is not a pattern, ExpiresAt is not after GrantedAt, or a member
//     is not UTF-8
//   - ALREADY_EXISTS: the id is known
//   - RESOURCE_EXHAUSTED: MaxGrants are live at GrantedAt
func (g *Grants) Add(grant Grant) *arcp.Error {
	grant.GrantedAt, grant.ExpiresAt = toMicroseconds(grant.GrantedAt), toMicroseconds(grant.ExpiresAt)
	switch {
	case !grant.ExpiresAt.After(grant.GrantedAt):
		return arcp.Errorf(arcp.CodeInvalidArgument, "lease %s has no duration", quote(string(grant.ID)))
	case !utf8.ValidString(string(grant.ID) + grant.Permission + grant.Operation + string(grant.Session) +
		grant.Principal + string(grant.Holder)):
		return arcp.Errorf(arcp.CodeInvalidArgument, "lease %s: %v", quote(string(grant.ID)), errUTF8)
	case g.find(grant.ID) != nil:
		return arcp.Errorf(arcp.CodeAlreadyExists, "lease %s exists already", quote(string(grant.ID)))
	}
	p, err := compileResource(grant.Permission, grant.Resource)
	if err != nil {
		return err
	}
	g.prune(grant.GrantedAt)
	if g.countLive(grant.GrantedAt) >= MaxGrants {
		return arcp.Errorf(arcp.CodeResourceExhausted, "the job has %d permission leases already", MaxGrants)
	}
	g.list = append(g.list, compiledGrant{Grant: grant, resource: p})
	return nil
}

// countLive returns the number of live grants.
func (g *Grants) countLive(now time.Time) (n int) {
	for i := range g.list {
		if g.list[i].live(now) == nil {
			n++
		}
	}
	return n
}

// prune removes the oldest ended grants, so that fewer than MaxGrants ended ones stay.
func (g *Grants) prune(now time.Time) {
	excess := len(g.list) - g.countLive(now) - (MaxGrants - 1)
	rest := g.list[:0]
	for i := range g.list {
		if excess > 0 && g.list[i].live(now) != nil {
			excess--
			continue
		}
		rest = append(rest, g.list[i])
	}
	clear(g.list[len(rest):])
	g.list = rest
}

func (g *Grants) find(id arcp.LeaseID) *compiledGrant {
	for i := range g.list {
		if g.list[i].ID == id {
			return &g.list[i]
		}
	}
	return nil
}

// findLive returns a live grant, or NOT_FOUND, LEASE_REVOKED or LEASE_EXPIRED.
func (g *Grants) findLive(now time.Time, id arcp.LeaseID) (*compiledGrant, *arcp.Error) {
	c := g.find(id)
	if c == nil {
		return nil, arcp.Errorf(arcp.CodeNotFound, "no lease %s", quote(string(id)))
	}
	return c, c.live(now)
}

// Get returns a grant, live or ended.
func (g *Grants) Get(id arcp.LeaseID) (Grant, bool) {
	if c := g.find(id); c != nil {
		return c.Grant, true
	}
	return Grant{}, false
}

// Live returns a live grant, or NOT_FOUND, LEASE_REVOKED or LEASE_EXPIRED.
func (g *Grants) Live(now time.Time, id arcp.LeaseID) (Grant, *arcp.Error) {
	c, err := g.findLive(now, id)
	if err != nil {
		return Grant{}, err
	}
	return c.Grant, nil
}

// Refresh extends a live grant, at most to MaxLifetime after it was granted. The error is
// NOT_FOUND, LEASE_REVOKED, LEASE_EXPIRED, or INVALID_ARGUMENT if additional is not
// positive.
func (g *Grants) Refresh(now time.Time, id arcp.LeaseID, additional time.Duration) (Grant, *arcp.Error) {
	c, err := g.findLive(now, id)
	switch {
	case err != nil:
		return Grant{}, err
	case additional <= 0:
		return Grant{}, arcp.Errorf(arcp.CodeInvalidArgument, "additional_seconds must be more than 0")
	}
	end := toMicroseconds(c.ExpiresAt.Add(min(additional, MaxLifetime)))
	if last := c.GrantedAt.Add(MaxLifetime); end.After(last) {
		end = last
	}
	if end.After(c.ExpiresAt) {
		c.ExpiresAt = end
	}
	return c.Grant, nil
}

// Revoke ends a live grant. The error is NOT_FOUND, LEASE_REVOKED or
// LEASE_EXPIRED.
func (g *Grants) Revoke(now time.Time, id arcp.LeaseID) (Grant, *arcp.Error) {
	c, err := g.findLive(now, id)
	if err != nil {
		return Grant{}, err
	}
	c.Revoked = true
	return c.Grant, nil
}

// NextEnd returns the earliest time after the time after at which a grant expires, including Grace;
// zero: there is none.
func (g *Grants) NextEnd(after time.Time) (next time.Time) {
	for i := range g.list {
		end := g.list[i].ExpiresAt.Add(Grace)
		if !g.list[i].Revoked && end.After(after) && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return next
}

// Check returns nil if a live grant has the permission and operation and covers the resource. The
// empty operation matches every grant. If only ended grants match, the error is the one of the
// latest grant, LEASE_EXPIRED or LEASE_REVOKED; otherwise PERMISSION_DENIED.
func (g *Grants) Check(now time.Time, permission, resource, operation string) *arcp.Error {
	permission = canonicalNamespace(permission)
	t, bad := parseTarget(formOf(permission), resource, false)
	if bad != nil {
		return denied("%s: %s cannot be a target: %v", permission, quote(resource), bad)
	}
	var ended *arcp.Error
	for i := range g.list {
		c := &g.list[i]
		if canonicalNamespace(c.Permission) != permission || operation != "" && c.Operation != operation || !c.resource.covers(&t) {
			continue
		}
		err := c.live(now)
		if err == nil {
			return nil
		}
		ended = err
	}
	if ended != nil {
		return ended
	}
	return denied("no permission %s for %s of %s", quote(permission), quote(operation), quote(t.text))
}

// All returns the grants, live and ended, the oldest first.
func (g *Grants) All() []Grant {
	list := make([]Grant, 0, len(g.list))
	for i := range g.list {
		list = append(list, g.list[i].Grant)
	}
	return list
}

// Encode encodes the grants for Decode.
func (g *Grants) Encode() arcp.Raw {
	raw, err := arcp.Marshal(g.All())
	if err != nil { // only strings that are UTF-8, and times
		panic("lease: " + err.Error())
	}
	return raw
}

// Decode replaces the grants by the result of Encode.
func (g *Grants) Decode(raw arcp.Raw) error {
	var list []Grant
	if err := arcp.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	compiled := make([]compiledGrant, 0, len(list))
	for _, grant := range list {
		p, err := compileResource(grant.Permission, grant.Resource)
		if err != nil {
			return fmt.Errorf("grant %s: %w", grant.ID, err)
		}
		compiled = append(compiled, compiledGrant{Grant: grant, resource: p})
	}
	g.list = compiled
	return nil
}
