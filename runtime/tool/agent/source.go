// Package agent offers the tools of a program that speaks ARCP on its standard
// input and output: another runtime, or an agent in any language.
//
// The program is started with the source, and again when it ends; the session with
// it is resumed then, if the program kept it, and jobs go on as if nothing had
// happened. Otherwise those under way fail with ABORTED. A call is a job there,
// under an idempotency key made of the job here: one that is made again after a
// crash finds the job it had. Its events, questions to people and outcome are
// those of the job here; a cancel is a cancel there.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/transport"
)

// Config says what to start and what to offer of it.
type Config struct {
	Name    string
	Command []string          // the program, a name in PATH or a path, and its arguments
	Env     []string          // names of the variables that are handed on, beside PATH
	Dir     string            // where it runs; "": where this process does
	Prefix  string            // of the names here
	Allows  func(string) bool // whether a tool is offered, by its name there; nil: all are
	Log     zerolog.Logger
}

const (
	// answerTimeout bounds the start of the program until its tools are known.
	answerTimeout = 20 * time.Second

	// listTimeout of it may be spent on the program's list of its tools.
	listTimeout = answerTimeout / 2

	// A program that ends is started again after a pause that doubles. One that has
	// lasted longer than the longest pause begins with the shortest. So are tools
	// listed again when that failed, until it succeeds.
	minPause = time.Second
	maxPause = time.Minute

	// exitGrace is how long a program may take to end: it may be a runtime that has
	// jobs to bring to a checkpoint.
	exitGrace = 10 * time.Second

	// listEvery is the least time between two lists, however often the program says
	// that its tools have changed.
	listEvery = time.Second

	// maxQuestions of one program wait for people at the same time; each has a
	// goroutine.
	maxQuestions = 1024

	// ackEvery so many events they are acknowledged: the program need not keep them.
	ackEvery = 100
)

// DepthVariable counts, in the environment, how many programs of this kind are
// above: a runtime whose file has it start itself would go on for ever.
const DepthVariable = "ARCP_DEPTH"

// maxDepth of programs that are started by programs.
const maxDepth = 4

// Source is a program whose tools are tools here.
type Source struct {
	cfg   Config
	depth int
	calls *calls

	stop  context.CancelFunc
	done  chan struct{}         // closed when run has returned
	asked chan chan error       // by Refresh
	made  map[string]*tool.Tool // what was offered last, by reference; run's

	listed bool // the program has listed its tools in this session; run's

	mu      sync.Mutex
	session *client.Client // nil: there is none
}

// New makes a source. The error says that the program is not to be started.
func New(cfg Config) (*Source, error) {
	depth, err := strconv.Atoi(cmp.Or(os.Getenv(DepthVariable), "0"))
	if err != nil || depth >= maxDepth {
		return nil, fmt.Errorf("programs that speak ARCP start each other more than %d deep: this one must not start another (%s=%s)",
			maxDepth, DepthVariable, os.Getenv(DepthVariable))
	}
	return &Source{cfg: cfg, depth: depth, calls: newCalls(), asked: make(chan chan error)}, nil
}

// Name is unique among the programs of a configuration.
func (s *Source) Name() string { return "arcp:" + s.cfg.Name }

// Prefix is what the names of the tools begin with.
func (s *Source) Prefix() string { return s.cfg.Prefix }

