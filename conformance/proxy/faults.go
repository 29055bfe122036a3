package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Faults returns every fault.
func Faults() []Fault {
	var all []Fault
	for _, list := range draftFaults {
		all = append(all, list...)
	}
	for _, list := range [][]Fault{eventFaults, answerFaults, jwtFaults, formFaults, connectionFaults, limitFaults,
		resumeFaults, replayFaults, flowFaults, feedFaults, feedFilterFaults, dedupFaults, livenessFaults, startFaults, retryFaults, sessionFaults,
		leaseFaults, budgetFaults, permissionFaults, questionFaults, interruptFaults, approvalFaults, toolFaults, messageFaults, resourceFaults, hostFaults, observerFaults, workerFaults, streamFaults, artifactFaults, linkFaults, sidecarFaults, traceFaults, scheduleFaults, handoffFaults, execFaults, mcpFaults} {
		all = append(all, list...)
	}
	return all
}

// eventFaults are defects of job events.
var eventFaults = []Fault{
	{Defect: "the event with event_seq 2 is never sent", Checks: []string{"jobs.life", "jobs.numbers", "jobs.log"},
		newRewriter: dropWhere(func(f frame) bool { return f.EventSeq == 2 })},
	{Defect: "the event with event_seq 4 is never sent and later events are renumbered to hide the gap", Checks: []string{"jobs.log", "jobs.progress"}, House: true,
		newRewriter: dropAndRenumber(4)},
	{Defect: "the event with event_seq 2 is sent twice", Checks: []string{"jobs.life", "jobs.numbers"},
		newRewriter: duplicateWhere(func(f frame) bool { return f.EventSeq == 2 }, sameFrame)},
	{Defect: "the events with event_seq 2 and 3 are sent in reverse order", Checks: []string{"jobs.life", "jobs.numbers", "jobs.log"},
		newRewriter: swap(isEvent(2), isEvent(3), false)},
	{Defect: "the events with event_seq 3 and 4 exchange their order and their numbers", Checks: []string{"jobs.log", "jobs.progress"},
		newRewriter: swap(isEvent(3), isEvent(4), true)},
	{Defect: "job.started is sent before job.accepted", Checks: []string{"jobs.life", "ordering.accepted-first"},
		newRewriter: swap(isType(arcp.JobAccepted), isType(arcp.JobStarted), true)},
	{Defect: "the first event_seq of a session is 2", Checks: []string{"jobs.life", "jobs.numbers"}, House: true,
		newRewriter: editEvents(func(f frame) frame { return f.with("event_seq", f.EventSeq+1) })},
	{Defect: "event_seq starts again at 1 for each job", Checks: []string{"jobs.numbers", "control.unnumbered"},
		newRewriter: restartNumbers},
	{Defect: "event_seq is a string", Checks: []string{"jobs.life", "jobs.numbers"},
		newRewriter: editEvents(func(f frame) frame { return f.with("event_seq", "1") })},
	{Defect: "event_seq is written 1.0", Checks: []string{"jobs.life", "jobs.numbers"},
		newRewriter: editEvents(func(f frame) frame { return f.with("event_seq", json.RawMessage("1.0")) })},
	{Defect: "job.started has no event_seq", Checks: []string{"jobs.life", "jobs.numbers"},
		newRewriter: editReceived(arcp.JobStarted, func(f frame) frame { return f.with("event_seq", nil) })},
	{Defect: "pong has an event_seq", Checks: []string{"control.ping", "handshake.accepted"},
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("event_seq", 1) })},
	{Defect: "the refusal of a submit has an event_seq", Checks: []string{"jobs.name-unknown", "jobs.refusal-makes-no-job"},
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.with("event_seq", max(f.EventSeq, 1)) })},
	{Defect: "one byte of a result is changed", Checks: []string{"jobs.life"},
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame {
			return parse(bytes.Replace(f.text, []byte(`"world"`), []byte(`"wOrld"`), 1))
		})},
	{Defect: "numbers in a result are rounded to floating point", Checks: []string{"jobs.echo-bytes"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, frame.roundNumbers)},
	{Defect: "the final event of a job is sent twice", Checks: []string{"jobs.life", "cancel.running"},
		newRewriter: rewriteReceived(func(f frame) []frame {
			if !f.event() || !f.Type.Terminal() {
				return []frame{f}
			}
			return []frame{f, f.withNewID().with("event_seq", f.EventSeq+1)}
		})},
	{Defect: "the final event of a job is never sent", Checks: []string{"jobs.life"}, Silent: true,
		newRewriter: dropWhere(func(f frame) bool { return f.event() && f.Type.Terminal() })},
	{Defect: "a log event follows the final event of its job", Checks: []string{"jobs.life"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame {
			if !f.event() || !f.Type.Terminal() {
				return []frame{f}
			}
			late := f.withNewID().with("type", arcp.Log).with("event_seq", f.EventSeq+1)
			return []frame{f, late.with("payload", arcp.LogPayload{Level: arcp.LevelInfo, Message: "late"})}
		})},
	{Defect: "job.completed has another trace_id than the earlier events of its job", Checks: []string{"jobs.life", "jobs.trace-kept"},
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame { return f.with("trace_id", "another") })},
	{Defect: "events omit the causation_id of the submit", Checks: []string{"jobs.causation"}, House: true,
		newRewriter: editEvents(func(f frame) frame { return f.with("causation_id", nil) })},
	{Defect: "events have another trace_id than the submit", Checks: []string{"jobs.trace-kept"},
		newRewriter: editEvents(func(f frame) frame { return f.with("trace_id", "ffffffffffffffffffffffffffffffff") })},
	{Defect: "job.accepted names the tool without its version", Checks: []string{"jobs.accepted-payload", "jobs.version-pinned"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("agent", "demo.echo") })},
	{Defect: "a cancelled job ends with job.completed", Checks: []string{"cancel.running", "cancel.at-once"},
		newRewriter: editReceived(arcp.JobCancelled, func(f frame) frame {
			return f.with("type", arcp.JobCompleted).with("payload", arcp.JobCompletedPayload{})
		})},
	{Defect: "retryable is false in every job.failed", Checks: []string{"errors.retryable-default", "errors.retryable-said"},
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", false) })},
}

