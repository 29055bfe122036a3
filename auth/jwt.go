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

// signedJWT accepts JWTs of the configured issuers (SPEC.md §5.1). A principal of the auth
// file has the settings of the file; any other is a trusted client. A roles claim, if the
// issuer has one, replaces the roles.
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

// vouched is the content of a valid JWT, and the key that signed it.
type vouched struct {
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

// Verify wants a JWT as good as the token, made for this challenge: by the same
// key, of the same principal, with the challenge as its nonce.
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

func invalidJWT(why error) *Error {
	return &Error{Reason: ReasonInvalid, Message: "jwt validation failed: " + why.Error()}
}

// check fails with a problem.
func (s *signedJWT) check(token Secret, now time.Time) (vouched, error) {
	t, err := s.parse(token.Reveal())
	if err != nil {
		return vouched{}, err
	}
	claims := t.Claims.(jwt.MapClaims)
	iss, err := s.issuer(claims)
	if err != nil {
		return vouched{}, err
	}
	key, err := iss.verify(t, signedPart(t.Raw))
	if err != nil {
		return vouched{}, err
	}
	id, err := s.identity(iss, claims, now)
	if err != nil {
		return vouched{}, err
	}
	nonce, _ := claims["nonce"].(string)
	return vouched{identity: id, key: key, nonce: nonce}, nil
}

// parse reads a token and trusts none of it. Claims are a MapClaims.
func (s *signedJWT) parse(token string) (*jwt.Token, error) {
	if len(token) > maxJWT {
		return nil, errTooLong
	}
	if strings.ContainsAny(token, "\r\n") {
		return nil, errMalformed // base64 decoding would skip them
	}
	t, _, err := s.parser.ParseUnverified(token, jwt.MapClaims{})
	switch {
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return nil, errAlgorithm
	case err != nil:
		return nil, errMalformed // the library's error quotes the token
	}
	return t, nil
}

func (s *signedJWT) issuer(c jwt.MapClaims) (*issuer, error) {
	name, _ := c["iss"].(string)
	if name == "" {
		return nil, problem("claim iss is missing or no text")
	}
	if i, ok := s.issuers[name]; ok {
		return i, nil
	}
	return nil, errIssuer
}

// identity returns the identity of verified claims.
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

// known returns the configured identity of a principal that an issuer vouches for.
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
