package runtime_test

import (
	"context"
	"fmt"
	"slices"
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

func (b *fixture) replace(source string, tools ...*tool.Tool) {
	b.Helper()
	if err := b.cfg.Tools.Replace(source, tools); err != nil {
		b.Fatal(err)
	}
}

// names returns the names of tools.list, read in pages of n.
func (p *peer) names(n int) (names []string) {
	p.Helper()
	cursor := ""
	for {
		page := p.must("tools.list", fmt.Sprintf(`{"limit":%d%s}`, n, cursor))
		for _, item := range page["items"].([]any) {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		next, more := page["next_cursor"]
		if !more {
			return names
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, next)
	}
}

// agentsOf are the names of an answer's inventory.
func agentsOf(t testing.TB, env arcp.Envelope) (names []string) {
	t.Helper()
	p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range p.Capabilities.Agents {
		names = append(names, a.Name)
	}
	return names
}

// A hidden tool does not exist for its session, by any way, and exists for others.
func TestHiddenTools(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, other := b.dial("alice"), b.dial("alice")
		before := p.names(7)
		if !slices.Contains(before, "demo.echo") || !slices.Contains(before, "tools.overlay") || !slices.IsSorted(before) {
			t.Fatalf("the tools are %v", before)
		}
		set := p.must("tools.overlay", `{"hide":["demo.echo","jobs.get"],"tools":["demo.echo@0.9.0","demo.sleep"]}`)
		if set["revision"] != 1.0 || set["generation"] != float64(b.cfg.Tools.Generation()) {
			t.Errorf("set: %v", set)
		}
		unknown := p.refused("a tool that there never was", "demo.ecco", "{}", arcp.CodeAgentNotAvailable)
		for _, ref := range []string{"demo.echo", "demo.echo@0.9.0", "demo.echo@1.0.0", "demo.echo@7", "jobs.get", "demo.echoo"} {
			e := p.refused("hidden", ref, "{}", arcp.CodeAgentNotAvailable)
			name, _, _ := strings.Cut(ref, "@")
			told, hint, _ := strings.Cut(e.Message, "; ")
			if told != fmt.Sprintf("no tool or agent is named %q", name) || len(e.Details) > 0 || strings.Contains(hint+unknown.Message, `"demo.echo"`) {
				t.Errorf("%s: %s %s; want what is said of one that there never was: %s", ref, e.Message, e.Details, unknown.Message)
			}
			p.refused("described", "tools.describe", fmt.Sprintf(`{"name":%q}`, ref), arcp.CodeAgentNotAvailable)
			if ref != "jobs.get" {
				p.refused("as a child", "demo.delegate", fmt.Sprintf(`{"tool":%q,"arguments":{}}`, ref), arcp.CodeAgentNotAvailable)
			}
		}
		want := slices.DeleteFunc(slices.Clone(before), func(n string) bool { return n == "demo.echo" || n == "jobs.get" })
		if got := p.names(3); !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
		if policy := fmt.Sprint(p.must("tools.policy", `{"limit":1000}`)["items"]); strings.Contains(policy, "demo.echo") {
			t.Error("the policy speaks of a hidden tool")
		}
		if got := other.names(1000); !slices.Equal(got, before) {
			t.Errorf("another session of the same principal sees %v", got)
		}
		p.must("tools.overlay", `{}`)
		if got := p.names(1000); !slices.Equal(got, before) {
			t.Errorf("without an overlay: %v, want %v", got, before)
		}
	})
}

