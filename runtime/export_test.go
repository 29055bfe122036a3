package runtime

import (
	"context"

	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/agentservice"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
)

// People is how many sessions might be asked something now.
func (r *Runtime) People() (n int) {
	for _, s := range r.sessions.ByPrincipal(func(string) bool { return true }) {
		r.sessions.EachHuman(s.Principal, func(w *approval.Actor) {
			if w.Session == s.ID {
				n++
			}
		})
	}
	return n
}

// Emit emits an event of a principal, as the runtime does.
func (r *Runtime) Emit(principal, kind, message string) {
	r.agentStore.Emit(principal, agents.Event{Kind: kind, Message: message})
}

// Workers is the interface through which agents execute jobs.
type Workers = agentservice.Workers

// ExecuteBy replaces the service through which agents execute jobs.
func (r *Runtime) ExecuteBy(e Workers) { r.agents.Workers = e }

// SetMaxFollows sets how many jobs of other sessions a session may follow.
func SetMaxFollows(c *Config, n int) { c.maxFollows = n }

// LoadHost is the step of the boot that loads agents.
func (r *Runtime) LoadHost(ctx context.Context) error { return r.agents.Load(ctx) }

// Commit commits a write, as the janitor does.
func (r *Runtime) Commit(ctx context.Context, w *store.Write) error {
	_, err := r.log.Commit(ctx, w)
	return err
}

// ServeOn is ListenAndServe with a listener.
var ServeOn = serveOn
