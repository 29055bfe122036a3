package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/agnivade/levenshtein"
	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// model is the catalog in its simplest form: it computes every answer from lists.
type model struct {
	order      []string                // of the sources
	has        map[string][]*tool.Tool // by source
	generation uint64
}

func (m *model) all() (list []*tool.Tool) {
	for _, source := range m.order {
		list = append(list, m.has[source]...)
	}
	return list
}

// valid reports whether the sources may have their tools at the same time: a name belongs to
// one source.
func (m *model) valid() bool {
	refs, defaults, owners := map[string]bool{}, map[string]bool{}, map[string]string{}
	for source, list := range m.has {
		for _, t := range list {
			owner, owned := owners[t.Name]
			if refs[t.Ref()] || t.Default && defaults[t.Name] || owned && owner != source {
				return false
			}
			refs[t.Ref()], owners[t.Name] = true, source
			defaults[t.Name] = defaults[t.Name] || t.Default
		}
	}
	return true
}

// set replaces the tools of a source; false: the registry must refuse them.
func (m *model) set(source string, tools []*tool.Tool) bool {
	if slices.Equal(m.has[source], tools) {
		return true
	}
	next := model{order: m.order, has: maps.Clone(m.has)}
	if !slices.Contains(next.order, source) {
		next.order = append(slices.Clone(next.order), source)
	}
	next.has[source] = tools
	if !next.valid() {
		return false
	}
	if len(tools) == 0 {
		delete(next.has, source)
		next.order = slices.DeleteFunc(slices.Clone(next.order), func(s string) bool { return s == source })
	}
	m.order, m.has = next.order, next.has
	m.generation++
	return true
}

// visible returns the tools of a catalog, in their order.
func (m *model) visible(l *Overlay) (list []*tool.Tool) {
	for _, t := range m.all() {
		named := func(refs []string) bool { return slices.Contains(refs, t.Name) || slices.Contains(refs, t.Ref()) }
		speaks := func(refs []string) bool {
			return slices.ContainsFunc(refs, func(r string) bool { return r == t.Name || strings.HasPrefix(r, t.Name+"@") })
		}
		switch {
		case l == nil:
		case named(l.Hide):
			continue
		case speaks(l.Tools):
			if !named(l.Tools) {
				continue
			}
		case !l.IncludeBase && !strings.HasPrefix(t.Name, Prefix):
			continue
		}
		list = append(list, t)
	}
	return list
}

