// Package lease decides about the authority of a job: the operations that its lease and its grants
// cover, its remaining budget, and the leases of its children. It is pure: the time is an argument.
// Only *Lease, which is immutable, may be used concurrently.
package lease

import (
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Grace is how long a lease stays valid after its expiry, because an operation follows its check.
const Grace = time.Second

// Lease is the authority of a job. It is immutable. A nil *Lease covers nothing.
type Lease struct {
	permissions []permission // by namespace, ascending
	budget      []Amount     // one for each currency, in the order of the request
	expires     time.Time    // zero: never
}

// permission is a namespace with its distinct patterns. Without patterns it covers nothing. A
// policy decides about an absent namespace.
type permission struct {
	namespace string
	patterns  []pattern
}

// Nothing returns a lease that covers nothing, regardless of any policy. It replaces a lease that
// cannot be decoded.
func Nothing() *Lease {
	l := new(Lease)
	for _, namespace := range optionalNamespaces {
		l.permissions = append(l.permissions, permission{namespace: namespace})
	}
	return l
}

// ExpiresAt returns when the lease ends; zero: never.
func (l *Lease) ExpiresAt() time.Time {
	if l == nil {
		return time.Time{}
	}
	return l.expires
}

// Expired reports whether the lease has ended, including Grace.
func (l *Lease) Expired(now time.Time) bool { return expired(now, l.ExpiresAt()) }

// expired reports whether at and Grace have passed; zero is never.
func expired(now, at time.Time) bool { return !at.IsZero() && !now.Before(at.Add(Grace)) }

// Budget returns the amounts that the job may spend, at most one for each currency. Other
// currencies are not limited.
func (l *Lease) Budget() []Amount {
	if l == nil {
		return nil
	}
	return slices.Clone(l.budget)
}

// Has reports whether the lease has a namespace, even without patterns. A policy may allow every
// model if model.use is absent.
func (l *Lease) Has(namespace string) bool { return l.find(canonicalNamespace(namespace)) != nil }

// find returns the permission of a dotted namespace, or nil.
func (l *Lease) find(namespace string) *permission {
	if l == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(l.permissions, namespace, func(p permission, ns string) int {
		return strings.Compare(p.namespace, ns)
	})
	if !ok {
		return nil
	}
	return &l.permissions[i]
}

// Covers returns nil if a pattern of the namespace covers the canonical form of the target, and
// PERMISSION_DENIED otherwise. It ignores the expiry. A version is part of a name: "echo" does not
// cover "echo@1.0.0".
func (l *Lease) Covers(namespace, target string) *arcp.Error {
	p := l.find(canonicalNamespace(namespace))
	if p == nil {
		return denied("the lease does not cover %s of %s", namespace, quote(target))
	}
	t, err := parseTarget(formOf(p.namespace), target, false)
	if err != nil {
		return denied("%s: %s cannot be a target: %v", namespace, quote(target), err)
	}
	for i := range p.patterns {
		if p.patterns[i].covers(&t) {
			return nil
		}
	}
	return denied("the lease does not cover %s of %s", namespace, quote(t.text))
}
