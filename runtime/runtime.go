// Package runtime serves ARCP: it owns sessions, jobs and their events, and
// connects them to transports, credentials, tools and a store.
//
// Each connection has one loop, the goroutine that called Serve, and a reader.
// The loop never waits for the store or for a peer: a slow client costs itself
// and nobody else.
package runtime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/engine"
	"github.com/arcpd/arcpd/runtime/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/metrics"
	"github.com/arcpd/arcpd/runtime/session"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// Runtime serves any number of connections. Its methods may be called by many
// goroutines at once.
type Runtime struct {
	cfg           Config
	metrics       *metrics.Metrics
	log           *eventlog.Log
	engine        *engine.Engine
	pool          *pool.Pool // of readers and writers
	sessionConfig session.Config
	cursorKey     []byte
	broken        atomic.Pointer[error] // the store has failed

	mu        sync.Mutex
	limits    Limits
	stopping  bool // sessions are refused
	closing   bool // connections are too
	conns     map[*conn]struct{}
	sessions  map[arcp.SessionID]*conn
	principal map[string]int // sessions of each
	opening   map[string]int // connections before authentication, by address
	openings  int
	serving   sync.WaitGroup
}

// ErrShutdown is returned by Serve when the runtime is shutting down.
var ErrShutdown = errors.New("runtime is shutting down")

// New returns a runtime that owns cfg.Store from now on. Before it returns,
// every job that was running when the store was last closed has been given its
// end, so that nothing is served before.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.Store == nil || cfg.Auth == nil || cfg.Tools == nil {
		return nil, errors.New("runtime: Store, Auth and Tools are required")
	}
	r := &Runtime{cfg: cfg.withDefaults(), conns: make(map[*conn]struct{}), sessions: make(map[arcp.SessionID]*conn),
		principal: make(map[string]int), opening: make(map[string]int)}
	r.limits = r.cfg.Limits
	r.pool = pool.New()
	r.metrics = metrics.New(r.cfg.Registry, r.cfg.Version)
	r.sessionConfig = r.newSessionConfig()
	if err := r.registerBuiltins(); err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	r.log = eventlog.New(r.cfg.Store, eventlog.Options{OnCommit: r.onCommit, OnBroken: r.onBroken})
	r.engine = engine.New(engine.Config{Log: r.log, Store: r.cfg.Store, Tools: r.cfg.Tools, Metrics: r.metrics,
		Logger: r.cfg.Log, Heartbeat: r.cfg.Heartbeat, Block: r.cfg.HeartbeatBlock, ResumeWindow: r.cfg.ResumeWindow,
		Limits: r.cfg.Limits.engine()})
	if err := r.boot(ctx); err != nil {
		r.log.Close()
		return nil, fmt.Errorf("runtime: start on the store: %w", err)
	}
	return r, nil
}

func (r *Runtime) newSessionConfig() session.Config {
	recovery := "fail"
	if r.cfg.HeartbeatBlock {
		recovery = "block"
	}
	return session.Config{
		Handshake: r.cfg.HandshakeTimeout, ChallengeTTL: auth.ChallengeTTL, Lease: r.cfg.SessionLease,
		ResumeWindow: r.cfg.ResumeWindow, Heartbeat: r.cfg.Heartbeat,
		Runtime: arcp.RuntimeInfo{Kind: "arcp-go", Version: r.cfg.Version, Fingerprint: r.cfg.Fingerprint},
		Offer: arcp.Capabilities{
			Flags:             map[arcp.Feature]bool{arcp.FeatureDurableJobs: true, arcp.FeatureAnonymous: true},
			HeartbeatRecovery: recovery, HeartbeatInterval: heartbeatSeconds(r.cfg.Heartbeat),
			BinaryEncoding: []string{"base64"}, Extensions: []string{}, Encodings: []string{"json"},
			Features: []string{"ack", "list_jobs", "progress", "agent_versions"},
		},
	}
}

// heartbeatSeconds is what is advertised; 0, that is nothing, if off.
func heartbeatSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(max(d/time.Second, 1))
}

