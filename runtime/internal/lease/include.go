package lease

import (
	"encoding/binary"
	"slices"
)

// maxWork bounds how many steps of automata one comparison of two leases takes.
// What is not decided by then is not covered; leases that people write need a
// few thousand.
const maxWork = 1 << 18

// inclusion decides whether a pattern is covered by the union of others: whether
// every text it matches is matched by one of them, be it each by another one.
// All patterns are of one namespace.
//
// A pattern with stars is walked as an automaton, and the others beside it all
// at once: where the pattern can end and none of the others can, there is a text
// that only the pattern matches. Characters that no pattern names at a place
// are alike there, so one stands for all of them.
type inclusion struct {
	union []pattern
	texts map[string]bool // of union
	toks  []token         // of union, one after the other; made when needed
	start []int           // where each begins
	work  int             // steps that are left
}

func newInclusion(union []pattern, work int) *inclusion {
	in := &inclusion{union: union, texts: make(map[string]bool, len(union)), work: work}
	for i := range union {
		in.texts[union[i].text] = true
	}
	return in
}

// covers reports whether every text that p matches is matched by the union.
func (in *inclusion) covers(p *pattern) bool {
	if in.texts[p.text] {
		return true
	}
	if p.literal {
		return slices.ContainsFunc(in.union, func(u pattern) bool { return u.covers(&p.target) })
	}
	return in.walk(p)
}

// operator says what a token does.
type operator uint8

const (
	opChar  operator = iota // takes one character
	opStar                  // takes any number of characters of a segment
	opSegs                  // takes any number of segments, each with a separator before it
	opInner                 // always after opSegs: inside such a segment
	opEnd                   // the pattern has matched
)

// token is a state of an automaton: the next ones follow it.
type token struct {
	op   operator
	char byte // opChar: the one; opSegs: the separator
	stop stop // opStar, opInner: what they do not take
}

// stop says which separators end a segment.
type stop uint8

const (
	stopSlash stop = iota // in a path or name
	stopDot               // in a host: dot or slash
)

func (s stop) takes(sym int) bool {
	return sym != '/' && (s == stopSlash || sym != '.')
}

// other stands for all characters that are not named.
const other = 256

// appendTokens appends the automaton of p. Each segment is written with its
// separator before it, so that "**" can stand for none.
func appendTokens(dst []token, p *pattern) []token {
	if p.form == formURL && !p.address {
		dst = appendGlob(dst, p.hosts, stopDot, true)
	}
	dst = appendGlob(dst, p.paths, stopSlash, p.form != formPath)
	return append(dst, token{op: opEnd})
}

// appendGlob appends the automaton of g. With some there is no text without a
// segment, as there is no host without a label: "**" alone then is one or more.
func appendGlob(dst []token, g glob, s stop, some bool) []token {
	if some && !slices.ContainsFunc(g.segs, func(seg segment) bool { return !seg.any }) {
		dst = append(dst, token{op: opChar, char: g.sep}, token{op: opStar, stop: s})
	}
	for _, seg := range g.segs {
		if seg.any {
			dst = append(dst, token{op: opSegs, char: g.sep}, token{op: opInner, stop: s})
			continue
		}
		dst = append(dst, token{op: opChar, char: g.sep})
		dst = appendSegment(dst, seg, s)
	}
	return dst
}

func appendSegment(dst []token, seg segment, s stop) []token {
	dst = appendChars(dst, seg.head)
	if seg.lit {
		return dst
	}
	star := token{op: opStar, stop: s}
	dst = append(dst, star)
	for _, m := range seg.mid {
		dst = append(appendChars(dst, m), star)
	}
	return appendChars(dst, seg.tail)
}

func appendChars(dst []token, s string) []token {
	for i := range len(s) {
		dst = append(dst, token{op: opChar, char: s[i]})
	}
	return dst
}

// beside reports whether the two can match the same text as far as it is not in
// their automata: scheme, port, and an address.
func (p *pattern) beside(q *pattern) bool {
	return p.form == q.form && p.scheme == q.scheme && p.port == q.port &&
		p.address == q.address && (!p.address || p.host == q.host)
}

// walkState is where a walk stands: the state of the pattern, and the states in
// which the union may be.
type walkState struct {
	at    int
	union []int // sorted
}

// walk visits every place that can be reached.
func (in *inclusion) walk(p *pattern) bool {
	in.build()
	own := appendTokens(nil, p)
	var first []int
	for i := range in.union {
		if in.union[i].beside(p) {
			first = closure(first, in.toks, in.start[i])
		}
	}
	seen := map[string]bool{}
	todo := in.enter(nil, seen, own, 0, sorted(first))
	for len(todo) > 0 {
		pl := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if own[pl.at].op == opEnd && !in.ended(pl.union) {
			return false
		}
		for _, sym := range in.symbols(own[pl.at], pl.union) {
			if in.work -= 1 + len(pl.union); in.work < 0 {
				return false
			}
			to, ok := own[pl.at].step(pl.at, sym)
			if ok {
				todo = in.enter(todo, seen, own, to, in.step(pl.union, sym))
			}
		}
	}
	return true
}

func (in *inclusion) build() {
	if in.start != nil {
		return
	}
	for i := range in.union {
		in.start = append(in.start, len(in.toks))
		in.toks = appendTokens(in.toks, &in.union[i])
	}
}

// enter adds the places at which the pattern may be in state at, unless they
// have been seen.
func (in *inclusion) enter(todo []walkState, seen map[string]bool, own []token, at int, union []int) []walkState {
	for _, q := range sorted(closure(nil, own, at)) {
		key := binary.AppendUvarint(nil, uint64(q))
		for _, u := range union {
			key = binary.AppendUvarint(key, uint64(u))
		}
		in.work -= 1 + len(union)
		if !seen[string(key)] {
			seen[string(key)] = true
			todo = append(todo, walkState{q, union})
		}
	}
	return todo
}

func (in *inclusion) ended(union []int) bool {
	return slices.ContainsFunc(union, func(u int) bool { return in.toks[u].op == opEnd })
}

// symbols are the characters that t takes: those that a state of the union tells
// from the others, and one for the rest.
func (in *inclusion) symbols(t token, union []int) []int {
	switch t.op {
	case opEnd:
		return nil
	case opChar, opSegs:
		return []int{int(t.char)}
	}
	syms := []int{other}
	for _, u := range union {
		c := int(in.toks[u].char)
		if in.toks[u].op == opChar && t.stop.takes(c) && !slices.Contains(syms, c) {
			syms = append(syms, c)
		}
	}
	return syms
}

// step returns the states of the union after sym.
func (in *inclusion) step(union []int, sym int) []int {
	var next []int
	for _, u := range union {
		if to, ok := in.toks[u].step(u, sym); ok {
			next = closure(next, in.toks, to)
		}
	}
	return sorted(next)
}

// step returns the state after sym of one that is at place at.
func (t token) step(at, sym int) (to int, ok bool) {
	switch t.op {
	case opChar, opSegs:
		return at + 1, sym == int(t.char)
	case opStar, opInner:
		return at, t.stop.takes(sym)
	}
	return 0, false
}

// closure appends at and every state that is reached from it without a
// character.
func closure(dst []int, toks []token, at int) []int {
	for {
		dst = append(dst, at)
		switch toks[at].op {
		case opStar:
			at++
		case opSegs:
			at += 2
		case opInner:
			at--
		default:
			return dst
		}
	}
}

// sorted returns s in order and without repetitions.
func sorted(s []int) []int {
	slices.Sort(s)
	return slices.Compact(s)
}
