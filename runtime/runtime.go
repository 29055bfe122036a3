package runtime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/internal/lograte"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/agentservice"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/audit"
	"github.com/arcpd/arcpd/runtime/internal/builtin"
	"github.com/arcpd/arcpd/runtime/internal/catalog"
	"github.com/arcpd/arcpd/runtime/internal/conn"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/housekeeping"
	"github.com/arcpd/arcpd/runtime/internal/jobview"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/paging"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/internal/resourceservice"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/space"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/internal/worker"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// Runtime serves ARCP. Any goroutine may call its methods.
type Runtime struct {
	questions  *questions.Broker
	jobs       *jobview.Reader
	builtin    *builtin.Tools
	vault      *credential.Vault // nil: there are no provisioners
	resources  *resourceservice.Service
	artifacts  artifacts
	catalog    *catalog.Catalog
	conns      *conn.Server
	agentStore *agents.Store
	agents     *agentservice.Service
	workers    *worker.Pool

	cfg     Config
	metrics *metrics.Metrics
	log     *eventlog.Log
	engine  *engine.Engine
	pool    *pool.Pool // goroutines of connections
	cursors *paging.Cursors
	audit   audit.Log
	broken  atomic.Pointer[error] // error of the store that has failed; nil: none

	sessions *session.Directory
	janitor  *housekeeping.Janitor
	space    *space.Watch

	refusals lograte.Limiter // of log lines about refused handshakes

	shutdown    sync.Once
	shutdownErr error // result of shutdown
}

// ErrShutdown is returned by Serve and Ready after the start of Shutdown.
var ErrShutdown = conn.ErrShutdown

// ErrDiskFull is returned by Ready while sessions are refused because the disk is nearly full (Config.MinFree).
var ErrDiskFull = errors.New("the disk is nearly full")

// New returns a runtime that owns cfg.Store. It first recovers the live jobs of the store: each one
// continues or fails, depending on its tool. The error names a missing or invalid member of cfg, or
// comes from the store. After an error the caller still owns the store.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.Store == nil || cfg.Auth == nil {
		return nil, errors.New("runtime: Config.Store and Config.Auth are required")
	}
	if err := conn.CheckDraftProfile(cfg.DraftProfile); err != nil {
		return nil, fmt.Errorf("runtime: Config.DraftProfile: %w", err)
	}
	r := &Runtime{cfg: cfg.withDefaults()}
	if err := r.cfg.checkTools(); err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	r.audit = audit.New(r.cfg.Log)
	r.pool = pool.New()
	r.space = space.New(space.Options{
		Free:       r.cfg.FreeSpace,
		MinFree:    r.cfg.MinFree,
		OnFull:     r.cfg.OnFull,
		Size:       func() int64 { return r.janitor.Size(time.Now()) },
		MaxData:    r.cfg.MaxData,
		OnNearFull: func() { r.janitor.BoundData() },
		Logger:     r.cfg.Log,
	})
	r.metrics = metrics.New(r.cfg.Metrics, r.cfg.Version)
	r.catalog = catalog.New(r.cfg.Tools, r.cfg.Hooks)
	slots := new(catalog.Slots) // of the tools of workers, shared by the pool and the engine
	r.workers = worker.New(worker.Config{
		Tools:        r.cfg.Tools,
		Slots:        slots,
		SlotsChanged: func(ref string) { r.engine.SlotsChanged(ref) }, // no worker is connected before r.engine is set
		Metrics:      r.metrics,
		Logger:       r.cfg.Log,
		Heartbeat:    r.cfg.Heartbeat,
	})
	// The log starts its committer, which every return with an error below has to close.
	r.log = eventlog.New(r.cfg.Store, eventlog.Options{
		OnCommit:     r.onCommit,
		OnBroken:     r.onBroken,
		OnOverflow:   r.onOverflow,
		OnUnmeasured: func() { r.janitor.MeasureBacklogs() }, // no session is attached before r.janitor is set
		BacklogBytes: max(r.cfg.BacklogBytes, 0),
		CommitDelay:  r.cfg.CommitDelay,
	})
	err := r.openArtifacts()
	if err == nil {
		err = r.connectServices(slots)
	}
	if err != nil {
		r.log.Close()
		return nil, fmt.Errorf("runtime: %w", err)
	}
	r.janitor = r.newJanitor()
	// boot runs recovered jobs, so all services that jobs use are connected before it.
	if err := r.boot(ctx); err != nil {
		r.resources.Close()
		r.closeVault()
		r.log.Close()
		return nil, fmt.Errorf("runtime: start on the store: %w", err)
	}
	r.registerSnapshot()
	// The server accepts connections only after everything is loaded.
	r.conns = r.newServer()
	r.conns.EndPrograms(ctx)
	r.resumeGraces()
	r.janitor.Start()
	r.space.Start(r.engine.SpaceFreed)
	r.resources.Start()
	r.cfg.Tools.Watch(r.conns.ToolsChanged)
	return r, nil
}

