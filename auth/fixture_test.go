package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
)

// now is the time of every attempt; nothing here looks at the clock.
var now = time.Date(2026, 5, 9, 13, 0, 0, 0, time.UTC)

// tb is the part of testing.TB that property tests also have.
type tb interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func want[T any](t tb, why string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", why, diff)
	}
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantRefusal checks an *Error, its reason and a part of its message.
func wantRefusal(t tb, why string, err error, reason, message string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("%s: error %v is no *Error", why, err)
	}
	want(t, why+": reason", e.Reason, reason)
	if !strings.Contains(e.Message, message) {
		t.Errorf("%s: message %q does not contain %q", why, e.Message, message)
	}
}

// wantError checks that an error contains all the parts.
func wantError(t tb, why string, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error, want %q", why, parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error %q does not contain %q", why, err, p)
		}
	}
}

// parse reads an auth file whose relative paths start in dir.
func parse(t tb, dir, text string) *Config {
	t.Helper()
	c, err := parseFile([]byte(text), dir, Options{})
	must(t, err)
	return c
}

func withTokens(t tb, tokens map[Secret]string) *Config {
	t.Helper()
	c := new(Config)
	for token, name := range tokens {
		must(t, c.AddToken(Token{Principal: name, Secret: token, Roles: LocalRoles()}))
	}
	return c
}

// begin expects an identity.
func begin(t tb, s *Set, r Request) Identity {
	t.Helper()
	id, challenge, err := s.Begin(t.Context(), r)
	must(t, err)
	if challenge != "" {
		t.Fatal("Begin returns a challenge, want none")
	}
	return id
}

// challenged expects a challenge.
func challenged(t tb, s *Set, r Request) Secret {
	t.Helper()
	id, challenge, err := s.Begin(t.Context(), r)
	must(t, err)
	if challenge == "" {
		t.Fatal("Begin returns no challenge, want one")
	}
	want(t, "an identity does not come with a challenge", id, Identity{})
	return challenge
}

func refused(t tb, s *Set, r Request) error {
	t.Helper()
	id, challenge, err := s.Begin(t.Context(), r)
	if err == nil {
		t.Fatalf("%v was not refused", r)
	}
	want(t, "an identity does not come with a refusal", id, Identity{})
	want(t, "a challenge does not come with a refusal", challenge, "")
	return err
}

// signer is a key with which tests sign, and all files that let it verify.
type signer struct {
	private any
	pem     string // "" for a secret
	jwk     map[string]any
}

// signers makes the keys once: RSA keys take their time.
var signers = sync.OnceValue(func() map[string]signer {
	rsaKey := mustValue(rsa.GenerateKey(rand.Reader, 2048))
	all := map[string]signer{
		"RSA": {rsaKey, publicPEM(rsaKey),
			map[string]any{"kty": "RSA", "n": b64(rsaKey.N.Bytes()), "e": b64(big.NewInt(int64(rsaKey.E)).Bytes())}},
	}
	for _, c := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		k := mustValue(ecdsa.GenerateKey(c, rand.Reader))
		size := (c.Params().BitSize + 7) / 8
		point := mustValue(k.PublicKey.Bytes())[1:]
		all[c.Params().Name] = signer{k, publicPEM(k), map[string]any{
			"kty": "EC", "crv": c.Params().Name, "x": b64(point[:size]), "y": b64(point[size:]),
		}}
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	all["Ed25519"] = signer{private, publicPEM(private), map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b64(public)}}
	secret := []byte(strings.Repeat("0123456789abcdef", 4))
	all["secret"] = signer{secret, "", map[string]any{"kty": "oct", "k": b64(secret)}}
	return all
})

// kindOf is the signer an algorithm needs.
func kindOf(algorithm string) string {
	switch algorithm {
	case "ES256":
		return "P-256"
	case "ES384":
		return "P-384"
	case "ES512":
		return "P-521"
	case "EdDSA":
		return "Ed25519"
	}
	if strings.HasPrefix(algorithm, "HS") {
		return "secret"
	}
	return "RSA"
}

func mustValue[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func publicPEM(private any) string {
	public := private.(crypto.Signer).Public()
	return pemText("PUBLIC KEY", mustValue(x509.MarshalPKIXPublicKey(public)))
}

func pemText(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// writeFiles makes a directory of files.
func writeFiles(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// claims returns the claims of a valid token with changes applied; nil removes a claim.
func claims(change map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{"iss": "https://issuer.example", "aud": "arcp", "sub": "alice", "exp": now.Add(time.Hour).Unix()}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// sign makes a JWT of the claims; header members are added.
func sign(t tb, algorithm string, key any, c jwt.Claims, header map[string]any) Secret {
	t.Helper()
	token := jwt.NewWithClaims(jwt.GetSigningMethod(algorithm), c)
	maps.Copy(token.Header, header)
	s, err := token.SignedString(key)
	must(t, err)
	return Secret(s)
}

// signedToken signs claims as the issuer of the tests does.
func signedToken(t tb, change map[string]any) Secret {
	t.Helper()
	return sign(t, "HS256", signers()["secret"].private, claims(change), nil)
}

// hmacConfig has one issuer that signs with a secret; more are lines of its entry.
func hmacConfig(t testing.TB, more string) *Config {
	t.Helper()
	dir := writeFiles(t, map[string]string{"secret": string(signers()["secret"].private.([]byte))})
	return parse(t, dir, fmt.Sprintf(`
issuers:
  - issuer: https://issuer.example
    key_files: [secret]
    algorithms: [HS256, HS512]
%s`, more))
}

func jwtRequest(token Secret) Request { return Request{Scheme: SignedJWT, Token: token, Now: now} }
