package agents

import (
	"context"
	"errors"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/store"
)

// Executors has agents execute jobs (SPEC.md §7.8). Both methods may be called by
// many goroutines at once, but for one agent by one at a time: an agent is what its
// principal and its id say.
type Executors interface {
	// Register says that an agent is about to execute what it names, before its row
	// is written and, at boot, before jobs are recovered; who is its session, which
	// has the role worker. An agent that is registered is replaced. It refuses names
	// that others have; then everything is as before. If the row cannot be written,
	// Unregister follows or, for an agent that was there, Register as it was.
	Register(a host.Agent, who approval.Actor) *arcp.Error
	// Unregister says that an agent executes nothing any more: it was unregistered, it
	// does not name anything any more, or its session has ended for good. One that
	// is not registered changes nothing.
	Unregister(a host.Agent)
}

// workers has agents execute jobs if their sessions can be given any.
type workers struct{ opts *Options }

var _ Executors = workers{}

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

// able refuses a session that did not say that it can be given jobs.
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
