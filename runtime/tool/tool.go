// Package tool describes what jobs run. A Tool has a Capability, which the runtime
// enforces and advertises, and a function. A Registry resolves agent references to
// tools.
//
// # Writing a tool
//
// A tool is a function of a context, a Job and its arguments:
//
//	func(ctx context.Context, job tool.Job, in In) (Out, error)
//
// New derives the JSON Schemas from In and Out. The context ends when the job is
// cancelled or out of time, and its cause says why. The Job emits events
// ([Job.Logger], [Job.Progress]), asks people ([Job.Ask], [Job.Choose]), saves
// checkpoints, calls other tools, and has three parts: [Job.Authority] checks the
// lease and spends the budget, [Job.Permissions] asks for more than the lease allows,
// [Job.Resources] leases things outside of the runtime.
//
// The same function runs in the process of the runtime, in a worker (package
// toolworker) and in a test without a runtime (package tooltest). A [Host] is the
// other side of a Job: the engine, the worker or the test.
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
	Retry        Retry    // default retry policy of submits; idempotent tools only
	Source       string   // go, exec, mcp, worker, agent, builtin; default go
	Default      bool     // version of a reference without one; else the first registered

	Interruptible bool     // it calls Job.Yield
	Approval      Approval // before each call; default none
	MinTrust      string   // of the submitting session; default any

	// Audience reports whether a principal may call the tool; for others it does not
	// exist. nil: all principals. It is called with locks held: it must neither block
	// nor lock.
	Audience func(principal string) bool

	// Endless marks a tool whose jobs do not end by themselves. They end with their
	// session's connection, unless the submit sets on_disconnect, and a shutdown does
	// not wait for them.
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
