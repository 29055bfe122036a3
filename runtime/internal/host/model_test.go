package host

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

// model holds the expected agents, ended sessions and number of events.
type model struct {
	agents map[string]*modelAgent // by principal and id
	gone   map[arcp.SessionID]bool
	events int // of alice
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
		r := newFixture(t)
		m := &model{agents: map[string]*modelAgent{}, gone: map[arcp.SessionID]bool{}}
		watch := func() *mirror {
			sub, snap, err := r.Subscribe("alice", 0)
			if err != nil {
				rt.Fatal(err)
			}
			w := &mirror{sub: sub, agents: map[string]Agent{}, states: m.events}
			for _, a := range snap.Agents {
				w.agents[a.ID] = a
			}
			return w
		}
		mir := watch()
		session := rapid.SampledFrom(slices.Sorted(maps.Keys(modelSessions)))
		id := rapid.SampledFrom([]string{"x", "y/z", "z"})
		changed := func(a *modelAgent) {
			if a.principal == "alice" {
				m.events++
			}
		}
		end := func(a *modelAgent) {
			if a.owner != "" && m.gone[a.owner] {
				a.owner, a.status = "", Stopped
				changed(a)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"register": func(rt *rapid.T) {
				s, id, name := session.Draw(rt, "session"), id.Draw(rt, "id"), rapid.SampledFrom([]string{"n", "m"}).Draw(rt, "name")
				if m.gone[s] {
					return // an ended session makes no calls
				}
				p := modelSessions[s]
				key := p + "\x00" + id
				old, want := m.agents[key], arcp.Code("")
				if old != nil && m.gone[old.owner] {
					end(old) // it is noticed now
				}
				if old != nil && old.owner != "" && old.owner != s && !m.gone[old.owner] {
					want = arcp.CodePermissionDenied
				}
				a, err := r.Register(rt.Context(), Agent{ID: id, Name: name, Kind: "k", Principal: p, Session: s}, nil)
				if codeOf(err) != want {
					rt.Fatalf("Register = %v, want %q", err, want)
				}
				if want == "" {
					m.agents[key] = &modelAgent{p, id, name, s, Idle, ""}
					changed(m.agents[key])
					if a.Status != Idle || a.Session != s || a.ID != id {
						rt.Fatalf("registered %+v", a)
					}
				}
			},
			"set status": func(rt *rapid.T) {
				s, id, st := session.Draw(rt, "session"), id.Draw(rt, "id"), rapid.SampledFrom(Statuses).Draw(rt, "status")
				task := rapid.Ptr(rapid.SampledFrom([]string{"", "t"}), true).Draw(rt, "task")
				a := m.agents[modelSessions[s]+"\x00"+id]
				_, err := r.SetStatus(rt.Context(), modelSessions[s], s, id, StatusChange{Status: st, CurrentTask: task})
				switch {
				case a == nil:
					wantCode(rt, "of nothing", err, arcp.CodeNotFound)
				case a.owner != s || m.gone[s]:
					wantCode(rt, "of another's", err, arcp.CodePermissionDenied)
				default:
					wantCode(rt, "of its own", err, "")
					if a.status = st; task != nil {
						a.task = *task
					}
					changed(a)
				}
			},
			"unregister": func(rt *rapid.T) {
				s, id := session.Draw(rt, "session"), id.Draw(rt, "id")
				key := modelSessions[s] + "\x00" + id
				a := m.agents[key]
				err := r.Unregister(rt.Context(), modelSessions[s], s, id)
				switch {
				case a == nil:
					wantCode(rt, "of nothing", err, arcp.CodeNotFound)
				case a.owner != "" && a.owner != s && !m.gone[a.owner]:
					wantCode(rt, "of another's", err, arcp.CodePermissionDenied)
				default:
					wantCode(rt, "of its own, or nobody's", err, "")
					changed(a)
					delete(m.agents, key)
				}
			},
			"end session, noticed": func(rt *rapid.T) {
				s := session.Draw(rt, "session")
				r.end(s)
				m.gone[s] = true
				if err := r.EndSession(rt.Context(), modelSessions[s], s); err != nil {
					rt.Fatal(err)
				}
				for _, a := range m.agents {
					if a.owner == s {
						end(a)
					}
				}
			},
			"end session, unnoticed": func(rt *rapid.T) {
				s := session.Draw(rt, "session")
				r.end(s)
				m.gone[s] = true
			},
			"sweep": func(rt *rapid.T) {
				forget := rapid.Bool().Draw(rt, "forget")
				var before time.Time
				if forget {
					before = time.Now().Add(time.Hour)
				}
				if err := r.Sweep(rt.Context(), before, func(string) bool { return true }); err != nil {
					rt.Fatal(err)
				}
				for key, a := range m.agents {
					if end(a); forget && a.owner == "" {
						changed(a)
						delete(m.agents, key)
					}
				}
			},
			"restart": func(rt *rapid.T) {
				mir.sub.Close()
				r.restart(t)
				m.events = 0
				mir = watch()
			},
			"": func(rt *rapid.T) {
				compare(rt, r, m)
				mir.catchUp(rt, r.Store, m.events)
				for _, a := range r.Agents("alice") {
					if got := mir.agents[a.ID]; fmt.Sprint(got) != fmt.Sprint(a) {
						rt.Fatalf("who watched knows %+v, and there is %+v", got, a)
					}
				}
				if n := len(r.Agents("alice")); len(mir.agents) != n {
					rt.Fatalf("who watched knows %d agents of %d", len(mir.agents), n)
				}
			},
		})
	})
}

func wantCode(t *rapid.T, what string, err error, want arcp.Code) {
	t.Helper()
	if codeOf(err) != want {
		t.Fatalf("%s: %v, want %q", what, err, want)
	}
}

func compare(t *rapid.T, r *fixture, m *model) {
	t.Helper()
	counts := map[Status]int{}
	for _, p := range []string{"alice", "bob/../alice"} {
		var want []string
		for _, a := range m.agents {
			if a.principal == p {
				counts[a.status]++
				want = append(want, fmt.Sprintf("%s %s %s %q ended=%t", a.name, a.id, a.status, a.task, a.owner == ""))
			}
		}
		slices.Sort(want) // by name, then id: neither is the beginning of another
		var got []string
		for _, a := range r.Agents(p) {
			got = append(got, fmt.Sprintf("%s %s %s %q ended=%t", a.Name, a.ID, a.Status, a.CurrentTask, !a.EndedAt.IsZero()))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s has\n%q, want\n%q", p, got, want)
		}
	}
	if got := r.counted(); !maps.Equal(got, counts) {
		t.Fatalf("counted %v, want %v", got, counts)
	}
}
