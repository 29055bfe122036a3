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

// CatalogPrefix is the prefix of the tools that change an overlay. No overlay removes them.
const CatalogPrefix = "tools."

// afterCatalogPrefix is the first text that sorts after all names with CatalogPrefix.
const afterCatalogPrefix = "tools/"

// Overlay changes the base catalogue of a session. An Overlay with IncludeBase alone changes
// nothing.
type Overlay struct {
	IncludeBase bool // false: the catalogue has only the tools of CatalogPrefix and of Tools

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
		if strings.HasPrefix(name, CatalogPrefix) {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "hide: %s cannot be hidden: with the tools that begin with %q a session changes its catalogue", name, CatalogPrefix)
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

func overlayNames(member string, names []string) ([]string, *arcp.Error) {
	if len(names) > MaxOverlayNames {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %d names; at most %d", member, len(names), MaxOverlayNames)
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

// apply returns the versions of a family that remain with the overlay; nil if none remains. o and
// f may be nil.
func (o *Overlay) apply(f *family) *family {
	if o == nil || f == nil {
		return f
	}
	bare, pinned := find(o.Tools, f.name)
	switch {
	case bare:
	case len(pinned) > 0:
		f = f.without(func(t *Tool) bool { return !slices.Contains(pinned, t.ref) })
	case !o.IncludeBase && !strings.HasPrefix(f.name, CatalogPrefix):
		return nil
	}
	if f == nil {
		return nil
	}
	bare, pinned = find(o.Hide, f.name)
	if bare {
		return nil
	}
	return f.without(func(t *Tool) bool { return slices.Contains(pinned, t.ref) })
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
