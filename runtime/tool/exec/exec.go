// Package exec runs commands as tools. A call starts the command, writes the arguments to its
// standard input as JSON, and reads one JSON value from its standard output. Standard input and
// output can be streams instead. Lines of standard error become log events.
//
// Each command has a reaper: a process of this program that starts the command and adopts its
// orphaned processes. The reaper kills all processes of the command on request, at the end of the
// command, and at the end or death of this process. The reaper ends after all processes of the
// command. A call therefore returns after all its processes, and a killed runtime leaves no
// process. [Start] starts programs that run for longer than a call, such as MCP servers and
// workers. They have a reaper too.
//
// A reaper cannot kill:
//   - processes that another program starts for the command, such as cron or a container daemon;
//   - processes of another user that it may not signal;
//   - processes without ARCP_JOB_ID or ARCP_KEEPER in their environment, if the command kills
//     the reaper;
//   - any process, if the command stops the reaper and then this process is killed.
//
// In a sandbox the kernel kills all processes with the first process, and the command cannot see
// the reaper.
//
// A program that uses this package calls Hook at the beginning of main.
package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// defaultPath is the PATH of commands if this process has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// checkTimeout bounds the test of a sandbox in Check.
const checkTimeout = 10 * time.Second

// command is a checked Config. It is immutable.
type command struct {
	order  order // of every call, without the members that depend on the job
	limit  int   // bytes of output
	input  bool  // the standard input is a stream of a client
	stream bool  // the output is a stream of the job
	text   bool  // the output is a text, not JSON
	log    zerolog.Logger

	starter starter
}

// New returns a tool that runs a command. The error is an invalid Config, or that the program or bubblewrap
// is not found.
func New(c Config) (*tool.Tool, error) {
	if !hooked {
		return nil, errors.New("this program cannot run commands: its main does not call exec.Hook")
	}
	cmd, err := prepare(&c)
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", c.Ref(), err)
	}
	c.Source = tool.SourceExec
	c.NeedsDirs = c.Dir == ""
	c.Limits.Timeout = cmp.Or(c.Limits.Timeout, DefaultTimeout)
	if cmd.input {
		c.ReadsStreams = true
		c.Limits.MaxRequestBytes = cmp.Or(c.Limits.MaxRequestBytes, maxArguments)
	}
	t, err := tool.NewRaw(c.Capability, cmd.run)
	if err != nil {
		return nil, err
	}
	cmd.limit = t.Limits.MaxResponseBytes
	if cmd.limit < 0 {
		cmd.limit = maxOutput
	}
	return t, nil
}

