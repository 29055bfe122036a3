package conformance

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// Tokens of every kind of key are as a library for them reads them, and those of
// another key of the kind are not.
func TestSigningKeys(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte(strings.Repeat("s", minSecret))
	for algorithm, private := range map[string]any{"HS256": secret, "EdDSA": ed, "ES256": ec, "RS256": rs} {
		data, public := append(secret, '\n'), any(secret)
		if signer, ok := private.(crypto.Signer); ok {
			der, err := x509.MarshalPKCS8PrivateKey(private)
			if err != nil {
				t.Fatal(err)
			}
			data, public = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), signer.Public()
		}
		key, err := ParseSigningKey(data)
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		other, err := key.another()
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		parser := jwt.NewParser(jwt.WithValidMethods([]string{algorithm}), jwt.WithAudience("arcp"), jwt.WithIssuer("i"), jwt.WithSubject("alice"), jwt.WithExpirationRequired())
		c := newCheckRun(t.Context(), &Target{Principal: "alice", JWT: &JWT{Key: key, Issuer: "i"}}, nil)
		if _, err := parser.Parse(c.token(c.target.JWT.Key, c.claims(nil)), func(*jwt.Token) (any, error) { return public, nil }); err != nil {
			t.Errorf("%s: a good token is refused: %v", algorithm, err)
		}
		for why, k := range map[string]*SigningKey{"another key's": other, "a misused key's": key.misused(), "an unsigned": unsigned()} {
			if _, err := parser.Parse(c.token(k, c.claims(nil)), func(*jwt.Token) (any, error) { return public, nil }); err == nil {
				t.Errorf("%s: %s token is good", algorithm, why)
			}
		}
	}
}

func TestSigningKeyRefusals(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(p384)
	if err != nil {
		t.Fatal(err)
	}
	for why, data := range map[string][]byte{
		"a short secret": []byte("short\n"),
		"another curve":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"no key":         pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der[1:]}),
	} {
		if _, err := ParseSigningKey(data); err == nil {
			t.Errorf("%s is a key", why)
		}
	}
}

// Tokens are as secret as the target's own.
func TestTokensAreNotShown(t *testing.T) {
	c := newCheckRun(t.Context(), &Target{Principal: "alice", JWT: &JWT{Key: secretKey(make([]byte, minSecret)), Issuer: "i"}}, nil)
	token := c.token(c.target.JWT.Key, c.claims(nil))
	if shown := c.tr.printable([]byte(`{"token":"` + token + `"}`)); strings.Contains(shown, token) {
		t.Errorf("the transcript shows %s", shown)
	}
}
