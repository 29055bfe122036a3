package tool

import "context"

// Source publishes the tools of a server or program. The list of tools may change while the runtime
// runs. The runtime calls Start once and Close once after it.
type Source interface {
	// Name returns the name of the source in Registry.Replace and in logs. It is unique in
	// a runtime.
	Name() string

	// Prefix returns the common prefix of the names of the tools, for
	// Registry.ReservePrefix; empty if there is none.
	Prefix() string

	// Start publishes all tools at first and after each change. It returns after the first
	// publication or at the end of ctx; then the source connects in the background. An error
	// is permanent.
	Start(ctx context.Context, publish func([]*Tool) error) error

	// Close stops the source and waits until it has stopped. Running calls fail.
	Close()
}
