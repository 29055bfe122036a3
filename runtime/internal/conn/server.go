package conn

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/internal/worker"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// Server serves any number of connections. Its methods may be called by any goroutine.
type Server struct {
	opts           Options
	machineConfigs machineConfigs
	toolsNotifier  toolsNotifier
	limiters       principalLimiters
	secrets        frameSecrets
	inventory      inventoryBound
	gate           *transport.Gate
	gateLog        zerolog.Logger // sampled: refused connections

	mu       sync.Mutex
	limits   Limits
	stopping bool // new sessions are refused
	closing  bool // new connections are refused
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
	Artifacts Artifacts
	Vault     *credential.Vault // nil: there are no provisioners
	Jobs      *jobview.Reader
	Builtin   *builtin.Tools
	Metrics   *metrics.Metrics
	Pool      *pool.Pool
	Audit     audit.Log
	Logger    zerolog.Logger
	Tracer    *tracing.Tracer // nil: no spans
	Full      func() bool     // reports whether the disk has no space for sessions
	Broken    func() bool     // reports whether the store has failed

	Runtime          arcp.RuntimeInfo // shown in session.accepted; without a trust level
	HandshakeTimeout time.Duration
	SessionLease     time.Duration
	SessionIdle      time.Duration
	ResumeWindow     time.Duration
	Heartbeat        time.Duration
	HeartbeatBlock   bool
	MaxFrame         int64
	AckWindow        int
	ReplayEvents     int
	ReplayBytes      int64
	Provisions       bool   // there are provisioners of credentials
	DraftProfile     string // of the clients of the draft dialect that are not recognised; "": universal

	Limits Limits
}

// Artifacts are the artifacts of the runtime.
type Artifacts struct {
	*artifact.Store
	Links *artifact.Links // nil: the runtime issues no links
}

// Limits bound the connections, sessions and frames of clients; see runtime.Limits.
type Limits struct {
	Connections transport.GateLimits
	Sessions    session.Limits
	Rate        int // frames a minute of a connection; not positive: no bound
	Follows     int // followed jobs of a session; 0: DefaultMaxFollows. It does not change
}

// ErrShutdown is returned by Serve when the runtime is shutting down.
var ErrShutdown = errors.New("runtime is shutting down")

// CheckDraftProfile returns an error if there is no profile with the name. "" is valid.
func CheckDraftProfile(name string) error {
	if name == "" {
		return nil
	}
	_, err := draft.ParseProfile(name)
	return err
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	s := &Server{opts: o, limits: o.Limits, secrets: frameSecrets{o.Vault}, conns: make(map[*conn]struct{})}
	if o.Jobs != nil { // nil: a test
		s.inventory.isBuiltin = o.Jobs.IsBuiltin
	}
	if s.opts.Limits.Follows == 0 {
		s.opts.Limits.Follows = DefaultMaxFollows
	}
	s.gateLog = o.Logger.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	s.gate = transport.NewGate(o.Limits.Connections, s.logRefusedConnection)
	s.toolsNotifier.srv = s
	s.machineConfigs = s.newMachineConfigs()
	return s
}

// Gate returns the gate that enforces Limits.Connections.
func (s *Server) Gate() *transport.Gate { return s.gate }

// SetLimits changes the limits. Sessions above a new limit continue. The rate applies to new
// connections.
func (s *Server) SetLimits(l Limits) {
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
	s.gate.SetLimits(l.Connections)
}

// rate returns Limits.Rate.
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
	s.toolsNotifier.stop()
}

// Close sends session.close to the clients, closes the connections, and returns when they are
// closed. New connections are refused.
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

// ToolsChanged makes the connections compare their catalogs soon. It does not block.
func (s *Server) ToolsChanged(generation uint64) { s.toolsNotifier.changed(generation) }

