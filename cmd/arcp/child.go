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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
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

// startChild starts `arcp serve` with args on free loopback ports, and returns
// when it accepts connections. It knows nothing of this process's settings, and
// it dies with this process. The environment has extra too.
func startChild(ctx context.Context, extra []string, args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	ch := &child{log: new(tail), exited: make(chan struct{})}
	ch.cmd = exec.Command(exe, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	ch.cmd.Env = append(withoutSettings(os.Environ()), extra...)
	ch.cmd.Dir = os.TempDir()
	ch.cmd.Stderr = ch.log
	ch.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := ch.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startLocked(ch.cmd); err != nil {
		return nil, fmt.Errorf("start a runtime: %w", err)
	}
	lines := make(chan string, 1)
	go ch.reap(out, lines)
	return ch, ch.awaitLine(ctx, lines)
}

// startLocked starts a process that shall die with this one: the kernel watches
// the thread, so it must be one that lives as long, the main one of a goroutine
// that never ends.
func startLocked(cmd *exec.Cmd) error {
	forkOnce.Do(func() { go forker() })
	done := make(chan error)
	forks <- fork{cmd, done}
	return <-done
}

type fork struct {
	cmd  *exec.Cmd
	done chan<- error
}

var (
	forkOnce sync.Once
	forks    = make(chan fork)
)

// withoutSettings leaves out what would configure the child.
func withoutSettings(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "ARCP_") })
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
	_ = ch.cmd.Wait()             // how it ended is for who ended it
}

func (ch *child) awaitLine(ctx context.Context, lines <-chan string) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case line := <-lines:
		m := listeningLine.FindStringSubmatch(line)
		if m == nil {
			return errors.Join(ch.failure("the runtime did not start"), ch.kill())
		}
		ch.url, ch.admin = m[1], m[2]
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), ch.kill())
	case <-timeout.C:
		return errors.Join(ch.failure("the runtime did not start within "+startTimeout.String()), ch.kill())
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
func (ch *child) failure(what string) error {
	if log := ch.log.String(); log != "" {
		return fmt.Errorf("%s; its log ends: %s", what, log)
	}
	return errors.New(what)
}

// tailSize is how much of a log is kept.
const tailSize = 4 << 10

// tail keeps the end of what is written to it.
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
