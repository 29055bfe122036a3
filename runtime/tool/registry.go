package tool

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agentref"
)

// Reserved lists the prefixes of the runtime's own tools (SPEC.md §7).
var Reserved = []string{"registry.", "host.", "approval.", "tools.", "code.", "artifact.", "jobs.", "sessions.", "input.", "demo."}

// Registry holds the tools of the runtime. Register adds single tools. Replace replaces all tools
// of a named source, such as an MCP server, in one step. Create a Registry with NewRegistry. Many
// goroutines may use it. Resolving takes no lock, and the cost of a change grows with the size of
// the change.
type Registry struct {
	mu       sync.Mutex         // held during a change of the state
	sources  map[string][]*Tool // by name; "": the tools of Register
	watches  []func(generation uint64)
	reserved []reservation
	state    atomic.Pointer[State]
}

// NewRegistry returns an empty registry of generation 0.
func NewRegistry() *Registry {
	r := &Registry{sources: make(map[string][]*Tool)}
	r.state.Store(newState())
	return r
}

// TakenError reports a tool that conflicts with a registered one.
type TakenError struct {
	Ref string // name@version of the refused tool
	err error
}

func (e *TakenError) Error() string { return fmt.Sprintf("tool %s: %v", e.Ref, e.err) }
func (e *TakenError) Unwrap() error { return e.err }

// Register adds a tool. The error is a reserved prefix, or a *TakenError: the name belongs to another
// source, the version exists, or another version is the default already.
func (r *Registry) Register(t *Tool) error {
	if err := unreserved(t); err != nil {
		return err
	}
	return r.RegisterBuiltin(t)
}

func unreserved(t *Tool) error {
	for _, p := range Reserved {
		if strings.HasPrefix(t.Name, p) {
			return fmt.Errorf("tool %s: names that begin with %q are reserved", t.ref, p)
		}
	}
	return nil
}

// RegisterBuiltin is Register for the runtime's own tools, whose names may have a reserved prefix.
// Only the runtime uses it.
func (r *Registry) RegisterBuiltin(t *Tool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.state.Load().edit()
	if err := next.add("", t); err != nil {
		return err
	}
	r.sources[""] = append(r.sources[""], t)
	r.publish(next)
	return nil
}

// reservation reserves names for a configured source, or for the worker of a principal.
type reservation struct {
	principal string // empty: no worker may register the names
	matches   func(name string) bool
}

// ReservePrefix reserves the names with a prefix for a configured source. A worker cannot
// register the name of a tool whose server is down.
func (r *Registry) ReservePrefix(prefix string) {
	r.reserve(reservation{matches: func(name string) bool { return strings.HasPrefix(name, prefix) }})
}

// ReserveFor reserves the names that match a glob, as of path.Match, for the worker of a
// principal. No other worker can register them before it. The glob "*" reserves nothing.
func (r *Registry) ReserveFor(principal, glob string) {
	r.reserve(reservation{principal, func(name string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil && glob != "*"
	}})
}

func (r *Registry) reserve(n reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved = append(r.reserved, n)
}

