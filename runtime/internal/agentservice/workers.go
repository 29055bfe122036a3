package agentservice

import (
	"context"
	"errors"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
)

// Workers are the agents that execute jobs (SPEC.md §7.8). An agent is identified by its
// principal and its id. Goroutines may call the methods at once, but for different agents
// only.
type Workers interface {
	// Register adds an agent, or replaces it. Register is called before the agent's row is
	// written and, when the runtime starts, before jobs are recovered. owner is the actor of the
	// agent's session; it has the role worker. A tool name that another agent has is an error,
	// which changes nothing. If the row cannot be written, the caller undoes the change with
	// Unregister, or with Register and the previous agent.
	//
	// The agents of other sessions with the ids of replaces are removed, if they are Replaceable.
	Register(a agents.Agent, owner approval.Actor, replaces ...string) *arcp.Error
	// Replaceable returns the ids of the agents that a registration of a would replace, because they
	// have neither a connection nor a job.
	Replaceable(a agents.Agent) (ids []string)
	// Unregister removes an agent that was unregistered, executes nothing any more, or whose
	// session has ended. An agent that is not registered is ignored.
	Unregister(a agents.Agent)
}

// workers registers agents with the pool if their sessions accept jobs.
type workers struct{ opts *Options }

var _ Workers = workers{}

func (w workers) Replaceable(a agents.Agent) []string { return w.opts.Workers.Replaceable(a) }

func (w workers) Register(a agents.Agent, owner approval.Actor, replaces ...string) *arcp.Error {
	err := w.checkFeature(&owner)
	if err == nil {
		err = w.opts.Workers.Register(a, owner, replaces...)
	}
	if err != nil {
		w.opts.Audit.Event("host.register_agent", owner.Principal, owner.Session).Str("target", a.ID).Strs("executes", a.Executes).
			Str("decision", "denied").Str("reason", err.Message).Msg("audit")
	}
	return err
}

func (w workers) Unregister(a agents.Agent) { w.opts.Workers.Unregister(a) }

// checkFeature refuses a session without the feature executes. It reads the store, so it must not
// run on the loop of a connection.
func (w workers) checkFeature(owner *approval.Actor) *arcp.Error {
	row, err := w.opts.Store.Session(context.Background(), owner.Session)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")
	case err != nil:
		return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
	case owner.Worker && !slices.Contains(row.Negotiated, arcp.FeatureExecutes):
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the session cannot be given jobs: open one with the capability executes")
	}
	return nil
}
