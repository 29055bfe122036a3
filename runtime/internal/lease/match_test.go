package lease

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

// naive matches a glob by direct recursion.
func naive(segs, target []string) bool {
	if len(segs) == 0 {
		return len(target) == 0
	}
	if segs[0] == "**" {
		for n := range len(target) + 1 {
			if naive(segs[1:], target[n:]) {
				return true
			}
		}
		return false
	}
	return len(target) > 0 && naiveSegment(segs[0], target[0]) && naive(segs[1:], target[1:])
}

func naiveSegment(p, s string) bool {
	if p == "" {
		return s == ""
	}
	if p[0] == '*' {
		return naiveSegment(p[1:], s) || s != "" && naiveSegment(p, s[1:])
	}
	return s != "" && s[0] == p[0] && naiveSegment(p[1:], s[1:])
}

// split returns the segments of a canonical path or name.
func split(s string) []string {
	if s = strings.TrimPrefix(s, "/"); s == "" {
		return nil
	}
	return strings.Split(s, "/")
}

// drawGlob draws a pattern of up to n segments, with a slash before it in a path.
func drawGlob(t *rapid.T, path bool, n int) string {
	var segs []string
	for range rapid.IntRange(1, n).Draw(t, "segments") {
		seg := rapid.SampledFrom([]string{"**", "*", "a", "b", "a*", "*b", "*a*", "a*b", "ab", "aa", "*a", "b*", "a*a",
			"*ab", "ba*"}).Draw(t, "segment")
		segs = append(segs, seg)
	}
	if s := strings.Join(segs, "/"); !path {
		return s
	} else {
		return "/" + s
	}
}

// words are all canonical texts of at most n segments of at most k letters.
func words(n, k int, prefix string) (list []string) {
	var segs []string
	for level := []string{""}; k > 0; k-- {
		var next []string
		for _, s := range level {
			next = append(next, s+"a", s+"b", s+"c")
		}
		segs, level = append(segs, next...), next
	}
	for level := []string{""}; n > 0; n-- {
		var next []string
		for _, s := range level {
			for _, seg := range segs {
				next = append(next, s+"/"+seg)
			}
		}
		list, level = append(list, next...), next
	}
	for i := range list {
		list[i] = prefix + strings.TrimPrefix(list[i], "/")
	}
	return list
}

// universe is a set of targets that are read once.
type universe []target

func newUniverse(f form, list []string) (u universe) {
	for _, s := range list {
		t, err := parseTarget(f, s, false)
		if err != nil || t.text != s {
			panic(fmt.Sprint(s, err))
		}
		u = append(u, t)
	}
	return u
}

