package auth

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

const fullFile = `
# everything an auth file can have
principals:
  - name: alice
    tokens: ["` + hashA + `", "` + hashB + `"]
    roles: [client, approver, client]
    trust: privileged
    lease:
      tool.call: ["demo.*", "1"]
      cost.budget: ["USD:5.00"]
      nested: {z: 1.50, a: [true, null, "x\"y"]}
    limits: {sessions: 3, jobs: 20, rate_per_min: 600}
    sees: ["bob", "team-*"]
    serves: ["*"]
  - {name: bob, tokens: [], certs: [], limits: {}}
  - name: carol
    roles:
issuers:
  - issuer: https://issuer.example
    audience: special
    jwks: set.json
    key_files: [secret]
    algorithms: [HS256, RS256]
    claim: email
    prefix: "corp/"
    roles_claim: groups
challenge: {bearer: new, signed_jwt: always}
anonymous: {enabled: true}
introspection:
`

// Hashes of the tokens a, b and c.
const (
	hashA = "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
	hashB = "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
	hashC = "sha256:2E7D2C03A9507AE265ECF5B5356885A53393A2029D241394997265A1A25AEFC6"
)

func TestLoadReadsEveryMember(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"auth.yaml": fullFile,
		"set.json":  jwksOf(signers()["RSA"].jwk),
		"secret":    strings.Repeat("s", 32),
	})
	c, err := Load(filepath.Join(dir, "auth.yaml"), Options{RuntimeID: "arcp-test"})
	must(t, err)
	want(t, "the principals", slices.Sorted(maps.Keys(c.principals)), []string{"alice", "bob", "carol"})
	alice := c.principals["alice"]
	want(t, "everything of alice", alice.identity, Identity{
		Principal: "alice", Roles: []Role{RoleClient, RoleApprover}, Trust: arcp.Privileged,
		Limits: Limits{Sessions: 3, Jobs: 20, RatePerMin: 600},
		Sees:   []string{"bob", "team-*"}, Serves: []string{"*"},
		Lease: []byte(`{"tool.call":["demo.*","1"],"cost.budget":["USD:5.00"],"nested":{"z":1.50,"a":[true,null,"x\"y"]}}`),
	})
	want(t, "alice has both tokens", []bool{TokenMatches(alice.tokens[0], "a"), TokenMatches(alice.tokens[1], "b")}, []bool{true, true})
	want(t, "the defaults", c.principals["carol"].identity, Identity{Principal: "carol", Roles: []Role{RoleClient}, Trust: arcp.Trusted})
	i := c.issuers["https://issuer.example"]
	want(t, "the issuer", []string{i.audience, i.claim, i.prefix, i.rolesClaim}, []string{"special", "email", "corp/", "groups"})
	want(t, "its algorithms", i.algorithms, []string{"HS256", "RS256"})
	want(t, "the keys of both files", i.kinds(), "RSA key, secret of 32 bytes")
	want(t, "policies", []ChallengePolicy{c.policy(Bearer), c.policy(SignedJWT), c.policy(None)},
		[]ChallengePolicy{ChallengeNew, ChallengeAlways, ChallengeNever})
	want(t, "anonymous", c.anonymous, true)
}

func TestLoadedConfigurationWorks(t *testing.T) {
	set := NewSet(parse(t, "", "principals: [{name: alice, tokens: ['"+hashA+"', '"+hashC+"']}, {name: bob, tokens: ['"+hashB+"']}]"))
	for token, name := range map[Secret]string{"a": "alice", "b": "bob", "c": "alice"} {
		want(t, "the holder of the token", begin(t, set, Request{Scheme: Bearer, Token: token, Now: now}).Principal, name)
	}
}

func TestEmptyFilesAcceptNoToken(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "---\n", "{}", "principals:\nissuers:\n", "null"} {
		c, err := parseFile([]byte(text), "", Options{})
		must(t, err)
		want(t, fmt.Sprintf("%q lets nobody in", text), NewSet(c).Schemes(), nil)
	}
}

// Keys may stand in any order.
func TestOrderOfKeysDoesNotMatter(t *testing.T) {
	c := parse(t, "", "anonymous: {enabled: false}\nprincipals: [{trust: untrusted, tokens: ['"+hashA+"'], roles: [admin], name: alice}]")
	id := begin(t, NewSet(c), Request{Scheme: Bearer, Token: "a", Now: now})
	want(t, "all of it counts", id,
		Identity{Principal: "alice", Scheme: Bearer, Roles: []Role{RoleAdmin}, Trust: arcp.Untrusted, TokenFingerprint: tokenFingerprint(HashToken("a"))})
}

