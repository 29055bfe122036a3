package auth

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"go.yaml.in/yaml/v3"
)

// A file is refused or gives a working configuration, and no error repeats a value
// of it.
func FuzzFile(f *testing.F) {
	f.Add(fullFile)
	for _, text := range secretFiles {
		f.Add(strings.ReplaceAll(text, "@", canary))
	}
	f.Add("principals: [{name: alice, tokens: [" + hashA + "], lease: {a: [1, 1.5, null, true, {b: c}]}}]")
	f.Add("issuers: [{issuer: i, key_files: [secret], algorithms: [HS256], roles_claim: r}]\nchallenge: {bearer: always}")
	dir := writeFiles(f, map[string]string{"secret": strings.Repeat("s", 64), "set.json": jwksOf(signers()["RSA"].jwk)})
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "/") {
			t.Skip("a path outside of the directory") // and its files may block
		}
		c, err := parseFile([]byte(text), dir, Options{})
		if (c == nil) != (err != nil) {
			t.Fatalf("configuration %v with error %v", c, err)
		}
		if err != nil {
			wantNoScalar(t, err, text)
			return
		}
		checkConfig(t, c)
	})
}

// wantNoScalar checks that the error repeats no text that may be a secret.
func wantNoScalar(t *testing.T, err error, text string) {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) != nil {
		return // nothing was read
	}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && len(n.Value) > maxShown && strings.Contains(err.Error(), n.Value) && !strings.Contains(ownWords, n.Value) {
			t.Errorf("error %q repeats %q", err, n.Value)
		}
		for _, e := range n.Content {
			walk(e)
		}
	}
	walk(&doc)
}

// ownWords may be in an error because we say them.
const ownWords = "want a mapping: anonymous, challenge, introspection, issuers, principals"

func checkConfig(t *testing.T, c *Config) {
	set := NewSet(c)
	for name, p := range c.principals {
		if err := checkName(name); err != nil || p.identity.Principal != name || len(p.identity.Roles) == 0 || p.identity.Trust == "" {
			t.Errorf("principal %+v: %v", p, err)
		}
		if lease := p.identity.Lease; lease != nil && !strings.HasPrefix(string(lease), "{") {
			t.Errorf("lease %s is no object", lease)
		}
	}
	for name, i := range c.issuers {
		if err := i.check(); err != nil || i.name != name {
			t.Errorf("issuer %q: %v", name, err)
		}
	}
	wantRefusal(t, "nobody's token", refused(t, set, Request{Scheme: "other", Now: now}), ReasonNotConfigured, "not configured")
}

// Only tokens the issuer signed come in, and an error repeats no part of a token.
func FuzzJWT(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // the same in each fuzzing process, and so are its signatures
	dir := writeFiles(f, map[string]string{"secret": strings.Repeat("s", 64), "ed.pem": publicPEM(key)})
	c := parse(f, dir, "issuers: [{issuer: https://issuer.example, key_files: [secret, ed.pem], algorithms: [HS256, EdDSA], roles_claim: groups}]")
	set := NewSet(c)
	signed := map[string]bool{}
	for _, change := range []map[string]any{nil, {"groups": "admin"}, {"exp": 1}, {"nonce": "n"},
		{"aud": []string{"arcp"}}, {"sub": "uid:0"}} {
		hs := sign(f, "HS256", []byte(strings.Repeat("s", 64)), claims(change), nil).Reveal()
		ed := sign(f, "EdDSA", key, claims(change), map[string]any{"kid": "k"}).Reveal()
		signed[hs], signed[ed] = true, true
	}
	for token := range signed {
		f.Add(token)
	}
	f.Add(sign(f, "none", jwt.UnsafeAllowNoneSignatureType, claims(nil), nil).Reveal())
	f.Add(sign(f, "HS256", []byte(publicPEM(key)), claims(nil), nil).Reveal())
	f.Add("..")
	f.Add(canary)
	f.Fuzz(func(t *testing.T, token string) {
		r := jwtRequest(Secret(token))
		id, challenge, err := set.Begin(t.Context(), r)
		switch {
		case challenge != "":
			t.Error("a challenge without a policy")
		case err == nil && !signed[token]:
			t.Errorf("%q came in as %v", token, id)
		case err == nil && (id.Principal != "alice" || !id.Expires.After(now)):
			t.Errorf("identity %+v", id)
		case err != nil:
			wantNoPart(t, err, token)
		}
		_, err = set.Verify(t.Context(), r, Proof{"n", Secret(token)})
		if err == nil && !signed[token] {
			t.Errorf("%q answers a challenge", token)
		}
		if err != nil {
			wantNoPart(t, err, token)
		}
	})
}

func wantNoPart(t *testing.T, err error, token string) {
	for part := range strings.SplitSeq(token, ".") {
		if len(part) >= 8 && !strings.Contains(issuerWords, part) && strings.Contains(err.Error(), part) {
			t.Errorf("error %q repeats %q", err, part)
		}
	}
}

// issuerWords may be in an error because we say them.
const issuerWords = "jwt validation failed: token is malformed, challenge response did not validate, signing algorithm is not allowed"

// A key file gives keys that each know their algorithms, or an error without any
// of its content.
func FuzzKeys(f *testing.F) {
	for _, s := range signers() {
		for _, form := range []string{s.pem, jsonText(s.jwk), jwksOf(s.jwk)} {
			f.Add([]byte(form))
		}
	}
	f.Add([]byte(strings.Repeat("s", 64) + "\n"))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"` + canary + `","alg":"HS256"},{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeys(data)
		if (len(keys) == 0) != (err != nil) {
			t.Fatalf("%d keys with error %v", len(keys), err)
		}
		if err != nil && strings.Contains(err.Error(), canary[:24]) {
			t.Errorf("error %q repeats the file", err)
		}
		for _, k := range keys {
			if _, isSecret := k.material().([]byte); isSecret != strings.HasPrefix(k.algorithms[0], "HS") {
				t.Errorf("a %s does %v", k.kind, k.algorithms)
			}
		}
	})
}
