package auth

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Prefixes of the names that the runtime assigns: to anonymous sessions, to local users, and to
// programs that it has started.
const (
	anonymousPrefix = "anonymous:"
	uidPrefix       = "uid:"
	programPrefix   = "program:"
)

const (
	maxName   = 256 // bytes of a principal's name
	maxTokens = 16  // of one principal; an answer without a token costs an HMAC for each
)

var (
	allRoles    = []Role{RoleClient, RoleObserver, RoleWorker, RoleApprover, RoleThoughts, RoleAdmin}
	clientRoles = []Role{RoleClient}
	localRoles  = []Role{RoleClient, RoleWorker, RoleApprover}
)

// Principal is a principal for Config.AddPrincipal, like an entry of principals in the auth file
// (SPEC.md §5.12). A member that is not set has its default.
type Principal struct {
	Name        string          // required; at most 256 bytes of printable characters; "uid:" and a number is a local user
	TokenHashes []Secret        // Secret(FileHash(token)) of each bearer token; at most 16; key tokens of the auth file
	Roles       []Role          // default: RoleClient
	Trust       arcp.TrustLevel // default: arcp.Trusted
	Lease       []byte          // JSON object that bounds the leases of its jobs; default: no bound
	Limits      Limits          // members of at least 0
	Sees        []string        // globs of the principals that it may observe, in the syntax of path.Match
	Serves      []string        // globs of the principals whose jobs it may execute
}

// validate returns p without its tokens. The result shares no memory with p. The error joins the mistakes of all
// members; with it the result has no valid identity.
func (p Principal) validate(checkLease func([]byte) error) (*principal, error) {
	added := newPrincipal(p.Name, clientRoles)
	id := &added.identity
	if len(p.Roles) > 0 {
		id.Roles = nil
	}
	failures := []error{checkName(p.Name), eachElement("roles", p.Roles, func(r Role) error {
		if !slices.Contains(allRoles, r) {
			return unknownWord("role", r, allRoles)
		}
		if !slices.Contains(id.Roles, r) {
			id.Roles = append(id.Roles, r)
		}
		return nil
	})}
	if id.Trust = cmp.Or(p.Trust, arcp.Trusted); !slices.Contains(arcp.TrustLevels, id.Trust) {
		failures = append(failures, &memberError{"trust", unknownWord("trust", p.Trust, arcp.TrustLevels)})
	}
	failures = append(failures, p.Limits.check(), eachElement("sees", p.Sees, checkGlob), eachElement("serves", p.Serves, checkGlob))
	if err := p.checkLease(checkLease); err != nil {
		failures = append(failures, &memberError{"lease", err})
	}
	id.Limits = p.Limits
	id.Sees, id.Serves = slices.Clone(p.Sees), slices.Clone(p.Serves)
	id.Lease = slices.Clone(p.Lease)
	return added, joined(failures...)
}

// checkLease returns an error if the lease is no JSON object, or if valid refuses it.
func (p Principal) checkLease(valid func([]byte) error) error {
	switch {
	case p.Lease == nil:
		return nil
	case !json.Valid(p.Lease) || bytes.TrimSpace(p.Lease)[0] != '{':
		return errors.New("want a JSON object")
	case valid == nil:
		return nil
	}
	if err := valid(p.Lease); err != nil {
		return fmt.Errorf("of %s: %w", p.Name, err)
	}
	return nil
}

var errCount = errors.New("want a whole number, 0 or more")

// check refuses negative members.
func (l Limits) check() error {
	var errs []error
	for _, limit := range []struct {
		member string
		value  int
	}{{"limits.sessions", l.Sessions}, {"limits.jobs", l.Jobs}, {"limits.rate_per_min", l.RatePerMin}} {
		if limit.value < 0 {
			errs = append(errs, &memberError{limit.member, errCount})
		}
	}
	return joined(errs...)
}

func checkGlob(pattern string) error {
	if pattern == "" {
		return errors.New("an empty pattern matches no principal: remove it")
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return errors.New(`the pattern has an unclosed bracket: close it or put a \ before it`)
	}
	return nil
}

// principal is a configured principal. It is immutable once the configuration is in use. All its
// sessions share its slices.
type principal struct {
	identity Identity // without Scheme and Expires
	tokens   [][sha256.Size]byte
}

func newPrincipal(name string, roles []Role) *principal {
	return &principal{identity: Identity{Principal: name, Roles: roles, Trust: arcp.Trusted}}
}

// as returns the identity of a session authenticated by scheme.
func (p *principal) as(scheme string) Identity {
	id := p.identity
	id.Scheme = scheme
	return id
}

// HasRole reports whether id has the role. No role implies another (SPEC.md §5.12).
func (id Identity) HasRole(role Role) bool { return slices.Contains(id.Roles, role) }

func uidName(uid int) string { return uidPrefix + strconv.Itoa(uid) }

// reserved reports whether only the runtime may assign the name.
func reserved(name string) bool {
	return strings.HasPrefix(name, anonymousPrefix) || strings.HasPrefix(name, uidPrefix) || strings.HasPrefix(name, programPrefix)
}

// checkName returns the reason why the name of a principal is not allowed. The error does not
// contain the name.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a principal needs a name")
	case len(name) > maxName:
		return fmt.Errorf("a principal's name has at most %d bytes", maxName)
	case strings.ContainsFunc(name, unprintable):
		return errors.New("a principal's name has printable characters only")
	case strings.HasPrefix(name, anonymousPrefix):
		return fmt.Errorf("names with %q belong to anonymous sessions: choose another", anonymousPrefix)
	case strings.HasPrefix(name, programPrefix):
		return fmt.Errorf("names with %q belong to programs that the server starts: choose another", programPrefix)
	}
	return nil
}

// unprintable includes U+FFFD, the decoded form of different invalid bytes.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
