package mcp

//lint:file-ignore SA1019 servers of the versions in use log in the way that the next one will drop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/backoff"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Source publishes the tools of one MCP server. It implements tool.Source.
//
// The goroutine of run owns all members but link, which calls read.
type Source struct {
	cfg  Config
	log  zerolog.Logger
	open func(t *observer) (*wire, error) // connects to the server

	link    atomic.Pointer[link] // nil: there is no session
	life    context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
	listed  chan struct{}   // closed after the first publication
	asked   chan chan error // by Refresh
	publish func([]*tool.Tool) error

	most    int           // bytes of a message; maxMessage but for tests
	logged  *rate.Limiter // of logged texts of the server
	state   string
	made    map[string]made   // by published name
	offered []*tool.Tool      // last published, with tools whose names were taken; nil: none
	faults  map[string]string // logged faults of tools, by the server's name
	taken   int               // tools of offered whose names were taken
	faulty  int               // tools that are left out, taken ones included
}

var _ tool.Source = (*Source)(nil)

// wire is a connection to a server.
type wire struct {
	transport sdk.Transport
	sending   sdk.Middleware              // of all requests; nil: none
	end       func()                      // ends the server or the requests, and returns after that
	exitError func(context.Context) error // returns how the server has ended by itself; nil: it has not
}

// link is a session with a server.
type link struct {
	session  *sdk.ClientSession
	observer *observer
	wire     *wire
	asks     atomic.Int64  // open questions
	changed  chan struct{} // capacity 1: the list of tools has changed
	ended    chan struct{} // closed when the session has ended
	life     context.Context
	stop     context.CancelFunc // of life
}

// New checks the configuration. The error contains the remedy.
func New(c Config) (*Source, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("mcp server %s: %w", c.Name, err)
	}
	s := newSource(c)
	s.open = s.openProcess
	if c.URL != "" {
		h := newHeaders(c.HeadersFile)
		s.open = func(t *observer) (*wire, error) { return s.openHTTP(h, t) }
	}
	return s, nil
}

