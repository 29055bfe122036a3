// Package stdioworker runs the workers of arcp.yaml: programs that speak ARCP as workers on their
// standard streams (SPEC.md §7.8).
//
// A program is restarted after a delay when it exits or does not register a tool in time; before that, all its
// processes are ended. A program also ends with this process, even if this process is killed.
package stdioworker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/internal/backoff"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/transport"
)

// Config names the program to start and the tools that it may execute.
type Config struct {
	Name      string
	Command   []string // the program, a name in PATH or a path, and its arguments
	Env       []string // names of variables that the program inherits, besides PATH
	Dir       string   // working directory; "": the directory of this process
	Tools     []string // globs of the names of tools that the program may execute
	ReadLimit int64    // maximum bytes of a frame
	Log       zerolog.Logger
}

// registerTimeout bounds the time from the start of a program to its first registration of a tool. Only
// tests change it.
var registerTimeout = 20 * time.Second

// exitGrace is the time from SIGTERM to SIGKILL. Jobs may save a checkpoint meanwhile.
const exitGrace = 10 * time.Second

// restartBackoff is the delay from the end of a program to its next start.
var restartBackoff = backoff.Policy{Min: time.Second, Max: time.Minute, Jitter: 0.2}

// Server serves the session of a worker. It is a *runtime.Runtime.
type Server interface {
	ServeWorker(ctx context.Context, c transport.Conn, w runtime.Worker) error
	Ready() error
}

// Worker runs a program and restarts it.
type Worker struct {
	cfg    Config
	server Server
	stop   context.CancelFunc
	donec  chan struct{} // closed when run has returned
}

// Start starts a program. It returns when the program has registered a tool, or when ctx ends. If the first
// process registers no tool, Start returns the reason as an error and does not restart the program.
func Start(ctx context.Context, cfg Config, server Server) (*Worker, error) {
	life, stop := context.WithCancel(context.Background())
	w := &Worker{cfg: cfg, server: server, stop: stop, donec: make(chan struct{})}
	first := make(chan error, 1)
	go w.run(life, first)
	select {
	case err := <-first:
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("worker %s: %w", cfg.Name, err)
		}
	case <-ctx.Done():
	}
	return w, nil
}

// Close ends the program. It returns when all its processes have ended.
func (w *Worker) Close() {
	w.stop()
	<-w.donec
}

// run starts one process after another until ctx ends. It sends the result of the first process to first, and returns if
// that process has registered no tool.
func (w *Worker) run(ctx context.Context, first chan<- error) {
	defer close(w.donec)
	delays := backoff.Backoff{Policy: restartBackoff}
	var registered atomic.Bool // a process has registered a tool
	ready := func() {
		if !registered.Swap(true) {
			first <- nil
		}
	}
	for {
		began := time.Now()
		err := w.serve(ctx, ready)
		switch {
		case !registered.Swap(true): // a later registration does not count
			first <- err
			return
		case ctx.Err() != nil || errors.Is(w.server.Ready(), runtime.ErrShutdown):
			return
		}
		delays.Lasted(time.Since(began))
		delay := delays.Next()
		w.cfg.Log.Warn().Err(err).Str("worker", w.cfg.Name).Dur("delay_ms", delay).Msg("a worker has ended; it is started again")
		if backoff.Sleep(ctx, delay) != nil {
			return
		}
	}
}

var errClosed = errors.New("it has closed its session")

func errSilent() error {
	return fmt.Errorf("it has not registered a tool within %s: it must open a session and call host.register_agent, as a worker does", registerTimeout)
}

// serve runs one process until the end of its session. The error is the reason for the end. serve calls ready once when
// the process has registered tools, on any goroutine.
func (w *Worker) serve(ctx context.Context, ready func()) error {
	process, err := exec.Start(exec.Program{Command: w.cfg.Command, Env: w.cfg.Env, Dir: w.cfg.Dir, Grace: exitGrace, Log: w.log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(registerTimeout, func() { cancel(errSilent()) })
	defer late.Stop()
	var once sync.Once
	conn := transport.Stdio(process.Stdout, process.Stdin, transport.Limits{ReadLimit: w.cfg.ReadLimit})
	err = w.server.ServeWorker(ctx, conn, runtime.Worker{Name: w.cfg.Name, Tools: w.cfg.Tools, Registered: func() {
		once.Do(func() {
			if late.Stop() {
				ready()
			}
		})
	}})
	process.End()
	return fmt.Errorf("%w; %w", cmp.Or(context.Cause(ctx), err, errClosed), process.Err())
}

// log writes a line of the program's standard error to the log.
func (w *Worker) log(level, message string) {
	event := w.cfg.Log.Info()
	if level == "warn" {
		event = w.cfg.Log.Warn()
	}
	event.Str("worker", w.cfg.Name).Msg(message)
}
