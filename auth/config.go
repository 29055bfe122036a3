package auth

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Options of a Config.
type Options struct {
	// RuntimeID is the audience of an issuer that sets none; "": DefaultRuntimeID.
	RuntimeID string
	// CheckLease validates the lease of a principal; nil: leases are not validated. Programs that
	// embed the runtime pass runtime.CheckLease.
	CheckLease func(lease []byte) error
}

// DefaultRuntimeID is the default of Options.RuntimeID.
const DefaultRuntimeID = "arcp"

// Config lists the principals, issuers and policies of a Set. Load reads one from an auth file, and
// its methods add entries. The zero value accepts only local peers. One goroutine owns a Config
// until NewSet or Reload receives it. It must not change afterwards.
//
// Tokens are stored as hashes. Printing or encoding a Config does not show them.
type Config struct {
	opts       Options
	principals map[string]*principal
	holders    *holders // a pointer: fmt does not print through it
	issuers    map[string]*issuer
	policies   map[string]ChallengePolicy // by scheme; absent: never
	anonymous  bool
}

// NewConfig returns an empty Config with options for its principals and issuers.
func NewConfig(opts Options) *Config { return &Config{opts: opts} }

// holders finds the principal of a token.
type holders struct{ byHash map[[sha256.Size]byte]holder }

type holder struct {
	hash      [sha256.Size]byte
	principal *principal
}

// ChallengePolicy decides when a challenge is due (SPEC.md §5.1).
type ChallengePolicy string

// The policies of Config.SetChallenge.
const (
	ChallengeNever  ChallengePolicy = "never"
	ChallengeAlways ChallengePolicy = "always"
	ChallengeNew    ChallengePolicy = "new" // only to clients not seen for 30 days
)

var allPolicies = []ChallengePolicy{ChallengeNever, ChallengeAlways, ChallengeNew}

// Format prints the number of entries without their content.
func (c Config) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, c.String()) // fmt.State records the error
}

// String returns the number of entries without their content.
func (c Config) String() string {
	return fmt.Sprintf("auth config: %d principals, %d issuers, anonymous %t", len(c.principals), len(c.issuers), c.anonymous)
}

// SetChallenge sets the policy of a scheme, Bearer or SignedJWT. The default is ChallengeNever.
// Another scheme or policy is an error.
func (c *Config) SetChallenge(scheme string, p ChallengePolicy) error {
	if !challengeable(scheme) {
		return unknownWord("scheme with challenges", scheme, []string{Bearer, SignedJWT})
	}
	if !slices.Contains(allPolicies, p) {
		return unknownWord("challenge policy", p, allPolicies)
	}
	if c.policies == nil {
		c.policies = map[string]ChallengePolicy{}
	}
	c.policies[scheme] = p
	return nil
}

// AllowAnonymous accepts anonymous peers, which negotiate it with the scheme none (SPEC.md §5.1).
func (c *Config) AllowAnonymous() { c.anonymous = true }

// AddPrincipal adds a principal, which must not exist. The error names the invalid member as in the
// auth file, for example roles[0], and repeats no token. It joins the errors of several members.
// After an error c is unchanged.
func (c *Config) AddPrincipal(p Principal) error {
	added, err := c.checkPrincipal(p)
	if err == nil {
		c.store(added)
	}
	return err
}

// checkPrincipal returns p with its tokens. It does not change c. With an error the result has the valid members.
func (c *Config) checkPrincipal(p Principal) (*principal, error) {
	var twice, tooMany error
	if c.principals[p.Name] != nil {
		twice = &memberError{"name", errors.New("the principal is listed twice: put all its tokens in one entry")}
	}
	if len(p.TokenHashes) > maxTokens {
		tooMany = &memberError{fmt.Sprintf("tokens[%d]", maxTokens), errTooManyTokens}
	}
	added, invalid := p.validate(c.opts.CheckLease)
	err := eachElement("tokens", p.TokenHashes[:min(len(p.TokenHashes), maxTokens)], func(token Secret) error {
		hash, err := parseHash(token.Reveal())
		if err != nil {
			return err
		}
		return c.appendToken(added, hash)
	})
	return added, joined(twice, invalid, err, tooMany)
}

