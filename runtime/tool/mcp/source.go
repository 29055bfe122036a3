package mcp

//lint:file-ignore SA1019 servers of the versions in use log in the way that the next one will drop

import (
	"cmp"
	"context"
	"crypto/sha256"
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
// The goroutine of run owns all members but current and calls, which calls use.
type Source struct {
	cfg  Config
	log  zerolog.Logger
	open func(ob *observer) (*connection, error) // connects to the server

	current   atomic.Pointer[session] // nil: no session is open
	calls     callCount
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	done      sync.WaitGroup
	listed    chan struct{}   // closed after the first publication
	refreshes chan chan error // requests of Refresh, with the channel for the result
	publish   func([]*tool.Tool) error
	gate      *tool.Gate   // of the tools; opened when the server has answered for the first time
	restored  []*tool.Tool // of the saved list; not changed after Start has begun run

	publishing sync.Mutex // held by a publication
	answered   bool       // the tools of the server were published; guarded by publishing

	maxBytes   int           // of a message; tests change it
	logLimiter *rate.Limiter // of texts of the server
	state      string
	built      map[string]builtTool // tools of the last list, by published name
	saved      [sha256.Size]byte    // digest of the content of Config.ListFile; zero: not known
	lastTools  []*tool.Tool         // the last list, with tools whose names are taken; nil: no list
	faults     map[string]string    // logged faults of tools, by the server's name
	conflicts  int                  // tools of lastTools whose names are taken
	omitted    int                  // tools that are not published: conflicts and faults
}

var _ tool.Source = (*Source)(nil)

// connection is a program or an HTTP client that reaches the server.
type connection struct {
	transport sdk.Transport
	sending   sdk.Middleware              // of the SDK's client; nil: no middleware
	end       func()                      // ends the program and waits for its end, or cancels the HTTP requests
	exitError func(context.Context) error // returns the exit status of the program; nil: it runs, or is no program
}

// session is a session with the server.
type session struct {
	client    *sdk.ClientSession
	observer  *observer
	server    *connection
	questions atomic.Int64  // open elicitations
	changed   chan struct{} // capacity 1: the list of tools has changed
	ended     chan struct{} // closed at the end of the session
	ctx       context.Context
	cancel    context.CancelFunc // of ctx
}

// New returns a source that Start connects to its server. The error is an invalid configuration.
func New(c Config) (*Source, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("mcp server %s: %w", c.Name, err)
	}
	s := newSource(c)
	s.open = s.openProcess
	if c.URL != "" {
		h := newHeaders(c.HeadersFile)
		s.open = func(ob *observer) (*connection, error) { return s.openHTTP(h, ob) }
	}
	return s, nil
}

