package tool

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// Reserved lists the prefixes of the runtime's own tools (SPEC.md §7).
var Reserved = []string{"registry.", "host.", "approval.", "tools.", "code.", "artifact.", "jobs.", "sessions.", "input.", "demo."}

// Registry is what there is of tools. They come from sources: those registered
// one by one, and any number of named ones, each of which is replaced as a whole.
// The zero value is not usable; make one with NewRegistry. It may be used by many
// goroutines: a change costs as much as what it changes, resolving takes no lock.
type Registry struct {
	mu      sync.Mutex // changing
	sources map[string]*origin
	born    uint64 // sources there have been
	watches []func(generation uint64)
	kept    []string // prefixes
	state   atomic.Pointer[catalogue]
	latest  atomic.Pointer[listing] // of the newest state that was listed
}

// origin is a source with its tools.
type origin struct {
	order uint64 // sources that came earlier come first
	tools []*Tool
	next  int // the index of the next tool registered by itself
}

// NewRegistry returns an empty registry of generation 0.
func NewRegistry() *Registry {
	r := &Registry{sources: make(map[string]*origin)}
	r.state.Store(&catalogue{reg: r})
	return r
}

// TakenError says which tool a registry could not take, because of another one
// that it has.
type TakenError struct {
	Ref string
	err error
}

func (e *TakenError) Error() string { return fmt.Sprintf("tool %s: %v", e.Ref, e.err) }
func (e *TakenError) Unwrap() error { return e.err }

// Register adds a tool. It is an error if its name has a reserved prefix or is one
// of another source's, its name and version are taken, or another version is the
// default already.
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

// RegisterBuiltin is Register for the runtime's own tools, whose names may have
// a reserved prefix.
func (r *Registry) RegisterBuiltin(t *Tool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.origin("")
	e := newEdit(r.state.Load())
	if err := e.put(t, o.order, o.next); err != nil {
		return err
	}
	o.next++
	o.tools = append(o.tools, t)
	r.sources[""] = o
	r.publish(e)
	return nil
}

// Keep keeps the names that begin with a prefix from those who bring tools of their
// own while the runtime runs: nobody takes the name of a tool whose server is down.
func (r *Registry) Keep(prefix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, prefix)
}

// Kept reports whether a name is one of those.
func (r *Registry) Kept(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.kept, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Replace makes tools all that a source has, in place of what it had, in one
// step. An error is as of Register, and changes nothing; a *TakenError says which of
// them is in the way of another. The name must not be
// empty; that of a source without tools is forgotten.
func (r *Registry) Replace(source string, tools []*Tool) error {
	for _, t := range tools {
		if err := unreserved(t); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace(source, slices.Clone(tools))
}

// replace is called with r.mu.
func (r *Registry) replace(source string, tools []*Tool) error {
	o := r.origin(source)
	if slices.Equal(o.tools, tools) {
		return nil
	}
	e := newEdit(r.state.Load())
	for _, t := range o.tools {
		e.drop(t)
	}
	for i, t := range tools {
		if err := e.put(t, o.order, i); err != nil {
			return err
		}
	}
	if o.tools = tools; len(tools) > 0 {
		r.sources[source] = o
	} else {
		delete(r.sources, source)
	}
	r.publish(e)
	return nil
}

// origin returns a source, or what it will be. Called with r.mu.
func (r *Registry) origin(name string) *origin {
	if o := r.sources[name]; o != nil {
		return o
	}
	r.born++
	return &origin{order: r.born}
}

// Delta is a change of what a source has, made for one generation.
type Delta struct {
	Source     string
	Generation uint64   // of the registry that it is a change of
	Put        []*Tool  // added, or in place of the one with the same name and version
	Remove     []string // name@version; what is not there changes nothing
}

// Apply makes a change if the registry is still of the generation that it was
// made for. Otherwise the error is FAILED_PRECONDITION with details {expected,
// actual}; any other is as of Replace. In either case nothing changes.
func (r *Registry) Apply(d Delta) error {
	for _, t := range d.Put {
		if err := unreserved(t); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.state.Load().generation; now != d.Generation {
		return Mismatch("generation", d.Generation, now)
	}
	var old []*Tool
	if o := r.sources[d.Source]; o != nil {
		old = o.tools
	}
	gone := make(map[string]bool)
	for _, ref := range d.Remove {
		gone[ref] = true
	}
	for _, t := range d.Put {
		gone[t.ref] = true
	}
	tools := slices.DeleteFunc(slices.Clone(old), func(t *Tool) bool { return gone[t.ref] })
	return r.replace(d.Source, append(tools, d.Put...))
}

// Mismatch refuses a change of something that has changed meanwhile.
func Mismatch(what string, expected, actual uint64) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the %s is %d, not %d: look again at what is there, and change that",
		what, actual, expected).WithDetails(struct {
		Expected uint64 `json:"expected"`
		Actual   uint64 `json:"actual"`
	}{expected, actual})
}

// Generation is the number of changes there were.
func (r *Registry) Generation() uint64 { return r.state.Load().generation }

// Watch has f called after each change, in order, by the goroutine that made it.
// f must not block or change the registry.
func (r *Registry) Watch(f func(generation uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches = append(r.watches, f)
}

// publish makes an edit the registry's state. Called with r.mu.
func (r *Registry) publish(e *edit) {
	e.next.generation++
	r.state.Store(e.next)
	for _, f := range r.watches {
		f(e.next.generation)
	}
}

// Resolve returns the tool an agent reference names: name@version, or name for
// its default version. The error is INVALID_ARGUMENT for a reference that is
// none, AGENT_NOT_AVAILABLE for an unknown name, or
// AGENT_VERSION_NOT_AVAILABLE with details {versions} (SPEC.md §2.3).
func (r *Registry) Resolve(ref string) (*Tool, *arcp.Error) {
	base := r.state.Load()
	name, version, pinned := strings.Cut(ref, "@")
	if t := base.family(name).pick(version, pinned); t != nil {
		return t, nil
	}
	s := Snapshot{base: base, rank: len(TrustLevels)}
	return nil, s.unresolved(ref)
}

// Agents returns the inventory sorted by name, the newest version first. It
// must not be changed.
func (r *Registry) Agents() []arcp.Agent { return r.listed(r.state.Load()).agents }

// Tools returns every tool, sorted by name, the newest version first. It must
// not be changed.
func (r *Registry) Tools() []*Tool { return r.listed(r.state.Load()).tools }
