package auth

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arcpd/arcpd/arcp"
)

func TestSignedJWTIdentifiesThePrincipal(t *testing.T) {
	set := NewSet(hmacConfig(t, ""))
	want(t, "a stranger is a trusted client until the token ends", begin(t, set, jwtRequest(signedToken(t, nil))), Identity{
		Principal: "alice", Scheme: SignedJWT, Roles: []Role{RoleClient}, Trust: arcp.Trusted,
		Expires: now.Add(time.Hour + leeway), Issuer: "https://issuer.example", KeyFingerprint: keyFingerprint(),
	})
}

func TestAuthFileDescribesThePrincipalOfAJWT(t *testing.T) {
	set := NewSet(hmacConfig(t, `
    roles_claim: groups
principals:
  - {name: alice, roles: [observer], trust: privileged, limits: {jobs: 7}, sees: ["*"], lease: {tool.call: [a]}}
`))
	id := begin(t, set, jwtRequest(signedToken(t, nil)))
	want(t, "the auth file describes the principal", id, Identity{
		Principal: "alice", Scheme: SignedJWT, Roles: []Role{RoleObserver}, Trust: arcp.Privileged,
		Limits: Limits{Jobs: 7}, Sees: []string{"*"}, Lease: []byte(`{"tool.call":["a"]}`),
		Expires: now.Add(time.Hour + leeway), Issuer: "https://issuer.example", KeyFingerprint: keyFingerprint(),
	})
	id = begin(t, set, jwtRequest(signedToken(t, map[string]any{"groups": []string{"admin"}})))
	want(t, "the roles claim goes before the file", id.Roles, []Role{RoleAdmin})
	want(t, "the rest stays", id.Trust, arcp.Privileged)
}

