// Package clip shortens texts.
package clip

import "unicode/utf8"

// Text returns the first n bytes of s, or a little less: no character is cut in two.
func Text(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
