package arcp

import (
	"encoding/binary"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// MaxIDLen bounds every identifier accepted from a peer, in bytes (§2.2).
const MaxIDLen = 256

// Typed identifiers. An id minted by the runtime is the kind's prefix and 26 characters of
// Crockford base32 that hold a UUIDv7, so ids of one kind sort by the time of minting (§2.2).
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

// IDBodyLen is the length of a minted identifier without its prefix.
const IDBodyLen = 26

// ValidID reports whether s may be used as an identifier by a peer: 1 to
// MaxIDLen visible ASCII characters.
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

// HasPrefix reports whether s is a valid identifier made of prefix and at
// least one more character.
func HasPrefix(s, prefix string) bool {
	return len(s) > len(prefix) && strings.HasPrefix(s, prefix) && ValidID(s)
}

// Valid reports whether the id has its kind's prefix and a body.
func (id SessionID) Valid() bool { return HasPrefix(string(id), SessionPrefix) }

// Valid reports whether the id has its kind's prefix and a body.
func (id JobID) Valid() bool { return HasPrefix(string(id), JobPrefix) }

// Valid reports whether the id has its kind's prefix and a body.
func (id StreamID) Valid() bool { return HasPrefix(string(id), StreamPrefix) }

// Valid reports whether the id has its kind's prefix and a body.
func (id SubscriptionID) Valid() bool { return HasPrefix(string(id), SubscriptionPrefix) }

// Valid reports whether the id has its kind's prefix and a body.
func (id LeaseID) Valid() bool { return HasPrefix(string(id), LeasePrefix) }

// Valid reports whether the id has its kind's prefix and a body.
func (id ArtifactID) Valid() bool { return HasPrefix(string(id), ArtifactPrefix) }

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// AppendIDBody appends the 26 character Crockford base32 form of u.
func AppendIDBody(dst []byte, u [16]byte) []byte {
	hi, lo := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	var b [IDBodyLen]byte
	for i := IDBodyLen - 1; i >= 0; i-- {
		b[i] = crockford[lo&31]
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
		v := strings.IndexByte(crockford, s[i])
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

// IDSource mints identifiers that strictly ascend, also when the clock steps
// back or when After said that greater ones exist already. The zero value is
// ready. It may be used by many goroutines.
type IDSource struct {
	mu   sync.Mutex
	last [16]byte
}

// After makes every later identifier greater than body, the part after the
// prefix of one minted before, for example by an earlier process. A body that
// was not minted by an IDSource is ignored.
func (s *IDSource) After(body string) {
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

// Append appends the body of a new identifier, without a prefix.
func (s *IDSource) Append(dst []byte) []byte { return AppendIDBody(dst, s.Reserve(1)) }

// Reserve mints n identifiers that follow each other and returns the first; Next
// makes the others of it, and AppendIDBody their bodies. Minting many at once
// costs one look at the clock and no randomness but the first one's (RFC 9562
// §6.2, method 2): they are unique and ordered, and the next can be guessed.
func (s *IDSource) Reserve(n int) [16]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, err := uuid.NewV7()
	if err != nil || string(u[:]) <= string(s.last[:]) {
		u = Next(s.last)
	}
	s.last = u
	lo := binary.BigEndian.Uint64(u[8:])
	if sum := lo + uint64(n-1); sum >= lo { // a carry would leave the random part: then gaps do no harm
		binary.BigEndian.PutUint64(s.last[8:], sum)
	}
	return u
}

// Next is the identifier that follows u: u + 1 as a 128 bit number.
func Next(u [16]byte) [16]byte {
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

// NewID mints an identifier with one of the prefixes from the process-wide
// source.
func NewID(prefix string) string { return ids.New(prefix) }

// NewMessageID mints a message id.
func NewMessageID() MessageID { return MessageID(ids.New(MessagePrefix)) }

// NewSessionID mints a session id.
func NewSessionID() SessionID { return SessionID(ids.New(SessionPrefix)) }

// NewJobID mints a job id.
func NewJobID() JobID { return JobID(ids.New(JobPrefix)) }