// connectServices creates the services that share the log, each after the services that it uses, and
// connects those that use each other. After an error nothing of them needs to be closed.
func (r *Runtime) connectServices(slots *catalog.Slots) (err error) {
	r.sessions = session.NewDirectory(session.Options{
		Store:   r.cfg.Store,
		Log:     r.log,
		Catalog: r.catalog,
		Logger:  r.cfg.Log,
		OnCount: r.metrics.SetSessions,
		OnConnection: func(s *session.Session, connected bool) { // no session is attached before r.agents is set
			r.agents.ConnectionChanged(s, connected)
		},
	})
	r.agents = agentservice.New(agentservice.Options{
		Store:     r.cfg.Store,
		Log:       r.log,
		Sessions:  r.sessions,
		Workers:   r.workers,
		Auth:      r.cfg.Auth,
		Metrics:   r.metrics,
		Logger:    r.cfg.Log,
		Audit:     r.audit,
		Retention: r.cfg.Retention,
	})
	r.agentStore = r.agents.Store
	r.questions = questions.New(questions.Options{
		Store:    r.cfg.Store,
		Changes:  r.changes(),
		Sessions: r.sessions,
		Agents:   r.agentStore,
		Metrics:  r.metrics,
		Logger:   r.cfg.Log,
		Audit:    r.audit,
	})
	if err := r.newVault(); err != nil {
		return err
	}
	r.resources, err = resourceservice.New(resourceservice.Options{
		Store:     r.cfg.Store,
		Changes:   r.changes(),
		Logger:    r.cfg.Log,
		Metrics:   r.metrics,
		Agents:    r.agentStore,
		Questions: r.questions,
		Sessions:  r.sessions,
		Broken:    r.isBroken,
		Handlers:  r.registrations(),
		Dir:       r.cfg.ResourceDir,
		ReapEvery: r.cfg.ReapEvery,
		Retention: r.cfg.Retention,
	})
	if err != nil {
		r.closeVault()
		return err
	}
	r.engine = r.newEngine(slots)
	metrics.RegisterWaiting(r.cfg.Metrics, func() map[string]int { return engine.CountWaiting(r.engine) })
	r.questions.Connect(r.engine.Questions().Offer)
	r.resources.Connect(r.engine)
	// Each function ends the records of its owner in the write that ends the session.
	r.sessions.Connect(r.engine.SessionJobs(),
		func(ctx context.Context, s *session.Session) error {
			return r.agentStore.EndSession(ctx, s.Principal, s.ID)
		},
		func(ctx context.Context, s *session.Session) error {
			return r.resources.Store.EndSession(ctx, s.ID)
		},
		func(ctx context.Context, s *session.Session) error {
			return r.questions.SessionApprovals().EndSession(ctx, s.ID)
		})
	return nil
}

func (r *Runtime) newEngine(slots *catalog.Slots) *engine.Engine {
	return engine.New(engine.Config{
		Store:             r.cfg.Store,
		Log:               r.log,
		Tools:             r.cfg.Tools,
		Catalog:           r.sessions.Catalog,
		Rights:            r.rights,
		Slots:             slots,
		Runs:              r.workers.Runs,
		Connected:         r.workers.Connected,
		Questions:         r.questions,
		Resources:         r.resources,
		Artifacts:         r.artifacts.Store,
		Vault:             r.vault,
		Space:             r.space,
		Metrics:           r.metrics,
		Logger:            r.cfg.Log,
		LogToolErrors:     r.cfg.LogToolErrors,
		Tracer:            tracing.New(r.cfg.TracerProvider),
		Heartbeat:         r.cfg.Heartbeat,
		Block:             r.cfg.HeartbeatBlock,
		ResumeWindow:      r.cfg.ResumeWindow,
		RequireModelLease: r.cfg.Leases.RequireModel,
		PreemptExpired:    r.cfg.Leases.PreemptExpired,
		Shared:            r.cfg.Auth.HasSeveralPrincipals,
		Limits:            r.cfg.Limits.engine(),
	})
}

