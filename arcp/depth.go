package arcp

import "bytes"

// DeeperThan reports whether objects and arrays nest deeper than n levels in raw,
// which is valid JSON.
func DeeperThan(raw Raw, n int) bool {
	if bytes.Count(raw, []byte{'{'})+bytes.Count(raw, []byte{'['}) <= n { // almost always
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

// stringEnd is where the string ends that begins at i.
func stringEnd(raw Raw, i int) int {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i
}
