package runtime_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
)

// hostFrame is an event.emit of host.subscribe.
type hostFrame struct {
	Name string `json:"name"`
	Data struct {
		host.Event
		Agents    []host.Agent     `json:"agents"`
		Approvals []map[string]any `json:"approvals"`
		Events    []host.Event     `json:"events"`
		More      bool             `json:"more"`
		Skipped   int              `json:"skipped"`
	} `json:"data"`
}

// watch reads the next frame of a subscription to the host.
func (p *peer) watch() (f hostFrame) {
	p.Helper()
	env := p.until("event.emit")
	if err := arcp.Unmarshal(env.Payload, &f); err != nil {
		p.Fatalf("%s: %v", env.Payload, err)
	}
	return f
}

// wantEvent reads an event of the host of a kind.
func (p *peer) wantEvent(kind string) host.Event {
	p.Helper()
	f := p.watch()
	if f.Name != "host.event" || f.Data.Kind != kind || !strings.HasPrefix(f.Data.ID, "event-") || f.Data.Timestamp.IsZero() || f.Data.Message == "" {
		p.Fatalf("%s %+v, want an event %s", f.Name, f.Data.Event, kind)
	}
	return f.Data.Event
}

func (p *peer) refuses(why, name, args string, want arcp.Code) *arcp.Error {
	p.Helper()
	_, err := p.run(name, args)
	if codeOf(err) != want {
		p.Fatalf("%s: %v, want %s", why, err, want)
	}
	return err
}

// An agent is its session's, also over a restart of the runtime and of its
// connection, until the session ends for good.
func TestAgentsOverTheWire(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		owner, token := b.dialToken("alice")
		other, stranger := b.dial("alice"), b.dial("bob")
		got := owner.must("host.register_agent", `{"id":"x","name":"zoe","kind":"coder","capabilities":["go"],"project":"p","pid":7,`+
			`"display":{"label":"Z","icon":"i","accent":"#fff"},"metadata":{"n":1.50}}`)
		if got["id"] != "x" || got["status"] != "idle" || got["project"] != "p" || fmt.Sprint(got["display"]) != "map[accent:#fff icon:i label:Z]" {
			t.Errorf("%v", got)
		}
		named := owner.must("host.register_agent", `{"name":"amy","kind":"coder"}`)["id"].(string)
		if len(named) != len("agent-")+12 || !strings.HasPrefix(named, "agent-") {
			t.Errorf("the runtime's id: %q", named)
		}
		if e := other.refuses("another session registers it", "host.register_agent", `{"id":"x","name":"n","kind":"k"}`, arcp.CodePermissionDenied); !strings.Contains(e.Message, "owned by another session") {
			t.Error(e)
		}
		other.refuses("another session sets its status", "host.set_status", `{"agent_id":"x","status":"running"}`, arcp.CodePermissionDenied)
		other.refuses("another session unregisters it", "host.unregister_agent", `{"agent_id":"x"}`, arcp.CodePermissionDenied)
		stranger.refuses("another principal does", "host.unregister_agent", `{"agent_id":"x"}`, arcp.CodeNotFound)
		stranger.must("host.register_agent", `{"id":"x","name":"n","kind":"k"}`) // its own
		owner.refuses("unknown", "host.set_status", `{"agent_id":"y","status":"running"}`, arcp.CodeNotFound)
		owner.refuses("no status", "host.set_status", `{"agent_id":"x","status":"busy"}`, arcp.CodeInvalidArgument)
		if got := owner.must("host.set_status", `{"agent_id":"x","status":"running","current_task":"t"}`); got["status"] != "running" || got["current_task"] != "t" {
			t.Errorf("%v", got)
		}
		if n := b.sum("arcp_agents", `"running"`); n != 1 {
			t.Errorf("%v agents are counted as running", n)
		}

		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil)
		owner = b.resume(token, 0)
		owner.until("session.resumed")
		other, stranger = b.dial("alice"), b.dial("bob")
		names := func(p *peer) (list []string) {
			for cursor := ""; ; {
				page := p.must("host.agents", fmt.Sprintf(`{"limit":1,"cursor":%q}`, cursor))
				for _, a := range page["items"].([]any) {
					a := a.(map[string]any)
					list = append(list, fmt.Sprint(a["name"], " ", a["status"]))
				}
				if cursor, _ = page["next_cursor"].(string); cursor == "" {
					return list
				}
			}
		}
		if got := names(other); !slices.Equal(got, []string{"amy idle", "zoe running"}) {
			t.Errorf("alice has %v", got)
		}
		if got := names(stranger); !slices.Equal(got, []string{"n disconnected"}) {
			t.Errorf("bob has %v", got)
		}
		other.refuses("another session's after a restart", "host.set_status", `{"agent_id":"x","status":"idle"}`, arcp.CodePermissionDenied)
		if got := owner.must("host.register_agent", `{"id":"x","name":"zoe","kind":"coder"}`); got["status"] != "idle" || got["current_task"] != nil {
			t.Errorf("registered again: %v", got)
		}
		owner.send("session.close", `{"forget":true}`)
		synctest.Wait()
		if got := names(other); !slices.Equal(got, []string{"amy stopped", "zoe stopped"}) {
			t.Errorf("after the end of the session alice has %v", got)
		}
		if got := other.must("host.register_agent", `{"id":"x","name":"zoe","kind":"coder"}`); got["session_id"] != string(other.session) {
			t.Errorf("taken over by %v", got["session_id"])
		}
		time.Sleep(runtime.DefaultRetention + time.Hour) // the other sessions end on the way
		other = b.dial("alice")
		if got := names(other); !slices.Equal(got, []string{"zoe stopped"}) {
			t.Errorf("after the retention alice has %v", got)
		}
		time.Sleep(runtime.DefaultRetention + time.Hour)
		if got := names(b.dial("alice")); len(got) != 0 {
			t.Errorf("after another one alice has %v", got)
		}
	})
}

