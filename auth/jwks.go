package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// jwk has the members of a JSON Web Key (RFC 7517) that this package uses.
type jwk struct {
	Kty, Kid, Use, Alg, Crv string
	KeyOps                  []string `json:"key_ops"`
	N, E, X, Y              string
	K                       Secret
	D                       any // private keys are refused
}

// parseJWKS reads a JWK set or a single JWK. It skips keys for other uses and of unknown kinds (RFC 7517
// §5). A set without a usable key is an error.
func parseJWKS(data []byte) ([]*key, error) {
	var set struct {
		Keys []jwk
		jwk
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New(`the JSON is not a JWK set: want {"keys": [...]}`)
	}
	if set.Keys == nil && set.Kty != "" {
		set.Keys = []jwk{set.jwk}
	}
	keys, err := usableKeys(set.Keys)
	if err == nil && len(keys) == 0 {
		err = errors.New("the JWK set has no key for verifying signatures")
	}
	return keys, err
}

func usableKeys(all []jwk) (keys []*key, err error) {
	for i, j := range all {
		if !j.verifies() {
			continue
		}
		k, err := j.key()
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if k != nil && len(k.algorithms) > 0 {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// verifies reports whether the key is for verifying signatures.
func (j jwk) verifies() bool {
	return (j.Use == "" || j.Use == "sig") && (j.KeyOps == nil || slices.Contains(j.KeyOps, "verify"))
}

// key returns nil for an unknown kind of key.
func (j jwk) key() (*key, error) {
	if j.D != nil {
		return nil, errors.New(`it is a private key: remove "d" and give the public members only`)
	}
	k, err := j.bare()
	if err != nil || k == nil {
		return nil, err
	}
	k.kid = j.Kid
	if j.Alg != "" {
		k.algorithms = slices.DeleteFunc(slices.Clone(k.algorithms), func(a string) bool { return a != j.Alg })
	}
	return k, nil
}

func (j jwk) bare() (*key, error) {
	switch {
	case j.Kty == "oct":
		secret, err := member("k", j.K.Reveal())
		if err != nil {
			return nil, err
		}
		return newSecretKey(secret)
	case j.Kty == "RSA":
		return j.rsa()
	case j.Kty == "EC" && curves[j.Crv] != nil:
		return j.ec(curves[j.Crv])
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		return j.ed25519()
	}
	return nil, nil
}

var curves = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}

func (j jwk) rsa() (*key, error) {
	n, err := member("n", j.N)
	if err != nil {
		return nil, err
	}
	e, err := member("e", j.E)
	if err != nil {
		return nil, err
	}
	exponent := new(big.Int).SetBytes(e)
	if exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 {
		return nil, errors.New("e is not an RSA exponent: want an odd number from 3 to 2147483647")
	}
	return newPublicKey(&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())})
}

// ec returns the key of a JWK of the type EC. x and y have the size of the curve's field (RFC
// 7518 §6.2.1).
func (j jwk) ec(curve elliptic.Curve) (*key, error) {
	size := (curve.Params().BitSize + 7) / 8
	point := []byte{4} // uncompressed
	for _, m := range []struct{ name, text string }{{"x", j.X}, {"y", j.Y}} {
		b, err := member(m.name, m.text)
		if err != nil {
			return nil, err
		}
		if len(b) != size {
			return nil, fmt.Errorf("%s has %d bytes: want %d", m.name, len(b), size)
		}
		point = append(point, b...)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, errors.New("x and y are not a point on the curve")
	}
	return newPublicKey(public)
}

func (j jwk) ed25519() (*key, error) {
	x, err := member("x", j.X)
	if err != nil {
		return nil, err
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("x has %d bytes: want %d", len(x), ed25519.PublicKeySize)
	}
	return newPublicKey(ed25519.PublicKey(x))
}

// member decodes a required base64url member.
func member(name, text string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("%s is missing or not base64url", name)
	}
	return b, nil
}
