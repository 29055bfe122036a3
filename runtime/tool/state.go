package tool

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// shards is into how many parts the names of a catalogue are divided. A change
// copies those that it touches and the table of all, 6 KiB: with 10,000 names
// each has 40.
const shards = 256

// catalogue is one immutable state of a registry. What two states have in common
// they share, so many may be held at the same time.
type catalogue struct {
	reg        *Registry
	generation uint64
	restricted []*Tool           // tools that exist for some principals only
	shard      [shards][]*family // each sorted by name
}

// family is all versions of a name. It is immutable.
type family struct {
	name     string
	entries  []entry // in the order in which they came
	versions []*Tool // the newest first
	def      *Tool   // what the bare name means
	agent    arcp.Agent
	need     int // the rank of trust that is enough for all versions

	restricted bool // there are versions that exist for some principals only
}

// entry is a tool with its place among all.
type entry struct {
	tool  *Tool
	order uint64 // of its source
	index int    // there
}

var seed = maphash.MakeSeed()

func shardOf(name string) int { return int(maphash.String(seed, name) % shards) }

func (c *catalogue) family(name string) *family {
	list := c.shard[shardOf(name)]
	if i, ok := findFamily(list, name); ok {
		return list[i]
	}
	return nil
}

func findFamily(list []*family, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(f *family, name string) int { return strings.Compare(f.name, name) })
}

// version returns one of the versions; nil if there is none.
func (f *family) version(v string) *Tool {
	for _, t := range f.versions {
		if t.Version == v {
			return t
		}
	}
	return nil
}

// pick returns the version that a reference names, or the default one; nil if there
// is none.
func (f *family) pick(version string, pinned bool) *Tool {
	switch {
	case f == nil:
		return nil
	case !pinned:
		return f.def
	}
	return f.version(version)
}

// newFamily puts the versions of a name together. The error says which of them
// cannot be there.
func newFamily(name string, entries []entry) (*family, error) {
	f := &family{name: name, entries: entries}
	for _, e := range entries {
		t := e.tool
		if t.Default && f.def != nil && f.def.Default && f.def.Version != t.Version {
			return nil, &TakenError{t.ref, fmt.Errorf("version %s is the default already", f.def.Version)}
		}
		if f.def == nil || t.Default {
			f.def = t
		}
		f.versions = append(f.versions, t)
		f.need = max(f.need, t.need())
		f.restricted = f.restricted || t.Audience != nil
	}
	slices.SortFunc(f.versions, func(a, b *Tool) int { return compareVersions(b.Version, a.Version) })
	for i, t := range f.versions[1:] {
		if t.Version == f.versions[i].Version {
			return nil, &TakenError{t.ref, errors.New("it exists already")}
		}
	}
	f.agent = arcp.Agent{Name: name, Versions: refVersions(f.versions), Default: f.def.Version}
	return f, nil
}

func refVersions(tools []*Tool) []string {
	versions := make([]string, len(tools))
	for i, t := range tools {
		versions[i] = t.Version
	}
	return versions
}

// part is the family with those versions that keep returns true for; nil: none.
func (f *family) part(keep func(*Tool) bool) *family {
	var kept []entry
	for _, e := range f.entries {
		if keep(e.tool) {
			kept = append(kept, e)
		}
	}
	switch len(kept) {
	case 0:
		return nil
	case len(f.entries):
		return f
	}
	p, err := newFamily(f.name, kept)
	if err != nil { // the whole was one
		panic("tool: " + err.Error())
	}
	return p
}

// edit is the next state of a registry while it is being made.
type edit struct {
	next  *catalogue
	owned [shards]bool // copied already
}

func newEdit(c *catalogue) *edit {
	next := *c
	return &edit{next: &next}
}

// own returns a shard that may be changed.
func (e *edit) own(i int) []*family {
	if !e.owned[i] {
		e.next.shard[i], e.owned[i] = slices.Clone(e.next.shard[i]), true
	}
	return e.next.shard[i]
}

// put adds a tool.
func (e *edit) put(t *Tool, order uint64, index int) error {
	s := shardOf(t.Name)
	list := e.own(s)
	i, found := findFamily(list, t.Name)
	var entries []entry
	if found {
		entries = list[i].entries
		if entries[0].order != order { // what the bare name means must not depend on who comes first
			return &TakenError{t.ref, errors.New("another source has tools of this name")}
		}
	}
	at, _ := slices.BinarySearchFunc(entries, entry{nil, order, index}, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.index, b.index))
	})
	f, err := newFamily(t.Name, slices.Insert(slices.Clone(entries), at, entry{t, order, index}))
	switch {
	case err != nil:
		return err
	case found:
		list[i] = f
	default:
		e.next.shard[s] = slices.Insert(list, i, f)
	}
	if t.Audience != nil {
		e.next.restricted = append(slices.Clip(e.next.restricted), t)
	}
	return nil
}

// drop removes a tool.
func (e *edit) drop(t *Tool) {
	s := shardOf(t.Name)
	list := e.own(s)
	i, found := findFamily(list, t.Name)
	if !found {
		return
	}
	if t.Audience != nil {
		e.next.restricted = slices.DeleteFunc(slices.Clone(e.next.restricted), func(o *Tool) bool { return o == t })
	}
	if f := list[i].part(func(o *Tool) bool { return o != t }); f != nil {
		list[i] = f
	} else {
		e.next.shard[s] = slices.Delete(list, i, i+1)
	}
}

// listing is the names of a state in order. It is not part of it: jobs hold on
// to states, and need no lists.
type listing struct {
	of       *catalogue
	families []*family
	agents   []arcp.Agent
	tools    []*Tool
	need     int // the rank of trust that is enough for all
}

// listed returns the listing of a state; that of the newest is kept.
func (r *Registry) listed(c *catalogue) *listing {
	if l := r.latest.Load(); l != nil && l.of == c {
		return l
	}
	l := &listing{of: c}
	for _, shard := range c.shard {
		l.families = append(l.families, shard...)
	}
	slices.SortFunc(l.families, func(a, b *family) int { return strings.Compare(a.name, b.name) })
	for _, f := range l.families {
		l.agents = append(l.agents, f.agent)
		l.tools = append(l.tools, f.versions...)
		l.need = max(l.need, f.need)
	}
	if c == r.state.Load() {
		r.latest.Store(l)
	}
	return l
}
