package arcp

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Feature is the name of a boolean capability (§3.10).
type Feature string

// The features. An absent feature is false.
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
	FeatureResultChunk            Feature = "result_chunk"
	FeatureArtifactRedirect       Feature = "artifact_redirect"

	FeatureProgress Feature = "progress" // of the draft dialect only
)

// Features lists the features in the order of SPEC.md.
var Features = []Feature{
	FeatureStreaming, FeatureDurableJobs, FeatureCheckpoints, FeatureBinaryStreams, FeatureAgentHandoff,
	FeatureHumanInput, FeatureArtifacts, FeatureSubscriptions, FeatureScheduledJobs, FeatureInterrupt,
	FeatureAnonymous, FeatureModelUse, FeatureProvisionedCredentials, FeatureRefresh, FeatureHeartbeat,
	FeatureAck, FeatureExecutes, FeatureMetrics, FeatureResultChunk, FeatureArtifactRedirect,
}

// Capabilities is the offer of one side or the result of the negotiation (§3.10). A feature is a
// boolean member or an entry of the list features. Both spellings are decoded.
type Capabilities struct {
	Flags             map[Feature]bool
	HeartbeatRecovery string // fail or block
	HeartbeatInterval int64  // seconds between job heartbeats; 0: not stated
	AckWindow         uint32 // events sent before an acknowledgement; 0: not stated
	BinaryEncoding    []string
	Extensions        []string
	Retention         *ArtifactRetention
	Agents            []Agent
	Features          []string
	Encodings         []string
	Required          []string       // features without which session.open must be rejected with UNIMPLEMENTED
	Extra             map[string]Raw // unknown members, kept as received

	// Encoded is the JSON of the other fields, for capabilities that are sent often. If it is
	// nil, AppendJSON encodes the fields.
	Encoded Raw
}

// ArtifactRetention is the storage time of artifacts in seconds.
type ArtifactRetention struct {
	DefaultSeconds uint64 `json:"default_seconds"`
	MaxSeconds     uint64 `json:"max_seconds"`
}

// Agent is one tool or agent in the catalog of a session.
type Agent struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions,omitempty"`
	Default  string   `json:"default,omitzero"`
}

// otherNames maps features of the RFC to their names in the list features of the draft.
var otherNames = map[Feature]string{FeatureSubscriptions: "subscribe", FeatureModelUse: "model.use"}

// Has reports whether the feature is offered, by its flag or in the features
// list, there also under the draft's name.
func (c *Capabilities) Has(f Feature) bool {
	if c.Flags[f] || slices.Contains(c.Features, string(f)) {
		return true
	}
	other, ok := otherNames[f]
	return ok && slices.Contains(c.Features, other)
}

// IsZero reports an empty object, so that omitzero leaves it out.
func (c Capabilities) IsZero() bool {
	return len(c.Flags) == 0 && c.HeartbeatRecovery == "" && c.HeartbeatInterval == 0 && c.AckWindow == 0 && c.BinaryEncoding == nil &&
		c.Extensions == nil && c.Retention == nil && c.Agents == nil && c.Features == nil && c.Encodings == nil &&
		c.Required == nil && len(c.Extra) == 0
}

// member returns the field of a member that is not a boolean, or nil.
func (c *Capabilities) member(name string) any {
	switch name {
	case "heartbeat_recovery":
		return &c.HeartbeatRecovery
	case "heartbeat_interval_seconds":
		return &c.HeartbeatInterval
	case "ack_window":
		return &c.AckWindow
	case "binary_encoding":
		return &c.BinaryEncoding
	case "extensions":
		return &c.Extensions
	case "artifact_retention":
		return &c.Retention
	case "features":
		return &c.Features
	case "encodings":
		return &c.Encodings
	case "required":
		return &c.Required
	}
	return nil
}