// boot recovers what an earlier process left.
func (r *Runtime) boot(ctx context.Context) error {
	key, err := r.secret(ctx, "list-cursor-key")
	if err != nil {
		return err
	}
	r.cursorKey = key
	n, err := r.engine.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover jobs: %w", err)
	}
	if n > 0 {
		r.cfg.Log.Warn().Int("jobs", n).Msg("jobs that had not ended when the runtime stopped have been failed")
	}
	return nil
}

// secret returns 32 random bytes that stay the same for the life of the store.
func (r *Runtime) secret(ctx context.Context, name string) ([]byte, error) {
	rec, err := r.cfg.Store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if rec.Rev != 0 {
		return rec.Value, nil
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	_, err = r.log.Commit(ctx, &store.Write{Records: []store.Record{{Key: name, Value: key}}})
	return key, err
}

func (r *Runtime) onCommit(events int, d time.Duration) {
	r.metrics.CommitSeconds.Observe(d.Seconds())
	r.metrics.BatchEvents.Observe(float64(events))
	r.metrics.EventsAppended.Add(float64(events))
}

func (r *Runtime) onBroken(err error) {
	r.broken.Store(&err)
	r.cfg.Log.Error().Err(err).Msg("the store has failed; nothing is accepted any more: restart the runtime once the cause is mended")
}

// SetLimits changes the limits. Whoever is over a new one keeps what it has; the
// rate applies to connections that come later.
func (r *Runtime) SetLimits(l Limits) {
	l = l.withDefaults()
	r.mu.Lock()
	r.limits = l
	r.mu.Unlock()
	r.engine.SetLimits(l.engine())
}

// rate is the limit for a new connection, in frames a minute.
func (r *Runtime) rate() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limits.Rate
}

// Go runs f on a goroutine of its own, one that is used again: meant for
// transport.Upgrader, where connections come and go.
func (r *Runtime) Go(f func()) { r.pool.Run(f) }

// Serve speaks with one peer until the connection ends, and closes it. It
// returns only when its goroutines have ended; the error says why the
// connection ended, nil if in order.
func (r *Runtime) Serve(tc transport.Conn) error {
	c := newConn(r, tc)
	if err := r.admit(c); err != nil {
		_ = tc.Close(transport.CloseOverloaded, err.Error()) // the refusal says it all
		return err
	}
	open := r.metrics.ConnectionsOpen.WithLabelValues(tc.Info().Kind)
	open.Inc()
	defer open.Dec()
	defer r.serving.Done()
	err := c.serve()
	if te, ok := errors.AsType[*transport.Error](err); ok && te.Remote {
		return nil
	}
	return err
}

// Ready reports whether new sessions are accepted, and if not, why.
func (r *Runtime) Ready() error {
	if err := r.broken.Load(); err != nil {
		return fmt.Errorf("store: %w", *err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return ErrShutdown
	}
	return nil
}

// admit counts a new connection, or refuses it.
func (r *Runtime) admit(c *conn) error {
	addr := c.address()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closing:
		return ErrShutdown
	case over(len(r.conns), r.limits.MaxConnections):
		return errors.New("too many connections")
	case over(r.openings, r.limits.MaxUnauthenticated):
		return errors.New("too many connections that are not authenticated")
	case addr != "" && over(r.opening[addr], r.limits.MaxUnauthenticatedPerIP):
		return errors.New("too many connections from this address that are not authenticated")
	}
	r.conns[c] = struct{}{}
	r.openings++
	if addr != "" {
		r.opening[addr]++
	}
	c.unproven = true
	r.serving.Add(1)
	return nil
}

func over(n, limit int) bool { return limit > 0 && n >= limit }

// address is what unauthenticated connections are counted by; empty for
// loopback and everything that is no network.
func (c *conn) address() string {
	addr := c.tc.Info().RemoteAddr
	if ip := net.ParseIP(addr); ip == nil || ip.IsLoopback() {
		return ""
	}
	return addr
}

