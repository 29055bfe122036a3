package exec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arcpd/arcpd/arcp"
)

// Files of a reaper besides its standard streams.
const (
	controlFD = 3 // its end of the control socket
	inputFD   = 4 // with HoldInput, a write end of the standard input of the command
)

// Later messages to a reaper, one byte each. The end of the connection means that this process has
// ended, and counts as commandKill.
const (
	commandEnd  = 'e' // SIGTERM to the process group of the command, then SIGKILL to all processes
	commandKill = 'k' // SIGKILL to all processes

	commandInputEnd = 'i' // the standard input is whole: the reaper closes its write end
)

// reaperMain is the main function of a reaper. It reads an order, runs the command and writes a report.
func reaperMain() int {
	inherited := CloseInherited() // controlFD and inputFD too
	// The parent handles the signals of the terminal. The command would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	control := os.NewFile(controlFD, "control")
	in := bufio.NewReader(control)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return 1 // the parent has ended
	}
	r := &reaper{messages: make(chan byte, 1), ended: make(chan syscall.WaitStatus, 1), none: make(chan struct{})}
	result := report{}
	if err := errors.Join(inherited, arcp.Unmarshal(line, &r.order)); err != nil {
		result.Fault = err.Error()
	} else if result, err = r.run(in); err != nil {
		result.Fault = err.Error()
	}
	raw, err := arcp.Marshal(result)
	if err != nil {
		return 1
	}
	_, _ = control.Write(append(raw, '\n')) // the parent may have ended
	if r.order.Scratch && removeDir(r.order.Dir) != nil {
		return 1 // the parent logs it
	}
	return 0
}

// reaper supervises a command. The main goroutine owns it; other goroutines send on its channels.
type reaper struct {
	order    order
	pid      int                     // of the command; 0: not started
	messages chan byte               // from the parent; 0: the parent has ended
	ended    chan syscall.WaitStatus // of the command
	none     chan struct{}           // closed when all processes have ended
}

// run runs the command and then kills its remaining processes.
func (r *reaper) run(in io.ByteReader) (report, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return report{}, fmt.Errorf("adopt processes: %w", err)
	}
	if err := r.start(); err != nil {
		return report{Left: r.abandon()}, err
	}
	go r.listen(in)
	go r.reap()
	ws := r.wait()
	result := newReport(ws)
	result.Left = r.killAll()
	return result, nil
}

// abandon kills the processes of a failed start. It returns the number of processes that it could not
// kill.
func (r *reaper) abandon() int {
	if r.pid == 0 {
		return 0
	}
	go r.reap()
	return r.killAll()
}

// start starts the command in a new session, in its sandbox and within its bounds.
func (r *reaper) start() error {
	program, argv := r.order.Program, r.order.Argv
	if r.order.Bwrap != "" {
		var err error
		if argv, err = sandboxed(r.order.Bwrap, r.order.Hide, program, r.order.Dir, argv[1:]); err != nil {
			return err
		}
		program = r.order.Bwrap
	}
	if r.order.Bounds != (Bounds{}) {
		return r.startBounded(program, argv)
	}
	return r.fork(program, argv, 0, 1, 2)
}

// nullDevice replaces the standard streams of a reaper.
var nullDevice = os.DevNull

// fork starts a program with the files. The reaper closes its own standard streams, so that the parent sees when
// the program closes them.
func (r *reaper) fork(program string, argv []string, files ...uintptr) error {
	null, err := os.OpenFile(nullDevice, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Dir: r.order.Dir, Env: r.order.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	pid, err := syscall.ForkExec(program, argv, attr)
	if err != nil {
		return fmt.Errorf("start %s: %w", r.order.Argv[0], err)
	}
	r.pid = pid
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// startBounded starts a program through a limiter. It returns when the program runs within its bounds.
func (r *reaper) startBounded(program string, argv []string) error {
	bounds, err := arcp.Marshal(r.order.Bounds)
	if err != nil {
		return err
	}
	fault, told, err := os.Pipe()
	if err != nil {
		return err
	}
	defer fault.Close()
	err = r.fork(self, append([]string{limiterName, string(bounds), program}, argv...), 0, 1, 2, told.Fd())
	if err = errors.Join(err, told.Close()); err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(fault, 4<<10))
	if len(said) > 0 {
		var ws syscall.WaitStatus
		_, _ = syscall.Wait4(r.pid, &ws, 0, nil) // the limiter exits after an error
		return fmt.Errorf("start %s: %s", r.order.Argv[0], said)
	}
	return err
}

func (r *reaper) listen(in io.ByteReader) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			r.messages <- 0
			return
		}
		r.messages <- b
	}
}

// reap waits for the end of the command and of all orphans.
func (r *reaper) reap() {
	defer close(r.none)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no children
			return
		case pid == r.pid:
			r.ended <- ws
		}
	}
}

// wait returns when the command has ended, by itself or by a message of the parent.
func (r *reaper) wait() syscall.WaitStatus {
	var grace <-chan time.Time
	for {
		select {
		case ws := <-r.ended:
			return ws
		case message := <-r.messages:
			switch {
			case message == commandEnd:
				r.terminate()
				grace = time.After(time.Duration(r.order.GraceMS) * time.Millisecond)
				continue
			case message == commandInputEnd && r.order.HoldInput:
				_ = unix.Close(inputFD) // the pipe holds what was written
				continue
			}
		case <-grace:
		}
		r.killAll()
		select {
		case ws := <-r.ended:
			return ws
		default: // the command cannot be killed
			return syscall.WaitStatus(syscall.SIGKILL)
		}
	}
}

// terminate sends SIGTERM to the command. In a sandbox it signals the processes below bubblewrap: a signal to
// bubblewrap would kill them at once.
func (r *reaper) terminate() {
	if r.order.Bwrap == "" {
		_ = syscall.Kill(-r.pid, syscall.SIGTERM) // the process may have ended
		return
	}
	for _, first := range children(r.pid) {
		for _, pid := range descendants(first) {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}

// killAll kills all descendants of this process. It returns the number of processes that it could not kill. No
// process escapes, because orphans become children of this process. Processes that fork fast only
// prolong it.
func (r *reaper) killAll() int {
	deadline := time.After(killTimeout)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		for _, pid := range descendants(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended or belong to another user
		}
		select {
		case <-r.none:
			return 0
		case <-deadline:
			return len(descendants(os.Getpid()))
		case <-time.After(pause):
		}
	}
}
