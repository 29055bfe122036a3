package tool

import "context"

// Source is where tools come from whose list may change while the runtime runs:
// a server, a program. Its methods are called once each, Close after Start.
type Source interface {
	// Name is unique among the sources of a runtime: it names them in
	// Registry.Replace and in logs.
	Name() string

	// Prefix is what the names of its tools begin with, which is then for
	// Registry.Keep; empty if they have nothing in common.
	Prefix() string

	// Start has the tools published, all of them each time that they change. It
	// returns when they were published first, or when ctx ends before; what it
	// connects to it then goes on to try by itself. An error means that trying
	// again cannot help.
	Start(ctx context.Context, publish func([]*Tool) error) error

	// Close ends what the source has started, and returns when it has ended.
	// Calls under way fail.
	Close()
}
