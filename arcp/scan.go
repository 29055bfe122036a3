package arcp

import (
	"bytes"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// scanner checks JSON text as strictly as the JSON library: RFC 8259, valid UTF-8 without lone
// surrogates, unique member names in each object. It does not decode values and bounds the nesting
// depth. A fuzz test compares it with the library.
type scanner struct {
	src   []byte
	pos   int
	depth int
	limit int      // largest depth
	names [][]byte // member names of the open objects, unescaped; the innermost object last
	text  []byte   // buffer for textMembers
}

// syntaxError is a syntax error at an offset in bytes.
type syntaxError struct {
	message string
	offset  int
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at offset %d", e.message, e.offset) }

// reset prepares s to scan src with a depth of at most limit.
func (s *scanner) reset(src []byte, limit int) {
	const maxRetained = 256
	if cap(s.names) > maxRetained {
		s.names = nil
	}
	if cap(s.text) > 16<<10 {
		s.text = nil
	}
	s.src, s.pos, s.depth, s.limit = src, 0, 0, limit
	s.names, s.text = s.names[:0], s.text[:0]
}

func (s *scanner) fail(message string) error { return &syntaxError{message, s.pos} }

// unexpected returns an error with the next character and the expected element.
func (s *scanner) unexpected(wanted string) error {
	if s.pos >= len(s.src) {
		return s.fail("the frame ends too early: " + wanted + " is missing")
	}
	r, _ := utf8.DecodeRune(s.src[s.pos:])
	return s.fail(fmt.Sprintf("%q instead of %s", r, wanted))
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// value scans one value and returns its text.
func (s *scanner) value() (Raw, error) {
	c := s.peek()
	start := s.pos
	var err error
	switch c {
	case '"':
		err = s.str()
	case '{':
		err = s.object()
	case '[':
		err = s.array()
	case 't':
		err = s.literal("true")
	case 'f':
		err = s.literal("false")
	case 'n':
		err = s.literal("null")
	default:
		err = s.number()
	}
	if err != nil {
		return nil, err
	}
	return s.src[start:s.pos], nil
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.src[s.pos:], []byte(word)) {
		return s.unexpected("a value")
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) enter() error {
	s.pos++
	if s.depth++; s.depth > s.limit {
		return &EncodingError{ReasonTooDeep, fmt.Sprintf("nested deeper than %d levels", s.limit), ""}
	}
	return nil
}

func (s *scanner) leave() {
	s.pos++
	s.depth--
}

func (s *scanner) array() error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.leave()
		return nil
	}
	for {
		if _, err := s.value(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.leave()
			return nil
		default:
			return s.unexpected("a comma or ]")
		}
	}
}

// object scans an object.
func (s *scanner) object() error {
	o, err := s.open()
	for more := true; more && err == nil; {
		_, _, more, err = s.member(&o)
	}
	return err
}

// object is an object that is being scanned.
type object struct {
	first int             // index of its first name in scanner.names
	many  map[string]bool // its names, if there are more than fewNames
	began bool            // a member was read
}

// open scans the opening brace.
func (s *scanner) open() (object, error) {
	if s.peek() != '{' {
		return object{}, s.unexpected("an object")
	}
	return object{first: len(s.names)}, s.enter()
}

// member scans a member and returns its unescaped name and its value. more is false at the end of
// the object.
func (s *scanner) member(o *object) (name []byte, value Raw, more bool, err error) {
	switch c := s.peek(); {
	case c == '}':
		s.names = s.names[:o.first]
		s.leave()
		return nil, nil, false, nil
	case o.began && c != ',':
		return nil, nil, false, s.unexpected("a comma or }")
	case o.began:
		s.pos++
	}
	o.began = true
	if name, err = s.name(o); err != nil {
		return nil, nil, false, err
	}
	if s.peek() != ':' {
		return nil, nil, false, s.unexpected("a colon")
	}
	s.pos++
	value, err = s.value()
	return name, value, err == nil, err
}

// name scans a member name and refuses a duplicate.
func (s *scanner) name(o *object) ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.unexpected("a member name")
	}
	start := s.pos
	if err := s.str(); err != nil {
		return nil, err
	}
	name := s.src[start+1 : s.pos-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = appendUnquoted(nil, s.src[start:s.pos])
	}
	if s.addName(o, name) {
		s.pos = start
		return nil, s.fail(fmt.Sprintf("duplicate member name %q", name))
	}
	return name, nil
}

// fewNames is the number of names up to which duplicates are found by comparing names one by one.
const fewNames = 24