// ReplaceReserved replaces all reservations of ReservePrefix and ReserveFor in one step. globs are by principal.
func (r *Registry) ReplaceReserved(prefixes []string, globs map[string][]string) {
	fresh := &Registry{}
	for _, prefix := range prefixes {
		fresh.ReservePrefix(prefix)
	}
	for principal, list := range globs {
		for _, glob := range list {
			fresh.ReserveFor(principal, glob)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved = fresh.reserved
}

// IsReserved reports whether a name is reserved, and not for the worker of a principal. The name of
// a configured source is reserved for that source, even if it matches a glob of the worker. The
// runtime uses it when a worker registers tools.
func (r *Registry) IsReserved(name, principal string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	own, reserved := false, false
	for _, n := range r.reserved {
		switch {
		case !n.matches(name):
		case n.principal == "":
			return true
		case n.principal == principal:
			own = true
		default:
			reserved = true
		}
	}
	return reserved && !own
}

// Replace replaces all tools of a source in one step. The name of the source is not empty, and is
// unique in the runtime. The errors are the errors of Register; an error changes nothing.
func (r *Registry) Replace(sourceName string, tools []*Tool) error {
	for _, t := range tools {
		if err := unreserved(t); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace(sourceName, slices.Clone(tools))
}

// ReplaceAll replaces all tools of several sources in one step, so that a name may move from one of the sources to
// another. The errors are the errors of Register; an error changes nothing.
func (r *Registry) ReplaceAll(sources map[string][]*Tool) error {
	for _, tools := range sources {
		for _, t := range tools {
			if err := unreserved(t); err != nil {
				return err
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.state.Load().edit()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(sources)), func(name string) bool {
		return slices.Equal(r.sources[name], sources[name])
	})
	for _, name := range names {
		next.remove(name, r.sources[name])
	}
	for _, name := range names {
		for _, t := range sources[name] {
			if err := next.add(name, t); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		r.sources[name] = slices.Clone(sources[name])
		if len(sources[name]) == 0 {
			delete(r.sources, name)
		}
	}
	if len(names) > 0 {
		r.publish(next)
	}
	return nil
}

// replace is called with r.mu.
func (r *Registry) replace(sourceName string, tools []*Tool) error {
	if slices.Equal(r.sources[sourceName], tools) {
		return nil
	}
	next := r.state.Load().edit()
	next.remove(sourceName, r.sources[sourceName])
	for _, t := range tools {
		if err := next.add(sourceName, t); err != nil {
			return err
		}
	}
	r.sources[sourceName] = tools
	if len(tools) == 0 {
		delete(r.sources, sourceName)
	}
	r.publish(next)
	return nil
}

// Delta is a change of some tools of a source.
type Delta struct {
	SourceName string   // argument of Registry.Replace
	Generation uint64   // generation of the registry to which the change applies
	Put        []*Tool  // tools to add, or to replace if the name and version exist
	Remove     []string // references name@version; unknown references are ignored
}

// Apply applies a delta to the generation of the registry that the delta names. For another
// generation the error is FAILED_PRECONDITION with details {expected, actual}. The other errors
// are the errors of Register. An error changes nothing.
func (r *Registry) Apply(d Delta) error {
	for _, t := range d.Put {
		if err := unreserved(t); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.state.Load().generation; now != d.Generation {
		return agentref.Mismatch("generation", d.Generation, now)
	}
	gone := make(map[string]bool)
	for _, ref := range d.Remove {
		gone[ref] = true
	}
	for _, t := range d.Put {
		gone[t.ref] = true
	}
	tools := slices.DeleteFunc(slices.Clone(r.sources[d.SourceName]), func(t *Tool) bool { return gone[t.ref] })
	return r.replace(d.SourceName, append(tools, d.Put...))
}

// Generation returns the number of changes since the registry was created.
func (r *Registry) Generation() uint64 { return r.state.Load().generation }

// Watch registers a function that is called after each change, in the order of the changes, on the
// goroutine of the change. f must not block or change the registry.
func (r *Registry) Watch(f func(generation uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches = append(r.watches, f)
}

// publish makes an edited state the current one. Called with r.mu.
func (r *Registry) publish(next *State) {
	next.trim()
	r.state.Store(next)
	for _, f := range r.watches {
		f(next.generation)
	}
}

// State returns the current state. The runtime uses it for the catalogs of sessions; a program
// uses Resolve and Tools.
func (r *Registry) State() *State { return r.state.Load() }

// Resolve returns the tool of an agent reference: name@version, or name for the default version.
// The error is INVALID_ARGUMENT for a malformed reference, AGENT_NOT_AVAILABLE for an unknown
// name, or AGENT_VERSION_NOT_AVAILABLE with details {versions} (SPEC.md §2.3).
func (r *Registry) Resolve(ref string) (*Tool, *arcp.Error) {
	s := r.state.Load()
	name, version, pinned := strings.Cut(ref, "@")
	f := s.Family(name)
	if t := f.Resolve(version, pinned); t != nil {
		return t, nil
	}
	var versions []string
	if f != nil {
		versions = f.Agent.Versions
	}
	return nil, agentref.NotFound(ref, versions, s.names)
}

// Tools returns every tool, sorted by name, the newest version first.
func (r *Registry) Tools() (list []*Tool) {
	for _, f := range r.state.Load().Families("") {
		list = append(list, f.Versions...)
	}
	return list
}
