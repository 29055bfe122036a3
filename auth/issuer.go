package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// leeway is how far the clocks of the runtime and of an issuer may differ.
const leeway = 30 * time.Second

// maxKeys bounds the keys of an issuer, and so the signature checks a token
// without a kid can cause.
const maxKeys = 32

// latest is the last second of the year 9999, beyond which JSON has no time.
const latest = 253402300799

// issuer is one whose JWTs are accepted (SPEC.md §5.1). It does not change once
// the configuration is used.
type issuer struct {
	name       string // claim iss
	audience   string // must be in claim aud
	algorithms []string
	keys       []*key
	claim      string // names the principal
	prefix     string // of the principal's name
	rolesClaim string // "": the claims give no roles
}

// A problem is the reason why a JWT is refused. The peer sees it, so it repeats no part of the
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
	errOtherClient problem = "key or principal is another than the token's"
)

// verify returns the key that signed the token, of those that its header allows.
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
		if !k.fits(t.Method.Alg(), kid) {
			continue
		}
		if t.Method.Verify(signed, t.Signature, k.material()) == nil {
			return k, nil
		}
		why = errSignature
	}
	return nil, why
}

// validate checks the registered claims and returns when the token stops being
// accepted.
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
		return time.Time{}, inOurWords(err)
	}
	return exp.Add(leeway), nil
}

// checkClaims checks that required claims are present and that dates are in range: the library
// maps a number out of range to another time. A claim nbf is optional (RFC 7519 §4.1.5,
// SPEC.md §5.1).
func checkClaims(c jwt.MapClaims) error {
	for _, name := range []string{"exp", "sub", "aud"} {
		if c[name] == nil {
			return problem("claim " + name + " is missing")
		}
	}
	if sub, _ := c["sub"].(string); sub == "" {
		return problem("claim sub is no text")
	}
	for _, name := range []string{"exp", "nbf"} {
		if v, ok := c[name]; ok && !isDate(v) {
			return problem("claim " + name + " is no date")
		}
	}
	return nil
}

func isDate(v any) bool {
	seconds, ok := v.(float64)
	return ok && 0 <= seconds && seconds <= latest
}

func inOurWords(err error) error {
	for _, w := range []struct {
		theirs error
		ours   problem
	}{
		{jwt.ErrTokenExpired, errExpired},
		{jwt.ErrTokenNotValidYet, errNotYet},
		{jwt.ErrTokenInvalidAudience, errAudience},
	} {
		if errors.Is(err, w.theirs) {
			return w.ours
		}
	}
	return errClaims
}

// principal returns the name of the principal in the claims.
func (i *issuer) principal(c jwt.MapClaims) (string, error) {
	text, _ := c[i.claim].(string)
	if text == "" {
		return "", problem("claim " + i.claim + " is missing or no text")
	}
	name := i.prefix + text
	if reserved(name) {
		return "", problem("claim " + i.claim + " gives a name that is the runtime's to give")
	}
	if err := checkName(name); err != nil {
		return "", problem("claim " + i.claim + ": " + err.Error())
	}
	return name, nil
}

// roles returns the known roles that the claims list; false if the claim is absent. The claim
// is a list of texts or one text with spaces.
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

// setPrefix sets the prefix of the issuer's principals.
func (i *issuer) setPrefix(s string) error {
	if s == "" {
		return errors.New("an empty prefix is none: remove it")
	}
	i.prefix = s
	return nil
}

// check returns an error that names the first setting without which the issuer cannot work.
func (i *issuer) check() error {
	switch {
	case i.name == "":
		return errors.New("issuer is missing: give the iss claim of its tokens")
	case len(i.keys) == 0:
		return errors.New("there is no key: give jwks or key_files")
	case len(i.keys) > maxKeys:
		return fmt.Errorf("there are %d keys: at most %d", len(i.keys), maxKeys)
	case len(i.algorithms) == 0:
		return errors.New("algorithms is missing: list those the issuer signs with, as [RS256]")
	case reserved(i.prefix):
		return errors.New("prefix is the runtime's to give: choose another")
	}
	return i.checkAlgorithms()
}

// checkAlgorithms refuses an algorithm no key can be used with: HMAC with a
// public key, for one.
func (i *issuer) checkAlgorithms() error {
	for _, a := range i.algorithms {
		if !slices.ContainsFunc(i.keys, func(k *key) bool { return k.fits(a, "") }) {
			return fmt.Errorf("algorithm %s fits none of the keys (%s): remove it or give a key for it", a, i.kinds())
		}
	}
	return nil
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
