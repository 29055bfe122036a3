package lease

import (
	"errors"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Bounds of a pattern, and of a target without its query. The second
// keeps short a comparison made to take long: that grows with the segments of
// both.
const (
	MaxPattern  = 4096     // bytes
	MaxRequest  = 64 << 10 // bytes of a lease_request: it is in lists and events
	MaxSegments = 128
)

// target is what an operation is about, or a pattern before it is compiled, in
// canonical form.
type target struct {
	form    form // never formAny
	text    string
	scheme  string // of a URL: parts of text
	host    string
	port    string // with its colon; empty: the scheme's own
	address bool   // host is an IP address
	path    string // of a URL; otherwise text
}

// Canonical returns the form in which a target is compared with the patterns of
// a namespace. A tool should use this form, not the one it was given: then what
// was checked is what is used.
//
// Paths must be absolute; "." and ".." segments are resolved by name alone, so
// that following symbolic links stays the tool's to prevent; repeated and
// trailing slashes go. A path is not a URL: a percent sign is a character of it.
// URLs lose userinfo by being refused, query and fragment by being cut; scheme
// and host become lower case, the scheme's own port goes, unreserved characters
// are decoded and all others that need it are encoded. Names stay as they are.
//
// What has no canonical form is PERMISSION_DENIED: control and invisible
// characters, backslashes in paths and URLs, encoded separators, dot segments
// that climb above the root, empty segments in URLs and names, hosts that are
// numbers in disguise, and what is longer than MaxPattern or MaxSegments.
func Canonical(namespace, s string) (string, *arcp.Error) {
	t, err := read(formOf(dotted(namespace)), s, false)
	if err != nil {
		return "", denied("%s: %s cannot be a target: %v", namespace, quote(s), err)
	}
	return t.text, nil
}

func denied(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, format, args...)
}

// quote quotes s for a message, at most 200 bytes of it.
func quote(s string) string { return clip.Quote(s, 200) }

var (
	errNothing = errors.New("it is empty")
	errLong    = fmt.Errorf("it is longer than %d bytes", MaxPattern)
	errDeep    = fmt.Errorf("it has more than %d segments", MaxSegments)
)

// read makes a target, or with glob a pattern, of s. In a pattern stars may
// stand in a host, the scheme may be missing, and dot segments are refused.
func read(f form, s string, glob bool) (target, error) {
	if s == "" {
		return target{}, errNothing
	}
	if err := checkText(s); err != nil {
		return target{}, err
	}
	t, err := target{}, error(nil)
	switch look(f, s) {
	case formPath:
		t, err = readPath(s, glob)
	case formURL:
		t, err = readURL(s, glob)
	default:
		t, err = readName(s)
	}
	switch {
	case err != nil:
	case len(t.text) > MaxPattern:
		err = errLong
	case strings.Count(t.path, "/") > MaxSegments:
		err = errDeep
	}
	return t, err
}

// look is the grammar of s where the namespace has none.
func look(f form, s string) form {
	switch {
	case f != formAny:
		return f
	case s[0] == '/':
		return formPath
	case strings.Contains(s, "://"):
		return formURL
	}
	return formName
}

var (
	errRelative = errors.New("a path must be absolute")
	errNetwork  = errors.New("a path must not begin with two slashes")
	errEscape   = errors.New("a name is not percent-encoded")
)

func readPath(s string, glob bool) (target, error) {
	switch {
	case s[0] != '/':
		return target{}, errRelative
	case strings.HasPrefix(s, "//"): // POSIX leaves its meaning open, and some systems see a host
		return target{}, errNetwork
	case strings.IndexByte(s, '\\') >= 0:
		return target{}, errBackslash
	case hides(s):
		return target{}, errHidden
	}
	path, err := resolve(s, formPath, glob)
	return target{form: formPath, text: path, path: path}, err
}

// hides reports whether s would have other segments if it were decoded.
func hides(s string) bool {
	for i := strings.IndexByte(s, '%'); i >= 0 && i < len(s); i++ {
		if b, ok := escaped(s, i); ok && (separates(b) || b == '.') {
			return true
		}
	}
	return false
}

func readName(s string) (target, error) {
	for i := strings.IndexByte(s, '%'); i >= 0 && i < len(s); i++ {
		if _, ok := escaped(s, i); ok {
			return target{}, errEscape
		}
	}
	for rest, more := s, true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		switch seg {
		case "":
			return target{}, errEmpty
		case ".", "..":
			return target{}, errDots
		}
	}
	return target{form: formName, text: s, path: s}, nil
}

// resolve removes dot segments, and from a path of files empty segments too. It
// returns s itself if there are none. A URL keeps its last segment if it is
// empty, since servers tell "/a" from "/a/"; other empty ones are refused.
func resolve(s string, f form, glob bool) (string, error) {
	clean := true
	for rest, more := s[1:], true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		switch {
		case dots(seg):
			clean = false
			if glob {
				return "", errDots
			}
		case seg == "" && f == formPath:
			clean = clean && s == "/"
		case seg == "" && more:
			return "", errEmpty
		case f == formURL && dotsWithParameter(seg):
			return "", errDots
		}
	}
	if clean {
		return s, nil
	}
	return removeDots(s, f)
}

func dots(seg string) bool { return seg == "." || seg == ".." }

// dotsWithParameter reports segments such as "..;a", which some servers take for
// "..".
func dotsWithParameter(seg string) bool {
	rest := strings.TrimLeft(seg, ".")
	n := len(seg) - len(rest)
	return (n == 1 || n == 2) && (strings.HasPrefix(rest, ";") || strings.HasPrefix(rest, "%3B"))
}

func removeDots(s string, f form) (string, error) {
	out := make([]byte, 0, len(s))
	last := ""
	for rest, more := s[1:], true; more; {
		last, rest, more = strings.Cut(rest, "/")
		switch last {
		case "", ".":
		case "..":
			i := strings.LastIndexByte(string(out), '/')
			if i < 0 {
				return "", errClimbs
			}
			out = out[:i]
		default:
			out = append(append(out, '/'), last...)
		}
	}
	if len(out) == 0 || f == formURL && (last == "" || dots(last)) {
		out = append(out, '/')
	}
	return string(out), nil
}