// enter counts a session that is about to be made, or refuses it.
func (r *Runtime) enter(c *conn) *arcp.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.limits.MaxSessionsPerPrincipal
	if n := c.identity.Limits.Sessions; n > 0 {
		limit = n
	}
	switch {
	case r.stopping:
		return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(1)
	case over(len(r.sessions), r.limits.MaxSessions):
		r.metrics.RateLimited.WithLabelValues("sessions").Inc()
		return arcp.Errorf(arcp.CodeResourceExhausted, "too many sessions").RetryAfter(1)
	case over(r.principal[c.identity.Principal], limit):
		r.metrics.RateLimited.WithLabelValues("sessions_per_principal").Inc()
		return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d sessions of this principal reached", limit).RetryAfter(1)
	}
	r.sessions[c.id], c.owner = c, c.identity.Principal
	r.principal[c.identity.Principal]++
	r.proven(c)
	return nil
}

// proven takes a connection out of the unauthenticated ones; with r.mu.
func (r *Runtime) proven(c *conn) {
	if !c.unproven {
		return
	}
	c.unproven = false
	r.openings--
	if addr := c.address(); addr != "" {
		if r.opening[addr]--; r.opening[addr] == 0 {
			delete(r.opening, addr)
		}
	}
}

// exit takes a session out of the books; false if it is not in them.
func (r *Runtime) exit(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[c.id] != c {
		return false
	}
	delete(r.sessions, c.id)
	if r.principal[c.identity.Principal]--; r.principal[c.identity.Principal] == 0 {
		delete(r.principal, c.identity.Principal)
	}
	return true
}

// opened counts a session that exists.
func (r *Runtime) opened(c *conn) {
	c.counted = true
	r.metrics.Sessions.WithLabelValues("connected").Inc()
}

// lookup returns the connection of a principal's session, or nil.
func (r *Runtime) lookup(id arcp.SessionID, principal string) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.sessions[id]; c != nil && c.owner == principal {
		return c
	}
	return nil
}

// onDisconnectGrace is how long a session may be without a connection before
// its jobs that asked for it are cancelled.
const onDisconnectGrace = 5 * time.Second

// leave takes a connection that has ended off the books.
func (c *conn) leave() {
	c.readMail(time.Now()) // a session that came to be too late
	if c.cursor != nil {
		c.cursor.Close()
	}
	r := c.rt
	r.mu.Lock()
	delete(r.conns, c)
	r.proven(c)
	r.mu.Unlock()
	entered := r.exit(c)
	if c.counted {
		r.metrics.Sessions.WithLabelValues("connected").Dec()
	}
	if entered && r.engine.HasJobs(c.id) {
		time.AfterFunc(onDisconnectGrace, func() { r.engine.CancelSession(c.id, "session disconnected", false) })
	}
}

func (r *Runtime) countError(env *arcp.Envelope) {
	if e, err := arcp.DecodePayload[arcp.Error](env); err == nil {
		r.metrics.Errors.WithLabelValues(string(e.Code)).Inc()
	}
}

// Shutdown refuses new sessions and submits, gives running jobs until ctx ends,
// tells the sessions, ends the connections with 1001, and closes the store.
// Jobs that did not end are given their end by the next New on the same store.
// It is called once.
func (r *Runtime) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	r.engine.Stop(ctx)
	// What the jobs wrote last is given to the sessions before this returns; if
	// the store has failed, or time is up, there is nothing to wait for.
	_, _ = r.log.Commit(ctx, &store.Write{NoSync: true})
	r.mu.Lock()
	r.closing = true
	for c := range r.conns {
		c.post(func(now time.Time) { c.shutdown(now) })
	}
	r.mu.Unlock()
	r.serving.Wait()
	r.pool.Close()
	r.log.Close()
	return r.cfg.Store.Close()
}

func (c *conn) shutdown(now time.Time) {
	if c.m.Phase() == session.Accepted {
		c.pull(now) // what was given to the session before this
		c.send(now, arcp.Frame(arcp.SessionClose, arcp.SessionClosePayload{Reason: "shutdown"}))
	}
	c.closing = &session.Close{Code: int(transport.CloseGoingAway), Reason: "shutdown"}
}
