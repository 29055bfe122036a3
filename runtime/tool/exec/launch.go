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

// launch is a running command.
type launch struct {
	marker                string
	reaper                *exec.Cmd
	control               *os.File
	stdin, stdout, stderr *os.File // this process's ends of the pipes

	reportTimeout time.Duration // from a message to the reaper until the reaper is killed
	reported      chan struct{} // closed when the reaper has reported or ended
}

// reaperMargin is added to the time in which a reaper kills all processes.
const reaperMargin = time.Second

// reaperEnv is the environment of a reaper without its mark.
var reaperEnv = []string{"GOMAXPROCS=2"}

// start starts a reaper and sends the order. mark is the environment variable NAME=VALUE that identifies the
// processes.
func (o order) start(mark string) (*launch, error) {
	o.Env = withVariable(o.Env, mark) // in place of the mark of an outer job
	l := &launch{marker: mark, reported: make(chan struct{})}
	l.reportTimeout = time.Duration(o.GraceMS)*time.Millisecond + killTimeout + reaperMargin
	raw, err := arcp.Marshal(o)
	if err != nil {
		return nil, err
	}
	var theirs files
	defer func() { theirs.close() }()
	if err := l.connect(&theirs); err != nil {
		l.close()
		return nil, err
	}
	if o.HoldInput {
		if err := l.shareInput(&theirs); err != nil {
			l.close()
			return nil, err
		}
	}
	l.reaper = &exec.Cmd{Path: self, Args: []string{reaperName}, Env: append(slices.Clip(reaperEnv), mark), Dir: "/",
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2], ExtraFiles: theirs[3:],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}} // the reaper receives no signals of a terminal
	if err := l.reaper.Start(); err != nil {
		l.close()
		return nil, err
	}
	if _, err := l.control.Write(append(raw, '\n')); err != nil {
		_ = l.control.Close() // ends the reaper
		_ = l.reaper.Wait()   // the write error is the result
		l.close()
		return nil, err
	}
	return l, nil
}

// files are open files.
type files []*os.File

func (f files) close() {
	for _, file := range f {
		_ = file.Close() // nothing was written to it
	}
}

// connect opens the standard pipes of the reaper and the control socket. It appends the ends of the reaper to
// theirs.
func (l *launch) connect(theirs *files) error {
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
	if err := errors.Join(pipe(false, &l.stdin), pipe(true, &l.stdout), pipe(true, &l.stderr)); err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	*theirs = append(*theirs, os.NewFile(uintptr(pair[1]), "reaper"))
	err = unix.SetNonblock(pair[0], true)
	l.control = os.NewFile(uintptr(pair[0]), "control")
	return err
}

// shareInput appends a duplicate of the write end of the standard input to theirs.
func (l *launch) shareInput(theirs *files) error {
	conn, err := l.stdin.SyscallConn() // Fd would make the pipe blocking
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

// endInput ends the standard input of a command with HoldInput.
func (l *launch) endInput() {
	_ = l.stdin.Close()                             // all is written
	_, _ = l.control.Write([]byte{commandInputEnd}) // the reaper may have ended
}

// writeInput writes the whole standard input of a command with HoldInput, and ends it. After an error the input
// stays open until the command has ended.
func (l *launch) writeInput(input []byte) {
	if _, err := l.stdin.Write(input); err == nil {
		l.endInput()
	}
}

func (l *launch) close() {
	for _, f := range []*os.File{l.control, l.stdin, l.stdout, l.stderr} {
		if f != nil {
			_ = f.Close() // the file may be closed already
		}
	}
}

// kill kills the command and returns at once.
func (l *launch) kill() { go l.send(commandKill) }

// send sends a message to the reaper and waits for its report. It continues a stopped reaper. It kills a reaper that
// does not report within reportTimeout; then end finds the processes by their mark.
func (l *launch) send(b byte) {
	_, _ = l.control.Write([]byte{b})            // the reaper may have ended
	_ = l.reaper.Process.Signal(syscall.SIGCONT) // the reaper may have ended
	late := time.NewTimer(l.reportTimeout)
	defer late.Stop()
	select {
	case <-l.reported:
	case <-late.C:
		_ = l.reaper.Process.Kill() // the reaper may have ended
	}
}

// report waits for the report of the reaper, and ends the command when ctx ends. All processes have ended
// before a report.
func (l *launch) report(ctx context.Context) (r report, err error) {
	defer context.AfterFunc(ctx, func() { l.send(commandEnd) })()
	line, err := bufio.NewReader(l.control).ReadBytes('\n')
	close(l.reported)
	if err == nil {
		err = arcp.Unmarshal(line, &r)
	}
	return r, err
}

// end waits for the end of the reaper, which removes the scratch directory. All processes have ended when it
// returns, even if the reaper was killed.
func (l *launch) end() {
	_ = l.reaper.Wait() // ProcessState has the exit status
	if l.reaper.ProcessState == nil || !l.reaper.ProcessState.Success() {
		killMarked(l.marker)
	}
}

// wait calls report and end.
func (l *launch) wait(ctx context.Context) (report, error) {
	r, err := l.report(ctx)
	l.end()
	return r, err
}
