// Command arcp runs an ARCP runtime, and is a client of one.
//
// Data is written to standard output, messages for people to standard error. `arcp help exit-codes`
// lists the exit codes.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	_ "time/tzdata" // schedules name time zones, also where the system has no database of them

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

// run is the whole program: it parses args, executes the command and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: concurrent(stderr), environ: os.Environ(),
		interactive: isTerminal(stdin) && isTerminal(stderr)}
	return a.run(ctx, args)
}

// run executes a command line.
func (a *app) run(ctx context.Context, args []string) int {
	a.args = args
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // cobra replaces nil by the arguments of the process
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.helpErr
	}
	a.report(err)
	return exitCode(err)
}

// concurrent returns a writer that is safe for concurrent use, as files are.
func concurrent(w io.Writer) io.Writer {
	if _, file := w.(*os.File); file {
		return w
	}
	return &lockedWriter{w: w}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (lw *lockedWriter) Write(p []byte) (int, error) {
	lw.mu.Lock()
	defer lw.mu.Unlock()
	return lw.w.Write(p)
}

// app has the streams and the environment of a command line.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	args           []string // command line
	format         outputFormat
	json           bool  // format is json, jsonl or yaml
	interactive    bool  // standard input and standard error are terminals
	helpErr        error // of help for a command that does not exist

	disconnected atomic.Bool // the connection of the session is lost and not restored
}
