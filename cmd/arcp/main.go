// Command arcp runs an ARCP runtime and speaks with one.
//
// Data goes to standard output, everything said to a person to standard error.
// The exit code says how it went: 0 well, 1 the job or the command failed, 2
// wrong usage or configuration, 3 not authenticated, 4 denied, 5 out of time, 6
// cancelled, 7 the runtime cannot be reached.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	toolexec "github.com/arcpd/arcpd/runtime/tool/exec"
)

func main() {
	toolexec.Hook()
	if err := toolexec.CloseInherited(); err != nil {
		fmt.Fprintln(os.Stderr, "arcp:", err)
		os.Exit(exitFailed)
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole command: it parses args, executes the command and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: shared(stderr), environ: os.Environ(), person: isTerminal(stdin) && isTerminal(stderr)}
	return a.run(ctx, args)
}

// run is run for an app that there is.
func (a *app) run(ctx context.Context, args []string) int {
	a.args = args
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	err := root.ExecuteContext(ctx)
	a.report(err)
	return exitCode(err)
}

// shared makes a writer fit for several goroutines at once, as files are.
func shared(w io.Writer) io.Writer {
	if _, file := w.(*os.File); file {
		return w
	}
	return &sharedWriter{w: w}
}

type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// app holds the streams and the environment that all commands use.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	args           []string // of the command line
	json           bool     // -o json, for how failures are reported
	person         bool     // standard input and standard error are terminals
}