// Token is a bearer token of a principal, like `--token NAME=TOKEN`. The principal has the trust level
// trusted (SPEC.md §5.12).
type Token struct {
	Principal string
	Secret    Secret // the token itself; only its hash is stored
	Roles     []Role // default: RoleClient; ignored for a principal that exists
}

// LocalRoles returns the roles of a principal that connects over loopback without an auth
// file: client, worker and approver.
func LocalRoles() []Role { return slices.Clone(localRoles) }

// AddToken adds a token to a principal, and the principal if it does not exist. Adding a token twice
// changes nothing. An empty token, a token of another principal, a name or role that AddPrincipal
// refuses, or more than 16 tokens of a principal is an error. After an error c is unchanged.
func (c *Config) AddToken(t Token) error {
	if t.Secret == "" {
		return errors.New("add token: the token is empty: give NAME=TOKEN")
	}
	p, hash := c.principals[t.Principal], HashToken(t.Secret)
	if p == nil {
		var err error
		if p, err = (Principal{Name: t.Principal, Roles: t.Roles}).validate(nil); err != nil {
			return fmt.Errorf("add token: %w", err)
		}
	}
	if slices.Contains(p.tokens, hash) {
		return nil
	}
	if err := c.appendToken(p, hash); err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	c.store(p)
	return nil
}

var errTooManyTokens = fmt.Errorf("a principal has at most %d tokens: remove one", maxTokens)

// appendToken adds a token to p. It does not change c.
func (c *Config) appendToken(p *principal, hash [sha256.Size]byte) error {
	if len(p.tokens) >= maxTokens {
		return errTooManyTokens
	}
	var owner *principal
	if c.holders != nil {
		owner = c.holders.byHash[hash].principal
	}
	switch {
	case slices.Contains(p.tokens, hash), owner != nil && owner.identity.Principal == p.identity.Principal:
		return errors.New("the token is listed twice: remove one")
	case owner != nil:
		return errors.New("the token belongs to another principal: use a different token for each")
	}
	p.tokens = append(p.tokens, hash)
	return nil
}

// store adds p and its tokens.
func (c *Config) store(p *principal) {
	if c.principals == nil {
		c.principals = map[string]*principal{}
	}
	c.principals[p.identity.Principal] = p
	if len(p.tokens) > 0 && c.holders == nil {
		c.holders = &holders{byHash: map[[sha256.Size]byte]holder{}}
	}
	for _, hash := range p.tokens {
		c.holders.byHash[hash] = holder{hash, p}
	}
}

// AddIssuer adds an issuer, which must not exist. The error names the invalid member, for example
// algorithms[0], and repeats no key. It joins the errors of several members. After an error c is
// unchanged.
func (c *Config) AddIssuer(i Issuer) error {
	added, err := c.checkIssuer(i)
	if err == nil {
		c.storeIssuer(added)
	}
	return err
}

// checkIssuer returns i. It does not change c. With an error the result has the valid members.
func (c *Config) checkIssuer(i Issuer) (*issuer, error) {
	added, err := i.validate(cmp.Or(c.opts.RuntimeID, DefaultRuntimeID))
	if c.issuers[i.Name] != nil {
		err = joined(&memberError{"issuer", errors.New("the issuer is listed twice: put all its keys in one entry")}, err)
	}
	return added, err
}

func (c *Config) storeIssuer(i *issuer) {
	if c.issuers == nil {
		c.issuers = map[string]*issuer{}
	}
	c.issuers[i.name] = i
}

func (c *Config) policy(scheme string) ChallengePolicy {
	return cmp.Or(c.policies[scheme], ChallengeNever)
}

// memberError is an error in a member of a Principal or an Issuer.
type memberError struct {
	member string // as in the auth file: trust, roles[0], limits.jobs
	err    error
}

func (e *memberError) Error() string { return e.member + ": " + e.err.Error() }

func (e *memberError) Unwrap() error { return e.err }

// joined returns a single error as it is, and several joined.
func joined(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// eachElement checks the elements of the list in a member. The error joins those of the elements.
func eachElement[T any](member string, list []T, check func(T) error) error {
	var errs []error
	for i, v := range list {
		if err := check(v); err != nil {
			errs = append(errs, &memberError{fmt.Sprintf("%s[%d]", member, i), err})
		}
	}
	return joined(errs...)
}
