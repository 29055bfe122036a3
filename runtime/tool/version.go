package tool

import (
	"cmp"
	"strings"
)

// compareVersions compares versions by semantic versioning: dotted numbers by value, a
// pre-release before its release, build metadata last. Different texts are never equal.
func compareVersions(a, b string) int {
	coreA, preA := splitVersion(a)
	coreB, preB := splitVersion(b)
	return cmp.Or(compareDotted(coreA, coreB), comparePre(preA, preB), strings.Compare(a, b))
}

func splitVersion(v string) (core, pre string) {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "+")
	core, pre, _ = strings.Cut(v, "-")
	return core, pre
}

func comparePre(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	return compareDotted(a, b)
}

func compareDotted(a, b string) int {
	for a != "" && b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := comparePart(x, y); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// comparePart compares numbers by value; numbers precede words.
func comparePart(x, y string) int {
	numX, numY := isDigits(x), isDigits(y)
	switch {
	case numX && numY:
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	case numX:
		return -1
	case numY:
		return 1
	}
	return strings.Compare(x, y)
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
