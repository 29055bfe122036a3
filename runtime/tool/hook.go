package tool

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Hook allows, changes or denies each call of a tool before the call starts. Built-in tools have no
// hooks. Hooks run in the order of their registration.
type Hook struct {
	Name string // in error messages and logs

	// Before decides on a call. An error, a panic and a decision after HookTimeout deny the
	// call. Before decides again on the same call if a later hook replaces the arguments.
	// Many goroutines may call it.
	Before func(ctx context.Context, c *HookCall) (HookDecision, error)
}

// HookTimeout bounds the decision of a hook.
const HookTimeout = 5 * time.Second

// HookCall is a call that has not started. A hook must not change it.
type HookCall struct {
	Tool      *Capability
	Arguments arcp.Raw
	Job       arcp.JobID
	Parent    arcp.JobID // the calling job; empty for a client
	Session   arcp.SessionID
	Principal string
	Attempt   uint32
}

// HookDecision is the decision of one hook on a call. The zero value allows the call.
type HookDecision struct {
	// Arguments, if not nil, replace the arguments of the call. They must satisfy the limits
	// and the schema of the tool. The other hooks receive them. A different replacement by
	// another hook refuses the call.
	Arguments arcp.Raw

	Deny   bool   // the call fails with PERMISSION_DENIED
	Abort  bool   // the call and the calling job fail with ABORTED
	Reason string // of Deny or Abort
}
