// Package local leases processes and directories of the machine that the runtime runs
// on. Their names identify them beyond doubt: after a restart, and after a pid is
// reused, the clean-up ends exactly the leased process or directory.
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
