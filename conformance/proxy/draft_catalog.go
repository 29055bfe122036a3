package proxy

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftCatalogFaults are defects in the handling of messages of any type.
var draftCatalogFaults = []Fault{
	{Defect: "a message with a member of the envelope that the server does not know fails", Checks: ofTypes("newer", everyType...),
		newRewriter: refuseUnperformed(func(f frame) bool { return f.member("x_conformance_unknown") != nil })},
	{Defect: "a message with a member of the payload that the server does not know fails", Checks: ofTypes("newer", everyType...), House: true,
		newRewriter: refuseUnperformed(func(f frame) bool { return bytes.Contains(f.Payload, []byte("x_conformance_unknown")) })},
	{Defect: "a message whose payload is no object fails with INTERNAL_ERROR", Checks: ofTypes("no-object", kept...), House: true,
		newRewriter: answerSent(func(f frame) bool { p := f.member("payload"); return p != nil && arcp.Raw(p).Kind() != '{' }, arcp.SessionPong, false)},
	{Defect: "a message without an id is refused", Checks: ofTypes("no-id", kept...), House: true,
		newRewriter: answerSent(lacksID, arcp.SessionPong, false)},
	{Defect: "a message without an id is performed in the draft dialect", Checks: ofTypes("no-id", "session.ping", "session.list_jobs"), House: true,
		newRewriter: rewriteSent(func(f frame) frame {
			if lacksID(f) {
				f = f.withNewID()
			}
			return f
		})},
	{Defect: "a message before session.hello is performed", Checks: ofTypes("early", everyType...), House: true, newRewriter: performEarlyDraft},
	{Defect: "a message that only the server sends fails with INTERNAL_ERROR", Checks: ofTypes("direction", served...), House: true,
		newRewriter: answerSent(func(f frame) bool { return slices.Contains(served, string(f.Type)) }, arcp.SessionPong, false)},
}

// everyType are the types of draft 1.1 that a client may send in a session, kept those that do not end it, and served
// the types that only a server sends.
var (
	everyType = append([]string{"session.close"}, kept...)
	kept      = []string{"session.ping", "session.pong", "session.ack", "session.list_jobs", "job.submit", "job.cancel", "job.subscribe",
		"job.unsubscribe"}
	served = []string{"session.welcome", "session.error", "session.jobs", "session.closed", "job.accepted", "job.event", "job.result",
		"job.error", "job.cancelled", "job.subscribed", "nack", "subscribe.event"}
)

// ofTypes returns the ids of the generated checks of a family.
func ofTypes(family string, types ...string) []string {
	var ids []string
	for _, t := range types {
		ids = append(ids, "draft.catalogue."+family+"."+t)
	}
	return ids
}

// member returns a member of the envelope; nil if there is none.
func (f frame) member(name string) json.RawMessage {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(f.text, &members) // what is no object has no members
	return members[name]
}

func lacksID(f frame) bool { return f.member("type") != nil && f.member("id") == nil }

// refuseUnperformed hides the selected messages from the server, and answers each before the next session.pong.
func refuseUnperformed(selects func(f frame) bool) func() rewriter {
	return func() rewriter {
		r := answerSent(selects, arcp.SessionPong, false)()
		pass := r.out
		r.out = func(f frame) []frame {
			sent := pass(f)
			if selects(f) {
				return nil
			}
			return sent
		}
		return r
	}
}

// performEarlyDraft hides what is sent before session.hello from the server, and answers it before session.welcome.
func performEarlyDraft() rewriter {
	early, opened := false, false
	return rewriter{
		out: func(f frame) []frame {
			if opened = opened || f.Type == script.SessionHello; !opened {
				early = true
				return nil
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if !early {
				return []frame{f}
			}
			early = false
			return []frame{f.withNewID().with("type", arcp.SessionPong).with("payload", map[string]string{"ping_nonce": "n", "received_at": "2026-01-02T12:00:00Z"}), f}
		},
	}
}
