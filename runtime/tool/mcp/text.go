package mcp

import (
	"strings"
	"unicode/utf8"
)

// cut makes s valid UTF-8 of about n bytes at most.
func cut(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
