package lease

import (
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Encode encodes the lease for the store, with dotted keys. Equal leases with patterns in the same
// order have equal bytes.
func (l *Lease) Encode() arcp.Raw { return l.encode(false) }

// WireJSON encodes the lease for clients: Encode with both spellings of each key.
func (l *Lease) WireJSON() arcp.Raw { return l.encode(true) }

func (l *Lease) encode(bothSpellings bool) arcp.Raw {
	members := map[string]any{}
	set := func(key string, v any) {
		members[key] = v
		if bothSpellings && slices.Contains(arcp.Namespaces, key) {
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
		if !l.expires.IsZero() {
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

// Constraints returns the expiry as lease_constraints; nil: the lease does not expire.
func (l *Lease) Constraints() *arcp.LeaseConstraints {
	if at := l.ExpiresAt(); !at.Equal(time.Time{}) {
		return &arcp.LeaseConstraints{ExpiresAt: at}
	}
	return nil
}