// openArtifacts creates the store of artifacts, which is not loaded.
func (r *Runtime) openArtifacts() error {
	link, err := r.cfg.Artifacts.parseURL()
	if err != nil {
		return fmt.Errorf("Config.Artifacts.URL: %w", err)
	}
	content, closeContent, err := r.cfg.Artifacts.open()
	if err != nil {
		return err
	}
	remote, total := r.cfg.Artifacts.Bucket != nil, r.cfg.MaxData/2
	if remote { // the bound is of this machine
		total = 0
	}
	var count func(operation, result string)
	r.artifacts.closeContent = closeContent
	r.artifacts.Store = artifact.NewStore(artifact.Options{
		Content: content,
		Remote:  remote,
		Records: r.cfg.Store,
		Log:     r.changes(),
		Logger:  r.cfg.Log,
		Total:   total,
		Full:    func() bool { return r.space.DiskFull() || r.space.DataFull() },
		Live: func(fn func(string, arcp.JobID, arcp.Raw) bool) {
			r.engine.EachLive(fn)
		},
		IsLive:    func(id arcp.JobID) bool { return r.engine.IsLive(id) },
		Operation: func(operation, result string) { count(operation, result) },
	}, r.cfg.Limits.artifact())
	count = metrics.RegisterArtifacts(r.cfg.Metrics, r.artifacts.Usage)
	r.openLinks(link)
	metrics.RegisterStore(r.cfg.Metrics, r.storeSize, max(r.cfg.MaxData, 0)) // which counts the artifacts
	return nil
}

// openLinks creates the links to artifacts below a URL; nil: there are none.
func (r *Runtime) openLinks(prefix *url.URL) {
	count := metrics.RegisterArtifactLinks(r.cfg.Metrics, artifact.LinkResults)
	if prefix == nil {
		return
	}
	r.artifacts.url = prefix
	r.artifacts.Links = artifact.NewLinks(artifact.LinkOptions{
		Prefix: prefix.String(),
		Store:  r.artifacts.Store,
		Count:  count,
		Logger: r.cfg.Log,
	})
}

// registerSnapshot registers the metrics that are read at each scrape.
func (r *Runtime) registerSnapshot() {
	var free func() uint64
	if _, watched := r.space.Free(); watched {
		free = func() uint64 {
			bytes, _ := r.space.Free()
			return bytes
		}
	}
	metrics.RegisterSnapshot(r.cfg.Metrics, func() metrics.Snapshot {
		return metrics.Snapshot{
			Queues:         engine.Queues(r.engine),
			Workers:        r.workers.Sessions(),
			OldestApproval: r.questions.Oldest(),
			Unacked:        r.log.Unreleased(),
		}
	}, free)
}

// resumeGraces continues the grace periods of jobs that end with the connection of their session.
func (r *Runtime) resumeGraces() {
	now := time.Now()
	for _, id := range r.engine.SessionJobs().EndingOnDisconnect() {
		since := now
		if s := r.sessions.Find(id); s != nil {
			since, _ = s.DetachedSince()
		}
		r.conns.CancelAfterGrace(id, since)
	}
}

// newJanitor returns the janitor of the store, which is not started.
func (r *Runtime) newJanitor() *housekeeping.Janitor {
	return housekeeping.New(housekeeping.Options{
		Store:        r.cfg.Store,
		Log:          r.log,
		Auth:         r.cfg.Auth,
		Engine:       r.engine,
		Sessions:     r.sessions,
		Questions:    r.questions,
		Agents:       r.agents,
		Resources:    r.resources,
		Artifacts:    r.artifacts.Store,
		Metrics:      r.metrics,
		Logger:       r.cfg.Log,
		Broken:       r.isBroken,
		ResumeWindow: r.cfg.ResumeWindow,
		Retention:    r.cfg.Retention,
		MaxData:      r.cfg.MaxData,
	})
}

