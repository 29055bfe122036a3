package runtime

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/conn"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// Config configures a Runtime. It must not be changed after New. A zero member
// has the documented default, a negative number or duration is off.
type Config struct {
	Store store.Store    // required; closed by Shutdown
	Auth  *auth.Set      // required; its contents may be swapped while running
	Tools *tool.Registry // default: an empty one

	// Hooks look at each call of a tool before it is made, in this order.
	Hooks []tool.Hook

	// Refresh, if set, has the sources of Tools list them anew, for the tool
	// tools.refresh. It is called by one goroutine at a time.
	Refresh func(ctx context.Context) error

	Log     zerolog.Logger        // its zero value logs nothing
	Metrics prometheus.Registerer // default: a registry of its own

	// AllowHosts and AllowOrigins are for Runtime.Handler; see transport.Upgrader.
	AllowHosts   []string
	AllowOrigins []string

	RuntimeID   string // default "arcp"; the audience of signed JWTs
	Fingerprint string // shown in session.accepted
	Version     string // of the software, shown in session.accepted

	HandshakeTimeout time.Duration // default 10 s
	SessionLease     time.Duration // without a sign of life of the client; default 1 h
	SessionIdle      time.Duration // with nothing else, and without jobs and subscriptions; default 24 h
	ResumeWindow     time.Duration // default 10 min
	Heartbeat        time.Duration // default 30 s; of peers and of jobs
	HeartbeatBlock   bool          // missed job heartbeats block instead of fail
	MaxFrame         int64         // bytes in; default 8 MiB

	AckWindow    int           // unacknowledged events sent to a client that acknowledges; default off
	ReplayEvents int           // events kept for a session that never acknowledges, after they were sent; default 10,000
	ReplayBytes  int64         // and their bytes; default 64 MiB
	BacklogBytes int64         // events that a session has not got rid of; default 1 GiB
	CommitDelay  time.Duration // a commit waits for more writes while there is load; at most MaxCommitDelay; default off
	Retention    time.Duration // of finished jobs and events; default 24 h
	MaxDisk      int64         // bytes of the store; past it finished jobs go early; default off

	// Cleanups register the cleaners of expired resource leases. Those for processes and
	// directories of this machine are built in.
	Cleanups    []Cleanup
	ResourceDir string        // where jobs' leased directories are; empty: they get none
	ReapEvery   time.Duration // interval of the search for expired leases, about; default 5 s

	Provisioners []credential.Source // give jobs credentials of their own
	Sealer       *credential.Sealer  // seals the values; default a key that is forgotten with the process

	RequireModelLease bool // jobs whose lease does not speak of models may use none; else any
	PreemptExpired    bool // a job ends when its lease does; else at its next operation

	// FreeSpace, if set, returns the free bytes where the store is. Below MinFree
	// nothing that takes room is accepted; OnFull, if set, is told of each change.
	// They are called by one goroutine.
	FreeSpace func() (uint64, error)
	MinFree   int64 // default 512 MiB
	OnFull    func(full bool)

	Limits

	maxFollows int // of other sessions' jobs by a session; 0: the default
}

// Limits bounds the use by clients. A request over a limit is refused. Unlike the rest of
// Config they may be changed later, with Runtime.SetLimits. A zero member has the documented
// default, a negative one is off.
type Limits struct {
	MaxConnections          int // default 100,000; whatever is sent on them, see Runtime.Gate
	MaxUnauthenticated      int // default 1,024 connections before authentication
	MaxUnauthenticatedPerIP int // default 32; of an IPv4 address or an IPv6 network of 64 bits, loopback exempt
	MaxSessions             int // default 100,000
	MaxSessionsPerPrincipal int // default off
	MaxJobs                 int // live jobs of all principals; default 100,000
	MaxJobsPerPrincipal     int // default off
	MaxJobsPerSession       int // default 10,000
	Rate                    int // frames a minute a connection; default off

	MaxData int64 // bytes of the arguments of jobs that have not ended, which are in memory; default 1 GiB
}

// Defaults of Config.
const (
	DefaultRuntimeID               = "arcp"
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
	DefaultMaxData                 = 1 << 30
)

// MaxCommitDelay is the longest Config.CommitDelay.
const MaxCommitDelay = eventlog.MaxCommitDelay

func or[T int | int64 | time.Duration | string](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func (c Config) withDefaults() Config {
	c.RuntimeID = or(c.RuntimeID, DefaultRuntimeID)
	c.Version = or(c.Version, "dev")
	c.HandshakeTimeout = or(c.HandshakeTimeout, DefaultHandshakeTimeout)
	c.SessionLease = or(c.SessionLease, DefaultSessionLease)
	c.SessionIdle = or(c.SessionIdle, DefaultSessionIdle)
	c.ResumeWindow = or(c.ResumeWindow, DefaultResumeWindow)
	c.Heartbeat = or(c.Heartbeat, DefaultHeartbeat)
	if c.MaxFrame = or(c.MaxFrame, DefaultMaxFrame); c.MaxFrame < 0 {
		c.MaxFrame = math.MaxInt64 >> 1 // transports add to it
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
	l.MaxData = or(l.MaxData, DefaultMaxData)
	return l
}

// gate returns the limits on connections.
func (l Limits) gate() transport.GateLimits {
	return transport.GateLimits{Open: l.MaxConnections, Unauthenticated: l.MaxUnauthenticated, PerAddress: l.MaxUnauthenticatedPerIP}
}

// conn returns the limits on connections and sessions.
func (l Limits) conn() conn.Limits {
	return conn.Limits{Connections: l.gate(), Rate: l.Rate,
		Sessions: session.Limits{All: max(l.MaxSessions, 0), PerPrincipal: max(l.MaxSessionsPerPrincipal, 0)}}
}

// engine returns the limits on jobs.
func (l Limits) engine() engine.Limits {
	return engine.Limits{MaxJobs: l.MaxJobs, MaxJobsPerPrincipal: l.MaxJobsPerPrincipal, MaxJobsPerSession: l.MaxJobsPerSession, MaxData: l.MaxData}
}
