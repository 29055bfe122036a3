package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"strings"
	"testing"
	"unicode/utf16"
)

// keyForms are the texts of files that hold the key.
func keyForms(t testing.TB, s signer) map[string]string {
	t.Helper()
	forms := map[string]string{"a JWK": jsonText(s.jwk), "a JWK set": jwksOf(s.jwk)}
	if s.pem == "" {
		raw := string(s.private.([]byte))
		forms["a raw secret"], forms["a line"], forms["a DOS line"] = raw, raw+"\n", raw+"\r\n"
		return forms
	}
	forms["PEM"], forms["a certificate"] = s.pem, certificate(t, s.private.(crypto.Signer))
	forms["PEM with text around"] = "a comment\n" + s.pem + "\nmore\n"
	if k, ok := s.private.(*rsa.PrivateKey); ok {
		forms["PKCS #1"] = pemText("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&k.PublicKey))
	}
	return forms
}

func certificate(t testing.TB, private crypto.Signer) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	return pemText("CERTIFICATE", der)
}

func jsonText(v any) string { return string(mustValue(json.Marshal(v))) }

func jwksOf(keys ...map[string]any) string { return jsonText(map[string]any{"keys": keys}) }

func withMembers(jwk, more map[string]any) map[string]any {
	out := maps.Clone(jwk)
	maps.Copy(out, more)
	return out
}