// UnmarshalJSON decodes a capabilities object. Unknown members are kept in Extra; null is absent.
func (c *Capabilities) UnmarshalJSON(data []byte) error {
	var raw map[string]Raw
	if err := Unmarshal(data, &raw); err != nil {
		return err
	}
	*c = Capabilities{}
	for _, name := range slices.Sorted(maps.Keys(raw)) { // sorted: the first error is deterministic
		if raw[name].Kind() == 'n' {
			continue
		}
		if err := c.set(name, raw[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (c *Capabilities) set(name string, value Raw) error {
	switch field := c.member(name); {
	case field != nil:
		return unmarshalMember(value, field)
	case name == "agents":
		return c.setAgents(value)
	case slices.Contains(Features, Feature(name)):
		var on bool
		if err := unmarshalMember(value, &on); err != nil {
			return err
		}
		if c.Flags == nil {
			c.Flags = make(map[Feature]bool)
		}
		c.Flags[Feature(name)] = on
		return nil
	}
	if c.Extra == nil {
		c.Extra = make(map[string]Raw)
	}
	c.Extra[name] = value
	return nil
}

// setAgents decodes ["name", …] and [{"name": …}, …].
func (c *Capabilities) setAgents(value Raw) error {
	var items []Raw
	if err := unmarshalMember(value, &items); err != nil {
		return err
	}
	c.Agents = make([]Agent, len(items))
	for i, item := range items {
		var into any = &c.Agents[i]
		if item.Kind() == '"' {
			into = &c.Agents[i].Name
		}
		if err := unmarshalMember(item, into); err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON writes the object in a stable order.
func (c Capabilities) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// AppendJSON appends the object in a stable order.
func (c Capabilities) AppendJSON(dst []byte) []byte {
	if c.Encoded != nil {
		return append(dst, c.Encoded...)
	}
	o := beginObject(dst)
	for _, f := range Features {
		if v, ok := c.Flags[f]; ok {
			o.bool(string(f), v)
		}
	}
	o.optional("heartbeat_recovery", c.HeartbeatRecovery)
	if c.HeartbeatInterval != 0 {
		o.name("heartbeat_interval_seconds")
		o.dst = strconv.AppendInt(o.dst, c.HeartbeatInterval, 10)
	}
	if c.AckWindow != 0 {
		o.name("ack_window")
		o.dst = strconv.AppendUint(o.dst, uint64(c.AckWindow), 10)
	}
	if c.Retention != nil {
		o.name("artifact_retention")
		retention := beginObject(o.dst)
		retention.uint("default_seconds", c.Retention.DefaultSeconds)
		retention.uint("max_seconds", c.Retention.MaxSeconds)
		o.dst = retention.end()
	}
	if c.Agents != nil {
		o.agents("agents", c.Agents)
	}
	o.list("binary_encoding", c.BinaryEncoding)
	o.list("extensions", c.Extensions)
	o.list("features", c.Features)
	o.list("encodings", c.Encodings)
	o.list("required", c.Required)
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		if o.any {
			o.dst = append(o.dst, ',')
		}
		o.any = true
		o.dst = append(AppendString(o.dst, name), ':')
		o.dst = appendRaw(o.dst, c.Extra[name])
	}
	return o.end()
}

// list omits nil.
func (b *builder) list(name string, list []string) {
	if list == nil {
		return
	}
	b.name(name)
	b.dst = appendStrings(b.dst, list)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, s)
	}
	return append(dst, ']')
}

func (b *builder) agents(name string, agents []Agent) {
	b.name(name)
	b.dst = append(b.dst, '[')
	for i, a := range agents {
		if i > 0 {
			b.dst = append(b.dst, ',')
		}
		b.dst = a.AppendJSON(b.dst)
	}
	b.dst = append(b.dst, ']')
}

// AppendJSON appends the encoded agent.
func (a Agent) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.text("name", a.Name)
	if len(a.Versions) > 0 {
		o.list("versions", a.Versions)
	}
	o.optional("default", a.Default)
	return o.end()
}
