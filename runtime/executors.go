package runtime

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
)

// executors has agents execute jobs (SPEC.md §7.8). Both methods may be called by
// many goroutines at once, but for one agent by one at a time: an agent is what its
// principal and its id say.
type executors interface {
	// Register says that an agent is about to execute what it names, before its row
	// is written and, at boot, before jobs are recovered; who is its session, which
	// has the role worker. An agent that is registered is replaced. It refuses names
	// that others have; then everything is as before. If the row cannot be written,
	// Unregister follows or, for an agent that was there, Register as it was.
	Register(a host.Agent, who approval.Who) *arcp.Error
	// Unregister says that an agent executes nothing any more: it was unregistered, it
	// does not name anything any more, or its session has ended for good. One that
	// is not registered changes nothing.
	Unregister(a host.Agent)
}
