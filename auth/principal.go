package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
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
	allRoles    = []Role{RoleClient, RoleObserver, RoleWorker, RoleApprover, RoleAdmin}
	clientRoles = []Role{RoleClient}
	localRoles  = []Role{RoleClient, RoleWorker, RoleApprover}
)

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
func HasRole(id Identity, role Role) bool { return slices.Contains(id.Roles, role) }

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
