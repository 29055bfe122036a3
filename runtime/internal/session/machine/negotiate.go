package machine

import (
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// negotiation is the result of the negotiation of capabilities.
type negotiation struct {
	features       []arcp.Feature // of both sides
	listedByClient []string       // offered names of the client's features list; nil: it sent none
	extensions     []string       // of both sides
	unsupported    string         // the first required capability that the runtime lacks; "": none
}

// listed are the features that the features list negotiates instead of a boolean member.
var listed = map[arcp.Feature]bool{
	arcp.FeatureHeartbeat: true, arcp.FeatureAck: true, arcp.FeatureRefresh: true,
	arcp.FeatureResultChunk: true,
}

// negotiate returns the capabilities of both sides.
func negotiate(offer, asked *arcp.Capabilities) negotiation {
	n := negotiation{listedByClient: offeredAndListed(offer, asked)}
	for _, f := range arcp.Features {
		if f == arcp.FeatureBinaryStreams {
			if negotiatesSidecar(offer, asked) {
				n.features = append(n.features, f)
			}
			continue
		}
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
		if n.unsupported = n.lacks(offer, name); n.unsupported != "" {
			break
		}
	}
	return n
}

// lacks returns a required capability that the runtime lacks, or "". It lacks binary_streams for a client that
// does not accept binary frames.
func (n *negotiation) lacks(offer *arcp.Capabilities, required string) string {
	f := arcp.Feature(required)
	switch {
	case f == arcp.FeatureBinaryStreams && offer.Has(f) && !n.has(f):
		return "binary_streams (the client's binary_encoding must list sidecar)"
	case offer.Has(f) || slices.Contains(offer.Extensions, required):
		return ""
	}
	return required
}

// negotiatesSidecar reports whether both sides accept binary frames. The session then has the feature
// binary_streams, whatever the client's boolean member is.
func negotiatesSidecar(offer, asked *arcp.Capabilities) bool {
	return slices.Contains(offer.BinaryEncoding, arcp.EncodingSidecar) && slices.Contains(asked.BinaryEncoding, arcp.EncodingSidecar)
}

// addListed changes the negotiation for the draft dialect. Each listed feature is a negotiated
// one: the dialect has no other list, and its events depend on it.
func (n *negotiation) addListed() {
	for _, name := range n.listedByClient {
		if f := arcp.Feature(name); !slices.Contains(n.features, f) {
			n.features = append(n.features, f)
		}
	}
}

// ReadsNoCheckpoints reports whether clients of a kind fail on job.checkpoint even if they
// negotiate it: the published Rust crate does.
func ReadsNoCheckpoints(kind string) bool {
	return strings.HasPrefix(kind, "arcp-rs") || strings.HasPrefix(kind, "rust")
}

// offeredAndListed returns the offered names of a client's features list; nil if the client has
// sent none.
func offeredAndListed(offer, asked *arcp.Capabilities) []string {
	if asked.Features == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(offer.Features), func(name string) bool { return !slices.Contains(asked.Features, name) })
}

// restrict removes the features that a client cannot use: executing jobs without the role,
// interrupts without human input, and checkpoints in a client that cannot read them.
func (n *negotiation) restrict(id *Identity, kind string) {
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

// restoreListed derives listedByClient from the negotiated features, because the list itself is
// not stored. With all, each listed feature is a negotiated one, as addListed makes it.
func (n *negotiation) restoreListed(offer *arcp.Capabilities, all bool) {
	n.listedByClient = slices.DeleteFunc(slices.Clone(offer.Features), func(name string) bool {
		if all {
			return !n.has(arcp.Feature(name))
		}
		one := arcp.Capabilities{Features: []string{name}}
		return slices.ContainsFunc(arcp.Features, func(f arcp.Feature) bool { return one.Has(f) && !n.has(f) })
	})
}

// inUse reports whether a name of the features list is in use: the feature was negotiated, or it
// needs no negotiation and the client listed it or sent no list.
func (n *negotiation) inUse(name string) bool {
	one := arcp.Capabilities{Features: []string{name}}
	for _, f := range arcp.Features {
		if one.Has(f) {
			return n.has(f)
		}
	}
	return n.listedByClient == nil || slices.Contains(n.listedByClient, name)
}

// answer returns the capabilities of session.accepted: every boolean that the runtime knows,
// true where both sides have the feature.
func (n *negotiation) answer(offer *arcp.Capabilities) arcp.Capabilities {
	caps := *offer
	caps.Flags = make(map[arcp.Feature]bool, len(arcp.Features))
	for _, f := range arcp.Features {
		if !listed[f] {
			caps.Flags[f] = offer.Has(f) && n.has(f)
		}
	}
	caps.Extensions = append([]string{}, n.extensions...)
	caps.Features = slices.DeleteFunc(slices.Clone(offer.Features), func(name string) bool { return !n.inUse(name) })
	caps.Required, caps.Agents = nil, nil
	return caps
}
