package auth

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// leeway is the largest accepted difference between the clocks of the runtime and an issuer.
const leeway = 30 * time.Second

// maxKeys bounds the keys of an issuer, and with them the signature checks for a token without a
// kid.
const maxKeys = 32

// latest is the last second of the year 9999, the latest time in JSON.
const latest = 253402300799

// Issuer is a trusted issuer of JWTs for Config.AddIssuer, like an entry of issuers in the auth file
// (SPEC.md §5.1).
type Issuer struct {
	Name     string // claim iss of the tokens; required
	Audience string // required value in claim aud; default: Options.RuntimeID

	// Keys verify the tokens. An element has PEM public keys and certificates, a JWK set, or a raw
	// secret, like a key file. At least one key is required; at most 32 are allowed.
	Keys       []Secret
	Algorithms []string // accepted algorithms, for example RS256; at least one

	Claim      string // claim with the name of the principal; default "sub"
	Prefix     string // prefix of the name of the principal
	RolesClaim string // claim with the roles; default: the roles are configured
}

// validate returns the issuer. The result shares no memory with i. The error joins the mistakes of all members.
func (i Issuer) validate(runtimeID string) (*issuer, error) {
	added := &issuer{
		name: i.Name, audience: cmp.Or(i.Audience, runtimeID), algorithms: slices.Clone(i.Algorithms),
		claim: cmp.Or(i.Claim, "sub"), prefix: i.Prefix, rolesClaim: i.RolesClaim,
	}
	invalid := joined(eachElement("keys", i.Keys, func(text Secret) error {
		keys, err := parseKeys([]byte(text))
		added.keys = append(added.keys, keys...)
		return err
	}), eachElement("algorithms", i.Algorithms, checkAlgorithm))
	if invalid == nil && len(added.keys) > 0 {
		invalid = added.checkAlgorithms()
	}
	return added, joined(append(i.missing(), invalid, added.check())...)
}

// missing returns an error for each required member that is not set.
func (i Issuer) missing() (errs []error) {
	if i.Name == "" {
		errs = append(errs, errors.New("issuer is missing: give the iss claim of its tokens"))
	}
	if len(i.Keys) == 0 {
		errs = append(errs, errors.New("the issuer has no key: give jwks or key_files"))
	}
	if len(i.Algorithms) == 0 {
		errs = append(errs, errors.New("algorithms is missing: list the algorithms of the issuer, for example [RS256]"))
	}
	return errs
}

func checkAlgorithm(name string) error {
	switch {
	case strings.EqualFold(name, "none"):
		return errors.New("a JWT without a signature is never accepted: name the algorithm the issuer signs with")
	case !slices.Contains(algorithms, name):
		return unknownWord("algorithm", name, algorithms)
	}
	return nil
}

// issuer is a trusted issuer of JWTs (SPEC.md §5.1). It is immutable once the configuration is in
// use.
type issuer struct {
	name       string // claim iss
	audience   string // required value in claim aud
	algorithms []string
	keys       []*key
	claim      string // claim with the name of the principal
	prefix     string // prefix of the name of the principal
	rolesClaim string // claim with the roles; "": none
}

// A problem is the reason why a JWT is refused. It is sent to the peer and contains no part of the
// token.
type problem string

func (p problem) Error() string { return string(p) }

const (
	errMalformed   problem = "token is malformed"
	errTooLong     problem = "token is too long"
	errIssuer      problem = "issuer is not configured"
	errAlgorithm   problem = "signing algorithm is not allowed"
	errCritical    problem = "critical header parameters are not supported"
	errNoKey       problem = "the issuer has no such key for the algorithm"
	errSignature   problem = "signature is invalid"
	errExpired     problem = "token is expired"
	errNotYet      problem = "token is not valid yet"
	errAudience    problem = "audience is not this runtime"
	errClaims      problem = "claims are not valid"
	errNonce       problem = "nonce is not the challenge"
	errOtherClient problem = "key or principal differ from those of the token"
)

// verify returns the key that signed the token, one of the keys allowed by its header.
func (i *issuer) verify(t *jwt.Token, signed string) (*key, error) {
	if !slices.Contains(i.algorithms, t.Method.Alg()) {
		return nil, errAlgorithm
	}
	if _, ok := t.Header["crit"]; ok {
		return nil, errCritical
	}
	kid, ok := t.Header["kid"].(string)
	if !ok && t.Header["kid"] != nil {
		return nil, errMalformed
	}
	why := errNoKey
	for _, k := range i.keys {
		if !k.mayVerify(t.Method.Alg(), kid) {
			continue
		}
		if t.Method.Verify(signed, t.Signature, k.material()) == nil {
			return k, nil
		}
		why = errSignature
	}
	return nil, why
}

