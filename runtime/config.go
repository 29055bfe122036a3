package runtime

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/conn"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/tracing"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// LeasePolicy says what leases of jobs mean (SPEC.md §5.13).
type LeasePolicy struct {
	RequireModel   bool // a lease without model.use permits no model; false: every model
	PreemptExpired bool // a job ends with its lease; false: at its next operation after that
}

// Config configures a Runtime. It must not be changed after New. Only Store and Auth are required.
// A zero member has the documented default. A negative number or duration disables the limit or
// function.
type Config struct {
	Store store.Store    // required; Shutdown closes it
	Auth  *auth.Set      // required; its contents may be replaced at any time
	Tools *tool.Registry // default: an empty registry

	// Hooks check each call of a tool before it starts, in this order.
	Hooks []tool.Hook

	// Refresh, if set, makes the sources of Tools list their tools again. The tool tools.refresh
	// calls it, not concurrently.
	Refresh func(ctx context.Context) error

	Log     zerolog.Logger        // default: nothing is logged
	Metrics prometheus.Registerer // registers the collectors; default: a new registry

	// TracerProvider records the work of the runtime as spans. A provider with IDGenerator gives the
	// span of a job the ids that clients see. nil: no spans, at no cost. Shutdown does not flush it.
	TracerProvider trace.TracerProvider

	// AllowHosts and AllowOrigins are the members of transport.Upgrader for Runtime.Handler and
	// Runtime.Upgrader.
	AllowHosts   []string
	AllowOrigins []string

	Fingerprint string // shown in session.accepted
	Version     string // version of the software, shown in session.accepted; default "devel"

	HandshakeTimeout time.Duration // from the connection to session.accepted; default 10 s
	SessionLease     time.Duration // silence of a client that evicts its session; default 1 h
	SessionIdle      time.Duration // time without messages, events, jobs and subscriptions that evicts a session; default 24 h
	ResumeWindow     time.Duration // time without a connection that ends a session; default 10 min
	Heartbeat        time.Duration // interval of heartbeats of peers and of jobs; default 30 s
	HeartbeatBlock   bool          // a job that misses heartbeats is blocked; false: it fails
	LogToolErrors    bool          // the log has the texts of errors and panics of tools, which may repeat arguments and results
	MaxFrame         int64         // bytes of a received frame; default 8 MiB

	// DraftProfile is the client library whose forms are sent to clients of the draft dialect that
	// are not recognised: one of draft.ProfileNames; default universal, the forms that most
	// libraries decode.
	DraftProfile string

	AckWindow    int           // unacknowledged events of a client that acknowledges; default: no bound
	ReplayEvents int           // sent events kept for a session that never acknowledges; default 10,000
	ReplayBytes  int64         // bytes of these events; default 64 MiB
	BacklogBytes int64         // bytes of the kept events of a session; beyond it the oldest are deleted; default 1 GiB
	CommitDelay  time.Duration // wait of a commit for more writes under load, at most MaxCommitDelay; default 0
	Retention    time.Duration // time that ended jobs and their events are kept; default 24 h

	Artifacts ArtifactStorage // where the content of artifacts is

	// MaxData bounds the bytes of the store and of the artifacts, on disk or in memory but not in a
	// bucket; default: no bound. Artifacts may have half of it. Above nine
	// tenths of it the oldest ended jobs are deleted before Retention, those with unacknowledged
	// events last. At the bound submits are refused, except of built-in tools, and tools wait before
	// they emit. A store on disk needs memory tables of at most a 32nd of the bound; see
	// pebble.Options.
	MaxData int64

	// Cleanups has the cleaners of leased resources. Cleaners of processes and directories of this
	// machine are built in.
	Cleanups    []Cleanup
	ResourceDir string        // parent of the leased directories of jobs, created if it is missing; "": jobs cannot lease directories
	ReapEvery   time.Duration // approximate interval of the clean-up of expired leases; default 5 s

	Provisioners []credential.Source // issue credentials to jobs
	Sealer       *credential.Sealer  // encrypts credentials in the store; default: a random key that is lost with the process

	Leases LeasePolicy

	// FreeSpace, if set, returns the free bytes of the disk of the store. Below MinFree the runtime
	// refuses jobs, and below half of it sessions and calls of its own tools. OnFull, if set, is called when that begins and ends. One goroutine
	// calls both functions.
	FreeSpace func() (uint64, error)
	MinFree   int64 // bytes; default 512 MiB
	OnFull    func(full bool)

	Limits
}