func TestAgentsThatAreRefused(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		for why, args := range map[string]string{
			"no name":              `{"kind":"k"}`,
			"no kind":              `{"name":"n"}`,
			"an id with a space":   `{"id":"a b","name":"n","kind":"k"}`,
			"metadata that is a 1": `{"name":"n","kind":"k","metadata":1}`,
			"large metadata":       fmt.Sprintf(`{"name":"n","kind":"k","metadata":{"x":%q}}`, strings.Repeat("x", 16<<10)),
			"a text as capability": `{"name":"n","kind":"k","capabilities":"go"}`,
			"a name too long":      fmt.Sprintf(`{"name":%q,"kind":"k"}`, strings.Repeat("x", 257)),
			"no version":           `{"name":"n","kind":"k","executes":["tool"]}`,
			"twice":                `{"name":"n","kind":"k","executes":["tool@1","tool@1"]}`,
			"concurrency of what":  `{"name":"n","kind":"k","concurrency":2}`,
		} {
			p.refuses(why, "host.register_agent", args, arcp.CodeInvalidArgument)
		}
		p.refuses("a session that executes nothing", "host.register_agent", `{"name":"n","kind":"k","executes":["tool@1"]}`, arcp.CodeFailedPrecondition)
		p.must("host.register_agent", `{"id":"x","name":"n","kind":"k"}`)
		p.refuses("a large payload", "host.set_status", fmt.Sprintf(`{"agent_id":"x","status":"idle","payload":%q}`, strings.Repeat("x", 16<<10)), arcp.CodeInvalidArgument)
		p.refuses("a foreign cursor", "host.agents", `{"cursor":"AAAA"}`, arcp.CodeInvalidArgument)
		p.refuses("too many events", "host.events", `{"limit":501}`, arcp.CodeInvalidArgument)
	})
}

