package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// plainTool is a tool that returns its arguments.
func plainTool(t testing.TB, name, description string) *tool.Tool {
	t.Helper()
	made, err := tool.NewRaw(tool.Capability{Name: name, Description: description, SideEffect: tool.SideEffectNone},
		func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) { return args, nil })
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (f *fixture) replace(source string, tools ...*tool.Tool) {
	f.Helper()
	if err := f.cfg.Tools.Replace(source, tools); err != nil {
		f.Fatal(err)
	}
}

// overlayRows are the overlays in the store.
func (f *fixture) overlayRows() (keys []string) {
	f.Helper()
	err := f.st.Records(context.Background(), "overlay/", "", func(r store.Record) bool { keys = append(keys, r.Key); return true })
	if err != nil {
		f.Fatal(err)
	}
	return keys
}

// A session that ended in a crash leaves its overlay to the janitor of the next
// start.
func TestOverlayWithoutASession(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		p.must("tools.overlay", `{"hide":["demo.echo"]}`)
		f.shutdown(0)
		f.serve.Wait()
		if err := f.st.Store.Commit([]*store.Write{store.NewWrite(&store.EndSession{Session: p.session})}, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
		f.boot(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if rows := f.overlayRows(); len(rows) != 0 {
			t.Errorf("left: %v", rows)
		}
	})
}

func TestPolicySaysWhatASessionMayCall(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		rule := tool.MustNew(tool.Capability{Name: "pay", Description: "pays", Approval: tool.ApprovalAuto("args.n < 1"), Recovery: tool.RecoveryRerun,
			Retry: tool.Retry{MaxAttempts: 2}, Limits: tool.Limits{Timeout: -1, RatePerMin: 6}},
			func(_ context.Context, _ tool.Job, in struct {
				N int `json:"n"`
			}) (int, error) {
				return in.N, nil
			})
		if err := f.cfg.Tools.Register(rule); err != nil {
			t.Fatal(err)
		}
		p := f.human("alice")
		d := p.must("tools.describe", `{"name":"pay@1.0.0"}`)
		for member, want := range map[string]string{"name": "pay", "version": "1.0.0", "versions": "[1.0.0]", "description": "pays", "side_effect": "external_system",
			"approval_policy": "map[auto:map[rule:args.n < 1]]", "recovery": "rerun", "idempotent": "true", "source": "go", "interruptible": "false",
			"limits": "map[concurrency:16 max_request_bytes:1.048576e+06 max_response_bytes:1.048576e+06 rate_per_min:6 timeout_ms:<nil>]",
			"retry":  "map[factor:2 initial_ms:1000 max_attempts:2 max_ms:60000]"} {
			if got := fmt.Sprint(d[member]); got != want {
				t.Errorf("%s is %s, want %s", member, got, want)
			}
		}
		bare, err := tool.NewRaw(tool.Capability{Name: "bare"}, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw("null"), nil })
		if err == nil {
			err = f.cfg.Tools.Register(bare)
		}
		if err != nil {
			t.Fatal(err)
		}
		if schema, ok := p.must("tools.describe", `{"name":"bare"}`)["input_schema"].(map[string]any); !ok || len(schema) != 0 {
			t.Errorf("the schema of a tool without one is %v, want {}", schema)
		}
		if fmt.Sprint(d["input_schema"].(map[string]any)["required"]) != "[n]" || d["output_schema"] == nil {
			t.Errorf("the schemas: %v, %v", d["input_schema"], d["output_schema"])
		}
		p.refused("who is trusted less", "tools.describe", `{"name":"trusting"}`, arcp.CodePermissionDenied)
		p.refused("and calls it", "trusting", `{}`, arcp.CodePermissionDenied)
		if list := fmt.Sprint(p.must("tools.list", `{"limit":1000}`)["items"]); strings.Contains(list, "name:trusting") || !strings.Contains(list, "name:danger") {
			t.Errorf("listed: %v", list)
		}
		e := p.refused("a slip of the hand", "trustin", `{}`, arcp.CodeAgentNotAvailable)
		if strings.Contains(e.Message, "trusting") {
			t.Errorf("what is not listed is hinted at: %s", e.Message)
		}
		limited := f.human("limited")
		policy := limited.must("tools.policy", `{"limit":1000}`)
		if policy["principal"] != "limited" || policy["trust"] != "constrained" || fmt.Sprint(policy["roles"]) != "[client]" ||
			!strings.Contains(fmt.Sprint(policy["lease"]), "/data/**") {
			t.Errorf("the policy: %v", policy)
		}
		of := map[string]map[string]any{}
		for _, item := range policy["items"].([]any) {
			of[item.(map[string]any)["name"].(string)] = item.(map[string]any)
		}
		for name, want := range map[string]string{
			"trusting": "false false it needs the trust level privileged",
			"jobs.get": "true false it is for clients; no job calls it",
			"pay":      "true false ",
		} {
			if got := fmt.Sprint(of[name]["submit"], " ", of[name]["call"], " ", of[name]["reason"]); !strings.HasPrefix(strings.ReplaceAll(got, "  ", " "), want) || of[name]["reason"] == nil {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	})
}

