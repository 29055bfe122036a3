package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// Times of a process of the suite.
const (
	serveTimeout = time.Minute           // from the start of a server until it accepts connections
	servePoll    = 50 * time.Millisecond // between two attempts to connect
	stopTimeout  = 2 * time.Second       // from the request to end until the process is killed
)

// process is a program of the suite in a process group of its own. The end of the program closes
// exited.
type process struct {
	cmd    *exec.Cmd
	log    *logTail // its standard error
	exited chan struct{}
}

// startProcess starts a command in a directory; empty: the directory of this process. The standard input and
// output are those files; nil: none, and the output is part of the log.
func startProcess(command []string, dir string, stdin, stdout *os.File) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...), log: new(logTail), exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stderr = dir, p.log
	p.cmd.WaitDelay = stopTimeout // a child of the program may hold its standard error open
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	p.cmd.Stdout = p.log
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	ownGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // ProcessState has the outcome
	}()
	return p, nil
}

// stop asks the process group to end, and kills it after stopTimeout.
func (p *process) stop() {
	_ = terminateGroup(p.cmd) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
	}
	p.kill()
}

// kill kills the process group and waits for the end of the process.
func (p *process) kill() {
	killGroup(p.cmd)
	<-p.exited
}

// failure returns an error with the outcome of the process and the end of its log.
func (p *process) failure(message string) error {
	select {
	case <-p.exited:
		message += ": " + p.cmd.ProcessState.String()
	default:
	}
	if log := p.log.String(); log != "" {
		message += "; its output ends with:\n" + log
	}
	return errors.New(message)
}

// logSize is the number of bytes of a log that are retained.
const logSize = 2 << 10

// logTail retains the last bytes that are written to it.
type logTail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if excess := len(l.buf) - logSize; excess > 0 {
		l.buf = append(l.buf[:0], l.buf[excess:]...)
	}
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(l.buf)), "")
}

// served is a server that Serve has started.
type served struct {
	mapping *Mapping
	target  *Target
	running *process
}

// Serve starts the server of a mapping and waits until the target accepts connections. It sets
// Restart of the target if the mapping says how the server is started again. stop ends the server;
// call it after an error too.
func (m *Mapping) Serve(ctx context.Context, tg *Target) (stop func(), err error) {
	s := &served{mapping: m, target: tg}
	restart := tg.Restart
	if m.Rerun || m.Restart != nil {
		restart = s.restart
	}
	if m.Start == nil {
		tg.Restart = restart
		return func() {}, nil
	}
	if conn, err := tg.dial(ctx); err == nil {
		_ = conn.Abort() // a server listens
		return func() {}, fmt.Errorf("a server answers at %s before the start of %s: end it, or remove `start` from the mapping file", tg.URL, m.Start[0])
	}
	tg.Restart = restart
	return s.stop, s.start(ctx)
}

func (s *served) stop() {
	if s.running != nil {
		s.running.stop()
	}
}

func (s *served) start(ctx context.Context) error {
	p, err := startProcess(s.mapping.Start, s.mapping.Dir, nil, nil)
	if err != nil {
		return err
	}
	s.running = p
	if err := s.await(ctx, p.exited); err != nil {
		return p.failure(fmt.Sprintf("%s: %v", s.mapping.Start[0], err))
	}
	return nil
}

// restart implements Target.Restart.
func (s *served) restart(ctx context.Context) error {
	if s.mapping.Rerun {
		s.running.kill()
		return s.start(ctx)
	}
	p, err := startProcess(s.mapping.Restart, s.mapping.Dir, nil, nil)
	if err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.kill()
	}
	if !p.cmd.ProcessState.Success() {
		return p.failure(s.mapping.Restart[0])
	}
	return s.await(ctx, nil)
}

// await waits until the target accepts connections, or the server has ended.
func (s *served) await(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serveTimeout, fmt.Errorf("no connection to %s within %s", s.target.URL, serveTimeout))
	defer cancel()
	for {
		if conn, err := s.target.dial(ctx); err == nil {
			return conn.Abort()
		}
		select {
		case <-exited:
			return errors.New("the server has ended before it accepted a connection")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(servePoll):
		}
	}
}

// processConn is a connection to a process over its standard input and output. Its end kills the
// process.
type processConn struct {
	transport.Conn
	process *process
}

// dialProcess starts a server and connects to it.
func dialProcess(command []string) (_ *processConn, err error) {
	var files [4]*os.File // read and write ends of the input, and of the output
	defer func() {
		for i, f := range files {
			if f != nil && (err != nil || i == 0 || i == 3) {
				_ = f.Close() // the process has its own
			}
		}
	}()
	if files[0], files[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if files[2], files[3], err = os.Pipe(); err != nil {
		return nil, err
	}
	p, err := startProcess(command, "", files[0], files[3])
	if err != nil {
		return nil, err
	}
	return &processConn{transport.Stdio(files[2], files[1], transport.Limits{}), p}, nil
}

// Abort implements transport.Conn.
func (c *processConn) Abort() error {
	err := c.Conn.Abort()
	c.process.kill()
	return err
}

// Close implements transport.Conn. The end of its input ends the process, or stop.
func (c *processConn) Close(code transport.CloseCode, reason string) error {
	err := c.Conn.Close(code, reason)
	c.process.stop()
	return err
}

// addOutput adds the standard error of the processes of a failed check to its failure.
func (run *checkRun) addOutput() {
	if run.failure == "" {
		return
	}
	for _, c := range run.conns {
		if pc, ok := c.transportLink().tc.(*processConn); ok {
			if log := pc.process.log.String(); log != "" {
				run.failure += "\nthe standard error of the server ends with:\n" + run.tr.redact(log)
			}
		}
	}
}

// needsShared skips a check that connects a second time to a server of Target.Exec: each connection
// has a process of its own.
func (run *checkRun) needsShared() {
	if run.target.Exec != nil && len(run.conns) > 0 {
		run.Skipf("the check needs several connections to one server, and standard input and output are one: use a URL")
	}
}
