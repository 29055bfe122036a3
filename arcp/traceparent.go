package arcp

import (
	"encoding/hex"
	"strings"
)

// Lengths of the identifiers of a W3C trace context, in hexadecimal digits.
const (
	traceIDLen = 32
	spanIDLen  = 16
)

// ParseTraceparent splits a W3C traceparent of any version but ff into its trace id and its span id.
// ok is false for any other text.
func ParseTraceparent(s string) (traceID, spanID string, ok bool) {
	p := strings.Split(s, "-")
	if len(p) != 4 || len(p[0]) != 2 || p[0] == "ff" || len(p[3]) != 2 || !isHex(p[0]+p[3]) ||
		!isTraceID(p[1], traceIDLen) || !isTraceID(p[2], spanIDLen) {
		return "", "", false
	}
	return p[1], p[2], true
}

// Traceparent returns the W3C traceparent of a sampled span. It is empty if the identifiers are not of a
// W3C trace context: 32 and 16 lower-case hexadecimal digits that are not all zero.
func Traceparent(traceID, spanID string) string {
	if !isTraceID(traceID, traceIDLen) || !isTraceID(spanID, spanIDLen) {
		return ""
	}
	return "00-" + traceID + "-" + spanID + "-01"
}

// isTraceID reports whether s is an identifier with n lower-case hexadecimal digits that are not all zero.
func isTraceID(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0") != "" && isHex(s)
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && strings.ToLower(s) == s
}
