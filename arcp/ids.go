package arcp

import (
	"encoding/binary"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// MaxIDLen bounds every received identifier, in bytes (§2.2).
const MaxIDLen = 256

// Typed identifiers (§2.2). A generated id is a prefix and a UUIDv7 as 26 characters of Crockford
// base32. Ids with the same prefix sort by the time of generation.
type (
	MessageID      string
	SessionID      string
	JobID          string
	StreamID       string
	SubscriptionID string
	LeaseID        string
	ArtifactID     string
)

// Prefixes of the typed identifiers (§2.2).
const (
	MessagePrefix      = "msg_"
	SessionPrefix      = "sess_"
	JobPrefix          = "job_"
	StreamPrefix       = "str_"
	SubscriptionPrefix = "sub_"
	LeasePrefix        = "lease_"
	ArtifactPrefix     = "art_"
	ResultPrefix       = "res_"
	CheckpointPrefix   = "chk_"
)

// IDBodyLen is the length of a generated identifier without its prefix, in bytes.
const IDBodyLen = 26

// ValidID reports whether s is a valid identifier: 1 to MaxIDLen visible ASCII characters.
func ValidID(s string) bool {
	if s == "" || len(s) > MaxIDLen {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// HasPrefix reports whether s is a valid identifier of prefix and at least one more character.
func HasPrefix(s, prefix string) bool {
	return len(s) > len(prefix) && strings.HasPrefix(s, prefix) && ValidID(s)
}

// Valid reports whether the id has the prefix of its type and a body.
func (id SessionID) Valid() bool { return HasPrefix(string(id), SessionPrefix) }

// Valid reports whether the id has the prefix of its type and a body.
func (id JobID) Valid() bool { return HasPrefix(string(id), JobPrefix) }

// Valid reports whether the id has the prefix of its type and a body.
func (id StreamID) Valid() bool { return HasPrefix(string(id), StreamPrefix) }

// Valid reports whether the id has the prefix of its type and a body.
func (id SubscriptionID) Valid() bool { return HasPrefix(string(id), SubscriptionPrefix) }

// Valid reports whether the id has the prefix of its type and a body.
func (id LeaseID) Valid() bool { return HasPrefix(string(id), LeasePrefix) }

// Valid reports whether the id has the prefix of its type and a body.
func (id ArtifactID) Valid() bool { return HasPrefix(string(id), ArtifactPrefix) }

// IDAlphabet has the characters of identifiers in their order: Crockford's base32.
const IDAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// AppendIDBody appends u as 26 characters of Crockford base32.
func AppendIDBody(dst []byte, u [16]byte) []byte {
	hi, lo := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	var b [IDBodyLen]byte
	for i := IDBodyLen - 1; i >= 0; i-- {
		b[i] = IDAlphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return append(dst, b[:]...)
}

// ParseIDBody parses the output of AppendIDBody.
func ParseIDBody(s string) (u [16]byte, ok bool) {
	if len(s) != IDBodyLen || s[0] > '7' {
		return u, false
	}
	var hi, lo uint64
	for i := range len(s) {
		v := strings.IndexByte(IDAlphabet, s[i])
		if v < 0 {
			return u, false
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], lo)
	return u, true
}

// IDSource generates strictly increasing identifiers, also when the clock steps back. The zero value
// is ready to use. It is safe for concurrent use.
type IDSource struct {
	mu   sync.Mutex
	last [16]byte
}

// StartAfter makes every later identifier greater than body, the identifier of an earlier process without
// its prefix. A body that is not a UUIDv7 is ignored.
func (s *IDSource) StartAfter(body string) {
	u, ok := ParseIDBody(body)
	if !ok || u[6]>>4 != 7 || u[8]>>6 != 2 { // not a UUIDv7
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(u[:]) > string(s.last[:]) {
		s.last = u
	}
}

// Append appends the body of a new identifier.
func (s *IDSource) Append(dst []byte) []byte { return AppendIDBody(dst, s.Reserve(1)) }

// Reserve generates n consecutive identifiers and returns the first. Next returns the others, and
// AppendIDBody their text. They share one clock reading and one random number (RFC 9562 §6.2, method
// 2): they are unique and ordered, but predictable.
func (s *IDSource) Reserve(n int) [16]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, err := uuid.NewV7()
	if err != nil || string(u[:]) <= string(s.last[:]) {
		u = NextID(s.last)
	}
	s.last = u
	lo := binary.BigEndian.Uint64(u[8:])
	if sum := lo + uint64(n-1); sum >= lo { // no carry out of the random part: on overflow the range stays unreserved
		binary.BigEndian.PutUint64(s.last[8:], sum)
	}
	return u
}

// NextID returns u + 1 as a 128-bit number: the identifier after u.
func NextID(u [16]byte) [16]byte {
	for i := len(u) - 1; i >= 0; i-- {
		if u[i]++; u[i] != 0 {
			break
		}
	}
	return u
}

// New returns a new identifier with the prefix.
func (s *IDSource) New(prefix string) string {
	var b [16 + IDBodyLen]byte
	return string(s.Append(append(b[:0], prefix...)))
}

var ids IDSource

func init() { uuid.EnableRandPool() }

// NewID returns a new identifier with the prefix from the process-wide source.
func NewID(prefix string) string { return ids.New(prefix) }

// NewMessageID returns a new message id.
func NewMessageID() MessageID { return MessageID(ids.New(MessagePrefix)) }

// NewSessionID returns a new session id.
func NewSessionID() SessionID { return SessionID(ids.New(SessionPrefix)) }

// NewJobID returns a new job id.
func NewJobID() JobID { return JobID(ids.New(JobPrefix)) }
