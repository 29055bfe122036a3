// Package conn serves connections: the handshake, the messages of a client, and the events
// that it is sent.
//
// A connection has a reader, a loop and a writer. The reader is the goroutine that called
// Serve. The loop takes turns, one after the other, on a goroutine of the pool while there is
// something to do. Only the loop touches the state of the connection, and it never waits:
// reads of the store and authenticators run on other goroutines. Everything reaches the loop by
// one queue, the inbox, except answers and events, which the session's cursor orders. The writer
// exists while there is something to write. An idle connection costs the reader only.
package conn

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/jobs"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/internal/worker"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// Server serves any number of connections. Its methods may be called by any goroutine.
type Server struct {
	opts          Options
	sessionConfig machine.Config // while credentials are required
	publicConfig  machine.Config // while anonymous clients are accepted
	announcer     announcer
	shares        shares
	gate          *transport.Gate
	gateLog       zerolog.Logger // sampled: refused connections

	mu       sync.Mutex
	limits   Limits
	stopping bool // sessions are refused
	closing  bool // connections are too
	conns    map[*conn]struct{}
	serving  sync.WaitGroup
}

// Options of a Server. runtime.Config documents the durations and bounds.
type Options struct {
	Store     store.Store
	Auth      *auth.Set
	Log       *eventlog.Log
	Engine    *engine.Engine
	Sessions  *session.Directory
	Questions *questions.Broker
	Workers   *worker.Pool
	Vault     *credential.Vault // nil: there are no provisioners
	Jobs      *jobs.Reader
	Builtin   *builtin.Tools
	Metrics   *metrics.Metrics
	Pool      *pool.Pool
	Audit     audit.Log
	Logger    zerolog.Logger
	Full      func() bool // reports whether the disk is nearly full
	Broken    func() bool // reports whether the store has failed

	Version, Fingerprint string
	HandshakeTimeout     time.Duration
	SessionLease         time.Duration
	SessionIdle          time.Duration
	ResumeWindow         time.Duration
	Heartbeat            time.Duration
	HeartbeatBlock       bool
	MaxFrame             int64
	AckWindow            int
	ReplayEvents         int
	ReplayBytes          int64
	Provisions           bool // jobs may be given credentials
	MaxFollows           int  // jobs of other sessions that a session follows; 0: DefaultMaxFollows

	Limits Limits
}

// Limits bound the connections, sessions and frames of clients; see runtime.Limits.
type Limits struct {
	Connections transport.GateLimits
	Sessions    session.Limits
	Rate        int // frames a minute of a connection; not positive: any number
}

// ErrShutdown is returned by Serve when the runtime is shutting down.
var ErrShutdown = errors.New("runtime is shutting down")

// NewServer returns a server.
func NewServer(o Options) *Server {
	s := &Server{opts: o, limits: o.Limits, conns: make(map[*conn]struct{})}
	if s.opts.MaxFollows == 0 {
		s.opts.MaxFollows = DefaultMaxFollows
	}
	s.gateLog = o.Logger.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	s.gate = transport.NewGate(o.Limits.Connections, s.logRefusedConnection)
	s.announcer.srv = s
	s.sessionConfig, s.publicConfig = s.newSessionConfig(false), s.newSessionConfig(true)
	return s
}

// Gate returns the gate that enforces Limits.Connections.
func (s *Server) Gate() *transport.Gate { return s.gate }

// SetLimits changes the limits. Sessions above a new limit continue; the rate applies to later
// connections.
func (s *Server) SetLimits(l Limits) {
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
	s.gate.SetLimits(l.Connections)
}

// rate returns the limit of a new connection, in frames a minute.
func (s *Server) rate() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits.Rate
}

// Stopping reports whether new sessions are refused.
func (s *Server) Stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// Stop makes the server refuse new sessions.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.announcer.stop()
}

// Close tells the clients that the runtime shuts down, closes the connections, and waits for
// them. New ones are refused.
func (s *Server) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	for _, c := range s.connections() {
		c.inbox.post(shutdown{})
	}
	s.serving.Wait()
}

// connections returns the open connections.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// ToolsChanged makes the connections look at their catalogues soon.
func (s *Server) ToolsChanged(generation uint64) { s.announcer.changed(generation) }

