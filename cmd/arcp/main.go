// Command arcp runs an ARCP runtime and speaks with one.
//
// Data goes to standard output, everything said to a person to standard error.
// The exit code says how it went: 0 well, 1 the job or the command failed, 2
// wrong usage or configuration, 3 not authenticated, 4 denied, 5 out of time, 6
// cancelled, 7 the runtime cannot be reached.
package main

import (
	"context"
	"io"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole command: it parses args, does what they say and returns the
// exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ()}
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	err := root.ExecuteContext(ctx)
	a.report(err)
	return exitCode(err)
}

// app is what every command has to do with: the streams and the environment.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	json           bool // -o json, for how failures are reported
}
