package runtime

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/engine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Config configures a Runtime. It must not be changed after New. A zero member
// has the documented default, a negative number or duration is off.
type Config struct {
	Store store.Store    // required; closed by Shutdown
	Auth  *auth.Set      // required; its contents may be swapped while running
	Tools *tool.Registry // required

	Log      zerolog.Logger        // its zero value logs nothing
	Registry prometheus.Registerer // default: a registry of its own

	RuntimeID   string // default "arcp"; the audience of signed JWTs
	Fingerprint string // shown in session.accepted
	Version     string // of the software, shown in session.accepted

	HandshakeTimeout time.Duration // default 10 s
	SessionLease     time.Duration // default 1 h
	ResumeWindow     time.Duration // default 10 min
	Heartbeat        time.Duration // default 30 s; of peers and of jobs
	HeartbeatBlock   bool          // missed job heartbeats block instead of fail
	MaxFrame         int64         // bytes in; default 8 MiB

	Limits
}

// Limits bounds what clients may use; over one of them they are refused. Unlike
// the rest of Config they may be changed later, with Runtime.SetLimits. A zero
// member has the documented default, a negative one is off.
type Limits struct {
	MaxConnections          int // default 100,000
	MaxUnauthenticated      int // default 1,024 connections before authentication
	MaxUnauthenticatedPerIP int // default 32, loopback exempt
	MaxSessions             int // default 100,000
	MaxSessionsPerPrincipal int // default off
	MaxJobs                 int // jobs not ended, of everybody; default 100,000
	MaxJobsPerPrincipal     int // default off
	MaxJobsPerSession       int // default 10,000
	Rate                    int // frames a minute a connection; default off
}

// Defaults of Config.
const (
	DefaultRuntimeID               = "arcp"
	DefaultHandshakeTimeout        = 10 * time.Second
	DefaultSessionLease            = time.Hour
	DefaultResumeWindow            = 10 * time.Minute
	DefaultHeartbeat               = 30 * time.Second
	DefaultMaxFrame                = 8 << 20
	DefaultMaxConnections          = 100_000
	DefaultMaxUnauthenticated      = 1024
	DefaultMaxUnauthenticatedPerIP = 32
	DefaultMaxSessions             = 100_000
	DefaultMaxJobs                 = 100_000
	DefaultMaxJobsPerSession       = 10_000
)

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
	c.ResumeWindow = or(c.ResumeWindow, DefaultResumeWindow)
	c.Heartbeat = or(c.Heartbeat, DefaultHeartbeat)
	if c.MaxFrame = or(c.MaxFrame, DefaultMaxFrame); c.MaxFrame < 0 {
		c.MaxFrame = math.MaxInt64 >> 1 // transports add to it
	}
	c.Limits = c.Limits.withDefaults()
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
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
	return l
}

// engine is what of the limits the engine enforces.
func (l Limits) engine() engine.Limits {
	return engine.Limits{MaxJobs: l.MaxJobs, MaxJobsPerPrincipal: l.MaxJobsPerPrincipal, MaxJobsPerSession: l.MaxJobsPerSession}
}
