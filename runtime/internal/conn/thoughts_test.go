package conn

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/store"
)

// Only the text of a thought depends on the session, and a session that may not read it gets the rest.
func TestThoughtView(t *testing.T) {
	const (
		thought  = `{"sequence":3,"data":"hm","role":"a","content":"hm"}`
		redacted = `{"sequence":3,"data":"","redacted":true,"role":"a","content":""}`
		summary  = `{"sequence":3,"data":"about x","redacted":true,"role":"a","content":"about x"}`
		emitted  = `{"name":"thought","data":{"text":"","redacted":true}}`
		text     = `{"sequence":3,"data":"\"role\":\"content\""}`
	)
	owner, other := auth.Identity{Principal: "alice"}, auth.Identity{Principal: "bob", Roles: []auth.Role{auth.RoleAdmin}}
	reader := auth.Identity{Principal: "bob", Roles: []auth.Role{auth.RoleObserver, auth.RoleThoughts}}
	for name, c := range map[string]struct {
		viewer        auth.Identity
		owner         string
		t             arcp.Type
		payload, want string
	}{
		"owner":               {owner, "alice", arcp.StreamChunk, thought, thought},
		"reader":              {reader, "alice", arcp.StreamChunk, thought, thought},
		"other":               {other, "alice", arcp.StreamChunk, thought, redacted},
		"unknown owner":       {other, "", arcp.StreamChunk, thought, redacted},
		"only content":        {other, "alice", arcp.StreamChunk, `{"sequence":1,"data":"hm","content":"hm"}`, `{"sequence":1,"data":"","redacted":true,"content":""}`},
		"summary of the tool": {other, "alice", arcp.StreamChunk, summary, summary},
		"text":                {other, "alice", arcp.StreamChunk, text, text},
		"another event":       {other, "alice", arcp.Log, thought, thought},
		"emitted":             {other, "alice", arcp.EventEmit, `{"name":"thought","data":{"text":"hm","n":1}}`, emitted},
		"emitted with escape": {other, "alice", arcp.EventEmit, `{"name":"t\u0068ought","data":{"text":"hm"}}`, emitted},
		"emitted value":       {other, "alice", arcp.EventEmit, `{"name":"thought","data":"hm"}`, emitted},
		"emitted summary":     {other, "alice", arcp.EventEmit, `{"name":"thought","data":{"text":"x","redacted":true}}`, `{"name":"thought","data":{"text":"x","redacted":true}}`},
		"emitted, owner":      {owner, "alice", arcp.EventEmit, `{"name":"thought","data":{"text":"hm"}}`, `{"name":"thought","data":{"text":"hm"}}`},
		"emitted, reader":     {reader, "alice", arcp.EventEmit, `{"name":"thought","data":{"text":"hm"}}`, `{"name":"thought","data":{"text":"hm"}}`},
		"emitted, other name": {other, "alice", arcp.EventEmit, `{"name":"x","data":{"text":"hm"}}`, `{"name":"x","data":{"text":"hm"}}`},
		"not a chunk":         {other, "alice", arcp.StreamChunk, `{"data":7,"sequence":"x"}`, `{"sequence":0,"data":"","redacted":true,"content":""}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := store.NewEvent(c.t, time.Unix(0, 0), &store.JobContext{JobID: "job_1", StreamID: "str_1"}, arcp.PriorityNormal, []byte(c.payload))
			e.OriginSeq = 9
			before := string(e.Body)
			got := thoughtViewOf(&c.viewer).show(c.owner, e)
			if string(got.Payload()) != c.want {
				t.Errorf("payload %s, want %s", got.Payload(), c.want)
			}
			if got.OriginSeq != 9 || got.JobID() != "job_1" || got.Type != c.t || got.ID() != e.ID() {
				t.Errorf("the event is %+v", got)
			}
			if string(e.Body) != before {
				t.Error("the stored event is changed")
			}
		})
	}
}
