package auth

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/arcp"
)

// canary stands for a credential. It is longer than any word an error may show.
const canary = "Canary0123456789Canary0123456789Canary0123456789Canary0123456789"

// leaks finds the canary, its hash (the key of a challenge), its print and the
// usual ways to write either.
func leaks(text string) bool {
	hash := HashToken(canary)
	for _, secret := range [][]byte{[]byte(canary), hash[:], []byte(tokenFingerprint(hash))} {
		for _, form := range []string{
			string(secret), hex.EncodeToString(secret), fmt.Sprintf("%X", secret), fmt.Sprintf("% x", secret),
			base64.StdEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret),
			strings.Trim(fmt.Sprint(secret), "[]"), strings.Trim(fmt.Sprintf("%#v", secret), "[]byte{}"), // as bytes
		} {
			if strings.Contains(text, form) {
				return true
			}
		}
	}
	return false
}

func TestLeaksFindsLeaks(t *testing.T) {
	hash := HashToken(canary)
	for _, v := range []any{canary, []byte(canary), hash, struct{ s string }{canary}, map[[32]byte]int{hash: 1}} {
		for _, format := range []string{"%v", "%+v", "%x"} {
			want(t, fmt.Sprintf("%s of %T", format, v), leaks(fmt.Sprintf(format, v)), true)
		}
	}
	want(t, "the form of the store", leaks(tokenFingerprint(HashToken(canary)).Reveal()), true)
	want(t, "the form of the file", leaks(FileHash(canary)), true)
	want(t, "something else", leaks("Canary0123456789"), false)
}

// secretConfig holds the canary in each way a configuration can.
func secretConfig(t *testing.T) *Config {
	t.Helper()
	c := parse(t, writeFiles(t, map[string]string{"secret": canary}), `
principals: [{name: alice, tokens: ["`+FileHash(canary)+`"], sees: ["*"], lease: {a: 1}}]
issuers: [{issuer: i, key_files: [secret], algorithms: [HS256]}]
anonymous: {enabled: true}
`)
	must(t, c.AddToken(Token{Principal: "bob", Secret: "another", Roles: LocalRoles()}))
	return c
}

// secretValues returns values of the package that hold the canary, also inside of other values.
func secretValues(t *testing.T) map[string]any {
	t.Helper()
	config := secretConfig(t)
	set := NewSet(config)
	request := Request{Scheme: Bearer, Token: canary, Principal: "alice", Now: now}
	id := begin(t, set, request)
	values := map[string]any{
		"secret":     Secret(canary),
		"request":    request,
		"proof":      Proof{canary, canary},
		"identity":   id,
		"config":     config,
		"set":        set,
		"bare":       *config,
		"wrapped":    struct{ Config Config }{*config},
		"hidden":     struct{ c Config }{*config},
		"hidden set": struct{ s *Set }{set},
		"list":       []Secret{canary},
		"key":        map[Secret]Secret{canary: canary},
		"any":        []any{Secret(canary), request, config},
		"principal":  Principal{Name: "alice", TokenHashes: []Secret{canary}},
		"issuer":     Issuer{Name: "i", Keys: []Secret{canary}},
		"a JWK":      jwk{Kty: "oct", K: canary},
		"an issuer":  config.issuers["i"],
		"a key":      *config.issuers["i"].keys[0],
	}
	for i, err := range secretErrors(t, set) {
		values[fmt.Sprint("error ", i)] = err
	}
	return values
}

