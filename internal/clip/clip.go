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

// Ellipsis returns s or, if it is longer than n bytes, a prefix of s and "…" that have at most
// n bytes together, or only "…" if n is less than its 3 bytes. A run of invalid bytes becomes one
// U+FFFD, which counts as 3 bytes.
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

// prefix returns at most the first n bytes of s, without a character that would be cut in two.
func prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Quote returns s or, if it is longer, its first n bytes as a Go string literal. "…"
// follows a shortened one.
func Quote(s string, n int) string {
	if len(s) <= n {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", s[:n])
}
