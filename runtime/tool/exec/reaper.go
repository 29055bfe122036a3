package exec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/local"
)

// controlFD is the reaper's end of the control socket.
const controlFD = 3

// killTimeout bounds the attempts of a reaper to kill processes. A process of another user, or a process that
// waits for a device, may not end.
const killTimeout = 5 * time.Second

// reaperMain is the main function of a reaper. It reads an order, runs the command and writes a report.
func reaperMain() int {
	inherited := CloseInherited() // controlFD too
	// The parent handles the signals of the terminal. The command would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	control := os.NewFile(controlFD, "control")
	in := bufio.NewReader(control)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return 1 // the parent has ended
	}
	k := &reaper{messages: make(chan byte, 1), ended: make(chan syscall.WaitStatus, 1), none: make(chan struct{})}
	r := report{}
	if err := errors.Join(inherited, arcp.Unmarshal(line, &k.order)); err != nil {
		r.Fault = err.Error()
	} else if r, err = k.run(in); err != nil {
		r.Fault = err.Error()
	}
	raw, err := arcp.Marshal(r)
	if err != nil {
		return 1
	}
	_, _ = control.Write(append(raw, '\n')) // the parent may have ended
	if k.order.Scratch && removeDir(k.order.Dir) != nil {
		return 1 // the parent logs it
	}
	return 0
}

// removeDir removes a leased directory with its content.
func removeDir(dir string) error {
	all, err := local.OpenDirectories(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(all.Remove(context.Background(), filepath.Base(dir)), all.Close())
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
func (k *reaper) run(in io.ByteReader) (report, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return report{}, fmt.Errorf("adopt processes: %w", err)
	}
	if err := k.start(); err != nil {
		return report{Left: k.abandon()}, err
	}
	go k.listen(in)
	go k.reap()
	ws := k.wait()
	r := newReport(ws)
	r.Left = k.killAll()
	return r, nil
}

// abandon kills the processes of a failed start. It returns the number of processes that it could not
// kill.
func (k *reaper) abandon() int {
	if k.pid == 0 {
		return 0
	}
	go k.reap()
	return k.killAll()
}

// start starts the command in a new session, in its sandbox and within its bounds.
func (k *reaper) start() error {
	program, argv := k.order.Program, k.order.Argv
	if k.order.Bwrap != "" {
		var err error
		if argv, err = sandboxed(k.order.Bwrap, k.order.Hide, program, k.order.Dir, argv[1:]); err != nil {
			return err
		}
		program = k.order.Bwrap
	}
	if k.order.Bounds != (Bounds{}) {
		return k.startBounded(program, argv)
	}
	return k.fork(program, argv, 0, 1, 2)
}

// nullDevice replaces the standard streams of a reaper.
var nullDevice = os.DevNull

// fork starts a program with the files. The reaper closes its own standard streams, so that the parent sees when
// the program closes them.
func (k *reaper) fork(program string, argv []string, files ...uintptr) error {
	null, err := os.OpenFile(nullDevice, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Dir: k.order.Dir, Env: k.order.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	pid, err := syscall.ForkExec(program, argv, attr)
	if err != nil {
		return fmt.Errorf("start %s: %w", k.order.Argv[0], err)
	}
	k.pid = pid
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// startBounded starts a program through a limiter. It returns when the program runs within its bounds.
func (k *reaper) startBounded(program string, argv []string) error {
	bounds, err := arcp.Marshal(k.order.Bounds)
	if err != nil {
		return err
	}
	fault, told, err := os.Pipe()
	if err != nil {
		return err
	}
	defer fault.Close()
	err = k.fork(self, append([]string{limiterName, string(bounds), program}, argv...), 0, 1, 2, told.Fd())
	if err = errors.Join(err, told.Close()); err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(fault, 4<<10))
	if len(said) > 0 {
		var ws syscall.WaitStatus
		_, _ = syscall.Wait4(k.pid, &ws, 0, nil) // the limiter exits after an error
		return fmt.Errorf("start %s: %s", k.order.Argv[0], said)
	}
	return err
}

func (k *reaper) listen(in io.ByteReader) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			k.messages <- 0
			return
		}
		k.messages <- b
	}
}

// reap waits for the end of the command and of all orphans.
func (k *reaper) reap() {
	defer close(k.none)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no children
			return
		case pid == k.pid:
			k.ended <- ws
		}
	}
}

// wait returns when the command has ended, by itself or by a message of the parent.
func (k *reaper) wait() syscall.WaitStatus {
	var grace <-chan time.Time
	for {
		select {
		case ws := <-k.ended:
			return ws
		case message := <-k.messages:
			if message == commandEnd {
				k.terminate()
				grace = time.After(time.Duration(k.order.GraceMS) * time.Millisecond)
				continue
			}
		case <-grace:
		}
		k.killAll()
		select {
		case ws := <-k.ended:
			return ws
		default: // the command cannot be killed
			return syscall.WaitStatus(syscall.SIGKILL)
		}
	}
}

// terminate sends SIGTERM to the command. In a sandbox it signals the processes below bubblewrap: a signal to
// bubblewrap would kill them at once.
func (k *reaper) terminate() {
	if k.order.Bwrap == "" {
		_ = syscall.Kill(-k.pid, syscall.SIGTERM) // the process may have ended
		return
	}
	for _, first := range children(k.pid) {
		for _, pid := range descendants(first) {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}

// killAll kills all descendants of this process. It returns the number of processes that it could not kill. No
// process escapes, because orphans become children of this process. Processes that fork fast only
// prolong it.
func (k *reaper) killAll() int {
	deadline := time.After(killTimeout)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		for _, pid := range descendants(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended or belong to another user
		}
		select {
		case <-k.none:
			return 0
		case <-deadline:
			return len(descendants(os.Getpid()))
		case <-time.After(pause):
		}
	}
}
