package arcp

import "fmt"

// Dialect is a dialect of the protocol. Its text form is its name.
type Dialect uint8

// The dialects.
const (
	DialectRFC   Dialect = iota // rfc: opens with session.open
	DialectDraft                // draft: opens with session.hello of draft 1.1
)

// String returns the name of the dialect.
func (d Dialect) String() string {
	if d == DialectDraft {
		return "draft"
	}
	return "rfc"
}

// MarshalText returns the name of the dialect.
func (d Dialect) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets the dialect by its name.
func (d *Dialect) UnmarshalText(name []byte) error {
	for _, known := range []Dialect{DialectRFC, DialectDraft} {
		if string(name) == known.String() {
			*d = known
			return nil
		}
	}
	return fmt.Errorf("unknown dialect %q", name)
}
