package exec

import (
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/tool"
)

// Config is a command as a tool.
type Config struct {
	tool.Capability // Source is set by New

	Command []string // the program, a name in PATH or a path, and its arguments
	Env     []string // names of the variables that are handed on, beside PATH
	Dir     string   // where it runs; "": a directory that the call leases, which is removed after it
	Bounds  Bounds
	Sandbox Sandbox  // default SandboxNone
	Hide    []string // files and directories that cannot be read in the sandbox; absolute paths

	Log zerolog.Logger // of what a call could not clear up; the zero Logger drops it
}

// Bounds are limits that the kernel keeps, each of them for every process of a
// job. Zero is none.
type Bounds struct {
	CPUSeconds int   // of processor time, then SIGXCPU, a second later SIGKILL
	Memory     int64 // bytes of address space
	Files      int   // open at once
	Processes  int   // of the user, of all its programs together: the kernel has no other count
	FileSize   int64 // bytes of a file that it writes, then SIGXFSZ
}

// Sandbox says what a command is put into.
type Sandbox string

// The sandboxes.
const (
	SandboxNone  Sandbox = "none"
	SandboxBwrap Sandbox = "bwrap" // bubblewrap: process ids of its own, a file system that it can only read
)

// Sandboxes lists the sandboxes.
var Sandboxes = []Sandbox{SandboxNone, SandboxBwrap}
