package agents

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

// ownershipModel holds the expected agents, ended sessions and number of events, next to the store
// and the mirror of a subscriber.
type ownershipModel struct {
	*fixture
	agents map[string]*modelAgent // by principal and id
	ended  map[arcp.SessionID]bool
	away   map[arcp.SessionID]bool // sessions whose agents are counted as disconnected
	events int                     // of alice
	mirror *mirror
}

type modelAgent struct {
	principal, id, name string
	owner               arcp.SessionID // empty: it has ended
	status              Status
	task                string
}

// mirror holds the agents as a subscriber knows them from a snapshot and events.
type mirror struct {
	sub    *Subscription
	agents map[string]Agent
	states int
}

func (m *mirror) catchUp(t *rapid.T, h *Store, upTo int) {
	for m.states < upTo {
		events, skipped, err := m.sub.Next(t.Context())
		if err != nil || skipped > 0 {
			t.Fatalf("Next: %d skipped, %v", skipped, err)
		}
		for _, e := range events {
			m.states++
			if e.Kind == AgentUnregistered {
				delete(m.agents, e.AgentID)
				continue
			}
			var a Agent
			if err := arcp.Unmarshal(e.Payload, &a); err != nil {
				t.Fatal(err)
			}
			m.agents[a.ID] = a
		}
	}
}

var modelSessions = map[arcp.SessionID]string{"sess_a1": "alice", "sess_a2": "alice", "sess_a3": "alice", "sess_b1": "bob/../alice"}

// In any sequence of operations only the owner of an agent can change it, and the mirror of a
// subscriber equals the model.
func TestOwnershipModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &ownershipModel{fixture: newFixture(t), agents: map[string]*modelAgent{}, ended: map[arcp.SessionID]bool{}, away: map[arcp.SessionID]bool{}}
		m.subscribe(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"register":               m.register,
			"set status":             m.setStatus,
			"unregister":             m.unregister,
			"end session, noticed":   m.endSession,
			"end session, unnoticed": func(rt *rapid.T) { m.loseSession(drawSession(rt)) },
			"sweep":                  m.sweep,
			"restart": func(rt *rapid.T) {
				m.mirror.sub.Close()
				m.restart(t)
				m.events = 0
				m.away = map[arcp.SessionID]bool{}
				for _, a := range m.agents {
					m.away[a.owner] = true
				}
				m.subscribe(rt)
			},
			"lose or get a connection": func(rt *rapid.T) {
				s := drawSession(rt)
				m.away[s] = !m.away[s]
				m.SetAway(modelSessions[s], s, m.away[s])
			},
			"": m.check,
		})
	})
}

func drawSession(t *rapid.T) arcp.SessionID {
	return rapid.SampledFrom(slices.Sorted(maps.Keys(modelSessions))).Draw(t, "session")
}

func drawID(t *rapid.T) string { return rapid.SampledFrom([]string{"x", "y/z", "z"}).Draw(t, "id") }

// subscribe begins a mirror with a snapshot.
func (m *ownershipModel) subscribe(t *rapid.T) {
	sub, snap, err := m.Subscribe("alice", 0)
	if err != nil {
		t.Fatal(err)
	}
	m.mirror = &mirror{sub: sub, agents: map[string]Agent{}, states: m.events}
	for _, a := range snap.Agents {
		m.mirror.agents[a.ID] = a
	}
}

// changed counts the event about a change of an agent.
func (m *ownershipModel) changed(a *modelAgent) {
	if a.principal == "alice" {
		m.events++
	}
}

// stop stops an agent whose session has ended.
func (m *ownershipModel) stop(a *modelAgent) {
	if a.owner != "" && m.ended[a.owner] {
		a.owner, a.status = "", Stopped
		m.changed(a)
	}
}

func (m *ownershipModel) register(t *rapid.T) {
	s, id, name := drawSession(t), drawID(t), rapid.SampledFrom([]string{"n", "m"}).Draw(t, "name")
	if m.ended[s] {
		return // an ended session makes no calls
	}
	p := modelSessions[s]
	key := p + "\x00" + id
	old, want := m.agents[key], arcp.Code("")
	if old != nil {
		m.stop(old) // the store notices the end of the session now
	}
	if old != nil && old.owner != "" && old.owner != s {
		want = arcp.CodePermissionDenied
	}
	a, err := m.Register(t.Context(), Agent{ID: id, Name: name, Kind: "k", Principal: p, Session: s}, nil)
	if codeOf(err) != want {
		t.Fatalf("Register = %v, want %q", err, want)
	}
	if want == "" {
		m.agents[key] = &modelAgent{p, id, name, s, Idle, ""}
		m.changed(m.agents[key])
		if a.Status != Idle || a.Session != s || a.ID != id {
			t.Fatalf("registered %+v", a)
		}
	}
}

