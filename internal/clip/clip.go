// Package clip bounds the length of texts. All functions return valid UTF-8.
package clip

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text returns at most the first n bytes of s. Invalid bytes, and a character that would
// be cut in two, are left out.
func Text(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// Ellipsis returns s or, if it is longer than n bytes, a prefix of s and "…" that have at
// most n bytes together. Invalid bytes become U+FFFD.
func Ellipsis(s string, n int) string {
	if len(s) > n {
		n = max(n-len("…"), 0)
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Quote returns s or, if it is longer, its first n bytes as a Go string literal. "…"
// follows a shortened one.
func Quote(s string, n int) string {
	if len(s) <= n {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:n])
}