// addName records the name and reports whether it is a duplicate.
func (s *scanner) addName(o *object, name []byte) bool {
	if o.many != nil {
		if o.many[string(name)] {
			return true
		}
		o.many[string(name)] = true
		return false
	}
	own := s.names[o.first:]
	for _, other := range own {
		if string(other) == string(name) {
			return true
		}
	}
	s.names = append(s.names, name)
	if len(own) == fewNames {
		o.many = make(map[string]bool, 4*fewNames)
		for _, n := range s.names[o.first:] {
			o.many[string(n)] = true
		}
		s.names = s.names[:o.first]
	}
	return false
}

// end checks that only white space follows.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.src) {
		return s.unexpected("the end of the frame")
	}
	return nil
}

const (
	everyByte = 0x0101010101010101
	highBits  = 0x80 * everyByte
)

// plainLen returns the length of the prefix of p that is ASCII without control characters, quotes and
// backslashes. It tests 32 and then eight bytes at once: the lowest bit set by stopBits marks the first other
// byte.
func plainLen[T string | []byte](p T) int {
	n := 0
	for ; len(p) >= 32; n, p = n+32, p[32:] {
		if stopBits(load64(p))|stopBits(load64(p[8:]))|stopBits(load64(p[16:]))|stopBits(load64(p[24:])) != 0 {
			break
		}
	}
	for ; len(p) >= 8; n, p = n+8, p[8:] {
		if stop := stopBits(load64(p)); stop != 0 {
			return n + bits.TrailingZeros64(stop)/8
		}
	}
	for i := range len(p) {
		if c := p[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return n + i
		}
	}
	return n + len(p)
}

// load64 returns the first eight bytes of p, the first one lowest.
func load64[T string | []byte](p T) uint64 {
	_ = p[7]
	return uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 |
		uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
}

// stopBits returns a word whose lowest bit is the high bit of the first byte of w that is not plain; 0: all
// are plain.
func stopBits(w uint64) uint64 {
	quote, slash := w^('"'*everyByte), w^('\\'*everyByte)
	stop := (w - ' '*everyByte) &^ w
	stop |= (quote - everyByte) &^ quote
	stop |= (slash - everyByte) &^ slash
	return (stop | w) & highBits
}

// str scans a string from its opening quote.
func (s *scanner) str() error {
	for s.pos++; ; {
		s.pos += plainLen(s.src[s.pos:])
		if s.pos >= len(s.src) {
			return s.unexpected("the end of a string")
		}
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < ' ':
			return s.fail("a control character in a string")
		default:
			r, size := utf8.DecodeRune(s.src[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return s.fail("invalid UTF-8")
			}
			s.pos += size
		}
	}
}

func (s *scanner) escape() error {
	if len(s.src)-s.pos < 2 {
		s.pos = len(s.src)
		return s.unexpected("the end of a string")
	}
	switch s.src[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
		return s.unicode()
	}
	return s.fail("an unknown escape in a string")
}

// unicode scans \uXXXX, or a surrogate pair of two.
func (s *scanner) unicode() error {
	r, ok := hex4(s.src[s.pos:])
	if !ok {
		return s.fail("an unknown escape in a string")
	}
	switch {
	case r < 0xD800 || r > 0xDFFF:
		s.pos += 6
		return nil
	case r < 0xDC00:
		if low, ok := hex4(s.src[s.pos+6:]); ok && low >= 0xDC00 && low <= 0xDFFF {
			s.pos += 12
			return nil
		}
	}
	return s.fail("half of a surrogate pair in a string")
}

// hex4 decodes \uXXXX.
func hex4(p []byte) (r uint32, ok bool) {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, false
	}
	for _, c := range p[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | uint32(c)
	}
	return r, true
}

// number scans a number: -? (0 | [1-9] digits*) (. digits)? ([eE] [+-]? digits)?
func (s *scanner) number() error {
	start := s.pos
	if s.is('-') {
		s.pos++
	}
	if s.is('0') {
		s.pos++
	} else if !s.digits() {
		s.pos = start
		return s.unexpected("a value")
	}
	if s.is('.') {
		if s.pos++; !s.digits() {
			return s.unexpected("a digit")
		}
	}
	if s.is('e') || s.is('E') {
		if s.pos++; s.is('+') || s.is('-') {
			s.pos++
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	return nil
}

func (s *scanner) is(c byte) bool { return s.pos < len(s.src) && s.src[s.pos] == c }

func (s *scanner) digits() (some bool) {
	for s.pos < len(s.src) && '0' <= s.src[s.pos] && s.src[s.pos] <= '9' {
		s.pos++
		some = true
	}
	return some
}
