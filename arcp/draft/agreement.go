package draft

import (
	"bytes"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// agreement is an Agreement whose inventory is encoded. It must not be changed.
type agreement struct {
	features []string
	agents   arcp.Raw
}

func (a *agreement) append(dst []byte) []byte {
	o := begin(dst)
	o.raw("encodings", arcp.Raw(`["json"]`))
	o.name("features")
	o.dst = append(o.dst, '[')
	for i, f := range a.features {
		if i > 0 {
			o.dst = append(o.dst, ',')
		}
		o.dst = arcp.AppendString(o.dst, f)
	}
	o.dst = append(o.dst, ']')
	o.raw("agents", a.agents)
	return o.end()
}

// readAgreement returns the agreement that encoded capabilities express.
func readAgreement(capabilities arcp.Raw) agreement {
	g := agreement{agents: arcp.Raw("[]")}
	var names []string
	eachMember(capabilities, func(name []byte, value arcp.Raw) bool {
		switch {
		case string(name) == "agents":
			g.agents = withVersions(value)
		case string(name) == "features":
			eachText(value, func(text arcp.Raw) { names = append(names, textOf(text)) })
		case string(value) == "true":
			names = append(names, string(name))
		}
		return true
	})
	for _, f := range Features {
		if slices.Contains(names, string(f)) {
			g.features = append(g.features, string(f))
		}
	}
	return g
}

// withVersions returns an inventory whose agents have versions, which may be empty. Nearly always it
// is the same inventory.
func withVersions(raw arcp.Raw) arcp.Raw {
	if bytes.Count(raw, []byte(`versions":`)) == bytes.Count(raw, []byte(`{"name":`)) { // quotes in texts are escaped
		return raw
	}
	var agents []arcp.Agent
	if arcp.Unmarshal(raw, &agents) != nil {
		return arcp.Raw("[]") // not reached: the runtime wrote the inventory
	}
	list := make([]Agent, len(agents))
	for i, agent := range agents {
		list[i] = Agent{agent.Name, agent.Versions, agent.Default}
		if agent.Versions == nil {
			list[i].Versions = []string{}
		}
	}
	encoded, _ := arcp.Marshal(list) // no error: texts
	return encoded
}

// Bounds of an agreementCache.
const (
	maxAgreements   = 64       // the cache is cleared at the bound
	maxCapabilities = 64 << 10 // bytes of the capabilities of an entry; larger ones are read each time
)

// agreementCache has the agreements of the last encoded capabilities. Nearly all sessions of a
// runtime have the same ones.
type agreementCache struct {
	mu     sync.Mutex
	byText map[string]agreement
	last   arcp.Raw // the capabilities that were added last; nil: none
}

var agreements agreementCache

// of returns the agreement that encoded capabilities express.
func (c *agreementCache) of(capabilities arcp.Raw) agreement {
	c.mu.Lock()
	g, ok := c.byText[string(capabilities)]
	c.mu.Unlock()
	if ok {
		return g
	}
	capabilities = bytes.Clone(capabilities)
	g = readAgreement(capabilities)
	if len(capabilities) > maxCapabilities {
		return g
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byText == nil || len(c.byText) >= maxAgreements {
		c.byText = make(map[string]agreement)
	}
	c.byText[string(capabilities)], c.last = g, capabilities
	return g
}

// lastIn returns the capabilities that were added last if text begins with them, or nil.
func (c *agreementCache) lastIn(text []byte) arcp.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || !bytes.HasPrefix(text, c.last) {
		return nil
	}
	return c.last
}
