package tool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/arcpd/arcpd/arcp"
)

// base is one immutable state of a Registry. Running jobs refer to many bases, which share the
// nodes of their trees.
type base struct {
	reg        *Registry
	generation uint64
	families   *btreemap.BTreeMap[string, *family] // by name
	restricted []*Tool                             // tools with an Audience
	changes    []change                            // the latest changes, the newest last
}

// change is a name whose family has changed in a generation.
type change struct {
	generation uint64
	name       string
}

// maxChanges bounds the changes that a base lists. Bases with more changes between them are
// compared name by name.
const maxChanges = 4096

// treeDegree is the degree of the tree: with 10,000 names, a change copies three nodes of some 32
// names.
const treeDegree = 16

func newBase(r *Registry) *base {
	return &base{reg: r, families: btreemap.New[string, *family](treeDegree, strings.Compare)}
}

// edit returns a copy of b with the next generation. The caller changes and publishes it.
func (b *base) edit() *base {
	next := *b
	next.generation++
	next.families = b.families.Clone()
	return &next
}

// family returns the versions of a name; nil if there are none.
func (b *base) family(name string) *family {
	_, f, _ := b.families.Get(name)
	return f
}

// add adds a tool of a source.
func (b *base) add(source string, t *Tool) error {
	var tools []*Tool
	if f := b.family(t.Name); f != nil {
		if f.source != source { // the default version must not depend on the order of sources
			return &TakenError{t.ref, errors.New("another source has tools of this name")}
		}
		tools = f.tools
	}
	f, err := newFamily(source, append(slices.Clip(tools), t))
	if err != nil {
		return err
	}
	b.families.ReplaceOrInsert(f.name, f)
	b.changes = append(b.changes, change{b.generation, f.name})
	if t.Audience != nil {
		b.restricted = append(slices.Clip(b.restricted), t)
	}
	return nil
}

// remove removes all tools of a source.
func (b *base) remove(source string, tools []*Tool) {
	b.restricted = slices.DeleteFunc(slices.Clone(b.restricted), func(t *Tool) bool { return b.family(t.Name).source == source })
	for _, t := range tools {
		b.families.Delete(t.Name)
		b.changes = append(b.changes, change{b.generation, t.Name})
	}
}

// trim bounds the changes.
func (b *base) trim() {
	if n := len(b.changes); n > 2*maxChanges {
		b.changes = slices.Clone(b.changes[n-maxChanges:])
	}
}

// changed adds to names each name whose family may differ between b and old.
func (b *base) changed(old *base, names map[string]bool) {
	if old.generation > b.generation {
		b, old = old, b
	}
	if len(b.changes) == 0 || old.generation < b.changes[0].generation {
		old.all(names)
		b.all(names)
		return
	}
	for _, c := range slices.Backward(b.changes) {
		if c.generation <= old.generation {
			return
		}
		names[c.name] = true
	}
}

// all adds all names of b to names.
func (b *base) all(names map[string]bool) {
	for name := range b.families.Ascend(btreemap.Min[string](), btreemap.Max[string]()) {
		names[name] = true
	}
}

// family holds all versions of a name. It is immutable.
type family struct {
	name       string
	source     string     // of every version
	tools      []*Tool    // the versions in the order of their registration
	versions   []*Tool    // the newest first
	def        *Tool      // the version for a reference without one
	agent      arcp.Agent // the entry in the list of agents
	rank       int        // highest trust rank that a version needs
	restricted bool       // some versions have an Audience
}

// newFamily returns the family of tools with the same name. The error is a *TakenError for the tool
// that conflicts with another one.
func newFamily(source string, tools []*Tool) (*family, error) {
	f := &family{name: tools[0].Name, source: source, tools: tools, versions: slices.Clone(tools)}
	for _, t := range tools {
		if t.Default && f.def != nil && f.def.Default && f.def.Version != t.Version {
			return nil, &TakenError{t.ref, fmt.Errorf("version %s is the default already", f.def.Version)}
		}
		if f.def == nil || t.Default {
			f.def = t
		}
		f.rank = max(f.rank, t.rank())
		f.restricted = f.restricted || t.Audience != nil
	}
	slices.SortFunc(f.versions, func(a, b *Tool) int { return compareVersions(b.Version, a.Version) })
	for i, t := range f.versions[1:] {
		if t.Version == f.versions[i].Version {
			return nil, &TakenError{t.ref, errors.New("it exists already")}
		}
	}
	f.agent = arcp.Agent{Name: f.name, Versions: refVersions(f.versions), Default: f.def.Version}
	return f, nil
}

func refVersions(tools []*Tool) []string {
	versions := make([]string, len(tools))
	for i, t := range tools {
		versions[i] = t.Version
	}
	return versions
}

// version returns one version; nil if there is none.
func (f *family) version(v string) *Tool {
	for _, t := range f.versions {
		if t.Version == v {
			return t
		}
	}
	return nil
}

// resolve returns a version, or the default version if the reference has none (not pinned). It
// returns nil if the version is missing or f is nil.
func (f *family) resolve(version string, pinned bool) *Tool {
	switch {
	case f == nil:
		return nil
	case !pinned:
		return f.def
	}
	return f.version(version)
}

// without returns the family without the versions for which drop returns true; nil if none
// is left. f may be nil.
func (f *family) without(drop func(*Tool) bool) *family {
	if f == nil || !slices.ContainsFunc(f.tools, drop) {
		return f
	}
	tools := slices.DeleteFunc(slices.Clone(f.tools), drop)
	if len(tools) == 0 {
		return nil
	}
	part, err := newFamily(f.source, tools)
	if err != nil { // the whole family has no conflict
		panic("tool: " + err.Error())
	}
	return part
}
