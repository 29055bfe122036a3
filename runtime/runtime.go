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
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/jobs"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/resources"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/internal/worker"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// Runtime serves any number of connections. Its methods may be called by many
// goroutines at once.
type Runtime struct {
	questions *questions.Broker
	jobs      *jobs.Reader
	builtin   *builtin.Tools
	vault     *credential.Vault // nil: there are no provisioners
	resources *resources.Service
	catalog   *tool.Catalog
	announcer announcer
	host      *host.Host
	agents    *agents.Service
	workers   *worker.Pool

	cfg           Config
	metrics       *metrics.Metrics
	log           *eventlog.Log
	engine        *engine.Engine
	pool          *pool.Pool     // of readers and writers
	sessionConfig machine.Config // while nobody comes in without credentials
	publicConfig  machine.Config // while somebody may
	cursors       *paging.Cursors
	audit         audit.Log
	broken        atomic.Pointer[error] // the store has failed
	full          atomic.Bool           // the disk is nearly full

	sessions *session.Directory
	janitor  *janitor
	shares   shares
	space    *spaceWatch
	older    chan struct{} // buffered 1: the log has something to measure

	maxFollows int // see defaultMaxFollows

	gate    *transport.Gate
	gateLog zerolog.Logger // sampled: refused connections

	upgradeLog zerolog.Logger // sampled: refused handshakes

	mu       sync.Mutex
	limits   Limits
	stopping bool // sessions are refused
	closing  bool // connections are too
	conns    map[*conn]struct{}
	serving  sync.WaitGroup
}

// ErrShutdown is returned by Serve when the runtime is shutting down.
var ErrShutdown = errors.New("runtime is shutting down")

// New returns a runtime that owns cfg.Store from now on. Before it returns,
// every job that was running when the store was last closed has been given its
// end, so that nothing is served before.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.Store == nil || cfg.Auth == nil {
		return nil, errors.New("runtime: Config.Store and Config.Auth are required")
	}
	r := &Runtime{cfg: cfg.withDefaults(), conns: make(map[*conn]struct{}), older: make(chan struct{}, 1),
		maxFollows: defaultMaxFollows}
	r.limits = r.cfg.Limits
	r.audit = audit.New(r.cfg.Log)
	r.pool = pool.New()
	r.metrics = metrics.New(r.cfg.Registry, r.cfg.Version)
	r.gateLog = r.cfg.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	r.upgradeLog = r.cfg.Log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	r.gate = transport.NewGate(r.limits.gate(), r.logRefusedConnection)
	r.announcer.rt = r
	r.catalog = tool.NewCatalog(r.cfg.Tools, r.cfg.Hooks)
	r.sessionConfig, r.publicConfig = r.newSessionConfig(false), r.newSessionConfig(true)
	slots := new(tool.Slots)
	r.workers = worker.New(worker.Config{Tools: r.cfg.Tools, Slots: slots, Recount: func(ref string) { r.engine.Recount(ref) },
		Metrics: r.metrics, Logger: r.cfg.Log, Heartbeat: r.cfg.Heartbeat})
	r.log = eventlog.New(r.cfg.Store, eventlog.Options{OnCommit: r.onCommit, OnBroken: r.onBroken,
		BacklogBytes: max(r.cfg.BacklogBytes, 0), OnOverflow: r.onOverflow, OnOlder: r.onOlder,
		CommitDelay: r.cfg.CommitDelay})
	r.sessions = session.NewDirectory(session.Options{Store: r.cfg.Store, Log: r.log, Catalog: r.catalog, Logger: r.cfg.Log, Count: r.metrics.SetSessions})
	r.agents = agents.New(agents.Options{Store: r.cfg.Store, Log: r.log, Sessions: r.sessions, Workers: r.workers, Auth: r.cfg.Auth,
		Metrics: r.metrics, Logger: r.cfg.Log, Audit: r.audit, Retention: r.cfg.Retention})
	r.host = r.agents.Host
	r.questions = questions.New(questions.Options{Store: r.cfg.Store, Changes: r.changes(), Sessions: r.sessions, Host: r.host,
		Metrics: r.metrics, Logger: r.cfg.Log, Audit: r.audit})
	if err := r.newVault(); err != nil {
		r.log.Close()
		return nil, fmt.Errorf("runtime: %w", err)
	}
	var err error
	if r.resources, err = resources.New(resources.Options{Store: r.cfg.Store, Changes: r.changes(), Logger: r.cfg.Log, Metrics: r.metrics,
		Host: r.host, Questions: r.questions, Lives: r.sessions.Lives, Broken: func() bool { return r.broken.Load() != nil },
		Handlers: r.cfg.Handlers, Dir: r.cfg.ResourceDir, ReapEvery: r.cfg.ReapEvery, Retention: r.cfg.Retention}); err != nil {
		r.closeVault()
		r.log.Close()
		return nil, fmt.Errorf("runtime: %w", err)
	}
	r.engine = engine.New(engine.Config{Log: r.log, Vault: r.vault, Resources: r.resources, Store: r.cfg.Store, Tools: r.cfg.Tools, Metrics: r.metrics,
		Logger: r.cfg.Log, Heartbeat: r.cfg.Heartbeat, Block: r.cfg.HeartbeatBlock, ResumeWindow: r.cfg.ResumeWindow,
		Slots: slots, Runs: r.workers.Runs, Full: r.full.Load, Questions: r.questions, Catalogue: r.sessions.Catalogue, RequireModelLease: r.cfg.RequireModelLease, PreemptExpired: r.cfg.PreemptExpired,
		Limits: r.cfg.Limits.engine()})
	r.questions.Connect(r.engine.Offer)
	r.resources.Connect(r.engine)
	r.sessions.Connect(r.engine, r.host.EndSession, r.resources.Store.EndSession, r.questions.EndSession)
	r.space = newSpaceWatch(r)
	if err := r.boot(ctx); err != nil {
		r.resources.Close()
		r.closeVault()
		r.log.Close()
		return nil, fmt.Errorf("runtime: start on the store: %w", err)
	}
	now := time.Now()
	for _, id := range r.engine.Leashed() {
		since := now
		if s := r.sessions.Find(id); s != nil {
			since, _ = s.DetachedAt()
		}
		r.unleash(id, since)
	}
	r.janitor = newJanitor(r)
	r.space.start(r.checkSpace)
	r.resources.Start()
	r.cfg.Tools.Watch(r.announcer.changed)
	return r, nil
}

