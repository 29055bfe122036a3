package proxy

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// past is a time before every test.
const past = "2000-01-01T00:00:00.000Z"

// draftEventFaults are defects of job.event.
var draftEventFaults = []Fault{
	{Defect: "the second event of a draft session is lost", Checks: []string{"draft.events.numbers"},
		newRewriter: dropWhere(isEvent(2))},
	{Defect: "session.jobs has an event_seq", Checks: []string{"draft.events.unnumbered"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.with("event_seq", 99) })},
	{Defect: "no event reports that a job runs", Checks: []string{"draft.events.running"}, House: true,
		newRewriter: dropEvents(hasPhase("running"))},
	{Defect: "the time of an event is in a zone", Checks: []string{"draft.events.times"}, House: true,
		newRewriter: editReceived(script.JobEvent, func(f frame) frame { return f.withPayload("ts", "2099-01-02T03:04:05+02:00") })},
	{Defect: "the time of an event is before the job", Checks: []string{"draft.events.times"}, House: true,
		newRewriter: editReceived(script.JobEvent, func(f frame) frame { return f.withPayload("ts", past) })},
	{Defect: "a log has lost its fields", Checks: []string{"draft.events.log"}, House: true,
		newRewriter: editBody("log", func(body map[string]any) { delete(body, "fields"); delete(body, "attributes") })},
	{Defect: "two logs come in reverse order", Checks: []string{"draft.events.log", "draft.events.log-output"},
		newRewriter: swap(isKind("log"), isKind("log"), true)},
	{Defect: "a session without the feature progress is sent progress", Checks: []string{"draft.events.progress-unnegotiated"},
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) {
				progress := map[string]any{"kind": "progress", "ts": past, "body": map[string]int{"current": 1, "total": 3}}
				return f.withNewID().with("type", script.JobEvent).with("payload", progress), f.Type == script.JobEvent
			})
		}},
	{Defect: "an event that is not sent takes a number", Checks: []string{"draft.events.progress-unnegotiated", "draft.events.numbers"},
		newRewriter: skipNumbers(isType(arcp.JobAccepted))},
	{Defect: "progress is told of the last step only", Checks: []string{"draft.events.progress"}, House: true,
		newRewriter: dropEvents(func(f frame) bool {
			body := f.body()
			return isKind("progress")(f) && body["current"] != body["total"]
		})},
	{Defect: "a checkpoint has no id", Checks: []string{"draft.events.checkpoint"}, House: true,
		newRewriter: editBody("status", func(body map[string]any) { delete(body, "details") })},
	{Defect: "a metric has no unit", Checks: []string{"draft.events.metric"},
		newRewriter: editBody("metric", func(body map[string]any) { delete(body, "unit") })},
	{Defect: "chunks of thoughts have no text", Checks: []string{"draft.events.streams"}, House: true,
		newRewriter: editBody("thought", func(body map[string]any) { body["text"] = "" })},
	{Defect: "a chunk of a stream of metrics is lost, and the events behind it are renumbered", Checks: []string{"draft.events.streams"}, House: true,
		newRewriter: dropEvents(isKind("metric"))},
	{Defect: "a delegation names the agent without its version", Checks: []string{"draft.events.delegate"}, House: true,
		newRewriter: editBody("delegate", func(body map[string]any) { body["agent"] = "demo.echo" })},
	{Defect: "a child job has a job.accepted", Checks: []string{"draft.events.child-unsolicited"}, House: true, newRewriter: acceptChildren},
	{Defect: "the end of a job is told as two events", Checks: []string{"draft.events.ends-once"},
		newRewriter: afterEnd(func(f frame) frame { return f.withNewID() })},
	{Defect: "a log follows the end of its job", Checks: []string{"draft.events.nothing-after"},
		newRewriter: afterEnd(func(f frame) frame {
			return f.withNewID().with("type", script.JobEvent).with("payload", json.RawMessage(`{"kind":"log","ts":"2099-01-01T00:00:00Z","body":{"level":"info","message":"late"}}`))
		})},
	{Defect: "the events of a job come to every session of its principal", Checks: []string{"draft.events.own-session"}, House: true, newShared: leakEvents},
}

