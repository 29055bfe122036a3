package catalog

import (
	"maps"
	"reflect"
	"slices"

	"github.com/arcpd/arcpd/runtime/tool"
)

// Difference is the change from one catalog to another. Each list has references
// name@version, sorted by name.
type Difference struct {
	Added, Removed, Changed []string
}

// Empty reports whether nothing has changed.
func (d *Difference) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Since returns the changes of the listed tools since an earlier snapshot of the same catalog.
// The cost grows with the number of changed names.
func (s *Snapshot) Since(old *Snapshot) (d Difference) {
	names := make(map[string]bool)
	if s.rank != old.rank || s.includesBase() != old.includesBase() {
		for _, base := range [...]*tool.State{old.base, s.base} {
			for name := range base.Families("") {
				names[name] = true
			}
		}
	} else {
		s.base.AddChanged(names, old.base)
	}
	if !s.overlay.Same(old.overlay) {
		old.overlay.addNames(names)
		s.overlay.addNames(names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.compare(old.listed(old.initial(name)), s.listed(s.initial(name)))
	}
	return d
}

func (d *Difference) compare(old, now *tool.Family) {
	if old == now {
		return
	}
	if old != nil {
		for _, t := range old.Versions {
			if now.Resolve(t.Version, true) == nil {
				d.Removed = append(d.Removed, t.Ref())
			}
		}
	}
	if now == nil {
		return
	}
	for _, t := range now.Versions {
		switch before := old.Resolve(t.Version, true); {
		case before == nil:
			d.Added = append(d.Added, t.Ref())
		case before != t && !reflect.DeepEqual(before.Capability, t.Capability):
			d.Changed = append(d.Changed, t.Ref())
		}
	}
}