// sessionOffer is what a new connection is offered, as the configuration is now.
func (r *Runtime) sessionOffer() *machine.Config {
	if r.cfg.Auth.Offers(auth.None) {
		return &r.publicConfig
	}
	return &r.sessionConfig
}

func (r *Runtime) newSessionConfig(anonymous bool) machine.Config {
	recovery := "fail"
	if r.cfg.HeartbeatBlock {
		recovery = "block"
	}
	return machine.Config{
		Handshake: r.cfg.HandshakeTimeout, ChallengeTTL: auth.ChallengeTTL, Lease: r.cfg.SessionLease, Idle: r.cfg.SessionIdle,
		ResumeWindow: r.cfg.ResumeWindow, Heartbeat: r.cfg.Heartbeat,
		Runtime: arcp.RuntimeInfo{Kind: "arcp-go", Version: r.cfg.Version, Fingerprint: r.cfg.Fingerprint},
		Offer: arcp.Capabilities{
			Flags: map[arcp.Feature]bool{arcp.FeatureDurableJobs: true, arcp.FeatureAnonymous: anonymous,
				arcp.FeatureCheckpoints: true, arcp.FeatureSubscriptions: true, arcp.FeatureHumanInput: true,
				arcp.FeatureInterrupt: true, arcp.FeatureModelUse: true, arcp.FeatureExecutes: true,
				arcp.FeatureProvisionedCredentials: len(r.cfg.Provisioners) > 0},
			HeartbeatRecovery: recovery, HeartbeatInterval: heartbeatSeconds(r.cfg.Heartbeat),
			AckWindow:      uint32(min(max(r.cfg.AckWindow, 0), math.MaxUint32)),
			BinaryEncoding: []string{"base64"}, Extensions: []string{}, Encodings: []string{"json"},
			Features: []string{"heartbeat", "ack", "list_jobs", "subscribe", "progress", "result_chunk", "agent_versions", "refresh", "executes",
				"lease_expires_at", "cost.budget", "model.use"},
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
	r.cursors = paging.NewCursors(key)
	r.jobs = &jobs.Reader{Store: r.cfg.Store, Engine: r.engine, Cursors: r.cursors, Audit: r.audit, Logger: r.cfg.Log,
		Builtin: builtin.Is}
	r.builtin = &builtin.Tools{Store: r.cfg.Store, Registry: r.cfg.Tools, Engine: r.engine, Sessions: r.sessions, Questions: r.questions,
		Agents: r.agents, Resources: r.resources, Jobs: r.jobs, Vault: r.vault, Auth: r.cfg.Auth, Changes: r.changes(), Cursors: r.cursors,
		Metrics: r.metrics, Audit: r.audit, Logger: r.cfg.Log, Refresh: r.cfg.Refresh}
	if err := r.builtin.Register(); err != nil {
		return err
	}
	if err := r.sessions.Load(ctx, time.Now()); err != nil {
		return err
	}
	if err := r.loadSightings(ctx); err != nil {
		return fmt.Errorf("load the clients that have proved themselves: %w", err)
	}
	if err := r.agents.Load(ctx); err != nil {
		return fmt.Errorf("load agents: %w", err)
	}
	if err := r.questions.Load(ctx); err != nil {
		return fmt.Errorf("load approvals: %w", err)
	}
	if err := r.resources.Store.Load(ctx); err != nil {
		return fmt.Errorf("load resources: %w", err)
	}
	if r.vault != nil {
		if err := r.vault.Recover(ctx); err != nil {
			return fmt.Errorf("recover credentials: %w", err)
		}
	}
	n, err := r.engine.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover jobs: %w", err)
	}
	if n > 0 {
		r.cfg.Log.Warn().Int("jobs", n).Msg("jobs had not ended when the runtime stopped; each goes on or has been failed, as its tool says")
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
	r.gate.SetLimits(l.gate())
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

// UpgradeRefused counts and logs a refused handshake: meant for transport.Upgrader.
func (r *Runtime) UpgradeRefused(u transport.RefusedUpgrade) {
	r.metrics.UpgradesRefused.WithLabelValues(strconv.Itoa(u.Status)).Inc()
	r.upgradeLog.Warn().Int("status", u.Status).Str("remote", u.RemoteAddr).
		AnErr("reason", u.Reason).Msg("WebSocket handshake refused; at most ten a minute are logged")
}

// Serve speaks with one peer until the connection ends, and closes it. When ctx ends, the
// client is told session.close and the connection is closed; the session can be resumed.
// Serve returns when the goroutines of the connection have ended. The error is the reason
// why the connection ended, nil if the peer closed it.
func (r *Runtime) Serve(ctx context.Context, tc transport.Conn) error {
	// Little is kept on the stack meanwhile: an idle connection is mostly its stacks.
	c, err := r.begin(tc)
	if err != nil {
		return err
	}
	defer r.ended(c)
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { c.post(c.shutdown) })()
	}
	err = c.serve()
	if te, ok := errors.AsType[*transport.Error](err); ok && te.Remote {
		return nil
	}
	return err
}

// begin makes a connection of what was accepted, or refuses it.
func (r *Runtime) begin(tc transport.Conn) (*conn, error) {
	c := newConn(r, tc)
	if err := r.admit(c); err != nil {
		_ = tc.Close(transport.CloseOverloaded, err.Error()) // the refusal says it all
		return nil, err
	}
	r.metrics.ConnectionsOpen.WithLabelValues(tc.Info().Kind).Inc()
	return c, nil
}

// ended lets go of a connection that begin has made.
func (r *Runtime) ended(c *conn) {
	r.metrics.ConnectionsOpen.WithLabelValues(c.tc.Info().Kind).Dec()
	r.serving.Done()
}

// Store is the store the runtime was given, for reading and backups.
func (r *Runtime) Store() store.Store { return r.cfg.Store }

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
	if err := r.countConnection(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		c.releasePass()
		return ErrShutdown
	}
	r.conns[c] = struct{}{}
	r.serving.Add(1)
	return nil
}