// restartNumbers numbers the events of each job from 1.
func restartNumbers() rewriter {
	first := map[arcp.JobID]uint64{}
	return rewriter{in: func(f frame) []frame {
		if !f.event() {
			return []frame{f}
		}
		if first[f.JobID] == 0 {
			first[f.JobID] = f.EventSeq
		}
		return []frame{f.with("event_seq", f.EventSeq-first[f.JobID]+1)}
	}}
}

// revealPrincipal changes the refusal of a wrong answer if the principal exists.
func revealPrincipal() rewriter {
	known := false
	return rewriter{
		out: func(f frame) []frame {
			known = known || f.Type == arcp.SessionOpen && !bytes.Contains(f.Payload, []byte("nobody"))
			return []frame{f}
		},
		in: func(f frame) []frame {
			if known && f.Type == arcp.SessionUnauthenticated {
				f = f.withPayload("message", "wrong answer")
			}
			return []frame{f}
		},
	}
}

// answerFaults are defects of answers.
var answerFaults = []Fault{
	{Defect: "pong has another nonce than its ping", Checks: []string{"control.ping", "handshake.accepted"}, House: true,
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.withPayload("nonce", "mine") })},
	{Defect: "a ping is answered twice", Checks: []string{"control.ping", "control.order", "control.unnumbered"},
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type != arcp.Pong {
				return []frame{f}
			}
			return []frame{f, f.withNewID()}
		})},
	{Defect: "two pings are answered in reverse order", Checks: []string{"control.order"}, House: true,
		newRewriter: swap(isType(arcp.Pong), isType(arcp.Pong), false)},
	{Defect: "session.open without a token is refused instead of challenged", Checks: []string{"auth.challenge"}, House: true,
		newRewriter: editReceived(arcp.SessionChallenge, func(f frame) frame {
			return f.with("type", arcp.SessionUnauthenticated).with("payload", arcp.Errorf(arcp.CodeUnauthenticated, "a token is required"))
		})},
	{Defect: "every challenge to a token holder is the same", Checks: []string{"auth.challenge-wrong"}, House: true,
		newRewriter: editReceived(arcp.SessionChallenge, func(f frame) frame { return f.withPayload("challenge", "constant") })},
	{Defect: "the answer to one challenge opens a second session", Checks: []string{"auth.challenge-replayed"}, House: true,
		newShared: acceptFirstAnswer},
	{Defect: "a second answer to a challenge is accepted", Checks: []string{"auth.challenge-replayed"}, House: true, newRewriter: acceptSecondAnswer},
	{Defect: "the refusal of a wrong answer reveals whether the principal exists", Checks: []string{"auth.challenge-wrong"}, House: true,
		newRewriter: revealPrincipal},
	{Defect: "cancel.accepted is never sent", Checks: []string{"cancel.running", "cancel.deadline"},
		newRewriter: dropReceived(arcp.CancelAccepted)},
	{Defect: "job.cancelled is sent before cancel.accepted", Checks: []string{"cancel.running"},
		newRewriter: swap(isType(arcp.CancelAccepted), isType(arcp.JobCancelled), false)},
	{Defect: "the correlation_id of an answer names another message", Checks: []string{"control.ping", "jobs.life"}, Silent: true,
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.CorrelationID != "" {
				f = f.with("correlation_id", "msg_of_another")
			}
			return []frame{f}
		})},
	{Defect: "job.completed has no correlation_id", Checks: []string{"jobs.life"}, House: true, Silent: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame { return f.with("correlation_id", nil) })},
	{Defect: "a refusal has the unknown code RATE_LIMITED", Checks: []string{"jobs.name-unknown", "extensions.unknown-core"},
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type == arcp.JobFailed || f.Type == arcp.Nack {
				f = f.withPayload("code", "RATE_LIMITED")
			}
			return []frame{f}
		})},
	{Defect: "a result larger than 512 KiB is replaced by a result_id", Checks: []string{"jobs.whole-result"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame {
			if len(f.Payload) > 512<<10 {
				f = f.withPayload("value", nil).withPayload("result_id", "res_1")
			}
			return f
		})},
	{Defect: "the chunks of a result are numbered from 1", Checks: []string{"results.chunks"},
		newRewriter: editResultChunk("chunk_seq", func(p arcp.JobResultChunkPayload) any { return p.ChunkSeq + 1 })},
	{Defect: "every chunk of a result says that there are more", Checks: []string{"results.chunks"},
		newRewriter: editResultChunk("more", func(arcp.JobResultChunkPayload) any { return true })},
	{Defect: "a chunk of a result is encoded as base64 and says utf8", Checks: []string{"results.chunks"},
		newRewriter: editResultChunk("encoding", func(arcp.JobResultChunkPayload) any { return "utf8" })},
	{Defect: "result_size counts the encoded bytes", Checks: []string{"results.chunks"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame {
			if p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&f.Envelope); err == nil && p.ResultSize != nil {
				f = f.withPayload("result_size", base64.StdEncoding.EncodedLen(int(*p.ResultSize)))
			}
			return f
		})},
	{Defect: "a result that no frame has is left out", Checks: []string{"results.reference"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame { return f.withPayload("result_ref", nil) })},
	{Defect: "the reference to a result has the size of its description", Checks: []string{"results.reference"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame { return f.replace(`"size":9000000`, `"size":300`) })},
	{Defect: "a refusal has the specific code in place of the code on the wire", Checks: []string{"jobs.name-unknown"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("code", f.code()) })},
	{Defect: "the code of every refusal is INTERNAL", Checks: []string{"jobs.name-unknown", "extensions.unknown-core"},
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type == arcp.JobFailed || f.Type == arcp.Nack {
				f = f.withPayload("code", arcp.CodeInternal)
			}
			return []frame{f}
		})},
	{Defect: "nack is never sent", Checks: []string{"extensions.unknown-core"}, Silent: true,
		newRewriter: dropReceived(arcp.Nack)},
	{Defect: "a message received twice is performed twice", Checks: []string{"envelope.duplicate-id", "envelope.duplicate-submit"},
		newRewriter: performCopies},
	{Defect: "a message received before session.accepted is never answered", Checks: []string{"handshake.early-refused"}, Silent: true, House: true,
		newRewriter: dropWhere(func(f frame) bool {
			return f.Type == arcp.Nack && bytes.Contains(f.Payload, []byte("before session.accepted"))
		})},
	{Defect: "a ping before session.open is answered", Checks: []string{"handshake.nothing-before-open"},
		newRewriter: answerEarlyPing},
	{Defect: "an experimental or extension message is refused instead of ignored", Checks: []string{"extensions.experimental", "extensions.optional"},
		newRewriter: refuseExperimental},
}

