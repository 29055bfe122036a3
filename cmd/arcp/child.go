package main

import (
	"bufio"
	"bytes"
	"cmp"
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
	"time"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// startTimeout bounds the start and the stop of a child runtime.
const startTimeout = 30 * time.Second

// child is a runtime in another process of this program.
type child struct {
	cmd        *exec.Cmd
	url, admin string
	log        *tail
	exited     chan struct{} // closed after the end of the process
}

var listeningLine = regexp.MustCompile(`^listening (\S+)(?: admin (\S+))?$`)

// childOptions are the options of startChild.
type childOptions struct {
	command []string // instead of serve; it writes the same first line
	args    []string // arguments of `arcp serve`
	env     []string // added to the environment of this process without ARCP_ variables
	cpus    []int    // processors of the child; nil: any
}

// startChild starts `arcp serve` on free loopback ports and waits until it accepts connections. Linux kills
// the child at the end of this process.
func startChild(ctx context.Context, o childOptions) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	ch := &child{log: new(tail), exited: make(chan struct{})}
	command := o.command
	if command == nil {
		command = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, o.args...)
	}
	ch.cmd = exec.Command(exe, command...)
	ch.cmd.Env = append(append(withoutSettings(os.Environ()), settings.ConfigEnv+"="+os.DevNull), o.env...)
	ch.cmd.Dir = os.TempDir()
	ch.cmd.Stderr = ch.log
	ch.cmd.SysProcAttr = childAttributes()
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

// fork is a request to start a process.
type fork struct {
	cmd  *exec.Cmd
	cpus []int // processors of the process; nil: any
	done chan<- error
}

// forks returns the channel of the forker, which starts with the first child.
var forks = sync.OnceValue(func() chan<- fork {
	c := make(chan fork)
	go forker(c)
	return c
})

// forker starts the children on one thread that lives as long as this process. The kernel kills a child when the
// thread that started it ends. A child inherits the processors of that thread.
func forker(c <-chan fork) {
	runtime.LockOSThread()
	for f := range c {
		f.done <- f.start()
	}
}

// withoutSettings removes the variables that would configure the child.
func withoutSettings(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, settings.EnvPrefix) })
}

// reap sends the first line of the child to lines and waits for the end of the child.
func (ch *child) reap(out io.Reader, lines chan<- string) {
	defer close(ch.exited)
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err == nil {
		lines <- strings.TrimSpace(line)
	}
	close(lines)
	_, _ = io.Copy(io.Discard, r) // further output is ignored
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

// kill kills the child and waits for its end.
func (ch *child) kill() error {
	err := ch.cmd.Process.Kill()
	<-ch.exited
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop terminates the child and waits for the end of the child.
func (ch *child) stop() error {
	err := terminate(ch.cmd.Process)
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

// failure returns an error with the end of the log of the child.
func (ch *child) failure(message string) error {
	if log := ch.log.String(); log != "" {
		return fmt.Errorf("%s; its log ends with: %s", message, log)
	}
	return errors.New(message)
}

// tailSize is the number of retained bytes of a log, unless tail.size is set.
const tailSize = 4 << 10

// tail stores the last bytes written to it.
type tail struct {
	size int // number of bytes; 0: tailSize
	mu   sync.Mutex
	buf  []byte
}

func (tl *tail) Write(p []byte) (int, error) {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	tl.buf = append(tl.buf, p...)
	if excess := len(tl.buf) - cmp.Or(tl.size, tailSize); excess > 0 {
		tl.buf = append(tl.buf[:0], tl.buf[excess:]...)
	}
	return len(p), nil
}

func (tl *tail) String() string {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	return string(bytes.TrimSpace(tl.buf))
}