func TestInvalidJWTsAreRefused(t *testing.T) {
	set := NewSet(hmacConfig(t, ""))
	secret := signers()["secret"].private
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	whole := signedToken(t, nil).Reveal()
	for _, c := range []struct {
		why     string
		token   Secret
		message string // "": accepted
	}{
		{"an exp just within the leeway", signedToken(t, map[string]any{"exp": at(-29 * time.Second)}), ""},
		{"an exp as old as the leeway", signedToken(t, map[string]any{"exp": at(-30 * time.Second)}), "token is expired"},
		{"no nbf", signedToken(t, map[string]any{"nbf": nil}), ""},
		{"an nbf of now", signedToken(t, map[string]any{"nbf": at(0)}), ""},
		{"an nbf just within the leeway", signedToken(t, map[string]any{"nbf": at(30 * time.Second)}), ""},
		{"an nbf beyond the leeway", signedToken(t, map[string]any{"nbf": at(31 * time.Second)}), "token is not valid yet"},
		{"no exp", signedToken(t, map[string]any{"exp": nil}), "claim exp is missing"},
		{"an exp of null", signNull(t, "exp"), "claim exp is missing"},
		{"an exp of 0", signedToken(t, map[string]any{"exp": 0}), "claims are not valid"},
		{"a negative exp", signedToken(t, map[string]any{"exp": -1}), "claim exp is not a date"},
		{"an exp after all time", signedToken(t, map[string]any{"exp": 1e300}), "claim exp is not a date"},
		{"an exp beyond JSON's years", signedToken(t, map[string]any{"exp": int64(latest) + 1}), "claim exp is not a date"},
		{"an exp in quotes", signedToken(t, map[string]any{"exp": fmt.Sprint(at(time.Hour))}), "claim exp is not a date"},
		{"an nbf after all time", signedToken(t, map[string]any{"nbf": 1e300}), "claim nbf is not a date"},
		{"an nbf of null", signNull(t, "nbf"), "claim nbf is not a date"},
		{"no aud", signedToken(t, map[string]any{"aud": nil}), "claim aud is missing"},
		{"an aud that is another", signedToken(t, map[string]any{"aud": "other"}), "audience is not this runtime"},
		{"an aud that is longer", signedToken(t, map[string]any{"aud": "arcp2"}), "audience is not this runtime"},
		{"an aud list with us", signedToken(t, map[string]any{"aud": []string{"other", "arcp"}}), ""},
		{"an aud list without us", signedToken(t, map[string]any{"aud": []string{"other"}}), "audience is not this runtime"},
		{"an empty aud list", signedToken(t, map[string]any{"aud": []string{}}), "claims are not valid"},
		{"an empty aud", signedToken(t, map[string]any{"aud": ""}), "claims are not valid"},
		{"an aud that is no text", signedToken(t, map[string]any{"aud": 7}), "claims are not valid"},
		{"no sub", signedToken(t, map[string]any{"sub": nil}), "claim sub is missing"},
		{"an empty sub", signedToken(t, map[string]any{"sub": ""}), "claim sub is not a text"},
		{"a sub that is no text", signedToken(t, map[string]any{"sub": 7}), "claim sub is not a text"},
		{"a sub of a local user", signedToken(t, map[string]any{"sub": "uid:0"}), "only the runtime may assign"},
		{"a sub of an anonymous session", signedToken(t, map[string]any{"sub": "anonymous:A"}), "only the runtime may assign"},
		{"a sub with a line break", signedToken(t, map[string]any{"sub": "a\nb"}), "printable"},
		{"a sub that may be several names", signedToken(t, map[string]any{"sub": "a\ufffd"}), "printable"},
		{"a long sub", signedToken(t, map[string]any{"sub": strings.Repeat("a", 257)}), "at most 256 bytes"},
		{"no iss", signedToken(t, map[string]any{"iss": nil}), "claim iss is missing"},
		{"an iss that is no text", signedToken(t, map[string]any{"iss": 7}), "claim iss is missing or not a text"},
		{"an unknown iss", signedToken(t, map[string]any{"iss": "https://issuer.example/"}), "issuer is not configured"},
		{"an algorithm not listed", sign(t, "HS384", secret, claims(nil), nil), "signing algorithm is not allowed"},
		{"another listed algorithm", sign(t, "HS512", secret, claims(nil), nil), ""},
		{"no signature", sign(t, "none", jwt.UnsafeAllowNoneSignatureType, claims(nil), nil), "signing algorithm is not allowed"},
		{"an unknown algorithm", Secret(b64([]byte(`{"alg":"XS256"}`)) + whole[strings.Index(whole, "."):]), "signing algorithm is not allowed"},
		{"no algorithm", Secret(b64([]byte(`{}`)) + whole[strings.Index(whole, "."):]), "signing algorithm is not allowed"},
		{"another key", sign(t, "HS256", []byte(strings.Repeat("x", 64)), claims(nil), nil), "signature is invalid"},
		{"an empty signature", Secret(whole[:strings.LastIndex(whole, ".")+1]), "signature is invalid"},
		{"critical headers", sign(t, "HS256", secret, claims(nil), map[string]any{"crit": []string{"b64"}, "b64": false}), "critical header"},
		{"a key id with a key that has none", sign(t, "HS256", secret, claims(nil), map[string]any{"kid": "k1"}), ""},
		{"a key id that is no text", sign(t, "HS256", secret, claims(nil), map[string]any{"kid": 1}), "token is malformed"},
		{"two parts", Secret(whole[:strings.LastIndex(whole, ".")]), "token is malformed"},
		{"four parts", Secret(whole + "."), "token is malformed"},
		{"bits after the end", Secret(withUnusedBits(whole)), "token is malformed"},
		{"a line break inside", Secret(whole[:len(whole)-5] + "\n" + whole[len(whole)-5:]), "token is malformed"},
		{"a line break at the end", Secret(whole + "\r"), "token is malformed"},
		{"padding", Secret(whole + "="), "token is malformed"},
		{"no JWT", "tok", "token is malformed"},
		{"claims that are a list", Secret(b64([]byte(`{"alg":"HS256"}`)) + "." + b64([]byte(`[1]`)) + ".AA"), "token is malformed"},
		{"claims of null", Secret(b64([]byte(`{"alg":"HS256"}`)) + "." + b64([]byte(`null`)) + ".AA"), "claim iss is missing"},
		{"a long token", signedToken(t, map[string]any{"pad": strings.Repeat("a", maxJWT)}), "token is too long"},
	} {
		if c.message == "" {
			begin(t, set, jwtRequest(c.token))
			continue
		}
		err := refused(t, set, jwtRequest(c.token))
		wantRefusal(t, c.why, err, ReasonInvalid, "jwt validation failed: ")
		wantRefusal(t, c.why, err, ReasonInvalid, c.message)
	}
	wantRefusal(t, "no token", refused(t, set, jwtRequest("")), ReasonMissing, "signed_jwt scheme requires a token")
}