func TestOverlayOfItsOwn(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.must("tools.overlay", `{"include_base":false,"tools":["demo.echo@0.9.0"],"prompts":["be kind"]}`)
		want := []string{"demo.echo", "tools.calls", "tools.describe", "tools.list", "tools.overlay", "tools.policy", "tools.refresh"}
		if got := p.names(2); !slices.Equal(got, want) {
			t.Errorf("an overlay without the base lists %v, want %v", got, want)
		}
		if v, err := p.run("demo.echo", `{"n":1}`); err != nil || string(v) != `{"legacy":{"n":1}}` {
			t.Errorf("the overlay wins: %s, %v", v, err)
		}
		p.refused("the version of the base", "demo.echo@1.0.0", "{}", arcp.CodeAgentVersionNotAvailable)
		p.refused("not in the overlay", "demo.sleep", `{"ms":1}`, arcp.CodeAgentNotAvailable)
		policy := p.must("tools.policy", `{}`)
		if o := policy["overlay"].(map[string]any); o["revision"] != 1.0 || fmt.Sprint(o["prompts"]) != "[be kind]" || o["include_base"] != false {
			t.Errorf("the policy says of the overlay: %v", o)
		}
		for why, args := range map[string]string{
			"its own way back":    `{"hide":["tools.overlay"]}`,
			"no reference":        `{"hide":["Demo"]}`,
			"an unknown argument": `{"tool":["x"]}`,
		} {
			p.refused(why, "tools.overlay", args, arcp.CodeInvalidArgument)
		}
		p.refused("a tool that is not there", "tools.overlay", `{"tools":["nobody"]}`, arcp.CodeAgentNotAvailable)
		p.refused("a version that is not there", "tools.overlay", `{"tools":["demo.echo@3"]}`, arcp.CodeAgentVersionNotAvailable)
		if got := p.names(1000); !slices.Equal(got, want) {
			t.Errorf("what was refused has changed the catalogue: %v", got)
		}
	})
}

// A change for another revision than the present one is refused with the present one. An equal
// overlay changes nothing.
func TestOverlayIsComparedAndApplied(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		set := func(args string) string { return fmt.Sprint(p.must("tools.overlay", args)["revision"]) }
		if got := set(`{"hide":["demo.echo","demo.emit"],"expect_revision":0}`); got != "1" {
			t.Errorf("the first is revision %s", got)
		}
		if got := set(`{"hide":["demo.emit","demo.echo","demo.echo"],"include_base":true,"expect_revision":1}`); got != "1" {
			t.Errorf("the same again is revision %s: nothing has changed", got)
		}
		e := p.refused("another revision", "tools.overlay", `{"hide":[],"expect_revision":0}`, arcp.CodeFailedPrecondition)
		if string(e.Details) != `{"expected":0,"actual":1}` {
			t.Errorf("details %s", e.Details)
		}
		g := b.cfg.Tools.Generation()
		e = p.refused("another generation", "tools.overlay", fmt.Sprintf(`{"expect_generation":%d}`, g+1), arcp.CodeFailedPrecondition)
		if string(e.Details) != fmt.Sprintf(`{"expected":%d,"actual":%d}`, g+1, g) {
			t.Errorf("details %s", e.Details)
		}
		if got := set(fmt.Sprintf(`{"hide":["demo.echo"],"expect_revision":1,"expect_generation":%d}`, g)); got != "2" {
			t.Errorf("a real change is revision %s", got)
		}
		if got := set(`{"hide":["demo.echo"],"prompts":["x"]}`); got != "3" {
			t.Errorf("prompts are part of it: revision %s", got)
		}
	})
}

// Overlays that are set in a pipeline are set in order: none meets another one.
func TestOverlaysInAPipeline(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		const calls = 200
		p := b.dial("alice")
		for n := range calls {
			p.send("tool.invoke", fmt.Sprintf(`{"tool":"tools.overlay","arguments":{"prompts":["%d"]}}`, n))
		}
		p.send("tool.invoke", `{"tool":"tools.policy","arguments":{"limit":1}}`)
		for n := 1; n <= calls+1; {
			want := fmt.Sprintf(`"revision":%d,`, n)
			if n > calls {
				want = fmt.Sprintf(`"prompts":["%d"]`, calls-1) // as the last one has set
			}
			switch env := p.read(); env.Type {
			case arcp.JobCompleted:
				if !strings.Contains(string(env.Payload), want) {
					t.Fatalf("call %d ends with %s, want %s", n, env.Payload, want)
				}
				n++
			case arcp.JobFailed:
				t.Fatalf("call %d: %s", n, env.Payload)
			}
		}
	})
}

// overlayRows are the overlays in the store.
func (b *fixture) overlayRows() (keys []string) {
	b.Helper()
	err := b.st.Records(context.Background(), "overlay/", "", func(r store.Record) bool { keys = append(keys, r.Key); return true })
	if err != nil {
		b.Fatal(err)
	}
	return keys
}