// editResultChunk changes a member of job.result_chunk.
func editResultChunk(name string, value func(arcp.JobResultChunkPayload) any) func() rewriter {
	return editReceived(arcp.JobResultChunk, func(f frame) frame {
		p, err := arcp.DecodePayload[arcp.JobResultChunkPayload](&f.Envelope)
		if err != nil {
			return f
		}
		return f.withPayload(name, value(p))
	})
}

// performCopies gives a repeated message a new id, and gives its answers the original
// correlation_id. The server cannot recognise the copy.
func performCopies() rewriter {
	seen, old := map[arcp.MessageID]bool{}, map[arcp.MessageID]arcp.MessageID{}
	return rewriter{
		out: func(f frame) []frame {
			if f.ID != "" && seen[f.ID] {
				original := f.ID
				f = f.withNewID()
				old[f.ID] = original
			}
			seen[f.ID] = true
			return []frame{f}
		},
		in: func(f frame) []frame {
			if original, ok := old[f.CorrelationID]; ok {
				f = f.with("correlation_id", original)
			}
			return []frame{f}
		},
	}
}

// answerEarlyPing answers a ping that the client sent before session.accepted.
func answerEarlyPing() rewriter {
	var early []arcp.MessageID
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.Ping {
				early = append(early, f.ID)
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type != arcp.SessionAccepted || len(early) == 0 {
				return []frame{f}
			}
			pong := f.withNewID().with("type", arcp.Pong).with("payload", struct{}{}).with("correlation_id", early[0])
			return []frame{pong, f}
		},
	}
}

