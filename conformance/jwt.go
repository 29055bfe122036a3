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

// JWT is an issuer that the server trusts and the key for signing its tokens. The server must
// accept only the algorithm of the key from this issuer.
type JWT struct {
	Key      *SigningKey
	Issuer   string // claim iss
	Audience string // claim aud; empty: "arcp"
	Subject  string // claim sub, the name of the principal; empty: Target.Principal
}

// SigningKey signs tokens with HS256, RS256, ES256 or EdDSA, depending on the kind of key.
type SigningKey struct {
	algorithm string
	sign      func(input []byte) ([]byte, error)
	known     []byte // the key of the server: the secret, or the public key as PEM

	// another generates a key of the same kind.
	another func() (*SigningKey, error)
}

// minSecret is the size in bytes of the shortest secret for HS256 (RFC 7518 §3.2).
const minSecret = 32

// ParseSigningKey parses a PEM block with a PKCS #8 private key (RSA, P-256 or Ed25519). Data
// without a PEM block is a secret for HS256 of at least 32 bytes; line breaks at its end are
// removed.
func ParseSigningKey(data []byte) (*SigningKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		secret := bytes.TrimRight(data, "\r\n")
		if len(secret) < minSecret {
			return nil, fmt.Errorf("the secret has %d bytes, want at least %d for HS256", len(secret), minSecret)
		}
		return secretKey(secret), nil
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the PEM block is not a private key in PKCS #8")
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
			return nil, errors.New("the elliptic curve is not P-256")
		}
		k.algorithm, public = "ES256", p.Public()
		k.sign = func(input []byte) ([]byte, error) { return signES256(p, input) }
		another = func() (any, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }
	default:
		return nil, errors.New("the key is neither RSA, P-256 nor Ed25519")
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

// signES256 signs as RFC 7518 §3.4 requires: r and s with 32 bytes each.
func signES256(p *ecdsa.PrivateKey, input []byte) ([]byte, error) {
	hash := sha256.Sum256(input)
	r, s, err := ecdsa.Sign(rand.Reader, p, hash[:])
	if err != nil {
		return nil, err
	}
	return slices.Concat(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))), nil
}

// misused returns a key that signs with HS512 and the key material of the server. A server that
// accepts its tokens lets the token choose the algorithm.
func (k *SigningKey) misused() *SigningKey {
	return &SigningKey{algorithm: "HS512", sign: func(input []byte) ([]byte, error) {
		mac := hmac.New(sha512.New, k.known)
		mac.Write(input) // never fails
		return mac.Sum(nil), nil
	}}
}

// unsigned returns the key for the algorithm none (RFC 7518 §3.6).
func unsigned() *SigningKey {
	return &SigningKey{algorithm: "none", sign: func([]byte) ([]byte, error) { return nil, nil }}
}

// claims are the claims of a token. A nil value removes the claim.
type claims map[string]any

// claims returns the claims of a valid token with the changes applied.
func (run *checkRun) claims(changes claims) claims {
	j, now := run.target.JWT, time.Now()
	c := claims{"iss": j.Issuer, "aud": run.target.audience(), "sub": run.target.subject(), "exp": now.Add(10 * time.Minute).Unix()}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// token signs claims. The token becomes a secret of the transcript.
func (run *checkRun) token(k *SigningKey, c claims) string {
	input := segment(run, map[string]any{"alg": k.algorithm, "typ": "JWT"}) + "." + segment(run, c)
	signature, err := k.sign([]byte(input))
	if err != nil {
		run.Skipf("the key cannot sign: %v", err)
	}
	token := input + "." + base64.RawURLEncoding.EncodeToString(signature)
	run.tr.secrets = append(slices.Clone(run.tr.secrets), token)
	return token
}

func segment(t *checkRun, v map[string]any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Failf("encode the token: %v", err)
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

// problem returns the missing setting for the checks that sign tokens, or "".
func (j *JWT) problem(tg *Target) string {
	switch {
	case j == nil || j.Key == nil:
		return "no key for signing tokens was given: give --jwt-key"
	case j.Issuer == "":
		return "no issuer of tokens was given: give --jwt-issuer"
	case tg.subject() == "":
		return "no subject of tokens was given: give --jwt-subject or --principal"
	}
	return ""
}

// proof returns the answer to a challenge from a client with the token (SPEC §5.1).
func proof(token, nonce string) string {
	key := sha256.Sum256([]byte(token))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(nonce)) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}
