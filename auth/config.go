package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Config lists the principals, issuers and policies that a Set accepts. The zero value accepts
// local peers only. One goroutine owns a Config until NewSet or Reload receives it; it must
// not change afterwards.
//
// Tokens are stored as hashes. No form of printing or encoding shows one.
type Config struct {
	principals map[string]*principal
	holders    *holders // a pointer, so that printing a struct around a Config stops there
	issuers    map[string]*issuer
	policies   map[string]policy // by scheme; absent: never
	anonymous  bool
}

// holders finds the holder of a token.
type holders struct{ byHash map[[sha256.Size]byte]holder }

type holder struct {
	hash      [sha256.Size]byte
	principal *principal
}

// policy decides when a challenge is due (SPEC.md §5.1).
type policy string

const (
	challengeNever  policy = "never"
	challengeAlways policy = "always"
	challengeNew    policy = "new" // to a client not seen for seenFor
)

var allPolicies = []policy{challengeNever, challengeAlways, challengeNew}

// Format prints the number of entries, never their content.
func (c Config) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, c.String()) // a fmt.State keeps its own error
}

// String returns the number of entries, never their content.
func (c Config) String() string {
	return fmt.Sprintf("auth config: %d principals, %d issuers, anonymous %t", len(c.principals), len(c.issuers), c.anonymous)
}

// Token lets a principal in with a bearer token, as `--token NAME=TOKEN` does. The
// principal is trusted (SPEC.md §5.12).
type Token struct {
	Principal string
	Secret    Secret // the token itself; only its hash is kept
	Roles     []Role // default: RoleClient; ignored for a principal that the auth file names
}

// LocalRoles returns the roles of a principal that connects over loopback without an auth
// file: client, worker and approver.
func LocalRoles() []Role { return slices.Clone(localRoles) }

// AddToken adds a token. A principal that the auth file names has one token more. Adding a
// token twice changes nothing. It is an error if the token is empty or another principal's.
func (c *Config) AddToken(t Token) error {
	if t.Secret == "" {
		return errors.New("add token: the token is empty: give NAME=TOKEN")
	}
	p := c.principals[t.Principal]
	if p == nil {
		roles := clientRoles
		if len(t.Roles) > 0 {
			roles = slices.Clone(t.Roles)
		}
		p = newPrincipal(t.Principal, roles)
	}
	hash := HashToken(t.Secret)
	if c.holds(p, hash) {
		return nil
	}
	if err := c.addHash(p, hash); err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	return nil
}

func (c *Config) holds(p *principal, hash [sha256.Size]byte) bool {
	return c.holders != nil && c.holders.byHash[hash].principal == p
}

// addHash makes p known, if it is not yet, as a holder of a token.
func (c *Config) addHash(p *principal, hash [sha256.Size]byte) error {
	if err := c.checkHash(p, hash); err != nil {
		return err
	}
	if err := c.addPrincipal(p); err != nil {
		return err
	}
	if c.holders == nil {
		c.holders = &holders{byHash: map[[sha256.Size]byte]holder{}}
	}
	c.holders.byHash[hash] = holder{hash, p}
	p.tokens = append(p.tokens, hash)
	return nil
}

func (c *Config) checkHash(p *principal, hash [sha256.Size]byte) error {
	if len(p.tokens) >= maxTokens {
		return fmt.Errorf("a principal has at most %d tokens: remove one", maxTokens)
	}
	if c.holders == nil {
		return nil
	}
	switch other, taken := c.holders.byHash[hash]; {
	case !taken:
		return nil
	case other.principal == p:
		return errors.New("the token is listed twice: remove one")
	default:
		return errors.New("the token belongs to another principal already: give each its own")
	}
}

// addPrincipal adds p; adding it again is fine, another of its name is not.
func (c *Config) addPrincipal(p *principal) error {
	name := p.identity.Principal
	if known := c.principals[name]; known != nil && known != p {
		return errors.New("the principal is listed twice: put all its tokens in one entry")
	}
	if err := checkName(name); err != nil {
		return err
	}
	if c.principals == nil {
		c.principals = map[string]*principal{}
	}
	c.principals[name] = p
	return nil
}

// addIssuer refuses one that cannot work.
func (c *Config) addIssuer(i *issuer) error {
	if err := i.check(); err != nil {
		return err
	}
	if c.issuers[i.name] != nil {
		return errors.New("the issuer is listed twice: put all its keys in one entry")
	}
	if c.issuers == nil {
		c.issuers = map[string]*issuer{}
	}
	c.issuers[i.name] = i
	return nil
}

func (c *Config) policy(scheme string) policy {
	if p, ok := c.policies[scheme]; ok {
		return p
	}
	return challengeNever
}
