package arcp

import (
	"slices"
	"strings"
)

func cutDot(s string) (head, tail string, ok bool) { return strings.Cut(s, ".") }

// Classify returns the class of the type name t (§6.4).
func Classify(t Type) Class {
	s := string(t)
	switch {
	case Lookup(t) != nil:
		return ClassCore
	case strings.HasPrefix(s, "x-"):
		return ClassExperimental
	case IsExtensionName(s):
		return ClassExtension
	case !wellFormed(strings.Split(s, ".")):
		return ClassMalformed
	}
	root, _, _ := cutDot(s)
	if slices.Contains(coreRoots, root) {
		return ClassUnknownCore
	}
	return ClassMalformed
}

// IsExtensionName reports whether s is a well-formed extension name (§6.4). It has at least three
// segments. The first is arcpx or a domain of 2 to 8 lower-case letters. The last is a version: v
// and digits.
func IsExtensionName(s string) bool {
	segs := strings.Split(s, ".")
	if len(segs) < 3 || !wellFormed(segs) || !isVersionSegment(segs[len(segs)-1]) {
		return false
	}
	return segs[0] == "arcpx" || isDomain(segs[0])
}

func wellFormed(segs []string) bool {
	for _, seg := range segs {
		if seg == "" || strings.Trim(seg, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			return false
		}
	}
	return true
}

func isVersionSegment(s string) bool {
	return len(s) > 1 && s[0] == 'v' && strings.Trim(s[1:], "0123456789") == ""
}

func isDomain(s string) bool {
	return len(s) >= 2 && len(s) <= 8 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}