// newServer returns the server of connections.
func (r *Runtime) newServer() *conn.Server {
	c := &r.cfg
	return conn.NewServer(conn.Options{
		Store:            c.Store,
		Auth:             c.Auth,
		Log:              r.log,
		Engine:           r.engine,
		Sessions:         r.sessions,
		Questions:        r.questions,
		Workers:          r.workers,
		Artifacts:        r.artifacts.Artifacts,
		Vault:            r.vault,
		Jobs:             r.jobs,
		Builtin:          r.builtin,
		Metrics:          r.metrics,
		Pool:             r.pool,
		Audit:            r.audit,
		Logger:           c.Log,
		Tracer:           tracing.New(c.TracerProvider),
		Full:             r.space.DiskExhausted,
		Broken:           r.isBroken,
		Runtime:          arcp.RuntimeInfo{Kind: "arcp-go", Version: c.Version, Fingerprint: c.Fingerprint},
		HandshakeTimeout: c.HandshakeTimeout,
		SessionLease:     c.SessionLease,
		SessionIdle:      c.SessionIdle,
		ResumeWindow:     c.ResumeWindow,
		Heartbeat:        c.Heartbeat,
		HeartbeatBlock:   c.HeartbeatBlock,
		MaxFrame:         c.MaxFrame,
		AckWindow:        c.AckWindow,
		ReplayEvents:     c.ReplayEvents,
		ReplayBytes:      c.ReplayBytes,
		Provisions:       len(c.Provisioners) > 0,
		DraftProfile:     c.DraftProfile,
		Limits:           c.Limits.conn(),
	})
}

// boot registers the built-in tools, and loads the sessions, jobs and services of the store.
func (r *Runtime) boot(ctx context.Context) error {
	key, err := r.pagingKey(ctx)
	if err != nil {
		return err
	}
	r.cursors = paging.NewCursors(key)
	r.jobs = &jobview.Reader{
		Store:     r.cfg.Store,
		Engine:    r.engine,
		Cursors:   r.cursors,
		Audit:     r.audit,
		Logger:    r.cfg.Log,
		IsBuiltin: func(name string) bool { return name != engine.ScheduleTool && r.builtin.IsBuiltin(name) }, // schedules are listed
	}
	r.builtin = &builtin.Tools{
		Store:     r.cfg.Store,
		Registry:  r.cfg.Tools,
		Engine:    r.engine,
		Sessions:  r.sessions,
		Questions: r.questions,
		Agents:    r.agents,
		Resources: r.resources,
		Artifacts: r.artifacts.Store,
		Jobs:      r.jobs,
		Vault:     r.vault,
		Auth:      r.cfg.Auth,
		Changes:   r.changes(),
		Cursors:   r.cursors,
		Metrics:   r.metrics,
		Audit:     r.audit,
		Logger:    r.cfg.Log,
		Refresh:   r.cfg.Refresh,
		Workers:   r.workers,
	}
	if err := r.builtin.Register(); err != nil {
		return err
	}
	// The sessions come first: all other records name their session. The jobs come last, because a
	// recovered job may run at once and use all other services.
	if err := r.sessions.Load(ctx, time.Now()); err != nil {
		return err
	}
	if err := r.janitor.LoadKnownClients(ctx); err != nil {
		return fmt.Errorf("load known clients: %w", err)
	}
	if err := r.agents.Load(ctx); err != nil {
		return fmt.Errorf("load agents: %w", err)
	}
	if err := r.questions.SessionApprovals().Load(ctx); err != nil {
		return fmt.Errorf("load approvals: %w", err)
	}
	if err := r.resources.Store.Load(ctx); err != nil {
		return fmt.Errorf("load resources: %w", err)
	}
	if err := r.artifacts.Load(ctx); err != nil {
		return fmt.Errorf("load artifacts: %w", err)
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
		r.cfg.Log.Warn().Int("jobs", n).Msg("jobs had not ended when the runtime stopped; each continues or has failed, as its tool declares")
	}
	return nil
}