// A subscriber to the host gets a snapshot and then every event in order, of agents and
// approvals of its principal only.
func TestWatchTheHost(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		w, p, ann, bob := b.dial("alice"), b.human("alice"), b.human("ann"), b.human("bob")
		p.must("host.register_agent", `{"id":"x","name":"zoe","kind":"k"}`)
		p.must("host.register_agent", `{"id":"y","name":"amy","kind":"k"}`)
		pending := p.must("approval.request", `{"action":"deploy","agent_id":"x"}`)["approval_id"]
		job := w.submit("host.subscribe", `{}`)
		snap := w.watch()
		if snap.Name != "host.snapshot" || len(snap.Data.Agents) != 2 || snap.Data.Agents[0].Name != "amy" || snap.Data.More {
			t.Fatalf("%+v", snap)
		}
		if len(snap.Data.Approvals) != 1 || snap.Data.Approvals[0]["approval_id"] != pending {
			t.Errorf("approvals %v", snap.Data.Approvals)
		}
		if kinds := kindsOf(snap.Data.Events); !slices.Equal(kinds, []string{"approval.requested", "agent.registered", "agent.registered"}) {
			t.Errorf("events %v, want the newest first", kinds)
		}
		bob.must("host.register_agent", `{"id":"x","name":"n","kind":"k"}`) // of another principal
		p.must("host.set_status", `{"agent_id":"x","status":"waiting_for_approval","message":"hm","payload":{"why":"1.0"}}`)
		if e := w.wantEvent("agent.status_changed"); e.AgentID != "x" || e.Message != "hm" || string(e.Payload) != `{"why":"1.0"}` {
			t.Errorf("%+v", e)
		}
		p.must("host.set_status", `{"agent_id":"x","status":"running"}`)
		var a host.Agent
		if e := w.wantEvent("agent.status_changed"); arcp.Unmarshal(e.Payload, &a) != nil || a.Status != host.Running || a.ID != "x" {
			t.Errorf("%+v", e)
		}
		ann.must("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"resolution":"approve"}`, pending))
		if e := w.wantEvent("approval.resolve_requested"); !strings.Contains(string(e.Payload), string(p.session)) || strings.Contains(string(e.Payload), string(ann.session)) {
			t.Errorf("%s: want the owner's session, and not that of another principal", e.Payload)
		}
		p.must("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"resolution":"deny","reason":"secret"}`, pending))
		if e := w.wantEvent("approval.resolved"); e.AgentID != "x" || !strings.Contains(string(e.Payload), `"resolution":"deny"`) || strings.Contains(string(e.Payload), "secret") {
			t.Errorf("%+v", e)
		}
		p.send("tool.invoke", `{"tool":"danger"}`) // a gate of a job
		w.wantEvent("approval.requested")
		p.must("approval.request", `{"action":"deploy","expires_in_ms":60000}`)
		w.wantEvent("approval.requested")
		if e := w.wantEvent("approval.expired"); !strings.Contains(string(e.Payload), `"status":"expired"`) {
			t.Errorf("%s", e.Payload)
		}
		p.must("host.unregister_agent", `{"agent_id":"y"}`)
		w.wantEvent("agent.unregistered")
		p.send("session.close", `{"forget":true}`)
		if e := w.wantEvent("agent.status_changed"); e.AgentID != "x" || !strings.Contains(string(e.Payload), `"stopped"`) {
			t.Errorf("%+v", e)
		}
		w.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
		w.until("job.cancelled")
		latest := w.must("host.events", `{"limit":2}`)["items"].([]any)
		if len(latest) != 2 || latest[0].(map[string]any)["kind"] != "agent.status_changed" || latest[1].(map[string]any)["kind"] != "agent.unregistered" {
			t.Errorf("%v", latest)
		}
	})
}

