package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// says returns a hook that always returns v and records its arguments in saw.
func says(name string, v tool.HookDecision, saw *[]string) tool.Hook {
	return tool.Hook{Name: name, Before: func(_ context.Context, c *tool.HookCall) (tool.HookDecision, error) {
		*saw = append(*saw, name+" "+string(c.Arguments))
		return v, nil
	}}
}

// when returns a hook that returns v for the arguments args, and no decision for others.
func when(name, args string, v tool.HookDecision) tool.Hook {
	return tool.Hook{Name: name, Before: func(_ context.Context, c *tool.HookCall) (tool.HookDecision, error) {
		if string(c.Arguments) == args {
			return v, nil
		}
		return tool.HookDecision{}, nil
	}}
}

func put(args string) tool.HookDecision { return tool.HookDecision{Arguments: arcp.Raw(args)} }

func TestHooksMustAgreeOnTheArguments(t *testing.T) {
	schema := arcp.Raw(`{"type":"object","properties":{"n":{"type":"integer","maximum":9}}}`)
	target := raw(t, tool.Capability{Name: "a", InputSchema: schema, Limits: tool.Limits{MaxRequestBytes: 40}}, echo)
	var saw []string
	panics := tool.Hook{Name: "wild", Before: func(context.Context, *tool.HookCall) (tool.HookDecision, error) { panic("secret") }}
	fails := tool.Hook{Name: "weak", Before: func(context.Context, *tool.HookCall) (tool.HookDecision, error) {
		return tool.HookDecision{}, errors.New("secret")
	}}
	meddles := tool.Hook{Name: "meddler", Before: func(_ context.Context, c *tool.HookCall) (tool.HookDecision, error) {
		c.Arguments[2], c.Tool.MinTrust, c.Tool = 'X', "privileged", nil
		return tool.HookDecision{}, nil
	}}
	for _, c := range []struct {
		why   string
		hooks []tool.Hook
		want  string // the arguments, or the error
		saw   []string
	}{
		{"nobody objects", []tool.Hook{says("one", tool.HookDecision{}, &saw), says("two", tool.HookDecision{}, &saw)}, "",
			[]string{`one {"n":1}`, `two {"n":1}`}},
		{"in order, and the earlier ones see a replacement once more",
			[]tool.Hook{says("one", tool.HookDecision{}, &saw), says("two", put(`{"n":2}`), &saw), says("three", tool.HookDecision{}, &saw)},
			`{"n":2}`, []string{`one {"n":1}`, `two {"n":1}`, `three {"n":2}`, `one {"n":2}`}},
		{"the same replacement twice is one", []tool.Hook{says("one", put(`{"n":2}`), &saw), says("two", put(` {"n" : 2}`), &saw)}, `{"n":2}`,
			[]string{`one {"n":1}`, `two {"n":2}`}},
		{"two different ones", []tool.Hook{says("one", put(`{"n":2}`), &saw), says("two", put(`{"n":3}`), &saw)},
			"PERMISSION_DENIED: hooks one and two want different arguments", []string{`one {"n":1}`, `two {"n":2}`}},
		{"an earlier one wants its own back", []tool.Hook{when("one", `{"n":2}`, put(`{"n":1}`)), says("two", put(`{"n":2}`), &saw)},
			"PERMISSION_DENIED: hooks two and one want different arguments", []string{`two {"n":1}`}},
		{"an earlier one denies the replacement",
			[]tool.Hook{when("one", `{"n":2}`, tool.HookDecision{Deny: true, Reason: "not two"}), says("two", put(`{"n":2}`), &saw)},
			"PERMISSION_DENIED: hook one denies the call: not two", []string{`two {"n":1}`}},
		{"the same as before is no replacement", []tool.Hook{says("one", put(`{"n":1}`), &saw)}, "", []string{`one {"n":1}`}},
		{"a denial stands, whatever a later one wants",
			[]tool.Hook{says("one", tool.HookDecision{Deny: true}, &saw), says("two", put(`{"n":2}`), &saw)},
			"PERMISSION_DENIED: hook one denies the call", []string{`one {"n":1}`}},
		{"it ends the job", []tool.Hook{says("one", tool.HookDecision{Abort: true, Reason: "enough"}, &saw)},
			"ABORTED: hook one has ended the job: enough", []string{`one {"n":1}`}},
		{"a panic denies, and tells nothing", []tool.Hook{panics}, "PERMISSION_DENIED: hook wild denies the call: it could not decide", nil},
		{"so does an error", []tool.Hook{fails}, "PERMISSION_DENIED: hook weak denies the call: it could not decide", nil},
		{"what it gives must be JSON", []tool.Hook{says("one", put(`{"n":`), &saw)},
			"PERMISSION_DENIED: hook one denies the call: the arguments that it wants are not JSON", []string{`one {"n":1}`}},
		{"and follow the schema", []tool.Hook{says("one", put(`{"n":10}`), &saw)},
			"INVALID_ARGUMENT: the arguments that hook one has put in place: argument /n must be at most 9", []string{`one {"n":1}`}},
		{"and the size", []tool.Hook{says("one", put(`{"m":"`+strings.Repeat("x", 40)+`"}`), &saw)},
			"RESOURCE_EXHAUSTED: the arguments that hook one has put in place: the arguments object has 48 bytes; the tool's limit is 40 (limits.max_request_bytes)",
			[]string{`one {"n":1}`}},
		{"it cannot change the call behind our back", []tool.Hook{meddles, says("two", tool.HookDecision{}, &saw)}, "", []string{`two {"n":1}`}},
	} {
		saw = nil
		s := New(tool.NewRegistry(), c.hooks).Snapshot(Viewer{}, nil)
		r := s.Before(t.Context(), target, tool.HookCall{Arguments: arcp.Raw(`{"n":1}`)})
		got := string(r.Arguments)
		if r.Refused != nil {
			got = string(r.Refused.Code) + ": " + r.Refused.Message
		}
		if got != c.want || !slices.Equal(saw, c.saw) {
			t.Errorf("%s: %s, want %s; they saw %q, want %q", c.why, got, c.want, saw, c.saw)
		}
		if r.Abort != strings.HasPrefix(c.want, "ABORTED") || r.Abort && r.Refused.Retryable {
			t.Errorf("%s: abort %v, retryable %v", c.why, r.Abort, r.Refused.Retryable)
		}
		if (r.Fault != nil) != strings.Contains(c.want, "could not decide") {
			t.Errorf("%s: fault %v", c.why, r.Fault)
		}
		if string(target.InputSchema) != string(schema) || target.MinTrust != "" {
			t.Fatalf("%s: the tool was changed", c.why)
		}
	}
}