func newSource(c Config) *Source {
	s := &Source{cfg: c, log: c.Log.With().Str("mcp_server", c.Name).Logger(), listed: make(chan struct{}), refreshes: make(chan chan error),
		gate:   new(tool.Gate),
		faults: make(map[string]string), maxBytes: maxMessage, logLimiter: rate.NewLimiter(logRate, logBurst)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Name returns the name of the source.
func (s *Source) Name() string { return "mcp:" + s.cfg.Name }

// Prefix returns the prefix of the published names.
func (s *Source) Prefix() string { return s.cfg.Prefix }

// Start implements tool.Source. At the deadline of ctx it publishes the tools of Config.ListFile. It returns nil, or
// the error of that publication.
func (s *Source) Start(ctx context.Context, publish func([]*tool.Tool) error) error {
	s.publish = publish
	s.restore()
	s.done.Go(s.run)
	select {
	case <-s.listed:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return s.publishRestored()
		}
	}
	return nil
}

// Refresh lists the tools again and publishes them. Without a session it does nothing, because the
// next session lists the tools.
func (s *Source) Refresh(ctx context.Context) error {
	if s.current.Load() == nil {
		return nil
	}
	done := make(chan error, 1)
	select {
	case s.refreshes <- done:
	case <-s.ctx.Done():
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

// Close implements tool.Source. Jobs that wait for the server fail.
func (s *Source) Close() {
	s.cancel()
	s.done.Wait()
	s.gate.Open()
}

// run opens one session after another until Close.
func (s *Source) run() {
	defer func() {
		s.setState("")
		s.cfg.Metrics.addOmitted(-s.omitted)
	}()
	restarts := backoff.Backoff{Policy: restartBackoff}
	for s.ctx.Err() == nil {
		s.setState(stateStarting)
		begun := time.Now()
		err := s.runSession()
		if s.ctx.Err() != nil {
			return
		}
		restarts.Lasted(time.Since(begun))
		s.setState(stateWaiting)
		s.cfg.Metrics.restarted()
		pause := restarts.Next()
		s.log.Warn().Str("error", clip.Ellipsis(err.Error(), maxDescription)).Dur("again_in_ms", pause.Round(time.Millisecond)).
			Msg("the session with an MCP server has ended; another is begun")
		_ = backoff.Sleep(s.ctx, pause) // the loop checks ctx
	}
}

func (s *Source) setState(to string) {
	s.cfg.Metrics.setState(s.cfg.Name, s.state, to)
	s.state = to
}

// runSession opens a session and serves it until its end. The error is the reason for the end.
func (s *Source) runSession() error {
	sess, err := s.connect()
	if err != nil {
		return err
	}
	defer s.endSession(sess)
	if err := s.refresh(sess); err != nil {
		return fmt.Errorf("list its tools: %w", err)
	}
	s.current.Store(sess)
	s.gate.Open()
	s.setState(stateReady)
	select {
	case <-s.listed:
	default:
		close(s.listed)
	}
	return s.follow(sess)
}

// follow lists the tools again when they change, until the session ends.
func (s *Source) follow(sess *session) error {
	var due <-chan time.Time // time of the next list; nil: the list has not changed
	last := time.Now()
	silent := s.keepAlive(sess)
	for {
		changed := sess.changed
		if due != nil {
			changed = nil // the next list includes the change
		}
		select {
		case <-sess.ended:
			return cmp.Or(sess.server.exitError(s.ctx), errors.New("the server has ended it"))
		case <-s.ctx.Done():
			return context.Canceled
		case <-silent:
			return fmt.Errorf("it has not answered a ping for %s or more", missedPings*pingEvery)
		case <-changed:
			due = time.After(max(changeDelay, time.Until(last.Add(listEvery))))
		case result := <-s.refreshes:
			result <- s.refresh(sess)
		case <-due:
			due, last = nil, time.Now()
			if err := s.refresh(sess); err != nil && s.ctx.Err() == nil {
				s.log.Warn().Str("error", clip.Ellipsis(err.Error(), maxDescription)).Msg("the tools of an MCP server cannot be listed again; they stay as they are")
				due = time.After(listRetry)
			}
		}
	}
}

// keepAlive pings the server until the session ends. It closes the channel after missedPings without
// an answer. During a call it waits for the time limit of a call, because a single-threaded server
// does not answer meanwhile. The keepalive of the SDK cannot be used: it ends a session only
// after the calls under way.
func (s *Source) keepAlive(sess *session) (silent <-chan struct{}) {
	c := make(chan struct{})
	if init := sess.client.InitializeResult(); init != nil && init.ProtocolVersion >= versionWithoutPing {
		return c
	}
	s.done.Go(func() {
		t := time.NewTicker(pingEvery)
		defer t.Stop()
		answered := time.Now()
		for missed := 0; missed < missedPings || sess.observer.busy() && time.Since(answered) <= s.cfg.Limits.Timeout; missed++ {
			select {
			case <-t.C:
			case <-sess.ctx.Done():
				return
			}
			if sess.ping() {
				missed, answered = -1, time.Now()
			}
		}
		close(c)
	})
	return c
}

// versionWithoutPing is the version of MCP that removed pings.
const versionWithoutPing = "2026-07-28"

// ping reports whether the server answers a ping, also with an error.
func (sess *session) ping() bool {
	ctx, cancel := context.WithTimeout(sess.ctx, pingEvery/2)
	defer cancel()
	err := sess.client.Ping(ctx, nil)
	e, refused := errors.AsType[*jsonrpc.Error](err)
	return err == nil || refused && !isUnsent(e)
}

// refresh lists and publishes the tools.
func (s *Source) refresh(sess *session) error {
	select {
	case <-sess.changed: // this list includes the change
	default:
	}
	list, err := s.list(s.ctx, sess)
	if err != nil {
		return err
	}
	if err := s.publishAll(s.tools(list)); err != nil {
		return err
	}
	s.save(list)
	return nil
}

// connect opens a session.
func (s *Source) connect() (*session, error) {
	ctx, cancel := context.WithTimeoutCause(s.ctx, connectTimeout, fmt.Errorf("no session within %s", connectTimeout))
	defer cancel()
	sess := &session{observer: newObserver(s.logStray), changed: make(chan struct{}, 1), ended: make(chan struct{})}
	sess.ctx, sess.cancel = context.WithCancel(s.ctx)
	var err error
	if sess.server, err = s.open(sess.observer); err != nil {
		sess.cancel()
		return nil, err
	}
	if sess.client, err = s.handshake(ctx, sess); err != nil {
		if exit := sess.server.exitError(s.ctx); exit != nil {
			err = exit
		}
		sess.cancel()
		sess.server.end()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	s.done.Go(func() {
		_ = sess.client.Wait() // the reason is not used
		close(sess.ended)
	})
	s.enableLogs(ctx, sess)
	return sess, nil
}

// handshake performs the handshake of MCP. It returns when ctx ends, also if a write to the server
// blocks.
func (s *Source) handshake(ctx context.Context, sess *session) (*sdk.ClientSession, error) {
	type answer struct {
		session *sdk.ClientSession
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		session, err := s.client(sess).Connect(ctx, sess.server.transport, nil)
		answers <- answer{session: session, err: err}
	}()
	select {
	case a := <-answers:
		return a.session, a.err
	case <-ctx.Done():
		sess.server.end() // the handshake ends with the connection
		if a := <-answers; a.session != nil {
			_ = a.session.Close() // the timeout is the error
		}
		return nil, context.Cause(ctx)
	}
}

// client returns an MCP client that offers elicitation. The SDK refuses sampling and roots.
func (s *Source) client(sess *session) *sdk.Client {
	client := sdk.NewClient(&sdk.Implementation{Name: "arcpd", Version: s.cfg.Version}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{},
		ElicitationHandler: func(ctx context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			defer context.AfterFunc(sess.ctx, stop)() // the end of the session waits for the handler
			if sess.questions.Add(1) > maxQuestions {
				sess.questions.Add(-1)
				return s.tooManyQuestions(), nil
			}
			defer sess.questions.Add(-1)
			return s.elicit(ctx, sess.observer, req.Params)
		},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case sess.changed <- struct{}{}:
			default: // an earlier change is pending
			}
		},
	})
	if sess.server.sending != nil {
		client.AddSendingMiddleware(sess.server.sending)
	}
	return client
}

// enableLogs enables the log messages of a server that supports them.
func (s *Source) enableLogs(ctx context.Context, sess *session) {
	init := sess.client.InitializeResult()
	if init == nil || init.Capabilities == nil || init.Capabilities.Logging == nil || init.ProtocolVersion >= versionWithRequestLogs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = sess.client.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: "info"}) // after an error the default level applies
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// versionWithRequestLogs is the version of MCP in which each request enables its log messages.
const versionWithRequestLogs = "2026-07-28"

// endSession ends a session. The calls under way fail.
func (s *Source) endSession(sess *session) {
	s.current.CompareAndSwap(sess, nil)
	sess.cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = sess.client.Close() // the server may be gone
	}()
	t := time.NewTimer(closeGrace)
	defer t.Stop()
	select {
	case <-closed:
	case <-sess.ended:
	case <-t.C:
	}
	sess.server.end()
	<-closed
	<-sess.ended
}

// logStray logs a log message of the server that cannot be assigned to a call.
func (s *Source) logStray(level, logger string, data arcp.Raw) {
	if !s.logLimiter.Allow() {
		return
	}
	s.log.Debug().Str("level", level).Str("logger", clip.Ellipsis(logger, maxLogged)).
		Str("data", clip.Ellipsis(string(data), maxLogged)).Msg("an MCP server logs")
}

// openProcess starts the program of the server and returns its connection.
func (s *Source) openProcess(ob *observer) (*connection, error) {
	p, err := startProcess(&s.cfg)
	if err != nil {
		return nil, err
	}
	return &connection{
		transport: stdio{in: p.Stdout, out: p, observer: ob, maxBytes: s.maxBytes, dropped: s.logDropped},
		end:       p.end,
		exitError: p.exitError,
	}, nil
}

// logDropped logs a line of the program that is no message.
func (s *Source) logDropped(line []byte) {
	if !s.logLimiter.Allow() {
		return
	}
	s.log.Debug().Str("line", clip.Ellipsis(string(line[:min(len(line), maxLogged)]), maxLogged)).Msg("an MCP server wrote something that is no message")
}

// openHTTP returns a connection to the URL of the server. No request is sent before the handshake.
func (s *Source) openHTTP(h *headers, ob *observer) (*connection, error) {
	if _, err := h.current(); err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(s.cfg.URL)
	if err != nil {
		return nil, errors.New("its URL cannot be read") // err contains the URL
	}
	r := newRoundTripper(h, s.maxBytes)
	r.query, endpoint.RawQuery = endpoint.RawQuery, ""
	r.onNoStream = func() {
		s.log.Warn().Dur("after_ms", streamWait).Msg("an MCP server does not answer the request for its stream; the session continues without it")
	}
	return &connection{
		transport: httpTransport{
			StreamableClientTransport: &sdk.StreamableClientTransport{
				Endpoint:     endpoint.String(),
				HTTPClient:   r.client(),
				MaxEventSize: maxMessage + 1<<10,
			},
			observer: ob,
		},
		sending:   r.setVersion,
		end:       r.end,
		exitError: func(context.Context) error { return nil },
	}, nil
}
