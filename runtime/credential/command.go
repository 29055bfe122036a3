package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// termGrace is the time between SIGTERM and SIGKILL.
const termGrace = 2 * time.Second

// exitRefused is the status of a program that refuses and has issued nothing:
// EX_NOPERM of sysexits.
const exitRefused = 77

// Command calls a program. The program gets the request as JSON on stdin, with op issue or
// revoke. It answers issue on stdout and revoke by its exit status.
//
// The program runs in a process group of its own, which is killed when the call returns, with
// an environment of PATH and LANG. Its stderr is dropped, because it may contain a secret.
// Windows has no process groups: there only the program itself is killed, and its environment is
// PATH and SYSTEMROOT.
type Command struct {
	argv              []string
	endpoint, profile string
}

// NewCommand returns a Command of a program, with its absolute path, and its arguments.
func NewCommand(argv []string, endpoint, profile string) *Command {
	return &Command{argv: slices.Clone(argv), endpoint: endpoint, profile: profile}
}

// Issue runs the program for a job.
func (c *Command) Issue(ctx context.Context, r Request) ([]Credential, error) {
	in, err := encodeRequest("issue", &r)
	if err != nil {
		return nil, refuse(arcp.Errorf(arcp.CodeInternal, "the credential request cannot be encoded"))
	}
	out, err := c.run(ctx, in)
	if err != nil {
		return nil, err
	}
	return readAnswer(out, &r, c.endpoint, c.profile)
}

// Revoke runs the program for a credential.
func (c *Command) Revoke(ctx context.Context, ref Ref) error {
	in, err := arcp.Marshal(upstreamRequest{Op: "revoke", JobID: ref.Job, ID: ref.ID, Handle: ref.Upstream, Generation: ref.Generation})
	if err != nil {
		return err
	}
	_, err = c.run(ctx, in)
	return err
}

// counter counts the bytes written to it and drops them.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

var errLong = errors.New("the output is too long")

// limited buffers up to maxAnswer bytes. A write past that fails and stops the program.
type limited struct {
	buf  bytes.Buffer
	stop context.CancelCauseFunc
}

func (l *limited) Write(p []byte) (int, error) {
	if l.buf.Len()+len(p) > maxAnswer {
		l.stop(errLong)
		return 0, errLong
	}
	return l.buf.Write(p)
}

// run runs the program to its end. When run returns, no process of the program's group is
// left.
func (c *Command) run(outer context.Context, in []byte) ([]byte, error) {
	ctx, stop := context.WithCancelCause(outer)
	defer stop(nil)
	out, dropped := limited{stop: stop}, counter{}
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &dropped
	cmd.Dir, cmd.Env = "/", environment()
	isolate(cmd)
	cmd.Cancel = func() error { return terminateGroup(cmd) }
	cmd.WaitDelay = termGrace // then it is killed, and its pipes are closed
	if err := cmd.Start(); err != nil {
		return nil, notSent(fmt.Errorf("start: %w", err))
	}
	err := cmd.Wait()
	killGroup(cmd)
	switch {
	case outer.Err() != nil:
		return nil, context.Cause(outer)
	case context.Cause(ctx) == errLong:
		return nil, fmt.Errorf("%w: it is longer than %d bytes", errAnswer, maxAnswer)
	case err == nil:
		return out.buf.Bytes(), nil
	}
	return nil, exitError(cmd.ProcessState, err, dropped.n)
}

// exitError describes the exit status of a program. It never repeats the program's output.
func exitError(state *os.ProcessState, err error, dropped int64) error {
	how := state.String()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		how = err.Error() // of its pipes
	}
	cause := fmt.Errorf("%s; it wrote %d bytes to stderr, which are not kept", how, dropped)
	if state.ExitCode() == exitRefused {
		return &RefusedError{fmt.Errorf("%w (%w)", arcp.Errorf(arcp.CodePermissionDenied, "the credential provisioner refused"), cause)}
	}
	return fmt.Errorf("%w (%w)", arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner is not available"), cause)
}