// validate checks the registered claims and returns the time when the token expires, including the
// leeway.
func (i *issuer) validate(c jwt.MapClaims, now time.Time) (time.Time, error) {
	if err := checkClaims(c); err != nil {
		return time.Time{}, err
	}
	exp, err := c.GetExpirationTime()
	if err != nil || exp == nil {
		return time.Time{}, errClaims
	}
	err = jwt.NewValidator(
		jwt.WithTimeFunc(func() time.Time { return now }),
		jwt.WithLeeway(leeway),
		jwt.WithExpirationRequired(),
		jwt.WithAudience(i.audience),
		jwt.WithIssuer(i.name),
	).Validate(c)
	if err != nil {
		return time.Time{}, claimProblem(err)
	}
	return exp.Add(leeway), nil
}

// checkClaims checks that required claims are present and that dates are in range, because the library
// maps numbers out of range to other times. The claim nbf is optional (RFC 7519 §4.1.5, SPEC.md §5.1).
func checkClaims(c jwt.MapClaims) error {
	for _, name := range []string{"exp", "sub", "aud"} {
		if c[name] == nil {
			return problem("claim " + name + " is missing")
		}
	}
	if sub, _ := c["sub"].(string); sub == "" {
		return problem("claim sub is not a text")
	}
	for _, name := range []string{"exp", "nbf"} {
		if v, ok := c[name]; ok && !isDate(v) {
			return problem("claim " + name + " is not a date")
		}
	}
	return nil
}

func isDate(v any) bool {
	seconds, ok := v.(float64)
	return ok && 0 <= seconds && seconds <= latest
}

func claimProblem(err error) error {
	for _, w := range []struct {
		err     error
		problem problem
	}{
		{jwt.ErrTokenExpired, errExpired},
		{jwt.ErrTokenNotValidYet, errNotYet},
		{jwt.ErrTokenInvalidAudience, errAudience},
	} {
		if errors.Is(err, w.err) {
			return w.problem
		}
	}
	return errClaims
}

// principal returns the name of the principal in the claims.
func (i *issuer) principal(c jwt.MapClaims) (string, error) {
	text, _ := c[i.claim].(string)
	if text == "" {
		return "", problem("claim " + i.claim + " is missing or not a text")
	}
	name := i.prefix + text
	if reserved(name) {
		return "", problem("claim " + i.claim + " has a name that only the runtime may assign")
	}
	if err := checkName(name); err != nil {
		return "", problem("claim " + i.claim + ": " + err.Error())
	}
	return name, nil
}

// roles returns the known roles in the claims; false if the claim is absent. The claim is a list of
// texts, or a text with roles separated by spaces.
func (i *issuer) roles(c jwt.MapClaims) ([]Role, bool) {
	if i.rolesClaim == "" || c[i.rolesClaim] == nil {
		return nil, false
	}
	var roles []Role
	for _, text := range texts(c[i.rolesClaim]) {
		if r := Role(text); slices.Contains(allRoles, r) && !slices.Contains(roles, r) {
			roles = append(roles, r)
		}
	}
	return roles, true
}

func texts(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		for _, e := range v {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// check refuses too many keys, and a prefix that only the runtime may assign.
func (i *issuer) check() error {
	var errs []error
	if len(i.keys) > maxKeys {
		errs = append(errs, fmt.Errorf("there are %d keys: at most %d", len(i.keys), maxKeys))
	}
	if reserved(i.prefix) {
		errs = append(errs, &memberError{"prefix", errors.New("only the runtime may assign names with this prefix: choose another")})
	}
	return joined(errs...)
}

// checkAlgorithms refuses each algorithm that fits no key, for example HMAC with a public key.
func (i *issuer) checkAlgorithms() error {
	var errs []error
	for _, a := range i.algorithms {
		if !slices.ContainsFunc(i.keys, func(k *key) bool { return k.mayVerify(a, "") }) {
			errs = append(errs, fmt.Errorf("algorithm %s fits none of the keys (%s): remove it or give a key for it", a, i.kinds()))
		}
	}
	return joined(errs...)
}

func (i *issuer) kinds() string {
	var kinds []string
	for _, k := range i.keys {
		if !slices.Contains(kinds, k.kind) {
			kinds = append(kinds, k.kind)
		}
	}
	return strings.Join(kinds, ", ")
}
