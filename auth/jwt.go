package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const maxJWT = 32 << 10 // bytes; a frame before authentication has at most 64 KiB

// signedJWT accepts JWTs of the configured issuers (SPEC.md §5.1). A principal in the auth file has
// the settings of the file. Any other principal is a trusted client. A roles claim, if configured,
// replaces the roles.
type signedJWT struct {
	issuers map[string]*issuer
	byName  map[string]*principal
	parser  *jwt.Parser
}

// newSignedJWT returns nil if there is no issuer.
func newSignedJWT(c *Config) *signedJWT {
	if len(c.issuers) == 0 {
		return nil
	}
	return &signedJWT{issuers: c.issuers, byName: c.principals, parser: jwt.NewParser(jwt.WithStrictDecoding())}
}

// verified is the content of a valid JWT and the key that signed it.
type verified struct {
	identity Identity
	key      *key
	nonce    string
}

func (*signedJWT) Scheme() string { return SignedJWT }

func (s *signedJWT) Authenticate(_ context.Context, r Request) (Identity, error) {
	if r.Token == "" {
		return Identity{}, missingToken(SignedJWT)
	}
	v, err := s.check(r.Token, r.Now)
	if err != nil {
		return Identity{}, invalidJWT(err)
	}
	return v.identity, nil
}

// Verify accepts a valid JWT as the answer, signed by the same key for the same principal as the token,
// with the challenge in its claim nonce.
func (s *signedJWT) Verify(_ context.Context, r Request, p Proof) (Identity, error) {
	response, err := s.check(p.Response, r.Now)
	if err != nil {
		return Identity{}, wrongAnswer(err)
	}
	if subtle.ConstantTimeCompare([]byte(response.nonce), []byte(p.Challenge)) != 1 {
		return Identity{}, wrongAnswer(errNonce)
	}
	token := response
	if r.Token != "" {
		token, err = s.check(r.Token, r.Now)
		if err != nil {
			return Identity{}, invalidJWT(err)
		}
		r.Principal = token.identity.Principal
	}
	if response.key != token.key || response.identity.Principal != r.Principal {
		return Identity{}, wrongAnswer(errOtherClient)
	}
	return token.identity, nil
}

func invalidJWT(err error) *Error {
	return &Error{Reason: ReasonInvalid, Message: "jwt validation failed: " + err.Error()}
}

// check verifies a token. The error is a problem.
func (s *signedJWT) check(token Secret, now time.Time) (verified, error) {
	t, err := s.parse(token.Reveal())
	if err != nil {
		return verified{}, err
	}
	claims := t.Claims.(jwt.MapClaims)
	iss, err := s.issuer(claims)
	if err != nil {
		return verified{}, err
	}
	key, err := iss.verify(t, signedPart(t.Raw))
	if err != nil {
		return verified{}, err
	}
	id, err := s.identity(iss, claims, now)
	if err != nil {
		return verified{}, err
	}
	id.KeyFingerprint = key.print
	nonce, _ := claims["nonce"].(string)
	return verified{identity: id, key: key, nonce: nonce}, nil
}

// parse decodes a token without verifying it. The claims are a MapClaims.
func (s *signedJWT) parse(token string) (*jwt.Token, error) {
	if len(token) > maxJWT {
		return nil, errTooLong
	}
	if strings.ContainsAny(token, "\r\n") {
		return nil, errMalformed // base64 decoding skips them
	}
	t, _, err := s.parser.ParseUnverified(token, jwt.MapClaims{})
	switch {
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return nil, errAlgorithm
	case err != nil:
		return nil, errMalformed // the error of the library quotes the token
	}
	return t, nil
}

func (s *signedJWT) issuer(c jwt.MapClaims) (*issuer, error) {
	name, _ := c["iss"].(string)
	if name == "" {
		return nil, problem("claim iss is missing or not a text")
	}
	if i, ok := s.issuers[name]; ok {
		return i, nil
	}
	return nil, errIssuer
}

// identity returns the identity for verified claims.
func (s *signedJWT) identity(i *issuer, c jwt.MapClaims, now time.Time) (Identity, error) {
	expires, err := i.validate(c, now)
	if err != nil {
		return Identity{}, err
	}
	name, err := i.principal(c)
	if err != nil {
		return Identity{}, err
	}
	id := s.known(name, i)
	id.Expires = expires
	if roles, ok := i.roles(c); ok {
		id.Roles, id.RolesClaim = roles, i.rolesClaim
	}
	return id, nil
}

// known returns the configured identity of a principal of an issuer.
func (s *signedJWT) known(name string, i *issuer) Identity {
	p := s.byName[name]
	if p == nil {
		p = newPrincipal(name, clientRoles)
	}
	id := p.as(SignedJWT)
	id.Issuer = i.name
	return id
}

func signedPart(token string) string { return token[:strings.LastIndexByte(token, '.')] }
