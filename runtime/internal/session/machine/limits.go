package machine

import "github.com/arcpd/arcpd/internal/clip"

// MaxReason bounds the reason that a client states, in bytes: it goes into rows, and into events
// that others read.
const MaxReason = 4 << 10

// ClipReason cuts a reason to MaxReason bytes, between two characters.
func ClipReason(reason string) string { return clip.Ellipsis(reason, MaxReason) }

// maxQuoted bounds a value of a client that answers and log records repeat, in bytes.
const maxQuoted = 64

func excerpt(s string) string { return clip.Ellipsis(s, maxQuoted) }