// refuseExperimental refuses an experimental or extension message before the next pong.
func refuseExperimental() rewriter {
	var dropped []arcp.MessageID
	return rewriter{
		out: func(f frame) []frame {
			if class := arcp.Classify(f.Type); class == arcp.ClassExperimental || class == arcp.ClassExtension {
				dropped = append(dropped, f.ID)
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type != arcp.Pong || len(dropped) == 0 {
				return []frame{f}
			}
			nack := f.withNewID().with("type", arcp.Nack).with("correlation_id", dropped[0]).
				with("payload", arcp.Errorf(arcp.CodeUnimplemented, "not here"))
			dropped = nil
			return []frame{nack, f}
		},
	}
}

// formFaults are defects of the form of frames, which a strict decoder refuses.
var formFaults = []Fault{
	{Defect: "an absent envelope member is null", Checks: []string{"control.ping", "handshake.accepted"}, House: true,
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("trace_id", null) })},
	{Defect: "an absent payload member is null", Checks: []string{"jobs.life"}, House: true,
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("lease", null) })},
	{Defect: "an absent capability is null", Checks: []string{"handshake.accepted"}, House: true,
		newRewriter: editReceived(arcp.SessionAccepted, func(f frame) frame {
			return f.withPayload("capabilities", json.RawMessage(`{"extensions":null}`))
		})},
	{Defect: "a message without payload members has no payload", Checks: []string{"control.ping"},
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("payload", nil) })},
	{Defect: "session.accepted has no capabilities", Checks: []string{"handshake.accepted"},
		newRewriter: editReceived(arcp.SessionAccepted, func(f frame) frame { return f.withPayload("capabilities", nil) })},
	{Defect: "job.progress has percent and no current", Checks: []string{"jobs.progress"},
		newRewriter: editReceived(arcp.JobProgress, func(f frame) frame { return f.withPayload("current", nil).withPayload("percent", 50) })},
	{Defect: "job.failed has no retryable", Checks: []string{"jobs.name-unknown"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", nil) })},
	{Defect: "the level of a log event is in upper case", Checks: []string{"jobs.log"},
		newRewriter: editReceived(arcp.Log, func(f frame) frame { return f.withPayload("level", "INFO") })},
	{Defect: "message ids have no prefix", Checks: []string{"control.ping"}, House: true,
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("id", strings.TrimPrefix(string(f.ID), arcp.MessagePrefix)) })},
	{Defect: "every pong has the same id", Checks: []string{"control.ping", "control.order"},
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("id", "msg_same").with("correlation_id", f.CorrelationID) })},
	{Defect: "the version in each frame is 1.7", Checks: []string{"handshake.version-echo", "handshake.accepted"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame { return []frame{f.with("arcp", "1.7")} })},
	{Defect: "the timestamp is a number", Checks: []string{"control.ping"},
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("timestamp", 1767323045) })},
	{Defect: "the timestamp has an offset other than Z", Checks: []string{"control.ping"}, House: true,
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("timestamp", "2026-01-02T03:04:05+02:00") })},
	{Defect: "an envelope has the same member twice", Checks: []string{"control.ping"}, House: true,
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return parse(bytes.Replace(f.text, []byte(`{`), []byte(`{"arcp":"1.1",`), 1)) })},
	{Defect: "the last byte of a frame is missing", Checks: []string{"control.ping"}, Silent: true,
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return parse(f.text[:len(f.text)-1]) })},
	{Defect: "pong has the session_id of another session", Checks: []string{"control.ping"},
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("session_id", "sess_of_another") })},
	{Defect: "pong has no session_id", Checks: []string{"control.ping"},
		newRewriter: editReceived(arcp.Pong, func(f frame) frame { return f.with("session_id", nil) })},
	{Defect: "envelope and payload of job.accepted have different job ids", Checks: []string{"jobs.life"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.withPayload("job_id", "job_of_another") })},
	{Defect: "a frame of an unknown type is sent", Checks: []string{"control.ping", "handshake.accepted"},
		newRewriter: insertBeforePong(func(f frame) frame { return f.with("type", "job.exploded") })},
	{Defect: "human.input.request is sent to a session without human_input", Checks: []string{"control.ping", "handshake.accepted"},
		newRewriter: insertBeforePong(func(f frame) frame {
			return f.with("type", arcp.HumanInputRequest).with("job_id", arcp.NewJobID()).with("event_seq", 1).
				with("payload", json.RawMessage(`{"prompt":"?","expires_at":"2026-01-02T03:04:05Z"}`))
		})},
	{Defect: "an ack is sent without a message to acknowledge", Checks: []string{"control.ping", "handshake.accepted"},
		newRewriter: insertBeforePong(func(f frame) frame { return f.with("type", arcp.Ack).with("payload", struct{}{}) })},
	{Defect: "session.accepted contains the token of the client", Checks: []string{"handshake.accepted"}, House: true,
		newRewriter: repeatToken},
}

// repeatToken copies the token of session.open into session.accepted.
func repeatToken() rewriter {
	var token string
	return rewriter{
		out: func(f frame) []frame {
			if p, err := arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope); err == nil && f.Type == arcp.SessionOpen {
				token = p.Auth.Token
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type == arcp.SessionAccepted {
				f = f.withPayload("debug", "opened with "+token)
			}
			return []frame{f}
		},
	}
}

// connectionFaults are defects at the end of a connection.
var connectionFaults = []Fault{
	{Defect: "session.close ends the connection with code 1011", Checks: []string{"close.answer"}, House: true,
		newRewriter: closeWith(transport.CloseInternal)},
	{Defect: "a frame follows session.closed", Checks: []string{"close.answer"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type != arcp.SessionClosed {
				return []frame{f}
			}
			return []frame{f, f.withNewID().with("type", arcp.Ack).with("payload", struct{}{})}
		})},
	{Defect: "session.closed is never sent", Checks: []string{"close.answer"}, House: true,
		newRewriter: dropReceived(arcp.SessionClosed)},
}
