package exec

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Program describes a program that runs for longer than a call and speaks on its standard input and
// output.
type Program struct {
	Command []string      // the program, a name in PATH or a path from Dir, and its arguments
	Env     []string      // names of the variables that are handed on, beside PATH
	Dir     string        // working directory; "": that of this process
	Grace   time.Duration // from SIGTERM to SIGKILL; default 2 s

	// Log is called with the lines of standard error, bounded in length and rate, by one
	// goroutine.
	Log func(level, message string)
}

// Process is a running program with a reaper: it and all processes that it has started end with this
// process. Its methods may be called by many goroutines.
type Process struct {
	Stdin, Stdout *os.File // owned and closed by the caller

	end     context.CancelFunc
	donec   chan struct{} // closed when none of its processes is left
	outcome error         // how it ended; read after donec is closed
}

// Start starts a program.
func Start(p Program) (*Process, error) {
	if !hooked {
		return nil, errors.New("this program cannot run others: its main does not call exec.Hook")
	}
	var err error
	if p.Dir, err = filepath.Abs(p.Dir); err != nil { // the reaper runs in /
		return nil, err
	}
	program := p.Command[0]
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		program = filepath.Join(p.Dir, program)
	}
	if program, err = exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("%w: name a program that is there, by its path or a name in PATH", err)
	}
	if p.Grace == 0 {
		p.Grace = grace
	}
	env, err := environment(p.Env)
	if err != nil {
		return nil, err
	}
	o := order{Program: program, Argv: p.Command, Env: env, Dir: p.Dir, GraceMS: int(p.Grace / time.Millisecond)}
	l, err := o.start("ARCP_KEEPER=" + rand.Text())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Process{Stdin: l.stdin, Stdout: l.stdout, end: cancel, donec: make(chan struct{})}
	go s.supervise(ctx, l, p.Log)
	return s, nil
}

// supervise waits until none of the processes is left.
func (s *Process) supervise(ctx context.Context, l *launch, log func(level, message string)) {
	defer close(s.donec)
	stderr := newLines(func(level, message string) error {
		if log != nil {
			log(level, message)
		}
		return nil
	})
	read := make(chan struct{})
	go func() { defer close(read); stderr.read(l.stderr) }()
	r, err := l.wait(ctx)
	_ = l.stderr.SetDeadline(time.Now().Add(pipeGrace)) // pipes have deadlines
	<-read
	_ = l.stderr.Close()
	_ = l.control.Close()
	if r.Left > 0 && log != nil {
		log("warn", fmt.Sprintf("%d processes of the program could not be ended", r.Left))
	}
	s.outcome = ending(&r, err, stderr.tail())
	s.end()
}

// ending returns how a program ended, with the end of its standard error.
func ending(r *report, err error, stderr string) error {
	how := fmt.Sprintf("it ended with exit status %d", r.Status)
	switch {
	case err != nil:
		how = "its reaper was ended"
	case r.Fault != "":
		how = "it cannot be started: " + r.Fault
	case r.Signal != 0:
		how = "it was ended by " + unix.SignalName(syscall.Signal(r.Signal))
	}
	if stderr != "" {
		return fmt.Errorf("%s; it said last: %.1000s", how, stderr)
	}
	return errors.New(how)
}

// End sends SIGTERM to the program, and SIGKILL to all its processes after the grace. It returns when
// none is left.
func (s *Process) End() {
	s.end()
	<-s.donec
}

// Done returns a channel that is closed when none of the processes is left.
func (s *Process) Done() <-chan struct{} { return s.donec }

// Err returns how the program ended; nil: it runs.
func (s *Process) Err() error {
	select {
	case <-s.donec:
		return s.outcome
	default:
		return nil
	}
}
