package auth

import "strings"

// ProgramRights bound what a program does that the runtime has started.
type ProgramRights struct {
	Tools []string // globs of the names of tools that it may execute
}

// NewProgram returns the identity of a program that the runtime starts: a worker for the
// jobs of all principals, of tools whose names match the globs. It may do nothing else.
func NewProgram(name string, tools []string) Identity {
	return Identity{Principal: programPrefix + name, Scheme: Program, Roles: []Role{RoleWorker}, Trust: Trusted, Lease: []byte("{}"), Program: &ProgramRights{Tools: tools}}
}

// IsProgram reports whether a principal is a program that the runtime has started.
func IsProgram(principal string) bool { return strings.HasPrefix(principal, programPrefix) }

// assigned returns the identity that the runtime assigns to the peer of r. ok is false if
// the runtime did not start the peer.
func (r *Request) assigned() (id Identity, ok bool) {
	if r.Program == nil {
		return Identity{}, false
	}
	return *r.Program, true
}

// revalidateProgram returns the identity as it is assigned now. Only the connection of a
// program attaches to a session of that program, and to no other session.
func (r *Request) revalidateProgram(id *Identity) (Identity, error) {
	if own, ok := r.assigned(); ok && id.Scheme == Program && own.Principal == id.Principal {
		return own, nil
	}
	return Identity{}, gone("the program")
}
