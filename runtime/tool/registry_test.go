package tool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

func registry(t testing.TB, caps ...Capability) *Registry {
	t.Helper()
	r := NewRegistry()
	for _, c := range caps {
		if err := r.Register(raw(t, c, echo)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestReferenceResolvesToAVersion(t *testing.T) {
	r := registry(t,
		Capability{Name: "report", Version: "2.0.0"}, Capability{Name: "report", Version: "10.0.0"},
		Capability{Name: "report", Version: "10.0.0-rc1"},
		Capability{Name: "weather", Version: "1.0.0"}, Capability{Name: "weather", Version: "0.9.0", Default: true})
	for ref, want := range map[string]string{
		"report": "report@2.0.0", "report@10.0.0": "report@10.0.0", "report@2.0.0": "report@2.0.0",
		"weather": "weather@0.9.0", "weather@1.0.0": "weather@1.0.0",
	} {
		tool, err := r.Resolve(ref)
		if err != nil || tool.Ref() != want {
			t.Errorf("%s = %v, %v, want %s", ref, tool, err, want)
		}
	}
	for _, c := range []struct {
		ref     string
		code    arcp.Code
		message string
	}{
		{"raport", arcp.CodeAgentNotAvailable, `no tool or agent is named "raport"; did you mean "report"?`},
		{"weatherr@1", arcp.CodeAgentNotAvailable, `no tool or agent is named "weatherr"; did you mean "weather"?`},
		{"translate", arcp.CodeAgentNotAvailable, `no tool or agent is named "translate"`},
		{"w", arcp.CodeAgentNotAvailable, `no tool or agent is named "w"`},
		{"report@3", arcp.CodeAgentVersionNotAvailable, "report has no version 3; there are 10.0.0, 10.0.0-rc1, 2.0.0"},
		{"", arcp.CodeInvalidArgument, `agent reference "": the name must match [a-z0-9][a-z0-9._-]*`},
		{"Report", arcp.CodeInvalidArgument, `agent reference "Report": the name must match [a-z0-9][a-z0-9._-]*`},
		{"report@", arcp.CodeInvalidArgument, `agent reference "report@": the version must match [a-zA-Z0-9.+_-]+`},
	} {
		tool, err := r.Resolve(c.ref)
		wantError(t, c.ref, err, c.code, c.message)
		if tool != nil {
			t.Errorf("%s: a tool beside an error", c.ref)
		}
	}
	_, err := r.Resolve("report@3")
	if err == nil || string(err.Details) != `{"versions":["10.0.0","10.0.0-rc1","2.0.0"]}` {
		t.Errorf("details of an unknown version: %v", err)
	}
}

// Unknown names come from clients: the work and the text they cause are bounded.
func TestLongUnknownNames(t *testing.T) {
	name := strings.Repeat("a", 65)
	r := registry(t, Capability{Name: name})
	_, err := r.Resolve(name + "a")
	wantError(t, "65 characters", err, arcp.CodeAgentNotAvailable, `no tool or agent is named "`+name+`a"`)
	_, err = r.Resolve(strings.Repeat("a", 100_000))
	if err == nil || err.Code != arcp.CodeInvalidArgument || len(err.Message) > 600 {
		t.Errorf("a very long reference: %v", err)
	}
}

func TestToolsAreSortedByVersion(t *testing.T) {
	r := registry(t,
		Capability{Name: "weather", Version: "1.2.0"},
		Capability{Name: "report", Version: "1.9.0"}, Capability{Name: "report", Version: "1.10.0", Default: true},
		Capability{Name: "report", Version: "1.10.0-beta"})
	var agents []arcp.Agent
	for _, f := range r.State().Families("") {
		agents = append(agents, f.Agent)
	}
	want := []arcp.Agent{
		{Name: "report", Versions: []string{"1.10.0", "1.10.0-beta", "1.9.0"}, Default: "1.10.0"},
		{Name: "weather", Versions: []string{"1.2.0"}, Default: "1.2.0"},
	}
	if diff := cmp.Diff(want, agents); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
	var refs []string
	for _, tool := range r.Tools() {
		refs = append(refs, tool.Ref())
	}
	if diff := cmp.Diff([]string{"report@1.10.0", "report@1.10.0-beta", "report@1.9.0", "weather@1.2.0"}, refs); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if len(NewRegistry().Tools()) != 0 {
		t.Error("an empty registry has tools")
	}
}

func TestRegisterRefusesInvalidTools(t *testing.T) {
	r := registry(t, Capability{Name: "report", Default: true})
	for _, c := range []struct {
		why  string
		c    Capability
		want string
	}{
		{"the same again", Capability{Name: "report"}, "exists already"},
		{"a second default", Capability{Name: "report", Version: "2.0.0", Default: true}, "1.0.0 is the default already"},
	} {
		before := r.Tools()
		err := r.Register(raw(t, c.c, echo))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.why, err, c.want)
		}
		if diff := cmp.Diff(len(before), len(r.Tools())); diff != "" {
			t.Errorf("%s: it was added all the same", c.why)
		}
	}
}

func TestReservedNamesAreRefused(t *testing.T) {
	r := NewRegistry()
	for _, prefix := range Reserved {
		builtin := raw(t, Capability{Name: prefix + "x"}, echo)
		if err := r.Register(builtin); err == nil || !strings.Contains(err.Error(), "reserved") {
			t.Errorf("%s: error %v, want one about reserved names", builtin.Name, err)
		}
		if err := r.RegisterBuiltin(builtin); err != nil {
			t.Errorf("%s as a builtin: %v", builtin.Name, err)
		}
		if err := r.Register(raw(t, Capability{Name: strings.TrimSuffix(prefix, ".") + "-x"}, echo)); err != nil {
			t.Errorf("a name that only resembles %s: %v", prefix, err)
		}
	}
}

func TestRegisterWhileResolving(t *testing.T) {
	r := registry(t, Capability{Name: "base"})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 25 {
				if err := r.Register(raw(t, Capability{Name: fmt.Sprintf("t%d", i), Version: fmt.Sprintf("1.%d", j)}, echo)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 200 {
				if _, err := r.Resolve("base"); err != nil {
					t.Error(err)
				}
				if n := len(r.Tools()); n < 1 {
					t.Errorf("%d tools", n)
				}
			}
		})
	}
	wg.Wait()
	if got := len(r.Tools()); got != 101 {
		t.Errorf("%d tools, want 101", got)
	}
}

