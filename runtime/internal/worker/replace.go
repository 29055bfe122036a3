package worker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
)

// Replaceable returns the ids of the agents of other sessions that a registration of a replaces: an
// agent with the id of a, and agents that describe a tool of a differently. Such an agent has no
// connection and no live dispatch. After a kill of its program it stays until its session ends.
func (p *Pool) Replaceable(a agents.Agent) (ids []string) {
	list, err := declarations(&a)
	if err != nil {
		return nil
	}
	for _, old := range obstacles(p, &a, list) {
		ids = append(ids, old.key.id)
	}
	return ids
}

// obstacles returns the agents whose ids Replaceable returns.
func obstacles(p *Pool, a *agents.Agent, list []declared) (found []*agent) {
	p.mu.Lock()
	defer p.unlock()
	add := func(old *agent) {
		if old.worker.session != a.Session && old.isReplaceable() && !slices.Contains(found, old) {
			found = append(found, old)
		}
	}
	if old := p.agents[keyOf(a)]; old != nil {
		add(old)
	}
	for i := range list {
		t := p.tool(list[i].capability.Ref())
		if t == nil || t.principal != a.Principal || t.digest == list[i].digest {
			continue
		}
		for _, old := range t.agents {
			add(old)
		}
	}
	return found
}

// replaceable returns the agents of a principal that have the ids and belong to other sessions. The error
// is UNAVAILABLE if one of them has a connection or a job by now.
func replaceable(p *Pool, principal string, session arcp.SessionID, ids []string) (replaced []*agent, err *arcp.Error) {
	p.mu.Lock()
	defer p.unlock()
	for _, id := range ids {
		old := p.agents[agentKey{principal, id}]
		switch {
		case old == nil || old.worker.session == session:
		case old.isReplaceable():
			replaced = append(replaced, old)
		default:
			return nil, arcp.Errorf(arcp.CodeUnavailable, "the worker of session %s has returned meanwhile: register again", old.worker.session).RetryAfter(1)
		}
	}
	return replaced, nil
}

// isReplaceable reports whether an agent has neither a connection nor a live dispatch. Called with Pool.mu.
func (a *agent) isReplaceable() bool { return a.worker.conn == nil && len(a.liveJobs()) == 0 }

// liveJobs returns the jobs of the dispatches that have not ended and are not lost, sorted. Called with
// Pool.mu.
func (a *agent) liveJobs() (jobs []string) {
	for d := range a.worker.dispatches {
		if d.agent == a && !d.ended && d.lost == "" {
			jobs = append(jobs, string(d.jobID))
		}
	}
	slices.Sort(jobs)
	return jobs
}

// maxNamedJobs bounds the jobs that an error names.
const maxNamedJobs = 3

// errDescription returns the error of a registration that describes t differently. It names a session
// with a connection if there is one, otherwise a session without a connection and its jobs.
func errDescription(p *Pool, t *workerTool) *arcp.Error {
	p.mu.Lock()
	defer p.unlock()
	away := t.agents[0]
	for _, a := range t.agents {
		if a.worker.conn != nil {
			return arcp.Errorf(arcp.CodeFailedPrecondition,
				"agents that execute %s describe it differently: give the new one another version, or stop the worker of session %s",
				t.tool.Ref(), a.worker.session)
		}
		if len(a.liveJobs()) > 0 {
			away = a
		}
	}
	jobs, more := away.liveJobs(), ""
	if len(jobs) == 0 { // the last one has ended since Replaceable was called
		return arcp.Errorf(arcp.CodeUnavailable, "the jobs of session %s, which describes %s differently, have ended meanwhile: register again",
			away.worker.session, t.tool.Ref()).RetryAfter(1)
	}
	if len(jobs) > maxNamedJobs {
		jobs, more = jobs[:maxNamedJobs], fmt.Sprintf(" and %d more", len(jobs)-maxNamedJobs)
	}
	session, until := away.worker.session, away.worker.expires
	err := arcp.Errorf(arcp.CodeFailedPrecondition,
		"session %s describes %s differently: it has no connection, and until %s it may return for %s%s: try again then, or `arcp sessions evict %s --forget`",
		session, t.tool.Ref(), until.UTC().Format(time.RFC3339), strings.Join(jobs, ", "), more, session)
	err.Retryable = true
	return err.RetryAfter(max(1, int(math.Ceil(time.Until(until).Seconds()))))
}