// An overlay lives exactly as long as its session does.
func TestOverlayLivesWithTheSession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, tok := b.dialToken("alice")
		p.must("tools.overlay", `{"hide":["demo.echo"]}`)
		q, _ := b.dialToken("alice")
		q.must("tools.overlay", `{"include_base":false}`)
		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil)
		if n := len(b.overlayRows()); n != 2 {
			t.Fatalf("%d overlays are kept, want 2", n)
		}
		p = b.resume(tok, 0)
		p.until("session.resumed")
		p.n = 100
		p.refused("after a restart", "demo.echo", "{}", arcp.CodeAgentNotAvailable)
		if got := fmt.Sprint(p.must("tools.overlay", `{"hide":["demo.emit"],"expect_revision":1}`)["revision"]); got != "2" {
			t.Errorf("the revision goes on with %s, want 2", got)
		}
		again := b.reopen("alice", p.session, "")
		if names := agentsOf(t, again.expect("session.accepted")); slices.Contains(names, "demo.emit") || !slices.Contains(names, "demo.echo") {
			t.Errorf("the session's inventory is %v", names)
		}
		fresh := b.dial("alice")
		fresh.must("sessions.evict", fmt.Sprintf(`{"session_id":%q,"forget":true}`, p.session))
		synctest.Wait()
		time.Sleep(2 * runtime.DefaultRetention) // the other one is not resumed
		if rows := b.overlayRows(); len(rows) != 0 {
			t.Errorf("overlays of sessions that have ended: %v", rows)
		}
	})
}

// A session that ended in a crash leaves its overlay to the janitor of the next
// start.
func TestOverlayWithoutASession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.must("tools.overlay", `{"hide":["demo.echo"]}`)
		b.shutdown(0)
		b.serve.Wait()
		if err := b.st.Store.Commit([]*store.Write{store.NewWrite(&store.EndSession{Session: p.session})}, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
		b.boot(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if rows := b.overlayRows(); len(rows) != 0 {
			t.Errorf("left: %v", rows)
		}
	})
}

// All overlays of a principal together are bounded.
func TestOverlaysAreBounded(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		prompts := fmt.Sprintf(`{"prompts":[%q]}`, strings.Repeat("x", tool.MaxOverlayPrompt))
		var last *peer
		for i := range 300 {
			last = b.dial("alice")
			if v, err := last.run("tools.overlay", prompts); err != nil {
				if err.Code != arcp.CodeResourceExhausted || i != 256 {
					t.Fatalf("overlay %d: %s, %v", i, v, err)
				}
				break
			} else if i == 257 {
				t.Fatal("more than 16 MiB were taken")
			}
		}
		b.dial("bob").must("tools.overlay", prompts)
		p := b.dial("alice")
		p.refused("one prompt too long", "tools.overlay", fmt.Sprintf(`{"prompts":[%q]}`, strings.Repeat("x", tool.MaxOverlayPrompt+1)), arcp.CodeInvalidArgument)
		var many []string
		for i := range tool.MaxOverlayNames + 1 {
			many = append(many, fmt.Sprintf(`"n%d"`, i))
		}
		p.refused("one name too many", "tools.overlay", `{"hide":[`+strings.Join(many, ",")+`]}`, arcp.CodeInvalidArgument)
	})
}

// changed reads the next tools.changed.
func (p *peer) changed() (data map[string]any) {
	p.Helper()
	env := p.expect("event.emit")
	e, err := arcp.DecodePayload[arcp.EventEmitPayload](&env)
	if err != nil || e.Name != "tools.changed" || env.EventSeq != 0 || env.JobID != "" {
		p.Fatalf("sent %s %s, want tools.changed without a number or a job", env.Type, env.Payload)
	}
	if err := arcp.Unmarshal(e.Data, &data); err != nil {
		p.Fatal(err)
	}
	return data
}

// overlay sets an overlay and returns the event about the change, which may precede or follow
// the answer.
func (p *peer) overlay(args string) (data map[string]any) {
	p.Helper()
	p.send("tool.invoke", fmt.Sprintf(`{"tool":"tools.overlay","arguments":%s}`, args))
	for done := false; !done || data == nil; {
		env := p.read()
		if e, err := arcp.DecodePayload[arcp.EventEmitPayload](&env); err == nil && e.Name == "tools.changed" {
			if err := arcp.Unmarshal(e.Data, &data); err != nil {
				p.Fatal(err)
			}
		}
		done = done || env.Type == "job.completed"
	}
	return data
}