func newSource(c Config) *Source {
	s := &Source{cfg: c, log: c.Log.With().Str("mcp_server", c.Name).Logger(), listed: make(chan struct{}), asked: make(chan chan error),
		faults: make(map[string]string), most: maxMessage, logged: rate.NewLimiter(logRate, logBurst)}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// Name returns the name of the source.
func (s *Source) Name() string { return "mcp:" + s.cfg.Name }

// Prefix returns the prefix of the published names.
func (s *Source) Prefix() string { return s.cfg.Prefix }

// Start implements tool.Source. If ctx ends before the first list, the tools are published later.
func (s *Source) Start(ctx context.Context, publish func([]*tool.Tool) error) error {
	s.publish = publish
	s.done.Go(s.run)
	select {
	case <-s.listed:
	case <-ctx.Done():
	}
	return nil
}

// Refresh lists the tools again and publishes them. Without a session it does nothing: the next session lists
// them.
func (s *Source) Refresh(ctx context.Context) error {
	if s.link.Load() == nil {
		return nil
	}
	done := make(chan error, 1)
	select {
	case s.asked <- done:
	case <-s.life.Done():
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

// Close implements tool.Source.
func (s *Source) Close() {
	s.stop()
	s.done.Wait()
}

// run opens one session after another until Close.
func (s *Source) run() {
	defer func() {
		s.move("")
		s.cfg.Metrics.left(-s.faulty)
	}()
	restarts := backoff.Backoff{Policy: restartBackoff}
	for s.life.Err() == nil {
		s.move(stateStarting)
		begun := time.Now()
		err := s.session()
		if s.life.Err() != nil {
			return
		}
		restarts.Lasted(time.Since(begun))
		s.move(stateWaiting)
		s.cfg.Metrics.restarted()
		pause := restarts.Next()
		s.log.Warn().Str("error", clip.Ellipsis(err.Error(), maxDescription)).Stringer("again_in", pause.Round(time.Millisecond)).
			Msg("the session with an MCP server has ended; another is begun")
		_ = backoff.Sleep(s.life, pause) // the loop sees that life has ended
	}
}

func (s *Source) move(to string) {
	s.cfg.Metrics.move(s.state, to)
	s.state = to
}

// session opens a session and serves it until its end; the error is the reason for the end.
func (s *Source) session() error {
	l, err := s.connect()
	if err != nil {
		return err
	}
	defer s.endSession(l)
	if err := s.refresh(l); err != nil {
		return fmt.Errorf("list its tools: %w", err)
	}
	s.link.Store(l)
	s.move(stateReady)
	select {
	case <-s.listed:
	default:
		close(s.listed)
	}
	return s.follow(l)
}

// follow lists the tools again when they change, until the session ends.
func (s *Source) follow(l *link) error {
	var due <-chan time.Time // nil: nothing has changed
	last := time.Now()
	silent := s.keepAlive(l)
	for {
		changed := l.changed
		if due != nil {
			changed = nil // a list is due already
		}
		select {
		case <-l.ended:
			return cmp.Or(l.wire.exitError(s.life), errors.New("the server has ended it"))
		case <-s.life.Done():
			return context.Canceled
		case <-silent:
			return fmt.Errorf("it has not answered a ping for %s or more", missedPings*pingEvery)
		case <-changed:
			due = time.After(max(changeDelay, time.Until(last.Add(listEvery))))
		case asked := <-s.asked:
			asked <- s.refresh(l)
		case <-due:
			due, last = nil, time.Now()
			if err := s.refresh(l); err != nil && s.life.Err() == nil {
				s.log.Warn().Str("error", clip.Ellipsis(err.Error(), maxDescription)).Msg("the tools of an MCP server cannot be listed again; they stay as they are")
				due = time.After(listAgain)
			}
		}
	}
}

// keepAlive pings the server until the session ends. It closes the channel after missedPings, or during a
// call after the time limit of a call: single-threaded servers do not answer while they compute. The
// keepalive of the SDK would wait for the calls under way before it ends the session.
func (s *Source) keepAlive(l *link) (silent <-chan struct{}) {
	c := make(chan struct{})
	if init := l.session.InitializeResult(); init != nil && init.ProtocolVersion >= noPings {
		return c
	}
	s.done.Go(func() {
		t := time.NewTicker(pingEvery)
		defer t.Stop()
		heard := time.Now()
		for missed := 0; missed < missedPings || l.observer.busy() && time.Since(heard) <= s.cfg.Limits.Timeout; missed++ {
			select {
			case <-t.C:
			case <-l.life.Done():
				return
			}
			if l.ping() {
				missed, heard = -1, time.Now()
			}
		}
		close(c)
	})
	return c
}

// noPings is the version of MCP that has removed pings.
const noPings = "2026-07-28"

// ping reports whether the server answers, also with an error.
func (l *link) ping() bool {
	ctx, cancel := context.WithTimeout(l.life, pingEvery/2)
	defer cancel()
	err := l.session.Ping(ctx, nil)
	e, refused := errors.AsType[*jsonrpc.Error](err)
	return err == nil || refused && !unsent(e)
}

// refresh lists and publishes the tools.
func (s *Source) refresh(l *link) error {
	select {
	case <-l.changed: // this list has the change
	default:
	}
	list, err := s.list(s.life, l)
	if err != nil {
		return err
	}
	return s.publishAll(s.tools(list))
}

// connect opens a session.
func (s *Source) connect() (*link, error) {
	ctx, cancel := context.WithTimeoutCause(s.life, connectTimeout, fmt.Errorf("no session within %s", connectTimeout))
	defer cancel()
	l := &link{observer: newObserver(s.strayLog), changed: make(chan struct{}, 1), ended: make(chan struct{})}
	l.life, l.stop = context.WithCancel(s.life)
	var err error
	if l.wire, err = s.open(l.observer); err != nil {
		l.stop()
		return nil, err
	}
	if l.session, err = s.handshake(ctx, l); err != nil {
		if exit := l.wire.exitError(s.life); exit != nil {
			err = exit
		}
		l.stop()
		l.wire.end()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	s.done.Go(func() {
		_ = l.session.Wait() // only the end matters
		close(l.ended)
	})
	s.wantLogs(ctx, l)
	return l, nil
}

// handshake returns when ctx ends, also while a write to the server blocks.
func (s *Source) handshake(ctx context.Context, l *link) (*sdk.ClientSession, error) {
	type answer struct {
		session *sdk.ClientSession
		err     error
	}
	got := make(chan answer, 1)
	go func() {
		session, err := s.client(l).Connect(ctx, l.wire.transport, nil)
		got <- answer{session, err}
	}()
	select {
	case a := <-got:
		return a.session, a.err
	case <-ctx.Done():
		l.wire.end() // which ends the handshake
		if a := <-got; a.session != nil {
			_ = a.session.Close() // it is too late
		}
		return nil, context.Cause(ctx)
	}
}

// client returns the MCP client. It offers elicitation only; the SDK refuses sampling and roots.
func (s *Source) client(l *link) *sdk.Client {
	client := sdk.NewClient(&sdk.Implementation{Name: "arcpd", Version: s.cfg.Version}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{},
		ElicitationHandler: func(ctx context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			defer context.AfterFunc(l.life, stop)() // the end of the session waits for this
			if l.asks.Add(1) > maxAsks {
				l.asks.Add(-1)
				return s.tooManyAsks(), nil
			}
			defer l.asks.Add(-1)
			return s.elicit(ctx, l.observer, req.Params)
		},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case l.changed <- struct{}{}:
			default: // a change is pending already
			}
		},
	})
	if l.wire.sending != nil {
		client.AddSendingMiddleware(l.wire.sending)
	}
	return client
}

// wantLogs enables the log messages of a server that supports them.
func (s *Source) wantLogs(ctx context.Context, l *link) {
	init := l.session.InitializeResult()
	if init == nil || init.Capabilities == nil || init.Capabilities.Logging == nil || init.ProtocolVersion >= perRequestLogs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_ = l.session.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: "info"}) // without it the default level applies
	}()
	select {
	case <-asked:
	case <-ctx.Done():
	}
}

