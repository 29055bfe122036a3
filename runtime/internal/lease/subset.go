package lease

import (
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Subset returns nil if a child may have l under parent, and otherwise
// LEASE_SUBSET_VIOLATION with a message that names what is not covered:
//
//   - each pattern must be covered by the parent's patterns of the namespace
//     taken together, exactly, unless deciding that takes more than a bounded
//     number of steps: then it counts as not covered. A namespace that the
//     parent does not have is not covered, model.use included, whatever a
//     policy makes of its absence;
//   - each amount must be at most the parent's, if the parent is limited in the
//     currency; what is left of the parent's is for Budget.Reserve to compare;
//   - the expiry must not be later than the parent's. None is none of its own.
//
// What l does not say is allowed; Inherit then takes it from the parent.
func (l *Lease) Subset(parent *Lease) *arcp.Error {
	if what := l.exceeds(parent); what != "" {
		return arcp.Errorf(arcp.CodeLeaseSubsetViolation, "the parent's lease does not cover %s", what)
	}
	return nil
}

// Within is Subset for a request and the lease of its principal, whose amounts
// bound each of its jobs alone. It answers PERMISSION_DENIED.
func (l *Lease) Within(limit *Lease) *arcp.Error {
	if what := l.exceeds(limit); what != "" {
		return denied("the principal's lease does not cover %s", what)
	}
	return nil
}

// exceeds says what of l is not covered by m; empty: nothing.
func (l *Lease) exceeds(m *Lease) string {
	if l == nil {
		return ""
	}
	for _, a := range l.budget {
		if b, ok := findAmount(m.Budget(), a.currency); ok && a.Cmp(b) > 0 {
			return arcp.NamespaceCostBudget + " " + quote(a.String())
		}
	}
	if at := m.ExpiresAt(); !at.IsZero() && l.expires.After(at) {
		return keyExpires + " " + l.expires.Format(time.RFC3339Nano)
	}
	work := maxWork
	for i := range l.permissions {
		if p := l.permissions[i].exceeds(m, &work); p != nil {
			return l.permissions[i].namespace + " " + quote(p.text)
		}
	}
	return ""
}

// exceeds returns the first pattern that m does not cover.
func (p *permission) exceeds(m *Lease, work *int) *pattern {
	if len(p.patterns) == 0 {
		return nil
	}
	q := m.find(p.namespace)
	if q == nil {
		return &p.patterns[0]
	}
	in := newInclusion(q.patterns, *work)
	for i := range p.patterns {
		if !in.covers(&p.patterns[i]) {
			return &p.patterns[i]
		}
	}
	*work = in.work
	return nil
}

// Cut returns what a parent passes on with permissions_inherited: the namespaces
// named, in whatever spelling, and the expiry. If l limits the models and
// model.use is not named, no model is passed on; an absent key could mean all.
func (l *Lease) Cut(namespaces []string) *Lease {
	if l == nil {
		return nil
	}
	named := make(map[string]bool, len(namespaces))
	for _, ns := range namespaces {
		named[dotted(ns)] = true
	}
	cut := &Lease{expires: l.expires}
	for _, p := range l.permissions {
		switch {
		case named[p.namespace]:
			cut.permissions = append(cut.permissions, p)
		case p.namespace == arcp.NamespaceModelUse:
			cut.permissions = append(cut.permissions, permission{namespace: arcp.NamespaceModelUse})
		}
	}
	if named[arcp.NamespaceCostBudget] {
		cut.budget = l.budget
	}
	return cut
}

// With returns l with the permissions of m in place of its own. It ends no later
// than m.
func (l *Lease) With(m *Lease) *Lease {
	return &Lease{permissions: m.permissions, budget: l.budget, expires: earlier(l.expires, m.expires)}
}

// Inherit returns l bounded by its parent in what it does not say itself: it
// ends no later than the parent; it may use no other models than the parent,
// if that is limited in them; and in each currency of remaining that it has no
// amount of, it may spend all that remains, or nothing if that is negative.
//
// A child that names no amount thus leaves its parent none while it runs: one
// that both are to spend from has to be named. For a request, the parent is the
// lease of its principal, and that lease's Budget is what remains.
func (l *Lease) Inherit(parent *Lease, remaining []Amount) *Lease {
	heir := Lease{}
	if l != nil {
		heir = *l
	}
	heir.expires = earlier(heir.expires, parent.ExpiresAt())
	heir.budget = slices.Clone(heir.budget)
	for _, a := range remaining {
		if _, ok := findAmount(heir.budget, a.currency); !ok {
			heir.budget = append(heir.budget, a.floor())
		}
	}
	if p := parent.find(arcp.NamespaceModelUse); p != nil && heir.find(arcp.NamespaceModelUse) == nil {
		heir.permissions = append(slices.Clone(heir.permissions), *p)
		slices.SortFunc(heir.permissions, func(a, b permission) int {
			return strings.Compare(a.namespace, b.namespace)
		})
	}
	return &heir
}
