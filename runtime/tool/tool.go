// Package tool describes the tools that jobs run. A Tool has a Capability, which the runtime
// enforces and advertises, and a function. A Registry resolves agent references to tools.
//
// # Writing a tool
//
// A tool is a function of a context, a Job and its arguments:
//
//	func(ctx context.Context, job tool.Job, in In) (Out, error)
//
// New derives the JSON Schemas from In and Out. The context ends when the job is cancelled or
// out of time, and its cause is the reason. The Job emits events ([Job.Logger],
// [Job.Progress]), asks people ([Job.Ask], [Job.Choose]), saves checkpoints, and calls other
// tools. It has three parts: [Job.Authority] checks the lease and spends the budget,
// [Job.Permissions] asks for more than the lease allows, and [Job.Resources] leases things
// outside of the runtime.
//
// The same function runs in the process of the runtime, in a worker (package toolworker) and
// in a test without a runtime (package tooltest). A [Host] is the other side of a Job: the
// engine, the worker or the test.
package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// SideEffect is the kind of effect that a tool has. Tools with SideEffectNone or
// SideEffectRead may start before their job is durable.
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

// Recovery is the disposition of a job that was running when the runtime stopped.
type Recovery string

// The dispositions.
const (
	RecoveryRerun      Recovery = "rerun"
	RecoveryCheckpoint Recovery = "checkpoint"
	RecoveryFail       Recovery = "fail"
)

// Capability describes a tool; the runtime advertises and enforces it (SPEC.md §7.1). Zero
// members are the documented defaults.
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
	Retry        Retry    // default of submits; only an idempotent tool may have one
	Source       string   // one of Sources; default go
	Default      bool     // the bare name means this version; else the one registered first

	Interruptible bool     // the tool calls Job.Yield
	Approval      Approval // approval policy of calls; default none
	MinTrust      string   // trust level that a caller needs, one of TrustLevels; default any

	// Audience reports whether a principal may call the tool; for other principals the
	// tool does not exist. nil allows every principal. The caller holds locks: Audience
	// must not block or lock.
	Audience func(principal string) bool

	// Endless marks a tool whose jobs do not end by themselves. They end with the
	// connection of their session, unless the submit has on_disconnect. A shutdown does
	// not wait for them.
	Endless bool
}

// Limits bounds the calls of a tool. Negative is off, zero the default.
type Limits struct {
	Timeout          time.Duration // default 5 s
	MaxRequestBytes  int           // default 1 MiB
	MaxResponseBytes int           // default 1 MiB
	Concurrency      int           // default 16; more calls queue
	RatePerMin       int           // accepted calls per minute of all callers together; default off
}

// MaxQueue bounds the jobs that wait for a slot of a tool.
const MaxQueue = 1024

// Func runs one attempt of a job. The arguments have passed the input schema. It returns an
// encoded JSON value. An *arcp.Error is reported unchanged, any other error as UNKNOWN with
// its text.
//
// ctx ends when the job is cancelled or out of time; its cause is the reason. A Func that
// ignores ctx is abandoned after the deadline of the cancel: its events and its result are
// dropped.
type Func func(ctx context.Context, job Job, args arcp.Raw) (arcp.Raw, error)

// May reports whether a tool exists for a principal.
func (c *Capability) May(principal string) bool { return c.Audience == nil || c.Audience(principal) }

// Tool is a capability with its function. New, MustNew and NewRaw make one. It is immutable
// and may be used by many goroutines.
type Tool struct {
	Capability
	ref    string // name@version
	run    Func
	raw    bool       // the results of run are not known to be JSON
	input  *validator // nil: arguments are not validated
	output *validator // nil: results are not validated
	rule   *rule      // nil: the approval policy has no rule
}