func agentsOf(list []*tool.Tool, rank int) (agents []arcp.Agent) {
	byName := map[string][]*tool.Tool{}
	for _, t := range list {
		if t.MinTrust.Rank() <= rank {
			byName[t.Name] = append(byName[t.Name], t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		def := defaultOf(byName[name])
		var versions []string
		for _, t := range byName[name] {
			versions = append(versions, t.Version)
		}
		slices.SortFunc(versions, func(a, b string) int { return cmp.Compare(b, a) })
		agents = append(agents, arcp.Agent{Name: name, Versions: versions, Default: def.Version})
	}
	return agents
}

func defaultOf(list []*tool.Tool) *tool.Tool {
	if i := slices.IndexFunc(list, func(t *tool.Tool) bool { return t.Default }); i >= 0 {
		return list[i]
	}
	return list[0]
}

func (m *model) resolve(list []*tool.Tool, ref string) *tool.Tool {
	var family []*tool.Tool
	for _, t := range list {
		if t.Ref() == ref {
			return t
		}
		if t.Name == ref {
			family = append(family, t)
		}
	}
	if len(family) > 0 {
		return defaultOf(family)
	}
	return nil
}

// modelNames are few, so that operations collide.
var modelNames = []string{"a", "b", "c", "tools.x", "tools.y"}

// trustLevels are the zero value and all levels, ascending.
var trustLevels = slices.Concat([]arcp.TrustLevel{""}, arcp.TrustLevels)

func modelRefs() (refs []string) {
	for _, name := range modelNames {
		refs = append(refs, name, name+"@1", name+"@2", name+"@3")
	}
	return refs
}

// modelTools returns three versions of each name, with and without Default.
func modelTools(t *testing.T) (tools []*tool.Tool) {
	for _, name := range modelNames {
		for v := range 3 {
			for _, def := range []bool{false, true} {
				tools = append(tools, raw(t, tool.Capability{Name: name, Version: fmt.Sprint(v + 1), Default: def, MinTrust: trustLevels[v*2]}, echo))
			}
		}
	}
	return tools
}

// After any sequence of registrations, replacements, removals, overlays and hidden tools,
// every query of the catalog returns the model's answer. A snapshot that was composed
// earlier does not change.
func TestCatalogFollowsTheModel(t *testing.T) {
	pool, refs := modelTools(t), modelRefs()
	hidable := slices.DeleteFunc(slices.Clone(refs), func(r string) bool { return strings.HasPrefix(r, Prefix) })
	rapid.Check(t, func(rt *rapid.T) {
		reg := tool.NewRegistry()
		cat := New(reg, nil)
		m := &model{has: map[string][]*tool.Tool{}}
		ordinary := slices.DeleteFunc(slices.Clone(pool), func(t *tool.Tool) bool { return strings.HasPrefix(t.Name, Prefix) })
		var overlay *Overlay
		held := cat.Snapshot(Viewer{Trust: "privileged"}, nil)
		var heldAgents []arcp.Agent
		rt.Repeat(map[string]func(*rapid.T){
			"register": func(rt *rapid.T) {
				picked := rapid.SampledFrom(pool).Draw(rt, "tool")
				want := m.set("", append(slices.Clone(m.has[""]), picked))
				if err := reg.RegisterBuiltin(picked); (err == nil) != want {
					rt.Fatalf("register %s: %v, the model says %v", picked.Ref(), err, want)
				}
			},
			"replace": func(rt *rapid.T) {
				source := rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "source")
				tools := rapid.SliceOfN(rapid.SampledFrom(ordinary), 0, 4).Draw(rt, "tools")
				want := m.set(source, tools)
				if err := reg.Replace(source, tools); (err == nil) != want {
					rt.Fatalf("replace %s: %v, the model says %v", source, err, want)
				}
			},
			"delta": func(rt *rapid.T) {
				put, remove := rapid.SampledFrom(ordinary).Draw(rt, "put"), rapid.SampledFrom(refs).Draw(rt, "remove")
				applyDelta(rt, reg, m, put, remove)
			},
			"overlay": func(rt *rapid.T) {
				o := Overlay{IncludeBase: rapid.Bool().Draw(rt, "base"), Tools: rapid.SliceOfN(rapid.SampledFrom(refs), 0, 3).Draw(rt, "tools"),
					Hide: rapid.SliceOfN(rapid.SampledFrom(hidable), 0, 3).Draw(rt, "hide")}
				next, err := ParseOverlay(o)
				if err != nil {
					rt.Fatalf("%+v: %v", o, err)
				}
				_, err = cat.Check(Viewer{}, next)
				there := next == nil || !slices.ContainsFunc(next.Tools, func(ref string) bool { return m.resolve(m.all(), ref) == nil })
				if (err == nil) != there {
					rt.Fatalf("an overlay of %v: %v, the model says %v", o.Tools, err, there)
				}
				overlay = next
			},
			"hold": func(*rapid.T) {
				held = cat.Snapshot(Viewer{Trust: "privileged"}, overlay)
				heldAgents = held.Agents()
			},
			"": func(rt *rapid.T) {
				if got := reg.Generation(); got != m.generation {
					rt.Fatalf("generation %d, want %d: every real change is one", got, m.generation)
				}
				if diff := gocmp.Diff(append([]arcp.Agent{}, heldAgents...), append([]arcp.Agent{}, held.Agents()...)); diff != "" {
					rt.Fatalf("a catalog that is held has changed:\n%s", diff)
				}
				for rank, level := range trustLevels {
					checkAgainstModel(rt, m, overlay, cat.Snapshot(Viewer{Trust: level}, overlay), rank)
				}
				now := cat.Snapshot(Viewer{Trust: "privileged"}, overlay)
				checkDifference(rt, held, now)
			},
		})
	})
}

// applyDelta applies a delta for the current or the next generation of the registry, and to the model.
func applyDelta(rt *rapid.T, reg *tool.Registry, m *model, put *tool.Tool, remove string) {
	expected := reg.Generation() + rapid.Uint64Range(0, 1).Draw(rt, "later")
	err := reg.Apply(tool.Delta{SourceName: "one", Generation: expected, Put: []*tool.Tool{put}, Remove: []string{remove}})
	if expected != m.generation {
		if e, ok := err.(*arcp.Error); !ok || e.Code != arcp.CodeFailedPrecondition ||
			string(e.Details) != fmt.Sprintf(`{"expected":%d,"actual":%d}`, expected, m.generation) {
			rt.Fatalf("a delta of generation %d at %d: %v", expected, m.generation, err)
		}
		return
	}
	next := slices.DeleteFunc(slices.Clone(m.has["one"]), func(t *tool.Tool) bool { return t.Ref() == remove || t.Ref() == put.Ref() })
	if want := m.set("one", append(next, put)); (err == nil) != want {
		rt.Fatalf("delta: %v, the model says %v", err, want)
	}
}

func checkAgainstModel(rt *rapid.T, m *model, l *Overlay, s *Snapshot, rank int) {
	list := m.visible(l)
	for _, ref := range modelRefs() {
		got, err := s.Resolve(ref)
		want := m.resolve(list, ref)
		if got != want || (err == nil) != (want != nil) {
			rt.Fatalf("%s is %v, %v; the model says %v", ref, got, err, want)
		}
		if name, _, _ := strings.Cut(ref, "@"); err != nil && m.resolve(list, name) == nil && !m.near(list, name, rank) &&
			strings.Contains(err.Message, "did you mean") {
			rt.Fatalf("%s: %s: nothing like it is there", ref, err.Message)
		}
	}
	want := agentsOf(list, rank)
	if diff := gocmp.Diff(append([]arcp.Agent{}, want...), append([]arcp.Agent{}, s.Agents()...)); diff != "" {
		rt.Fatalf("rank %d: the inventory (-model +got):\n%s", rank, diff)
	}
	for _, prefix := range []string{"", "b", "tools."} {
		var got []string
		for after, more := "", true; more; { // a page each
			more = false
			for l := range s.List(after, prefix, false) {
				got, after, more = append(got, l.Agent.Name), l.Agent.Name, true
				break
			}
		}
		var names []string
		for _, a := range want {
			if strings.HasPrefix(a.Name, prefix) {
				names = append(names, a.Name)
			}
		}
		if !slices.Equal(got, names) {
			rt.Fatalf("pages of one with the prefix %q: %v, want %v", prefix, got, names)
		}
	}
}

// near reports whether a hint may suggest an existing name.
func (m *model) near(list []*tool.Tool, name string, rank int) bool {
	return slices.ContainsFunc(agentsOf(list, rank),
		func(a arcp.Agent) bool { return levenshtein.ComputeDistance(name, a.Name) <= min(len(name)/3, 3) })
}

func checkDifference(rt *rapid.T, old, now *Snapshot) {
	flat := func(s *Snapshot) map[string]bool {
		m := map[string]bool{}
		for _, a := range s.Agents() {
			for _, v := range a.Versions {
				m[a.Name+"@"+v] = true
			}
		}
		return m
	}
	a, b := flat(old), flat(now)
	d := now.Since(old)
	for _, c := range []struct {
		name     string
		got      []string
		in, from map[string]bool
	}{{"added", d.Added, b, a}, {"removed", d.Removed, a, b}} {
		var want []string
		for ref := range c.in {
			if !c.from[ref] {
				want = append(want, ref)
			}
		}
		if got := slices.Sorted(slices.Values(c.got)); !slices.Equal(got, slices.SortedFunc(slices.Values(want), cmp.Compare)) {
			rt.Fatalf("%s %v, want %v", c.name, got, want)
		}
	}
}
