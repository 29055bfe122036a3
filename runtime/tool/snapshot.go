package tool

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"
	"github.com/agnivade/levenshtein"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Snapshot is an immutable view of a catalogue for one viewer: a base, an overlay and the hooks. A
// job uses one Snapshot until its end. Only the results of Capability.Audience may change
// meanwhile.
type Snapshot struct {
	base      *base
	hooks     *hooks
	overlay   *Overlay // nil: no overlay
	rank      int      // trust rank of the viewer; tools that need a higher rank are not listed
	principal string   // empty if no tool of the base is restricted
	refused   []*Tool  // restricted tools that did not exist for the principal at the creation of the snapshot
}

// Generation returns the generation of the registry.
func (s *Snapshot) Generation() uint64 { return s.base.generation }

// family returns the versions of a name that exist for the principal now, or nil.
func (s *Snapshot) family(name string) *family {
	return s.permitted(s.overlay.apply(s.base.family(name)))
}

func (s *Snapshot) permitted(f *family) *family {
	if f == nil || !f.restricted {
		return f
	}
	return f.without(func(t *Tool) bool { return !t.VisibleTo(s.principal) })
}

// initial returns the versions of a name that existed for the principal at the creation of the
// snapshot: the Audience of a removed tool cannot be called any more.
func (s *Snapshot) initial(name string) *family {
	f := s.overlay.apply(s.base.family(name))
	if f == nil || !f.restricted {
		return f
	}
	return f.without(func(t *Tool) bool { return slices.Contains(s.refused, t) })
}

// listed returns a family without the versions that need a higher trust rank, or nil.
func (s *Snapshot) listed(f *family) *family {
	if f == nil || f.rank <= s.rank {
		return f
	}
	return f.without(func(t *Tool) bool { return t.rank() > s.rank })
}

// Resolve returns the tool of an agent reference, as Registry.Resolve does. A hidden tool does not
// exist. A tool that needs a higher trust level exists, so the caller can report the missing
// level, but no hint names the tool.
func (s *Snapshot) Resolve(ref string) (*Tool, *arcp.Error) {
	name, version, pinned := strings.Cut(ref, "@")
	if t := s.family(name).resolve(version, pinned); t != nil {
		return t, nil
	}
	return nil, s.unresolved(ref)
}

func (s *Snapshot) unresolved(ref string) *arcp.Error {
	parsed, err := arcp.ParseAgentRef(ref)
	if err != nil {
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s", clip.Ellipsis(err.Error(), 2*arcp.MaxIDLen))
	}
	f := s.listed(s.family(parsed.Name))
	if f == nil {
		return arcp.Errorf(arcp.CodeAgentNotAvailable, "no tool or agent is named %q%s", parsed.Name, s.hint(parsed.Name))
	}
	return arcp.Errorf(arcp.CodeAgentVersionNotAvailable, "%s has no version %s; there are %s",
		parsed.Name, parsed.Version, strings.Join(f.agent.Versions, ", ")).WithDetails(struct {
		Versions []string `json:"versions"`
	}{f.agent.Versions})
}

// maxHintBytes bounds the work that an unknown name causes.
const maxHintBytes = 64

// hint returns a text with the listed name that is closest to an unknown name, or "". The distance
// is at most 3 bytes and a third of the name.
func (s *Snapshot) hint(name string) string {
	if len(name) > maxHintBytes {
		return ""
	}
	best, least := "", min(len(name)/3, 3)+1
	for f := range s.families("", true) {
		if longer := len(f.name) - len(name); longer >= least || -longer >= least {
			continue
		}
		if d := levenshtein.ComputeDistance(name, f.name); d < least {
			best, least = f.name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// families yields the families from a name on, sorted by name. If listed is set, it leaves out
// versions that need a higher trust rank.
func (s *Snapshot) families(from string, listed bool) iter.Seq[*family] {
	return func(yield func(*family) bool) {
		for _, f := range s.candidates(from) {
			f = s.permitted(s.overlay.apply(f))
			if listed {
				f = s.listed(f)
			}
			if f != nil && !yield(f) {
				return
			}
		}
	}
}

// candidates yields the families of the base from a name on, sorted by name, that the overlay may
// include.
func (s *Snapshot) candidates(from string) iter.Seq2[string, *family] {
	if s.includesBase() {
		return s.base.families.Ascend(btreemap.GE(from), btreemap.Max[string]())
	}
	names := map[string]bool{}
	s.overlay.addNames(names)
	for name := range s.base.families.Ascend(btreemap.GE(CatalogPrefix), btreemap.LT(afterCatalogPrefix)) {
		names[name] = true
	}
	sorted := slices.Sorted(maps.Keys(names))
	i, _ := slices.BinarySearch(sorted, from)
	return func(yield func(string, *family) bool) {
		for _, name := range sorted[i:] {
			if !yield(name, s.base.family(name)) {
				return
			}
		}
	}
}

func (s *Snapshot) includesBase() bool { return s.overlay == nil || s.overlay.IncludeBase }

// Agents returns the listed tools, sorted by name, the newest version first. The caller
// must not change the slice.
func (s *Snapshot) Agents() []arcp.Agent {
	if s.overlay == nil && len(s.base.restricted) == 0 {
		if all := s.base.reg.inventory(s.base); all.rank <= s.rank {
			return all.agents
		}
	}
	list := []arcp.Agent{}
	for f := range s.families("", true) {
		list = append(list, f.agent)
	}
	return list
}

// Listed is a name in a catalogue.
type Listed struct {
	Agent arcp.Agent
	Tool  *Tool // the default version
}

// List yields the names after the name after that begin with a prefix, sorted. It leaves out tools
// that need a higher trust level, unless all is set.
func (s *Snapshot) List(after, prefix string, all bool) iter.Seq[Listed] {
	from := prefix
	if after >= prefix && after != "" {
		from = after + "\x00"
	}
	return func(yield func(Listed) bool) {
		for f := range s.families(from, !all) {
			if !strings.HasPrefix(f.name, prefix) || !yield(Listed{f.agent, f.def}) {
				return
			}
		}
	}
}

// Versions returns the listed versions of a name, the newest first.
func (s *Snapshot) Versions(name string) []string {
	if f := s.listed(s.family(name)); f != nil {
		return f.agent.Versions
	}
	return nil
}

// Difference is the change from one catalogue to another. Each list has references
// name@version, sorted by name.
type Difference struct {
	Added, Removed, Changed []string
}

// Empty reports whether nothing has changed.
func (d *Difference) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Since returns the changes of the listed tools since an earlier snapshot of the same catalogue.
// The cost grows with the number of changed names.
func (s *Snapshot) Since(old *Snapshot) (d Difference) {
	names := make(map[string]bool)
	if s.rank != old.rank || s.includesBase() != old.includesBase() {
		old.base.all(names)
		s.base.all(names)
	} else {
		s.base.changed(old.base, names)
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

func (d *Difference) compare(old, now *family) {
	if old == now {
		return
	}
	if old != nil {
		for _, t := range old.versions {
			if now == nil || now.version(t.Version) == nil {
				d.Removed = append(d.Removed, t.ref)
			}
		}
	}
	if now == nil {
		return
	}
	for _, t := range now.versions {
		var before *Tool
		if old != nil {
			before = old.version(t.Version)
		}
		switch {
		case before == nil:
			d.Added = append(d.Added, t.ref)
		case before != t && !reflect.DeepEqual(before.Capability, t.Capability):
			d.Changed = append(d.Changed, t.ref)
		}
	}
}
