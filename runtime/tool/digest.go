package tool

import (
	"crypto/sha3"
	"encoding/hex"

	"github.com/arcpd/arcpd/arcp"
)

// Digest is what call records know a value by: lower-case hex of the SHA3-256 of
// its compact JSON, with the members of objects sorted as RFC 8785 says, numbers as
// they were written, and nothing escaped that need not be. Of what is not JSON it is
// empty.
func Digest(value arcp.Raw) string {
	raw, err := arcp.Canonical(value)
	if err != nil {
		return ""
	}
	sum := sha3.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// ArgumentsDigest is Digest of arguments: missing ones and null are {}.
func ArgumentsDigest(args arcp.Raw) string { return Digest(orEmpty(args)) }
