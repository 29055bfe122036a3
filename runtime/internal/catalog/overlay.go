package catalog

import (
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of an Overlay. Each session may have one in memory.
const (
	maxNames       = 1000     // of Tools, and of Hide
	maxPromptBytes = 64 << 10 // bytes of all prompts together
	maxPrompts     = 100
)

// Prefix is the prefix of the tools that change an overlay. No overlay removes them.
const Prefix = "tools."

// Overlay changes the base catalog of a session. An Overlay with IncludeBase alone changes
// nothing.
type Overlay struct {
	IncludeBase bool // false: the catalog has only the tools of Prefix and of Tools

	// Tools lists tools of the base as name or name@version. If it lists versions of a name,
	// the other versions do not exist.
	Tools []string

	// Hide lists tools to remove as name or name@version. It overrides Tools and
	// IncludeBase.
	Hide []string

	// Prompts are parts of an agent's prompt. The runtime only stores them.
	Prompts []string
}

// ParseOverlay checks an overlay and returns its canonical form: sorted, distinct names, and the
// prompts in their order. It returns nil for an overlay that changes nothing. The caller must not
// change the result. The error is INVALID_ARGUMENT.
func ParseOverlay(o Overlay) (*Overlay, *arcp.Error) {
	var err *arcp.Error
	if o.Tools, err = overlayNames("tools", o.Tools); err != nil {
		return nil, err
	}
	if o.Hide, err = overlayNames("hide", o.Hide); err != nil {
		return nil, err
	}
	for _, name := range o.Hide {
		if strings.HasPrefix(name, Prefix) {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument,
				"hide: %s cannot be hidden: with the tools that begin with %q a session changes its catalogue", name, Prefix)
		}
	}
	size := 0
	for _, p := range o.Prompts {
		size += len(p)
	}
	if len(o.Prompts) > maxPrompts || size > maxPromptBytes {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "prompts: at most %d, of %d bytes together", maxPrompts, maxPromptBytes)
	}
	if o.IncludeBase && len(o.Tools) == 0 && len(o.Hide) == 0 && len(o.Prompts) == 0 {
		return nil, nil
	}
	o.Prompts = slices.Clone(o.Prompts)
	return &o, nil
}

func overlayNames(member string, names []string) ([]string, *arcp.Error) {
	if len(names) > maxNames {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %d names; at most %d", member, len(names), maxNames)
	}
	for _, name := range names {
		if _, err := arcp.ParseAgentRef(name); err != nil {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %s", member, clip.Ellipsis(err.Error(), 2*arcp.MaxIDLen))
		}
	}
	names = slices.Sorted(slices.Values(names))
	return slices.Clip(slices.Compact(names)), nil
}

// Same reports whether two results of ParseOverlay are equal; nil is no overlay.
func (o *Overlay) Same(p *Overlay) bool {
	if o == nil || p == nil {
		return o == p
	}
	return o.IncludeBase == p.IncludeBase &&
		slices.Equal(o.Tools, p.Tools) && slices.Equal(o.Hide, p.Hide) && slices.Equal(o.Prompts, p.Prompts)
}

// bytes returns the approximate size of the overlay in memory. o may be nil.
func (o *Overlay) bytes() (n int64) {
	if o == nil {
		return 0
	}
	const header = 16 // of a string
	for _, list := range [...][]string{o.Tools, o.Hide, o.Prompts} {
		for _, s := range list {
			n += int64(len(s)) + header
		}
	}
	return n
}

// apply returns the versions of a family that remain with the overlay; nil if none remains. o and
// f may be nil.
func (o *Overlay) apply(f *tool.Family) *tool.Family {
	if o == nil || f == nil {
		return f
	}
	bare, pinned := find(o.Tools, f.Agent.Name)
	switch {
	case bare:
	case len(pinned) > 0:
		f = f.Without(func(t *tool.Tool) bool { return !slices.Contains(pinned, t.Ref()) })
	case !o.IncludeBase && !strings.HasPrefix(f.Agent.Name, Prefix):
		return nil
	}
	if f == nil {
		return nil
	}
	bare, pinned = find(o.Hide, f.Agent.Name)
	if bare {
		return nil
	}
	return f.Without(func(t *tool.Tool) bool { return slices.Contains(pinned, t.Ref()) })
}

// find searches a sorted list of references for a name. bare reports whether the list has the name
// without a version; pinned are the references with a version.
func find(refs []string, name string) (bare bool, pinned []string) {
	_, bare = slices.BinarySearch(refs, name)
	prefix := name + "@"
	from, _ := slices.BinarySearch(refs, prefix)
	to := from
	for to < len(refs) && strings.HasPrefix(refs[to], prefix) {
		to++
	}
	return bare, refs[from:to]
}

// addNames adds the names of all references to names. o may be nil.
func (o *Overlay) addNames(names map[string]bool) {
	if o == nil {
		return
	}
	for _, ref := range slices.Concat(o.Tools, o.Hide) {
		name, _, _ := strings.Cut(ref, "@")
		names[name] = true
	}
}
