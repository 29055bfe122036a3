package proxy

import (
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
)

// messageFaults are defects in the handling of messages of any type.
var messageFaults = []Fault{
	{Defect: "a message before session.open is performed", Checks: []string{"catalogue.early.session.list_jobs", "catalogue.early.subscribe"}, newRewriter: performEarly},
	{Defect: "a message without an id is performed", Checks: []string{"catalogue.no-id.tool.invoke", "catalogue.no-id.cancel"}, House: true,
		newRewriter: rewriteSent(func(f frame) frame {
			if f.ID == "" {
				f = f.withNewID()
			}
			return f
		})},
	{Defect: "a payload that is no object counts as empty", Checks: []string{"catalogue.no-object.tool.invoke", "catalogue.no-object.log"}, Silent: true, House: true,
		newRewriter: rewriteSent(func(f frame) frame {
			if f.Payload.Kind() != '{' {
				f = f.with("payload", json.RawMessage("{}"))
			}
			return f
		})},
	{Defect: "a message with a member that the server does not know is refused", Checks: []string{"catalogue.newer.cancel", "catalogue.newer.job.schedule"}, House: true,
		newRewriter: rewriteSent(func(f frame) frame {
			var members map[string]json.RawMessage
			if json.Unmarshal(f.text, &members) == nil && members["x_conformance_unknown"] != nil {
				f = f.with("type", "conformance.unknown")
			}
			return f
		})},
}

// rewriteSent returns a rewriter of each frame of the client.
func rewriteSent(edit func(f frame) frame) func() rewriter {
	return func() rewriter { return rewriter{out: func(f frame) []frame { return []frame{edit(f)} }} }
}

// performEarly answers what is sent before session.open with an acceptance, before the server accepts the session.
func performEarly() rewriter {
	var early arcp.MessageID
	opened := false
	return rewriter{
		out: func(f frame) []frame {
			opened = opened || f.Type == arcp.SessionOpen
			if !opened {
				early = f.ID
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type != arcp.SessionAccepted || early == "" {
				return []frame{f}
			}
			performed := f.withNewID().with("type", arcp.Ack).with("correlation_id", early).with("payload", json.RawMessage("{}"))
			return []frame{performed, f}
		},
	}
}
