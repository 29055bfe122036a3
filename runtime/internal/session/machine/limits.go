package machine

import "github.com/arcpd/arcpd/internal/clip"

// MaxReason bounds the reason in a message of a client, in bytes. It becomes part of rows and
// of events for other clients.
const MaxReason = 4 << 10

// ClipReason truncates a reason to MaxReason bytes, between two characters.
func ClipReason(reason string) string { return clip.Ellipsis(reason, MaxReason) }

// maxQuoted bounds the value of a client in an answer or a log record, in bytes.
const maxQuoted = 64

func excerpt(s string) string { return clip.Ellipsis(s, maxQuoted) }
