package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/runtime/tool"
)

// A tool exists only for the principals of its Audience, with every version, overlay and query.
func TestToolIsVisibleOnlyToItsAudience(t *testing.T) {
	reg := tool.NewRegistry()
	named := func(ref string, principal string) *tool.Tool {
		name, version, _ := strings.Cut(ref, "@")
		c := tool.Capability{Name: name, Version: version}
		if principal != "" {
			c.Audience = func(asking string) bool { return asking == principal }
		}
		return raw(t, c, echo)
	}
	a1, a2, b, c := named("a@1.0.0", ""), named("a@2.0.0", "alice"), named("secret@1.0.0", "alice"), named("c@1.0.0", "")
	if err := errors.Join(reg.Register(c), reg.Replace("x", []*tool.Tool{a1, a2, b})); err != nil {
		t.Fatal(err)
	}
	cat := New(reg, nil)
	overlay, refused := ParseOverlay(Overlay{Tools: []string{"a", "secret", "c"}})
	if refused != nil {
		t.Fatal(refused)
	}
	versions := map[string]int{"alice": 2, "bob": 1}
	for _, l := range []*Overlay{nil, overlay} {
		for principal, want := range map[string]string{"alice": "a c secret", "bob": "a c"} {
			v := Viewer{Trust: "trusted", Principal: principal}
			s := cat.Snapshot(v, l)
			var names []string
			for _, agent := range s.Agents() {
				names = append(names, agent.Name)
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s is shown %q with the overlay %v, want %q", principal, got, l, want)
			}
			if _, err := s.Resolve("secret"); (err == nil) != (principal == "alice") {
				t.Errorf("%s: secret: %v", principal, err)
			}
			if _, err := s.Resolve("secrat"); strings.Contains(err.Message, "secret") != (principal == "alice") {
				t.Errorf("%s is told: %s", principal, err.Message)
			}
			if got := len(s.Versions("a")); got != versions[principal] {
				t.Errorf("%s sees %d versions of a", principal, got)
			}
			if s != cat.Snapshot(v, l) {
				t.Errorf("%s: the same catalog is composed again", principal)
			}
		}
	}
	if err := reg.Replace("x", []*tool.Tool{a1}); err != nil {
		t.Fatal(err)
	}
	if x, y := cat.Snapshot(Viewer{Principal: "alice"}, nil), cat.Snapshot(Viewer{Principal: "bob"}, nil); x != y {
		t.Error("nothing is for some only, and yet a catalog is composed for each")
	}
}
