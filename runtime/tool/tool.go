// Package tool describes the tools that jobs run. A Tool has a Capability, which the runtime
// enforces and advertises, and a function. A Registry resolves agent references to tools.
//
// A tool is a function of a context, a Job and its arguments:
//
//	func(ctx context.Context, job tool.Job, in In) (Out, error)
//
// New derives the JSON Schemas from In and Out. The context ends when the job is cancelled or
// out of time, and its cause is the reason. The Job emits events ([Job.Logger],
// [Job.Progress]), asks people ([Job.Ask], [Job.Choose]), saves checkpoints, and calls other
// tools. [Job.Authority] checks the lease and spends the budget. [Job.Permissions] asks for
// more than the lease allows. [Job.Resources] leases resources outside of the runtime.
//
// The same function runs in the process of the runtime, in a worker (package toolworker) and
// in a test without a runtime (package tooltest).
//
//   - The tool: Tool, Func, Capability, Limits, SideEffect, Recovery, Approval, Retry.
//   - Its job: Job, Authority, Permissions, Resources, Call, Answer, InputRequest, ChoiceRequest,
//     PermissionRequest, PermissionLease, ResourceRequest, DirectoryRequest, ResourceLease.
//   - All tools of a runtime: Registry, TakenError.
//   - Tools of another server or program: Source, Delta.
//   - Decisions on calls: Hook, HookCall, HookDecision.
//
// The runtime uses Host, Attempt, AttemptInfo and PanicError for the other side of a Job, and State
// and Family to compose the catalog of a session.
package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/rule"
)

// SideEffect is the strongest effect that a tool has outside of its result. Jobs of tools with
// SideEffectNone or SideEffectRead may start before they are durable.
type SideEffect string

// The side effects.
const (
	SideEffectNone     SideEffect = "none"
	SideEffectRead     SideEffect = "read"            // reads data outside of the arguments
	SideEffectWrite    SideEffect = "write"           // changes files
	SideEffectNetwork  SideEffect = "network"         // sends requests
	SideEffectDatabase SideEffect = "database"        // changes a database
	SideEffectExternal SideEffect = "external_system" // changes another system
)

// Recovery decides how a job continues that was running when the runtime stopped.
type Recovery string

// The recoveries.
const (
	RecoveryRerun      Recovery = "rerun"      // a new attempt starts from the beginning
	RecoveryCheckpoint Recovery = "checkpoint" // a new attempt starts from the last checkpoint; see Job.Restored
	RecoveryFail       Recovery = "fail"       // the job ends with ABORTED
)

// Capability describes a tool. The runtime advertises and enforces it (SPEC.md §7.1). A zero
// member means its default.
type Capability struct {
	Name         string // lower case letters, digits, dots, dashes and underscores
	Version      string // default "1.0.0"
	Description  string
	InputSchema  arcp.Raw   // JSON Schema 2020-12 of the arguments; nil: any value
	OutputSchema arcp.Raw   // JSON Schema 2020-12 of the result; nil: any value
	SideEffect   SideEffect // default SideEffectExternal
	Limits       Limits
	Idempotent   *bool      // a repeated call has no further effect; default true
	Recovery     Recovery   // default RecoveryFail
	Retry        Retry      // retry policy of submits without one; only for an idempotent tool
	Source       SourceKind // default SourceGo
	Default      bool       // a reference without a version means this version, not the first registered one

	Interruptible bool            // the tool calls Job.Yield
	ReadsStreams  bool            // the tool calls Job.AcceptStream
	NeedsDirs     bool            // each call leases a directory, so the runtime needs Config.ResourceDir
	Approval      Approval        // approval policy of calls; default ApprovalNone
	MinTrust      arcp.TrustLevel // lowest trust level that may call the tool; default any

	// Audience reports whether the tool exists for a principal; nil: for every principal.
	// The caller holds locks, so Audience must not block or lock.
	Audience func(principal string) bool

	// Gate, if set, holds back the jobs of the tool until it is opened. The Gate of a Source is
	// opened at the latest by its Close.
	Gate *Gate

	// Endless marks a tool whose jobs do not end by themselves. Such a job ends with the
	// connection of its session, unless the submit has on_disconnect. A shutdown does not
	// wait for it.
	Endless bool
}

// Limits bounds the calls of a tool. A negative member is no limit, zero the default.
type Limits struct {
	Timeout          time.Duration // of an attempt; default 5 s
	MaxRequestBytes  int           // of the encoded arguments; default 1 MiB
	MaxResponseBytes int           // of the encoded result; default 1 MiB
	Concurrency      int           // jobs that run at once; up to MaxQueue more wait; default 16
	StartTimeout     time.Duration // wait of a job without a connected worker; 0: that of the runtime; negative: no bound
	RatePerMin       int           // accepted calls per minute of all callers together; default no limit
}

// MaxQueue bounds the jobs that wait for a slot of a tool.
const MaxQueue = 1024

// Func runs one attempt of a job and returns its result as JSON. The arguments satisfy the input
// schema. The caller receives an *arcp.Error unchanged, and any other error as UNKNOWN with its
// text.
//
// ctx ends when the job is cancelled or out of time, and its cause is the reason. The runtime
// abandons a Func that ignores ctx after the deadline of the cancel, and drops its events and its
// result.
type Func func(ctx context.Context, job Job, args arcp.Raw) (arcp.Raw, error)

// VisibleTo reports whether a tool exists for a principal.
func (c *Capability) VisibleTo(principal string) bool {
	return c.Audience == nil || c.Audience(principal)
}

// Tool is a capability with its function. Create one with New, MustNew or NewRaw. A Tool is
// immutable. Many goroutines may use it.
type Tool struct {
	Capability
	ref    string // name@version
	run    Func
	raw    bool       // run may return invalid JSON
	input  *validator // nil: arguments are not validated
	output *validator // nil: results are not validated
	rule   *rule.Rule // nil: the approval policy has no rule
}
