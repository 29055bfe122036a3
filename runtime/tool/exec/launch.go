package exec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/arcpd/arcpd/runtime/tool/local"
)

// killTimeout bounds the attempts to kill processes. A process of another user, or a process that
// waits for a device, may not end.
const killTimeout = 5 * time.Second

// launch is a running command.
type launch struct {
	pipes
	supervisor
}

// starter starts a command. mark is an environment variable NAME=VALUE that its processes inherit.
type starter func(o order, mark string) (*launch, error)

// supervisor ends a command and reports its end. Many goroutines may call kill, terminate and inputEnded.
type supervisor interface {
	kill()       // kills the processes of the command and returns at once
	terminate()  // asks the command to end, kills its processes after the grace, and returns at once
	inputEnded() // is called after the end of the standard input of a command with HoldInput

	// report waits for the end of the command, and ends the command when ctx ends.
	report(ctx context.Context) (report, error)
	// end removes the scratch directory. It is called after report.
	end()
	// close frees the resources of the supervisor. It is called after end, or after report.
	close()
}

// pipes are this process's ends of the standard pipes of a command.
type pipes struct{ stdin, stdout, stderr *os.File }

// newPipes opens the standard pipes of a command. It appends the ends of the command to theirs.
func newPipes(theirs *files) (p pipes, err error) {
	pipe := func(give bool, ours **os.File) error {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if give {
			r, w = w, r
		}
		*ours = w
		*theirs = append(*theirs, r)
		return nil
	}
	err = errors.Join(pipe(false, &p.stdin), pipe(true, &p.stdout), pipe(true, &p.stderr))
	return p, err
}

func (p *pipes) close() { files{p.stdin, p.stdout, p.stderr}.close() }

// files are open files. A nil file is not open.
type files []*os.File

func (f files) close() {
	for _, file := range f {
		if file != nil {
			_ = file.Close() // nothing was written to it, or it is closed already
		}
	}
}

// expire makes the calls on a pipe fail after a time. A pipe without deadlines, as on Windows, is closed
// then.
func expire(f *os.File, after time.Duration) {
	if f.SetDeadline(time.Now().Add(after)) != nil {
		time.AfterFunc(after, func() { _ = f.Close() }) // the pipe may be closed already
	}
}

// endInput ends the standard input of a command with HoldInput.
func (l *launch) endInput() {
	_ = l.stdin.Close() // all is written
	l.inputEnded()
}

// writeInput writes the whole standard input of a command with HoldInput, and ends it. After an error the input
// stays open until the command has ended.
func (l *launch) writeInput(input []byte) {
	if _, err := l.stdin.Write(input); err == nil {
		l.endInput()
	}
}

// close closes the pipes and the supervisor.
func (l *launch) close() {
	l.pipes.close()
	l.supervisor.close()
}

// wait calls report and end.
func (l *launch) wait(ctx context.Context) (report, error) {
	r, err := l.report(ctx)
	l.end()
	return r, err
}

// removeDir removes a leased directory with its content.
func removeDir(dir string) error {
	all, err := local.OpenDirectories(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(all.Remove(context.Background(), filepath.Base(dir)), all.Close())
}
