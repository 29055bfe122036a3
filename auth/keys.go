package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxKeyFile = 1 << 20 // bytes; a large key set has about 50 kB
	minRSABits = 2048    // RFC 7518 §3.3
)

// algorithms are the supported algorithms. "none" is not one of them.
var algorithms = []string{
	"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
	"ES256", "ES384", "ES512", "EdDSA",
}

// key verifies signatures. The kind of key determines its algorithms, so a public key is never used
// as an HMAC secret.
type key struct {
	kid        string // "": matches any kid
	kind       string // for errors
	algorithms []string
	material   func() any // in the form of golang-jwt; a func, so fmt does not print the secret
	print      string     // Identity.KeyFingerprint of its tokens
}

// mayVerify reports whether the key may verify a token with this header.
func (k *key) mayVerify(algorithm, kid string) bool {
	return slices.Contains(k.algorithms, algorithm) && (kid == "" || k.kid == "" || kid == k.kid)
}

func newSecretKey(secret []byte) (*key, error) {
	k := &key{kind: fmt.Sprintf("secret of %d bytes", len(secret)), material: func() any { return secret }, print: fingerprint("key", secret)}
	for _, a := range []struct {
		name  string
		bytes int // at least as long as the hash: RFC 7518 §3.2
	}{{"HS256", 32}, {"HS384", 48}, {"HS512", 64}} {
		if len(secret) >= a.bytes {
			k.algorithms = append(k.algorithms, a.name)
		}
	}
	if k.algorithms == nil {
		return nil, fmt.Errorf("a secret of %d bytes is too short: HS256 needs 32, HS384 48, HS512 64", len(secret))
	}
	return k, nil
}

// newPublicKey returns the key that verifies signatures with public. It refuses RSA keys below
// minRSABits and kinds without an algorithm.
func newPublicKey(public any) (*key, error) {
	k := &key{material: func() any { return public }}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits is too short: make one of %d or more", p.N.BitLen(), minRSABits)
		}
		k.kind, k.algorithms = "RSA key", []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		name := p.Curve.Params().Name
		k.kind, k.algorithms = name+" key", curveAlgorithms[name]
	case ed25519.PublicKey:
		k.kind, k.algorithms = "Ed25519 key", []string{"EdDSA"}
	}
	if k.algorithms == nil {
		return nil, errors.New("the kind of key is not supported: use RSA, P-256, P-384, P-521 or Ed25519")
	}
	encoded, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be used: %w", err)
	}
	k.print = fingerprint("key", encoded)
	return k, nil
}

var curveAlgorithms = map[string][]string{"P-256": {"ES256"}, "P-384": {"ES384"}, "P-521": {"ES512"}}

// readFile reads at most limit bytes. Its errors do not contain the path, which may be a misplaced secret.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return data, nil
}

func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// parseKeys parses the content of a key file: PEM public keys and certificates (their dates are
// ignored), a JWK set, or a raw secret. The final line break of a text secret is removed.
func parseKeys(data []byte) ([]*key, error) {
	switch {
	case bytes.Contains(bytes.ReplaceAll(data, []byte{0}, nil), []byte("-----BEGIN")): // also in UTF-16
		return parsePEM(data)
	case json.Valid(data) || bytes.Contains(data, []byte(`"kty"`)):
		return parseJWKS(data)
	case isBareKey(data):
		return nil, errors.New("the file holds a key that is not in PEM: convert it to PEM (openssl pkey -pubin -inform DER, ssh-keygen -e -m PKCS8)")
	}
	k, err := newSecretKey(trimLine(data))
	if err != nil {
		return nil, err
	}
	return []*key{k}, nil
}

// trimLine removes the final line break of a text. Binary secrets are unchanged.
func trimLine(data []byte) []byte {
	text := bytes.TrimRight(data, "\r\n")
	if !utf8.Valid(text) || bytes.ContainsFunc(text, unicode.IsControl) {
		return data
	}
	return text
}

func parsePEM(data []byte) (keys []*key, err error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		k, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", len(keys)+1, err)
		}
		keys = append(keys, k)
	}
	if keys == nil {
		return nil, errors.New("the PEM text is invalid; it may be truncated")
	}
	return keys, nil
}

func parseBlock(b *pem.Block) (*key, error) {
	if strings.HasSuffix(b.Type, "PRIVATE KEY") {
		return nil, errors.New("the file holds a private key: use the public key instead (openssl pkey -pubout)")
	}
	parse, ok := pemParsers[b.Type]
	if !ok {
		return nil, errors.New("want a PUBLIC KEY, an RSA PUBLIC KEY or a CERTIFICATE")
	}
	public, err := parse(b.Bytes)
	if err != nil {
		return nil, errors.New("the key cannot be parsed")
	}
	return newPublicKey(public)
}

var pemParsers = map[string]func([]byte) (any, error){
	"PUBLIC KEY":     x509.ParsePKIXPublicKey,
	"RSA PUBLIC KEY": func(der []byte) (any, error) { return x509.ParsePKCS1PublicKey(der) },
	"CERTIFICATE":    certificateKey,
}

func certificateKey(der []byte) (any, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return c.PublicKey, nil
}

// isBareKey reports whether data is a public key without PEM armour. If it were accepted as a raw
// secret, any holder of the public key could sign.
func isBareKey(data []byte) bool {
	text := strings.TrimSpace(string(data))
	for _, start := range []string{"ssh-", "ecdsa-sha2-", "sk-ssh-", "---- BEGIN SSH2", "<RSAKeyValue"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	text = strings.TrimRight(strings.Join(strings.Fields(text), ""), "=")
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if der, err := e.DecodeString(text); err == nil && isDER(der) {
			return true
		}
	}
	return isDER(data)
}

func isDER(data []byte) bool {
	for _, parse := range derParsers {
		if _, err := parse(data); err == nil {
			return true
		}
	}
	return false
}

var derParsers = []func([]byte) (any, error){
	x509.ParsePKIXPublicKey,
	pemParsers["RSA PUBLIC KEY"],
	certificateKey,
	x509.ParsePKCS8PrivateKey,
	func(der []byte) (any, error) { return x509.ParsePKCS1PrivateKey(der) },
	func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) },
}
