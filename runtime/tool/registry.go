package tool

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/arcpd/arcpd/arcp"
)

// Reserved lists the prefixes of the runtime's own tools (SPEC.md §7).
var Reserved = []string{"registry.", "host.", "approval.", "tools.", "code.", "artifact.", "jobs.", "input.", "demo."}

// Registry resolves agent references to tools. The zero value is not usable;
// make one with NewRegistry. It may be used by many goroutines: registering
// copies, resolving takes no lock.
type Registry struct {
	mu    sync.Mutex // registering
	state atomic.Pointer[catalogue]
}

// catalogue is one immutable state of a registry.
type catalogue struct {
	byRef  map[string]*Tool   // under name and name@version
	byName map[string][]*Tool // the newest version first
	tools  []*Tool            // by name, then newest first
	agents []arcp.Agent
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	r := &Registry{}
	r.state.Store(&catalogue{})
	return r
}

// Register adds a tool. It is an error if its name has a reserved prefix, its
// name and version are taken, or another version is the default already.
func (r *Registry) Register(t *Tool) error {
	for _, p := range Reserved {
		if strings.HasPrefix(t.Name, p) {
			return fmt.Errorf("tool %s: names that begin with %q are reserved", t.ref, p)
		}
	}
	return r.RegisterBuiltin(t)
}

// RegisterBuiltin is Register for the runtime's own tools, whose names may have
// a reserved prefix.
func (r *Registry) RegisterBuiltin(t *Tool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.state.Load().with(t)
	if err != nil {
		return fmt.Errorf("tool %s: %w", t.ref, err)
	}
	r.state.Store(next)
	return nil
}

// with returns a catalogue that has t too.
func (c *catalogue) with(t *Tool) (*catalogue, error) {
	def := c.byRef[t.Name]
	switch {
	case c.byRef[t.ref] != nil:
		return nil, fmt.Errorf("it exists already")
	case t.Default && def != nil && def.Default:
		return nil, fmt.Errorf("version %s is the default already", def.Version)
	}
	next := &catalogue{byRef: maps.Clone(c.byRef), byName: maps.Clone(c.byName)}
	if next.byRef == nil {
		next.byRef, next.byName = make(map[string]*Tool), make(map[string][]*Tool)
	}
	next.byRef[t.ref] = t
	if def == nil || t.Default {
		next.byRef[t.Name] = t
	}
	next.byName[t.Name] = newestFirst(c.byName[t.Name], t)
	next.list()
	return next, nil
}

func newestFirst(versions []*Tool, t *Tool) []*Tool {
	all := append(slices.Clone(versions), t)
	slices.SortFunc(all, func(a, b *Tool) int { return compareVersions(b.Version, a.Version) })
	return all
}

// list makes the lists of tools and agents.
func (c *catalogue) list() {
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		c.tools = append(c.tools, c.byName[name]...)
		c.agents = append(c.agents, arcp.Agent{Name: name, Versions: c.versions(name), Default: c.byRef[name].Version})
	}
}

func (c *catalogue) versions(name string) []string {
	var versions []string
	for _, t := range c.byName[name] {
		versions = append(versions, t.Version)
	}
	return versions
}

// Resolve returns the tool an agent reference names: name@version, or name for
// its default version. The error is INVALID_ARGUMENT for a reference that is
// none, AGENT_NOT_AVAILABLE for an unknown name, or
// AGENT_VERSION_NOT_AVAILABLE with details {versions} (SPEC.md §2.3).
func (r *Registry) Resolve(ref string) (*Tool, *arcp.Error) {
	c := r.state.Load()
	if t, ok := c.byRef[ref]; ok {
		return t, nil
	}
	return nil, c.unresolved(ref)
}

func (c *catalogue) unresolved(ref string) *arcp.Error {
	parsed, err := arcp.ParseAgentRef(ref)
	if err != nil {
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s", cutTo(err.Error(), 2*arcp.MaxIDLen))
	}
	versions := c.versions(parsed.Name)
	if versions == nil {
		return arcp.Errorf(arcp.CodeAgentNotAvailable, "no tool or agent is named %q%s", parsed.Name, c.hint(parsed.Name))
	}
	return arcp.Errorf(arcp.CodeAgentVersionNotAvailable, "%s has no version %s; there are %s",
		parsed.Name, parsed.Version, strings.Join(versions, ", ")).WithDetails(struct {
		Versions []string `json:"versions"`
	}{versions})
}

// maxHintBytes bounds the work an unknown name can cause.
const maxHintBytes = 64

// hint names the known name that differs least, by a slip of the hand at most:
// 3 bytes, and a third of the name.
func (c *catalogue) hint(name string) string {
	if len(name) > maxHintBytes {
		return ""
	}
	best, least := "", min(len(name)/3, 3)+1
	for _, a := range c.agents {
		if d := distance(name, a.Name, least); d < least {
			best, least = a.Name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// Agents returns the inventory sorted by name, the newest version first. It
// must not be changed.
func (r *Registry) Agents() []arcp.Agent { return r.state.Load().agents }

// Tools returns every tool, sorted by name, the newest version first. It must
// not be changed.
func (r *Registry) Tools() []*Tool { return r.state.Load().tools }
