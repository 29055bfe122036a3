// Package clip bounds the length of texts. All functions return valid UTF-8.
package clip

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text returns at most the first n bytes of s, without invalid bytes and without a truncated
// character.
func Text(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// Ellipsis returns s or, if s is longer than n bytes, a prefix of s and "…". The result has at most
// n bytes, but at least the 3 bytes of "…". A sequence of invalid bytes becomes one U+FFFD, which
// counts as 3 bytes.
func Ellipsis(s string, n int) string {
	end := max(n-len("…"), 0)
	long := len(s) > n
	if long {
		s = prefix(s, end)
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !long && len(s) <= n {
		return s
	}
	return prefix(s, end) + "…"
}

// prefix returns at most the first n bytes of s, without a truncated character.
func prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Quote returns at most the first n bytes of s as a Go string literal. "…" follows if s is longer.
func Quote(s string, n int) string {
	if len(s) <= n {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:n])
}
