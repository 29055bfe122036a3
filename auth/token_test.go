package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNewTokensAreRandom(t *testing.T) {
	shape := regexp.MustCompile(`^rt_[A-Z2-7]{26}$`) // 26 × 5 bits
	seen := map[Secret]bool{}
	for range 100 {
		token := NewToken("rt_")
		if !shape.MatchString(token.Reveal()) {
			t.Fatalf("a token of %d bytes is not like %v", len(token), shape)
		}
		seen[token] = true
	}
	want(t, "each token is another", len(seen), 100)
}

func TestNewChallengesAreRandom(t *testing.T) {
	a, b := NewChallenge(), NewChallenge()
	raw, err := base64.RawURLEncoding.DecodeString(a.Reveal())
	must(t, err)
	want(t, "a challenge has 256 bits", len(raw), 32)
	want(t, "each challenge is another", a == b, false)
	want(t, "a challenge is good for a minute", ChallengeTTL, time.Minute)
}

func TestFileHashIsSHA256(t *testing.T) {
	const hash = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, B.1
	want(t, "the file has the plain SHA-256", FileHash("abc"), hash)
	parsed, err := parseHash(hash)
	must(t, err)
	want(t, "the file's form is what the loader reads", TokenMatches(parsed, "abc"), true)
	want(t, "another token does not match", TokenMatches(parsed, "abd"), false)
}

func TestEqualComparesSecrets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		want(t, "EqualSecrets is ==", EqualSecrets(Secret(a), Secret(b)), a == b)
		want(t, "EqualSecrets is reflexive", EqualSecrets(Secret(a), Secret(a)), true)
	})
}

func TestAnswerIsAnHMAC(t *testing.T) {
	key := sha256.Sum256([]byte("token"))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("nonce-1"))
	want(t, "the answer is hex HMAC-SHA256 keyed by the token's hash",
		ChallengeResponse("token", "nonce-1").Reveal(), hex.EncodeToString(mac.Sum(nil)))
}