func TestBadFilesNameTheEntry(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"rsa.pem": signers()["RSA"].pem, "secret": strings.Repeat("s", 32), "short": "s",
		"many.json": jwksOf(slices.Repeat([]map[string]any{signers()["RSA"].jwk}, maxKeys+1)...),
		"big":       strings.Repeat("s", maxKeyFile+1),
	})
	issuer := func(more string) string { return "issuers:\n- {issuer: i, " + more + "}" }
	for _, c := range []struct {
		why, text string
		parts     []string
	}{
		{"a key like no other", "badauth: 1", []string{"line 1: ", `unknown key "badauth": want one of `}},
		{"a misspelt key", "principal: []", []string{"line 1: ", `unknown key "principal"`, `did you mean "principals"?`}},
		{"a misspelt key inside", "principals:\n- name: a\n  rolls: [client]",
			[]string{"line 3: principals[0]: ", `unknown key "rolls"`, `"roles"`}},
		{"a misspelt limit", "principals:\n- name: a\n  limits: {rate: 1}",
			[]string{"line 3: principals[0].limits: ", `unknown key "rate"`, `"rate_per_min"`}},
		{"a misspelt issuer key", issuer("keyfile: [a]"), []string{"line 2: issuers[0]: ", `unknown key "keyfile"`, `"key_files"`}},
		{"a challenge for a scheme that has none", "challenge: {none: always}", []string{"challenge: ", `unknown key "none"`}},
		{"a key that may be a token", "tok_QRSTUVWXYZ234567abcdef: 1", []string{"unknown key (not shown)"}},
		{"a key twice", "anonymous: {}\nanonymous: {}", []string{"line 2: ", `key "anonymous" is also in line 1`, "remove one"}},
		{"a key twice inside", "principals:\n- {name: a,\n   name: b}", []string{"line 3: principals[0]: ", `key "name"`}},
		{"a key that is a list", "? [a]\n: 1", []string{"a key must be a text"}},
		{"a list instead of a mapping", "- a", []string{"line 1: want a mapping: anonymous, challenge, introspection, issuers, principals"}},
		{"a text instead of a mapping", "tok", []string{"want a mapping"}},
		{"a mapping instead of a list", "principals: {a: b}", []string{"principals: want a list"}},
		{"a text instead of a list", "principals: [{name: a, tokens: '" + hashA + "'}]", []string{"principals[0].tokens: want a list"}},
		{"a number as name", "principals: [{name: 7}]", []string{"principals[0].name: want a text: put it in quotes"}},
		{"no name", "principals:\n- roles: [client]", []string{"line 2: principals[0]: a principal needs a name"}},
		{"an empty name", "principals: [{name: ''}]", []string{"principals[0].name: the text is empty"}},
		{"a long name", "principals: [{name: " + strings.Repeat("a", 257) + "}]", []string{"at most 256 bytes"}},
		{"a name with a line break", `principals: [{name: "a\nb"}]`, []string{"printable characters only"}},
		{"a name with wrong bytes", "principals: [{name: \"a\\uFFFD\"}]", []string{"printable characters only"}},
		{"a name of an anonymous session", "principals: [{name: 'anonymous:x'}]",
			[]string{`names with "anonymous:" belong to anonymous sessions`}},
		{"a principal twice", "principals:\n- name: a\n- name: a",
			[]string{"line 3: principals[1].name: the principal is listed twice", "put all its tokens in one entry"}},
		{"a token twice", "principals: [{name: a, tokens: ['" + hashA + "', '" + hashA + "']}]",
			[]string{"principals[0].tokens[1]: the token is listed twice"}},
		{"a token of two principals",
			"principals:\n- {name: a, tokens: ['" + hashA + "']}\n- {name: b, tokens: ['" + strings.Replace(hashA, "ca97", "CA97", 1) + "']}",
			[]string{"line 3: principals[1].tokens[0]: the token belongs to another principal"}},
		{"a plain token", "principals: [{name: a, tokens: [plain]}]",
			[]string{"principals[0].tokens[0]: want sha256: and 64 hex digits", "`arcp token hash`"}},
		{"a short hash", "principals: [{name: a, tokens: ['" + hashA[:70] + "']}]", []string{"want sha256: and 64 hex digits"}},
		{"a hash with other letters",
			"principals: [{name: a, tokens: ['" + strings.Replace(hashA, "ca97", "xyz!", 1) + "']}]",
			[]string{"other characters than hex digits"}},
		{"a hash that YAML takes apart", "principals: [{name: a, tokens: [sha256: abc]}]", []string{"principals[0].tokens[0]: want a text"}},
		{"too many tokens", "principals: [{name: a, tokens: [" + manyHashes(maxTokens+1) + "]}]",
			[]string{"principals[0].tokens[16]: a principal has at most 16 tokens"}},
		{"an unknown role", "principals: [{name: a, roles: [clint]}]",
			[]string{`principals[0].roles[0]: unknown role "clint": did you mean "client"?`}},
		{"a role that is no text", "principals: [{name: a, roles: [{}]}]", []string{"unknown role (not shown)"}},
		{"an unknown trust", "principals: [{name: a, trust: trust}]",
			[]string{`principals[0].trust: unknown trust "trust": did you mean "trusted"?`}},
		{"an unknown policy", "challenge: {bearer: sometimes}", []string{`challenge.bearer: unknown challenge policy "sometimes"`}},
		{"certificates", "principals: [{name: a, certs: ['dns:a']}]",
			[]string{"principals[0].certs: mtls with client certificates is not supported by this version: remove it"}},
		{"introspection", "introspection: {url: 'https://x'}",
			[]string{"introspection: oauth2 introspection is not supported by this version: remove it"}},
		{"introspection that is a text", "introspection: x", []string{"oauth2 introspection is not supported by this version"}},
		{"a negative limit", "principals: [{name: a, limits: {jobs: -1}}]",
			[]string{"principals[0].limits.jobs: want a whole number, 0 or more"}},
		{"a limit that is no number", "principals: [{name: a, limits: {jobs: '3'}}]", []string{"want a whole number"}},
		{"a limit beyond numbers", "principals: [{name: a, limits: {jobs: 99999999999999999999}}]", []string{"want a whole number"}},
		{"a lease that is a list", "principals: [{name: a, lease: [b]}]", []string{"principals[0].lease: want a mapping"}},
		{"a lease with a date", "principals: [{name: a, lease: {b: 2026-01-01}}]",
			[]string{"principals[0].lease: the value has no JSON form: put it in quotes"}},
		{"a lease with infinity", "principals: [{name: a, lease: {b: .inf}}]", []string{"no JSON form"}},
		{"a lease with a key twice", "principals: [{name: a, lease: {b: {c: 1, c: 2}}}]", []string{`key "c" is also in line 1`}},
		{"a deep lease",
			"principals: [{name: a, lease: {b: " + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + "}}]",
			[]string{"nested deeper than 64"}},
		{"a bad pattern", "principals: [{name: a, sees: ['[a']}]", []string{"principals[0].sees[0]: the pattern has an unclosed bracket"}},
		{"an empty pattern", "principals: [{name: a, serves: ['']}]", []string{"principals[0].serves[0]: an empty pattern"}},
		{"a flag that is a text", "anonymous: {enabled: yes}", []string{"anonymous.enabled: want true or false"}},
		{"a flag that only claims to be one", "anonymous: {enabled: !!bool maybe}", []string{"want true or false"}},
		{"no issuer", "issuers: [{key_files: [secret], algorithms: [HS256]}]", []string{"issuers[0]: issuer is missing"}},
		{"no keys", issuer("algorithms: [HS256]"), []string{"the issuer has no key: give jwks or key_files"}},
		{"no algorithms", issuer("key_files: [secret]"), []string{"algorithms is missing"}},
		{"the algorithm none", issuer("key_files: [secret], algorithms: [None]"),
			[]string{"issuers[0].algorithms[0]: a JWT without a signature is never accepted"}},
		{"an unknown algorithm", issuer("key_files: [secret], algorithms: [HS265]"),
			[]string{`unknown algorithm "HS265": did you mean "HS256"?`}},
		{"HMAC with a public key", issuer("key_files: [rsa.pem], algorithms: [RS256, HS256]"),
			[]string{"line 2: issuers[0]: algorithm HS256 fits none of the keys (RSA key)"}},
		{"an HMAC too long for the secret", issuer("key_files: [secret], algorithms: [HS512]"),
			[]string{"algorithm HS512 fits none of the keys (secret of 32 bytes)"}},
		{"a short secret", issuer("key_files: [short], algorithms: [HS256]"),
			[]string{"issuers[0].key_files[0]: key file (paths start at the auth file): a secret of 1 bytes is too short"}},
		{"a key file that is not there", issuer("key_files: [nope], algorithms: [HS256]"),
			[]string{"issuers[0].key_files[0]: key file (paths start at the auth file): no such file"}},
		{"a directory", issuer("jwks: ., algorithms: [HS256]"),
			[]string{"issuers[0].jwks: key file (paths start at the auth file): is a directory"}},
		{"a big key file", issuer("key_files: [big], algorithms: [HS256]"), []string{"larger than 1048576 bytes"}},
		{"too many keys", issuer("jwks: many.json, algorithms: [RS256]"), []string{"there are 33 keys: at most 32"}},
		{"a key set at a URL", issuer("jwks: 'https://issuer.example/keys', algorithms: [RS256]"),
			[]string{"issuers[0].jwks: a key set at a URL is not supported by this version: save it to a file"}},
		{"an empty prefix", issuer("key_files: [secret], algorithms: [HS256], prefix: ''"), []string{"the prefix is empty: remove it"}},
		{"a prefix of local users", issuer("key_files: [secret], algorithms: [HS256], prefix: 'uid:'"),
			[]string{"only the runtime may assign names with this prefix"}},
		{"an issuer twice",
			"issuers:\n- &i {issuer: i, key_files: [secret], algorithms: [HS256]}\n- {issuer: i, key_files: [rsa.pem], algorithms: [RS256]}",
			[]string{"line 3: issuers[1].issuer: the issuer is listed twice"}},
		{"an alias", "principals: [&a {name: b}, *a]", []string{"line 1: aliases are not supported"}},
		{"an alias of nothing", "principals:\n- *tok", []string{"line 2: aliases are not supported"}},
		{"an alias of itself", "a: &a [*a]", []string{"aliases are not supported"}},
		{"two documents", "{}\n---\n{}", []string{"the file has a second document"}},
		{"no YAML", "# people\nprincipals: [", []string{"line 2: a value is missing: a list that begins with [ ends with ]"}},
		{"an open quote", "principals:\n- {name: \"a}\n- {name: b}\n", []string{"line 2: the text that begins with a quote in this line has no closing quote"}},
	} {
		cfg, err := parseFile([]byte(c.text), dir, Options{})
		wantError(t, c.why, err, c.parts...)
		if cfg != nil && err != nil {
			t.Errorf("%s: a configuration comes with an error", c.why)
		}
	}
}

