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
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// hostFrame is an event.emit of host.subscribe.
type hostFrame struct {
	Name string `json:"name"`
	Data struct {
		agents.Event
		Agents    []agents.Agent   `json:"agents"`
		Approvals []map[string]any `json:"approvals"`
		Events    []agents.Event   `json:"events"`
		More      bool             `json:"more"`
		Skipped   int              `json:"skipped"`
	} `json:"data"`
}

// watch reads the next frame of a subscription to the host.
func (p *peer) watch() (frame hostFrame) {
	p.Helper()
	env := p.until("event.emit")
	if err := arcp.Unmarshal(env.Payload, &frame); err != nil {
		p.Fatalf("%s: %v", env.Payload, err)
	}
	return frame
}

func (p *peer) refuses(why, name, args string, want arcp.Code) *arcp.Error {
	p.Helper()
	_, err := p.run(name, args)
	if codeOf(err) != want {
		p.Fatalf("%s: %v, want %s", why, err, want)
	}
	return err
}

// A store that does not respond, and a client that does not read, delay their subscription
// only: emitters do not wait, and missed events are counted.
func TestWatchersDelayNoOtherClient(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const events = 20_000
	inBubble(t, nil, func(f *fixture) {
		w, blind := f.dial("alice"), f.dial("alice")
		w.submit("host.subscribe", `{}`)
		w.watch()
		blind.submit("host.subscribe", `{}`) // it never reads again
		synctest.Wait()
		gate := make(chan struct{})
		f.st.set(func() { f.st.commitGate = gate })
		began := time.Now()
		for i := range events {
			f.rt.Emit("alice", "resource.x", fmt.Sprint(i))
			if i%100 == 0 {
				synctest.Wait() // the subscriptions read until they block
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("who emits waited %v", took)
		}
		f.st.set(func() { f.st.commitGate = nil })
		close(gate)
		last, gaps := -1, 0
		for last < events-1 {
			frame := w.watch()
			if frame.Name == "host.gap" {
				gaps++
				last += frame.Data.Skipped
				continue
			}
			if last++; frame.Data.Message != fmt.Sprint(last) {
				t.Fatalf("%s %s, want event %d", frame.Name, frame.Data.Message, last)
			}
		}
		if gaps == 0 { // they become durable faster than they are taken
			t.Error("nothing was skipped of more than is kept")
		}
	})
}

// fakeWorkers records the agents and the tools they execute.
type fakeWorkers struct {
	mu    sync.Mutex
	names map[string]string // to the agent that has it
	calls []string
}

func (w *fakeWorkers) Register(a agents.Agent, actor approval.Actor, _ ...string) *arcp.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprint("+", a.ID, " ", actor.Principal, " ", actor.Session != "" && actor.Session == a.Session, " ", actor.Worker))
	for _, name := range a.Executes {
		if owner, ok := w.names[name]; ok && owner != a.ID {
			return arcp.Errorf(arcp.CodeAlreadyExists, "%s is executed by %s", name, owner)
		}
	}
	maps.DeleteFunc(w.names, func(_, owner string) bool { return owner == a.ID })
	for _, name := range a.Executes {
		w.names[name] = a.ID
	}
	return nil
}

func (*fakeWorkers) Replaceable(agents.Agent) []string { return nil }

func (w *fakeWorkers) Unregister(a agents.Agent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "-"+a.ID)
	maps.DeleteFunc(w.names, func(_, owner string) bool { return owner == a.ID })
}

func (w *fakeWorkers) take() (calls []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, w.calls = w.calls, nil
	return calls
}