// countConnection counts a connection in the gate unless the listener has counted it. For
// a connection through a proxy it sets the address that the proxy reported.
func (r *Runtime) countConnection(c *conn) error {
	info := c.tc.Info()
	if c.pass = info.Pass; c.pass != nil {
		return r.reportRefusal(c.pass.From(info.RemoteAddr))
	}
	pass, err := r.gate.Enter(info.RemoteAddr)
	c.pass = pass
	return r.reportRefusal(err)
}

// reportRefusal counts and logs err if it is a *transport.GateError. It returns err.
func (r *Runtime) reportRefusal(err error) error {
	if e, ok := errors.AsType[*transport.GateError](err); ok {
		r.logRefusedConnection(e)
	}
	return err
}

func (r *Runtime) logRefusedConnection(e *transport.GateError) {
	r.metrics.RateLimited.WithLabelValues(e.Limit).Inc()
	r.gateLog.Warn().Str("remote", e.Address).Err(e).Msg("connections are refused; more are not logged for a minute")
}

// releasePass ends what countConnection began. A connection that its listener has counted
// leaves the gate when it is closed.
func (c *conn) releasePass() {
	if c.tc.Info().Pass == nil {
		c.pass.Leave()
	}
}

// Gate returns the gate that enforces the connection limits of Limits. Connections of
// Gate().Listener are counted when they are accepted, so that a peer that never sends a
// WebSocket handshake is bounded too. Other connections are counted by Serve.
func (r *Runtime) Gate() *transport.Gate { return r.gate }

