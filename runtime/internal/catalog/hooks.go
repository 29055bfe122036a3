package catalog

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// hooks is a revision of the list of hooks.
type hooks struct {
	revision uint64
	list     []tool.Hook
}

func newHooks(old *hooks, list []tool.Hook) *hooks {
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

// maxReasonBytes bounds the texts of hooks in errors.
const maxReasonBytes = 4 << 10

// Before calls the hooks for a call. The first refusal is final: later hooks are not called.
func (s *Snapshot) Before(ctx context.Context, t *tool.Tool, c tool.HookCall) CallDecision {
	if s.hooks == nil || len(s.hooks.list) == 0 {
		return CallDecision{}
	}
	p := proposal{call: c}
	p.call.Tool = &t.Capability
	if len(c.Arguments) == 0 || c.Arguments.Kind() == 'n' { // null
		p.call.Arguments = arcp.Raw("{}")
	}
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
		err.Message = clip.Ellipsis("the arguments that hook "+p.by.Name+" has put in place: "+err.Message, maxReasonBytes)
		return CallDecision{Hook: p.by.Name, Refused: err}
	}
	return CallDecision{Hook: p.by.Name, Arguments: p.call.Arguments}
}

// proposal is a call on which the hooks are deciding.
type proposal struct {
	call tool.HookCall
	by   *tool.Hook // the hook that replaced the arguments; nil: none
}

// ask calls one hook and applies its replacement.
func (p *proposal) ask(ctx context.Context, h *tool.Hook) CallDecision {
	r := CallDecision{Hook: h.Name}
	v, err := decide(ctx, h, p.call)
	switch {
	case err != nil && ctx.Err() != nil: // the job has ended meanwhile
		cause, _ := arcp.AsError(context.Cause(ctx))
		r.Refused = new(*cause)
		r.Refused.Message = clip.Ellipsis(cause.Message, maxReasonBytes)
	case err != nil:
		r.Refused, r.Fault = denied(h, "it could not decide"), err
	case v.Abort:
		r.Refused, r.Abort = arcp.Errorf(arcp.CodeAborted, "hook %s has ended the job%s", h.Name, withReason(v.Reason)), true
		r.Refused.Retryable = false // the hook would decide the same
	case v.Deny:
		r.Refused = denied(h, v.Reason)
	case v.Arguments != nil:
		r.Refused = p.replace(h, v.Arguments)
	}
	return r
}

func (p *proposal) replace(h *tool.Hook, args arcp.Raw) *arcp.Error {
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

func denied(h *tool.Hook, reason string) *arcp.Error {
	return arcp.Errorf(arcp.CodePermissionDenied, "hook %s denies the call%s", h.Name, withReason(reason))
}

// withReason returns the end of an error with an optional reason.
func withReason(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + clip.Ellipsis(reason, maxReasonBytes)
}

// decide calls a hook with a copy of the call.
func decide(ctx context.Context, h *tool.Hook, c tool.HookCall) (v tool.HookDecision, err error) {
	ctx, cancel := context.WithTimeout(ctx, tool.HookTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			v, err = tool.HookDecision{}, &tool.PanicError{Value: p, Stack: debug.Stack()}
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
