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
	MaxGrants   = 64             // live ones of a job
	MaxGrant    = time.Hour      // of one grant
	MaxLifetime = 24 * time.Hour // of one with all that was added to it
)

// Grant is a permission lease of a job. The times are kept to microseconds.
type Grant struct {
	ID         arcp.LeaseID   `json:"id"`
	Permission string         `json:"permission"`
	Resource   string         `json:"resource"` // literal or pattern
	Operation  string         `json:"operation"`
	GrantedAt  time.Time      `json:"granted_at"`
	ExpiresAt  time.Time      `json:"expires_at"`
	Session    arcp.SessionID `json:"session,omitzero"`
	Principal  string         `json:"principal,omitzero"` // who granted it
	Holder     arcp.SessionID `json:"holder,omitzero"`    // that has it, where the job has no session
	Revoked    bool           `json:"revoked,omitzero"`
}

// live returns nil while the grant holds, and LEASE_REVOKED or LEASE_EXPIRED
// after.
func (g *Grant) live(now time.Time) *arcp.Error {
	switch {
	case g.Revoked:
		return arcp.Errorf(arcp.CodeLeaseRevoked, "lease %s of %s was revoked", g.ID, quote(g.Permission))
	case over(now, g.ExpiresAt):
		return arcp.Errorf(arcp.CodeLeaseExpired, "lease %s of %s has expired", g.ID, quote(g.Permission))
	}
	return nil
}

// Duration is how long a grant lasts: the shortest of what was asked for, if
// that is more than 0, what was granted, and MaxGrant.
func Duration(asked, granted time.Duration) time.Duration {
	if asked > 0 {
		granted = min(granted, asked)
	}
	return max(0, min(granted, MaxGrant))
}

// Seconds is n seconds, at most what a Duration can hold.
func Seconds(n uint64) time.Duration {
	if n > math.MaxInt64/uint64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// Permission is what is asked for or granted.
type Permission struct {
	Permission string
	Resource   string
	Operation  string
}

// Narrower returns nil if a grant answers what was asked: the same permission
// and operation, and a resource that is the one asked for or covered by it.
// Otherwise it is INVALID_ARGUMENT.
func Narrower(asked, granted Permission) *arcp.Error {
	switch {
	case dotted(asked.Permission) != dotted(granted.Permission):
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
	if !newInclusion([]pattern{whole}, maxWork).covers(&part) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "resource: %s was asked for, which does not cover %s",
			quote(asked.Resource), quote(granted.Resource))
	}
	return nil
}

func compileResource(permission, resource string) (pattern, *arcp.Error) {
	p, err := compile(dotted(permission), resource)
	if err != nil {
		return p, arcp.Errorf(arcp.CodeInvalidArgument, "resource %s: %v", quote(resource), err)
	}
	return p, nil
}

// Grants are the permission leases of a job, the oldest first. The zero value
// has none. Those that have ended are remembered, up to MaxGrants of them, so
// that their use can be told from one that was never granted.
type Grants struct {
	list []compiledGrant
}

type compiledGrant struct {
	Grant
	resource pattern
}

// Add takes a grant at its GrantedAt. It is RESOURCE_EXHAUSTED if MaxGrants are
// live then, ALREADY_EXISTS if the id is taken, and INVALID_ARGUMENT if the
// resource is no pattern, there is no time between GrantedAt and ExpiresAt, or
// another member is not UTF-8.
func (g *Grants) Add(grant Grant) *arcp.Error {
	grant.GrantedAt, grant.ExpiresAt = instant(grant.GrantedAt), instant(grant.ExpiresAt)
	switch {
	case !grant.ExpiresAt.After(grant.GrantedAt):
		return arcp.Errorf(arcp.CodeInvalidArgument, "lease %s has no duration", quote(string(grant.ID)))
	case !utf8.ValidString(string(grant.ID) + grant.Permission + grant.Operation + string(grant.Session) + grant.Principal + string(grant.Holder)):
		return arcp.Errorf(arcp.CodeInvalidArgument, "lease %s: %v", quote(string(grant.ID)), errUTF8)
	case g.find(grant.ID) != nil:
		return arcp.Errorf(arcp.CodeAlreadyExists, "lease %s exists already", quote(string(grant.ID)))
	}
	p, err := compileResource(grant.Permission, grant.Resource)
	if err != nil {
		return err
	}
	g.forget(grant.GrantedAt)
	if g.live(grant.GrantedAt) >= MaxGrants {
		return arcp.Errorf(arcp.CodeResourceExhausted, "the job has %d permission leases already", MaxGrants)
	}
	g.list = append(g.list, compiledGrant{grant, p})
	return nil
}

