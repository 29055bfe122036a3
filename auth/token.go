package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"time"
)

// ChallengeTTL is how long a challenge may be answered. The session enforces
// it, and that a challenge is answered once (SPEC.md §5.1).
const ChallengeTTL = 60 * time.Second

// hashPrefix marks the hash of a token in the auth file.
const hashPrefix = "sha256:"

// NewToken mints prefix and 26 random characters of A–Z and 2–7: 130 bits.
func NewToken(prefix string) Secret { return Secret(prefix + rand.Text()) }

// NewChallenge returns a fresh challenge: 256 random bits in base64url.
func NewChallenge() Secret {
	var b [32]byte
	rand.Read(b[:]) // never fails: it would end the process
	return Secret(base64.RawURLEncoding.EncodeToString(b[:]))
}

// HashToken returns the only form in which a token is stored. It is the key of the
// bearer challenge as well: protect it like a password.
func HashToken(token Secret) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// FileHash returns the form of a token in the auth file: "sha256:" and 64 lower-case
// hex digits.
func FileHash(token Secret) string {
	h := HashToken(token)
	return hashPrefix + hex.EncodeToString(h[:])
}

// Matches reports in constant time whether hash is the hash of token.
func Matches(hash [sha256.Size]byte, token Secret) bool {
	h := HashToken(token)
	return subtle.ConstantTimeCompare(hash[:], h[:]) == 1
}

// Equal reports in constant time whether two secrets are equal, without a sign of their lengths.
func Equal(a, b Secret) bool { return Matches(HashToken(a), b) }

// Answer returns the answer of a bearer token's holder to a challenge: lower-case hex of
// HMAC-SHA256 over the challenge as sent, keyed by the token's SHA-256 (SPEC.md §5.1).
func Answer(token, challenge Secret) Secret {
	a := answer(HashToken(token), challenge)
	return Secret(a[:])
}

func answer(key [sha256.Size]byte, challenge Secret) (out [2 * sha256.Size]byte) {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(challenge)) // never fails
	var sum [sha256.Size]byte
	hex.Encode(out[:], mac.Sum(sum[:0]))
	return out
}