// draftResultFaults are defects of job.result and of results in chunks.
var draftResultFaults = []Fault{
	{Defect: "job.result was completed before the job was accepted", Checks: []string{"draft.result.members"}, House: true,
		newRewriter: editReceived(script.JobResult, func(f frame) frame { return f.withPayload("completed_at", past) })},
	{Defect: "a value is in result alone", Checks: []string{"draft.result.both"}, House: true,
		newRewriter: editReceived(script.JobResult, func(f frame) frame { return f.withPayload("output", nil) })},
	{Defect: "a job without a value has the result null", Checks: []string{"draft.result.void"}, House: true,
		newRewriter: editReceived(script.JobResult, func(f frame) frame {
			if f.has("result") || f.has("result_id") {
				return f
			}
			return f.withPayload("result", null)
		})},
	{Defect: "a small result has a result_id too", Checks: []string{"draft.result.inline"},
		newRewriter: editReceived(script.JobResult, func(f frame) frame { return f.withPayload("result_id", arcp.NewID("res_")) })},
	{Defect: "the first byte of a chunk is lost", Checks: []string{"draft.result.whole"},
		newRewriter: editBody("result_chunk", func(body map[string]any) { body["data"] = body["data"].(string)[1:] })},
	{Defect: "chunks are numbered from 1", Checks: []string{"draft.result.chunk-numbers"},
		newRewriter: editBody("result_chunk", func(body map[string]any) { body["chunk_seq"] = number(body["chunk_seq"]) + 1 })},
	{Defect: "job.result has another result_id than its chunks", Checks: []string{"draft.result.chunk-id"},
		newRewriter: editChunked(func(f frame) frame { return f.withPayload("result_id", arcp.NewID("res_")) })},
	{Defect: "more is false in every chunk", Checks: []string{"draft.result.chunk-more"},
		newRewriter: editBody("result_chunk", func(body map[string]any) { body["more"] = false })},
	{Defect: "more is true in every chunk", Checks: []string{"draft.result.chunk-more"},
		newRewriter: editBody("result_chunk", func(body map[string]any) { body["more"] = true })},
	{Defect: "result_size counts a byte too few", Checks: []string{"draft.result.chunk-size"}, House: true,
		newRewriter: editChunked(func(f frame) frame { return f.withPayload("result_size", f.numberMember("result_size")-1) })},
	{Defect: "job.result repeats a result that came in chunks", Checks: []string{"draft.result.chunk-only"},
		newRewriter: editChunked(func(f frame) frame { return f.withPayload("output", struct{}{}) })},
	{Defect: "chunks of text are base64", Checks: []string{"draft.result.chunk-encoding"},
		newRewriter: editBody("result_chunk", func(body map[string]any) {
			body["data"], body["encoding"] = base64.StdEncoding.EncodeToString([]byte(body["data"].(string))), "base64"
		})},
	{Defect: "a chunk ends within a character", Checks: []string{"draft.result.chunk-utf8"},
		newRewriter: editBody("result_chunk", func(body map[string]any) {
			data := body["data"].(string)
			_, size := utf8.DecodeLastRuneInString(data)
			body["data"] = data[:len(data)-size] + "\ufffd"
		})},
	{Defect: "the frame of a chunk has more than a million bytes", Checks: []string{"draft.result.frame-size"}, House: true,
		newRewriter: editBody("result_chunk", func(body map[string]any) { body["pad"] = strings.Repeat("x", 1_000_000) })},
	{Defect: "a chunk follows the end of its job", Checks: []string{"draft.result.chunk-events"}, House: true,
		newRewriter: swap(func(f frame) bool { return isKind("result_chunk")(f) && f.body()["more"] == false }, isType(script.JobResult), true)},
}

// body returns the body of a job.event; nil for any other frame.
func (f frame) body() map[string]any {
	var p struct {
		Body map[string]any `json:"body"`
	}
	if f.Type != script.JobEvent || json.Unmarshal(f.Payload, &p) != nil {
		return nil
	}
	return p.Body
}

func isKind(kind string) func(frame) bool {
	return func(f frame) bool { return f.Type == script.JobEvent && f.stringMember("kind") == kind }
}

// hasPhase selects the statuses with the phase.
func hasPhase(phase string) func(frame) bool {
	return func(f frame) bool { return isKind("status")(f) && f.body()["phase"] == phase }
}

// editBody returns rewriters that edit the body of each event of the kind.
func editBody(kind string, edit func(body map[string]any)) func() rewriter {
	return editReceived(script.JobEvent, func(f frame) frame {
		if body := f.body(); body != nil && isKind(kind)(f) {
			edit(body)
			f = f.withPayload("body", body)
		}
		return f
	})
}

// editChunked returns rewriters that edit each job.result of a result in chunks.
func editChunked(edit func(f frame) frame) func() rewriter {
	return editReceived(script.JobResult, func(f frame) frame {
		if f.has("result_id") {
			f = edit(f)
		}
		return f
	})
}

// ends reports whether f is the last event of a job.
func (f frame) ends() bool {
	return f.event() && (f.Type == script.JobResult || f.Type == script.JobError)
}

// afterEnd returns rewriters that send another event after the end of each job.
func afterEnd(another func(f frame) frame) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if !f.ends() {
			return []frame{f}
		}
		return []frame{f, another(f).with("event_seq", f.EventSeq+1)}
	})
}

// acceptChildren sends a job.accepted before the first event of a job that was not submitted.
func acceptChildren() rewriter {
	accepted := map[arcp.JobID]bool{}
	return rewriter{in: func(f frame) []frame {
		switch {
		case f.Type == arcp.JobAccepted:
			accepted[f.JobID] = true
		case f.Type == script.JobEvent && !accepted[f.JobID]:
			accepted[f.JobID] = true
			p := map[string]any{"job_id": f.JobID, "agent": "demo.echo@1.0.0", "lease": struct{}{}, "accepted_at": past}
			return []frame{f.withNewID().with("type", arcp.JobAccepted).with("event_seq", nil).with("payload", p), f}
		}
		return []frame{f}
	}}
}

// leakEvents sends the newest event of one connection to the others, before a pong.
func leakEvents() func() rewriter {
	var newest frame
	return func() rewriter {
		own := false
		return rewriter{in: func(f frame) []frame {
			switch {
			case f.event():
				own, newest = true, f
			case f.Type == arcp.SessionPong && !own && newest.event():
				return []frame{newest.with("session_id", f.SessionID).with("event_seq", 1), f}
			}
			return []frame{f}
		}}
	}
}