func (g *Grants) live(now time.Time) (n int) {
	for i := range g.list {
		if g.list[i].live(now) == nil {
			n++
		}
	}
	return n
}

// forget drops the oldest of the ended grants, so that less than MaxGrants of
// them are left.
func (g *Grants) forget(now time.Time) {
	excess := len(g.list) - g.live(now) - (MaxGrants - 1)
	kept := g.list[:0]
	for i := range g.list {
		if excess > 0 && g.list[i].live(now) != nil {
			excess--
			continue
		}
		kept = append(kept, g.list[i])
	}
	clear(g.list[len(kept):])
	g.list = kept
}

func (g *Grants) find(id arcp.LeaseID) *compiledGrant {
	for i := range g.list {
		if g.list[i].ID == id {
			return &g.list[i]
		}
	}
	return nil
}

// current returns a live grant: NOT_FOUND, LEASE_REVOKED or LEASE_EXPIRED.
func (g *Grants) current(now time.Time, id arcp.LeaseID) (*compiledGrant, *arcp.Error) {
	c := g.find(id)
	if c == nil {
		return nil, arcp.Errorf(arcp.CodeNotFound, "no lease %s", quote(string(id)))
	}
	return c, c.live(now)
}

// Get returns a grant that is remembered.
func (g *Grants) Get(id arcp.LeaseID) (Grant, bool) {
	if c := g.find(id); c != nil {
		return c.Grant, true
	}
	return Grant{}, false
}

// Live returns a grant that holds: NOT_FOUND, LEASE_REVOKED or LEASE_EXPIRED.
func (g *Grants) Live(now time.Time, id arcp.LeaseID) (Grant, *arcp.Error) {
	c, err := g.current(now, id)
	if err != nil {
		return Grant{}, err
	}
	return c.Grant, nil
}

// Refresh lets a live grant last longer, until MaxLifetime after it was granted;
// what is asked for beyond is cut. The error is NOT_FOUND, LEASE_REVOKED,
// LEASE_EXPIRED, or INVALID_ARGUMENT if additional is not more than 0.
func (g *Grants) Refresh(now time.Time, id arcp.LeaseID, additional time.Duration) (Grant, *arcp.Error) {
	c, err := g.current(now, id)
	switch {
	case err != nil:
		return Grant{}, err
	case additional <= 0:
		return Grant{}, arcp.Errorf(arcp.CodeInvalidArgument, "additional_seconds must be more than 0")
	}
	end := instant(c.ExpiresAt.Add(min(additional, MaxLifetime)))
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
	c, err := g.current(now, id)
	if err != nil {
		return Grant{}, err
	}
	c.Revoked = true
	return c.Grant, nil
}

// NextEnd is the earliest moment after a time at which a grant stops to hold, those
// that were revoked aside; zero: there is none.
func (g *Grants) NextEnd(after time.Time) (next time.Time) {
	for i := range g.list {
		end := g.list[i].ExpiresAt.Add(Grace)
		if !g.list[i].Revoked && end.After(after) && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return next
}

// Check returns nil if a live grant has the permission and operation and covers
// the resource. An empty operation is covered by any. If only grants that have
// ended would, it says how the latest did: LEASE_EXPIRED or LEASE_REVOKED.
// Otherwise it is PERMISSION_DENIED.
func (g *Grants) Check(now time.Time, permission, resource, operation string) *arcp.Error {
	permission = dotted(permission)
	t, bad := read(formOf(permission), resource, false)
	if bad != nil {
		return denied("%s: %s cannot be a target: %v", permission, quote(resource), bad)
	}
	var ended *arcp.Error
	for i := range g.list {
		c := &g.list[i]
		if dotted(c.Permission) != permission || operation != "" && c.Operation != operation || !c.resource.covers(&t) {
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

// All returns the grants that are remembered, the oldest first.
func (g *Grants) All() []Grant {
	list := make([]Grant, 0, len(g.list))
	for i := range g.list {
		list = append(list, g.list[i].Grant)
	}
	return list
}

// Encode writes the grants as Decode reads them.
func (g *Grants) Encode() arcp.Raw {
	raw, err := arcp.Marshal(g.All())
	if err != nil { // only strings that are UTF-8, and times
		panic("lease: " + err.Error())
	}
	return raw
}

// Decode replaces the grants by those that Encode wrote.
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
		compiled = append(compiled, compiledGrant{grant, p})
	}
	g.list = compiled
	return nil
}