// sessionOffer returns the configuration for a new connection.
func (s *Server) sessionOffer() *machine.Config {
	if s.opts.Auth.Offers(auth.None) {
		return &s.publicConfig
	}
	return &s.sessionConfig
}

func (s *Server) newSessionConfig(anonymous bool) machine.Config {
	recovery := "fail"
	if s.opts.HeartbeatBlock {
		recovery = "block"
	}
	return machine.Config{
		Handshake: s.opts.HandshakeTimeout, ChallengeTTL: auth.ChallengeTTL, Lease: s.opts.SessionLease, Idle: s.opts.SessionIdle,
		ResumeWindow: s.opts.ResumeWindow, Heartbeat: s.opts.Heartbeat,
		Runtime: arcp.RuntimeInfo{Kind: "arcp-go", Version: s.opts.Version, Fingerprint: s.opts.Fingerprint},
		Cache:   &capabilityCache{},
		Offer: arcp.Capabilities{
			Flags: map[arcp.Feature]bool{arcp.FeatureDurableJobs: true, arcp.FeatureAnonymous: anonymous,
				arcp.FeatureCheckpoints: true, arcp.FeatureSubscriptions: true, arcp.FeatureHumanInput: true,
				arcp.FeatureInterrupt: true, arcp.FeatureModelUse: true, arcp.FeatureExecutes: true,
				arcp.FeatureProvisionedCredentials: s.opts.Provisions},
			HeartbeatRecovery: recovery, HeartbeatInterval: heartbeatSeconds(s.opts.Heartbeat),
			AckWindow:      uint32(min(max(s.opts.AckWindow, 0), math.MaxUint32)),
			BinaryEncoding: []string{"base64"}, Extensions: []string{}, Encodings: []string{"json"},
			Features: []string{"heartbeat", "ack", "list_jobs", "subscribe", "progress", "result_chunk", "agent_versions", "refresh", "executes",
				"lease_expires_at", "cost.budget", "model.use"},
		},
	}
}

// heartbeatSeconds returns the interval that is advertised; 0, which is left out, if it is off.
func heartbeatSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(max(d/time.Second, 1))
}

// Serve serves one client until the connection ends, and closes it. When ctx ends, the
// client is told session.close and the connection is closed; the session can be resumed.
// Serve returns when the goroutines of the connection have ended. The error is the reason
// why the connection ended, nil if the peer closed it.
//
// program is the peer if the runtime started it; else nil.
func (s *Server) Serve(ctx context.Context, tc transport.Conn, program *Program) error {
	// This frame stays on the stack while the connection is idle: most of its memory is stacks.
	c, err := s.begin(tc, program)
	if err != nil {
		return err
	}
	defer s.ended(c)
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { c.inbox.post(shutdown{}) })()
	}
	err = c.serve()
	if te, ok := errors.AsType[*transport.Error](err); ok && te.Remote {
		return nil
	}
	return err
}

// begin counts a connection, or refuses it.
func (s *Server) begin(tc transport.Conn, program *Program) (*conn, error) {
	c := newConn(s, tc)
	c.principal.program = program
	if err := s.admit(c); err != nil {
		_ = tc.Close(transport.CloseOverloaded, err.Error()) // the refusal is the error
		return nil, err
	}
	s.opts.Metrics.ConnectionsOpen.WithLabelValues(tc.Info().Kind).Inc()
	return c, nil
}

// ended is called when a connection that begin has counted is closed.
func (s *Server) ended(c *conn) {
	s.opts.Metrics.ConnectionsOpen.WithLabelValues(c.tc.Info().Kind).Dec()
	s.serving.Done()
}

