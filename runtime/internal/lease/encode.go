package lease

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Encode writes the lease as it is stored: dotted keys, expires_at inside. Equal
// leases, with their patterns in the same order, give equal bytes.
func (l *Lease) Encode() arcp.Raw { return l.write(true, false) }

// RFC writes the lease for the RFC dialect: Encode with the other spelling of
// each key that has one.
func (l *Lease) RFC() arcp.Raw { return l.write(true, true) }

// Draft writes the lease for the draft dialect: dotted keys, without expires_at,
// which has its place in lease_constraints.
func (l *Lease) Draft() arcp.Raw { return l.write(false, false) }

func (l *Lease) write(expires, both bool) arcp.Raw {
	members := map[string]any{}
	set := func(key string, v any) {
		members[key] = v
		if both && slices.Contains(arcp.Namespaces, key) {
			members[snake(key)] = v
		}
	}
	if l != nil {
		for i := range l.permissions {
			set(l.permissions[i].namespace, l.permissions[i].texts())
		}
		if len(l.budget) > 0 {
			set(arcp.NamespaceCostBudget, texts(l.budget))
		}
		if expires && !l.expires.IsZero() {
			members[keyExpires] = l.expires
		}
	}
	raw, err := arcp.Marshal(members)
	if err != nil { // only strings that have been read, and a time
		panic("lease: " + err.Error())
	}
	return raw
}

func (p *permission) texts() []string {
	list := make([]string, 0, len(p.patterns)) // never null
	for i := range p.patterns {
		list = append(list, p.patterns[i].text)
	}
	return list
}

// Constraints returns the lease's expiry in its other place; nil: never.
func (l *Lease) Constraints() *arcp.LeaseConstraints {
	if at := l.ExpiresAt(); !at.Equal(time.Time{}) {
		return &arcp.LeaseConstraints{ExpiresAt: at}
	}
	return nil
}
