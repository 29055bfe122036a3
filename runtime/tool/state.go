package tool

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/arcpd/arcpd/arcp"
)

// State holds the tools of one generation of a Registry. It is immutable, and shares its unchanged
// parts with the other generations. The runtime uses it, with Family, for the catalogs of sessions.
type State struct {
	generation uint64
	families   *btreemap.BTreeMap[string, *Family] // by name
	restricted []*Tool                             // tools with an Audience
	changes    []change                            // the latest changes, the newest last
}

// Generation returns the number of changes since the registry was created.
func (s *State) Generation() uint64 { return s.generation }

// Family returns the versions of a name; nil if there are none. Used by the runtime.
func (s *State) Family(name string) *Family {
	_, f, _ := s.families.Get(name)
	return f
}

// Families yields the names from a name on with their versions, sorted by name. Used by the runtime.
func (s *State) Families(from string) iter.Seq2[string, *Family] {
	return s.families.Ascend(btreemap.GE(from), btreemap.Max[string]())
}

func (s *State) names(yield func(string) bool) {
	for name := range s.Families("") {
		if !yield(name) {
			return
		}
	}
}

// Restricted returns the tools with an Audience. The caller must not change the slice. Used by the
// runtime.
func (s *State) Restricted() []*Tool { return s.restricted }

// AddChanged adds to names each name whose versions may differ between s and another state of the
// registry. The cost grows with the number of changes between the states. Used by the runtime.
func (s *State) AddChanged(names map[string]bool, other *State) {
	if other.generation > s.generation {
		s, other = other, s
	}
	if len(s.changes) == 0 || other.generation < s.changes[0].generation {
		for _, state := range [...]*State{s, other} {
			for name := range state.Families("") {
				names[name] = true
			}
		}
		return
	}
	for _, c := range slices.Backward(s.changes) {
		if c.generation <= other.generation {
			return
		}
		names[c.name] = true
	}
}

// change is a name whose family has changed in a generation.
type change struct {
	generation uint64
	name       string
}

// maxChanges bounds the changes that a State lists. States with more changes between them are
// compared name by name.
const maxChanges = 4096

// treeDegree is the degree of the tree: with 10,000 names, a change copies three nodes of some 32
// names.
const treeDegree = 16

func newState() *State {
	return &State{families: btreemap.New[string, *Family](treeDegree, strings.Compare)}
}

// edit returns a copy of s with the next generation. The caller changes and publishes it.
func (s *State) edit() *State {
	next := *s
	next.generation++
	next.families = s.families.Clone()
	return &next
}

// add adds a tool of a source.
func (s *State) add(sourceName string, t *Tool) error {
	var tools []*Tool
	if f := s.Family(t.Name); f != nil {
		if f.sourceName != sourceName { // the default version must not depend on the order of sources
			return &TakenError{t.ref, errors.New("another source has tools of this name")}
		}
		tools = f.tools
	}
	f, err := newFamily(sourceName, append(slices.Clip(tools), t))
	if err != nil {
		return err
	}
	s.families.ReplaceOrInsert(t.Name, f)
	s.changes = append(s.changes, change{s.generation, t.Name})
	if t.Audience != nil {
		s.restricted = append(slices.Clip(s.restricted), t)
	}
	return nil
}

// remove removes all tools of a source.
func (s *State) remove(sourceName string, tools []*Tool) {
	s.restricted = slices.DeleteFunc(slices.Clone(s.restricted), func(t *Tool) bool { return s.Family(t.Name).sourceName == sourceName })
	for _, t := range tools {
		s.families.Delete(t.Name)
		s.changes = append(s.changes, change{s.generation, t.Name})
	}
}

// trim bounds the changes.
func (s *State) trim() {
	if n := len(s.changes); n > 2*maxChanges {
		s.changes = slices.Clone(s.changes[n-maxChanges:])
	}
}

// Family holds all versions of a name. It is immutable: the caller must not change the slices. Used
// by the runtime.
type Family struct {
	Agent      arcp.Agent // name, versions and default version
	Default    *Tool      // the version for a reference without one
	Versions   []*Tool    // the newest first
	TrustRank  int        // highest rank of a MinTrust
	Restricted bool       // some versions have an Audience

	sourceName string  // of every version
	tools      []*Tool // the versions in the order of their registration
}

// newFamily returns the family of tools with the same name. The error is a *TakenError for the tool
// that conflicts with another one.
func newFamily(sourceName string, tools []*Tool) (*Family, error) {
	f := &Family{sourceName: sourceName, tools: tools, Versions: slices.Clone(tools)}
	for _, t := range tools {
		if t.Default && f.Default != nil && f.Default.Default && f.Default.Version != t.Version {
			return nil, &TakenError{t.ref, fmt.Errorf("version %s is the default already", f.Default.Version)}
		}
		if f.Default == nil || t.Default {
			f.Default = t
		}
		f.TrustRank = max(f.TrustRank, t.MinTrust.Rank())
		f.Restricted = f.Restricted || t.Audience != nil
	}
	slices.SortFunc(f.Versions, func(a, b *Tool) int { return compareVersions(b.Version, a.Version) })
	for i, t := range f.Versions[1:] {
		if t.Version == f.Versions[i].Version {
			return nil, &TakenError{t.ref, errors.New("it exists already")}
		}
	}
	f.Agent = arcp.Agent{Name: tools[0].Name, Versions: make([]string, len(tools)), Default: f.Default.Version}
	for i, t := range f.Versions {
		f.Agent.Versions[i] = t.Version
	}
	return f, nil
}

// Resolve returns a version, or the default version if the reference has none (not pinned). It
// returns nil if the version is missing or f is nil.
func (f *Family) Resolve(version string, pinned bool) *Tool {
	switch {
	case f == nil:
		return nil
	case !pinned:
		return f.Default
	}
	for _, t := range f.Versions {
		if t.Version == version {
			return t
		}
	}
	return nil
}

// Without returns the family without the versions for which drop returns true; nil if none
// is left. f may be nil.
func (f *Family) Without(drop func(*Tool) bool) *Family {
	if f == nil || !slices.ContainsFunc(f.tools, drop) {
		return f
	}
	tools := slices.DeleteFunc(slices.Clone(f.tools), drop)
	if len(tools) == 0 {
		return nil
	}
	part, err := newFamily(f.sourceName, tools)
	if err != nil { // the whole family has no conflict
		panic("tool: " + err.Error())
	}
	return part
}