// Check returns an error for a command that cannot be started: its program is not found, or a test of its sandbox
// fails.
func Check(c *Config) error {
	cmd, err := prepare(c)
	if err != nil || c.Sandbox != SandboxBwrap {
		return err
	}
	warnAboutDir(c)
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	dir := c.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "arcp-try-"); err != nil {
			return fmt.Errorf("make a directory for a try: %w", err)
		}
		defer os.Remove(dir)
	}
	line, err := cmd.order.trial(dir)
	if err != nil {
		return err
	}
	try := exec.CommandContext(ctx, cmd.order.Bwrap, line[1:]...)
	try.Env = []string{}
	if out, err := try.CombinedOutput(); err != nil {
		return fmt.Errorf("sandbox: bwrap does not work here: %w: %.300s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// trial returns a command line that tests in the sandbox of a command whether the program is executable. It
// does not run the program.
func (o *order) trial(dir string) ([]string, error) {
	line, err := sandboxed(o.Bwrap, o.Hide, o.Program, dir, nil)
	if err != nil {
		return nil, err
	}
	return append(line[:len(line)-1], "sh", "-c", `test -x "$0" || { echo "$0 is not there in it" >&2; exit 1; }`, o.Program), nil
}

func prepare(c *Config) (*command, error) {
	if err := unsupported(c); err != nil {
		return nil, err
	}
	if err := CheckOutput(c); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if n := c.Limits.MaxRequestBytes; c.Stdin == StdinStream && (n < 0 || n > maxArguments) {
		return nil, fmt.Errorf("limits.max_request_bytes: a command with stdin: %s has its arguments in a variable: want at most %d", StdinStream, maxArguments)
	}
	program, err := exec.LookPath(c.Command[0])
	if err != nil {
		return nil, fmt.Errorf("%w: name a program that is there, by its path or a name in PATH", err)
	}
	env, err := environment(c.Env)
	if err != nil {
		return nil, err
	}
	o := order{Program: program, Argv: slices.Clone(c.Command), Env: env, Dir: c.Dir, Bounds: c.Bounds, Hide: slices.Clone(c.Hide)}
	if c.Sandbox == SandboxBwrap {
		if o.Bwrap, err = exec.LookPath("bwrap"); err != nil {
			return nil, errors.New("sandbox: bwrap is not in PATH: install bubblewrap, or leave sandbox out")
		}
		if err := checkDir(c); err != nil {
			return nil, err
		}
	}
	return &command{order: o, input: c.Stdin == StdinStream, stream: c.Stream == StreamStdout, text: c.Output == OutputText, starter: start,
		log: c.Log.With().Str("tool", c.Ref()).Logger()}, nil
}

// CheckOutput returns an error if Output contradicts Stream or OutputSchema.
func CheckOutput(c *Config) error {
	if c.Output != "" && c.Stream == StreamStdout {
		return fmt.Errorf("with stream: %s the standard output is a stream and not the result: remove output or stream", StreamStdout)
	}
	var schema struct {
		Type arcp.Raw `json:"type"`
	}
	if c.Output != OutputText || c.OutputSchema.Kind() != '{' || arcp.Unmarshal(c.OutputSchema, &schema) != nil || len(schema.Type) == 0 {
		return nil
	}
	if !strings.Contains(string(schema.Type), `"string"`) { // a type, or a list of types
		return fmt.Errorf("with %s the result is a string, which output_schema refuses: want the type string there, or remove output_schema", OutputText)
	}
	return nil
}

// checkDir returns an error if the working directory is hidden in the sandbox.
func checkDir(c *Config) error {
	for _, h := range c.Hide {
		if c.Dir != "" && below(resolveLinks(c.Dir), resolveLinks(h)) {
			return fmt.Errorf("dir: %s is hidden in the sandbox, because there are secrets of the server in %s: give another directory", c.Dir, h)
		}
	}
	return nil
}

// warnAboutDir logs the hidden files in the working directory.
func warnAboutDir(c *Config) {
	for _, h := range c.Hide {
		in := func(name string) bool { return resolveLinks(filepath.Dir(name)) == resolveLinks(c.Dir) }
		if c.Dir != "" && isFile(h) && slices.ContainsFunc(linkChain(h), in) {
			c.Log.Warn().Str("tool", c.Ref()).Str("dir", c.Dir).Str("file", h).
				Msg("a file with secrets of the server is in the directory that a sandboxed command writes: when it is replaced while the command runs, that can read it; give the command another directory")
		}
	}
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// environment returns PATH and the named variables of this process. It ignores missing variables.
func environment(names []string) ([]string, error) {
	path := os.Getenv("PATH")
	if path == "" {
		path = defaultPath
	}
	env := []string{"PATH=" + path}
	for _, name := range names {
		value, ok := os.LookupEnv(name)
		if !ok || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			continue
		}
		if !utf8.ValidString(value) {
			return nil, fmt.Errorf("env: the value of %s is not UTF-8, and cannot be handed on: change it, or leave %s out", name, name)
		}
		env = append(env, name+"="+value)
	}
	if !utf8.ValidString(path) {
		return nil, errors.New("env: the value of PATH is not UTF-8, and cannot be handed on: change it")
	}
	return env, nil
}

// withVariable returns an environment with NAME=VALUE in place of the variable of that name.
func withVariable(env []string, v string) []string {
	name, _, _ := strings.Cut(v, "=")
	others := slices.DeleteFunc(slices.Clone(env), func(o string) bool { return strings.HasPrefix(o, name+"=") })
	return append(others, v)
}

// marker returns the environment variable that identifies the processes of a job.
func marker(job arcp.JobID) string { return "ARCP_JOB_ID=" + string(job) }
