package machine

import (
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// negotiation is what both sides agreed on.
type negotiation struct {
	features    []arcp.Feature // both sides have it
	mentioned   []string       // the client's features list, nil if it sent none
	extensions  []string
	unsupported string // a required capability the runtime lacks
}

// listed are the features that go by the features list instead of a boolean
// member, in the spelling used there.
var listed = map[arcp.Feature]bool{
	arcp.FeatureHeartbeat: true, arcp.FeatureAck: true, arcp.FeatureRefresh: true,
	arcp.FeatureResultChunk: true,
}

func negotiate(offer, asked *arcp.Capabilities) negotiation {
	n := negotiation{mentioned: mentioned(offer, asked)}
	for _, f := range arcp.Features {
		if offer.Has(f) && (asked.Has(f) || slices.Contains(asked.Required, string(f))) {
			n.features = append(n.features, f)
		}
	}
	for _, x := range asked.Extensions {
		if slices.Contains(offer.Extensions, x) {
			n.extensions = append(n.extensions, x)
		}
	}
	for _, name := range asked.Required {
		if !offer.Has(arcp.Feature(name)) && !slices.Contains(offer.Extensions, name) {
			n.unsupported = name
			break
		}
	}
	return n
}

// ReadsNoCheckpoints reports whether clients of a kind die of job.checkpoint, whatever
// they negotiate: the published Rust crate.
func ReadsNoCheckpoints(kind string) bool {
	return strings.HasPrefix(kind, "arcp-rs") || strings.HasPrefix(kind, "rust")
}

// mentioned are the features on a client's list that the runtime offers: no others are
// kept. It is nil if there is no list.
func mentioned(offer, asked *arcp.Capabilities) []string {
	if asked.Features == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(offer.Features), func(name string) bool { return !slices.Contains(asked.Features, name) })
}

// allow takes away the features that a client cannot use: to execute jobs without the
// role, to interrupt them without answering questions, and checkpoints, which published
// Rust clients cannot read.
func (n *negotiation) allow(id *Identity, kind string) {
	n.features = slices.DeleteFunc(n.features, func(f arcp.Feature) bool {
		switch f {
		case arcp.FeatureExecutes:
			return !id.Worker
		case arcp.FeatureInterrupt:
			return !n.has(arcp.FeatureHumanInput)
		case arcp.FeatureCheckpoints:
			return ReadsNoCheckpoints(kind)
		}
		return false
	})
}

func (n *negotiation) has(f arcp.Feature) bool { return slices.Contains(n.features, f) }

// recall takes the features that were once negotiated for what the client
// mentioned: the list itself is not kept.
func (n *negotiation) recall(offer *arcp.Capabilities) {
	n.mentioned = slices.DeleteFunc(slices.Clone(offer.Features), func(name string) bool {
		one := arcp.Capabilities{Features: []string{name}}
		return slices.ContainsFunc(arcp.Features, func(f arcp.Feature) bool { return one.Has(f) && !n.has(f) })
	})
}

// uses reports whether messages of a feature of the features list are used: it was
// negotiated, or it needs no negotiation and the client mentioned it, or has no list.
func (n *negotiation) uses(name string) bool {
	one := arcp.Capabilities{Features: []string{name}}
	for _, f := range arcp.Features {
		if one.Has(f) {
			return n.has(f)
		}
	}
	return n.mentioned == nil || slices.Contains(n.mentioned, name)
}

// answer is the capabilities object of session.accepted: every boolean the
// runtime knows, true where both sides have it.
func (n *negotiation) answer(offer *arcp.Capabilities) arcp.Capabilities {
	caps := *offer
	caps.Flags = make(map[arcp.Feature]bool, len(arcp.Features))
	for _, f := range arcp.Features {
		if !listed[f] {
			caps.Flags[f] = offer.Has(f) && n.has(f)
		}
	}
	caps.Extensions = append([]string{}, n.extensions...)
	caps.Features = slices.DeleteFunc(slices.Clone(offer.Features), func(name string) bool { return !n.uses(name) })
	caps.Required, caps.Agents = nil, nil
	return caps
}
