package arcp

import (
	"fmt"
	"io"
)

// Redacted is the printed and encoded form of a Secret.
const Redacted = "[redacted]"

// Secret is a text that packages fmt, log/slog and encoding/json print as Redacted. Three ways to
// print the text remain: %p, a map key in JSON, and an unexported field of a printed struct. Store
// a Secret in exported fields, or add a String method to the struct around it.
type Secret string

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// String returns Redacted.
func (Secret) String() string { return Redacted }

// GoString returns Redacted.
func (Secret) GoString() string { return Redacted }

// Format writes Redacted for every verb. Without it fmt would print the text for the verbs
// that do not call String, such as %d.
func (Secret) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, Redacted) } // fmt.State records the error

// MarshalText returns Redacted. Encoders of JSON, YAML and package log/slog call it.
func (Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }
