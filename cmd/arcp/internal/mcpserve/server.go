// Package mcpserve offers the tools of a runtime to MCP clients. It is an ARCP client of the runtime: a call
// becomes a job, a question of the job becomes an elicitation, and a change of the catalog a notification.
//
// One goroutine updates the catalog. Each call runs on a goroutine of the SDK. SPEC.md §7.9 defines the mapping.
package mcpserve

//lint:file-ignore SA1019 clients of the versions in use log in the way that the next one will drop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// Config configures a Server. The caller must not change it after New.
type Config struct {
	// Open opens a session with the runtime that reconnects. The Server calls it again after
	// the loss of the session. Open adds the credentials to the options.
	Open func(ctx context.Context, opts client.Options) (*client.Client, error)

	Tools   []string      // globs of the offered tools; empty: all but built-in tools
	Flat    bool          // the names of tools have no dots
	Timeout time.Duration // of a call, whose job continues; 0: no limit
	Version string
	Log     *slog.Logger // nil: no log
}

const (
	openTimeout    = 10 * time.Second
	refreshTimeout = time.Minute
	cancelTimeout  = 5 * time.Second
	refreshEvery   = time.Second      // minimum between two reads of the catalog
	refreshRetry   = 10 * time.Second // after a failure
	maxSessions    = 256              // of MCP clients over HTTP
	maxTools       = 10_000
	maxResult      = 16 << 20 // bytes of a result in parts
)

// protocols are the versions of MCP with elicitation during a call. Clients of newer versions fall back to these.
var protocols = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// builtin lists the prefixes of built-in tools, for runtimes that do not report the source of tools.
var builtin = []string{"registry.", "host.", "approval.", "tools.", "code.", "artifact.", "jobs.", "input.", "sessions."}

// Server offers the tools of a runtime to any number of MCP clients.
type Server struct {
	cfg       Config
	mcp       *sdk.Server
	ctx       context.Context
	cancelAll context.CancelCauseFunc
	done      sync.WaitGroup

	changed chan struct{} // capacity 1: the catalog has changed
	running running

	sessions   *sessionPool  // of clients over HTTP
	unassigned chan struct{} // semaphore of requests without a session
	opening    chan struct{} // mutex of session; has a token while unlocked

	mu      sync.Mutex
	client  *client.Client  // the latest session; nil: no session yet
	offered map[string]Tool // by MCP name
}

var errStopped = errors.New("the server has stopped")

// New opens a session with the runtime and reads the catalog.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, changed: make(chan struct{}, 1), offered: make(map[string]Tool),
		opening: make(chan struct{}, 1), sessions: newSessionPool(maxSessions),
		unassigned: make(chan struct{}, maxSessions)}
	s.opening <- struct{}{}
	s.running.jobs, s.running.changed = make(map[arcp.JobID]*call), make(chan struct{})
	s.ctx, s.cancelAll = context.WithCancelCause(context.Background())
	s.mcp = sdk.NewServer(&sdk.Implementation{Name: "arcpd", Title: "ARCP runtime", Version: cfg.Version}, &sdk.ServerOptions{
		Capabilities:              &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}, Tools: &sdk.ToolCapabilities{ListChanged: true}},
		SupportedProtocolVersions: protocols,
		Logger:                    cfg.Log,
	})
	s.mcp.AddReceivingMiddleware(s.countUses)
	if err := s.refresh(ctx); err != nil {
		s.Close()
		return nil, err
	}
	s.done.Go(s.updateCatalog)
	return s, nil
}

// Close cancels the calls under way, ends the sessions of clients, and ends the session with the runtime. It
// returns when the goroutines of the Server have ended.
func (s *Server) Close() {
	s.cancelAll(errStopped)
	within(cancelTimeout, s.running.calls.Wait)
	within(cancelTimeout, s.sessions.close)
	s.done.Wait()
	if c := s.current(); c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
		defer cancel()
		_ = c.CloseWith(ctx, client.CloseParams{Reason: "done", Forget: true}) // the end of the connection also ends the session
	}
}

// Pipe serves one client on a pair of streams until one of the streams or ctx ends.
func (s *Server) Pipe(ctx context.Context, in io.Reader, out io.Writer) error {
	// The end of the input ends the calls, which the end of the session waits for.
	session, err := s.mcp.Connect(ctx,
		&sdk.IOTransport{Reader: endNotifier{in, func() { s.cancelAll(errGone) }}, Writer: withoutClose{out}}, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		s.cancelAll(errGone) // the end of the session waits for the calls
		_ = session.Close()  // the reason is the cause of ctx
		<-ended
		err = context.Cause(ctx)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

var errGone = errors.New("the MCP client has gone")

// endNotifier calls ended at the end of its reader.
type endNotifier struct {
	io.Reader
	ended func()
}

func (r endNotifier) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		r.ended()
	}
	return n, err
}

func (endNotifier) Close() error { return nil }

type withoutClose struct{ io.Writer }

func (withoutClose) Close() error { return nil }

// current returns the latest session, or nil.
func (s *Server) current() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// session returns the session with the runtime. It opens another session after a loss.
func (s *Server) session(ctx context.Context) (*client.Client, error) {
	if c := s.current(); c != nil && c.Err() == nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	select {
	case <-s.opening:
		defer func() { s.opening <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c := s.current(); c != nil && c.Err() == nil {
		return c, nil // another goroutine has opened the session
	}
	c, err := s.cfg.Open(ctx, s.options())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = c
	return c, nil
}

func (s *Server) options() client.Options {
	return client.Options{
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{arcp.FeatureStreaming: true, arcp.FeatureDurableJobs: true,
			arcp.FeatureHeartbeat: true, arcp.FeatureAck: true, arcp.FeatureHumanInput: true}},
		AckEvery:   128,
		OnEnvelope: s.watch,
		Handlers:   client.Handlers{Permission: s.permission, Input: s.input, Choice: s.choice, By: "mcp"},
		Log:        func(msg string, args ...any) { s.cfg.Log.Debug(msg, args...) },
	}
}

// watch handles the event tools.changed, on the reader of the client. It returns false for other events.
func (s *Server) watch(env *arcp.Envelope) bool {
	if env.Type != arcp.EventEmit || env.JobID != "" {
		return false
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](env)
	if err != nil || p.Name != arcp.EventToolsChanged {
		return false
	}
	select {
	case s.changed <- struct{}{}:
	default: // an earlier change is pending
	}
	return true
}

// updateCatalog reads the catalog after each change and in each new session, until Close.
func (s *Server) updateCatalog() {
	for known := s.current(); ; known = s.current() {
		select {
		case <-s.ctx.Done():
			return
		case <-s.changed:
		case <-known.Done():
		}
		pause := refreshEvery
		if err := s.refresh(s.ctx); err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Warn("the runtime's tools cannot be read; they stay as they are", "error", err)
			pause = refreshRetry
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// refresh reads the catalog and offers the selected tools. The SDK notifies the clients.
func (s *Server) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	c, err := s.session(ctx)
	if err != nil {
		return err
	}
	list, err := catalog(ctx, c)
	if err != nil {
		return err
	}
	next := make(map[string]Tool)
	for _, t := range list {
		name := s.name(t.Name)
		switch _, taken := next[name]; {
		case !s.isOffered(t):
		case taken:
			s.cfg.Log.Warn("a tool is not offered: another one has its name", "tool", t.Name, "name", name)
		case len(next) == maxTools:
			s.cfg.Log.Warn("a tool is not offered: there are too many", "tool", t.Name)
		default:
			next[name] = t
		}
	}
	if slices.ContainsFunc(list, func(t Tool) bool { return t.Source != "" }) {
		if err := describeAll(ctx, c, next); err != nil {
			return err
		}
	}
	s.offer(next)
	return nil
}

// offer updates the tools of the SDK.
func (s *Server) offer(next map[string]Tool) {
	s.mu.Lock()
	old := s.offered
	s.offered = next
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if before, ok := old[name]; !ok || !before.same(next[name]) {
			s.add(name, next[name])
		}
	}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(old)), func(name string) bool { _, ok := next[name]; return ok })
	s.mcp.RemoveTools(gone...)
}

// add offers a tool. It logs and omits a tool that the SDK refuses.
func (s *Server) add(name string, t Tool) {
	defer func() {
		if v := recover(); v != nil {
			s.cfg.Log.Warn("a tool is not offered: MCP has no place for its schemas", "tool", t.Name, "reason", v)
		}
	}()
	s.mcp.AddTool(t.describe(name), func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return s.call(ctx, t, req)
	})
}

// isOffered reports whether the configuration selects a tool.
func (s *Server) isOffered(t Tool) bool {
	if len(s.cfg.Tools) > 0 {
		return slices.ContainsFunc(s.cfg.Tools, func(g string) bool {
			ok, _ := path.Match(g, t.Name) // the pattern is checked
			return ok
		})
	}
	if t.Source != "" {
		return t.Source != "builtin"
	}
	return !slices.ContainsFunc(builtin, func(p string) bool { return strings.HasPrefix(t.Name, p) })
}
