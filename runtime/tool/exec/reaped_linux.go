package exec

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arcpd/arcpd/arcp"
)

// reaped is a command with a reaper. It implements supervisor.
type reaped struct {
	marker  string
	reaper  *exec.Cmd
	control *os.File
	pipes   pipes

	reportTimeout time.Duration // from a message to the reaper until the reaper is killed
	reported      chan struct{} // closed when the reaper has reported or ended
}

// reaperMargin is added to the time in which a reaper kills all processes.
const reaperMargin = time.Second

// reaperEnv is the environment of a reaper without its mark.
var reaperEnv = []string{"GOMAXPROCS=2"}

// start starts a command with a reaper. mark is the environment variable NAME=VALUE that identifies the processes.
var start starter = startReaped

// unsupported returns nil: Linux enforces all settings of a command.
func unsupported(*Config) error { return nil }

// startReaped starts a reaper and sends the order. mark is the environment variable NAME=VALUE that identifies the
// processes.
func startReaped(o order, mark string) (*launch, error) {
	o.Env = withVariable(o.Env, mark) // in place of the mark of an outer job
	r := &reaped{marker: mark, reported: make(chan struct{})}
	r.reportTimeout = time.Duration(o.GraceMS)*time.Millisecond + killTimeout + reaperMargin
	raw, err := arcp.Marshal(o)
	if err != nil {
		return nil, err
	}
	var theirs files
	defer func() { theirs.close() }()
	if err := r.connect(&theirs); err != nil {
		r.closeAll()
		return nil, err
	}
	if o.HoldInput {
		if err := r.shareInput(&theirs); err != nil {
			r.closeAll()
			return nil, err
		}
	}
	r.reaper = &exec.Cmd{Path: self, Args: []string{reaperName}, Env: append(slices.Clip(reaperEnv), mark), Dir: "/",
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2], ExtraFiles: theirs[3:],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}} // the reaper receives no signals of a terminal
	if err := r.reaper.Start(); err != nil {
		r.closeAll()
		return nil, err
	}
	if _, err := r.control.Write(append(raw, '\n')); err != nil {
		_ = r.control.Close() // ends the reaper
		_ = r.reaper.Wait()   // the write error is the result
		r.closeAll()
		return nil, err
	}
	return &launch{pipes: r.pipes, supervisor: r}, nil
}

// connect opens the standard pipes of the reaper and the control socket. It appends the ends of the reaper to
// theirs.
func (r *reaped) connect(theirs *files) (err error) {
	if r.pipes, err = newPipes(theirs); err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	*theirs = append(*theirs, os.NewFile(uintptr(pair[1]), "reaper"))
	err = unix.SetNonblock(pair[0], true)
	r.control = os.NewFile(uintptr(pair[0]), "control")
	return err
}

// shareInput appends a duplicate of the write end of the standard input to theirs.
func (r *reaped) shareInput(theirs *files) error {
	conn, err := r.pipes.stdin.SyscallConn() // Fd would make the pipe blocking
	if err != nil {
		return err
	}
	var fd int
	var dupErr error
	err = conn.Control(func(stdin uintptr) { fd, dupErr = unix.FcntlInt(stdin, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return err
	}
	*theirs = append(*theirs, os.NewFile(uintptr(fd), "input"))
	return nil
}

// inputEnded tells the reaper to close its write end of the standard input.
func (r *reaped) inputEnded() { _, _ = r.control.Write([]byte{commandInputEnd}) } // the reaper may have ended

// closeAll closes the control socket and the pipes.
func (r *reaped) closeAll() {
	r.pipes.close()
	r.close()
}

// close closes the control socket.
func (r *reaped) close() {
	if r.control != nil {
		_ = r.control.Close() // the socket may be closed already
	}
}

// kill kills the command and returns at once.
func (r *reaped) kill() { go r.send(commandKill) }

// terminate sends SIGTERM to the command and, after the grace, kills all its processes. It returns at once.
func (r *reaped) terminate() { go r.send(commandEnd) }

// send sends a message to the reaper and waits for its report. It continues a stopped reaper. It kills a reaper that
// does not report within reportTimeout; then end finds the processes by their mark.
func (r *reaped) send(b byte) {
	_, _ = r.control.Write([]byte{b})            // the reaper may have ended
	_ = r.reaper.Process.Signal(syscall.SIGCONT) // the reaper may have ended
	late := time.NewTimer(r.reportTimeout)
	defer late.Stop()
	select {
	case <-r.reported:
	case <-late.C:
		_ = r.reaper.Process.Kill() // the reaper may have ended
	}
}

// report waits for the report of the reaper, and ends the command when ctx ends. All processes have ended
// before a report.
func (r *reaped) report(ctx context.Context) (result report, err error) {
	defer context.AfterFunc(ctx, func() { r.send(commandEnd) })()
	line, err := bufio.NewReader(r.control).ReadBytes('\n')
	close(r.reported)
	if err == nil {
		err = arcp.Unmarshal(line, &result)
	}
	return result, err
}

// end waits for the end of the reaper, which removes the scratch directory. All processes have ended when it
// returns, even if the reaper was killed.
func (r *reaped) end() {
	_ = r.reaper.Wait() // ProcessState has the exit status
	if r.reaper.ProcessState == nil || !r.reaper.ProcessState.Success() {
		killMarked(r.marker)
	}
}
