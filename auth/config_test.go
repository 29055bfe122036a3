package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// The methods of a Config accept the entries that an auth file accepts, and build the same
// configuration.
func TestConfigMethodsEqualTheFile(t *testing.T) {
	secret, set := Secret(strings.Repeat("s", 32)), jwksOf(signers()["RSA"].jwk)
	dir := writeFiles(t, map[string]string{"set.json": set, "secret": secret.Reveal()})
	loaded := parse(t, dir, fullFile)

	built := new(Config)
	must(t, errors.Join(
		built.AddPrincipal(Principal{
			Name: "alice", TokenHashes: []Secret{hashA, hashB}, Roles: []Role{RoleClient, RoleApprover, RoleClient}, Trust: arcp.Privileged,
			Lease:  []byte(`{"tool.call":["demo.*","1"],"cost.budget":["USD:5.00"],"nested":{"z":1.50,"a":[true,null,"x\"y"]}}`),
			Limits: Limits{Sessions: 3, Jobs: 20, RatePerMin: 600}, Sees: []string{"bob", "team-*"}, Serves: []string{"*"},
		}),
		built.AddPrincipal(Principal{Name: "bob"}),
		built.AddPrincipal(Principal{Name: "carol"}),
		built.AddIssuer(Issuer{
			Name: "https://issuer.example", Audience: "special", Keys: []Secret{Secret(set), secret}, Algorithms: []string{"HS256", "RS256"},
			Claim: "email", Prefix: "corp/", RolesClaim: "groups",
		}),
		built.SetChallenge(Bearer, ChallengeNew),
		built.SetChallenge(SignedJWT, ChallengeAlways),
	))
	built.AllowAnonymous()

	for name, p := range loaded.principals {
		want(t, "the identity of "+name, built.principals[name].identity, p.identity)
		want(t, "the tokens of "+name, built.principals[name].tokens, p.tokens)
	}
	want(t, "the number of tokens", len(built.holders.byHash), len(loaded.holders.byHash))
	want(t, "the principals", slices.Sorted(maps.Keys(built.principals)), slices.Sorted(maps.Keys(loaded.principals)))
	describe := func(c *Config) string {
		i := c.issuers["https://issuer.example"]
		return fmt.Sprint(i.name, i.audience, i.algorithms, i.kinds(), i.claim, i.prefix, i.rolesClaim)
	}
	want(t, "the issuer", describe(built), describe(loaded))
	want(t, "the policies", built.policies, loaded.policies)
	want(t, "anonymous", built.anonymous, loaded.anonymous)
}

