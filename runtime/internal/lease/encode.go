package lease

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Encode encodes the lease for the store: dotted keys, expires_at inside. Equal leases with
// patterns in the same order have equal bytes.
func (l *Lease) Encode() arcp.Raw { return l.write(true, false) }

// RFC encodes the lease for the RFC dialect: Encode with both spellings of each key.
func (l *Lease) RFC() arcp.Raw { return l.write(true, true) }

// Draft encodes the lease for the draft dialect: dotted keys without expires_at, which is
// in lease_constraints.
func (l *Lease) Draft() arcp.Raw { return l.write(false, false) }

func (l *Lease) write(expires, both bool) arcp.Raw {
	members := map[string]any{}
	set := func(key string, v any) {
		members[key] = v
		if both && slices.Contains(arcp.Namespaces, key) {
			members[snakeCase(key)] = v
		}
	}
	if l != nil {
		for i := range l.permissions {
			set(l.permissions[i].namespace, l.permissions[i].texts())
		}
		if len(l.budget) > 0 {
			set(arcp.NamespaceCostBudget, amountTexts(l.budget))
		}
		if expires && !l.expires.IsZero() {
			members[keyExpires] = l.expires
		}
	}
	raw, err := arcp.Marshal(members)
	if err != nil { // decoded strings and a time
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

// Constraints returns the expiry as lease_constraints; nil if there is none.
func (l *Lease) Constraints() *arcp.LeaseConstraints {
	if at := l.ExpiresAt(); !at.Equal(time.Time{}) {
		return &arcp.LeaseConstraints{ExpiresAt: at}
	}
	return nil
}
