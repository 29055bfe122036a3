package tool

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of an Overlay: it is kept for the life of a session, and there are as
// many as there are sessions.
const (
	MaxOverlayNames  = 1000     // in Tools, and in Hide
	MaxOverlayPrompt = 64 << 10 // bytes of all prompts together
	maxPrompts       = 100
)

// Own begins the names of the tools that every catalogue has, whatever its
// overlay says: a session must be able to find its way back.
const Own = "tools."

// Overlay is what a session has its catalogue be, on top of the base. Its zero
// value but for IncludeBase is the base itself.
type Overlay struct {
	IncludeBase bool // else the catalogue begins empty, but for Own

	// Tools are names of the base, or name@version. For a name that is here only
	// what is here counts: one with a version means that version, alone or beside
	// the others that are named.
	Tools []string

	// Hide are names, or name@version, that are not there, whatever else says so.
	Hide []string

	// Prompts are contributions to an agent's prompt. The runtime carries them.
	Prompts []string
}

// ParseOverlay checks an overlay and brings it into the one form it is compared
// in: names are sorted and occur once, prompts keep their order.
func ParseOverlay(o Overlay) (Overlay, *arcp.Error) {
	var err *arcp.Error
	if o.Tools, err = overlayNames("tools", o.Tools); err != nil {
		return o, err
	}
	if o.Hide, err = overlayNames("hide", o.Hide); err != nil {
		return o, err
	}
	for _, name := range o.Hide {
		if strings.HasPrefix(name, Own) {
			return o, arcp.Errorf(arcp.CodeInvalidArgument, "hide: %s cannot be hidden: with the tools that begin with %q a session changes its catalogue", name, Own)
		}
	}
	size := 0
	for _, p := range o.Prompts {
		size += len(p)
	}
	if len(o.Prompts) > maxPrompts || size > MaxOverlayPrompt {
		return o, arcp.Errorf(arcp.CodeInvalidArgument, "prompts: at most %d, of %d bytes together", maxPrompts, MaxOverlayPrompt)
	}
	o.Prompts = slices.Clone(o.Prompts)
	return o, nil
}

func overlayNames(what string, names []string) ([]string, *arcp.Error) {
	if len(names) > MaxOverlayNames {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %d names; at most %d", what, len(names), MaxOverlayNames)
	}
	for _, name := range names {
		if _, err := arcp.ParseAgentRef(name); err != nil {
			return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %s", what, cutTo(err.Error(), 2*arcp.MaxIDLen))
		}
	}
	names = slices.Sorted(slices.Values(names))
	return slices.Clip(slices.Compact(names)), nil
}

// Plain reports whether the overlay changes nothing.
func (o *Overlay) Plain() bool {
	return o == nil || o.IncludeBase && len(o.Tools) == 0 && len(o.Hide) == 0 && len(o.Prompts) == 0
}

// identity tells overlays apart that are not the same in all.
type identity [sha256.Size]byte

// Layer is an overlay that has been parsed, ready to be laid over a base. It is
// immutable.
type Layer struct {
	Overlay
	id identity
}

// NewLayer parses an overlay. One that changes nothing has no layer.
func NewLayer(o Overlay) (*Layer, *arcp.Error) {
	o, err := ParseOverlay(o)
	if err != nil || o.Plain() {
		return nil, err
	}
	raw, bad := arcp.Marshal(o)
	if bad != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "the overlay cannot be encoded: %s", cut(bad.Error()))
	}
	return &Layer{o, sha256.Sum256(raw)}, nil
}

// Same reports whether two layers are the same in all; nil is none.
func (l *Layer) Same(m *Layer) bool {
	if l == nil || m == nil {
		return l == m
	}
	return l.id == m.id
}

// pick is the versions that a list names.
type pick struct {
	whole    bool
	versions []string
}

func (p *pick) has(t *Tool) bool { return p.whole || slices.Contains(p.versions, t.Version) }

// picks are the names of a list.
func picks(refs []string) map[string]*pick {
	m := make(map[string]*pick, len(refs))
	for _, ref := range refs {
		name, version, pinned := strings.Cut(ref, "@")
		p := m[name]
		if p == nil {
			p = new(pick)
			m[name] = p
		}
		if !pinned {
			p.whole = true
		} else {
			p.versions = append(p.versions, version)
		}
	}
	return m
}

// compose returns what a name is in the catalogue for each of the names that the
// layer speaks of; nil: it is not there.
func (l *Layer) compose(base *catalogue) map[string]*family {
	shown, hidden := picks(l.Tools), picks(l.Hide)
	out := make(map[string]*family, len(shown)+len(hidden))
	for name, p := range shown {
		if f := base.family(name); f != nil {
			out[name] = f.part(p.has)
		}
	}
	for name, p := range hidden {
		f, named := out[name]
		if !named && (l.IncludeBase || strings.HasPrefix(name, Own)) {
			f = base.family(name)
		}
		if f != nil {
			f = f.part(func(t *Tool) bool { return !p.has(t) })
		}
		out[name] = f
	}
	return out
}

// missing finds a name of the layer that the base does not have.
func (l *Layer) missing(base *Snapshot) *arcp.Error {
	for _, ref := range l.Tools {
		if _, err := base.Resolve(ref); err != nil {
			return err
		}
	}
	return nil
}