// withUnusedBits sets the bits of the last character that no byte has, so that another
// text stands for the same signature.
func withUnusedBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + string(alphabet[strings.IndexByte(alphabet, token[last])|1])
}

// signNull signs a claim of null, which is not the same as none.
func signNull(t tb, name string) Secret {
	c := claims(nil)
	c[name] = nil
	return sign(t, "HS256", signers()["secret"].private, c, nil)
}

func TestPrincipalIsAClaimWithItsPrefix(t *testing.T) {
	for _, c := range []struct {
		config  string
		change  map[string]any
		name    string
		message string
	}{
		{"prefix: 'corp/'", nil, "corp/alice", ""},
		{"claim: email", map[string]any{"email": "a@example.com"}, "a@example.com", ""},
		{"claim: email\n    prefix: 'corp/'", map[string]any{"email": "a@example.com"}, "corp/a@example.com", ""},
		{"prefix: 'corp/'", map[string]any{"sub": "uid:0"}, "corp/uid:0", ""},
		{"prefix: 'u'", map[string]any{"sub": "id:0"}, "", "only the runtime may assign"},
		{"claim: email", nil, "", "claim email is missing or not a text"},
		{"claim: email", map[string]any{"email": []string{"a"}}, "", "claim email is missing or not a text"},
		{"claim: email", map[string]any{"email": "a", "sub": nil}, "", "claim sub is missing"},
	} {
		set := NewSet(hmacConfig(t, "    "+c.config))
		r := jwtRequest(signedToken(t, c.change))
		if c.message != "" {
			wantRefusal(t, c.config, refused(t, set, r), ReasonInvalid, c.message)
			continue
		}
		want(t, c.config, begin(t, set, r).Principal, c.name)
	}
}

func TestRolesAreTheKnownNamesOfTheClaim(t *testing.T) {
	set := NewSet(hmacConfig(t, "    roles_claim: groups"))
	for _, c := range []struct {
		why    string
		groups any
		roles  []Role
	}{
		{"no claim: a client", nil, []Role{RoleClient}},
		{"a list, of which we know some", []any{"worker", "staff", 7, "worker", "approver"}, []Role{RoleWorker, RoleApprover}},
		{"a text with spaces", "admin  client", []Role{RoleAdmin, RoleClient}},
		{"none we know: none", []any{"staff"}, nil},
		{"an empty list: none", []any{}, nil},
		{"the exact case only", []any{"Admin"}, nil},
		{"something else: none", 7, nil},
	} {
		id := begin(t, set, jwtRequest(signedToken(t, map[string]any{"groups": c.groups})))
		want(t, c.why, id.Roles, c.roles)
	}
	unasked := NewSet(hmacConfig(t, ""))
	id := begin(t, unasked, jwtRequest(signedToken(t, map[string]any{"roles": "admin", "groups": "admin"})))
	want(t, "without roles_claim no claim gives a role", id.Roles, []Role{RoleClient})
}