// IDGenerator makes the ids of spans for Config.TracerProvider; see sdktrace.WithIDGenerator of OpenTelemetry.
// The trace id of a job is its trace_id if that has 32 hexadecimal digits, and otherwise the first 16 bytes of
// the SHA-256 of its trace_id.
type IDGenerator = tracing.IDGenerator

// Limits bounds connections, sessions and jobs. A request above a limit is refused.
// Runtime.SetLimits changes the limits of a runtime. A zero member has the documented default, a
// negative one has no bound.
//
// The share of a principal is three quarters of a limit if Config.Auth.HasSeveralPrincipals, and else the
// whole. It is the whole also of limits below 1,000 and of MaxArguments below 64 MiB. Limits of an
// auth.Identity replace the share.
type Limits struct {
	MaxConnections          int // open connections; default 100,000; see Runtime.Gate
	MaxUnauthenticated      int // connections that are not authenticated; default 1,024
	MaxUnauthenticatedPerIP int // of one IPv4 address or IPv6 /64 network, except loopback; default 32
	MaxSessions             int // default 100,000
	MaxSessionsPerPrincipal int // default: the share of MaxSessions
	MaxJobs                 int // live jobs; default 100,000
	MaxJobsPerPrincipal     int // live jobs; default: the share of MaxJobs
	MaxJobsPerSession       int // live jobs; default 10,000
	RatePerMin              int // received frames a minute, for each connection; default: no bound

	// StartTimeout fails a job that waits so long without a connected worker of its tool, unless the
	// worker has declared another time; default: no bound.
	StartTimeout time.Duration

	// MaxArguments bounds the bytes of the arguments of live jobs, which are in memory; default 1 GiB.
	// A principal may have its share of it, or a single job with larger arguments.
	MaxArguments int64

	MaxArtifact             int64 // bytes of an artifact; default 1 GiB
	MaxArtifactPerPrincipal int64 // bytes of the artifacts of a principal, each at least 4 KiB; default 10 GiB

	maxFollows int // followed jobs of a session; 0: conn.DefaultMaxFollows
}

// Defaults of Config and Limits.
const (
	DefaultHandshakeTimeout        = 10 * time.Second
	DefaultSessionLease            = time.Hour
	DefaultSessionIdle             = 24 * time.Hour
	DefaultResumeWindow            = 10 * time.Minute
	DefaultHeartbeat               = 30 * time.Second
	DefaultMaxFrame                = 8 << 20
	DefaultReplayEvents            = 10_000
	DefaultReplayBytes             = 64 << 20
	DefaultBacklogBytes            = 1 << 30
	DefaultRetention               = 24 * time.Hour
	DefaultMinFree                 = 512 << 20
	DefaultReapEvery               = 5 * time.Second
	DefaultMaxConnections          = 100_000
	DefaultMaxUnauthenticated      = 1024
	DefaultMaxUnauthenticatedPerIP = 32
	DefaultMaxSessions             = 100_000
	DefaultMaxJobs                 = 100_000
	DefaultMaxJobsPerSession       = 10_000
	DefaultMaxArguments            = 1 << 30
	DefaultMaxArtifact             = 1 << 30
	DefaultMaxArtifactPerPrincipal = 10 << 30
)

// MaxCommitDelay bounds Config.CommitDelay.
const MaxCommitDelay = eventlog.MaxCommitDelay

