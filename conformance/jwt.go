package conformance

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// JWT is an issuer that the server knows, with a key to sign its tokens with. The
// server should accept no other algorithm of the issuer than the key's.
type JWT struct {
	Key      *SigningKey
	Issuer   string
	Audience string // the server's identity; empty: arcp
	Subject  string // of the tokens, and the principal's name; empty: Target.Principal
}

// SigningKey signs tokens: with HS256, RS256, ES256 or EdDSA, as its kind is.
type SigningKey struct {
	algorithm string
	sign      func(input []byte) ([]byte, error)
	known     []byte // what the server has: the secret, or the public key as PEM

	// another returns a key of the same kind.
	another func() (*SigningKey, error)
}

// minSecret is the size in bytes of the shortest secret for HS256 (RFC 7518 §3.2).
const minSecret = 32

// ParseSigningKey reads a private key in PEM (PKCS #8: RSA, P-256 or Ed25519), or
// takes the data as a secret, without the line break that may end it.
func ParseSigningKey(data []byte) (*SigningKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		secret := bytes.TrimRight(data, "\r\n")
		if len(secret) < minSecret {
			return nil, fmt.Errorf("a secret of %d bytes is too short: HS256 needs %d", len(secret), minSecret)
		}
		return secretKey(secret), nil
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("want a private key in PKCS #8, or a secret")
	}
	return privateKey(private)
}

func secretKey(secret []byte) *SigningKey {
	return &SigningKey{
		algorithm: "HS256",
		known:     secret,
		sign: func(input []byte) ([]byte, error) {
			mac := hmac.New(sha256.New, secret)
			mac.Write(input) // never fails
			return mac.Sum(nil), nil
		},
		another: func() (*SigningKey, error) {
			other := make([]byte, len(secret))
			rand.Read(other) // never fails
			return secretKey(other), nil
		},
	}
}

func privateKey(private any) (*SigningKey, error) {
	k := &SigningKey{}
	var public any
	var another func() (any, error)
	switch p := private.(type) {
	case ed25519.PrivateKey:
		k.algorithm, public = "EdDSA", p.Public()
		k.sign = func(input []byte) ([]byte, error) { return ed25519.Sign(p, input), nil }
		another = func() (any, error) {
			_, other, err := ed25519.GenerateKey(nil)
			return other, err
		}
	case *rsa.PrivateKey:
		k.algorithm, public = "RS256", p.Public()
		k.sign = func(input []byte) ([]byte, error) {
			hash := sha256.Sum256(input)
			return rsa.SignPKCS1v15(nil, p, crypto.SHA256, hash[:])
		}
		another = func() (any, error) { return rsa.GenerateKey(rand.Reader, max(p.N.BitLen(), 2048)) }
	case *ecdsa.PrivateKey:
		if p.Curve != elliptic.P256() {
			return nil, errors.New("want an elliptic curve key on P-256")
		}
		k.algorithm, public = "ES256", p.Public()
		k.sign = func(input []byte) ([]byte, error) { return signES256(p, input) }
		another = func() (any, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }
	default:
		return nil, errors.New("want an RSA, P-256 or Ed25519 key")
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	k.known = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	k.another = func() (*SigningKey, error) {
		other, err := another()
		if err != nil {
			return nil, err
		}
		return privateKey(other)
	}
	return k, nil
}

// signES256 is RFC 7518 §3.4: both numbers, each in 32 bytes.
func signES256(p *ecdsa.PrivateKey, input []byte) ([]byte, error) {
	hash := sha256.Sum256(input)
	r, s, err := ecdsa.Sign(rand.Reader, p, hash[:])
	if err != nil {
		return nil, err
	}
	return slices.Concat(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))), nil
}

// misused signs with HS512 and what the server has of the key: a public key is no
// secret, and a secret for HS256 is none for HS512.
func (k *SigningKey) misused() *SigningKey {
	return &SigningKey{algorithm: "HS512", sign: func(input []byte) ([]byte, error) {
		mac := hmac.New(sha512.New, k.known)
		mac.Write(input) // never fails
		return mac.Sum(nil), nil
	}}
}

// unsigned is the algorithm none (RFC 7518 §3.6).
func unsigned() *SigningKey {
	return &SigningKey{algorithm: "none", sign: func([]byte) ([]byte, error) { return nil, nil }}
}

// claims of a token; a nil one is left out.
type claims map[string]any

// claims are those of a good token, but for changes.
func (t *T) claims(changes claims) claims {
	j, now := t.target.JWT, time.Now()
	c := claims{"iss": j.Issuer, "aud": t.target.audience(), "sub": t.target.subject(), "exp": now.Add(10 * time.Minute).Unix()}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// token signs claims. It is as secret as what the target was given.
func (t *T) token(k *SigningKey, c claims) string {
	input := segment(t, map[string]any{"alg": k.algorithm, "typ": "JWT"}) + "." + segment(t, c)
	signature, err := k.sign([]byte(input))
	if err != nil {
		t.Skipf("the key cannot sign: %v", err)
	}
	token := input + "." + base64.RawURLEncoding.EncodeToString(signature)
	t.tr.secrets = append(slices.Clone(t.tr.secrets), token)
	return token
}

func segment(t *T, v map[string]any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Failf("the check itself is wrong: %v", err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func (tg *Target) audience() string {
	if tg.JWT.Audience == "" {
		return "arcp"
	}
	return tg.JWT.Audience
}

func (tg *Target) subject() string {
	if tg.JWT.Subject == "" {
		return tg.Principal
	}
	return tg.JWT.Subject
}

// problem says what the target lacks for the checks that sign tokens, or "".
func (j *JWT) problem(tg *Target) string {
	switch {
	case j == nil || j.Key == nil:
		return "no key of an issuer of tokens was given"
	case j.Issuer == "":
		return "the issuer of tokens was not given"
	case tg.subject() == "":
		return "the subject of tokens was not given"
	}
	return ""
}

// proof is the response to a challenge of a client that has the token (SPEC §5.1).
func proof(token, nonce string) string {
	key := sha256.Sum256([]byte(token))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(nonce)) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}
