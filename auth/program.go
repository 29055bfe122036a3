package auth

import (
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// ProgramRights are the rights of a program that the runtime has started.
type ProgramRights struct {
	Tools []string // globs of the tools that it may execute
}

// NewProgram returns the identity of a program that the runtime starts. The program may only
// execute jobs of all principals, for tools whose names match the globs.
func NewProgram(name string, tools []string) Identity {
	return Identity{Principal: programPrefix + name, Scheme: Program, Roles: []Role{RoleWorker}, Trust: arcp.Trusted,
		Lease: []byte("{}"), Program: &ProgramRights{Tools: tools}}
}

// IsProgram reports whether the principal is a program started by the runtime.
func IsProgram(principal string) bool { return strings.HasPrefix(principal, programPrefix) }

// assigned returns the identity that the runtime assigned to the peer. ok is false if the runtime
// did not start the peer.
func (r *Request) assigned() (id Identity, ok bool) {
	if r.Program == nil {
		return Identity{}, false
	}
	return *r.Program, true
}

// revalidateProgram returns the currently assigned identity. A program can attach only to its own
// sessions.
func (r *Request) revalidateProgram(id *Identity) (Identity, error) {
	if own, ok := r.assigned(); ok && id.Scheme == Program && own.Principal == id.Principal {
		return own, nil
	}
	return Identity{}, errNotKnown("the program")
}
