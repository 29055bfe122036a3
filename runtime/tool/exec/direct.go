package exec

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// direct is a command without a reaper, for systems other than Linux. It implements supervisor. A group has
// the processes of the command: a process group on Unix, and a job object on Windows.
type direct struct {
	cmd     *exec.Cmd
	group   *group
	grace   time.Duration // from terminate to kill
	scratch string        // directory that end removes; "": none

	terminateOnce, killOnce sync.Once
	terminated, killed      chan struct{} // closed on request

	done   chan struct{} // closed when the processes of the group have ended
	result report        // read after done is closed
}

// startDirect starts a command in a group of its own. mark is the environment variable NAME=VALUE that its
// processes inherit.
func startDirect(o order, mark string) (*launch, error) {
	var theirs files
	defer func() { theirs.close() }()
	p, err := newPipes(&theirs)
	if err != nil {
		p.close()
		return nil, err
	}
	cmd := &exec.Cmd{Path: o.Program, Args: o.Argv, Env: withVariable(o.Env, mark), Dir: o.Dir, Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2]}
	g, err := startGroup(cmd)
	if err != nil {
		p.close()
		return nil, err
	}
	d := &direct{cmd: cmd, group: g, grace: time.Duration(o.GraceMS) * time.Millisecond,
		terminated: make(chan struct{}), killed: make(chan struct{}), done: make(chan struct{})}
	if o.Scratch {
		d.scratch = o.Dir
	}
	go d.supervise()
	return &launch{pipes: p, supervisor: d}, nil
}

// supervise waits for the end of the command, and ends the command on request.
func (d *direct) supervise() {
	defer close(d.done)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.cmd.Wait() // ProcessState has the exit status
	}()
	terminated := d.terminated
	var grace <-chan time.Time
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-terminated:
			terminated, grace = nil, time.After(d.grace)
			if d.group.terminate() == nil {
				continue
			}
		case <-d.killed:
			running = false
		case <-grace:
			running = false
		}
	}
	left := d.group.killAll()
	select {
	case <-ended:
		d.result = newReport(d.cmd.ProcessState.Sys().(syscall.WaitStatus))
	case <-time.After(killTimeout): // the command cannot be killed
		d.result = report{Status: -1, Signal: int(syscall.SIGKILL)}
		left = max(left, 1)
	}
	d.result.Left = left
}

func (d *direct) kill()      { d.killOnce.Do(func() { close(d.killed) }) }
func (d *direct) terminate() { d.terminateOnce.Do(func() { close(d.terminated) }) }

// inputEnded does nothing: this process has the only write end of the standard input.
func (d *direct) inputEnded() {}

func (d *direct) report(ctx context.Context) (report, error) {
	defer context.AfterFunc(ctx, d.terminate)()
	<-d.done
	return d.result, nil
}

func (d *direct) end() {
	if d.scratch != "" {
		_ = removeDir(d.scratch) // the caller logs a remaining directory
	}
}

func (d *direct) close() { d.group.close() }

// linuxOnly returns an error for settings that only Linux enforces.
func linuxOnly(c *Config) error {
	switch {
	case c.Bounds != Bounds{}:
		return errors.New("limits: cpu_seconds, memory, files, processes and file_size are enforced on Linux only: leave them out, or run the command on Linux")
	case c.Sandbox == SandboxBwrap:
		return errors.New("sandbox: bwrap is available on Linux only: leave sandbox out, or run the command on Linux")
	}
	return nil
}