// Sessions are told of changes of their own catalogue, once for simultaneous changes, and not
// of others.
func TestToolsChanged(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, hiding := b.dial("alice"), b.dial("alice")
		hiding.overlay(`{"include_base":false,"tools":["demo.echo"]}`)
		x, y := plainTool(t, "x", ""), plainTool(t, "y", "")
		b.replace("s", x)
		b.replace("s", x, y)
		time.Sleep(time.Second)
		d := p.changed()
		if fmt.Sprint(d["added"]) != "[x@1.0.0 y@1.0.0]" || fmt.Sprint(d["removed"]) != "[]" || d["generation"] != float64(b.cfg.Tools.Generation()) {
			t.Errorf("told %v", d)
		}
		p.silent("two changes are told together")
		hiding.silent("what does not change for it")
		b.replace("s", x, plainTool(t, "y", "better"))
		time.Sleep(2 * time.Second)
		if d = p.changed(); fmt.Sprint(d["changed"]) != "[y@1.0.0]" || fmt.Sprint(d["added"]) != "[]" {
			t.Errorf("told %v", d)
		}
		b.replace("s", plainTool(t, "x", ""))
		b.replace("s", x, plainTool(t, "y", "better"))
		time.Sleep(2 * time.Second)
		p.silent("it is as it was")
		for range 1000 { // a source that flaps
			b.replace("s")
			time.Sleep(5 * time.Millisecond)
			b.replace("s", x)
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		p.send("ping", "{}")
		told := 0
		for env := p.read(); env.Type != arcp.Pong; env = p.read() {
			told++
		}
		if told > 12 {
			t.Errorf("2,000 changes in 10 seconds are told %d times", told)
		}
		if d = p.overlay(`{"hide":["x"]}`); fmt.Sprint(d["removed"]) != "[x@1.0.0]" || d["revision"] != 1.0 {
			t.Errorf("of its own overlay: %v", d)
		}
		var lot []*tool.Tool
		for i := range 250 {
			lot = append(lot, plainTool(t, fmt.Sprintf("lot-%03d", i), ""))
		}
		b.replace("lot", lot...)
		time.Sleep(2 * time.Second)
		if d = p.changed(); len(d["added"].([]any)) != 100 || d["more"] != 150.0 {
			t.Errorf("of 250 tools it is told %d and %v more", len(d["added"].([]any)), d["more"])
		}
	})
}

// A session that does not read gets one event later, and delays no other.
func TestToolsChangedForASlowReader(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		slow, p := b.dial("alice"), b.dial("alice")
		slow.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":400,"bytes":65536}}`)
		synctest.Wait()
		x := plainTool(t, "x", "")
		for i := range 6 {
			b.replace("s", []*tool.Tool{x}[:(i+1)%2]...)
			time.Sleep(2 * time.Second)
			if got := p.changed(); got["generation"] != float64(b.cfg.Tools.Generation()) {
				t.Fatalf("the other one is told %v", got)
			}
		}
		b.replace("s", x)
		time.Sleep(2 * time.Second)
		told := 0
		for done := false; !done || told == 0; {
			env := slow.read()
			if e, err := arcp.DecodePayload[arcp.EventEmitPayload](&env); err == nil && e.Name == "tools.changed" {
				told++
			}
			done = done || env.Type == "job.completed"
		}
		if told > 2 {
			t.Errorf("it was told %d times", told)
		}
	})
}