func (p *pattern) mustCover(t *rapid.T, namespace, s string) {
	q, err := compile(namespace, s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	*p = q
}

func TestPathMatchingEqualsNaiveMatching(t *testing.T) {
	paths := newUniverse(formPath, append(words(3, 2, "/"), "/"))
	rapid.Check(t, func(t *rapid.T) {
		s := drawGlob(t, true, 4)
		var p pattern
		p.mustCover(t, FSRead, s)
		for i := range paths {
			w := &paths[i]
			if got, want := p.covers(w), naive(split(s), split(w.text)); got != want {
				t.Fatalf("%q of %q: %v, want %v", s, w.text, got, want)
			}
		}
	})
}

func TestModelMatchingEqualsNaiveMatching(t *testing.T) {
	models := newUniverse(formName, words(3, 2, ""))
	rapid.Check(t, func(t *rapid.T) {
		s := drawGlob(t, false, 3)
		var p pattern
		p.mustCover(t, ModelUse, s)
		for i := range models {
			w := &models[i]
			if got, want := p.covers(w), s == "*" || naive(split(s), split(w.text)); got != want {
				t.Fatalf("%q of %q: %v, want %v", s, w.text, got, want)
			}
		}
	})
}

func TestHostMatchingEqualsNaiveMatching(t *testing.T) {
	var list []string
	for _, w := range words(3, 2, "") {
		list = append(list, "https://"+strings.ReplaceAll(w, "/", ".")+"/")
	}
	hosts := newUniverse(formURL, list)
	rapid.Check(t, func(t *rapid.T) {
		s := drawGlob(t, false, 4)
		var p pattern
		p.mustCover(t, NetFetch, "https://"+strings.ReplaceAll(s, "/", ".")+"/")
		for i := range hosts {
			w := &hosts[i]
			if got, want := p.covers(w), naive(split(s), strings.Split(w.host, ".")); got != want {
				t.Fatalf("%q of %q: %v, want %v", s, w.text, got, want)
			}
		}
	})
}

// inclusionIs compares the answer with that of a search for a counterexample in u, which is
// large enough to contain one.
func inclusionIs(t *rapid.T, namespace, child string, parents []string, u universe) {
	var c pattern
	c.mustCover(t, namespace, child)
	union := make([]pattern, len(parents))
	for i := range parents {
		union[i].mustCover(t, namespace, parents[i])
	}
	got := newInclusion(union, maxSteps).covers(&c)
	counter := ""
	for i := range u {
		if w := &u[i]; c.covers(w) && !covered(union, w) {
			counter = w.text
			break
		}
	}
	if want := counter == ""; got != want {
		t.Fatalf("%q within %q: %v, want %v %s", child, parents, got, want, counter)
	}
}

func covered(union []pattern, w *target) bool {
	for i := range union {
		if union[i].covers(w) {
			return true
		}
	}
	return false
}

func TestSubsetOfPathsIsExact(t *testing.T) {
	u := newUniverse(formPath, append(append(words(3, 3, "/"), words(5, 1, "/")...), "/", "/abba", "/abab", "/aabb",
		"/baba", "/bbaa", "/aaaa", "/caba", "/acab", "/cabc", "/caab"))
	rapid.Check(t, func(t *rapid.T) {
		var parents []string
		for range rapid.IntRange(1, 4).Draw(t, "parents") {
			parents = append(parents, drawGlob(t, true, 3))
		}
		inclusionIs(t, FSRead, drawGlob(t, true, 2), parents, u)
	})
}

func TestSubsetOfNamesIsExact(t *testing.T) {
	u := newUniverse(formName, append(words(2, 3, ""), words(4, 1, "")...))
	for _, namespace := range []string{ToolCall, ModelUse} {
		rapid.Check(t, func(t *rapid.T) {
			var parents []string
			for range rapid.IntRange(1, 4).Draw(t, "parents") {
				parents = append(parents, drawGlob(t, false, 2))
			}
			inclusionIs(t, namespace, drawGlob(t, false, 1), parents, u)
		})
	}
}

func TestSubsetOfURLsIsExact(t *testing.T) {
	var list []string
	paths := append(words(3, 1, "/"), "/", "/a/", "/c/", "/a/a/", "/c/c/")
	for _, h := range append(words(2, 2, ""), words(4, 1, "")...) {
		for _, p := range paths {
			list = append(list, "https://"+strings.ReplaceAll(h, "/", ".")+p)
		}
	}
	u := newUniverse(formURL, list)
	draw := func(t *rapid.T) string {
		host := rapid.SampledFrom([]string{"a", "*", "**", "a.b", "*.b", "**.b", "a.*", "a.**", "*.**", "**.**", "*.*",
			"**.*", "a*", "*a.b", "c.**.b"}).Draw(t, "host")
		path := rapid.SampledFrom([]string{"/", "/*", "/**", "/a", "/a/**", "/a/*", "/*/*", "/*/**", "/**/b", "/**/*", "/**/**"}).Draw(t, "path")
		return "https://" + host + path
	}
	rapid.Check(t, func(t *rapid.T) {
		var parents []string
		for range rapid.IntRange(1, 4).Draw(t, "parents") {
			parents = append(parents, draw(t))
		}
		inclusionIs(t, NetFetch, draw(t), parents, u)
	})
}

func TestCheckSubsetAcceptsOnlyCoveredPatterns(t *testing.T) {
	for _, c := range []struct {
		namespace, child string
		parents          []string
		want             bool
	}{
		{FSRead, "/a/*", []string{"/a/**"}, true},
		{FSRead, "/a/**", []string{"/a", "/a/*", "/a/*/**"}, true},
		{FSRead, "/a/**", []string{"/a/*", "/a/*/**"}, false},
		{FSRead, "/a/**", []string{"/a/*"}, false},
		{FSRead, "/a/**", []string{"/a**"}, false},
		{FSRead, "/**", []string{"/", "/*/**"}, true},
		{FSRead, "/ab/**", []string{"/a/**"}, false},
		{FSRead, "/a/?", []string{"/a/b"}, false},
		{FSRead, "/a/?", []string{"/a/*"}, true},
		{FSRead, "/\u00e9*", []string{"/*"}, true},
		{FSRead, "/\u00e9*", []string{"/\u00e8*"}, false},
		{NetFetch, "https://a.h/**", []string{"https://*.h/**"}, true},
		{NetFetch, "https://*.h/**", []string{"https://**.h/**"}, true},
		{NetFetch, "https://**.h/**", []string{"https://*.h/**"}, false},
		{NetFetch, "https://**.h/**", []string{"https://h/**", "https://**.*.h/**"}, true},
		{NetFetch, "http://h/**", []string{"https://h/**"}, false},
		{NetFetch, "https://h:444/**", []string{"https://h/**"}, false},
		{NetFetch, "https://h:443/x", []string{"h/**"}, true},
		{NetFetch, "https://10.0.0.1/*", []string{"https://**/**"}, false},
		{NetFetch, "https://10.0.0.1/*", []string{"https://10.0.0.1/**"}, true},
		{NetFetch, "https://10.0.0.1/*", []string{"https://10.0.0.2/**"}, false},
		{NetFetch, "https://h/a/**", []string{"https://h/a", "https://h/a/*", "https://h/a/*/**"}, true},
		{ToolCall, "**", []string{"*"}, true},
		{ToolCall, "**", []string{"*/**"}, true},
		{NetFetch, "https://**/**", []string{"https://*.**/*/**"}, true},
		{FSRead, "/**", []string{"/*/**"}, false},
		{ToolCall, "*", []string{"**"}, true},
		{ToolCall, "demo.*", []string{"*"}, true},
		{ToolCall, "*", []string{"demo.*"}, false},
		{ModelUse, "**", []string{"*"}, true},
		{ModelUse, "a/**", []string{"a*"}, false},
		{ModelUse, "a/*", []string{"a/**"}, true},
		{ModelUse, "*/b", []string{"*"}, true},
		{ModelUse, "a*", []string{"a/**"}, false},
		{"x.y", "**", []string{"*"}, false},
		{"x.y", "/a/*", []string{"**"}, false},
	} {
		parent := lease(t, map[string][]string{c.namespace: c.parents})
		child := lease(t, map[string][]string{c.namespace: {c.child}})
		want := arcp.CodeLeaseSubsetViolation
		if c.want {
			want = ""
		}
		wantCode(t, fmt.Sprintf("%q within %q", c.child, c.parents), child.CheckSubset(parent), want)
	}
}

func TestUndecidedSubsetIsRefused(t *testing.T) {
	hard := func(n int) string { return "/" + strings.Repeat("*a", n) + "*" }
	parent := lease(t, map[string][]string{FSRead: {
		"/*a" + strings.Repeat("?", 3) + "*b*" + strings.Repeat("*a*b*", 300) + "*",
		hard(900), hard(901) + "b", hard(1000) + "c*",
	}})
	child := lease(t, map[string][]string{FSRead: {hard(800) + "b*"}})
	wantCode(t, "not decided is not covered", child.CheckSubset(parent), arcp.CodeLeaseSubsetViolation)
}
