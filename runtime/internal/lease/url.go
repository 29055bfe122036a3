package lease

import (
	"errors"
	"net/netip"
	"strings"
	"unicode/utf8"
)

var (
	errScheme   = errors.New("a URL begins with a scheme, for example https://")
	errUserinfo = errors.New("a URL must not have userinfo")
	errQuery    = errors.New("a pattern covers all queries and fragments and has none")
	errHost     = errors.New("the host must be a name of ASCII letters, digits, hyphens and underscores, or an IP address")
	errNumber   = errors.New("the host is a number that is not an IP address in its usual form")
	errWildIP   = errors.New("an IP address must be written without stars")
	errWildURL  = errors.New("write scheme://host/path, for example https://api.example.com/**")
	errPort     = errors.New("the port must be a number from 1 to 65535 without leading zeros")
	errPercent  = errors.New("a percent sign must begin a percent-encoding")
	errSpace    = errors.New("a URL must not have spaces")
)

// ports are the default ports of schemes.
var ports = map[string]string{"https": "443", "http": "80", "wss": "443", "ws": "80", "ftp": "21"}

// parseURL parses scheme "://" host [":" port] [path]. The default scheme of a pattern is https.
func parseURL(s string, glob bool) (target, error) {
	switch {
	case strings.IndexByte(s, '\\') >= 0:
		return target{}, errBackslash
	case strings.IndexByte(s, ' ') >= 0:
		return target{}, errSpace
	case glob && strings.ContainsAny(s, "?#"):
		return target{}, errQuery
	case glob && strings.Trim(s, "*") == "":
		return target{}, errWildURL
	}
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case ok:
	case glob:
		scheme, rest = "https", s
	default:
		return target{}, errScheme
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return parseURLParts(s, scheme, rest, glob)
}

// parseURLParts parses rest, the part of s without scheme and query.
func parseURLParts(s, scheme, rest string, glob bool) (t target, err error) {
	if len(rest) > MaxPattern {
		return t, errLong
	}
	authority, path := rest, "/"
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	t.form = formURL
	if t.scheme, err = parseScheme(scheme); err != nil {
		return t, err
	}
	if err = t.parseAuthority(authority, glob); err != nil {
		return t, err
	}
	if t.path, err = normalizePath(path); err != nil {
		return t, err
	}
	if t.path, err = resolveDots(t.path, formURL, glob); err != nil {
		return t, err
	}
	t.setText(s)
	return t, nil
}

// setText sets the text. If s is canonical, the text shares its memory.
func (t *target) setText(s string) {
	rest := s
	for _, part := range [...]string{t.scheme, "://", t.host, t.port, t.path} {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, part); !ok {
			t.text = t.scheme + "://" + t.host + t.port + t.path
			return
		}
	}
	t.text = s[:len(s)-len(rest)]
}

func parseScheme(s string) (string, error) {
	s = strings.ToLower(s)
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return "", errScheme
		}
	}
	if s == "" {
		return "", errScheme
	}
	return s, nil
}

func (t *target) parseAuthority(s string, glob bool) (err error) {
	if strings.IndexByte(s, '@') >= 0 {
		return errUserinfo
	}
	host := s
	end := strings.LastIndexByte(s, ']') // colons of an IPv6 address do not separate a port
	if i := strings.LastIndexByte(s, ':'); i > end {
		host, t.port = s[:i], s[i:]
		if !validPort(t.port[1:]) {
			return errPort
		}
		if t.port[1:] == ports[t.scheme] {
			t.port = ""
		}
	}
	t.host, t.address, err = parseHost(host, glob)
	return err
}

func validPort(s string) bool {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return 1 <= len(s) && len(s) <= 5 && s[0] != '0' && n <= 65535
}

// Bounds of a host name (RFC 1035 §2.3.4).
const (
	maxHost  = 253
	maxLabel = 63
)

func parseHost(s string, glob bool) (host string, address bool, err error) {
	if strings.HasPrefix(s, "[") {
		host, err = parseIPv6(s)
		return host, true, err
	}
	if len(s) > maxHost {
		return "", false, errHost
	}
	s = strings.ToLower(s)
	label := ""
	for rest, more := s, true; more; {
		label, rest, more = strings.Cut(rest, ".")
		if !validLabel(label, glob) {
			return "", false, errHost
		}
	}
	switch {
	case !numeric(label) && !(strings.Contains(s, "*") && strings.Trim(s, "0123456789.*") == "" && strings.Trim(s, ".*") != ""):
		return s, false, nil
	case strings.Contains(s, "*"):
		return "", false, errWildIP
	}
	if a, err := netip.ParseAddr(s); err != nil || !a.Is4() {
		return "", false, errNumber
	}
	return s, true, nil
}

