// Package tool describes what jobs run: a Tool has a Capability, which the
// runtime enforces and advertises, and a function. A Registry resolves agent
// references to tools.
package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// SideEffect says what a tool touches. Tools with SideEffectNone or
// SideEffectRead may be started before their job is durable.
type SideEffect string

// The side effects.
const (
	SideEffectNone     SideEffect = "none"
	SideEffectRead     SideEffect = "read"
	SideEffectWrite    SideEffect = "write"
	SideEffectNetwork  SideEffect = "network"
	SideEffectDatabase SideEffect = "database"
	SideEffectExternal SideEffect = "external_system"
)

// Recovery says what happens to a job that was running when the runtime
// stopped.
type Recovery string

// The dispositions.
const (
	RecoveryRerun      Recovery = "rerun"
	RecoveryCheckpoint Recovery = "checkpoint"
	RecoveryFail       Recovery = "fail"
)

// Capability is what the runtime knows and enforces about a tool
// (SPEC.md §7.1). Zero members are the documented defaults.
type Capability struct {
	Name         string
	Version      string // default "1.0.0"
	Description  string
	InputSchema  arcp.Raw // JSON Schema 2020-12; nil: anything
	OutputSchema arcp.Raw // nil: anything
	SideEffect   SideEffect
	Limits       Limits
	Idempotent   *bool    // default true
	Recovery     Recovery // default fail
	Source       string   // go, exec, mcp, worker, builtin; default go
	Default      bool     // the version a bare name means; else the first registered
}

// Limits bounds the calls of a tool. Negative means off, zero the default.
type Limits struct {
	Timeout          time.Duration // default 5 s
	MaxRequestBytes  int           // default 1 MiB
	MaxResponseBytes int           // default 1 MiB
	Concurrency      int           // default 16; more calls queue
	RatePerMin       int           // default none
}

// MaxQueue bounds the jobs that wait for a tool's concurrency.
const MaxQueue = 1024

// Func runs one attempt of a job. The arguments have passed the input schema.
// It returns an encoded JSON value. An *arcp.Error is reported as it is, any
// other error as UNKNOWN with its text.
//
// ctx ends when the job is cancelled or out of time; the cause says why. A Func
// that goes on regardless is abandoned after the cancel's deadline: whatever it
// does then is dropped.
type Func func(ctx context.Context, job Job, args arcp.Raw) (arcp.Raw, error)

// Job is a running job as its tool sees it. It may be used by many goroutines.
//
// Events are queued, in the order of the calls, and become durable in
// the background; a full queue blocks the caller. An error means that the job
// has ended and nothing was emitted, or that the event was refused
// (*arcp.Error): too large, or not encodable.
type Job interface {
	ID() arcp.JobID
	Attempt() uint32
	TraceID() string

	Log(level, message string, attributes any) error
	Progress(p arcp.JobProgressPayload) error
	Metric(m arcp.MetricPayload) error
	Emit(name string, data any) error

	// ManualHeartbeat makes the tool responsible for the job's heartbeats; from
	// then on it must call Heartbeat at least once an interval.
	ManualHeartbeat()
	Heartbeat()
}

// Tool is a capability and what runs it.
// It is made by New, MustNew or NewRaw and not changed afterwards; it may be
// used by many goroutines.
type Tool struct {
	Capability
	ref    string // name@version
	run    Func
	raw    bool       // run's results may be anything, not just JSON
	input  *validator // nil: anything goes
	output *validator
}
