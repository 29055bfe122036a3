package exec

import (
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/tool"
)

// Config describes a tool that runs a command.
type Config struct {
	tool.Capability // Source is set by New

	Command []string // the program, a name in PATH or a path, and its arguments
	Env     []string // names of the variables that are handed on, beside PATH
	Dir     string   // working directory; "": a directory that each call leases, and that is removed after it
	Bounds  Bounds
	Sandbox Sandbox  // default SandboxNone
	Hide    []string // files and directories that cannot be read in the sandbox; absolute paths

	Log zerolog.Logger // of processes and directories that could not be removed; the zero Logger drops it
}

// Bounds are limits that the kernel enforces for each process of a job. Zero is no limit.
type Bounds struct {
	CPUSeconds int   // processor time until SIGXCPU; SIGKILL follows a second later
	Memory     int64 // bytes of address space
	Files      int   // open files
	Processes  int   // of the user, in all its programs: the kernel has no other count
	FileSize   int64 // bytes of a written file until SIGXFSZ
}

// Sandbox selects the sandbox of a command.
type Sandbox string

// The sandboxes.
const (
	SandboxNone  Sandbox = "none"
	SandboxBwrap Sandbox = "bwrap" // bubblewrap: a process namespace of its own, and a read-only file system
)

// Sandboxes lists the sandboxes.
var Sandboxes = []Sandbox{SandboxNone, SandboxBwrap}