func kindsOf(events []host.Event) (kinds []string) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// A store that does not respond, and a client that does not read, delay their subscription
// only: emitters do not wait, and missed events are counted.
func TestWatchersDelayNoOtherClient(t *testing.T) {
	const events = 20_000
	inBubble(t, nil, func(b *fixture) {
		w, blind := b.dial("alice"), b.dial("alice")
		w.submit("host.subscribe", `{}`)
		w.watch()
		blind.submit("host.subscribe", `{}`) // it never reads again
		synctest.Wait()
		gate := make(chan struct{})
		b.st.set(func() { b.st.gate = gate })
		began := time.Now()
		for i := range events {
			b.rt.Emit("alice", "resource.x", fmt.Sprint(i))
			if i%100 == 0 {
				synctest.Wait() // the subscriptions read until they block
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("who emits waited %v", took)
		}
		b.st.set(func() { b.st.gate = nil })
		close(gate)
		last, gaps := -1, 0
		for last < events-1 {
			f := w.watch()
			if f.Name == "host.gap" {
				gaps++
				last += f.Data.Skipped
				continue
			}
			if last++; f.Data.Message != fmt.Sprint(last) {
				t.Fatalf("%s %s, want event %d", f.Name, f.Data.Message, last)
			}
		}
		if gaps == 0 { // they become durable faster than they are taken
			t.Error("nothing was skipped of more than is kept")
		}
	})
}

// A subscription ends with the connection of its session, unless the submit says otherwise.
// After a restart it begins again with a snapshot.
func TestWatchingEnds(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialToken("alice")
		ends := p.submit("host.subscribe", `{}`)
		p.send("tool.invoke", `{"tool":"host.subscribe","on_disconnect":"continue"}`)
		goesOn := p.until("job.accepted").JobID
		_ = p.conn.Abort()
		time.Sleep(time.Minute)
		q := b.dial("alice")
		status := func(p *peer, id arcp.JobID) any {
			return p.must("jobs.get", fmt.Sprintf(`{"job_id":%q}`, id))["status"]
		}
		if got := status(q, ends); got != "cancelled" {
			t.Errorf("a subscription whose connection has ended is %v", got)
		}
		if got := status(q, goesOn); got != "running" {
			t.Errorf("one that goes on is %v", got)
		}
		p = b.resume(token, 0)
		p.until("session.resumed")
		request := p.send("tool.invoke", `{"tool":"host.subscribe"}`)
		accepted := p.until("job.accepted")
		for string(accepted.CorrelationID) != request { // missed events come first
			accepted = p.until("job.accepted")
		}
		again := accepted.JobID
		p.must("host.register_agent", `{"id":"x","name":"n","kind":"k"}`)
		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil)
		q = b.dial("alice")
		synctest.Wait()
		if got := status(q, again); got != "running" {
			t.Errorf("after a restart it is %v", got)
		}
		q.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, goesOn))
		snapshots := 0
		for snapshots < 3 { // of the first attempt, and of the second
			f := q.watch()
			if f.Name != "host.snapshot" {
				continue
			}
			if snapshots++; len(f.Data.Agents) == 1 {
				break
			}
		}
		if snapshots != 2 {
			t.Errorf("the agent is in snapshot %d, want the second", snapshots)
		}
		time.Sleep(time.Minute) // no client returns
		if got := status(q, again); got != "cancelled" {
			t.Errorf("after a restart without its client it is %v", got)
		}
	})
}

// A shutdown does not wait for host subscriptions, nor for questions that the next start
// repeats. It waits for all other jobs.
func TestShutdownWithWatchers(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.submit("host.subscribe", `{}`)
		p.watch()
		p.submit("approval.gate", `{"action":"go on"}`)
		p.submit("demo.sleep", `{"ms":3000}`)
		began := time.Now()
		b.shutdown(time.Minute)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the shutdown took %v, want what the job takes that ends", took)
		}
		b.serve.Wait()
		b.boot(nil)
		began = time.Now()
		b.shutdown(time.Minute) // also after a restart
		if took := time.Since(began); took != 0 {
			t.Errorf("the second shutdown took %v", took)
		}
	})
}

// A snapshot that is larger than an event comes in parts, each agent once.
func TestLargeSnapshot(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		for i := range 60 {
			p.must("host.register_agent", fmt.Sprintf(`{"id":"x%02d","name":"n","kind":"k","metadata":{"x":%q}}`, i, strings.Repeat("x", 15<<10)))
		}
		p.submit("host.subscribe", `{"limit":40}`)
		var ids []string
		parts, events := 0, 0
		for more := true; more; parts++ {
			f := p.watch()
			if f.Name != "host.snapshot" {
				t.Fatal(f.Name)
			}
			for _, a := range f.Data.Agents {
				ids = append(ids, a.ID)
			}
			events += len(f.Data.Events)
			more = f.Data.More
		}
		if parts < 4 || len(ids) != 60 || !slices.IsSorted(ids) || events != 40 {
			t.Errorf("%d parts, %d agents, %d events", parts, len(ids), events)
		}
		p.must("host.register_agent", `{"id":"x00","name":"n","kind":"k"}`)
		p.must("host.events", `{"limit":500}`)
	})
}

