package catalog

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/runtime/tool"
)

func manyTools(t testing.TB, n int) []*tool.Tool {
	tools := make([]*tool.Tool, n)
	for i := range tools {
		tools[i] = raw(t, tool.Capability{Name: fmt.Sprintf("tool-%05d", i)}, echo)
	}
	return tools
}

// overlaysOf returns n different overlays. Each hides a tool and pins another.
func overlaysOf(t testing.TB, n, tools int) []*Overlay {
	list := make([]*Overlay, n)
	for i := range list {
		l, err := ParseOverlay(Overlay{IncludeBase: true, Hide: []string{fmt.Sprintf("tool-%05d", i%tools)},
			Tools: []string{fmt.Sprintf("tool-%05d@1.0.0", (i+1)%tools)}, Prompts: []string{fmt.Sprint("session ", i)}})
		if err != nil {
			t.Fatal(err)
		}
		list[i] = l
	}
	return list
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A thousand sessions with different overlays share the ten thousand tools. A thousand
// generations of the base share the unchanged parts.
func TestCatalogSharesItsMemory(t *testing.T) {
	reg, tools := tool.NewRegistry(), manyTools(t, 10_000)
	if err := reg.Replace("many", tools); err != nil {
		t.Fatal(err)
	}
	cat, overlays := New(reg, nil), overlaysOf(t, 1000, len(tools))
	cat.Snapshot(Viewer{}, nil).Agents()
	before := heap()
	var held []*Snapshot
	for i, l := range overlays {
		s := cat.Snapshot(Viewer{Trust: "trusted"}, l)
		held = append(held, s)
		if s.family(fmt.Sprintf("tool-%05d", i)) != nil || s.family(fmt.Sprintf("tool-%05d", i+1)) == nil {
			t.Fatalf("session %d sees what it hides, or not what it names", i)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 4<<20 {
		t.Errorf("1,000 overlays take %d bytes, want at most 4 MiB: a copy of the base each would take a GB", grown)
	}
	before = heap()
	extra := raw(t, tool.Capability{Name: "extra"}, echo)
	for i := range 1000 {
		if err := reg.Replace("flaps", []*tool.Tool{extra}[:i%2]); err != nil {
			t.Fatal(err)
		}
		held = append(held, cat.Snapshot(Viewer{Trust: "trusted"}, overlays[0]))
		if i%100 == 0 {
			cat.Snapshot(Viewer{}, nil).Agents() // as a session would that is opened just then
		}
	}
	if grown := int64(heap()) - int64(before); grown > 32<<20 {
		t.Errorf("1,000 generations that are all held take %d bytes, want at most 32 MiB", grown)
	}
	runtime.KeepAlive(held)
}

// The cache is bounded in number, and a snapshot owns nothing of its overlay.
func TestCatalogEvictsSnapshots(t *testing.T) {
	reg := registry(t, tool.Capability{Name: "a"})
	cat := New(reg, nil)
	for _, l := range overlaysOf(t, maxSnapshots+100, 10_000) {
		cat.Snapshot(Viewer{}, l)
	}
	if n := cat.cache.Len(); n != maxSnapshots {
		t.Errorf("%d snapshots are cached, want %d", n, maxSnapshots)
	}
	var wide []string
	for i := range maxNames {
		wide = append(wide, fmt.Sprintf("name-%d", i))
	}
	l, err := ParseOverlay(Overlay{Hide: wide, Tools: wide})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := range 600 {
		cat.Snapshot(Viewer{}, &Overlay{Hide: l.Hide, Tools: l.Tools, Prompts: []string{fmt.Sprint(i)}})
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("600 snapshots of overlays with 2,000 names take %d bytes, want at most 1 MiB", grown)
	}
	if err := reg.Register(raw(t, tool.Capability{Name: "b"}, echo)); err != nil {
		t.Fatal(err)
	}
	if cat.Snapshot(Viewer{}, l); cat.cache.Len() != 1 {
		t.Errorf("%d snapshots are cached after a change, want 1: nobody asks for the old ones", cat.cache.Len())
	}
}

// The cache is bounded in the bytes of overlays, also if their sessions have ended.
func TestCatalogForgetsLargeOverlays(t *testing.T) {
	cat := New(registry(t, tool.Capability{Name: "a"}), nil)
	before := heap()
	for range 500 {
		cat.Snapshot(Viewer{}, &Overlay{IncludeBase: true, Prompts: []string{strings.Repeat("x", 64<<10)}})
		cat.Snapshot(Viewer{}, &Overlay{IncludeBase: true, Hide: []string{strings.Repeat("y", 64<<10)}})
	}
	if grown := int64(heap()) - int64(before); grown > maxOverlayBytes+4<<20 {
		t.Errorf("the snapshots of sessions that have ended take %d bytes, want at most 20 MiB", grown)
	}
	if err := cat.reg.Register(raw(t, tool.Capability{Name: "b"}, echo)); err != nil {
		t.Fatal(err)
	}
	if n := cat.overlayBytes.Load(); n != 0 || cat.cache.Len() != 0 {
		t.Errorf("%d snapshots with overlays of %d bytes are cached after a change, want none", cat.cache.Len(), n)
	}
}

// Sessions without an overlay share one snapshot for each trust level.
func TestSnapshotsWithoutOverlayAreShared(t *testing.T) {
	cat := New(registry(t, tool.Capability{Name: "a"}), nil)
	if x, y := cat.Snapshot(Viewer{Principal: "alice"}, nil), cat.Snapshot(Viewer{Principal: "bob"}, nil); x != y {
		t.Error("two sessions without an overlay have a catalog each")
	}
}

// States that differ by more changes than a state lists are compared name by name.
func TestDistantGenerationsAreComparedByName(t *testing.T) {
	reg, tools := tool.NewRegistry(), manyTools(t, 12_288)
	cat := New(reg, nil)
	empty := cat.Snapshot(Viewer{}, nil)
	if err := reg.Replace("many", tools); err != nil {
		t.Fatal(err)
	}
	full := cat.Snapshot(Viewer{}, nil)
	if d := full.Since(empty); len(d.Added) != len(tools) || len(d.Removed)+len(d.Changed) > 0 {
		t.Errorf("%d added, %d removed, %d changed; want %d added", len(d.Added), len(d.Removed), len(d.Changed), len(tools))
	}
	if err := reg.Replace("many", tools[1:]); err != nil {
		t.Fatal(err)
	}
	if d := cat.Snapshot(Viewer{}, nil).Since(full); len(d.Removed) != 1 || len(d.Added)+len(d.Changed) > 0 {
		t.Errorf("one tool less: %v", d)
	}
}

// Concurrent requests for one key compose one snapshot.
func TestCatalogComposesOnce(t *testing.T) {
	cat := New(registry(t, tool.Capability{Name: "a"}), nil)
	l := overlaysOf(t, 1, 10)[0]
	var wg sync.WaitGroup
	got := make([]*Snapshot, 32)
	for i := range got {
		wg.Go(func() { got[i] = cat.Snapshot(Viewer{Trust: "trusted"}, l) })
	}
	wg.Wait()
	for i, s := range got {
		if s != got[0] {
			t.Fatalf("asker %d has a catalog of its own", i)
		}
	}
	if other := cat.Snapshot(Viewer{Trust: "untrusted"}, l); other == got[0] {
		t.Error("who is trusted less has the same catalog")
	}
}

func BenchmarkCatalog(b *testing.B) {
	reg, tools := tool.NewRegistry(), manyTools(b, 10_000)
	if err := reg.Replace("many", tools); err != nil {
		b.Fatal(err)
	}
	cat, overlays := New(reg, nil), overlaysOf(b, 1000, len(tools))
	b.Run("overlay", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := cat.Snapshot(Viewer{Trust: "trusted"}, overlays[i%1000]).Resolve("tool-05000"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("base", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cat.Snapshot(Viewer{Trust: "trusted"}, nil).Resolve("tool-05000@1.0.0"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("compose", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			newSnapshot(cat, &snapshotKey{base: reg.State(), hooks: cat.hooks.Load(), overlay: overlays[i%1000], rank: 3})
		}
	})
	b.Run("difference", func(b *testing.B) {
		b.ReportAllocs()
		old := cat.Snapshot(Viewer{Trust: "trusted"}, overlays[0])
		if err := reg.Register(raw(b, tool.Capability{Name: fmt.Sprintf("new-%d", b.N)}, echo)); err != nil {
			b.Fatal(err)
		}
		now := cat.Snapshot(Viewer{Trust: "trusted"}, overlays[0])
		for b.Loop() {
			now.Since(old)
		}
	})
}
