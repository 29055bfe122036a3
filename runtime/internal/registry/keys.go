package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// What the records of this package begin with. A lease has a row under its
// principal, one under its identity while it is not released, and one under the
// time at which it is due or, once released, at which it is forgotten. All are
// written together.
const (
	entryPrefix    = "resource/entry/"
	leasePrefix    = "resource/lease/"
	identityPrefix = "resource/identity/"
	duePrefix      = "resource/due/"
	oldPrefix      = "resource/old/"
)

func sessionPrefix(id arcp.SessionID) string { return entryPrefix + url.PathEscape(string(id)) + "/" }

func entryKey(session arcp.SessionID, id string) string {
	return sessionPrefix(session) + url.PathEscape(id)
}

// leasesOf begins the keys of a principal's leases; of "" everybody's.
func leasesOf(principal string) string {
	if principal == "" {
		return leasePrefix
	}
	return leasePrefix + url.PathEscape(principal) + "/"
}

func leaseKey(principal string, id arcp.LeaseID) string {
	return leasesOf(principal) + newestFirst(strings.TrimPrefix(string(id), arcp.LeasePrefix))
}

// newestFirst turns the order of minted ids around.
func newestFirst(body string) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
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

// timeOf is the time in the key of a row under a time.
func timeOf(key, prefix string) time.Time {
	var us int64
	if n, err := fmt.Sscanf(strings.TrimPrefix(key, prefix), "%020d", &us); n != 1 || err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