// fakeWorkers records the agents and the tools they execute.
type fakeWorkers struct {
	mu    sync.Mutex
	names map[string]string // to the agent that has it
	calls []string
}

func (f *fakeWorkers) Register(a host.Agent, actor approval.Actor) *arcp.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprint("+", a.ID, " ", actor.Principal, " ", actor.Session != "" && actor.Session == a.Session, " ", actor.Worker))
	for _, name := range a.Executes {
		if owner, ok := f.names[name]; ok && owner != a.ID {
			return arcp.Errorf(arcp.CodeAlreadyExists, "%s is executed by %s", name, owner)
		}
	}
	maps.DeleteFunc(f.names, func(_, owner string) bool { return owner == a.ID })
	for _, name := range a.Executes {
		f.names[name] = a.ID
	}
	return nil
}

func (f *fakeWorkers) Unregister(a host.Agent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "-"+a.ID)
	maps.DeleteFunc(f.names, func(_, owner string) bool { return owner == a.ID })
}

func (f *fakeWorkers) take() (calls []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls, f.calls = f.calls, nil
	return calls
}

// The tools of agents are registered before the agents, and again after a restart. A refused
// registration leaves nothing behind.
func TestAgentsThatExecute(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		e := &fakeWorkers{names: map[string]string{}}
		b.rt.ExecuteBy(e)
		p, token := b.dialToken("alice")
		q := b.dial("alice")
		want := func(why string, calls ...string) {
			t.Helper()
			synctest.Wait()
			if got := e.take(); !slices.Equal(got, calls) {
				t.Errorf("%s: %q, want %q", why, got, calls)
			}
		}
		p.must("host.register_agent", `{"id":"x","name":"n","kind":"k","executes":["build@1","test@1"],"concurrency":3}`)
		want("registered", "+x alice true true")
		q.refuses("a name that is taken", "host.register_agent", `{"id":"y","name":"n","kind":"k","executes":["test@1"]}`, arcp.CodeAlreadyExists)
		want("refused", "+y alice true true")
		if list := q.must("host.agents", "{}")["items"].([]any); len(list) != 1 {
			t.Errorf("an agent that was refused is there: %v", list)
		}
		q.refuses("a foreign agent", "host.register_agent", `{"id":"x","name":"n","kind":"k","executes":["other@1"]}`, arcp.CodePermissionDenied)
		want("a foreign agent is not disturbed")
		p.must("host.register_agent", `{"id":"x","name":"n","kind":"k"}`)
		want("it executes nothing any more", "-x")
		p.must("host.register_agent", `{"id":"x","name":"n","kind":"k","executes":["build@1"]}`)
		p.must("host.register_agent", `{"id":"z","name":"n","kind":"k","executes":["deploy@1"]}`)
		want("again", "+x alice true true", "+z alice true true")
		p.must("host.unregister_agent", `{"agent_id":"z"}`)
		want("unregistered", "-z")

		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil) // without
		q = b.dial("alice")
		if a := q.must("host.agents", "{}")["items"].([]any)[0].(map[string]any); a["status"] != "errored" {
			t.Errorf("an agent that cannot execute any more is %v", a["status"])
		}
		b.rt.ExecuteBy(e)
		if err := b.rt.LoadHost(b.Context()); err != nil {
			t.Fatal(err)
		}
		want("booted", "+x alice true true")
		p = b.resume(token, 0)
		p.until("session.resumed")
		p.send("session.close", `{"forget":true}`)
		want("its session has ended", "-x")
	})
}

// Without the role worker no jobs are executed.
func TestExecutingNeedsARole(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		b.rt.ExecuteBy(&fakeWorkers{names: map[string]string{}})
		b.dial("alice").refuses("a client", "host.register_agent", `{"name":"n","kind":"k","executes":["build@1"]}`, arcp.CodePermissionDenied)
	})
}