func TestConfigMethodsRefuseAsTheFile(t *testing.T) {
	short := Secret("short")
	rsa := Secret(signers()["RSA"].pem)
	dir := writeFiles(t, map[string]string{"short": short.Reveal(), "rsa.pem": rsa.Reveal()})
	principal := func(p Principal) func(*Config) error {
		return func(c *Config) error { return c.AddPrincipal(p) }
	}
	issuer := func(i Issuer) func(*Config) error {
		return func(c *Config) error { return c.AddIssuer(i) }
	}
	const bob = "principals: [{name: bob, tokens: ['" + hashB + "']}, "
	for _, c := range []struct {
		text    string // an auth file
		add     func(*Config) error
		at, err string // position in the file, and the error of add
	}{
		{bob + "{roles: [client]}]", principal(Principal{Roles: []Role{RoleClient}}), "principals[1]: ", "a principal needs a name"},
		{bob + "{name: 'anonymous:x'}]", principal(Principal{Name: "anonymous:x"}), "principals[1]: ",
			`names with "anonymous:" belong to anonymous sessions: choose another`},
		{bob + "{name: bob}]", principal(Principal{Name: "bob"}), "principals[1].",
			"name: the principal is listed twice: put all its tokens in one entry"},
		{bob + "{name: a, tokens: [plain]}]", principal(Principal{Name: "a", TokenHashes: []Secret{"plain"}}),
			"principals[1].", "tokens[0]: want sha256: and 64 hex digits, the hash of the token: " + hashHelp},
		{bob + "{name: a, tokens: ['" + hashA + "', '" + hashA + "']}]",
			principal(Principal{Name: "a", TokenHashes: []Secret{hashA, hashA}}), "principals[1].",
			"tokens[1]: the token is listed twice: remove one"},
		{bob + "{name: a, tokens: ['" + hashA + "', '" + hashB + "']}]",
			principal(Principal{Name: "a", TokenHashes: []Secret{hashA, hashB}}), "principals[1].",
			"tokens[1]: the token belongs to another principal: use a different token for each"},
		{bob + "{name: a, roles: [clint]}]", principal(Principal{Name: "a", Roles: []Role{"clint"}}), "principals[1].",
			`roles[0]: unknown role "clint": did you mean "client"?`},
		{bob + "{name: a, trust: trust}]", principal(Principal{Name: "a", Trust: "trust"}), "principals[1].",
			`trust: unknown trust "trust": did you mean "trusted"?`},
		{bob + "{name: a, limits: {jobs: -1}}]", principal(Principal{Name: "a", Limits: Limits{Jobs: -1}}), "principals[1].",
			"limits.jobs: want a whole number, 0 or more"},
		{bob + "{name: a, sees: [b, '[a']}]", principal(Principal{Name: "a", Sees: []string{"b", "[a"}}), "principals[1].",
			`sees[1]: the pattern has an unclosed bracket: close it or put a \ before it`},
		{bob + "{name: a, serves: ['']}]", principal(Principal{Name: "a", Serves: []string{""}}), "principals[1].",
			"serves[0]: an empty pattern matches no principal: remove it"},
		{bob + "{name: a, lease: {bad: 1}}]", principal(Principal{Name: "a", Lease: []byte(`{"bad":1}`)}), "principals[1].",
			"lease: of a: a bad lease"},
		{"issuers: [{key_files: [rsa.pem], algorithms: [RS256]}]",
			issuer(Issuer{Keys: []Secret{rsa}, Algorithms: []string{"RS256"}}), "issuers[0]: ",
			"issuer is missing: give the iss claim of its tokens"},
		{"issuers: [{issuer: i, algorithms: [RS256]}]", issuer(Issuer{Name: "i", Algorithms: []string{"RS256"}}),
			"issuers[0]: ", "the issuer has no key: give jwks or key_files"},
		{"issuers: [{issuer: i, key_files: [rsa.pem]}]", issuer(Issuer{Name: "i", Keys: []Secret{rsa}}), "issuers[0]: ",
			"algorithms is missing: list the algorithms of the issuer, for example [RS256]"},
		{"issuers: [{issuer: i, key_files: [rsa.pem], algorithms: [none]}]",
			issuer(Issuer{Name: "i", Keys: []Secret{rsa}, Algorithms: []string{"none"}}), "issuers[0].",
			"algorithms[0]: a JWT without a signature is never accepted: name the algorithm the issuer signs with"},
		{"issuers: [{issuer: i, key_files: [rsa.pem], algorithms: [HS256]}]",
			issuer(Issuer{Name: "i", Keys: []Secret{rsa}, Algorithms: []string{"HS256"}}), "issuers[0]: ",
			"algorithm HS256 fits none of the keys (RSA key): remove it or give a key for it"},
		{"issuers: [{issuer: i, key_files: [rsa.pem], algorithms: [RS256], prefix: 'uid:'}]",
			issuer(Issuer{Name: "i", Keys: []Secret{rsa}, Algorithms: []string{"RS256"}, Prefix: "uid:"}), "issuers[0].",
			"prefix: only the runtime may assign names with this prefix: choose another"},
		{"challenge: {bearer: nevr}", func(c *Config) error { return c.SetChallenge(Bearer, "nevr") }, "challenge.bearer: ",
			`unknown challenge policy "nevr": did you mean "never"?`},
	} {
		opts := Options{CheckLease: func(lease []byte) error {
			if strings.Contains(string(lease), "bad") {
				return errors.New("a bad lease")
			}
			return nil
		}}
		_, err := parseFile([]byte(c.text), dir, opts)
		want(t, c.text, fmt.Sprint(err), "line 1: "+c.at+c.err)
		cfg := NewConfig(opts)
		must(t, cfg.AddPrincipal(Principal{Name: "bob", TokenHashes: []Secret{hashB}}))
		want(t, "the method for "+c.text, fmt.Sprint(c.add(cfg)), c.err)
		want(t, "a refused entry changes nothing",
			[]int{len(cfg.principals), len(cfg.holders.byHash), len(cfg.issuers), len(cfg.policies)}, []int{1, 1, 0, 0})
	}
	cfg := new(Config)
	wantError(t, "the position of a key",
		cfg.AddIssuer(Issuer{Name: "i", Keys: []Secret{rsa, short}, Algorithms: []string{"RS256"}}),
		"keys[1]: a secret of 5 bytes is too short")
	wantError(t, "a lease that is no object", cfg.AddPrincipal(Principal{Name: "a", Lease: json.RawMessage(`[]`)}),
		"lease: want a JSON object")
	wantError(t, "a scheme without challenges", cfg.SetChallenge(None, ChallengeAlways), `unknown scheme with challenges "none"`)
}

// An entry does not change with the slices that it was added with.
func TestConfigCopiesSlices(t *testing.T) {
	p := Principal{Name: "alice", Roles: []Role{RoleAdmin}, Sees: []string{"*"}, Lease: []byte(`{"a":1}`)}
	c := new(Config)
	must(t, c.AddPrincipal(p))
	p.Roles[0], p.Sees[0], p.Lease[2] = RoleClient, "x", 'b'
	want(t, "the identity", c.principals["alice"].identity,
		Identity{Principal: "alice", Roles: []Role{RoleAdmin}, Trust: arcp.Trusted, Sees: []string{"*"}, Lease: []byte(`{"a":1}`)})
}

func TestAudienceOfIssuerIsTheRuntimeID(t *testing.T) {
	issuer := Issuer{Name: "i", Keys: []Secret{Secret(strings.Repeat("s", 32))}, Algorithms: []string{"HS256"}}
	for runtimeID, audience := range map[string]string{"": DefaultRuntimeID, "here": "here"} {
		c := NewConfig(Options{RuntimeID: runtimeID})
		must(t, c.AddIssuer(issuer))
		want(t, "the audience", c.issuers["i"].audience, audience)
	}
}