// Requests during a refresh share a round that begins after it.
func TestRefreshesShareARound(t *testing.T) {
	rounds := 0
	var failing error
	inBubble(t, func(c *runtime.Config) {
		c.Refresh = func(ctx context.Context) error {
			rounds++
			time.Sleep(time.Second)
			return failing
		}
	}, func(f *fixture) {
		p := f.dial("alice")
		for range 10 {
			p.send("tool.invoke", `{"tool":"tools.refresh"}`)
		}
		for range 10 {
			p.until("job.completed")
		}
		if rounds != 2 {
			t.Errorf("10 requests at once took %d rounds, want 2", rounds)
		}
		failing = fmt.Errorf("secret of a source")
		if e := p.refused("a source that fails", "tools.refresh", "{}", arcp.CodeUnavailable); strings.Contains(e.Message, "secret") {
			t.Errorf("told %s", e.Message)
		}
	})
}

// Names of tools that come and go do not make metrics without end.
func TestMetricsOfManyTools(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		for i := range 400 {
			name := fmt.Sprintf("t%d", i)
			f.replace("s", plainTool(t, name, ""))
			if _, err := p.run(name, "{}"); err != nil {
				t.Fatal(err)
			}
		}
		families, err := f.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			names := map[string]bool{}
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "tool" {
						names[l.GetValue()] = true
					}
				}
			}
			if len(names) > 201 || strings.HasPrefix(family.GetName(), "arcp_job_") && !names["other"] {
				t.Errorf("%s has %d names of tools, other among them: %v", family.GetName(), len(names), names["other"])
			}
		}
		if n := f.sum("arcp_tool_calls_total", `"other"`); n < 190 {
			t.Errorf("%v calls are counted as other", n)
		}
	})
}

// Every call is counted by its outcome: also calls of the runtime's own tools, and refused
// ones, which have no duration.
func TestCallsAreCounted(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		p := f.dial("alice")
		p.must("tools.list", `{}`)
		p.refuses("no such tool", "tools.describe", `{"name":"none"}`, arcp.CodeAgentNotAvailable)
		gated := p.submit("danger", `{}`)
		synctest.Wait() // it waits for its approval
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, gated))
		p.until("job.cancelled")
		time.Sleep(time.Minute)
		for ref, want := range map[string]string{"builtin": "error 1ok 1 of 2", "danger": "error 1 of 0"} {
			if got := f.calls(ref); got != want {
				t.Errorf("calls of %s are counted as %q, want %q", ref, got, want)
			}
		}
	})
}

// calls is how the calls of a tool have ended, with their number, and how many
// durations there are.
func (f *fixture) calls(tool string) (text string) {
	f.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		f.Fatal(err)
	}
	durations := uint64(0)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case labels["tool"] != tool:
			case family.GetName() == "arcp_tool_calls_total" && m.GetCounter().GetValue() > 0:
				text += fmt.Sprintf("%s %v", labels["status"], m.GetCounter().GetValue())
			case family.GetName() == "arcp_tool_duration_seconds":
				durations = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return fmt.Sprintf("%s of %d", text, durations)
}
