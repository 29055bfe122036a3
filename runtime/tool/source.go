package tool

import "context"

// Source is a server or program that has tools. The list of tools may change while the
// runtime runs. Each method but Name and Prefix is called once, Close after Start.
type Source interface {
	// Name returns the name of the source in Registry.Replace and in logs. It is unique in
	// a runtime.
	Name() string

	// Prefix returns the common prefix of the names of the tools, for
	// Registry.ReservePrefix; empty if there is none.
	Prefix() string

	// Start publishes all tools, and again after each change. It returns after the first
	// publication, or when ctx ends before; the source then continues to connect in the
	// background. An error is permanent.
	Start(ctx context.Context, publish func([]*Tool) error) error

	// Close stops the source and waits until it has stopped. Running calls fail.
	Close()
}
