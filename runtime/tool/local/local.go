// Package local leases processes and directories on the machine of the runtime. Their external ids are unique,
// also after a restart or the reuse of a pid: a clean-up ends only the leased process or directory.
package local

import "github.com/arcpd/arcpd/arcp"

// Provider and the types of leases on this machine.
const (
	Provider  = "local"
	Process   = "process"
	Directory = "directory"
)

func errNoSuchName(kind, name string) error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "%q names no %s that was leased here", name, kind)
}
