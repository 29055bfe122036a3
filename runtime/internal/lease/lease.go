// Package lease decides what a job may do: which operations its lease and the
// permissions granted to it cover, what of a budget is left, and what it may
// pass on to its children. It is pure: it takes the time and returns answers.
// Nothing in it may be used by many goroutines at once, except a *Lease, which
// never changes.
package lease

import (
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Grace is how long after its expiry a lease still holds, for the time that
// passes between an operation and its check.
const Grace = time.Second

// Lease is what a job may do. It never changes; a nil *Lease covers nothing.
type Lease struct {
	permissions []permission // by namespace, ascending
	budget      []Amount     // one a currency, in the order they were asked for
	expires     time.Time    // zero: never
}

// permission is one namespace and its patterns, without repetitions. There may
// be none: then the namespace is closed, where an absent one may be left to a
// policy, as model.use is.
type permission struct {
	namespace string
	patterns  []pattern
}

// Nothing is the lease of who may do nothing, whatever a policy makes of what a
// lease does not say: it is for where there is a lease that cannot be read.
func Nothing() *Lease { return &Lease{permissions: []permission{{namespace: arcp.NamespaceModelUse}}} }

// ExpiresAt returns when the lease ends; zero: never.
func (l *Lease) ExpiresAt() time.Time {
	if l == nil {
		return time.Time{}
	}
	return l.expires
}

// Expired reports whether the lease has ended, the grace included.
func (l *Lease) Expired(now time.Time) bool { return over(now, l.ExpiresAt()) }

// over reports whether a time is past, the grace included; zero never is.
func over(now, at time.Time) bool { return !at.IsZero() && !now.Before(at.Add(Grace)) }

// Budget returns the amounts the lease may spend, at most one a currency. A
// currency that is not among them is not limited.
func (l *Lease) Budget() []Amount {
	if l == nil {
		return nil
	}
	return slices.Clone(l.budget)
}

// Has reports whether the lease says anything about a namespace, be it that
// nothing in it is covered. A runtime may allow every model where model.use is
// absent.
func (l *Lease) Has(namespace string) bool { return l.find(dotted(namespace)) != nil }

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

// Covers returns nil if a pattern of the namespace covers the target, in its
// canonical form, and otherwise PERMISSION_DENIED. It does not look at the time.
// Names are compared as a whole: a target "echo@1.0.0" is not "echo".
func (l *Lease) Covers(namespace, s string) *arcp.Error {
	p := l.find(dotted(namespace))
	if p == nil {
		return denied("the lease does not cover %s of %s", namespace, quote(s))
	}
	t, err := read(formOf(p.namespace), s, false)
	if err != nil {
		return denied("%s: %s cannot be a target: %v", namespace, quote(s), err)
	}
	for i := range p.patterns {
		if p.patterns[i].covers(&t) {
			return nil
		}
	}
	return denied("the lease does not cover %s of %s", namespace, quote(t.text))
}
