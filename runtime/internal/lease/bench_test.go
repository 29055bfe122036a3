package lease

import (
	"fmt"
	"strings"
	"testing"
)

// hardCover is a lease and a target made to take long.
func hardCover(t testing.TB) (*Lease, string) {
	var list []string
	for i := range MaxPatterns {
		list = append(list, fmt.Sprintf("/**%s/b%d", strings.Repeat("/a*a", MaxSegments/2), i))
	}
	return lease(t, map[string][]string{FSRead: list}), strings.Repeat("/aaa", MaxSegments)
}

func BenchmarkHardCover(b *testing.B) {
	l, target := hardCover(b)
	for b.Loop() {
		if l.Covers(FSRead, target) == nil {
			b.Fatal("it covers")
		}
	}
}

func BenchmarkHardSubset(b *testing.B) {
	blow := func(n int) string { return "/" + strings.Repeat("*a*b", n) + "*" }
	var parents, children []string
	for i := range 20 { // below MaxRequest
		parents = append(parents, blow(100+i)+"c", "/**"+strings.Repeat("/*a*/**", 60)+fmt.Sprint("/", i))
		children = append(children, fmt.Sprintf("/*x%d", i)+blow(50 + i)[1:], "/**/*"+strings.Repeat("/**/*a", 60)+fmt.Sprint(i))
	}
	parent := lease(b, map[string][]string{FSRead: parents, FSWrite: parents})
	child := lease(b, map[string][]string{FSRead: children[:1], FSWrite: children})
	for b.Loop() {
		if child.CheckSubset(parent) == nil {
			b.Fatal("it is covered")
		}
	}
}

func BenchmarkLiteralSubset(b *testing.B) {
	var parents, children []string
	for i := range MaxPatterns {
		parents = append(parents, fmt.Sprintf("/workspace/%d/**", i))
		children = append(children, fmt.Sprintf("/workspace/%d/a", MaxPatterns-1-i))
	}
	parent, child := lease(b, map[string][]string{FSRead: parents}), lease(b, map[string][]string{FSRead: children})
	for b.Loop() {
		if child.CheckSubset(parent) != nil {
			b.Fatal("it is not covered")
		}
	}
}

func BenchmarkSubset(b *testing.B) {
	parent := parse(b, `{"fs.read":["/workspace/**","/tmp/*"],"net.fetch":["https://**.example.com/**"],"tool.call":["demo.*","web.search"],"model.use":["tier-fast/*"]}`)
	child := parse(b, `{"fs.read":["/workspace/src/**/*.go"],"net.fetch":["https://api.example.com/v1/**"],"tool.call":["demo.e*"],"model.use":["tier-fast/*"]}`)
	for b.Loop() {
		if err := child.CheckSubset(parent); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	raw := parse(b, `{"fs.read":["/workspace/**","/tmp/*"],"net.fetch":["https://**.example.com/**"],"tool.call":["demo.*"],"model.use":["tier-fast/*"],"cost.budget":["USD:5.00"],"expires_at":"2026-05-09T14:00:00Z"}`).Encode()
	for b.Loop() {
		if _, err := Parse(t0, Request{Lease: raw}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReport(b *testing.B) {
	m := budget(b, "USD:1000000")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := m.Report("usd", "0.0001"); err != nil {
			b.Fatal(err)
		}
	}
}

// many is a lease of 50 patterns in all namespaces' grammars.
func many(t testing.TB) *Lease {
	l := map[string][]string{}
	for i := range 49 {
		n := string(rune('a'+i%26)) + string(rune('a'+i/26))
		l[FSRead] = append(l[FSRead], "/workspace/"+n+"/**/*.go")
		l[NetFetch] = append(l[NetFetch], "https://*."+n+".example.com:8443/v1/**")
		l[ToolCall] = append(l[ToolCall], n+".*")
		l[ModelUse] = append(l[ModelUse], n+"/*-fast*")
		l["x.vendor"] = append(l["x.vendor"], "order:"+n+"*")
	}
	l[FSRead] = append(l[FSRead], "/workspace/z9/**")
	l[NetFetch] = append(l[NetFetch], "https://api.example.com:8443/v1/**")
	l[ToolCall] = append(l[ToolCall], "demo.echo")
	l[ModelUse] = append(l[ModelUse], "anthropic/*")
	l["x.vendor"] = append(l["x.vendor"], "refund:*")
	return lease(t, l)
}

var manyTargets = []struct{ namespace, target string }{
	{FSRead, "/workspace/z9/cmd/main.go"},
	{NetFetch, "https://api.example.com:8443/v1/users/%C3%A9?q=1"},
	{ToolCall, "demo.echo"},
	{ModelUse, "anthropic/claude-sonnet-4"},
	{"x.vendor", "refund:12"},
}

func TestCoversDoesNotAllocate(t *testing.T) {
	l := many(t)
	for _, c := range manyTargets {
		if err := l.Covers(c.namespace, c.target); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _ = l.Covers(c.namespace, c.target) }); n != 0 {
			t.Errorf("Covers(%s, %q) allocates %v times", c.namespace, c.target, n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = canonical(c.namespace, c.target) }); n != 0 {
			t.Errorf("canonical(%s, %q) allocates %v times", c.namespace, c.target, n)
		}
	}
}

func BenchmarkCovers50(b *testing.B) {
	l := many(b)
	for _, c := range manyTargets {
		b.Run(c.namespace, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Covers(c.namespace, c.target); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
