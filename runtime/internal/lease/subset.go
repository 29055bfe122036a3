package lease

import (
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// CheckSubset returns nil if a child of a job with the lease parent may have the lease l. Otherwise it
// returns LEASE_SUBSET_VIOLATION, which names the first excess:
//
//   - Each pattern is covered by the union of the parent's patterns of the namespace. The
//     decision is exact within maxSteps; an undecided pattern is not covered. A namespace
//     that the parent lacks covers nothing, also model.use, but not thought.write, which then covers
//     everything.
//   - Each amount is at most the parent's, if the parent is limited in the currency.
//     Budget.Reserve compares it with the remaining budget of the parent.
//   - The expiry is not later than the parent's.
//
// Absent members of l are allowed; Inherit copies them from the parent.
func (l *Lease) CheckSubset(parent *Lease) *arcp.Error {
	if excess := l.firstExcess(parent); excess != "" {
		return arcp.Errorf(arcp.CodeLeaseSubsetViolation, "the parent's lease does not cover %s", excess)
	}
	return nil
}

// CheckWithin is CheckSubset for a request and the lease of its principal, whose amounts bound each job of
// the principal separately. The error is PERMISSION_DENIED.
func (l *Lease) CheckWithin(limit *Lease) *arcp.Error {
	if excess := l.firstExcess(limit); excess != "" {
		return denied("the principal's lease does not cover %s", excess)
	}
	return nil
}

// CheckPermission returns PERMISSION_DENIED if the lease of a principal does not cover a permission, and
// INVALID_ARGUMENT if its resource is not a pattern.
func (l *Lease) CheckPermission(p Permission) *arcp.Error {
	resource, err := compileResource(p.Permission, p.Resource)
	if err != nil {
		return err
	}
	asked := Lease{permissions: []permission{{namespace: canonicalNamespace(p.Permission), patterns: []pattern{resource}}}}
	return asked.CheckWithin(l)
}

// firstExcess returns the name of the first part of l that limit does not cover; "": it covers l.
func (l *Lease) firstExcess(limit *Lease) string {
	if l == nil {
		return ""
	}
	for _, a := range l.budget {
		if b, ok := findAmount(limit.Budget(), a.currency); ok && a.Cmp(b) > 0 {
			return arcp.NamespaceCostBudget + " " + quote(a.String())
		}
	}
	if at := limit.ExpiresAt(); !at.IsZero() && l.expires.After(at) {
		return keyExpires + " " + l.expires.Format(time.RFC3339Nano)
	}
	steps := maxSteps
	for i := range l.permissions {
		if p := l.permissions[i].firstExcess(limit, &steps); p != nil {
			return l.permissions[i].namespace + " " + quote(p.text)
		}
	}
	return ""
}

// firstExcess returns the first pattern that limit does not cover; nil: it covers all. It subtracts
// from steps.
func (p *permission) firstExcess(limit *Lease, steps *int) *pattern {
	if len(p.patterns) == 0 {
		return nil
	}
	q := limit.find(p.namespace)
	switch {
	case q == nil && p.namespace == arcp.NamespaceThoughtWrite: // its absence allows everything
		return nil
	case q == nil:
		return &p.patterns[0]
	}
	in := newInclusion(q.patterns, *steps)
	for i := range p.patterns {
		if !in.covers(&p.patterns[i]) {
			return &p.patterns[i]
		}
	}
	*steps = in.steps
	return nil
}

// WithPermissions returns the budget of l with the permissions of other and the earlier expiry of both.
func (l *Lease) WithPermissions(other *Lease) *Lease {
	return &Lease{permissions: other.permissions, budget: l.budget, expires: earlier(l.expires, other.expires)}
}

// Until returns l with another end; zero: it never ends. Without a lease it returns nil.
func (l *Lease) Until(end time.Time) *Lease {
	if l == nil {
		return nil
	}
	changed := *l
	changed.expires = end
	return &changed
}

// Inherit returns l with absent members copied from the parent: the earlier expiry, the
// optionalNamespaces, and the amount of each currency of remaining, the remaining budget of the
// parent. A negative amount counts as 0.
//
// A child without an amount of a currency thus reserves all of it. For a request, the parent is the
// lease of its principal, and remaining is the Budget of that lease.
func (l *Lease) Inherit(parent *Lease, remaining []Amount) *Lease {
	child := Lease{}
	if l != nil {
		child = *l
	}
	child.expires = earlier(child.expires, parent.ExpiresAt())
	child.budget = slices.Clone(child.budget)
	for _, a := range remaining {
		if _, ok := findAmount(child.budget, a.currency); !ok {
			child.budget = append(child.budget, a.nonNegative())
		}
	}
	child.permissions = slices.Clone(child.permissions)
	for _, namespace := range optionalNamespaces {
		if p := parent.find(namespace); p != nil && l.find(namespace) == nil {
			child.permissions = append(child.permissions, *p)
		}
	}
	slices.SortFunc(child.permissions, func(a, b permission) int {
		return strings.Compare(a.namespace, b.namespace)
	})
	return &child
}