// One reading finds every mistake, also beside others and in an entry whose name or token another one has.
func TestBadFileHasEveryMistake(t *testing.T) {
	dir := writeFiles(t, map[string]string{"secret": strings.Repeat("s", 32), "short": "s"})
	_, err := parseFile([]byte(`principals:
- {name: a, roles: [clint, approver, obsrver], sees: ['', '[a'], tokens: [plain, '`+hashA+`', short]}
- {name: a, tokens: ['`+hashA+`', '`+hashB+`', '`+hashB+`'], trust: trust}
- {name: b, tokens: [`+manyHashes(maxTokens+1)+`, plain]}
issuers:
- {issuer: i, key_files: [nope, short, secret], algorithms: [None, HS265], prefix: 'uid:'}
- {issuer: i, key_files: [secret], algorithms: [HS256, RS256, HS512]}
- {algorithms: [none]}
`), dir, Options{})
	var got []string
	for _, e := range FileErrors(err) {
		got = append(got, fmt.Sprintf("%d %s %s", e.Line, e.Path, strings.Join(strings.Fields(e.Text)[:3], " ")))
	}
	slices.Sort(got)
	want(t, "the mistakes", got, []string{
		"2 principals[0].roles[0] unknown role \"clint\":",
		"2 principals[0].roles[2] unknown role \"obsrver\":",
		"2 principals[0].sees[0] an empty pattern",
		"2 principals[0].sees[1] the pattern has",
		"2 principals[0].tokens[0] want sha256: and",
		"2 principals[0].tokens[2] want sha256: and",
		"3 principals[1].name the principal is",
		"3 principals[1].tokens[0] the token is",
		"3 principals[1].tokens[2] the token is",
		"3 principals[1].trust unknown trust \"trust\":",
		"4 principals[2].tokens[16] a principal has",
		"6 issuers[0].algorithms[0] a JWT without",
		"6 issuers[0].algorithms[1] unknown algorithm \"HS265\":",
		"6 issuers[0].key_files[0] key file (paths",
		"6 issuers[0].key_files[1] key file (paths",
		"6 issuers[0].prefix only the runtime",
		"7 issuers[1] algorithm HS512 fits",
		"7 issuers[1] algorithm RS256 fits",
		"7 issuers[1].issuer the issuer is",
		"8 issuers[2] issuer is missing:",
		"8 issuers[2] the issuer has",
		"8 issuers[2].algorithms[0] a JWT without",
	})
}

