package exec

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime/tool"
)

// Config describes a tool that runs a command.
type Config struct {
	tool.Capability // Source and NeedsDirs are set by New; Limits.Timeout defaults to DefaultTimeout

	Command []string // the program, a name in PATH or a path, and its arguments
	Env     []string // names of variables that the command inherits, besides PATH
	Dir     string   // working directory; "": each call leases one in runtime.Config.ResourceDir, which is removed after the call
	Stdin   string   // StdinStream: the standard input is a stream of a client; "": the arguments
	Stream  string   // StreamStdout: the standard output is a stream of the job, not its result; "": the result
	Output  string   // form of a standard output that is the result; "": OutputJSON
	Bounds  Bounds
	Sandbox Sandbox  // default SandboxNone
	Hide    []string // absolute paths of files and directories that the sandbox hides

	Log zerolog.Logger // receives processes and directories that could not be removed; the zero Logger drops them
}

// StdinStream is the value of Config.Stdin with which the first stream that a client opens to the job is the
// standard input. The arguments are in the variable ARCP_ARGUMENTS, and have at most 64 KiB.
const StdinStream = "stream"

// Stdins lists the values of Config.Stdin other than "".
var Stdins = []string{StdinStream}

// StreamStdout is the value of Config.Stream, and the name of the stream. It is a text stream.
const StreamStdout = "stdout"

// Streams lists the values of Config.Stream other than "".
var Streams = []string{StreamStdout}

// The values of Config.Output other than "". With OutputText the result is a string: the standard output, which is
// UTF-8, without one line break at its end.
const (
	OutputJSON = "json" // the standard output is one JSON value
	OutputText = "text"
)

// Outputs lists the values of Config.Output other than "".
var Outputs = []string{OutputJSON, OutputText}

// DefaultTimeout is the default of Limits.Timeout of a command.
const DefaultTimeout = time.Minute

// Bounds are limits that the kernel enforces for each process of a job. Zero is no limit.
type Bounds struct {
	CPUSeconds int   // processor time until SIGXCPU; SIGKILL follows a second later
	Memory     int64 // bytes of address space
	Files      int   // open files
	Processes  int   // of the user in all programs, because the kernel counts by user
	FileSize   int64 // bytes of a written file until SIGXFSZ
}

// Sandbox selects the sandbox of a command.
type Sandbox string

// The sandboxes.
const (
	SandboxNone  Sandbox = "none"
	SandboxBwrap Sandbox = "bwrap" // bubblewrap: an own process namespace and a read-only file system
)

// Sandboxes lists the sandboxes.
var Sandboxes = []Sandbox{SandboxNone, SandboxBwrap}
