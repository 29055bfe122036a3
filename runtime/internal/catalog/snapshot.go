package catalog

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agentref"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Snapshot is the immutable catalog of one viewer: a state of the registry, an overlay and the
// hooks. A job uses one Snapshot until its end. Only the results of tool.Capability.Audience may
// change meanwhile.
type Snapshot struct {
	catalog   *Catalog
	base      *tool.State
	hooks     *hooks
	overlay   *Overlay     // nil: no overlay
	rank      int          // trust rank of the viewer; tools that need a higher rank are not listed
	principal string       // empty if no tool of the base is restricted
	refused   []*tool.Tool // restricted tools that did not exist for the principal at the creation of the snapshot
}

// Generation returns the generation of the registry.
func (s *Snapshot) Generation() uint64 { return s.base.Generation() }

// family returns the versions of a name that exist for the principal now, or nil.
func (s *Snapshot) family(name string) *tool.Family {
	return s.permitted(s.overlay.apply(s.base.Family(name)))
}

func (s *Snapshot) permitted(f *tool.Family) *tool.Family {
	if f == nil || !f.Restricted {
		return f
	}
	return f.Without(func(t *tool.Tool) bool { return !t.VisibleTo(s.principal) })
}

// initial returns the versions of a name that existed for the principal at the creation of the
// snapshot: the Audience of a removed tool cannot be called any more.
func (s *Snapshot) initial(name string) *tool.Family {
	f := s.overlay.apply(s.base.Family(name))
	if f == nil || !f.Restricted {
		return f
	}
	return f.Without(func(t *tool.Tool) bool { return slices.Contains(s.refused, t) })
}

// listed returns a family without the versions that need a higher trust rank, or nil.
func (s *Snapshot) listed(f *tool.Family) *tool.Family {
	if f == nil || f.TrustRank <= s.rank {
		return f
	}
	return f.Without(func(t *tool.Tool) bool { return t.MinTrust.Rank() > s.rank })
}

// Resolve returns the tool of an agent reference, as tool.Registry.Resolve does. A hidden tool does
// not exist. A tool that needs a higher trust level exists, so the caller can report the missing
// level, but no hint names the tool.
func (s *Snapshot) Resolve(ref string) (*tool.Tool, *arcp.Error) {
	name, version, pinned := strings.Cut(ref, "@")
	f := s.family(name)
	if t := f.Resolve(version, pinned); t != nil {
		return t, nil
	}
	return nil, agentref.NotFound(ref, versions(s.listed(f)), s.listedNames)
}

// listedNames yields the listed names, sorted.
func (s *Snapshot) listedNames(yield func(string) bool) {
	for f := range s.families("", true) {
		if !yield(f.Agent.Name) {
			return
		}
	}
}

// families yields the families from a name on, sorted by name. If listed is set, it leaves out
// versions that need a higher trust rank.
func (s *Snapshot) families(from string, listed bool) iter.Seq[*tool.Family] {
	return func(yield func(*tool.Family) bool) {
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
func (s *Snapshot) candidates(from string) iter.Seq2[string, *tool.Family] {
	if s.includesBase() {
		return s.base.Families(from)
	}
	names := map[string]bool{}
	s.overlay.addNames(names)
	for name := range s.base.Families(Prefix) {
		if !strings.HasPrefix(name, Prefix) {
			break
		}
		names[name] = true
	}
	sorted := slices.Sorted(maps.Keys(names))
	i, _ := slices.BinarySearch(sorted, from)
	return func(yield func(string, *tool.Family) bool) {
		for _, name := range sorted[i:] {
			if !yield(name, s.base.Family(name)) {
				return
			}
		}
	}
}

func (s *Snapshot) includesBase() bool { return s.overlay == nil || s.overlay.IncludeBase }

// Agents returns the listed tools, sorted by name, the newest version first. The caller
// must not change the slice.
func (s *Snapshot) Agents() []arcp.Agent {
	if s.overlay == nil && len(s.base.Restricted()) == 0 {
		if all := s.catalog.inventory(s.base); all.rank <= s.rank {
			return all.agents
		}
	}
	list := []arcp.Agent{}
	for f := range s.families("", true) {
		list = append(list, f.Agent)
	}
	return list
}

// Listed is a name in a catalog.
type Listed struct {
	Agent arcp.Agent
	Tool  *tool.Tool // the default version
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
			if !strings.HasPrefix(f.Agent.Name, prefix) || !yield(Listed{f.Agent, f.Default}) {
				return
			}
		}
	}
}

// Versions returns the listed versions of a name, the newest first.
func (s *Snapshot) Versions(name string) []string {
	return versions(s.listed(s.family(name)))
}

func versions(f *tool.Family) []string {
	if f == nil {
		return nil
	}
	return f.Agent.Versions
}