// The tools of agents are registered before the agents, and again after a restart. A refused
// registration leaves nothing behind.
func TestAgentsThatExecute(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		e := &fakeWorkers{names: map[string]string{}}
		f.rt.ExecuteBy(e)
		p, token := f.dialToken("alice")
		q := f.dial("alice")
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

		f.shutdown(0)
		f.serve.Wait()
		f.boot(nil) // without
		q = f.dial("alice")
		if a := q.must("host.agents", "{}")["items"].([]any)[0].(map[string]any); a["status"] != "errored" {
			t.Errorf("an agent that cannot execute any more is %v", a["status"])
		}
		f.rt.ExecuteBy(e)
		if err := f.rt.LoadHost(f.Context()); err != nil {
			t.Fatal(err)
		}
		want("booted", "+x alice true true")
		p = f.resume(token, 0)
		p.until("session.resumed")
		p.send("session.close", `{"forget":true}`)
		want("its session has ended", "-x")
	})
}

// A hundred subscribers watch a thousand agents of ten sessions. Each sees every event or the
// number of missed ones, and none delays another.
func TestManyAgentsAndWatchers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const sessions, each = 10, 100
	watchers := 100
	if race.Enabled {
		watchers = 10
	}
	inBubble(t, nil, func(f *fixture) {
		var peers []*peer
		for range watchers {
			p := f.dial("alice")
			p.submit("host.subscribe", `{}`)
			p.watch() // it has begun: nothing that happens now is in its snapshot
			peers = append(peers, p)
		}
		var owners sync.WaitGroup
		for s := range sessions {
			p := f.dial("alice")
			owners.Go(func() {
				for i := range each {
					id := fmt.Sprintf("x-%d-%d", s, i)
					p.send("tool.invoke", fmt.Sprintf(`{"tool":"host.register_agent","arguments":{"id":%q,"name":"n","kind":"k"}}`, id))
				}
				for range each {
					p.until("job.completed")
				}
				for i := range each {
					p.send("tool.invoke", fmt.Sprintf(`{"tool":"host.set_status","arguments":{"agent_id":"x-%d-%d","status":"running"}}`, s, i))
				}
				for range each {
					p.until("job.completed")
				}
			})
		}
		var all sync.WaitGroup
		for n, p := range peers {
			all.Go(func() {
				running, missed := 0, 0
				for seen := 0; seen < 2*sessions*each; {
					frame := p.watch()
					switch frame.Name {
					case "host.gap":
						missed += frame.Data.Skipped
						seen += frame.Data.Skipped
					case "host.event":
						seen++
						var a agents.Agent
						if err := arcp.Unmarshal(frame.Data.Payload, &a); err != nil {
							t.Error(err)
						}
						if frame.Data.Kind == agents.AgentStatus && a.Status == agents.Running {
							running++
						}
					}
				}
				if running > sessions*each || running+missed < sessions*each {
					t.Errorf("watcher %d saw %d running agents and missed %d events, want %d together", n, running, missed, sessions*each)
				}
			})
		}
		owners.Wait()
		all.Wait()
		if n := f.sum("arcp_agents", `"running"`); n != sessions*each {
			t.Errorf("%v agents are counted as running, want %d", n, sessions*each)
		}
	})
}

// A page of agents ends at its bound, and the next one continues.
func TestAgentPagesEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		const agents, each = 100, 60 << 10
		for i := range agents {
			p.must("host.register_agent", fmt.Sprintf(`{"id":"a%03d","name":"n","kind":"k","capabilities":["%s"]}`, i, strings.Repeat("x", each)))
		}
		seen, pages, cursor := 0, 0, ""
		for {
			page := p.must("host.agents", fmt.Sprintf(`{"limit":1000,"cursor":%q}`, cursor))
			items := page["items"].([]any)
			if n := len(items) * each; n > 5<<20 {
				t.Errorf("a page has %d bytes, want at most %d", n, 5<<20)
			}
			seen, pages = seen+len(items), pages+1
			if cursor, _ = page["next_cursor"].(string); cursor == "" {
				break
			}
		}
		if seen != agents || pages < 2 {
			t.Errorf("%d agents on %d pages, want %d on more than one", seen, pages, agents)
		}
	})
}