// secretErrors are refusals and complaints about the canary, wherever it stands.
func secretErrors(t *testing.T, set *Set) (errs []error) {
	t.Helper()
	add := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("error = nil, want one")
		}
		errs = append(errs, err)
	}
	wrong := Secret(canary + "x")
	for _, r := range []Request{
		{Scheme: Bearer, Token: wrong}, {Scheme: SignedJWT, Token: wrong}, {Scheme: None, Token: wrong},
		{Scheme: OAuth2, Token: wrong}, {Scheme: MTLS, Token: wrong}, {Scheme: canary, Token: wrong},
		{Scheme: Bearer, Principal: canary}, {Scheme: SignedJWT, Principal: canary}, {Scheme: None, Principal: canary},
		{Scheme: SignedJWT, Token: canary + "." + canary + "." + canary},
		jwtRequest(sign(t, "HS256", []byte(canary), claims(map[string]any{"iss": canary}), nil)),
		jwtRequest(sign(t, "HS256", []byte(canary), claims(map[string]any{"iss": "i", "exp": canary, "sub": canary, "aud": canary}), nil)),
		jwtRequest(sign(t, "HS256", []byte(canary), claims(map[string]any{"iss": "i", "aud": canary}), nil)),
		jwtRequest(sign(t, "HS256", []byte(canary), claims(map[string]any{"iss": "i", "sub": "uid:" + canary}), nil)),
		jwtRequest(sign(t, "HS256", []byte(canary), claims(map[string]any{"iss": "i", "sub": canary + "\n"}), map[string]any{"kid": canary})),
		jwtRequest(sign(t, "HS256", []byte(canary), claims(map[string]any{"iss": "i"}), map[string]any{"crit": canary})),
		jwtRequest(Secret(b64([]byte(`{"alg":"`+canary+`"}`)) + "." + b64([]byte(`{}`)) + ".AA")),
		jwtRequest(Secret(b64([]byte(canary)) + "." + b64([]byte(canary)) + ".AA")),
		jwtRequest(Secret(b64([]byte(`{"alg":"HS256"}`)) + "." + b64([]byte(`{"iss":"`+canary)) + ".AA")),
	} {
		r.Now = now
		_, err := set.Verify(t.Context(), r, Proof{canary, wrong})
		add(err)
		if r.Token != "" {
			add(refused(t, set, r))
		}
	}
	add(new(Config).AddToken(Token{Principal: "", Secret: canary, Roles: LocalRoles()}))
	add(secretConfig(t).AddToken(Token{Principal: "bob", Secret: canary, Roles: LocalRoles()}))
	add(secretConfig(t).AddPrincipal(Principal{Name: "carol", TokenHashes: []Secret{canary}}))
	add(secretConfig(t).AddPrincipal(Principal{Name: "carol", Roles: []Role{canary}}))
	add(secretConfig(t).AddIssuer(Issuer{Name: "j", Keys: []Secret{"-----BEGIN " + canary}}))
	for _, text := range secretFiles {
		_, err := parseFile([]byte(strings.ReplaceAll(text, "@", canary)), t.TempDir(), Options{})
		add(err)
	}
	for _, text := range []string{"-----BEGIN @", "-----BEGIN @-----\n@\n-----END @-----", `{"kty":"oct","k":"@!"}`,
		`{"keys":"@"}`, `{"kty":"RSA","n":"@","e":"@"}`, "ssh-rsa @", `"kty"@`} {
		_, err := parseKeys([]byte(strings.ReplaceAll(text, "@", canary)))
		add(err)
	}
	return errs
}

// secretFiles are wrong with the canary (@) in any place.
var secretFiles = []string{
	"@", "[@]", "@: 1", "{@: 1, @: 2}", "principals: @", "principals: [@]", "principals: [@: 1]",
	"principals: [{name: [@]}]", "principals: [{name: 'anonymous:@'}]", "principals: [{name: @, name: @}]",
	"principals: [{name: @}, {name: @}]", "principals: [{name: a, tokens: @}]", "principals: [{name: a, tokens: [@]}]",
	"principals: [{name: a, tokens: ['sha256:@']}]", "principals: [{name: a, tokens: ['@:@']}]", "principals: [{name: a, tokens: [@: 1]}]",
	"principals: [{name: a, tokens: [!@ a]}]", "principals: [{name: a, tokens: [*@]}]", "principals: [{name: a, tokens: [&@ *@]}]",
	"principals: [{name: a, roles: [@]}]", "principals: [{name: a, trust: @}]", "principals: [{name: a, limits: {jobs: @}}]",
	"principals: [{name: a, limits: @}]", "principals: [{name: a, sees: ['[@']}]", "principals: [{name: a, lease: @}]",
	"principals: [{name: a, lease: {a: !!int @}}]", "principals: [{name: a, lease: {@: 1, @: 2}}]", "principals: [{name: a, certs: [@]}]",
	"challenge: {bearer: @}", "challenge: {@: never}", "anonymous: {enabled: @}", "anonymous: @", "introspection: @",
	"introspection: {client_secret: @}", "issuers: [@]", "issuers: [{issuer: @}]", "issuers: [{issuer: i, key_files: [@]}]",
	"issuers: [{issuer: i, jwks: @}]", "issuers: [{issuer: i, jwks: 'https://@'}]", "issuers: [{issuer: i, algorithms: [@]}]",
	"issuers: [{issuer: i, algorithms: @}]", "issuers: [{issuer: [@]}]", "issuers: [{issuer: i, claim: @, @: 1}]",
	"{}\n---\n@", "principals: [@", "@\n@: [", "%@", "principals: \"@", "principals: |\n @\n@", "\t@", "a: b: @", "- @\na: 1",
}

