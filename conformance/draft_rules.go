package conformance

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// draftRules are the rules of frames in the draft dialect. Those of package strict are rules of the
// client library that the checks play; some of them are rules of the draft too. Scripts judge what the
// draft says of the handshake, of chunks and of results.
var draftRules = []rule{
	{id: "json", title: "a frame is one JSON object", section: "ARCP 1.1 §5", level: Must},
	{id: "numbers", title: "the event_seq of a session rises by one with each event", section: "ARCP 1.1 §8.3", level: Must},
	{id: "replay", title: "an event that is sent again does not change", section: "ARCP 1.1 §6.3", level: Must},
	{id: "handshake", title: "the first frame is session.welcome or session.error, and a session has one welcome", section: "SPEC §9", level: House},
	{id: "seq", title: "job.event, job.result and job.error are numbered from 1, and other frames are not", section: "SPEC §9", level: House},
	{id: "chunk", title: "the chunks of a result are in order and have one encoding", section: "SPEC §9", level: House},
	{id: "result", title: "the library reads the result, and it is inline or in chunks", section: "SPEC §9", level: House},
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

// numbers judges the event_seq of the events of one connection. The position after a resume is judged
// by scripts.
type numbers struct{ last uint64 }

// next returns what is wrong with the next number, or "".
func (n *numbers) next(seq uint64) (wrong string) {
	if n.last != 0 && seq != n.last+1 {
		wrong = fmt.Sprintf("event_seq is %d, want %d", seq, n.last+1)
	}
	n.last = seq
	return wrong
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
