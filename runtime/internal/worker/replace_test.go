package worker

import (
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
)

// describedAgent is an agent of a session that executes one@1.0.0 with a description.
func describedAgent(id string, session arcp.SessionID, description string) agents.Agent {
	a := agentOf(id, "one@1.0.0")
	a.Session, a.Capabilities = session, arcp.Raw(`{"tools":{"one@1.0.0":{"description":"`+description+`"}}}`)
	return a
}

// An agent is replaceable if its session has no connection and it differs from the new agent.
func TestReplaceableAgents(t *testing.T) {
	p, tools := newPool(t)
	register := func(a agents.Agent, replaces ...string) *arcp.Error {
		return p.Register(a, worker(a.Session, nil), replaces...)
	}
	for _, id := range []string{"x", "y"} {
		if err := register(describedAgent(id, arcp.SessionID("sess_"+id), "before")); err != nil {
			t.Fatal(err)
		}
	}
	next := describedAgent("x", "sess_next", "after")
	if got := p.Replaceable(next); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("replaceable agents = %q, want x and y, which have no connection", got)
	}
	if got := p.Replaceable(describedAgent("z", "sess_next", "before")); len(got) != 0 {
		t.Errorf("replaceable agents with the same description = %q, want none", got)
	}
	p.Attach(worker("sess_y", nil), nullConn{})
	if got := p.Replaceable(next); !slices.Equal(got, []string{"x"}) {
		t.Errorf("replaceable agents = %q, want x: y has a connection", got)
	}
	if err := register(next, "x", "y"); err == nil || err.Code != arcp.CodeUnavailable || !err.Retryable {
		t.Errorf("Register of an agent that replaces one with a connection = %v, want UNAVAILABLE", err)
	}
	if err := register(next, "x"); err == nil || err.Code != arcp.CodeFailedPrecondition {
		t.Errorf("Register beside an agent with a connection that differs = %v, want FAILED_PRECONDITION", err)
	}
	if p.agents[agentKey{"alice", "x"}].worker.session != "sess_x" {
		t.Error("a refused registration has replaced an agent")
	}
	p.Detach("sess_y", nullConn{})
	if err := register(next, "x", "y"); err != nil {
		t.Fatalf("Register of the next version = %v", err)
	}
	if one, err := tools.Resolve("one"); err != nil || one.Description != "after" || len(p.agents) != 1 || len(p.workers) != 1 {
		t.Errorf("after the replacement one is %+v, %v, of %d agents in %d sessions, want the new one in one session", one, err, len(p.agents), len(p.workers))
	}
}
