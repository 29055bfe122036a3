// Package local is what tools lease on the machine that the runtime runs on:
// processes and directories. Their names say for certain what they are, so that
// after a restart, and after the machine has given a pid to somebody else, what is
// taken away is what was leased and nothing else.
package local

import "github.com/arcpd/arcpd/arcp"

// Provider and the types of leases on this machine.
const (
	Provider  = "local"
	Process   = "process"
	Directory = "directory"
)

func broken(what, name string) error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "%q names no %s that was leased here", name, what)
}
