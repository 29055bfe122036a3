package conn

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/store"
)

// thoughtView decides which thoughts a session sees (SPEC.md §5.16). Everything that a connection sends of the
// jobs of another principal passes through show.
type thoughtView struct {
	principal string
	reads     bool // thoughts of the principals that it observes
}

func thoughtViewOf(id *auth.Identity) thoughtView {
	return thoughtView{id.Principal, id.HasRole(auth.RoleThoughts)}
}

// show returns an event of a job of owner as the session sees it. A thought that it may not read has no
// text, and is redacted. A thought that its tool has redacted is unchanged.
func (v thoughtView) show(owner string, e *store.Event) *store.Event {
	if v.reads || v.principal == owner {
		return e
	}
	old := e.Payload()
	var payload any
	switch e.Type {
	case arcp.StreamChunk:
		payload = redactChunk(old)
	case arcp.EventEmit:
		payload = redactEmit(old)
	}
	if payload == nil {
		return e
	}
	raw, err := arcp.Marshal(payload)
	if err != nil { // numbers and strings
		panic("conn: redacted thought: " + err.Error())
	}
	return replacePayload(e, raw)
}

// replacePayload returns an event with another payload.
func replacePayload(e *store.Event, payload arcp.Raw) *store.Event {
	changed := *e
	changed.Body = append(slices.Concat(e.Body[:len(e.Body)-len(e.Payload())-1], payload), '}')
	return &changed
}

// redactChunk returns the payload of a stream.chunk without the text of its thought; nil: it has none, or is
// redacted.
func redactChunk(payload arcp.Raw) any {
	var chunk arcp.StreamChunkPayload
	err := arcp.Unmarshal(payload, &chunk)
	thought := chunk.Kind == arcp.StreamThought || chunk.Role != "" || chunk.Content != "" // stored before there was a kind
	if err == nil && (chunk.Redacted || !thought) {
		return nil
	}
	return redactedThought{Sequence: chunk.Sequence, Redacted: true, Role: chunk.Role, Kind: chunk.Kind}
}

// redactEmit returns the payload of an event.emit without the text of its thought; nil: it is no thought, or is
// redacted.
func redactEmit(payload arcp.Raw) any {
	var emit arcp.EventEmitPayload
	if err := arcp.Unmarshal(payload, &emit); err == nil && emit.Name != arcp.StreamThought {
		return nil
	}
	var data struct {
		Redacted bool `json:"redacted"`
	}
	if err := arcp.Unmarshal(emit.Data, &data); err == nil && data.Redacted {
		return nil
	}
	return redactedEmit{Name: arcp.StreamThought, Data: redactedText{Redacted: true}}
}

// redactedThought is the payload of a stream.chunk without its text.
type redactedThought struct {
	Sequence uint64 `json:"sequence"`
	Data     string `json:"data"`
	Redacted bool   `json:"redacted"`
	Role     string `json:"role,omitzero"`
	Content  string `json:"content"`
	Kind     string `json:"kind,omitzero"`
}

// redactedEmit is the payload of an event.emit of a thought without its text.
type redactedEmit struct {
	Name string       `json:"name"`
	Data redactedText `json:"data"`
}

type redactedText struct {
	Text     string `json:"text"`
	Redacted bool   `json:"redacted"`
}