// Start starts the program and publishes its tools. A program that cannot be
// started, or does not speak ARCP, is an error; one that ends later is started
// again.
func (s *Source) Start(ctx context.Context, publish func([]*tool.Tool) error) error {
	life, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, make(chan struct{})
	first := make(chan error)
	go s.run(life, publish, func(err error) (heard bool) {
		select {
		case first <- err:
			return true
		case <-ctx.Done(): // Start has returned, or is about to
			return false
		}
	})
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close ends the program.
func (s *Source) Close() {
	if s.stop == nil { // it was not started
		return
	}
	s.stop()
	<-s.done
}

// run has the program, one after the other, until ctx ends. What came of the first
// one it tells once; when that was heard to be a failure there are no others.
func (s *Source) run(ctx context.Context, publish func([]*tool.Tool) error, tell func(error) bool) {
	defer close(s.done)
	tellWell := sync.OnceFunc(func() { tell(nil) })
	for pause, first := minPause, true; ; first = false {
		began := time.Now()
		err := s.attach(ctx, publish, tellWell)
		if first && errors.Is(err, errNoStart) && tell(err) || ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		s.cfg.Log.Warn().Err(err).Str("source", s.Name()).Dur("pause", pause).Msg("the program has ended; it is started again")
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// errNoStart is why a program has never offered a tool.
var errNoStart = errors.New("the program does not offer its tools")

// attach starts the program and has a session with it until it ends for good.
func (s *Source) attach(ctx context.Context, publish func([]*tool.Tool) error, published func()) error {
	l := &line{s: s}
	defer l.hangUp()
	s.listed = false
	stale := make(chan struct{}, 1)
	c, err := s.open(ctx, l, stale)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoStart, l.explain(err))
	}
	defer c.Abort()
	if err := s.offer(ctx, c, publish); err != nil {
		return fmt.Errorf("%w: %w", errNoStart, l.explain(err))
	}
	s.set(c)
	defer s.set(nil)
	published()
	var due <-chan time.Time // nil: nothing has changed that is not offered
	known := false           // due is as soon as may be
	last, pause := time.Now(), minPause
	for {
		changed := stale
		if known {
			changed = nil
		}
		select {
		case <-c.Done():
			return l.explain(c.Err())
		case done := <-s.asked:
			done <- s.offer(ctx, c, publish)
		case <-changed:
			due, known = time.After(time.Until(last.Add(listEvery))), true
		case <-due:
			due, known, last = nil, false, time.Now()
			if err := s.offer(ctx, c, publish); err == nil {
				pause = minPause
			} else if ctx.Err() == nil {
				s.cfg.Log.Warn().Err(err).Str("source", s.Name()).Dur("pause", pause).Msg("the tools stay as they were; they are listed again")
				due = time.After(pause)
				pause = min(2*pause, maxPause)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Source) set(c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = c
}

func (s *Source) current() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// Refresh lists the tools again and publishes them. While there is no session there
// is nothing to ask: they are listed when there is one.
func (s *Source) Refresh(ctx context.Context) error {
	c := s.current()
	if c == nil {
		return nil
	}
	done := make(chan error, 1)
	select {
	case s.asked <- done:
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open opens a session. When the program ends another one resumes it. stale is told
// when its tools may be others: then, and when the program says so.
func (s *Source) open(ctx context.Context, l *line, stale chan<- struct{}) (*client.Client, error) {
	look := func() {
		select {
		case stale <- struct{}{}:
		default: // one is enough
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("it has not answered session.open within %s", answerTimeout))
	defer cancel()
	return client.ConnectFunc(ctx, l.dial, client.Options{
		Client:       arcp.ClientInfo{Kind: "arcp-go-parent", Version: arcp.Version},
		Limits:       client.Limits{Handlers: maxQuestions, EventBytes: maxEventBytes},
		AckEvery:     ackEvery,
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{arcp.FeatureDurableJobs: true, arcp.FeatureAck: true, arcp.FeatureHeartbeat: true}},
		Handlers: client.Handlers{Input: s.calls.input, Choice: s.calls.choice, Permission: s.calls.permission,
			By: s.Name()},
		Reconnect: client.Reconnect{MinDelay: minPause, MaxDelay: maxPause, OnChange: func(c client.Change) {
			if c.State != client.Resumed {
				s.cfg.Log.Warn().Err(c.Err).Str("source", s.Name()).Stringer("state", c.State).Msg("the program is gone")
				return
			}
			look()
		}},
		OnEvent: func(env *arcp.Envelope) (taken bool) {
			if !changed(env) {
				return s.calls.hear(env)
			}
			look()
			return true
		},
		OnUnsolicited: func(*arcp.Envelope) {},
		Log: func(msg string, args ...any) {
			s.cfg.Log.Debug().Str("source", s.Name()).Fields(args).Msg(msg)
		},
	})
}

// changed reports whether the program says that its tools have changed.
func changed(env *arcp.Envelope) bool {
	if env.Type != arcp.EventEmit || env.JobID != "" {
		return false
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](env)
	return err == nil && p.Name == arcp.EventToolsChanged
}

// line is the connection to a program, and the program at its end. The dialing
// goroutine has it, of which there is one at a time; then that of the source.
type line struct {
	s       *Source
	mu      sync.Mutex
	process *exec.Process
}

// dial starts the program.
func (l *line) dial(ctx context.Context) (transport.Conn, error) {
	l.hangUp()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	cfg := &l.s.cfg
	p, err := exec.Start(exec.Program{Command: cfg.Command, Env: cfg.Env, Dir: cfg.Dir, Grace: exitGrace,
		Set: []string{DepthVariable + "=" + strconv.Itoa(l.s.depth+1)},
		Log: func(level, message string) {
			event := cfg.Log.Info()
			if level == "warn" {
				event = cfg.Log.Warn()
			}
			event.Str("source", l.s.Name()).Msg(message)
		}})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.process = p
	l.mu.Unlock()
	return transport.Stdio(p.Stdout, p.Stdin, transport.Limits{}), nil
}

// hangUp ends the program there is, if any.
func (l *line) hangUp() {
	l.mu.Lock()
	p := l.process
	l.mu.Unlock()
	if p != nil {
		p.End()
	}
}

// explain adds how the program ended, if it has.
func (l *line) explain(err error) error {
	l.mu.Lock()
	p := l.process
	l.mu.Unlock()
	if p == nil {
		return err
	}
	l.hangUp() // it has no use any more
	return fmt.Errorf("%w: %w", err, p.Err())
}

// offer lists the tools and publishes them.
func (s *Source) offer(ctx context.Context, c *client.Client, publish func([]*tool.Tool) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("it has not described its tools within %s", answerTimeout))
	defer cancel()
	tools, err := s.list(ctx, c)
	if err != nil {
		return err
	}
	return publish(tools)
}

// demoPrefix is reserved too, and its tools are like others.
const demoPrefix = "demo."

// own reports whether a tool is one of the other runtime about itself.
func own(name string) bool {
	return slices.ContainsFunc(tool.Reserved, func(prefix string) bool { return prefix != demoPrefix && strings.HasPrefix(name, prefix) })
}
