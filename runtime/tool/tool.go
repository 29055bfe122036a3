// Package tool describes what jobs run: a Tool has a Capability, which the
// runtime enforces and advertises, and a function. A Registry resolves agent
// references to tools.
package tool

import (
	"context"
	"errors"
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
	Retry        Retry    // for submits that do not say; only of an idempotent tool
	Source       string   // go, exec, mcp, worker, agent, builtin; default go
	Default      bool     // the version a bare name means; else the first registered

	Interruptible bool     // it calls Job.Yield now and then
	Approval      Approval // who must approve a call before it is made; default nobody
	MinTrust      string   // of who submits; default any

	// Audience says who may call the tool; for others it does not exist. nil:
	// everybody. It is called with locks: it must neither block nor take one.
	Audience func(principal string) bool

	// Endless: its jobs do not end by themselves. They end with their session's
	// connection, unless the submit says on_disconnect, and a shutdown does not wait
	// for them.
	Endless bool
}

// Limits bounds the calls of a tool. Negative means off, zero the default.
type Limits struct {
	Timeout          time.Duration // default 5 s
	MaxRequestBytes  int           // default 1 MiB
	MaxResponseBytes int           // default 1 MiB
	Concurrency      int           // default 16; more calls queue
	RatePerMin       int           // calls accepted a minute, all callers together; default none
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

	Log(level, message string, attributes any) error // one of arcp.LogLevels
	Progress(p arcp.JobProgressPayload) error
	Metric(m arcp.MetricPayload) error
	Emit(name string, data any) error

	// Checkpoint makes a place to go on from durable: job.checkpoint, with data as
	// what the next attempt is given by Restored. It returns when it is durable. The
	// last 10 of a job are kept. When the runtime is shutting down it ends the
	// attempt instead: the error is ErrPaused, and the next start of the runtime
	// goes on from here.
	Checkpoint(label string, data any) error
	// CheckpointWanted receives when a client waits for a checkpoint: the next one,
	// whenever it is made, is its answer. A tool that takes long from one to the
	// next should select on it.
	CheckpointWanted() <-chan struct{}
	// Restored is the data of the checkpoint that this attempt goes on from; nil
	// at the first attempt, when there is none, and always for a tool whose
	// recovery is not RecoveryCheckpoint.
	Restored() arcp.Raw

	// Yield waits while a client has interrupted the job, and returns the guidance
	// that came with the answer, if any. It costs next to nothing when there is no
	// interrupt. An interruptible tool calls it where it can stop for a while.
	Yield(ctx context.Context) (guidance string, err error)
	// Interrupted returns a channel that is closed when a client interrupts the job,
	// and already is while Yield would wait. It is for a tool that waits for something
	// else: each time it waits it asks for the channel anew.
	Interrupted() <-chan struct{}

	// ManualHeartbeat makes the tool responsible for the job's heartbeats; from
	// then on it must call Heartbeat at least once an interval.
	ManualHeartbeat()
	Heartbeat()

	Authority
}

// ErrPaused ends an attempt at a checkpoint because the runtime shuts down. The
// job goes on from there at the next start; what the tool returns is dropped.
var ErrPaused = errors.New("the runtime is shutting down; the job goes on from its checkpoint later")

// May reports whether a tool exists for a principal.
func (c *Capability) May(principal string) bool { return c.Audience == nil || c.Audience(principal) }

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
	rule   *rule // nil: nothing approves a call but people
}
