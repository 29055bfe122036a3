package resourceservice

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/resources"
)

// stringsOf are the strings of a decoded value, names of members too.
func stringsOf(v any, all map[string]bool) {
	switch v := v.(type) {
	case string:
		all[v] = true
	case []any:
		for _, e := range v {
			stringsOf(e, all)
		}
	case map[string]any:
		for name, e := range v {
			all[name] = true
			stringsOf(e, all)
		}
	}
}

func values(depth int) *rapid.Generator[any] {
	if depth == 0 {
		return rapid.Custom(func(t *rapid.T) any {
			if rapid.Bool().Draw(t, "number") {
				return rapid.Int32().Draw(t, "n")
			}
			return rapid.SampledFrom([]string{"", "x", `a"b`, `\`, `\"`, "é", "\u0000", "😀", "</script>", "{", "]"}).Draw(t, "s")
		})
	}
	inner := values(depth - 1)
	return rapid.OneOf(inner,
		rapid.Map(rapid.SliceOfN(inner, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"k", `q"`, "\n", "ü"}), inner, 0, 3), func(m map[string]any) any { return m }))
}

func TestEveryStringIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := values(3).Draw(t, "value")
		raw, err := arcp.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string]bool{}, map[string]bool{}
		stringsOf(v, want)
		eachString(raw, func(text []byte, plain bool) bool {
			var s string
			if err := arcp.Unmarshal(text, &s); err != nil || plain != (s == string(text[1:len(text)-1])) {
				t.Fatalf("%s: plain %v, %v", text, plain, err)
			}
			got[s] = true
			return true
		})
		if !maps.Equal(got, want) {
			t.Fatalf("%s has %q, want %q", raw, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	})
	for _, broken := range []string{``, `"`, `"a`, `"a\`, `"a\"`, `"\u12`, `"\x"`} {
		eachString(arcp.Raw(broken), func([]byte, bool) bool { return true }) // comes to an end
	}
}

func TestNamesAreBounded(t *testing.T) {
	due := []resources.Lease{{ID: "lease_1", Holder: resources.Holder{Principal: "alice"}},
		{ID: "lease_2", Holder: resources.Holder{Principal: "bob"}}}
	n := newNameSearch(due)
	n.search("carol", arcp.Raw(`"lease_1"`))
	large := arcp.Raw(`"` + strings.Repeat("x", 1<<20) + `"`)
	for range maxNamedBytes >> 20 {
		n.search("alice", large)
	}
	if len(n.found) != 1 || !n.found["lease_1"] {
		t.Errorf("found %v, want that of alice: nobody has looked at all she has", n.found)
	}
}

// Strings with escapes cost more, however short, and count so.
func TestEscapesAreBounded(t *testing.T) {
	due := func() *nameSearch {
		return newNameSearch([]resources.Lease{{ID: "lease_1", Holder: resources.Holder{Principal: "alice"},
			Identity: resources.Identity{ExternalID: "é\n"}}})
	}
	n := due()
	n.search("alice", arcp.Raw(`["`+strings.Repeat(`\n`, maxNameText)+`","\u00e9"]`))
	if len(n.found) != 0 {
		t.Errorf("found %v: another name", n.found)
	}
	n.search("alice", arcp.Raw(`{"a":["\u00e9\u000a"]}`))
	if !n.found["lease_1"] {
		t.Error("a name that is written with escapes is not found")
	}
	n = due()
	n.search("alice", arcp.Raw("["+strings.Repeat(`"\t",`, maxNamedBytes/unescapeBytes)+`""]`))
	if !n.found["lease_1"] || n.bytes["alice"] > maxNamedBytes+unescapeBytes {
		t.Errorf("found %v after %d bytes, want the look through to have ended", n.found, n.bytes["alice"])
	}
}

// The authority of a lease's clean-up tool is hidden.
func TestViewLease(t *testing.T) {
	l := resources.Lease{ID: "lease_1", CleanupTool: "vm.delete",
		Holder: resources.Holder{Principal: "alice", Authority: arcp.Raw(`{"trust":"privileged"}`)}}
	raw, err := arcp.Marshal(ViewLease(&l))
	if err != nil || strings.Contains(string(raw), "privileged") || !strings.Contains(string(raw), "vm.delete") {
		t.Errorf("ViewLease is encoded as %s, %v; want the clean-up tool and no authority", raw, err)
	}
}

func TestAcquireReapSerializesPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{}
		running, most, done := 0, 0, 0
		for range 5 {
			go func() {
				leave, err := s.AcquireReap(t.Context(), "alice")
				if err != nil {
					t.Error(err)
					return
				}
				running++ // AcquireReap excludes the others: no lock is needed
				most = max(most, running)
				time.Sleep(time.Second)
				running, done = running-1, done+1
				leave()
			}()
		}
		synctest.Wait()
		if leave, err := s.AcquireReap(t.Context(), "bob"); err != nil {
			t.Errorf("another's: %v", err)
		} else {
			leave()
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no time"))
		if _, err := s.AcquireReap(ctx, "alice"); err == nil || err.Error() != "no time" {
			t.Errorf("error %v of who does not want to wait", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if most != 1 || done != 5 || len(s.reaping) != 0 {
			t.Errorf("%d at once, %d done, %d kept", most, done, len(s.reaping))
		}
	})
}
