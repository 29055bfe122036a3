// Package exec makes tools of commands. A call starts the command, gives it the
// arguments as JSON on standard input, and reads one JSON value from its standard
// output; what it writes to standard error becomes log events.
//
// Each command has a reaper: this program again, in a process of its own, which
// starts the command and adopts whatever that leaves behind. The reaper ends when
// no process of the command is left, and ends them all when it is told to, when
// the command itself has ended, and when this process is gone, however that
// happened. So a call returns when all its processes are gone, and a runtime that
// is killed leaves none. Programs that run for longer than a call, such as the
// servers that other packages speak with, have a reaper too: [Start] starts them.
//
// What a reaper cannot reach: processes that another program starts on behalf of
// the command, such as cron or a container daemon; processes of another user that
// it may not signal; and, if the command finds its reaper and kills it, those that
// have taken ARCP_JOB_ID, or ARCP_KEEPER, out of their environment; and all, if it stops its reaper
// and this process is killed then. In a sandbox the kernel ends
// all processes with the first, and the reaper cannot be seen.
//
// A program that uses any of this must call Hook first thing in main.
package exec

import (
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

// defaultPath is the PATH of commands where this process has none.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// checkTimeout bounds the start of a sandbox for a try.
const checkTimeout = 10 * time.Second

// command is a Config that can be run. It does not change.
type command struct {
	order order // of every call, without what is the job's
	limit int   // bytes of output
	log   zerolog.Logger
}

// New makes a tool of a command. The program and the sandbox must be there.
func New(c Config) (*tool.Tool, error) {
	if !hooked {
		return nil, errors.New("this program cannot run commands: its main does not call exec.Hook")
	}
	cmd, err := prepare(&c)
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", c.Ref(), err)
	}
	c.Source = tool.SourceExec
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

// Check finds out whether a command can be started: the program and, by a try, the
// sandbox.
func Check(c *Config) error {
	cmd, err := prepare(c)
	if err != nil || c.Sandbox != SandboxBwrap {
		return err
	}
	warnOfDir(c)
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

// trial is a command line that makes the sandbox of a command in dir and looks
// whether the program can be run in it, which it is not.
func (o *order) trial(dir string) ([]string, error) {
	line, err := sandboxed(o.Bwrap, o.Hide, o.Program, dir, nil)
	if err != nil {
		return nil, err
	}
	return append(line[:len(line)-1], "sh", "-c", `test -x "$0" || { echo "$0 is not there in it" >&2; exit 1; }`, o.Program), nil
}

func prepare(c *Config) (*command, error) {
	program, err := exec.LookPath(c.Command[0])
	if err != nil {
		return nil, fmt.Errorf("exec: %w: name a program that is there, by its path or a name in PATH", err)
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
	return &command{order: o, log: c.Log.With().Str("tool", c.Ref()).Logger()}, nil
}

// checkDir refuses a working directory that is hidden.
func checkDir(c *Config) error {
	for _, h := range c.Hide {
		if c.Dir != "" && below(real(c.Dir), real(h)) {
			return fmt.Errorf("dir: %s is hidden in the sandbox, because there are secrets of the server in %s: give another directory", c.Dir, h)
		}
	}
	return nil
}

// warnOfDir says which hidden files are in the working directory.
func warnOfDir(c *Config) {
	for _, h := range c.Hide {
		in := func(name string) bool { return real(filepath.Dir(name)) == real(c.Dir) }
		if c.Dir != "" && isFile(h) && slices.ContainsFunc(chain(h), in) {
			c.Log.Warn().Str("tool", c.Ref()).Str("dir", c.Dir).Str("file", h).
				Msg("a file with secrets of the server is in the directory that a sandboxed command writes: when it is replaced while the command runs, that can read it; give the command another directory")
		}
	}
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// environment takes the variables of these names from that of this process, with
// PATH. Those that are not set here are not set there. What is set, as NAME=value,
// is set so and not taken from here.
func environment(names []string, set ...string) ([]string, error) {
	path := os.Getenv("PATH")
	if path == "" {
		path = defaultPath
	}
	env := append([]string{"PATH=" + path}, set...)
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

// marker is the variable by which the processes of a job are known.
func marker(job arcp.JobID) string { return "ARCP_JOB_ID=" + string(job) }
