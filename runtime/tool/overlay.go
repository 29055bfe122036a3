package tool

import (
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// Bounds of an Overlay. Each session may have one in memory.
const (
	MaxOverlayNames  = 1000     // of Tools, and of Hide
	MaxOverlayPrompt = 64 << 10 // bytes of all prompts together
	maxPrompts       = 100
)

// Own is the prefix of the tools that no overlay removes, so that a session can always change
// its overlay.
const Own = "tools."

// afterOwn is the first text that sorts behind all names with the prefix Own.
const afterOwn = "tools/"

// Overlay is the change that a session makes to the base catalogue. With IncludeBase alone it
// changes nothing.
type Overlay struct {
	IncludeBase bool // otherwise the catalogue starts with the tools of Own only

	// Tools lists references name or name@version to tools of the base. A name with
	// versions has only the listed ones.
	Tools []string

	// Hide lists references name or name@version to tools that do not exist. It has
	// precedence over Tools and IncludeBase.
	Hide []string

	// Prompts are contributions to an agent's prompt. The runtime only stores them.
	Prompts []string
}

// ParseOverlay checks an overlay and returns its canonical form: names are sorted and
// distinct, prompts stay in order. It returns nil for an overlay that changes nothing. The
// result must not be changed.
func ParseOverlay(o Overlay) (*Overlay, *arcp.Error) {
	var err *arcp.Error
	if o.Tools, err = overlayNames("tools", o.Tools); err != nil {
		return nil, err
	}
	if o.Hide, err = overlayNames("hide", o.Hide); err != nil {
		return nil, err
	}
	for _, name := range o.Hide {
		if strings.HasPrefix(name, Own) {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "hide: %s cannot be hidden: with the tools that begin with %q a session changes its catalogue", name, Own)
		}
	}
	size := 0
	for _, p := range o.Prompts {
		size += len(p)
	}
	if len(o.Prompts) > maxPrompts || size > MaxOverlayPrompt {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "prompts: at most %d, of %d bytes together", maxPrompts, MaxOverlayPrompt)
	}
	if o.IncludeBase && len(o.Tools) == 0 && len(o.Hide) == 0 && len(o.Prompts) == 0 {
		return nil, nil
	}
	o.Prompts = slices.Clone(o.Prompts)
	return &o, nil
}

func overlayNames(what string, names []string) ([]string, *arcp.Error) {
	if len(names) > MaxOverlayNames {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %d names; at most %d", what, len(names), MaxOverlayNames)
	}
	for _, name := range names {
		if _, err := arcp.ParseAgentRef(name); err != nil {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %s", what, clip.Ellipsis(err.Error(), 2*arcp.MaxIDLen))
		}
	}
	names = slices.Sorted(slices.Values(names))
	return slices.Clip(slices.Compact(names)), nil
}

// Same reports whether two parsed overlays are equal; nil is no overlay.
func (o *Overlay) Same(p *Overlay) bool {
	if o == nil || p == nil {
		return o == p
	}
	return o.IncludeBase == p.IncludeBase && slices.Equal(o.Tools, p.Tools) && slices.Equal(o.Hide, p.Hide) && slices.Equal(o.Prompts, p.Prompts)
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

// apply returns the versions of a family that the overlay shows; nil if there are none. o
// and f may be nil.
func (o *Overlay) apply(f *family) *family {
	if o == nil || f == nil {
		return f
	}
	whole, pinned := find(o.Tools, f.name)
	switch {
	case whole:
	case len(pinned) > 0:
		f = f.without(func(t *Tool) bool { return !slices.Contains(pinned, t.ref) })
	case !o.IncludeBase && !strings.HasPrefix(f.name, Own):
		return nil
	}
	if f == nil {
		return nil
	}
	whole, pinned = find(o.Hide, f.name)
	if whole {
		return nil
	}
	return f.without(func(t *Tool) bool { return slices.Contains(pinned, t.ref) })
}

// find reports whether a sorted list of references has a bare name, and returns its
// references to versions of the name.
func find(refs []string, name string) (whole bool, pinned []string) {
	_, whole = slices.BinarySearch(refs, name)
	prefix := name + "@"
	from, _ := slices.BinarySearch(refs, prefix)
	to := from
	for to < len(refs) && strings.HasPrefix(refs[to], prefix) {
		to++
	}
	return whole, refs[from:to]
}

// addNames adds the names of all references to a set. o may be nil.
func (o *Overlay) addNames(names map[string]bool) {
	if o == nil {
		return
	}
	for _, ref := range slices.Concat(o.Tools, o.Hide) {
		name, _, _ := strings.Cut(ref, "@")
		names[name] = true
	}
}