// perRequestLogs is the version of MCP since which each request enables its log messages.
const perRequestLogs = "2026-07-28"

// endSession ends a session; its calls fail.
func (s *Source) endSession(l *link) {
	s.link.CompareAndSwap(l, nil)
	l.stop()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = l.session.Close() // the server may be gone
	}()
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case <-closed:
	case <-l.ended:
	case <-t.C:
	}
	l.wire.end()
	<-closed
	<-l.ended
}

// strayLog logs a log message that belongs to no call, or to one of several.
func (s *Source) strayLog(level, logger string, data arcp.Raw) {
	if !s.logged.Allow() {
		return
	}
	s.log.Debug().Str("level", level).Str("logger", clip.Ellipsis(logger, maxLogged)).
		Str("data", clip.Ellipsis(string(data), maxLogged)).Msg("an MCP server logs")
}

// openProcess starts the program of the server.
func (s *Source) openProcess(t *observer) (*wire, error) {
	p, err := startProcess(&s.cfg)
	if err != nil {
		return nil, err
	}
	return &wire{transport: stdio{p.Stdout, p, t, s.most, s.dropped}, end: p.end, exitError: p.exitError}, nil
}

func (s *Source) dropped(line []byte) {
	if !s.logged.Allow() {
		return
	}
	s.log.Debug().Str("line", clip.Ellipsis(string(line[:min(len(line), maxLogged)]), maxLogged)).Msg("an MCP server wrote something that is no message")
}

func (s *Source) openHTTP(h *headers, t *observer) (*wire, error) {
	if _, err := h.current(); err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(s.cfg.URL)
	if err != nil {
		return nil, errors.New("its URL cannot be read") // the error would repeat it
	}
	r := newRoundTripper(h, s.most)
	r.query, endpoint.RawQuery = endpoint.RawQuery, ""
	r.onNoStream = func() {
		s.log.Warn().Stringer("after", streamWait).Msg("an MCP server does not answer the request for its stream; the session goes on without it")
	}
	return &wire{
		transport: httpTransport{&sdk.StreamableClientTransport{Endpoint: endpoint.String(), HTTPClient: r.client(), MaxEventSize: maxMessage + 1<<10}, t},
		sending:   r.setVersion,
		end:       r.end,
		exitError: func(context.Context) error { return nil },
	}, nil
}
