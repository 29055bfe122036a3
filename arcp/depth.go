package arcp

import "bytes"

// DeeperThan reports whether the objects and arrays in raw nest deeper than n levels. raw must be
// valid JSON.
func DeeperThan(raw Raw, n int) bool {
	if bytes.Count(raw, []byte{'{'})+bytes.Count(raw, []byte{'['}) <= n { // fast path for almost all values
		return false
	}
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i)
		case '{', '[':
			if depth++; depth > n {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// stringEnd returns the index of the closing quote of the string that begins at i.
func stringEnd(raw Raw, i int) int {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i
}