// A snapshot retains its hooks; a new snapshot has the new hooks.
func TestSnapshotRetainsItsHooks(t *testing.T) {
	c := New(registry(t, tool.Capability{Name: "a"}), nil)
	overlay, _ := ParseOverlay(Overlay{IncludeBase: true, Hide: []string{"b"}})
	for _, l := range []*Overlay{nil, overlay} {
		before, revision := c.Snapshot(Viewer{}, l), c.HookRevision()
		c.SetHooks([]tool.Hook{{Name: "no", Before: func(context.Context, *tool.HookCall) (tool.HookDecision, error) {
			return tool.HookDecision{Deny: true}, nil
		}}})
		after := c.Snapshot(Viewer{}, l)
		target, _ := after.Resolve("a")
		if r := before.Before(t.Context(), target, tool.HookCall{}); r.Refused != nil {
			t.Errorf("a job that runs already has a hook that came later: %v", r.Refused)
		}
		if r := after.Before(t.Context(), target, tool.HookCall{}); r.Refused == nil || c.HookRevision() != revision+1 {
			t.Errorf("the new hook is not asked; revision %d, want %d", c.HookRevision(), revision+1)
		}
		c.SetHooks(nil)
	}
}

// A hook that blocks does not delay the end of its job.
func TestBlockedHookEndsWithJob(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	slow := tool.Hook{Name: "slow", Before: func(ctx context.Context, _ *tool.HookCall) (tool.HookDecision, error) {
		cancel(arcp.Errorf(arcp.CodeTimeout, "out of time"))
		<-ctx.Done()
		return tool.HookDecision{}, nil
	}}
	s := New(tool.NewRegistry(), []tool.Hook{slow}).Snapshot(Viewer{}, nil)
	if r := s.Before(ctx, raw(t, tool.Capability{}, echo), tool.HookCall{}); r.Refused == nil || r.Refused.Code != arcp.CodeTimeout {
		t.Errorf("the refusal is %v, want the reason why the job has ended", r.Refused)
	}
}

// A hook that exceeds its time limit denies, whatever it returns later.
func TestHookTimeoutDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for why, slow := range map[string]tool.Hook{
			"it heeds its context": {Name: "slow", Before: func(ctx context.Context, _ *tool.HookCall) (tool.HookDecision, error) {
				<-ctx.Done()
				return tool.HookDecision{}, ctx.Err()
			}},
			"it does not": {Name: "slow", Before: func(context.Context, *tool.HookCall) (tool.HookDecision, error) {
				time.Sleep(2 * tool.HookTimeout)
				return tool.HookDecision{}, nil
			}},
		} {
			s := New(tool.NewRegistry(), []tool.Hook{slow}).Snapshot(Viewer{}, nil)
			r := s.Before(t.Context(), raw(t, tool.Capability{}, echo), tool.HookCall{})
			if r.Refused == nil || r.Refused.Code != arcp.CodePermissionDenied || !errors.Is(r.Fault, context.DeadlineExceeded) {
				t.Errorf("%s: refused with %v, fault %v; want PERMISSION_DENIED and a timeout", why, r.Refused, r.Fault)
			}
		}
	})
}
