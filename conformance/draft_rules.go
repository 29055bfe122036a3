package conformance

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// draftRules are the rules of frames in the draft dialect. Those of package strict are rules of the
// client library that the checks play; some of them are rules of the draft too.
var draftRules = []rule{
	{id: "json", title: "a frame is one JSON object", section: "ARCP 1.1 §5", level: Must},
	{id: "handshake", title: "the first frame is session.welcome or session.error, and a session has one welcome", section: "ARCP 1.1 §6.2", level: Must},
	{id: "seq", title: "events are numbered without gaps", section: "ARCP 1.1 §8.3", level: Must},
	{id: "chunk", title: "the chunks of a result are in order and have one encoding", section: "ARCP 1.1 §8.4", level: Must},
	{id: "result", title: "a result is inline or in chunks", section: "ARCP 1.1 §8.4", level: Must},
	{id: "replay", title: "an event that is sent again does not change", section: "ARCP 1.1 §6.3", level: Must},
	{id: "size", title: "every library reads a frame of the size", section: "SPEC §9", level: House},
	{id: "envelope", title: "the library decodes the envelope", section: "SPEC §9", level: House},
	{id: "type", title: "the library knows the type", section: "SPEC §9", level: House},
	{id: "payload", title: "the library decodes the payload", section: "SPEC §9", level: House},
	{id: "body", title: "the library decodes the body of an event", section: "SPEC §9", level: House},
	{id: "null", title: "no optional member is null", section: "SPEC §9", level: House},
	{id: "id", title: "the library knows the form of identifiers", section: "SPEC §9", level: House},
	{id: "session", title: "all frames have one session_id", section: "SPEC §9", level: House},
	{id: "answer", title: "an answer has a request", section: "SPEC §9", level: House},
	{id: "job", title: "an event belongs to a job that has not ended", section: "SPEC §9", level: House},
	{id: "retryable", title: "retryable is what the code demands", section: "SPEC §9", level: House},
	{id: "error", title: "a session.error ends no other call", section: "SPEC §9", level: House},
	{id: "heartbeat", title: "the interval of heartbeats comes with the feature", section: "SPEC §9", level: House},
	{id: "toolresult", title: "a tool_result has a result or an error", section: "SPEC §9", level: House},
	{id: "secrets", title: "a frame has no token of a client", section: "SPEC §9", level: House},
	{id: "decodes", title: "a frame decodes strictly", section: "SPEC §9", level: House},
}

func init() {
	for i := range draftRules {
		draftRules[i].draft = true
	}
}

// draftRule returns the rule with an id.
func draftRule(id strict.Rule) *rule {
	for i := range draftRules {
		if draftRules[i].id == string(id) {
			return &draftRules[i]
		}
	}
	panic("no rule " + id) // TestDraftRules lists those of package strict
}

// draftFrameChecks returns the checks of draftRules.
func draftFrameChecks() []Check {
	var list []Check
	for i := range draftRules {
		r := &draftRules[i]
		list = append(list, Check{ID: r.checkID(), Title: r.title, Section: r.section, Level: r.level, Dialect: arcp.DialectDraft, frames: true})
	}
	return list
}