func TestJWTResponseNeedsSamePrincipalAndNonce(t *testing.T) {
	config := hmacConfig(t, `
  - {issuer: https://other.example, key_files: [secret], algorithms: [HS256]}
`)
	other := []byte(strings.Repeat("another secret, ", 4))
	config.issuers["https://issuer.example"].keys = append(config.issuers["https://issuer.example"].keys, mustValue(newSecretKey(other)))
	set := NewSet(config)
	nonce := NewChallenge()
	with := func(change map[string]any) Secret {
		c := claims(change)
		c["nonce"] = nonce.Reveal()
		return sign(t, "HS256", signers()["secret"].private, c, nil)
	}
	token := signedToken(t, map[string]any{"exp": now.Add(time.Minute).Unix()})
	for _, c := range []struct {
		why      string
		request  Request
		response Secret
		detail   error // nil: accepted
	}{
		{"with the token", jwtRequest(token), with(nil), nil},
		{"with the token, whatever the hint", Request{Token: token, Principal: "bob"}, with(nil), nil},
		{"without a token", Request{Principal: "alice"}, with(nil), nil},
		{"without a token, another's name", Request{Principal: "bob"}, with(nil), errOtherClient},
		{"without a token or a name", Request{}, with(nil), errOtherClient},
		{"another principal than the token's", jwtRequest(token), with(map[string]any{"sub": "bob"}), errOtherClient},
		{"another issuer's key", jwtRequest(token), with(map[string]any{"iss": "https://other.example"}), errOtherClient},
		{"another key of the same issuer", jwtRequest(token),
			sign(t, "HS256", other, claims(map[string]any{"nonce": nonce.Reveal()}), nil), errOtherClient},
		{"no nonce", jwtRequest(token), signedToken(t, nil), errNonce},
		{"the token itself", jwtRequest(token), token, errNonce},
		{"another nonce", jwtRequest(token), signedToken(t, map[string]any{"nonce": NewChallenge().Reveal()}), errNonce},
		{"a nonce that is no text", jwtRequest(token), signedToken(t, map[string]any{"nonce": []string{nonce.Reveal()}}), errNonce},
		{"a key we do not have", jwtRequest(token),
			sign(t, "HS256", []byte(strings.Repeat("x", 64)), claims(map[string]any{"nonce": nonce.Reveal()}), nil), errSignature},
		{"for another audience", jwtRequest(token), with(map[string]any{"aud": "other"}), errAudience},
		{"expired", jwtRequest(token), with(map[string]any{"exp": now.Add(-time.Hour).Unix()}), errExpired},
		{"nothing", jwtRequest(token), "", errMalformed},
	} {
		c.request.Scheme, c.request.Now = SignedJWT, now
		id, err := set.Verify(t.Context(), c.request, Proof{nonce, c.response})
		if c.detail != nil {
			wantRefusal(t, c.why, err, ReasonResponse, "challenge response did not validate")
			want(t, c.why, err.(*Error).Err, c.detail)
			want(t, c.why, id, Identity{})
			continue
		}
		must(t, err)
		want(t, c.why, id.Principal, "alice")
		want(t, c.why+": it lasts as long as the token, if there is one", id.Expires.Equal(now.Add(time.Minute+leeway)), c.request.Token != "")
	}
	late := jwtRequest(token)
	late.Now = now.Add(2 * time.Minute)
	_, err := set.Verify(t.Context(), late, Proof{nonce, with(nil)})
	wantRefusal(t, "the token expired meanwhile", err, ReasonInvalid, "jwt validation failed: token is expired")
}

// Every algorithm, with every kind of key, in every form of file: the key that
// belongs to the algorithm works, and an issuer with any other does not load.
func TestAlgorithmNeedsItsKindOfKey(t *testing.T) {
	for kind, s := range signers() {
		for form, text := range keyForms(t, s) {
			dir := writeFiles(t, map[string]string{"key": text})
			for _, a := range algorithms {
				c, err := parseFile(fmt.Appendf(nil, "issuers: [{issuer: https://issuer.example, key_files: [key], algorithms: [%s]}]", a), dir, Options{})
				why := fmt.Sprintf("%s with a key of kind %s as %s", a, kind, form)
				if kindOf(a) != kind {
					wantError(t, why, err, "issuers[0]", "algorithm "+a+" fits none of the keys", s.kindName())
					continue
				}
				must(t, err)
				token := sign(t, a, s.private, claims(nil), nil)
				want(t, why, begin(t, NewSet(c), jwtRequest(token)).Principal, "alice")
			}
		}
	}
}