// or returns v, or def if v is zero.
func or[T int | int64 | time.Duration | string](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// withDefaults replaces zero members by their defaults. A negative MaxFrame, ReplayEvents or
// ReplayBytes becomes a bound that nothing reaches.
func (c Config) withDefaults() Config {
	c.Version = or(c.Version, "devel")
	c.HandshakeTimeout = or(c.HandshakeTimeout, DefaultHandshakeTimeout)
	c.SessionLease = or(c.SessionLease, DefaultSessionLease)
	c.SessionIdle = or(c.SessionIdle, DefaultSessionIdle)
	c.ResumeWindow = or(c.ResumeWindow, DefaultResumeWindow)
	c.Heartbeat = or(c.Heartbeat, DefaultHeartbeat)
	if c.MaxFrame = or(c.MaxFrame, DefaultMaxFrame); c.MaxFrame < 0 {
		c.MaxFrame = math.MaxInt64 >> 1 // room for additions in transports
	}
	if c.ReplayEvents = or(c.ReplayEvents, DefaultReplayEvents); c.ReplayEvents < 0 {
		c.ReplayEvents = math.MaxInt
	}
	if c.ReplayBytes = or(c.ReplayBytes, DefaultReplayBytes); c.ReplayBytes < 0 {
		c.ReplayBytes = math.MaxInt64
	}
	c.BacklogBytes = or(c.BacklogBytes, DefaultBacklogBytes)
	c.MinFree = or(c.MinFree, DefaultMinFree)
	c.ReapEvery = or(c.ReapEvery, DefaultReapEvery)
	c.Retention = or(c.Retention, DefaultRetention)
	c.Limits = c.Limits.withDefaults()
	if c.Tools == nil {
		c.Tools = tool.NewRegistry()
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c
}

func (l Limits) withDefaults() Limits {
	l.MaxConnections = or(l.MaxConnections, DefaultMaxConnections)
	l.MaxUnauthenticated = or(l.MaxUnauthenticated, DefaultMaxUnauthenticated)
	l.MaxUnauthenticatedPerIP = or(l.MaxUnauthenticatedPerIP, DefaultMaxUnauthenticatedPerIP)
	l.MaxSessions = or(l.MaxSessions, DefaultMaxSessions)
	l.MaxJobs = or(l.MaxJobs, DefaultMaxJobs)
	l.MaxJobsPerSession = or(l.MaxJobsPerSession, DefaultMaxJobsPerSession)
	l.MaxArguments = or(l.MaxArguments, DefaultMaxArguments)
	l.MaxArtifact = or(l.MaxArtifact, DefaultMaxArtifact)
	l.MaxArtifactPerPrincipal = or(l.MaxArtifactPerPrincipal, DefaultMaxArtifactPerPrincipal)
	return l
}

// checkTools returns the error of checkTool for the first of Tools that has one.
func (c *Config) checkTools() error {
	for _, t := range c.Tools.Tools() {
		if err := c.checkTool(t); err != nil {
			return err
		}
	}
	return nil
}

// checkTool returns an error for a tool whose calls would fail in this runtime.
func (c *Config) checkTool(t *tool.Tool) error {
	if t.NeedsDirs && c.ResourceDir == "" {
		return fmt.Errorf("tool %s leases a directory for each call, and Config.ResourceDir is not set: set it, or give the command a directory with exec.Config.Dir", t.Ref())
	}
	return nil
}

// Limits below these have no shares.
const (
	minShared          = 1000     // sessions or jobs
	minSharedArguments = 64 << 20 // bytes
)

// shareOf returns the share of a principal in a limit: three quarters of it. It is 0, which is no bound, for a
// limit below least, and with a limit for each principal.
func shareOf[T int | int64](limit, least, perPrincipal T) T {
	if limit < least || perPrincipal != 0 {
		return 0
	}
	return limit - limit/4
}

// gate returns the limits on connections.
func (l Limits) gate() transport.GateLimits {
	return transport.GateLimits{Open: l.MaxConnections, Unauthenticated: l.MaxUnauthenticated, PerAddress: l.MaxUnauthenticatedPerIP}
}

// conn returns the limits on connections and sessions.
func (l Limits) conn() conn.Limits {
	return conn.Limits{Connections: l.gate(), Rate: l.RatePerMin, Follows: l.maxFollows,
		Sessions: session.Limits{All: max(l.MaxSessions, 0), PerPrincipal: max(l.MaxSessionsPerPrincipal, 0),
			Share: shareOf(l.MaxSessions, minShared, l.MaxSessionsPerPrincipal)}}
}

// artifact returns the limits on artifacts.
func (l Limits) artifact() artifact.Limits {
	return artifact.Limits{Size: l.MaxArtifact, PerPrincipal: l.MaxArtifactPerPrincipal}
}

// engine returns the limits on jobs.
func (l Limits) engine() engine.Limits {
	return engine.Limits{
		MaxJobs:             l.MaxJobs,
		MaxJobsPerPrincipal: l.MaxJobsPerPrincipal,
		MaxJobsPerSession:   l.MaxJobsPerSession,
		MaxArguments:        l.MaxArguments,
		JobShare:            shareOf(l.MaxJobs, minShared, l.MaxJobsPerPrincipal),
		ArgumentShare:       shareOf(l.MaxArguments, minSharedArguments, 0),
		StartTimeout:        l.StartTimeout,
	}
}
