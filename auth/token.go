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

// ChallengeTTL is the lifetime of a challenge. The session enforces it, and accepts one answer to
// each challenge (SPEC.md §5.1).
const ChallengeTTL = 60 * time.Second

// hashPrefix marks the hash of a token in the auth file.
const hashPrefix = "sha256:"

// NewToken returns prefix and 26 random characters of A–Z and 2–7: 130 random bits.
func NewToken(prefix string) Secret { return Secret(prefix + rand.Text()) }

// NewChallenge returns a new challenge: 256 random bits in base64url.
func NewChallenge() Secret {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return Secret(base64.RawURLEncoding.EncodeToString(b[:]))
}

// HashToken returns the stored form of a token. The hash is also the key of bearer challenges:
// protect it like a password.
func HashToken(token Secret) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// FileHash returns the form of a token in the auth file: "sha256:" and 64 lower-case hex digits.
func FileHash(token Secret) string {
	h := HashToken(token)
	return hashPrefix + hex.EncodeToString(h[:])
}

// TokenMatches reports in constant time whether hash is the hash of token.
func TokenMatches(hash [sha256.Size]byte, token Secret) bool {
	h := HashToken(token)
	return subtle.ConstantTimeCompare(hash[:], h[:]) == 1
}

// EqualSecrets reports in constant time whether two secrets are equal. The time does not reveal
// their lengths.
func EqualSecrets(a, b Secret) bool { return TokenMatches(HashToken(a), b) }

// ChallengeResponse returns the response to a challenge with a bearer token: lower-case hex of
// HMAC-SHA256 over the challenge, keyed by the SHA-256 of the token (SPEC.md §5.1).
func ChallengeResponse(token, challenge Secret) Secret {
	a := challengeResponse(HashToken(token), challenge)
	return Secret(a[:])
}

func challengeResponse(key [sha256.Size]byte, challenge Secret) (out [2 * sha256.Size]byte) {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(challenge)) // never fails
	var sum [sha256.Size]byte
	hex.Encode(out[:], mac.Sum(sum[:0]))
	return out
}