// admit counts a new connection, or refuses it.
func (s *Server) admit(c *conn) error {
	if err := s.countConnection(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		c.handshake.releasePass()
		return ErrShutdown
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return nil
}

// countConnection counts a connection in the gate unless the listener has counted it. For
// a connection through a proxy it sets the address that the proxy reported.
func (s *Server) countConnection(c *conn) error {
	info := c.tc.Info()
	if c.handshake.pass = info.Pass; c.handshake.pass != nil {
		return s.reportRefusal(c.handshake.pass.From(info.RemoteAddr))
	}
	pass, err := s.gate.Enter(info.RemoteAddr)
	c.handshake.pass = pass
	return s.reportRefusal(err)
}

// reportRefusal counts and logs err if it is a *transport.GateError. It returns err.
func (s *Server) reportRefusal(err error) error {
	if e, ok := errors.AsType[*transport.GateError](err); ok {
		s.logRefusedConnection(e)
	}
	return err
}

func (s *Server) logRefusedConnection(e *transport.GateError) {
	s.opts.Metrics.RateLimited.WithLabelValues(e.Limit).Inc()
	s.gateLog.Warn().Str("remote", e.Address).Err(e).Msg("connections are refused; more are not logged for a minute")
}

// releasePass removes the connection from the gate. A connection that the listener has counted
// leaves the gate when it is closed.
func (h *handshake) releasePass() {
	if h.c.tc.Info().Pass == nil {
		h.pass.Leave()
	}
}

// enter opens a session in the directory, or refuses it.
func (s *Server) enter(c *conn) *arcp.Error {
	if err := s.available(); err != nil {
		return err
	}
	if s.opts.Full() {
		return nearlyFull()
	}
	s.mu.Lock()
	limits := s.limits.Sessions
	s.mu.Unlock()
	if n := c.principal.identity.Limits.Sessions; n > 0 {
		limits.PerPrincipal = n
	}
	own, evicted, full := s.opts.Sessions.Open(c.id, c.principal.identity.Principal, c.handshake.begun, c.m.Has(arcp.FeatureAck), (*sessionConn)(c), limits)
	if full != nil {
		s.opts.Metrics.RateLimited.WithLabelValues(full.Limit).Inc()
		return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d %s reached", full.N, strings.ReplaceAll(full.Limit, "_", " ")).RetryAfter(1)
	}
	if evicted {
		s.opts.Metrics.Evictions.WithLabelValues("limit").Inc()
	}
	c.session = own
	c.handshake.pass.Authenticated()
	return nil
}

// available refuses sessions while the runtime shuts down.
func (s *Server) available() *arcp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(1)
	}
	return nil
}

// onDisconnectGrace is the time that a session may be without a connection before its jobs with
// on_disconnect "cancel" are cancelled.
const onDisconnectGrace = 5 * time.Second

// leave detaches a connection that has ended from its session and from the server.
func (c *conn) leave() {
	now := time.Now()
	messages, _ := c.inbox.takeMessages()
	for _, m := range messages { // for example a session that was established too late
		m.handle(c, now)
	}
	c.subscriptions.close()
	s := c.srv
	c.worker.detach()
	var written uint64
	if c.cursor != nil {
		written = c.cursor.Position()
		c.cursor.Close()
		c.ack.trim()
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.handshake.releasePass()
	if c.session == nil || !c.session.Detach((*sessionConn)(c), now) {
		return
	}
	c.ack.save()
	if !c.ack.acks {
		s.opts.Log.Free(c.id, written)
	}
	if s.opts.Engine.HasJobs(c.id) {
		s.CancelAfterGrace(c.id, now)
	}
}

// CancelAfterGrace cancels the jobs of a session with on_disconnect "cancel" if it stays without a
// connection. since is when it lost its connection.
func (s *Server) CancelAfterGrace(id arcp.SessionID, since time.Time) {
	time.AfterFunc(onDisconnectGrace, func() { s.abandoned(id, since) })
}

// abandoned cancels the jobs with on_disconnect "cancel" unless the session has, or has had, a
// connection since then.
func (s *Server) abandoned(id arcp.SessionID, since time.Time) {
	if own := s.opts.Sessions.Find(id); own != nil {
		if detached, ok := own.DetachedSince(); !ok || !detached.Equal(since) {
			return
		}
	}
	s.opts.Engine.CancelSession(id, "session disconnected", false)
}

// countError counts an error by its code.
func (s *Server) countError(env *arcp.Envelope) {
	if e, err := arcp.DecodePayload[arcp.Error](env); err == nil {
		s.opts.Metrics.Errors.WithLabelValues(string(e.Code)).Inc()
	}
}

// nearlyFull refuses an operation that needs room in the store.
func nearlyFull() *arcp.Error {
	return arcp.Errorf(arcp.CodeResourceExhausted, "the disk of the runtime is nearly full").RetryAfter(30)
}
