package exec

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Program describes a program that runs for longer than a call and communicates on its standard input
// and output.
type Program struct {
	Command []string      // the program, a name in PATH or a path from Dir, and its arguments
	Env     []string      // names of variables that the program inherits, besides PATH
	Dir     string        // working directory; "": the directory of this process
	Grace   time.Duration // from SIGTERM to SIGKILL; default 2 s

	// Log receives the lines of standard error, bounded in length and rate, on one
	// goroutine.
	Log func(level, message string)
}

// Process is a running program with a reaper. The program and all its processes end with this process. Many
// goroutines may call the methods.
type Process struct {
	Stdin, Stdout *os.File // owned and closed by the caller

	end     context.CancelFunc
	donec   chan struct{} // closed when all processes have ended
	outcome error         // exit status as an error; read after donec is closed
}

// Start starts a program, which runs until it exits or End is called.
func Start(p Program) (*Process, error) {
	if !hooked {
		return nil, errors.New("this program cannot run others: its main does not call exec.Hook")
	}
	var err error
	if p.Dir, err = filepath.Abs(p.Dir); err != nil { // the reaper runs in /
		return nil, err
	}
	program := p.Command[0]
	if filepath.Base(program) != program && !filepath.IsAbs(program) {
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
	l, err := start(o, "ARCP_KEEPER="+rand.Text())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	process := &Process{Stdin: l.stdin, Stdout: l.stdout, end: cancel, donec: make(chan struct{})}
	go process.supervise(ctx, l, p.Log)
	return process, nil
}

// supervise waits until all processes have ended.
func (p *Process) supervise(ctx context.Context, l *launch, log func(level, message string)) {
	defer close(p.donec)
	stderr := newLines(func(level, message string) error {
		if log != nil {
			log(level, message)
		}
		return nil
	})
	read := make(chan struct{})
	go func() { defer close(read); stderr.read(l.stderr) }()
	r, err := l.wait(ctx)
	expire(l.stderr, pipeGrace)
	<-read
	_ = l.stderr.Close()
	l.supervisor.close()
	if r.Left > 0 && log != nil {
		log("warn", fmt.Sprintf("%d processes of the program could not be ended", r.Left))
	}
	p.outcome = exitError(&r, err, stderr.tail())
	p.end()
}

// exitError returns the exit status of a program as an error, with the end of its standard error.
func exitError(r *report, err error, stderr string) error {
	how := fmt.Sprintf("it ended with exit status %d", r.Status)
	switch {
	case err != nil:
		how = "its reaper was ended"
	case r.Fault != "":
		how = "it cannot be started: " + r.Fault
	case r.Signal != 0:
		how = "it was ended by " + signalName(r.Signal)
	}
	if stderr != "" {
		return fmt.Errorf("%s; it said last: %.1000s", how, stderr)
	}
	return errors.New(how)
}

// End sends SIGTERM to the program and, after the grace, SIGKILL to all its processes. It returns when all
// processes have ended.
func (p *Process) End() {
	p.end()
	<-p.donec
}

// Done returns a channel that is closed when all processes have ended.
func (p *Process) Done() <-chan struct{} { return p.donec }

// Err returns the exit status of the program as an error, or nil while the program runs.
func (p *Process) Err() error {
	select {
	case <-p.donec:
		return p.outcome
	default:
		return nil
	}
}

// CheckProgram returns an error if the program of a command line is not found. A relative path starts in dir, or in
// the directory of this process if dir is empty.
func CheckProgram(command []string, dir string) error {
	program := command[0]
	if filepath.Base(program) != program && !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%w: name a program that is there, by its path or a name in PATH", err)
	}
	return nil
}
