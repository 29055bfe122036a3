package machine

import (
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// mapCache is a CapabilityCache that keeps everything by key and inventory.
type mapCache map[string]arcp.Raw

func (c mapCache) Get(key []byte, agents []arcp.Agent, encode func() arcp.Raw) arcp.Raw {
	k := string(key) + string(arcp.Capabilities{Agents: agents}.AppendJSON(nil))
	if c[k] == nil {
		c[k] = encode()
	}
	return c[k]
}

// TestCachedCapabilitiesFollowNegotiation checks that a cache never changes the capabilities
// that a negotiation is answered with.
func TestCachedCapabilitiesFollowNegotiation(t *testing.T) {
	plain := &Config{Offer: arcp.Capabilities{Features: []string{"ack", "heartbeat", "progress"}, Extensions: []string{"x", "y"}}}
	cached := *plain
	cached.Cache = mapCache{}
	for range 2 {
		for _, agents := range [][]arcp.Agent{nil, {}, {{Name: "a"}}, {{Name: "b"}}} {
			for _, features := range [][]string{nil, {}, {"ack"}, {"ack", "progress"}, {"progress"}} {
				for _, extensions := range [][]string{nil, {"x"}, {"x", "y"}} {
					for _, window := range []uint32{0, 1, 300} {
						payload := func(cfg *Config) string {
							n := negotiate(&cfg.Offer, &arcp.Capabilities{Features: features, Extensions: extensions})
							return string(n.cachedCapabilities(cfg, agents, window).AppendJSON(nil))
						}
						if got, want := payload(&cached), payload(plain); got != want {
							t.Fatalf("features %v, extensions %v, agents %v, window %d:\n got %s\nwant %s", features, extensions, agents, window, got, want)
						}
					}
				}
			}
		}
	}
}

// TestRestoredFeatures checks that a resumed session of the draft dialect has the features of its
// session.hello, also those that need no negotiation in the other dialect.
func TestRestoredFeatures(t *testing.T) {
	offer := &arcp.Capabilities{Features: []string{"ack", "heartbeat", "progress", "subscribe", "agent_versions"}}
	for _, asked := range [][]string{{}, {"ack"}, {"subscribe"}, {"progress", "heartbeat"}, offer.Features} {
		n := negotiate(offer, &arcp.Capabilities{Features: asked})
		n.addListed()
		want := n.answer(offer).Features
		restored := negotiation{features: n.features}
		restored.restoreListed(offer, true)
		if got := restored.answer(offer).Features; !slices.Equal(got, want) || len(got) != len(asked) {
			t.Errorf("the features %v are %v after a resume", want, got)
		}
	}
}
