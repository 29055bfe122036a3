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

// Hook looks at each call of a tool before it is made, but for those of the
// runtime's own tools. Hooks are asked in the order in which they were registered.
type Hook struct {
	Name string // said to who is refused, and in logs

	// Before decides about a call. An error denies it, and so does a panic, and not
	// to answer within HookTimeout. It may be called by many goroutines at once, and
	// more than once for a call: a hook is asked again when a later one has replaced
	// the arguments.
	Before func(ctx context.Context, c *HookCall) (HookDecision, error)
}

// HookTimeout bounds the time that a hook has for a call.
const HookTimeout = 5 * time.Second

// HookCall is a call that is about to be made. It must not be changed.
type HookCall struct {
	Tool      *Capability
	Arguments arcp.Raw
	Job       arcp.JobID
	Parent    arcp.JobID // that calls; empty: a client does
	Session   arcp.SessionID
	Principal string
	Attempt   uint32
}

// HookDecision is the decision of one hook about a call. The zero value lets the call pass.
type HookDecision struct {
	// Arguments, if not nil, take the place of those of the call. The other hooks
	// see them, and they must satisfy the tool's limits and schema. If another hook
	// wants others, the call is refused.
	Arguments arcp.Raw

	Deny   bool   // the call is not made: PERMISSION_DENIED
	Abort  bool   // and the job that made it ends, too: ABORTED
	Reason string // of either
}

// hooks are those in force, with the number of times that they were set.
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

// CallDecision is the decision of all hooks about a call. The zero value lets the call pass
// unchanged.
type CallDecision struct {
	Arguments arcp.Raw // to make the call with; nil: those of the call
	Hook      string   // that has put them in place, or refuses
	Refused   *arcp.Error
	Abort     bool  // the job that called ends, too
	Fault     error // why the hook could not decide; for the log only
}

// Before asks the hooks about a call. The first refusal stands: no later hook is
// asked.
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
	for i := range s.hooks.list { // those before see the replacement once more
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

// proposal is a call while the hooks are asked.
type proposal struct {
	call HookCall
	by   *Hook // that has replaced the arguments; nil: none
}

// ask asks one hook, and takes its replacement.
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
		r.Refused.Retryable = false // it would again
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

// before calls the hook with a call of its own.
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

// sameJSON compares two values as they are digested.
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
