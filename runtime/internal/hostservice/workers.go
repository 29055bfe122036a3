package hostservice

import (
	"context"
	"errors"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/store"
)

// Workers are the agents that execute jobs (SPEC.md §7.8). An agent is identified by its
// principal and its id. Goroutines may call the methods at once, but for different agents
// only.
type Workers interface {
	// Register adds an agent, or replaces one. It is called before the agent's row is
	// written and, when the runtime starts, before jobs are recovered. session is the
	// agent's session; it has the role worker. If another agent executes something of the
	// same name, an error is returned and nothing changes. If the row cannot be written, the
	// caller undoes the change: with Unregister, or with Register and the agent before.
	Register(a host.Agent, session approval.Actor) *arcp.Error
	// Unregister removes an agent: it was unregistered, it executes nothing any more, or its
	// session has ended. An agent that is not registered is ignored.
	Unregister(a host.Agent)
}

// workers registers agents with the pool if their sessions accept jobs.
type workers struct{ opts *Options }

var _ Workers = workers{}

func (w workers) Register(a host.Agent, who approval.Actor) *arcp.Error {
	err := w.able(&who)
	if err == nil {
		err = w.opts.Workers.Register(a, who)
	}
	if err != nil {
		w.opts.Audit.Event("host.register_agent", who.Principal, who.Session).Str("target", a.ID).Strs("executes", a.Executes).
			Str("decision", "denied").Str("reason", err.Message).Msg("audit")
	}
	return err
}

func (w workers) Unregister(a host.Agent) { w.opts.Workers.Unregister(a) }

// able refuses a session without the feature executes. It reads the store, so it must not run on
// the loop of a connection.
func (w workers) able(who *approval.Actor) *arcp.Error {
	row, err := w.opts.Store.Session(context.Background(), who.Session)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the session has ended")
	case err != nil:
		return arcp.Errorf(arcp.CodeUnavailable, "the store cannot be read").RetryAfter(1)
	case who.Worker && !slices.Contains(row.Negotiated, arcp.FeatureExecutes):
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the session cannot be given jobs: open one with the capability executes")
	}
	return nil
}
