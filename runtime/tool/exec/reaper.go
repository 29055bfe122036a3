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

// controlFD connects a reaper with who started it.
const controlFD = 3

// leaveAfter is how long a reaper goes on to end processes that do not end: they
// are another user's, or wait for a device.
const leaveAfter = 5 * time.Second

// keep is the whole of a reaper: it takes an order, and reports.
func keep() int {
	inherited := KeepDescriptors() // controlFD, and what the server's starter has left open
	// A signal is for who started it. Ignoring it would be handed on to the command.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	control := os.NewFile(controlFD, "control")
	in := bufio.NewReader(control)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return 1 // who started it is gone
	}
	k := &reaper{says: make(chan byte, 1), ended: make(chan syscall.WaitStatus, 1), none: make(chan struct{})}
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
	_, _ = control.Write(append(raw, '\n')) // there may be nobody left to tell
	if k.order.Scratch && removeDir(k.order.Dir) != nil {
		return 1 // who started it says so
	}
	return 0
}

// removeDir removes a leased directory. It takes another process than the runtime's:
// what a command has made may take long.
func removeDir(dir string) error {
	all, err := local.OpenDirectories(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(all.Remove(context.Background(), filepath.Base(dir)), all.Close())
}

// reaper owns one command. It belongs to the main goroutine; other goroutines send it what they
// observe by channels.
type reaper struct {
	order order
	pid   int                     // of the command; 0: it was not started
	says  chan byte               // what it is told; 0: there is nobody left
	ended chan syscall.WaitStatus // of the command
	none  chan struct{}           // closed when there is no process left
}

// run runs the command to its end, and what is left of it to theirs.
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

// abandon ends a command that was started before something else went wrong, and
// returns how many processes it could not end.
func (k *reaper) abandon() int {
	if k.pid == 0 {
		return 0
	}
	go k.reap()
	return k.killAll()
}

// start starts the command in a session of its own.
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

// nullDevice replaces the files of a reaper.
var nullDevice = os.DevNull

// fork starts a program with these files, and leaves them to it: who reads and
// writes the other ends must see when it closes them.
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

// startBounded starts a program by way of a limiter, and waits until it runs
// within its bounds.
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
		_, _ = syscall.Wait4(k.pid, &ws, 0, nil) // it ends by itself
		return fmt.Errorf("start %s: %s", k.order.Argv[0], said)
	}
	return err
}

func (k *reaper) listen(in io.ByteReader) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			k.says <- 0
			return
		}
		k.says <- b
	}
}

// reap takes leave of all processes: the command, and those it has left behind.
func (k *reaper) reap() {
	defer close(k.none)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // there are no children
			return
		case pid == k.pid:
			k.ended <- ws
		}
	}
}

// wait returns when the command has ended, which it is made to if that is asked.
func (k *reaper) wait() syscall.WaitStatus {
	var grace <-chan time.Time
	for {
		select {
		case ws := <-k.ended:
			return ws
		case said := <-k.says:
			if said == sayEnd {
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
		default: // it cannot be ended
			return syscall.WaitStatus(syscall.SIGKILL)
		}
	}
}

// terminate asks the command to end. A sandbox would end at once, and the command
// without a warning: it is passed over.
func (k *reaper) terminate() {
	if k.order.Bwrap == "" {
		_ = syscall.Kill(-k.pid, syscall.SIGTERM) // it may have ended
		return
	}
	for _, first := range children(k.pid) {
		for _, pid := range descendants(first) {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}

// killAll ends every process there is below this one, and returns how many it
// could not end. Those whose parents have ended are its own children: none gets
// away, one that starts others as fast as it can only takes longer.
func (k *reaper) killAll() int {
	deadline := time.After(leaveAfter)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		for _, pid := range descendants(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended, or be another user's
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
