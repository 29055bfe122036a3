package tool

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/agnivade/levenshtein"

	"github.com/arcpd/arcpd/arcp"
)

// Snapshot is a catalogue as it is for somebody at a moment: the base, what an
// overlay makes of it, and the hooks. It never changes, and it is small: what it
// has in common with others they share. A job holds on to its own to its end.
type Snapshot struct {
	base      *catalogue
	rank      int                // of trust: what needs more is not listed
	principal string             // for whom it is; empty: nothing in base is for some only
	refused   []*Tool            // what did not exist for it then; whether it does is asked anew each time
	layer     *Layer             // nil: none
	laid      map[string]*family // the names that it speaks of; nil: hidden
	names     []string           // of laid, those that are there
	hooks     *hooks
}

// Generation is the registry's when the snapshot was made.
func (s *Snapshot) Generation() uint64 { return s.base.generation }

// Layer is the overlay; nil: none.
func (s *Snapshot) Layer() *Layer { return s.layer }

// family returns what there is of a name; nil: nothing.
func (s *Snapshot) family(name string) *family { return s.existing(s.anybodys(name)) }

// existing is a family without what does not exist for the principal.
func (s *Snapshot) existing(f *family) *family {
	if f == nil || !f.restricted {
		return f
	}
	return f.part(func(t *Tool) bool { return t.May(s.principal) })
}

// then is what there was of a name when the snapshot was made: of a tool that is
// gone nobody can say any more for whom it was.
func (s *Snapshot) then(name string) *family {
	f := s.anybodys(name)
	if f == nil || !f.restricted {
		return f
	}
	return f.part(func(t *Tool) bool { return !slices.Contains(s.refused, t) })
}

// anybodys returns what there is of a name for one principal or another.
func (s *Snapshot) anybodys(name string) *family {
	if s.layer == nil {
		return s.base.family(name)
	}
	if f, ok := s.laid[name]; ok {
		return f
	}
	if !s.layer.IncludeBase && !strings.HasPrefix(name, Own) {
		return nil
	}
	return s.base.family(name)
}

// seen is a family as it is listed: without what needs more trust.
func (s *Snapshot) seen(f *family) *family {
	if f == nil || f.need <= s.rank {
		return f
	}
	return f.part(func(t *Tool) bool { return t.need() <= s.rank })
}

// Resolve returns the tool an agent reference names, as Registry.Resolve does. A
// tool that is hidden does not exist. One that needs more trust does, so that who
// wants to call it can be told what is missing; nothing but its own name leads to it.
func (s *Snapshot) Resolve(ref string) (*Tool, *arcp.Error) {
	name, version, pinned := strings.Cut(ref, "@")
	if t := s.family(name).pick(version, pinned); t != nil {
		return t, nil
	}
	return nil, s.unresolved(ref)
}

func (s *Snapshot) unresolved(ref string) *arcp.Error {
	parsed, err := arcp.ParseAgentRef(ref)
	if err != nil {
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s", cutTo(err.Error(), 2*arcp.MaxIDLen))
	}
	f := s.seen(s.family(parsed.Name))
	if f == nil {
		return arcp.Errorf(arcp.CodeAgentNotAvailable, "no tool or agent is named %q%s", parsed.Name, s.hint(parsed.Name))
	}
	return arcp.Errorf(arcp.CodeAgentVersionNotAvailable, "%s has no version %s; there are %s",
		parsed.Name, parsed.Version, strings.Join(f.agent.Versions, ", ")).WithDetails(struct {
		Versions []string `json:"versions"`
	}{f.agent.Versions})
}

// maxHintBytes bounds the work an unknown name can cause.
const maxHintBytes = 64

// hint names the listed name that differs least, by a slip of the hand at most:
// 3 bytes, and a third of the name.
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

// families yields the families from a name on, sorted; with listed only what is
// listed of them.
func (s *Snapshot) families(from string, listed bool) iter.Seq[*family] {
	return func(yield func(*family) bool) {
		for f := range s.there(from) {
			f = s.existing(f)
			if listed {
				f = s.seen(f)
			}
			if f != nil && !yield(f) {
				return
			}
		}
	}
}

// there yields what family finds for every name from one on.
func (s *Snapshot) there(from string) iter.Seq[*family] {
	all := s.base.reg.listed(s.base).families
	i, _ := findFamily(all, from)
	all = all[i:]
	if s.layer == nil {
		return slices.Values(all)
	}
	if s.layer.IncludeBase {
		return func(yield func(*family) bool) {
			for _, f := range all {
				if f := s.family(f.name); f != nil && !yield(f) {
					return
				}
			}
		}
	}
	names := slices.Concat(s.names, s.ownNames())
	slices.Sort(names)
	names = slices.Compact(names)
	i, _ = slices.BinarySearch(names, from)
	return func(yield func(*family) bool) {
		for _, name := range names[i:] {
			if f := s.family(name); f != nil && !yield(f) {
				return
			}
		}
	}
}

// ownNames are the names that no overlay takes away.
func (s *Snapshot) ownNames() (names []string) {
	all := s.base.reg.listed(s.base).families
	i, _ := findFamily(all, Own)
	for _, f := range all[i:] {
		if !strings.HasPrefix(f.name, Own) {
			break
		}
		names = append(names, f.name)
	}
	return names
}

// Agents returns what is listed, sorted by name, the newest version first. It
// must not be changed.
func (s *Snapshot) Agents() []arcp.Agent {
	if l := s.base.reg.listed(s.base); s.layer == nil && len(s.base.restricted) == 0 && l.need <= s.rank {
		return l.agents
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
	Tool  *Tool // what the bare name means
}

// List yields the names behind one, sorted, which begin with a prefix. What needs
// more trust is left out unless all is set.
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

// Versions returns what is listed of a name, the newest first.
func (s *Snapshot) Versions(name string) []string {
	if f := s.seen(s.family(name)); f != nil {
		return f.agent.Versions
	}
	return nil
}

// Difference is how a catalogue has become another one: name@version each, sorted.
type Difference struct {
	Added, Removed, Changed []string
}

// Empty reports whether there is none.
func (d *Difference) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Since says what is listed that was not in an earlier snapshot, and the other
// way round. What both share is not looked at.
func (s *Snapshot) Since(old *Snapshot) (d Difference) {
	for _, name := range s.suspects(old) {
		d.compare(old.seen(old.then(name)), s.seen(s.then(name)))
	}
	return d
}

// suspects are the names, sorted, that may have changed.
func (s *Snapshot) suspects(old *Snapshot) []string {
	names := make(map[string]bool)
	all := s.rank != old.rank || s.includes() != old.includes()
	for i := range shards {
		a, b := old.base.shard[i], s.base.shard[i]
		if !all && len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b) {
			continue
		}
		for _, f := range slices.Concat(a, b) {
			names[f.name] = true
		}
	}
	if !s.layer.Same(old.layer) {
		for name := range old.laid {
			names[name] = true
		}
		for name := range s.laid {
			names[name] = true
		}
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (s *Snapshot) includes() bool { return s.layer == nil || s.layer.IncludeBase }

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