func TestBadKeyFilesAreRefused(t *testing.T) {
	rsaKey := signers()["RSA"].private.(*rsa.PrivateKey)
	der := mustValue(x509.MarshalPKIXPublicKey(&rsaKey.PublicKey))
	small := mustValue(rsa.GenerateKey(rand.Reader, 1024))
	p224 := mustValue(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	x25519 := mustValue(ecdh.X25519().GenerateKey(rand.Reader)).PublicKey()
	jwk := signers()["P-256"].jwk
	for _, c := range []struct{ why, text, message string }{
		{"a short secret", strings.Repeat("s", 31), "a secret of 31 bytes is too short: HS256 needs 32"},
		{"nothing", "", "a secret of 0 bytes is too short"},
		{"a private key", pemText("PRIVATE KEY", mustValue(x509.MarshalPKCS8PrivateKey(rsaKey))), "private key"},
		{"an old private key", pemText("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), "private key"},
		{"a good key, then a private one", signers()["RSA"].pem + pemText("EC PRIVATE KEY", []byte{1}),
			"PEM block 2: the file holds a private key"},
		{"something else in PEM", pemText("CERTIFICATE REQUEST", der), "want a PUBLIC KEY"},
		{"PEM that is cut off", signers()["RSA"].pem[:100], "may be truncated"},
		{"PEM of another content", pemText("PUBLIC KEY", []byte("x")), "cannot be parsed"},
		{"PEM in UTF-16", utf16Text(signers()["RSA"].pem), "may be truncated"},
		{"DER", string(der), "not in PEM"},
		{"a DER certificate", string(pemBytes(t, certificate(t, rsaKey))), "not in PEM"},
		{"a DER private key", string(x509.MarshalPKCS1PrivateKey(rsaKey)), "not in PEM"},
		{"a DER private key in PKCS #8", string(mustValue(x509.MarshalPKCS8PrivateKey(rsaKey))), "not in PEM"},
		{"a DER EC private key", string(mustValue(x509.MarshalECPrivateKey(p224))), "not in PEM"},
		{"DER in base64", base64.StdEncoding.EncodeToString(der), "not in PEM"},
		{"DER in base64, in lines",
			"\n" + base64.StdEncoding.EncodeToString(der)[:64] + "\n" + base64.StdEncoding.EncodeToString(der)[64:] + "\n",
			"not in PEM"},
		{"DER in base64url", base64.RawURLEncoding.EncodeToString(der), "not in PEM"},
		{"an SSH key", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ me@host", "not in PEM"},
		{"a short RSA key", publicPEM(small), "an RSA key of 1024 bits is too short"},
		{"a curve without an algorithm", publicPEM(p224), "not supported"},
		{"a key that cannot sign", pemText("PUBLIC KEY", mustValue(x509.MarshalPKIXPublicKey(x25519))), "not supported"},
		{"JSON that is no key set", `[1]`, "not a JWK set"},
		{"a key set that is cut off", jwksOf(jwk)[:30], "not a JWK set"},
		{"an empty key set", `{"keys":[]}`, "no key for verifying signatures"},
		{"an empty object", `{}`, "no key for verifying signatures"},
		{"a key for encryption", jwksOf(withMembers(jwk, map[string]any{"use": "enc"})), "no key for verifying"},
		{"a key for signing only", jwksOf(withMembers(jwk, map[string]any{"key_ops": []string{"sign"}})), "no key for verifying"},
		{"an unknown kind of key", jwksOf(map[string]any{"kty": "AKP"}), "no key for verifying"},
		{"an unknown curve", jwksOf(withMembers(jwk, map[string]any{"crv": "secp256k1"})), "no key for verifying"},
		{"an algorithm that does not fit", jwksOf(withMembers(jwk, map[string]any{"alg": "HS256"})), "no key for verifying"},
		{"a private JWK", jwksOf(jwk, withMembers(jwk, map[string]any{"d": "AA"})), "keys[1]: it is a private key"},
		{"a point off the curve", jwksOf(withMembers(jwk, map[string]any{"x": jwk["y"], "y": jwk["x"]})), "not a point on the curve"},
		{"a short x", jwksOf(withMembers(jwk, map[string]any{"x": "AA"})), "x has 1 bytes: want 32"},
		{"no y", jwksOf(withMembers(jwk, map[string]any{"y": ""})), "y is missing or not base64url"},
		{"padding", jwksOf(withMembers(jwk, map[string]any{"y": "AA=="})), "y is missing or not base64url"},
		{"no n", jwksOf(map[string]any{"kty": "RSA", "e": "AQAB"}), "n is missing"},
		{"no e", jwksOf(map[string]any{"kty": "RSA", "n": "AQAB"}), "e is missing"},
		{"an e of 1", jwksOf(withMembers(signers()["RSA"].jwk, map[string]any{"e": "AQ"})), "not an RSA exponent"},
		{"an even e", jwksOf(withMembers(signers()["RSA"].jwk, map[string]any{"e": "BA"})), "not an RSA exponent"},
		{"a huge e", jwksOf(withMembers(signers()["RSA"].jwk, map[string]any{"e": "AQAAAAE"})), "not an RSA exponent"},
		{"a short n", jwksOf(withMembers(signers()["RSA"].jwk, map[string]any{"n": "AQAB"})), "too short"},
		{"a short Ed25519 x", jwksOf(withMembers(signers()["Ed25519"].jwk, map[string]any{"x": "AQAB"})), "x has 3 bytes: want 32"},
		{"no Ed25519 x", jwksOf(withMembers(signers()["Ed25519"].jwk, map[string]any{"x": nil})), "x is missing"},
		{"a short k", jwksOf(map[string]any{"kty": "oct", "k": "AQAB"}), "keys[0]: a secret of 3 bytes is too short"},
		{"no k", jwksOf(map[string]any{"kty": "oct"}), "k is missing"},
	} {
		keys, err := parseKeys([]byte(c.text))
		wantError(t, c.why, err, c.message)
		want(t, c.why+": no keys come with an error", len(keys), 0)
	}
}

func pemBytes(t testing.TB, text string) []byte {
	t.Helper()
	body := strings.TrimSuffix(strings.TrimPrefix(text, "-----BEGIN CERTIFICATE-----\n"), "-----END CERTIFICATE-----\n")
	der, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(body, "\n", ""))
	must(t, err)
	return der
}

func utf16Text(s string) string {
	var b bytes.Buffer
	for _, u := range utf16.Encode([]rune(s)) {
		b.Write([]byte{byte(u), byte(u >> 8)})
	}
	return b.String()
}

// A binary secret may end with bytes that are a line break in a text.
func TestBinarySecretKeepsItsEnd(t *testing.T) {
	secret := append(bytes.Repeat([]byte{0xff}, 63), '\n')
	keys, err := parseKeys(secret)
	must(t, err)
	want(t, "all bytes are the secret", keys[0].material(), any(secret))
}

func TestEveryKeyOfAFileIsRead(t *testing.T) {
	keys, err := parseKeys([]byte(signers()["RSA"].pem + certificate(t, signers()["Ed25519"].private.(ed25519.PrivateKey))))
	must(t, err)
	want(t, "both are read", []string{keys[0].kind, keys[1].kind}, []string{"RSA key", "Ed25519 key"})
}

func TestKeySetSkipsWhatItCannotUse(t *testing.T) {
	keys, err := parseKeys([]byte(jwksOf(
		map[string]any{"kty": "AKP", "alg": "ML-DSA-44"},
		withMembers(signers()["RSA"].jwk, map[string]any{"use": "enc"}),
		withMembers(signers()["P-521"].jwk, map[string]any{"kid": "k", "use": "sig", "key_ops": []string{"verify"}, "alg": "ES512"}),
	)))
	must(t, err)
	want(t, "one key is left", len(keys), 1)
	want(t, "with its id", keys[0].kid, "k")
	want(t, "and its algorithm", keys[0].algorithms, []string{"ES512"})
}

// The length of a secret decides how long a hash it may key.
func TestShortSecretsAreRefused(t *testing.T) {
	for n, algorithms := range map[int][]string{
		32: {"HS256"}, 47: {"HS256"}, 48: {"HS256", "HS384"}, 63: {"HS256", "HS384"}, 64: {"HS256", "HS384", "HS512"},
	} {
		k, err := newSecretKey(make([]byte, n))
		must(t, err)
		want(t, "algorithms of a secret", k.algorithms, algorithms)
	}
}