func manyHashes(n int) string {
	var all []string
	for i := range n {
		all = append(all, "'"+FileHash(Secret(fmt.Sprint(i)))+"'")
	}
	return strings.Join(all, ", ")
}

func TestLoadNamesTheFile(t *testing.T) {
	dir := writeFiles(t, map[string]string{"auth.yaml": "x: 1"})
	name := filepath.Join(dir, "auth.yaml")
	_, err := Load(name, Options{})
	wantError(t, "a bad file", err, "auth file "+name+": line 1: unknown key \"x\"")
	_, err = Load(filepath.Join(dir, "nope"), Options{})
	wantError(t, "no file", err, "auth file "+filepath.Join(dir, "nope")+": no such file")
	must(t, os.Truncate(name, maxFile+1))
	_, err = Load(name, Options{})
	wantError(t, "a huge file", err, "larger than")
}

func TestAbsoluteKeyFileIsRead(t *testing.T) {
	dir := writeFiles(t, map[string]string{"secret": strings.Repeat("s", 32)})
	c := parse(t, "/nowhere", "issuers: [{issuer: i, key_files: ["+filepath.Join(dir, "secret")+"], algorithms: [HS256]}]")
	want(t, "the key is read", c.issuers["i"].kinds(), "secret of 32 bytes")
}

