// Package digest computes the digests of arguments and results in the records of calls.
package digest

import (
	"crypto/sha3"
	"encoding/hex"

	"github.com/arcpd/arcpd/arcp"
)

// Of returns the digest of a value: the SHA3-256 of its compact JSON in
// lower-case hex. Members are sorted by RFC 8785, numbers are unchanged, and only necessary
// characters are escaped. The digest of invalid JSON is empty.
func Of(value arcp.Raw) string {
	raw, err := arcp.Canonical(value)
	if err != nil {
		return ""
	}
	sum := sha3.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// OfArguments returns the digest of arguments. Empty arguments and null count as {}.
func OfArguments(args arcp.Raw) string {
	if len(args) == 0 || args.Kind() == 'n' {
		args = arcp.Raw("{}")
	}
	return Of(args)
}