// pagingKey returns the key of the cursors of lists: 32 random bytes, the same ones in each process
// on a store.
func (r *Runtime) pagingKey(ctx context.Context) ([]byte, error) {
	const record = "list-cursor-key"
	rec, err := r.cfg.Store.Get(ctx, record)
	if err != nil {
		return nil, err
	}
	if rec.Rev != 0 {
		return rec.Value, nil
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	_, err = r.log.Commit(ctx, store.NewWrite().Put(store.Record{Key: record, Value: key}))
	return key, err
}

// changes returns the committer for changes of built-in tools. A change is part of the write of the
// call if the context belongs to a call of a built-in tool. Otherwise it is a write of its own.
func (r *Runtime) changes() txn.Committer { return txn.Committer{Log: r.log} }

// storeSize returns the bytes of the store and of the artifacts.
func (r *Runtime) storeSize() int64 {
	return r.cfg.Store.Stat().Bytes + r.artifacts.LocalBytes()
}

// onCommit observes a commit.
func (r *Runtime) onCommit(events int, d time.Duration, err error) {
	if err != nil {
		r.metrics.CommitErrors.Inc()
		return
	}
	r.space.Committed()
	r.metrics.CommitSeconds.Observe(d.Seconds())
	r.metrics.BatchEvents.Observe(float64(events))
	r.metrics.EventsAppended.Add(float64(events))
}

// isBroken reports whether the store has failed.
func (r *Runtime) isBroken() bool { return r.broken.Load() != nil }

// onBroken records that the store has failed.
func (r *Runtime) onBroken(err error) {
	r.broken.Store(&err)
	r.cfg.Log.Error().Err(err).Msg("the store has failed; nothing is accepted any more: restart the runtime once the cause is mended")
}

// ActiveJob is a job for which Shutdown waits.
type ActiveJob = engine.ActiveJob

// ListActiveJobs returns the jobs for which a Shutdown waits that begins now, the oldest first, at most limit, and the
// number of all. It waits for no schedule, and for no job that waits for its next attempt, a worker or an approval.
func (r *Runtime) ListActiveJobs(limit int) (list []ActiveJob, n int) {
	return engine.ListActive(r.engine, limit)
}

// SetLimits changes the limits. Sessions and jobs above a new limit continue. The rate applies to
// new connections.
func (r *Runtime) SetLimits(l Limits) {
	l = l.withDefaults()
	r.conns.SetLimits(l.conn())
	r.engine.SetLimits(l.engine())
	r.artifacts.SetLimits(l.artifact())
}

// Serve serves one connection and closes it. When ctx ends, it sends session.close and closes the
// connection; the session can be resumed. Serve returns when the goroutines of the connection have
// ended. The error is the reason why the connection ended; nil if the peer closed it.
func (r *Runtime) Serve(ctx context.Context, c transport.Conn) error {
	return r.conns.Serve(ctx, c, nil)
}

// Worker describes a program that the caller has started and that executes tools (SPEC.md §7.8).
type Worker struct {
	Name  string   // unique among the workers of a runtime
	Tools []string // patterns of path.Match for the names of the tools that it may execute

	// Registered, if set, is called when the worker has registered tools, each time. It must not
	// block.
	Registered func()
}

// ServeWorker is Serve for the connection to a program that the caller has started. The principal
// of its session is "program:" and w.Name, regardless of its credentials. The session has the role
// worker, executes jobs of all principals, and cannot submit jobs of its own. When the program
// opens a session, the sessions of earlier processes with the same name end.
func (r *Runtime) ServeWorker(ctx context.Context, c transport.Conn, w Worker) error {
	return r.conns.Serve(ctx, c, &conn.Program{Identity: auth.NewProgram(w.Name, w.Tools), Registered: w.Registered})
}

// DrainWorker gives no more attempts to the program that ServeWorker serves under a name, and waits until it executes
// none, or until ctx ends. Attempts of its tools wait for the next program with the name.
func (r *Runtime) DrainWorker(ctx context.Context, name string) {
	r.workers.Drain(ctx, auth.NewProgram(name, nil).Principal)
}

// EndWorker withdraws the tools of the program that ServeWorker serves under a name, waits until it executes no
// attempts, or until ctx ends, and ends its sessions.
func (r *Runtime) EndWorker(ctx context.Context, name string) {
	r.workers.Withdraw(auth.NewProgram(name, nil).Principal)
	r.DrainWorker(ctx, name)
	conn.EndProgram(ctx, r.conns, auth.NewProgram(name, nil).Principal)
}

// Reauthenticate checks the identity of every connected session against Config.Auth. It evicts
// sessions whose token or principal is no longer configured. They cannot be resumed; their jobs
// continue. It does not wait for the evictions.
func (r *Runtime) Reauthenticate() { r.conns.Reauthenticate() }

// Store returns Config.Store, for reading and backups.
func (r *Runtime) Store() store.Store { return r.cfg.Store }

// HoldArtifacts keeps the content of artifacts that are deleted from now on until release is called. A copy
// of the store that is made meanwhile then has the content of all its artifacts.
func (r *Runtime) HoldArtifacts() (release func()) { return artifact.Hold(r.artifacts.Store) }

// Ready returns nil if new sessions are accepted, other than beyond Config.Limits. Otherwise it returns ErrShutdown,
// ErrDiskFull, or the error of the store that has failed.
func (r *Runtime) Ready() error {
	if err := r.broken.Load(); err != nil {
		return fmt.Errorf("store: %w", *err)
	}
	switch {
	case r.conns.Stopping():
		return ErrShutdown
	case r.space.DiskExhausted():
		return ErrDiskFull
	}
	return nil
}

// Gate returns the gate that enforces the limits of connections. Gate().Listener counts a
// connection when it accepts it, and so also bounds peers that never complete a WebSocket
// handshake. Serve counts other connections.
func (r *Runtime) Gate() *transport.Gate { return r.conns.Gate() }

// Shutdown refuses new sessions and jobs, and waits for running jobs until ctx ends. Then it sends
// session.close to the clients, closes the connections with 1001, and closes the store. Jobs that
// have not ended are recovered by the next New on the same store. The error comes from closing the
// store. Later calls wait for the first and return its error; their ctx has no effect.
func (r *Runtime) Shutdown(ctx context.Context) error {
	r.shutdown.Do(func() { r.shutdownErr = r.stop(ctx) })
	return r.shutdownErr
}

// stop ends the services in the order in which they depend on each other: connections stay open
// until the last events of the jobs are delivered.
func (r *Runtime) stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.artifacts.closeContent)() // jobs may wait for requests
	r.conns.Stop()
	r.resources.Stop()
	r.engine.Stop(ctx)
	r.artifacts.closeContent() // the janitor and connections may wait for requests
	r.janitor.Stop()           // tools may have waited for free space
	r.space.Stop()
	// This commit returns after the last events of the jobs were delivered to the sessions. An
	// error means that the store has failed or ctx has ended: nothing is left to wait for.
	_, _ = r.log.Commit(ctx, &store.Write{NoSync: true})
	r.conns.Close()
	r.workers.Stop() // not bounded by ctx: clients must not wait for it
	r.sessions.WaitEnds()
	r.janitor.SaveKnownClients(context.WithoutCancel(ctx))
	r.pool.Close()
	r.closeVault()
	r.resources.Close()
	r.log.Close()
	return r.cfg.Store.Close()
}