func TestAddTokenExtendsAPrincipal(t *testing.T) {
	c := parse(t, "", "principals: [{name: alice, tokens: ['"+hashA+"'], roles: [observer], trust: constrained}]")
	must(t, c.AddToken(Token{Principal: "alice", Secret: "new", Roles: LocalRoles()}))
	must(t, c.AddToken(Token{Principal: "alice", Secret: "new", Roles: LocalRoles()})) // again is fine
	must(t, c.AddToken(Token{Principal: "near", Secret: "n", Roles: LocalRoles()}))
	must(t, c.AddToken(Token{Principal: "far", Secret: "f"}))
	set := NewSet(c)
	for _, w := range []struct {
		why   string
		token Secret
		id    Identity
	}{
		{"the file's token", "a", Identity{Principal: "alice", Roles: []Role{RoleObserver}, Trust: arcp.Constrained}},
		{"a new token of the same", "new", Identity{Principal: "alice", Roles: []Role{RoleObserver}, Trust: arcp.Constrained}},
		{"on loopback", "n", Identity{Principal: "near", Roles: []Role{RoleClient, RoleWorker, RoleApprover}, Trust: arcp.Trusted}},
		{"elsewhere", "f", Identity{Principal: "far", Roles: []Role{RoleClient}, Trust: arcp.Trusted}},
	} {
		w.id.Scheme, w.id.TokenFingerprint = Bearer, tokenFingerprint(HashToken(w.token))
		want(t, w.why, begin(t, set, Request{Scheme: Bearer, Token: w.token, Now: now}), w.id)
	}
}

func TestRefusedTokenAddsNobody(t *testing.T) {
	c := parse(t, "", "principals: [{name: full, tokens: ["+manyHashes(maxTokens)+"]}]")
	must(t, c.AddToken(Token{Principal: "alice", Secret: "taken", Roles: LocalRoles()}))
	for _, w := range []struct {
		why, name string
		token     Secret
		message   string
	}{
		{"no token", "bob", "", "add token: the token is empty: give NAME=TOKEN"},
		{"no name", "", "tok", "add token: a principal needs a name"},
		{"another's token", "bob", "taken", "add token: the token belongs to another principal"},
		{"one too many", "full", "tok", "add token: a principal has at most 16 tokens"},
		{"an anonymous name", "anonymous:x", "tok", "belong to anonymous sessions"},
	} {
		wantError(t, w.why, c.AddToken(Token{Principal: w.name, Secret: w.token, Roles: LocalRoles()}), w.message)
	}
	want(t, "a refused token adds nobody", slices.Sorted(maps.Keys(c.principals)), []string{"alice", "full"})
	want(t, "and is not known", len(c.holders.byHash), maxTokens+1)
}

// A lease that CheckLease refuses is an error of Load.
func TestLeaseIsChecked(t *testing.T) {
	var seen []string
	check := func(lease []byte) error {
		if seen = append(seen, string(lease)); strings.Contains(string(lease), "bad") {
			return errors.New("so it is")
		}
		return nil
	}
	read := func(text string) error {
		_, err := parseFile([]byte(text), "", Options{CheckLease: check})
		return err
	}
	must(t, read(`principals: [{name: a, lease: {fs.read: ["/a"]}}, {name: b}]`))
	want(t, "what there is", seen, []string{`{"fs.read":["/a"]}`})
	err := read("principals:\n  - name: a\n  - name: bob\n    lease: {bad: 1}\n")
	want(t, "the principal", fmt.Sprint(err), "line 4: principals[1].lease: of bob: so it is")
}
