package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// startTimeout is how long a child runtime may take to accept connections.
const startTimeout = 30 * time.Second

// child is a runtime in a process of its own: this program again.
type child struct {
	cmd        *exec.Cmd
	url, admin string
	log        *tail
	exited     chan struct{} // closed when the process is gone
}

var listeningLine = regexp.MustCompile(`^listening (\S+)(?: admin (\S+))?$`)

// childOptions say how to start a child.
type childOptions struct {
	args []string // of `arcp serve`
	env  []string // in addition to the environment of this process without its settings
	cpus []int    // processors it runs on; nil: any
}

// startChild starts `arcp serve` on free loopback ports, and returns when it
// accepts connections. The child dies with this process.
func startChild(ctx context.Context, o childOptions) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	ch := &child{log: new(tail), exited: make(chan struct{})}
	ch.cmd = exec.Command(exe, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, o.args...)...)
	ch.cmd.Env = append(append(withoutSettings(os.Environ()), settings.ConfigEnv+"="+os.DevNull), o.env...)
	ch.cmd.Dir = os.TempDir()
	ch.cmd.Stderr = ch.log
	ch.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := ch.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	forks() <- fork{ch.cmd, o.cpus, done}
	if err := <-done; err != nil {
		return nil, fmt.Errorf("start a runtime: %w", err)
	}
	lines := make(chan string, 1)
	go ch.reap(out, lines)
	if err := ch.awaitLine(ctx, lines); err != nil {
		return nil, errors.Join(err, ch.kill())
	}
	return ch, nil
}

// fork asks the forker for a process.
type fork struct {
	cmd  *exec.Cmd
	cpus []int // it shall run on; nil: any
	done chan<- error
}

// forks starts the forker with the first child.
var forks = sync.OnceValue(func() chan<- fork {
	c := make(chan fork)
	go forker(c)
	return c
})

// forker starts the children from one thread that lives as long as this
// process: the kernel ends a child when the thread that made it ends, and lets
// a child begin on the processors of that thread.
func forker(c <-chan fork) {
	runtime.LockOSThread()
	for f := range c {
		f.done <- f.start()
	}
}

func (f fork) start() error {
	if f.cpus == nil {
		return f.cmd.Start()
	}
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := pinThread(0, f.cpus); err != nil {
		return err
	}
	return errors.Join(f.cmd.Start(), unix.SchedSetaffinity(0, &before))
}

// pinThread lets a thread, 0 for this one, run on some processors only.
func pinThread(tid int, cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(tid, &set)
}

// withoutSettings removes variables that would configure the child.
func withoutSettings(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, settings.EnvPrefix) })
}

// reap hands on the first line of the child and waits for its end.
func (ch *child) reap(out io.Reader, lines chan<- string) {
	defer close(ch.exited)
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err == nil {
		lines <- strings.TrimSpace(line)
	}
	close(lines)
	_, _ = io.Copy(io.Discard, r) // nothing more is expected
	_ = ch.cmd.Wait()             // the caller reports how the process ended
}

func (ch *child) awaitLine(ctx context.Context, lines <-chan string) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case line := <-lines:
		m := listeningLine.FindStringSubmatch(line)
		if m == nil {
			<-ch.exited
			return ch.failure("the runtime did not start")
		}
		ch.url, ch.admin = m[1], m[2]
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return ch.failure("the runtime did not start within " + startTimeout.String())
	}
}

// kill ends the child at once, as a crash would, and waits until it is gone.
func (ch *child) kill() error {
	err := ch.cmd.Process.Kill()
	<-ch.exited
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop ends the child in order.
func (ch *child) stop() error {
	err := ch.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ch.exited:
	case <-time.After(startTimeout):
		return errors.Join(ch.failure("the runtime did not stop"), ch.kill())
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if code := ch.cmd.ProcessState.ExitCode(); code != 0 {
		return ch.failure(fmt.Sprintf("the runtime ended with exit code %d", code))
	}
	return err
}

// failure is an error with the end of the child's log.
func (ch *child) failure(action string) error {
	if log := ch.log.String(); log != "" {
		return fmt.Errorf("%s; its log ends: %s", action, log)
	}
	return errors.New(action)
}

// tailSize is how much of a log is kept.
const tailSize = 4 << 10

// tail stores the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
