package lease

import (
	"encoding/binary"
	"slices"
)

// maxSteps bounds the steps of the automata in one comparison of two leases. A pattern that is not
// decided within them counts as not covered. Leases written by people need a few thousand steps.
const maxSteps = 1 << 18

// inclusion decides whether a union of patterns covers a pattern: whether one of them matches each
// text that the pattern matches. All patterns are of one namespace.
//
// It visits the states of the pattern's automaton together with the states of the union's automata.
// If the pattern can end in a state in which no automaton of the union ends, it is not covered. One
// character stands for all that no pattern has in a state, because they lead to the same states.
type inclusion struct {
	union  []pattern
	texts  map[string]bool // texts of union
	tokens []token         // automata of union, one after the other; nil until build
	starts []int           // index of the first token of each automaton
	steps  int             // remaining steps
}

func newInclusion(union []pattern, steps int) *inclusion {
	in := &inclusion{union: union, texts: make(map[string]bool, len(union)), steps: steps}
	for i := range union {
		in.texts[union[i].text] = true
	}
	return in
}

// covers reports whether the union matches every text that p matches.
func (in *inclusion) covers(p *pattern) bool {
	if in.texts[p.text] {
		return true
	}
	if p.literal {
		return slices.ContainsFunc(in.union, func(u pattern) bool { return u.covers(&p.target) })
	}
	return in.walk(p)
}

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	opChar     tokenKind = iota // matches one character
	opStar                      // matches any number of characters of a segment
	opSegments                  // matches any number of segments with a separator before each
	opInner                     // follows opSegments: a character of such a segment
	opEnd                       // the pattern has matched
)

// token is a state of an automaton. The next state is the next token.
type token struct {
	op   tokenKind
	char byte       // opChar: the character; opSegments: the separator
	stop segmentEnd // opStar, opInner: the characters that do not match
}

// segmentEnd selects the characters that end a segment.
type segmentEnd uint8

const (
	stopSlash segmentEnd = iota // in a path or name
	stopDot                     // in a host: dot or slash
)

func (s segmentEnd) allows(char int) bool {
	return char != '/' && (s == stopSlash || char != '.')
}

// otherChar stands for all characters that no token has.
const otherChar = 256

// appendTokens appends the automaton of p. A separator precedes each segment, so that "**"
// can match none.
func appendTokens(dst []token, p *pattern) []token {
	if p.form == formURL && !p.address {
		dst = appendGlob(dst, p.hosts, stopDot, true)
	}
	dst = appendGlob(dst, p.paths, stopSlash, p.form != formPath)
	return append(dst, token{op: opEnd})
}

// appendGlob appends the automaton of g. With nonEmpty a text has at least one segment, as a host
// has a label, so that "**" alone matches one or more segments.
func appendGlob(dst []token, g glob, s segmentEnd, nonEmpty bool) []token {
	if nonEmpty && !slices.ContainsFunc(g.segs, func(seg segment) bool { return !seg.any }) {
		dst = append(dst, token{op: opChar, char: g.sep}, token{op: opStar, stop: s})
	}
	for _, seg := range g.segs {
		if seg.any {
			dst = append(dst, token{op: opSegments, char: g.sep}, token{op: opInner, stop: s})
			continue
		}
		dst = append(dst, token{op: opChar, char: g.sep})
		for _, c := range []byte(seg.text) {
			if c == '*' {
				dst = append(dst, token{op: opStar, stop: s})
			} else {
				dst = append(dst, token{op: opChar, char: c})
			}
		}
	}
	return dst
}

// sameOrigin compares the parts of two patterns that are not in their automata: scheme,
// port, and a host that is an address.
func (p *pattern) sameOrigin(q *pattern) bool {
	return p.form == q.form && p.scheme == q.scheme && p.port == q.port &&
		p.address == q.address && (!p.address || p.host == q.host)
}

// walkState is a state of the pattern's automaton, with the simultaneous states of the union.
type walkState struct {
	at    int
	union []int // ascending
}

// walk visits every reachable state, and reports whether the union covers p.
func (in *inclusion) walk(p *pattern) bool {
	in.build()
	own := appendTokens(nil, p)
	var first []int
	for i := range in.union {
		if in.union[i].sameOrigin(p) {
			first = appendClosure(first, in.tokens, in.starts[i])
		}
	}
	visited := map[string]bool{}
	todo := in.pushReachable(nil, visited, own, 0, stateSet(first))
	for len(todo) > 0 {
		state := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		t := own[state.at]
		if t.op == opEnd && !in.accepts(state.union) {
			return false
		}
		for _, char := range in.chars(t, state.union) {
			if in.steps -= 1 + len(state.union); in.steps < 0 {
				return false
			}
			if to, ok := t.step(state.at, char); ok {
				todo = in.pushReachable(todo, visited, own, to, in.step(state.union, char))
			}
		}
	}
	return true
}

// build builds the automata of the union.
func (in *inclusion) build() {
	if in.starts != nil {
		return
	}
	for i := range in.union {
		in.starts = append(in.starts, len(in.tokens))
		in.tokens = appendTokens(in.tokens, &in.union[i])
	}
}

// pushReachable adds the states that the pattern reaches at a token without a character, unless
// they were visited.
func (in *inclusion) pushReachable(todo []walkState, visited map[string]bool, own []token, at int, union []int) []walkState {
	for _, q := range stateSet(appendClosure(nil, own, at)) {
		key := binary.AppendUvarint(nil, uint64(q))
		for _, u := range union {
			key = binary.AppendUvarint(key, uint64(u))
		}
		in.steps -= 1 + len(union)
		if !visited[string(key)] {
			visited[string(key)] = true
			todo = append(todo, walkState{at: q, union: union})
		}
	}
	return todo
}

// accepts reports whether a pattern of the union has matched.
func (in *inclusion) accepts(union []int) bool {
	return slices.ContainsFunc(union, func(u int) bool { return in.tokens[u].op == opEnd })
}

// chars returns the characters that t matches: each one that a state of the union distinguishes,
// and otherChar for the others.
func (in *inclusion) chars(t token, union []int) []int {
	switch t.op {
	case opEnd:
		return nil
	case opChar, opSegments:
		return []int{int(t.char)}
	}
	chars := []int{otherChar}
	for _, u := range union {
		c := int(in.tokens[u].char)
		if in.tokens[u].op == opChar && t.stop.allows(c) && !slices.Contains(chars, c) {
			chars = append(chars, c)
		}
	}
	return chars
}

// step returns the states of the union after a character.
func (in *inclusion) step(union []int, char int) []int {
	var next []int
	for _, u := range union {
		if to, ok := in.tokens[u].step(u, char); ok {
			next = appendClosure(next, in.tokens, to)
		}
	}
	return stateSet(next)
}

// step returns the state after a character; t is the token at index at.
func (t token) step(at, char int) (to int, ok bool) {
	switch t.op {
	case opChar, opSegments:
		return at + 1, char == int(t.char)
	case opStar, opInner:
		return at, t.stop.allows(char)
	}
	return 0, false
}

// appendClosure appends a state and every state that it reaches without a character.
func appendClosure(dst []int, tokens []token, at int) []int {
	for {
		dst = append(dst, at)
		switch tokens[at].op {
		case opStar:
			at++
		case opSegments:
			at += 2
		case opInner:
			at--
		default:
			return dst
		}
	}
}

// stateSet sorts states and removes duplicates.
func stateSet(s []int) []int {
	slices.Sort(s)
	return slices.Compact(s)
}