func TestNothingPrintsASecret(t *testing.T) {
	// Not %p: fmt asks no method for it, vet does.
	verbs := []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%T", "%f", "%c", "%U", "%!"}
	for name, v := range secretValues(t) {
		for i, verb := range verbs {
			if strings.HasPrefix(name, "hidden") && i >= 3 {
				continue // fmt asks no method inside of unexported fields, and a verb that does not fit follows pointers; vet knows
			}
			for _, arg := range []any{v, &v, []any{v}, struct{ V any }{v}} {
				if text := fmt.Sprintf(verb, arg); leaks(text) {
					t.Errorf("%s: %s of %T shows a secret: %s", name, verb, arg, text)
				}
			}
		}
	}
}

func TestNothingEncodesASecret(t *testing.T) {
	encoders := map[string]func(any) ([]byte, error){
		"JSON": json.Marshal, "YAML": yaml.Marshal,
		"slog text": func(v any) ([]byte, error) { return logged(slog.NewTextHandler, v), nil },
		"slog JSON": func(v any) ([]byte, error) { return logged(slog.NewJSONHandler, v), nil },
	}
	for name, v := range secretValues(t) {
		if name == "a key" || name == "an issuer" {
			continue // holds a func: no encoder accepts it, and it is not exported
		}
		for encoding, encode := range encoders {
			if name == "key" && strings.Contains(encoding, "JSON") {
				continue // encoding/json asks no method of a key that is a string
			}
			out, err := encode(v)
			if err != nil && leaks(err.Error()) || leaks(string(out)) {
				t.Errorf("%s: %s shows a secret: %s %v", name, encoding, out, err)
			}
		}
	}
}

func logged[H slog.Handler](handler func(io.Writer, *slog.HandlerOptions) H, v any) []byte {
	var b strings.Builder
	slog.New(handler(&b, nil)).Info("value", "value", v)
	return []byte(b.String())
}

func TestSecretPrintsAsRedacted(t *testing.T) {
	for _, verb := range []string{"%v", "%s", "%d", "%#v"} {
		want(t, verb, fmt.Sprintf(verb, Secret(canary)), arcp.Redacted)
	}
	want(t, "Reveal gives it", Secret(canary).Reveal(), canary)
	want(t, "String does not", Secret(canary).String()+Secret(canary).GoString(), arcp.Redacted+arcp.Redacted)
	want(t, "a Config counts", fmt.Sprint(secretConfig(t)), "auth config: 2 principals, 1 issuers, anonymous true")
}

func TestErrorsQuoteOnlyShortWords(t *testing.T) {
	for word, is := range map[string]string{
		"": "(not shown)", "rolls": `"rolls"`, "rate_per_min": `"rate_per_min"`, "a b": "(not shown)", "ä": "(not shown)",
		strings.Repeat("a", 20): `"` + strings.Repeat("a", 20) + `"`, strings.Repeat("a", 21): "(not shown)",
	} {
		want(t, "shown "+word, shown(word), is)
	}
	for range 100 {
		want(t, "a minted token is not shown", shown(NewToken("").Reveal()), "(not shown)")
	}
}

// An error's text is its message, and its detail if it has one.
func TestErrorHasMessageAndDetail(t *testing.T) {
	want(t, "without a detail", wrongAnswer(nil).Error(), "auth: challenge response did not validate")
	want(t, "with a detail", wrongAnswer(errNonce).Error(), "auth: challenge response did not validate: nonce is not the challenge")
	want(t, "the detail can be asked for", wrongAnswer(errNonce).Unwrap(), error(errNonce))
}