// onOverflow trims a session whose kept events exceed Config.BacklogBytes.
func (r *Runtime) onOverflow(id arcp.SessionID, upTo uint64) {
	r.log.Append(&store.Write{Ops: []store.Op{&store.TrimSession{Session: id, Seq: upTo}}, NoSync: true}, nil)
	if c := r.sessions.ConnOf(id); c != nil {
		c.Overflow(upTo)
	}
}

// newVault creates the vault if there are provisioners, or a sealer: credentials of earlier
// provisioners must still be revoked.
func (r *Runtime) newVault() (err error) {
	if len(r.cfg.Provisioners) == 0 && r.cfg.Sealer == nil {
		return nil
	}
	sealer := r.cfg.Sealer
	if sealer == nil {
		sealer = credential.EphemeralSealer()
	}
	r.vault, err = credential.New(credential.Options{
		Sources:   r.cfg.Provisioners,
		Log:       r.log,
		Store:     r.cfg.Store,
		Sealer:    sealer,
		Logger:    r.cfg.Log,
		Unrevoked: func(n int) { r.metrics.CredentialsUnrevoked.Set(float64(n)) },
		Operation: func(op, result string) { r.metrics.CredentialOperations.WithLabelValues(op, result).Inc() },
	})
	return err
}

func (r *Runtime) closeVault() {
	if r.vault != nil {
		r.vault.Close()
	}
}

// AddTool adds a tool to Config.Tools. Sessions that see the tool receive tools.changed. The error is the error of
// tool.Registry.Register, or that the tool needs Config.ResourceDir.
func (r *Runtime) AddTool(t *tool.Tool) error {
	if err := r.cfg.checkTool(t); err != nil {
		return err
	}
	return r.cfg.Tools.Register(t)
}

// SetHooks replaces Config.Hooks for jobs that start afterwards.
func (r *Runtime) SetHooks(hooks []tool.Hook) { r.catalog.SetHooks(hooks) }

// CheckLease returns an error if raw, the JSON of a lease, is not valid. The error names the key of
// the lease. It is meant for auth.Options.CheckLease: the lease of a principal bounds the leases of
// its jobs (SPEC.md §5.12).
func CheckLease(raw []byte) error {
	_, err := lease.Decode(raw)
	return err
}
