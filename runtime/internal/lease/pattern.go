package lease

import (
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// pattern is a compiled pattern.
type pattern struct {
	prefix  string // every path it covers begins so
	suffix  string // and every host ends so
	literal bool   // without stars: covers only its own text
	target
	hosts glob
	paths glob
}

// glob matches segments that a separator divides.
type glob struct {
	sep  byte
	segs []segment
}

// segment matches one segment, or with any set every number of them.
type segment struct {
	any  bool
	lit  bool // head is all of it
	head string
	mid  []string
	tail string
}

// compile reads a pattern of a namespace:
//
//   - "*" is any run of characters within a segment, "**" as a whole segment any
//     number of segments, also none; two stars beside other characters are one.
//     Every other character stands for itself.
//   - Segments are what slashes divide in paths and names, and dots in hosts. A
//     dot in a name is a character like others: "fs.*" covers "fs.read.all".
//   - "*.example.com" covers hosts with one more label, "**.example.com" those
//     with any number, also none. Stars never cover IP addresses: those are
//     written out. Without a scheme https is meant, without a path "/".
//   - A lone "*" in tool.call, agent.delegate and model.use covers every name.
func compile(namespace, s string) (pattern, error) {
	t, err := read(formOf(namespace), s, true)
	if err != nil {
		return pattern{}, err
	}
	p := pattern{target: t, literal: strings.IndexByte(t.text, '*') < 0}
	p.prefix = before(t.path, '/')
	if t.form == formURL {
		p.hosts = compileGlob(t.host, '.')
		p.suffix = after(t.host, '.')
	}
	p.paths = glob{sep: '/'}
	if !t.root() {
		p.paths = compileGlob(t.segments(), '/')
	}
	if s == "*" && (namespace == arcp.NamespaceToolCall || namespace == arcp.NamespaceAgentDelegate || namespace == arcp.NamespaceModelUse) {
		p.paths.segs[0] = segment{any: true}
	}
	return p, nil
}

// before is what precedes the first star of s, without a separator that is gone
// when "**" covers no segments.
func before(s string, sep byte) string {
	i := strings.IndexByte(s, '*')
	if i < 0 {
		return s
	}
	if strings.HasPrefix(s[i:], "**") && i > 0 && s[i-1] == sep {
		i--
	}
	return s[:i]
}

// after is what follows the last star of s, in the same way.
func after(s string, sep byte) string {
	i := strings.LastIndexByte(s, '*') + 1
	if i >= 2 && s[i-2] == '*' && i < len(s) && s[i] == sep {
		i++
	}
	return s[i:]
}

// segments is the path without the slash that begins it.
func (t *target) segments() string {
	if t.form == formPath || t.form == formURL {
		return t.path[1:]
	}
	return t.path
}

// root reports whether t is the path that has no segments. A URL's has one, the
// empty one.
func (t *target) root() bool { return t.form == formPath && t.path == "/" }

func compileGlob(s string, sep byte) glob {
	g := glob{sep: sep}
	for seg := range strings.SplitSeq(s, string(sep)) {
		if seg == "**" {
			g.segs = append(g.segs, segment{any: true})
			continue
		}
		g.segs = append(g.segs, compileSegment(seg))
	}
	return g
}

func compileSegment(s string) segment {
	parts := strings.Split(s, "*")
	last := len(parts) - 1
	seg := segment{lit: last == 0, head: parts[0], tail: parts[last]}
	for i := 1; i < last; i++ {
		if parts[i] != "" {
			seg.mid = append(seg.mid, parts[i])
		}
	}
	return seg
}

// covers reports whether the pattern covers a canonical target.
func (p *pattern) covers(t *target) bool {
	switch {
	case p.form != t.form || !strings.HasSuffix(t.host, p.suffix) || !strings.HasPrefix(t.path, p.prefix):
		return false
	case p.literal:
		return p.text == t.text
	case p.form == formURL && !p.coversOrigin(t):
		return false
	}
	return p.paths.match(t.segments(), t.root())
}

func (p *pattern) coversOrigin(t *target) bool {
	if p.scheme != t.scheme || p.port != t.port {
		return false
	}
	if p.address || t.address {
		return p.host == t.host
	}
	return p.hosts.match(t.host, false)
}

// match compares segment by segment. Where it fails, the latest "**" takes one
// segment more; earlier ones need not, since what follows them has been found at
// the earliest place.
func (g *glob) match(s string, none bool) bool {
	p, done := 0, none
	star, retry := -1, "" // the latest "**", and what follows the segments it has taken
	for !done {
		if p < len(g.segs) && g.segs[p].any {
			if p == len(g.segs)-1 {
				return true
			}
			star, retry = p, s
			p++
			continue
		}
		if p < len(g.segs) {
			if seg, rest, more := cut(s, g.sep); g.segs[p].match(seg) {
				s, done = rest, !more
				p++
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, rest, more := cut(retry, g.sep)
		retry, s, done, p = rest, rest, !more, star+1
	}
	for p < len(g.segs) && g.segs[p].any {
		p++
	}
	return p == len(g.segs)
}

// cut is strings.Cut for one byte; sep 0 is never found.
func cut(s string, sep byte) (before, after string, found bool) {
	if i := strings.IndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// match looks for each part at the earliest place, which leaves the most to the
// parts after it.
func (g *segment) match(s string) bool {
	if g.lit {
		return s == g.head
	}
	if len(s) < len(g.head)+len(g.tail) || !strings.HasPrefix(s, g.head) || !strings.HasSuffix(s, g.tail) {
		return false
	}
	s = s[len(g.head) : len(s)-len(g.tail)]
	for _, m := range g.mid {
		i := strings.Index(s, m)
		if i < 0 {
			return false
		}
		s = s[i+len(m):]
	}
	return true
}
