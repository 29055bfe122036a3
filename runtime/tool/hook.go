package tool

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
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

// hooks is a revision of the list of hooks.
type hooks struct {
	revision uint64
	list     []Hook
}

func newHooks(old *hooks, list []Hook) *hooks {
	h := &hooks{revision: 1, list: slices.Clone(list)}
	if old != nil {
		h.revision = old.revision + 1
	}
	return h
}

// CallDecision is the combined decision of all hooks on a call. The zero value allows the call
// unchanged.
type CallDecision struct {
	Arguments arcp.Raw // replacement; nil: unchanged
	Hook      string   // name of the hook that replaced the arguments or refused the call
	Refused   *arcp.Error
	Abort     bool  // the calling job ends
	Fault     error // error of a hook that failed, for the log only
}

// Before calls the hooks for a call. The first refusal is final: later hooks are not called.
func (s *Snapshot) Before(ctx context.Context, t *Tool, c HookCall) CallDecision {
	if s.hooks == nil || len(s.hooks.list) == 0 {
		return CallDecision{}
	}
	p := proposal{call: c}
	p.call.Tool, p.call.Arguments = &t.Capability, orEmpty(c.Arguments)
	for i := range s.hooks.list {
		if r := p.ask(ctx, &s.hooks.list[i]); r.Refused != nil {
			return r
		}
	}
	if p.by == nil {
		return CallDecision{}
	}
	for i := range s.hooks.list { // the earlier hooks decide on the replacement
		h := &s.hooks.list[i]
		if h == p.by {
			break
		}
		if r := p.ask(ctx, h); r.Refused != nil {
			return r
		}
	}
	if err := t.Validate(p.call.Arguments); err != nil {
		err.Message = clip.Ellipsis("the arguments that hook "+p.by.Name+" has put in place: "+err.Message, maxMessageBytes)
		return CallDecision{Hook: p.by.Name, Refused: err}
	}
	return CallDecision{Hook: p.by.Name, Arguments: p.call.Arguments}
}

// proposal is a call on which the hooks are deciding.
type proposal struct {
	call HookCall
	by   *Hook // the hook that replaced the arguments; nil: none
}

// ask calls one hook and applies its replacement.
func (p *proposal) ask(ctx context.Context, h *Hook) CallDecision {
	r := CallDecision{Hook: h.Name}
	v, err := h.before(ctx, p.call)
	switch {
	case err != nil && ctx.Err() != nil: // the job has ended meanwhile
		ended, _ := arcp.AsError(context.Cause(ctx))
		r.Refused = clean(ended)
	case err != nil:
		r.Refused, r.Fault = denied(h, "it could not decide"), err
	case v.Abort:
		r.Refused, r.Abort = arcp.Errorf(arcp.CodeAborted, "hook %s has ended the job%s", h.Name, because(v.Reason)), true
		r.Refused.Retryable = false // the hook would decide the same
	case v.Deny:
		r.Refused = denied(h, v.Reason)
	case v.Arguments != nil:
		r.Refused = p.replace(h, v.Arguments)
	}
	return r
}

func (p *proposal) replace(h *Hook, args arcp.Raw) *arcp.Error {
	same, err := sameJSON(args, p.call.Arguments)
	switch {
	case err != nil:
		return denied(h, "the arguments that it wants are not JSON")
	case same:
		return nil
	case p.by != nil:
		return arcp.Errorf(arcp.CodePermissionDenied, "hooks %s and %s want different arguments", p.by.Name, h.Name)
	}
	p.by, p.call.Arguments = h, slices.Clone(args)
	return nil
}

func denied(h *Hook, reason string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "hook %s denies the call%s", h.Name, because(reason))
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + clip.Ellipsis(reason, maxMessageBytes)
}

// before calls the hook with a copy of the call.
func (h *Hook) before(ctx context.Context, c HookCall) (v HookDecision, err error) {
	ctx, cancel := context.WithTimeout(ctx, HookTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			v, err = HookDecision{}, &PanicError{p, debug.Stack()}
		}
	}()
	capability := *c.Tool
	c.Tool, c.Arguments = &capability, slices.Clone(c.Arguments)
	if v, err = h.Before(ctx, &c); err == nil {
		err = ctx.Err()
	}
	return v, err
}

// sameJSON compares the canonical forms of two values.
func sameJSON(a, b arcp.Raw) (bool, error) {
	if !a.IsValid() {
		return false, errors.New("not JSON")
	}
	x, err := arcp.Canonical(a)
	if err != nil {
		return false, err
	}
	y, err := arcp.Canonical(b)
	return bytes.Equal(x, y), err
}
