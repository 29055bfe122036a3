package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/records"
)

// Prefixes of the keys. A lease has a row under its principal, and two index rows. The first one
// finds a lease by its identity until the lease is released. The second one finds it by the time at
// which it is due or, after the release, deleted.
const (
	entryPrefix    = "resource/entry/"
	leasePrefix    = "resource/lease/"
	identityPrefix = "resource/identity/"
	duePrefix      = "resource/due/"
	releasedPrefix = "resource/old/"
)

func sessionPrefix(id arcp.SessionID) string { return records.Group(entryPrefix, string(id)) }

func entryKey(session arcp.SessionID, id string) string {
	return sessionPrefix(session) + url.PathEscape(id)
}

// leasesOf returns the prefix of the keys of a principal's leases; of all leases if it is
// empty.
func leasesOf(principal string) string {
	if principal == "" {
		return leasePrefix
	}
	return records.Group(leasePrefix, principal)
}

func leaseKey(principal string, id arcp.LeaseID) string {
	return leasesOf(principal) + newestFirst(strings.TrimPrefix(string(id), arcp.LeasePrefix))
}

// newestFirst reverses the order of minted ids.
func newestFirst(body string) string {
	const digits = arcp.IDAlphabet
	b := []byte(body)
	for i, c := range b {
		if v := strings.IndexByte(digits, c); v >= 0 {
			b[i] = digits[len(digits)-1-v]
		}
	}
	return string(b)
}

func identityKey(i *Identity) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s%s", len(i.Provider), i.Provider, len(i.Type), i.Type, i.ExternalID))
	return identityPrefix + hex.EncodeToString(sum[:])
}

func timeKey(prefix string, at time.Time, id arcp.LeaseID) string {
	return fmt.Sprintf("%s%020d/%s", prefix, max(at.UnixMicro(), 0), id)
}

// timeOf returns the time in the key of an index row.
func timeOf(key, prefix string) time.Time {
	var us int64
	if n, err := fmt.Sscanf(strings.TrimPrefix(key, prefix), "%020d", &us); n != 1 || err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
