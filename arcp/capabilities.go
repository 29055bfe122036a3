package arcp

import (
	"maps"
	"slices"
)

// Feature is a boolean member of the capabilities object (§3.10).
type Feature string

// The features. Absent means false.
const (
	FeatureStreaming              Feature = "streaming"
	FeatureDurableJobs            Feature = "durable_jobs"
	FeatureCheckpoints            Feature = "checkpoints"
	FeatureBinaryStreams          Feature = "binary_streams"
	FeatureAgentHandoff           Feature = "agent_handoff"
	FeatureHumanInput             Feature = "human_input"
	FeatureArtifacts              Feature = "artifacts"
	FeatureSubscriptions          Feature = "subscriptions"
	FeatureScheduledJobs          Feature = "scheduled_jobs"
	FeatureInterrupt              Feature = "interrupt"
	FeatureAnonymous              Feature = "anonymous"
	FeatureModelUse               Feature = "model_use"
	FeatureProvisionedCredentials Feature = "provisioned_credentials"
	FeatureRefresh                Feature = "refresh"
	FeatureHeartbeat              Feature = "heartbeat"
	FeatureAck                    Feature = "ack"
	FeatureExecutes               Feature = "executes"
	FeatureMetrics                Feature = "metrics"
)

// Features lists the boolean capabilities in the order of SPEC.md.
var Features = []Feature{
	FeatureStreaming, FeatureDurableJobs, FeatureCheckpoints, FeatureBinaryStreams, FeatureAgentHandoff,
	FeatureHumanInput, FeatureArtifacts, FeatureSubscriptions, FeatureScheduledJobs, FeatureInterrupt,
	FeatureAnonymous, FeatureModelUse, FeatureProvisionedCredentials, FeatureRefresh, FeatureHeartbeat,
	FeatureAck, FeatureExecutes, FeatureMetrics,
}

// Capabilities is what one side offers, or both agreed on. A feature may be
// said as a boolean member or in the features list; both spellings are read.
type Capabilities struct {
	Flags             map[Feature]bool
	HeartbeatRecovery string // fail or block
	HeartbeatInterval int64  // seconds between job heartbeats; 0: not said
	BinaryEncoding    []string
	Extensions        []string
	Retention         *ArtifactRetention
	Agents            []Agent
	Features          []string
	Encodings         []string
	Required          []string       // must be supported, else the open is rejected with UNIMPLEMENTED
	Extra             map[string]Raw // members not known here
}

// ArtifactRetention is how long artifacts are kept, in seconds.
type ArtifactRetention struct {
	DefaultSeconds uint64 `json:"default_seconds"`
	MaxSeconds     uint64 `json:"max_seconds"`
}

// Agent is one tool or agent of the inventory.
type Agent struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions,omitzero"`
	Default  string   `json:"default,omitzero"`
}

// Has reports whether the feature is offered, by its flag or in the features
// list.
func (c *Capabilities) Has(f Feature) bool {
	return c.Flags[f] || slices.Contains(c.Features, string(f))
}

// IsZero reports an empty object, so that omitzero leaves it out.
func (c Capabilities) IsZero() bool {
	return len(c.Flags) == 0 && c.HeartbeatRecovery == "" && c.HeartbeatInterval == 0 && c.BinaryEncoding == nil &&
		c.Extensions == nil && c.Retention == nil && c.Agents == nil && c.Features == nil && c.Encodings == nil &&
		c.Required == nil && len(c.Extra) == 0
}

// capabilityMembers are the members that are not booleans, each with the
// field it is decoded to.
func (c *Capabilities) members() map[string]any {
	return map[string]any{
		"heartbeat_recovery": &c.HeartbeatRecovery, "heartbeat_interval_seconds": &c.HeartbeatInterval,
		"binary_encoding": &c.BinaryEncoding, "extensions": &c.Extensions, "artifact_retention": &c.Retention,
		"features": &c.Features, "encodings": &c.Encodings, "required": &c.Required,
	}
}

// UnmarshalJSON reads a capabilities object; members it does not know are kept.
func (c *Capabilities) UnmarshalJSON(data []byte) error {
	var raw map[string]Raw
	if err := Unmarshal(data, &raw); err != nil {
		return err
	}
	*c = Capabilities{}
	members := c.members()
	for name, value := range raw {
		if err := c.set(members, name, value); err != nil {
			return err
		}
	}
	return nil
}

func (c *Capabilities) set(members map[string]any, name string, value Raw) error {
	if field, ok := members[name]; ok {
		return Unmarshal(value, field)
	}
	if name == "agents" {
		return c.setAgents(value)
	}
	if kind := value.Kind(); (kind == 't' || kind == 'f') && slices.Contains(Features, Feature(name)) {
		if c.Flags == nil {
			c.Flags = make(map[Feature]bool)
		}
		c.Flags[Feature(name)] = kind == 't'
		return nil
	}
	if c.Extra == nil {
		c.Extra = make(map[string]Raw)
	}
	c.Extra[name] = value
	return nil
}

// setAgents reads ["name", …] and [{"name": …}, …].
func (c *Capabilities) setAgents(value Raw) error {
	var items []Raw
	if err := Unmarshal(value, &items); err != nil {
		return err
	}
	c.Agents = make([]Agent, len(items))
	for i, item := range items {
		var into any = &c.Agents[i]
		if item.Kind() == '"' {
			into = &c.Agents[i].Name
		}
		if err := Unmarshal(item, into); err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON writes the object in a stable order.
func (c Capabilities) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	var err error
	put := func(name string, v any) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(AppendString(out, name), ':')
		var e error
		if out, e = AppendJSON(out, v); e != nil && err == nil {
			err = e
		}
	}
	for _, f := range Features {
		if v, ok := c.Flags[f]; ok {
			put(string(f), v)
		}
	}
	if c.HeartbeatRecovery != "" {
		put("heartbeat_recovery", c.HeartbeatRecovery)
	}
	if c.HeartbeatInterval != 0 {
		put("heartbeat_interval_seconds", c.HeartbeatInterval)
	}
	if c.Retention != nil {
		put("artifact_retention", c.Retention)
	}
	if c.Agents != nil {
		put("agents", c.Agents)
	}
	for _, l := range []struct {
		name string
		list []string
	}{{"binary_encoding", c.BinaryEncoding}, {"extensions", c.Extensions}, {"features", c.Features},
		{"encodings", c.Encodings}, {"required", c.Required}} {
		if l.list != nil {
			put(l.name, l.list)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		put(name, c.Extra[name])
	}
	return append(out, '}'), err
}
