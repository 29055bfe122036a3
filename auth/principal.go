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
)

// Prefixes of the names that the runtime assigns: to anonymous sessions, to users that the
// operating system vouches for, and to programs that it has started.
const (
	anonymousPrefix = "anonymous:"
	uidPrefix       = "uid:"
	programPrefix   = "program:"
)

const (
	maxName   = 256 // bytes of a principal's name
	maxTokens = 16  // of one principal: a few are rotated; each costs an HMAC a tokenless answer
)

var (
	allRoles    = []Role{RoleClient, RoleObserver, RoleWorker, RoleApprover, RoleAdmin}
	allTrust    = []string{Untrusted, Constrained, Trusted, Privileged}
	clientRoles = []Role{RoleClient}
	localRoles  = []Role{RoleClient, RoleWorker, RoleApprover}
)

// principal is a configured principal. It is immutable once the configuration is in use, and
// all its sessions share its slices.
type principal struct {
	identity Identity // but for Scheme and Expires
	tokens   [][sha256.Size]byte
}

func newPrincipal(name string, roles []Role) *principal {
	return &principal{identity: Identity{Principal: name, Roles: roles, Trust: Trusted}}
}

// as returns the identity of a session that proved itself by scheme.
func (p *principal) as(scheme string) Identity {
	id := p.identity
	id.Scheme = scheme
	return id
}

// HasRole reports whether id has the role itself: no role implies another
// (SPEC.md §5.12).
func HasRole(id Identity, role Role) bool { return slices.Contains(id.Roles, role) }

func uidName(uid int) string { return uidPrefix + strconv.Itoa(uid) }

// reserved reports whether only the runtime assigns the name: a credential cannot claim it.
func reserved(name string) bool {
	return strings.HasPrefix(name, anonymousPrefix) || strings.HasPrefix(name, uidPrefix) || strings.HasPrefix(name, programPrefix)
}

// checkName returns the reason why a principal's name is not allowed, without repeating the
// name.
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

// unprintable includes U+FFFD, to which decoding maps different invalid bytes.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
