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
