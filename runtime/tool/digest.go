package tool

import (
	"crypto/sha3"
	"encoding/hex"

	"github.com/arcpd/arcpd/arcp"
)

// Digest returns the digest of a value for call records: the SHA3-256 of its compact JSON in
// lower-case hex. Members are sorted by RFC 8785, numbers are unchanged, and only necessary
// characters are escaped. The digest of invalid JSON is empty.
func Digest(value arcp.Raw) string {
	raw, err := arcp.Canonical(value)
	if err != nil {
		return ""
	}
	sum := sha3.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// ArgumentsDigest returns the Digest of arguments. Empty arguments and null count as {}.
func ArgumentsDigest(args arcp.Raw) string { return Digest(orEmpty(args)) }
