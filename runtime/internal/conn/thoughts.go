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
	if v.reads || v.principal == owner || e.Type != arcp.StreamChunk {
		return e
	}
	old := e.Payload()
	var chunk arcp.StreamChunkPayload
	err := arcp.Unmarshal(old, &chunk)
	if err == nil && (chunk.Redacted || chunk.Role == "" && chunk.Content == "") { // only thoughts have these members
		return e
	}
	payload, err := arcp.Marshal(redactedThought{Sequence: chunk.Sequence, Redacted: true, Role: chunk.Role})
	if err != nil { // numbers and strings
		panic("conn: redacted thought: " + err.Error())
	}
	redacted := *e
	redacted.Body = append(slices.Concat(e.Body[:len(e.Body)-len(old)-1], payload), '}')
	return &redacted
}

// redactedThought is the payload of a stream.chunk without its text.
type redactedThought struct {
	Sequence uint64 `json:"sequence"`
	Data     string `json:"data"`
	Redacted bool   `json:"redacted"`
	Role     string `json:"role,omitzero"`
	Content  string `json:"content"`
}
