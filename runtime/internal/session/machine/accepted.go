package machine

import (
	"encoding/binary"

	"github.com/arcpd/arcpd/arcp"
)

// CapabilityCache caches the encoded capabilities of session.accepted, because most clients
// negotiate the same ones.
type CapabilityCache interface {
	// Get returns the capabilities for a key and a list of agents, which is never changed. It
	// calls encode if they are not cached.
	Get(key []byte, agents []arcp.Agent, encode func() arcp.Raw) arcp.Raw
}

// capabilities returns the capabilities of session.accepted.
func (n *negotiation) capabilities(cfg *Config, agents []arcp.Agent, window uint32) arcp.Capabilities {
	caps := n.answer(&cfg.Offer)
	caps.Agents, caps.AckWindow = agents, window
	return caps
}

// cachedCapabilities returns the capabilities of session.accepted, encoded if there is a cache.
func (n *negotiation) cachedCapabilities(cfg *Config, agents []arcp.Agent, window uint32) arcp.Capabilities {
	if cfg.Cache == nil {
		return n.capabilities(cfg, agents, window)
	}
	var space [512]byte
	key := n.appendKey(space[:0], window)
	return arcp.Capabilities{Encoded: cfg.Cache.Get(key, agents, func() arcp.Raw {
		return n.capabilities(cfg, agents, window).AppendJSON(nil)
	})}
}

// appendKey appends a key. Negotiations with different capabilities have different keys.
func (n *negotiation) appendKey(key []byte, window uint32) []byte {
	key = binary.AppendUvarint(key, uint64(window))
	key = binary.AppendUvarint(key, uint64(len(n.features)))
	for _, f := range n.features {
		key = appendText(key, string(f))
	}
	if n.listedByClient == nil {
		key = append(key, 0)
	} else {
		key = binary.AppendUvarint(key, uint64(len(n.listedByClient))+1)
	}
	for _, name := range n.listedByClient {
		key = appendText(key, name)
	}
	for _, name := range n.extensions {
		key = appendText(key, name)
	}
	return key
}

func appendText(key []byte, text string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(text))), text...)
}