func (s signer) kindName() string {
	if s.pem == "" {
		return "secret of 64 bytes"
	}
	return mustValue(parseKeys([]byte(s.pem)))[0].kind
}

// A public key is not secret: it must not serve as an HMAC secret.
func TestPublicKeyIsNoSecret(t *testing.T) {
	public := signers()["RSA"].pem
	dir := writeFiles(t, map[string]string{"rsa.pem": public, "secret": strings.Repeat("s", 32)})
	set := NewSet(parse(t, dir, "issuers: [{issuer: https://issuer.example, key_files: [rsa.pem, secret], algorithms: [RS256, HS256]}]"))
	begin(t, set, jwtRequest(sign(t, "RS256", signers()["RSA"].private, claims(nil), nil)))
	begin(t, set, jwtRequest(sign(t, "HS256", []byte(strings.Repeat("s", 32)), claims(nil), nil)))
	forged := sign(t, "HS256", []byte(public), claims(nil), nil)
	wantRefusal(t, "signed with the public key", refused(t, set, jwtRequest(forged)), ReasonInvalid, "signature is invalid")
}

func TestKeyIDSelectsTheKey(t *testing.T) {
	other := strings.Repeat("o", 64)
	dir := writeFiles(t, map[string]string{"set.json": jwksOf(
		withMembers(signers()["secret"].jwk, map[string]any{"kid": "one", "alg": "HS256"}),
		map[string]any{"kty": "oct", "kid": "two", "k": b64([]byte(other))},
		signers()["RSA"].jwk,
	)})
	set := NewSet(parse(t, dir, "issuers: [{issuer: https://issuer.example, jwks: set.json, algorithms: [HS256, HS512, RS256]}]"))
	one, two := signers()["secret"].private, []byte(other)
	for _, c := range []struct {
		why, algorithm string
		key            any
		kid            string
		message        string
	}{
		{"its own id", "HS256", one, "one", ""},
		{"the other's id", "HS256", one, "two", "signature is invalid"},
		{"no id: any key", "HS256", two, "", ""},
		{"an id nobody has", "HS256", one, "three", "the issuer has no such key"},
		{"an algorithm the key is not for", "HS512", one, "one", "the issuer has no such key"},
		{"an algorithm another key is for", "HS512", two, "two", ""},
		{"a key without an id takes any", "RS256", signers()["RSA"].private, "three", ""},
	} {
		header := map[string]any{"kid": c.kid}
		if c.kid == "" {
			header = nil
		}
		r := jwtRequest(sign(t, c.algorithm, c.key, claims(nil), header))
		if c.message == "" {
			begin(t, set, r)
			continue
		}
		wantRefusal(t, c.why, refused(t, set, r), ReasonInvalid, c.message)
	}
}

func TestAudienceDefaultsToTheRuntime(t *testing.T) {
	dir := writeFiles(t, map[string]string{"secret": strings.Repeat("s", 32)})
	for _, c := range []struct{ option, line, audience string }{
		{"", "", "arcp"},
		{"prod", "", "prod"},
		{"prod", ", audience: special", "special"},
	} {
		config, err := parseFile([]byte("issuers: [{issuer: https://issuer.example, key_files: [secret], algorithms: [HS256]"+c.line+"}]"), dir, Options{RuntimeID: c.option})
		must(t, err)
		for _, aud := range []string{"arcp", "prod", "special"} {
			token := sign(t, "HS256", []byte(strings.Repeat("s", 32)), claims(map[string]any{"aud": aud}), nil)
			_, _, err := NewSet(config).Begin(t.Context(), jwtRequest(token))
			want(t, fmt.Sprintf("%+v takes %s", c, aud), err == nil, aud == c.audience)
		}
	}
}
