package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Config lists the principals, issuers and policies of a Set. The zero value accepts only local
// peers. One goroutine owns a Config until NewSet or Reload receives it. It must not change
// afterwards.
//
// Tokens are stored as hashes. Printing or encoding a Config does not show them.
type Config struct {
	principals map[string]*principal
	holders    *holders // a pointer: fmt does not print through it
	issuers    map[string]*issuer
	policies   map[string]policy // by scheme; absent: never
	anonymous  bool
}

// holders finds the principal of a token.
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
	challengeNew    policy = "new" // only to clients not seen for knownFor
)

var allPolicies = []policy{challengeNever, challengeAlways, challengeNew}

// Format prints the number of entries without their content.
func (c Config) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, c.String()) // fmt.State records the error
}

// String returns the number of entries without their content.
func (c Config) String() string {
	return fmt.Sprintf("auth config: %d principals, %d issuers, anonymous %t", len(c.principals), len(c.issuers), c.anonymous)
}

// Token is a bearer token of a principal, like `--token NAME=TOKEN`. The principal has the trust level
// trusted (SPEC.md §5.12).
type Token struct {
	Principal string
	Secret    Secret // the token itself; only its hash is stored
	Roles     []Role // default: RoleClient; ignored for a principal that the auth file names
}

// LocalRoles returns the roles of a principal that connects over loopback without an auth
// file: client, worker and approver.
func LocalRoles() []Role { return slices.Clone(localRoles) }

// AddToken adds a token to a principal, which may also be in the auth file. Adding a token twice changes
// nothing. An empty token or a token of another principal is an error.
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

// addHash adds a token to p, and p to the configuration if it is new.
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
	switch other, exists := c.holders.byHash[hash]; {
	case !exists:
		return nil
	case other.principal == p:
		return errors.New("the token is listed twice: remove one")
	default:
		return errors.New("the token belongs to another principal: use a different token for each")
	}
}

// addPrincipal adds p. Adding p again does nothing. Another principal with the same name is an
// error.
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

// addIssuer adds an issuer after checking its settings.
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