// newMachineConfig returns the times and the capabilities that the runtime offers. sidecar is of
// connections with binary frames.
func (s *Server) newMachineConfig(anonymous, sidecar bool) machine.Config {
	recovery := "fail"
	if s.opts.HeartbeatBlock {
		recovery = "block"
	}
	return machine.Config{
		Handshake: s.opts.HandshakeTimeout, ChallengeTTL: auth.ChallengeTTL, Lease: s.opts.SessionLease, Idle: s.opts.SessionIdle,
		ResumeWindow: s.opts.ResumeWindow, Heartbeat: s.opts.Heartbeat,
		Runtime: s.opts.Runtime,
		Cache:   &capabilityCache{},
		Offer: arcp.Capabilities{
			Flags: map[arcp.Feature]bool{arcp.FeatureDurableJobs: true, arcp.FeatureAnonymous: anonymous,
				arcp.FeatureCheckpoints: true, arcp.FeatureStreaming: true, arcp.FeatureSubscriptions: true, arcp.FeatureHumanInput: true,
				arcp.FeatureInterrupt: true, arcp.FeatureModelUse: true, arcp.FeatureArtifacts: true, arcp.FeatureExecutes: true,
				arcp.FeatureMetrics:                true,
				arcp.FeatureBinaryStreams:          sidecar,
				arcp.FeatureScheduledJobs:          true,
				arcp.FeatureArtifactRedirect:       s.opts.Artifacts.Links != nil,
				arcp.FeatureProvisionedCredentials: s.opts.Provisions},
			HeartbeatRecovery: recovery, HeartbeatInterval: heartbeatSeconds(s.opts.Heartbeat),
			AckWindow: uint32(min(max(s.opts.AckWindow, 0), math.MaxUint32)),
			Retention: &arcp.ArtifactRetention{
				DefaultSeconds: uint64(artifact.DefaultRetention / time.Second),
				MaxSeconds:     uint64(artifact.MaxRetention / time.Second),
			},
			BinaryEncoding: binaryEncodings(sidecar), Extensions: []string{}, Encodings: []string{"json"},
			Features: []string{"heartbeat", "ack", "list_jobs", "subscribe", "progress", "result_chunk", "agent_versions", "refresh", "executes",
				"lease_expires_at", "cost.budget", "model.use"},
		},
	}
}

// heartbeatSeconds returns the advertised interval; 0, which is omitted, if heartbeats are off.
func heartbeatSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(max(d/time.Second, 1))
}

// Serve serves one connection and closes it. When ctx ends, it sends session.close and closes the
// connection; the session can be resumed. Serve returns when the goroutines of the connection have
// ended. The error is the reason why the connection ended; nil if the peer closed it.
//
// program is the peer if the runtime has started it; otherwise nil.
func (s *Server) Serve(ctx context.Context, tc transport.Conn, program *Program) error {
	// Small stack frame: most memory of an idle connection is the stack of this goroutine.
	c, err := s.accept(tc, program)
	if err != nil {
		return err
	}
	defer s.unregister(c)
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { c.inbox.post(shutdown{}) })()
	}
	err = c.run()
	logEnd(c)
	if te, ok := errors.AsType[*transport.Error](err); ok && te.Remote {
		return nil
	}
	return err
}

// logEnd logs the end of a connection.
func logEnd(c *conn) {
	ev := c.srv.opts.Logger.Debug()
	if !ev.Enabled() {
		return
	}
	if c.session.Session != nil {
		ev = ev.Str("session_id", string(c.id)).Str("principal", c.principal.identity.Principal)
	}
	if closing := c.ending.close; closing == nil {
		ev = ev.AnErr("reason", c.ending.err)
	} else {
		ev = addText(ev, "reason", closing.Reason)
	}
	info := c.tc.Info()
	ev = addText(ev, "remote", info.RemoteAddr)
	ev.Str("transport", info.Kind).
		Dur("duration_ms", time.Since(c.handshake.startedAt)).Msg("connection ended")
}

// accept returns a new connection. It closes tc if the connection is refused.
func (s *Server) accept(tc transport.Conn, program *Program) (*conn, error) {
	c := newConn(s, tc)
	c.principal.program = program
	if err := s.register(c); err != nil {
		_ = tc.Close(transport.CloseOverloaded, err.Error()) // the refusal is the error
		return nil, err
	}
	s.opts.Metrics.ConnectionsOpen.WithLabelValues(tc.Info().Kind).Inc()
	return c, nil
}

// unregister removes a closed connection.
func (s *Server) unregister(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.handshake.releasePass()
	s.opts.Metrics.ConnectionsOpen.WithLabelValues(c.tc.Info().Kind).Dec()
	s.serving.Done()
}

// register adds a connection, or refuses it.
func (s *Server) register(c *conn) error {
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

// countConnection counts a connection in the gate, unless the listener has counted it. Then it
// sets the address of the client, which a proxy may have reported.
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

// logRefusedConnection counts and logs a connection that the gate has refused.
func (s *Server) logRefusedConnection(e *transport.GateError) {
	s.opts.Metrics.RateLimited.WithLabelValues(e.Limit).Inc()
	s.gateLog.Warn().Str("remote", e.Address).Err(e).Msg("connections are refused; more are not logged for a minute")
}