func TestReplaceIsAtomic(t *testing.T) {
	r := NewRegistry()
	named := func(name, version string) *Tool {
		t.Helper()
		made, err := NewRaw(Capability{Name: name, Version: version}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	a, b, c := named("a", "1.0.0"), named("b", "1.0.0"), named("b", "2.0.0")
	var seen []uint64
	r.Watch(func(g uint64) { seen = append(seen, g) })
	if err := errors.Join(r.Register(a), r.Replace("one", []*Tool{b})); err != nil {
		t.Fatal(err)
	}
	if err := r.Replace("one", []*Tool{b}); err != nil || r.Generation() != 2 {
		t.Fatalf("the same tools again: generation %d, %v; want 2", r.Generation(), err)
	}
	if err := r.Replace("two", []*Tool{b}); err == nil {
		t.Fatal("two sources have the same tool")
	}
	if err := r.Replace("two", []*Tool{named("demo.x", "1.0.0")}); err == nil {
		t.Fatal("a source has a reserved name")
	}
	if err := r.Replace("one", []*Tool{c}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resolve("b@1.0.0"); err == nil || err.Code != arcp.CodeAgentVersionNotAvailable {
		t.Fatalf("a version that was replaced: %v", err)
	}
	if err := r.Replace("one", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resolve("b"); err == nil || err.Code != arcp.CodeAgentNotAvailable {
		t.Fatalf("a tool that is gone: %v", err)
	}
	if want := []uint64{1, 2, 3, 4}; !slices.Equal(seen, want) || len(r.Tools()) != 1 {
		t.Fatalf("generations %v with %d tools, want %v with 1", seen, len(r.Tools()), want)
	}
}

// A state lists only the latest changes.
func TestChangesAreBounded(t *testing.T) {
	r := NewRegistry()
	if err := r.Replace("many", manyTools(t, 3*maxChanges)); err != nil {
		t.Fatal(err)
	}
	if n := len(r.State().changes); n > 2*maxChanges {
		t.Errorf("%d changes are listed, want at most %d", n, 2*maxChanges)
	}
}

// ReplaceAll lets a name move between sources in one generation, and an error changes nothing.
func TestReplaceAllIsOneStep(t *testing.T) {
	r := registry(t, Capability{Name: "own"})
	made := func(name string) *Tool { return raw(t, Capability{Name: name}, echo) }
	a, b, c := made("a"), made("b"), made("c")
	replace := func(sources map[string][]*Tool) error {
		t.Helper()
		return r.ReplaceAll(sources)
	}
	refs := func() (list []string) {
		for _, t := range r.Tools() {
			list = append(list, t.Name)
		}
		return list
	}
	if err := replace(map[string][]*Tool{"x": {a, b}, "y": {c}}); err != nil {
		t.Fatal(err)
	}
	generation := r.Generation()
	if err := replace(map[string][]*Tool{"x": {a, b}, "y": {c}}); err != nil || r.Generation() != generation {
		t.Errorf("the same tools: %v, generation %d, want %d", err, r.Generation(), generation)
	}
	moved := made("b")
	if err := replace(map[string][]*Tool{"x": {a}, "y": {moved}}); err != nil || r.Generation() != generation+1 {
		t.Errorf("a name moves: %v, generation %d, want %d", err, r.Generation(), generation+1)
	}
	if got, err := r.Resolve("b"); err != nil || got != moved || !slices.Equal(refs(), []string{"a", "b", "own"}) {
		t.Errorf("b is %v, %v, of %v", got, err, refs())
	}
	for want, sources := range map[string]map[string][]*Tool{
		"another source has tools": {"x": {made("new")}, "y": {made("own")}},
		"are reserved":             {"x": nil, "y": {made("jobs.x")}},
		"it exists already":        {"x": {made("d"), made("d")}},
	} {
		if err := replace(sources); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if !slices.Equal(refs(), []string{"a", "b", "own"}) || r.Generation() != generation+1 {
			t.Errorf("an error has changed the tools to %v", refs())
		}
	}
	if err := replace(map[string][]*Tool{"x": nil, "y": nil}); err != nil || !slices.Equal(refs(), []string{"own"}) {
		t.Errorf("removed: %v, left %v", err, refs())
	}
}
