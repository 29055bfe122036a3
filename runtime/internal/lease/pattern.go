package lease

import (
	"strings"
)

// pattern is a compiled pattern.
type pattern struct {
	prefix  string // common prefix of the paths that the pattern covers
	suffix  string // common suffix of the hosts that the pattern covers
	literal bool   // no stars: the pattern covers only its text
	target
	hosts glob
	paths glob
}

// glob matches a text of segments with a separator between them.
type glob struct {
	sep  byte
	segs []segment
}

// segment matches one segment, or any number of segments.
type segment struct {
	any     bool // "**"
	literal bool // no stars: head is the text
	text    string
	head    string   // before the first star
	mid     []string // between stars
	tail    string   // after the last star
}

// compile compiles a pattern of a namespace:
//
//   - "*" matches any run of characters within a segment. "**" as a whole segment matches
//     any number of segments, including none. Two stars next to other characters are one star.
//     Every other character matches itself.
//   - Slashes separate the segments of paths and names; dots separate the labels of
//     hosts. A dot in a name is an ordinary character: "fs.*" covers "fs.read.all".
//   - "*.example.com" covers hosts with one more label, "**.example.com" hosts with any
//     number of more labels, including none. Stars never cover IP addresses. The default scheme
//     is https, the default path "/".
//   - A lone "*" in tool.call, agent.delegate and model.use covers every name.
func compile(namespace, s string) (pattern, error) {
	t, err := parseTarget(formOf(namespace), s, true)
	if err != nil {
		return pattern{}, err
	}
	p := pattern{target: t, literal: strings.IndexByte(t.text, '*') < 0}
	p.prefix = textBeforeStar(t.path, '/')
	if t.form == formURL {
		p.hosts = compileGlob(t.host, '.')
		p.suffix = textAfterStar(t.host, '.')
	}
	p.paths = glob{sep: '/'}
	if !t.root() {
		p.paths = compileGlob(t.segments(), '/')
	}
	if s == "*" && formOf(namespace) == formName {
		p.paths.segs[0] = segment{any: true}
	}
	return p, nil
}

// textBeforeStar returns the text before the first star of s. It omits a separator before "**",
// which is absent when "**" matches no segments.
func textBeforeStar(s string, sep byte) string {
	i := strings.IndexByte(s, '*')
	if i < 0 {
		return s
	}
	if strings.HasPrefix(s[i:], "**") && i > 0 && s[i-1] == sep {
		i--
	}
	return s[:i]
}

// textAfterStar returns the text after the last star of s. It omits a separator after "**".
func textAfterStar(s string, sep byte) string {
	i := strings.LastIndexByte(s, '*') + 1
	if i >= 2 && s[i-2] == '*' && i < len(s) && s[i] == sep {
		i++
	}
	return s[i:]
}

// segments returns the path without its first slash.
func (t *target) segments() string {
	if t.form == formPath || t.form == formURL {
		return t.path[1:]
	}
	return t.path
}

// root reports whether t is a file path without segments. The path "/" of a URL has one
// empty segment.
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
	seg := segment{text: s, literal: last == 0, head: parts[0], tail: parts[last]}
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

// match reports whether g matches s; with none, s has no segments. After a mismatch the latest "**"
// matches one segment more. Earlier ones need no retry, because the segments after them were
// matched at the earliest position.
func (g *glob) match(s string, none bool) bool {
	p, done := 0, none
	star, retry := -1, "" // index of the latest "**", and the text after its segments
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
			if seg, rest, more := cutByte(s, g.sep); g.segs[p].match(seg) {
				s, done = rest, !more
				p++
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, rest, more := cutByte(retry, g.sep)
		retry, s, done, p = rest, rest, !more, star+1
	}
	for p < len(g.segs) && g.segs[p].any {
		p++
	}
	return p == len(g.segs)
}

// cutByte is strings.Cut for one byte.
func cutByte(s string, sep byte) (before, after string, found bool) {
	if i := strings.IndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// match reports whether sg matches s. It finds each part at the earliest position, which leaves most
// of s to the next parts.
func (sg *segment) match(s string) bool {
	if sg.literal {
		return s == sg.head
	}
	if len(s) < len(sg.head)+len(sg.tail) || !strings.HasPrefix(s, sg.head) || !strings.HasSuffix(s, sg.tail) {
		return false
	}
	s = s[len(sg.head) : len(s)-len(sg.tail)]
	for _, m := range sg.mid {
		i := strings.Index(s, m)
		if i < 0 {
			return false
		}
		s = s[i+len(m):]
	}
	return true
}