// enter counts a session that is about to be made, or refuses it.
func (r *Runtime) enter(c *conn) *arcp.Error {
	if err := r.available(); err != nil {
		return err
	}
	if r.full.Load() {
		return nearlyFull()
	}
	r.mu.Lock()
	limits := session.Limits{All: max(r.limits.MaxSessions, 0), PerPrincipal: max(r.limits.MaxSessionsPerPrincipal, 0)}
	r.mu.Unlock()
	if n := c.identity.Limits.Sessions; n > 0 {
		limits.PerPrincipal = n
	}
	s, evicted, full := r.sessions.Open(c.id, c.identity.Principal, c.begun, c.m.Has(arcp.FeatureAck), (*sessionConn)(c), limits)
	if full != nil {
		r.metrics.RateLimited.WithLabelValues(full.Limit).Inc()
		return arcp.Errorf(arcp.CodeResourceExhausted, "limit of %d %s reached", full.N, strings.ReplaceAll(full.Limit, "_", " ")).RetryAfter(1)
	}
	if evicted {
		r.metrics.Evictions.WithLabelValues("limit").Inc()
	}
	c.session = s
	c.pass.Authenticated()
	return nil
}

// available refuses sessions while the runtime shuts down.
func (r *Runtime) available() *arcp.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down").RetryAfter(1)
	}
	return nil
}

// onDisconnectGrace is how long a session may be without a connection before
// its jobs that asked for it are cancelled.
const onDisconnectGrace = 5 * time.Second

// leave takes a connection that has ended off the books. Its session stays.
func (c *conn) leave() {
	now := time.Now()
	c.readMail(now) // a session that came to be too late
	c.closeFeeds()
	r := c.rt
	if c.executes() {
		r.workers.Detach(c.id, c)
	}
	var written uint64
	if c.cursor != nil {
		written = c.cursor.Position()
		c.cursor.Close()
		c.trimAcked()
	}
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	c.releasePass()
	if c.session == nil || !c.session.Detach((*sessionConn)(c), now) {
		return
	}
	c.saveWritten()
	if !c.acks {
		r.log.Free(c.id, written)
	}
	if r.engine.HasJobs(c.id) {
		r.unleash(c.id, now)
	}
}

// unleash gives a session that lost its connection at a time a while to come
// back.
func (r *Runtime) unleash(id arcp.SessionID, since time.Time) {
	time.AfterFunc(onDisconnectGrace, func() { r.abandoned(id, since) })
}

// abandoned cancels the jobs that were to end with their session's connection,
// unless there is one again or was one meanwhile.
func (r *Runtime) abandoned(id arcp.SessionID, since time.Time) {
	if s := r.sessions.Find(id); s != nil {
		if detached, ok := s.DetachedAt(); !ok || !detached.Equal(since) {
			return
		}
	}
	r.engine.CancelSession(id, "session disconnected", false)
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
	r.janitor.stop()
	r.resources.Stop()
	r.announcer.stop()
	r.engine.Stop(ctx)
	r.space.stop() // tools may have waited for room to come to their end
	// What the jobs wrote last is given to the sessions before this returns; if
	// the store has failed, or time is up, there is nothing to wait for.
	_, _ = r.log.Commit(ctx, &store.Write{NoSync: true})
	r.mu.Lock()
	r.closing = true
	for c := range r.conns {
		c.post(c.shutdown)
	}
	r.mu.Unlock()
	r.serving.Wait()
	r.sessions.Wait()
	r.lastSightings(context.WithoutCancel(ctx))
	r.pool.Close()
	r.closeVault()
	r.resources.Close()
	r.log.Close()
	return r.cfg.Store.Close()
}

func (c *conn) shutdown(now time.Time) {
	if c.closing != nil || c.readerErr != nil {
		return // it ends already
	}
	if c.m.Phase() == machine.Accepted {
		c.pull(now) // what was given to the session before this
		c.send(now, arcp.Frame(arcp.SessionClose, arcp.SessionClosePayload{Reason: "shutdown"}))
	}
	c.closing = &machine.Close{Code: int(transport.CloseGoingAway), Reason: "shutdown"}
}