func TestDescribeAndPolicy(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		rule := tool.MustNew(tool.Capability{Name: "pay", Description: "pays", Approval: tool.ApprovalAuto("args.n < 1"), Recovery: tool.RecoveryRerun,
			Retry: tool.Retry{MaxAttempts: 2}, Limits: tool.Limits{Timeout: -1, RatePerMin: 6}},
			func(_ context.Context, _ tool.Job, in struct {
				N int `json:"n"`
			}) (int, error) {
				return in.N, nil
			})
		if err := b.cfg.Tools.Register(rule); err != nil {
			t.Fatal(err)
		}
		p := b.human("alice")
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
			err = b.cfg.Tools.Register(bare)
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
		if names := p.names(1000); slices.Contains(names, "trusting") || !slices.Contains(names, "danger") {
			t.Errorf("listed: %v", names)
		}
		e := p.refused("a slip of the hand", "trustin", `{}`, arcp.CodeAgentNotAvailable)
		if strings.Contains(e.Message, "trusting") {
			t.Errorf("what is not listed is hinted at: %s", e.Message)
		}
		limited := b.human("limited")
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

// The calls of a job are visible to every session that sees the job.
func TestToolsCalls(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, bob := b.dial("alice"), b.dial("bob")
		job := p.submit("demo.echo", `{"z":1,"a":[1.50]}`)
		p.until("job.completed")
		page := p.must("tools.calls", fmt.Sprintf(`{"job_id":%q}`, job))
		items := page["items"].([]any)
		c := items[0].(map[string]any)
		want := tool.Digest(arcp.Raw(`{"a":[1.50],"z":1}`))
		if len(items) != 1 || c["name"] != "demo.echo@1.0.0" || c["status"] != "ok" || c["side_effect"] != "none" || c["request_digest"] != want || c["response_digest"] != want {
			t.Errorf("the record is %v", c)
		}
		bob.refused("another principal's", "tools.calls", fmt.Sprintf(`{"job_id":%q}`, job), arcp.CodeJobNotFound)
		p.refused("a cursor of another list", "tools.calls", fmt.Sprintf(`{"job_id":%q,"cursor":"AAAA"}`, job), arcp.CodeInvalidArgument)
		job = p.submit("jobs.get", fmt.Sprintf(`{"job_id":%q}`, job))
		p.until("job.completed")
		if c = p.must("tools.calls", fmt.Sprintf(`{"job_id":%q}`, job))["items"].([]any)[0].(map[string]any); c["name"] != "jobs.get@1.0.0" || c["status"] != "ok" {
			t.Errorf("of a built-in tool: %v", c)
		}
	})
}

// Requests during a refresh share a round that begins after it.
func TestToolsRefresh(t *testing.T) {
	rounds := 0
	var failing error
	inBubble(t, func(c *runtime.Config) {
		c.Refresh = func(ctx context.Context) error {
			rounds++
			time.Sleep(time.Second)
			return failing
		}
	}, func(b *fixture) {
		p := b.dial("alice")
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
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		for i := range 400 {
			name := fmt.Sprintf("t%d", i)
			b.replace("s", plainTool(t, name, ""))
			if _, err := p.run(name, "{}"); err != nil {
				t.Fatal(err)
			}
		}
		families, err := b.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			names := map[string]bool{}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "tool" {
						names[l.GetValue()] = true
					}
				}
			}
			if len(names) > 201 || len(names) > 0 && !names["other"] {
				t.Errorf("%s has %d names of tools, other among them: %v", f.GetName(), len(names), names["other"])
			}
		}
		if n := b.sum("arcp_tool_calls_total", `"other"`); n < 190 {
			t.Errorf("%v calls are counted as other", n)
		}
	})
}

// Every call is counted by its outcome: also calls of the runtime's own tools, and refused
// ones, which have no duration.
func TestCallsAreCounted(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		p := b.dial("alice")
		p.must("tools.list", `{}`)
		p.refuses("no such tool", "tools.describe", `{"name":"none"}`, arcp.CodeAgentNotAvailable)
		gated := p.submit("danger", `{}`)
		synctest.Wait() // it waits for its approval
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, gated))
		p.until("job.cancelled")
		time.Sleep(time.Minute)
		for ref, want := range map[string]string{"tools.list": "ok 1 of 1", "tools.describe": "error 1 of 1", "danger": "error 1 of 0"} {
			if got := b.calls(ref); got != want {
				t.Errorf("calls of %s are counted as %q, want %q", ref, got, want)
			}
		}
	})
}

// calls is how the calls of a tool have ended, with their number, and how many
// durations there are.
func (b *fixture) calls(tool string) (text string) {
	b.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	durations := uint64(0)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case labels["tool"] != tool:
			case f.GetName() == "arcp_tool_calls_total" && m.GetCounter().GetValue() > 0:
				text += fmt.Sprintf("%s %v", labels["status"], m.GetCounter().GetValue())
			case f.GetName() == "arcp_tool_duration_seconds":
				durations = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return fmt.Sprintf("%s of %d", text, durations)
}