func validLabel(s string, glob bool) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_':
		case c == '*' && glob:
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxLabel
}

// numeric reports whether a host with this last label is an IPv4 address for parsers that accept
// short, octal and hexadecimal forms.
func numeric(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		if c := digits[i]; c > '9' && !hex || unhex(c) == 0xff {
			return false
		}
	}
	return true
}

// parseIPv6 parses "[" address "]". It refuses an embedded IPv4 address, because patterns for the
// IPv4 address would not be compared.
func parseIPv6(s string) (string, error) {
	inner, ok := strings.CutSuffix(s[1:], "]")
	if !ok {
		return "", errHost
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || !a.Is6() || a.Zone() != "" || a.Is4In6() {
		return "", errHost
	}
	var b [64]byte
	if text := a.AppendTo(b[:0]); string(text) != inner {
		return "[" + string(text) + "]", nil
	}
	return s, nil
}

// normalizePath decodes the unreserved characters of a URL's path, and encodes the characters that
// a path must not have (RFC 3986 §6.2.2). It returns s itself if it is normalized.
func normalizePath(s string) (string, error) {
	var out []byte // nil: nothing has changed yet
	for i := 0; i < len(s); {
		if out == nil && pathChars[s[i]] {
			i++
			continue
		}
		b, n, err := decodeAt(s, i)
		if err != nil {
			return "", err
		}
		plain := n == 1 && inPath(b) || isUnreserved(b)
		asIs := plain && n == 1 || !plain && n > 1 && isUpperHex(s[i+1]) && isUpperHex(s[i+2])
		if out == nil && !asIs {
			out = append(make([]byte, 0, len(s)+16), s[:i]...)
		}
		switch {
		case out == nil:
		case plain:
			out = append(out, b)
		default:
			out = append(out, '%', hexdigits[b>>4], hexdigits[b&15])
		}
		i += n
	}
	if out == nil {
		return s, nil
	}
	return string(out), nil
}

const hexdigits = "0123456789ABCDEF"

func isUpperHex(c byte) bool { return c < 'a' }

// decodeAt returns the byte at s[i:], which may be percent-encoded, and the length of its encoding.
func decodeAt(s string, i int) (b byte, n int, err error) {
	if s[i] != '%' {
		return s[i], 1, nil
	}
	b, ok := decodePercent(s, i)
	switch {
	case !ok:
		return 0, 0, errPercent
	case isSeparator(b):
		return 0, 0, errHidden
	case b >= utf8.RuneSelf:
		err = checkEscapedRune(s, i, b)
	}
	return b, 3, err
}

// checkEscapedRune is checkRune for the percent-encoded rune of which b is a byte, at s[i:].
func checkEscapedRune(s string, i int, b byte) error {
	for n := 0; !utf8.RuneStart(b); n++ { // back to the first byte
		i -= 3
		prev, ok := byte(0), false
		if i >= 0 {
			prev, ok = decodePercent(s, i)
		}
		if !ok || n == utf8.UTFMax {
			return errUTF8
		}
		b = prev
	}
	var enc [utf8.UTFMax]byte
	k := 0
	for ; k < len(enc); k++ {
		c, ok := decodePercent(s, i+3*k)
		if !ok || k > 0 && utf8.RuneStart(c) {
			break
		}
		enc[k] = c
	}
	r, n := utf8.DecodeRune(enc[:k])
	if n != k { // more continuation bytes than the rune has
		return errUTF8
	}
	return checkRune(r, n)
}

// isUnreserved reports whether a character needs no encoding anywhere (RFC 3986 §2.3).
func isUnreserved(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' ||
		b == '-' || b == '.' || b == '_' || b == '~'
}

// inPath reports whether a character needs no encoding in a path (RFC 3986 §3.3).
func inPath(b byte) bool { return pathChars[b] }

var pathChars = func() (t [256]bool) {
	for i := range t {
		t[i] = isUnreserved(byte(i)) || strings.IndexByte("/!$&'()*+,;=:@", byte(i)) >= 0
	}
	return t
}()
