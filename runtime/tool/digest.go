package tool

import (
	"crypto/sha3"
	"encoding/hex"

	"github.com/arcpd/arcpd/arcp"
)

// Digest returns the digest of a value for call records: lower-case hex SHA3-256 of its
// compact JSON. Members are sorted by RFC 8785, numbers are unchanged, and only necessary
// characters are escaped. It is empty for invalid JSON.
func Digest(value arcp.Raw) string {
	raw, err := arcp.Canonical(value)
	if err != nil {
		return ""
	}
	sum := sha3.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// ArgumentsDigest is Digest of arguments; missing ones and null count as {}.
func ArgumentsDigest(args arcp.Raw) string { return Digest(orEmpty(args)) }
