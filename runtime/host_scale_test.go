package runtime_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
)

// A hundred subscribers watch a thousand agents of ten sessions. Each sees every event or the
// number of missed ones, and none delays another.
func TestManyAgentsAndWatchers(t *testing.T) {
	const sessions, each = 10, 100
	watchers := 100
	if racing {
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