func (m *ownershipModel) setStatus(t *rapid.T) {
	s, id, status := drawSession(t), drawID(t), rapid.SampledFrom(Statuses).Draw(t, "status")
	task := rapid.Ptr(rapid.SampledFrom([]string{"", "t"}), true).Draw(t, "task")
	a := m.agents[modelSessions[s]+"\x00"+id]
	_, err := m.SetStatus(t.Context(), modelSessions[s], s, id, StatusChange{Status: status, CurrentTask: task})
	switch {
	case a == nil:
		wantCode(t, "status of an unknown agent", err, arcp.CodeNotFound)
	case a.owner != s || m.ended[s]:
		wantCode(t, "status of another session's agent", err, arcp.CodePermissionDenied)
	default:
		wantCode(t, "status of its own agent", err, "")
		if a.status = status; task != nil {
			a.task = *task
		}
		m.changed(a)
	}
}

func (m *ownershipModel) unregister(t *rapid.T) {
	s, id := drawSession(t), drawID(t)
	key := modelSessions[s] + "\x00" + id
	a := m.agents[key]
	err := m.Unregister(t.Context(), modelSessions[s], s, id)
	switch {
	case a == nil:
		wantCode(t, "unregister an unknown agent", err, arcp.CodeNotFound)
	case a.owner != "" && a.owner != s && !m.ended[a.owner]:
		wantCode(t, "unregister another session's agent", err, arcp.CodePermissionDenied)
	default:
		wantCode(t, "unregister its own agent, or one without an owner", err, "")
		m.changed(a)
		delete(m.agents, key)
	}
}

// endSession ends a session, and the store is notified.
func (m *ownershipModel) endSession(t *rapid.T) {
	s := drawSession(t)
	m.loseSession(s)
	if err := m.EndSession(t.Context(), modelSessions[s], s); err != nil {
		t.Fatal(err)
	}
	for _, a := range m.agents {
		if a.owner == s {
			m.stop(a)
		}
	}
}

// loseSession ends a session, and the store is not notified.
func (m *ownershipModel) loseSession(s arcp.SessionID) {
	m.end(s)
	m.ended[s] = true
}

func (m *ownershipModel) sweep(t *rapid.T) {
	forget := rapid.Bool().Draw(t, "forget")
	var before time.Time
	if forget {
		before = time.Now().Add(time.Hour)
	}
	if err := m.Sweep(t.Context(), before, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	for key, a := range m.agents {
		if m.stop(a); forget && a.owner == "" {
			m.changed(a)
			delete(m.agents, key)
		}
	}
}

// check compares the store and the mirror with the model.
func (m *ownershipModel) check(t *rapid.T) {
	m.compare(t)
	m.mirror.catchUp(t, m.Store, m.events)
	for _, a := range m.Agents("alice") {
		if got := m.mirror.agents[a.ID]; fmt.Sprint(got) != fmt.Sprint(a) {
			t.Fatalf("the subscriber knows %+v, want %+v", got, a)
		}
	}
	if n := len(m.Agents("alice")); len(m.mirror.agents) != n {
		t.Fatalf("the subscriber knows %d agents, want %d", len(m.mirror.agents), n)
	}
}

func wantCode(t *rapid.T, call string, err error, want arcp.Code) {
	t.Helper()
	if codeOf(err) != want {
		t.Fatalf("%s: %v, want %q", call, err, want)
	}
}

func (m *ownershipModel) compare(t *rapid.T) {
	t.Helper()
	counts := map[Status]int{}
	for _, p := range []string{"alice", "bob/../alice"} {
		var want []string
		for _, a := range m.agents {
			if a.principal == p {
				shown := a.status
				if m.away[a.owner] && !slices.Contains([]Status{Completed, Errored, Stopped}, a.status) {
					shown = Disconnected
				}
				counts[shown]++
				want = append(want, fmt.Sprintf("%s %s %s %q ended=%t", a.name, a.id, a.status, a.task, a.owner == ""))
			}
		}
		slices.Sort(want) // by name, then id: neither is the beginning of another
		var got []string
		for _, a := range m.Agents(p) {
			got = append(got, fmt.Sprintf("%s %s %s %q ended=%t", a.Name, a.ID, a.Status, a.CurrentTask, !a.EndedAt.IsZero()))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s has\n%q, want\n%q", p, got, want)
		}
	}
	if got := m.counted(); !maps.Equal(got, counts) {
		t.Fatalf("counted %v, want %v", got, counts)
	}
}
