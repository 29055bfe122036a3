package lease

import (
	"errors"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Bounds of a pattern, and of a target without its query. The cost of a comparison grows
// with the product of the segments of both.
const (
	MaxPattern  = 4096     // bytes
	MaxRequest  = 64 << 10 // bytes of a lease_request, because lists and events repeat it
	MaxSegments = 128
)

// target is the canonical form of the resource of an operation, or of a pattern before compile.
type target struct {
	form    form // never formAny
	text    string
	scheme  string // of a URL, as the next fields
	host    string
	port    string // with its colon; "": the default port of the scheme
	address bool   // host is an IP address
	path    string // the path of a URL; otherwise the text
}

func denied(format string, args ...any) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, format, args...)
}

// quote quotes s for a message, truncated to 200 bytes.
func quote(s string) string { return clip.Quote(s, 200) }

var (
	errNoText = errors.New("it is empty")
	errLong   = fmt.Errorf("it is longer than %d bytes", MaxPattern)
	errDeep   = fmt.Errorf("it has more than %d segments", MaxSegments)
)

// parseTarget parses a target, or with glob a pattern, into its canonical form:
//
//   - Paths are absolute. "." and ".." are resolved without the file system; tools must refuse
//     symbolic links. Repeated and trailing slashes are removed. A percent sign is an ordinary
//     character.
//   - URLs have no userinfo. Query and fragment are removed, scheme and host are in lower
//     case, the default port is removed, unreserved characters are decoded, and other characters
//     are encoded where a URL requires it.
//   - Names do not change.
//
// It refuses:
//
//   - control and invisible characters
//   - backslashes in paths and URLs, and encoded separators
//   - dot segments above the root; in a pattern all dot segments
//   - empty segments in URLs and names
//   - hosts that are unusual spellings of a number
//   - more than MaxPattern bytes or MaxSegments segments
//
// A pattern may have stars in its host, and no scheme.
func parseTarget(f form, s string, glob bool) (target, error) {
	if s == "" {
		return target{}, errNoText
	}
	if err := checkText(s); err != nil {
		return target{}, err
	}
	t, err := target{}, error(nil)
	switch guessForm(f, s) {
	case formPath:
		t, err = parsePath(s, glob)
	case formURL:
		t, err = parseURL(s, glob)
	default:
		t, err = parseName(s)
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

// guessForm returns f; for formAny it returns the grammar by the first characters of s.
func guessForm(f form, s string) form {
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

func parsePath(s string, glob bool) (target, error) {
	switch {
	case s[0] != '/':
		return target{}, errRelative
	case strings.HasPrefix(s, "//"): // implementation-defined in POSIX: some systems read a host
		return target{}, errNetwork
	case strings.IndexByte(s, '\\') >= 0:
		return target{}, errBackslash
	case hasEncodedSeparator(s):
		return target{}, errHidden
	}
	path, err := resolveDots(s, formPath, glob)
	return target{form: formPath, text: path, path: path}, err
}

// hasEncodedSeparator reports whether percent-decoding would change the segments of s.
func hasEncodedSeparator(s string) bool {
	for i := strings.IndexByte(s, '%'); i >= 0 && i < len(s); i++ {
		if b, ok := decodePercent(s, i); ok && (isSeparator(b) || b == '.') {
			return true
		}
	}
	return false
}

func parseName(s string) (target, error) {
	for i := strings.IndexByte(s, '%'); i >= 0 && i < len(s); i++ {
		if _, ok := decodePercent(s, i); ok {
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

// resolveDots removes dot segments, and empty segments of a file path. It returns s itself if there
// are none. The last segment of a URL may be empty, because servers distinguish "/a" from "/a/";
// other empty segments are refused.
func resolveDots(s string, f form, glob bool) (string, error) {
	clean := true
	for rest, more := s[1:], true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		switch {
		case isDotSegment(seg):
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

func isDotSegment(seg string) bool { return seg == "." || seg == ".." }

// dotsWithParameter reports segments such as "..;a", which some servers treat as "..".
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
	if len(out) == 0 || f == formURL && (last == "" || isDotSegment(last)) {
		out = append(out, '/')
	}
	return string(out), nil
}
