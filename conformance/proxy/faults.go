package proxy

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Faults lists every fault.
func Faults() []Fault {
	var all []Fault
	for _, list := range [][]Fault{eventFaults, answerFaults, jwtFaults, formFaults, connectionFaults,
		resumeFaults, replayFaults, flowFaults, feedFaults, feedFilterFaults, dedupFaults, livenessFaults, retryFaults, sessionFaults,
		leaseFaults, budgetFaults, permissionFaults, questionFaults, interruptFaults, approvalFaults, toolFaults, resourceFaults, hostFaults, observerFaults, workerFaults, execFaults, mcpFaults} {
		all = append(all, list...)
	}
	return all
}

// change makes a stage that replaces the frames it is given.
func change(in func(f frame) []frame) func() rewriter {
	return func() rewriter { return rewriter{in: in} }
}

// every makes a stage that edits each frame of the type.
func every(typ arcp.Type, edit func(f frame) frame) func() rewriter {
	return change(func(f frame) []frame {
		if f.Type == typ {
			f = edit(f)
		}
		return []frame{f}
	})
}

// events makes a stage that edits each event.
func events(edit func(f frame) frame) func() rewriter {
	return change(func(f frame) []frame {
		if f.event() {
			f = edit(f)
		}
		return []frame{f}
	})
}

// swap makes a stage that exchanges each frame first selects with the next
// that second selects.
func swap(first, second func(f frame) bool, renumber bool) func() rewriter {
	return func() rewriter {
		var held []frame
		return rewriter{in: func(f frame) []frame {
			switch {
			case held == nil && first(f):
				held = []frame{f}
				return nil
			case held != nil && second(f):
				a, b := held[0], f
				held = nil
				if renumber {
					a, b = a.with("event_seq", f.EventSeq), b.with("event_seq", a.EventSeq)
				}
				return []frame{b, a}
			}
			return []frame{f}
		}}
	}
}

func isEvent(seq uint64) func(frame) bool { return func(f frame) bool { return f.EventSeq == seq } }

func isType(typ arcp.Type) func(frame) bool { return func(f frame) bool { return f.Type == typ } }

// eventFaults break the rules for events of jobs.
var eventFaults = []Fault{
	{Name: "drop an event", Says: "one event is lost", Shows: []string{"jobs.life", "jobs.numbers", "jobs.log"},
		newRewriter: change(func(f frame) []frame {
			if f.EventSeq == 2 {
				return nil
			}
			return []frame{f}
		})},
	{Name: "drop and close the gap", Says: "one event is lost and the rest renumbered", Shows: []string{"jobs.log", "jobs.progress"},
		newRewriter: dropAndRenumber(4)},
	{Name: "duplicate an event", Says: "an event is delivered twice", Shows: []string{"jobs.life", "jobs.numbers"},
		newRewriter: change(func(f frame) []frame {
			if f.EventSeq == 2 {
				return []frame{f, f}
			}
			return []frame{f}
		})},
	{Name: "reorder events", Says: "two events change places", Shows: []string{"jobs.life", "jobs.numbers", "jobs.log"},
		newRewriter: swap(isEvent(2), isEvent(3), false)},
	{Name: "reorder renumbered", Says: "two events change places and numbers", Shows: []string{"jobs.log", "jobs.progress"},
		newRewriter: swap(isEvent(3), isEvent(4), true)},
	{Name: "accept late", Says: "a job is started before it is accepted", Shows: []string{"jobs.life", "ordering.accepted-first"},
		newRewriter: swap(isType(arcp.JobAccepted), isType(arcp.JobStarted), true)},
	{Name: "begin at 2", Says: "the first number is 2", Shows: []string{"jobs.life", "jobs.numbers"},
		newRewriter: events(func(f frame) frame { return f.with("event_seq", f.EventSeq+1) })},
	{Name: "restart numbers", Says: "every job counts anew", Shows: []string{"jobs.numbers", "control.unnumbered"},
		newRewriter: restartNumbers},
	{Name: "number as text", Says: "event_seq is a string", Shows: []string{"jobs.life"},
		newRewriter: events(func(f frame) frame { return f.with("event_seq", "1") })},
	{Name: "number as fraction", Says: "event_seq is written 1.0", Shows: []string{"jobs.life"},
		newRewriter: events(func(f frame) frame { return f.with("event_seq", json.RawMessage("1.0")) })},
	{Name: "unnumbered event", Says: "an event has no number", Shows: []string{"jobs.life", "jobs.numbers"},
		newRewriter: every(arcp.JobStarted, func(f frame) frame { return f.with("event_seq", nil) })},
	{Name: "numbered pong", Says: "an answer has a number", Shows: []string{"control.ping", "handshake.accepted"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("event_seq", 1) })},
	{Name: "numbered refusal", Says: "the refusal of a submit is numbered", Shows: []string{"jobs.name-unknown", "jobs.refusal-makes-no-job"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.with("event_seq", max(f.EventSeq, 1)) })},
	{Name: "corrupt a payload", Says: "one byte of a result is another", Shows: []string{"jobs.life"},
		newRewriter: every(arcp.JobCompleted, func(f frame) frame {
			return parse(bytes.Replace(f.text, []byte(`"world"`), []byte(`"wOrld"`), 1))
		})},
	{Name: "round numbers", Says: "numbers are read as floating point", Shows: []string{"jobs.echo-bytes"},
		newRewriter: every(arcp.JobCompleted, frame.roundNumbers)},
	{Name: "second terminal", Says: "a job ends twice", Shows: []string{"jobs.life", "cancel.running"},
		newRewriter: change(func(f frame) []frame {
			if !f.event() || !f.Type.Terminal() {
				return []frame{f}
			}
			return []frame{f, f.withNewID().with("event_seq", f.EventSeq+1)}
		})},
	{Name: "no terminal", Says: "a job never ends", Shows: []string{"jobs.life"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if f.event() && f.Type.Terminal() {
				return nil
			}
			return []frame{f}
		})},
	{Name: "event after the end", Says: "a job talks after its end", Shows: []string{"jobs.life"},
		newRewriter: change(func(f frame) []frame {
			if !f.event() || !f.Type.Terminal() {
				return []frame{f}
			}
			late := f.withNewID().with("type", arcp.Log).with("event_seq", f.EventSeq+1)
			return []frame{f, late.with("payload", arcp.LogPayload{Level: arcp.LevelInfo, Message: "late"})}
		})},
	{Name: "change the trace", Says: "events of a job have different traces", Shows: []string{"jobs.life", "jobs.trace-kept"},
		newRewriter: every(arcp.JobCompleted, func(f frame) frame { return f.with("trace_id", "another") })},
	{Name: "lose the cause", Says: "the client's causation_id is left out", Shows: []string{"jobs.causation"},
		newRewriter: events(func(f frame) frame { return f.with("causation_id", nil) })},
	{Name: "lose the trace", Says: "the client's trace is replaced", Shows: []string{"jobs.trace-kept"},
		newRewriter: events(func(f frame) frame { return f.with("trace_id", "ffffffffffffffffffffffffffffffff") })},
	{Name: "unresolved tool", Says: "job.accepted repeats the name asked for", Shows: []string{"jobs.accepted-payload", "jobs.version-pinned"},
		newRewriter: every(arcp.JobAccepted, func(f frame) frame { return f.withPayload("agent", "demo.echo") })},
	{Name: "complete what was cancelled", Says: "a cancelled job ends as completed", Shows: []string{"cancel.running", "cancel.at-once"},
		newRewriter: every(arcp.JobCancelled, func(f frame) frame {
			return f.with("type", arcp.JobCompleted).with("payload", arcp.JobCompletedPayload{})
		})},
	{Name: "retry never", Says: "every failure is final", Shows: []string{"errors.retryable-default", "errors.retryable-said"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", false) })},
}

// dropAndRenumber makes a stage that loses the nth event and renumbers those
// after it.
func dropAndRenumber(n uint64) func() rewriter {
	return change(func(f frame) []frame {
		switch {
		case f.EventSeq == n:
			return nil
		case f.EventSeq > n:
			return []frame{f.with("event_seq", f.EventSeq-1)}
		}
		return []frame{f}
	})
}

// restartNumbers counts every job from 1.
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

// roundNumbers writes the payload anew as if numbers were floating point.
func (f frame) roundNumbers() frame {
	var payload any
	if json.Unmarshal(f.Payload, &payload) != nil {
		return f
	}
	return f.with("payload", payload)
}

// wrongAnswersTold tells any client that names a principal whether the principal exists.
func wrongAnswersTold() rewriter {
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

// answerFaults break the rules for answers.
var answerFaults = []Fault{
	{Name: "another nonce", Says: "a pong has a nonce of its own", Shows: []string{"control.ping", "handshake.accepted"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.withPayload("nonce", "mine") })},
	{Name: "answer twice", Says: "a ping is answered twice", Shows: []string{"control.ping", "control.order"},
		newRewriter: change(func(f frame) []frame {
			if f.Type != arcp.Pong {
				return []frame{f}
			}
			return []frame{f, f.withNewID()}
		})},
	{Name: "answers out of order", Says: "two pings are answered in the wrong order", Shows: []string{"control.order"},
		newRewriter: swap(isType(arcp.Pong), isType(arcp.Pong), false)},
	{Name: "no challenge", Says: "who shows no token is refused at once", Shows: []string{"auth.challenge"},
		newRewriter: every(arcp.SessionChallenge, func(f frame) frame {
			return f.with("type", arcp.SessionUnauthenticated).with("payload", arcp.Errorf(arcp.CodeUnauthenticated, "a token is required"))
		})},
	{Name: "one challenge for all", Says: "a challenge is given again", Shows: []string{"auth.challenge-wrong"},
		newRewriter: every(arcp.SessionChallenge, func(f frame) frame { return f.withPayload("challenge", "as always") })},
	{Name: "one answer for ever", Says: "an answer that has opened a session opens another", Shows: []string{"auth.challenge-replayed"},
		across: oneAnswer},
	{Name: "accept again", Says: "a challenge is answered a second time", Shows: []string{"auth.challenge-replayed"}, newRewriter: acceptAgain},
	{Name: "tell principals apart", Says: "a wrong answer of a principal that exists is refused in words of its own", Shows: []string{"auth.challenge-wrong"},
		newRewriter: wrongAnswersTold},
	{Name: "swallow cancel.accepted", Says: "a cancel is not answered", Shows: []string{"cancel.running", "cancel.deadline"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.CancelAccepted {
				return nil
			}
			return []frame{f}
		})},
	{Name: "effect before answer", Says: "job.cancelled comes before cancel.accepted", Shows: []string{"cancel.running"},
		newRewriter: swap(isType(arcp.CancelAccepted), isType(arcp.JobCancelled), false)},
	{Name: "wrong correlation", Says: "an answer is correlated to another message", Shows: []string{"control.ping", "jobs.life"},
		newRewriter: change(func(f frame) []frame {
			if f.CorrelationID != "" {
				f = f.with("correlation_id", "msg_of_another")
			}
			return []frame{f}
		})},
	{Name: "no correlation", Says: "the end of a job is correlated to nothing", Shows: []string{"jobs.life"},
		newRewriter: every(arcp.JobCompleted, func(f frame) frame { return f.with("correlation_id", nil) })},
	{Name: "unknown code", Says: "a refusal has a code of its own", Shows: []string{"jobs.name-unknown", "extensions.unknown-core"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.JobFailed || f.Type == arcp.Nack {
				f = f.withPayload("code", "RATE_LIMITED")
			}
			return []frame{f}
		})},
	{Name: "lose large results", Says: "a result over 512 KiB is not in the end of its job", Shows: []string{"jobs.whole-result"},
		newRewriter: every(arcp.JobCompleted, func(f frame) frame {
			if len(f.Payload) > 512<<10 {
				f = f.withPayload("value", nil).withPayload("result_id", "res_1")
			}
			return f
		})},
	{Name: "specific code", Says: "a refusal has a specific code instead of the one it is sent as", Shows: []string{"jobs.name-unknown"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("code", f.code()) })},
	{Name: "wrong code", Says: "every refusal is INTERNAL", Shows: []string{"jobs.name-unknown", "extensions.unknown-core"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.JobFailed || f.Type == arcp.Nack {
				f = f.withPayload("code", arcp.CodeInternal)
			}
			return []frame{f}
		})},
	{Name: "silent refusal", Says: "a nack is not sent", Shows: []string{"extensions.unknown-core"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.Nack {
				return nil
			}
			return []frame{f}
		})},
	{Name: "perform copies", Says: "a message that comes twice is performed twice", Shows: []string{"envelope.duplicate-id", "envelope.duplicate-submit"},
		newRewriter: performCopies},
	{Name: "forget what came early", Says: "what came before session.accepted is never answered", Shows: []string{"handshake.early-refused"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.Nack && bytes.Contains(f.Payload, []byte("before session.accepted")) {
				return nil
			}
			return []frame{f}
		})},
	{Name: "answer strangers", Says: "a ping before session.open is answered", Shows: []string{"handshake.nothing-before-open"},
		newRewriter: answerStrangers},
	{Name: "nack silence", Says: "what should be dropped is refused", Shows: []string{"extensions.experimental", "extensions.optional"},
		newRewriter: nackExperiments},
}

// performCopies gives the copy of a message an id of its own, so that the
// server does not recognise it, and gives the answers the old one.
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

// answerStrangers keeps a ping that came before session.open and lets its pong
// precede the answer to the open.
func answerStrangers() rewriter {
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

// nackExperiments refuses a message that should be dropped, before the next answer.
func nackExperiments() rewriter {
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

// formFaults break the form of frames: a strict decoder refuses them.
var formFaults = []Fault{
	{Name: "leak null in the envelope", Says: "an absent member is null", Shows: []string{"control.ping", "handshake.accepted"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("trace_id", null) })},
	{Name: "leak null in a payload", Says: "an absent payload member is null", Shows: []string{"jobs.life"},
		newRewriter: every(arcp.JobAccepted, func(f frame) frame { return f.withPayload("lease", null) })},
	{Name: "leak null in capabilities", Says: "a capability is null", Shows: []string{"handshake.accepted"},
		newRewriter: every(arcp.SessionAccepted, func(f frame) frame {
			return f.withPayload("capabilities", json.RawMessage(`{"extensions":null}`))
		})},
	{Name: "no payload", Says: "a message without members has no payload", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("payload", nil) })},
	{Name: "no capabilities", Says: "session.accepted has no capabilities", Shows: []string{"handshake.accepted"},
		newRewriter: every(arcp.SessionAccepted, func(f frame) frame { return f.withPayload("capabilities", nil) })},
	{Name: "no current", Says: "job.progress says only percent", Shows: []string{"jobs.progress"},
		newRewriter: every(arcp.JobProgress, func(f frame) frame { return f.withPayload("current", nil).withPayload("percent", 50) })},
	{Name: "no retryable", Says: "a failure does not say whether to retry", Shows: []string{"jobs.name-unknown"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", nil) })},
	{Name: "upper-case level", Says: "a log level is in upper case", Shows: []string{"jobs.log"},
		newRewriter: every(arcp.Log, func(f frame) frame { return f.withPayload("level", "INFO") })},
	{Name: "bare ids", Says: "ids have no prefix", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("id", strings.TrimPrefix(string(f.ID), arcp.MessagePrefix)) })},
	{Name: "the same id", Says: "every frame has the same id", Shows: []string{"control.ping", "control.order"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("id", "msg_same").with("correlation_id", f.CorrelationID) })},
	{Name: "another version", Says: "frames speak a version of their own", Shows: []string{"handshake.version-echo", "handshake.accepted"},
		newRewriter: change(func(f frame) []frame { return []frame{f.with("arcp", "1.7")} })},
	{Name: "unix time", Says: "the time is a number", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("timestamp", 1767323045) })},
	{Name: "local time", Says: "the time has an offset", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("timestamp", "2026-01-02T03:04:05+02:00") })},
	{Name: "name twice", Says: "an object has a member twice", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return parse(bytes.Replace(f.text, []byte(`{`), []byte(`{"arcp":"1.1",`), 1)) })},
	{Name: "cut a frame", Says: "a frame ends too early", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return parse(f.text[:len(f.text)-1]) })},
	{Name: "another session", Says: "a frame names another session", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("session_id", "sess_of_another") })},
	{Name: "no session", Says: "a frame names no session", Shows: []string{"control.ping"},
		newRewriter: every(arcp.Pong, func(f frame) frame { return f.with("session_id", nil) })},
	{Name: "another job", Says: "envelope and payload name different jobs", Shows: []string{"jobs.life"},
		newRewriter: every(arcp.JobAccepted, func(f frame) frame { return f.withPayload("job_id", "job_of_another") })},
	{Name: "unknown type", Says: "a type nobody knows is sent", Shows: []string{"control.ping", "handshake.accepted"},
		newRewriter: unasked(func(f frame) frame { return f.with("type", "job.exploded") })},
	{Name: "not negotiated", Says: "a person is asked though nobody offered one", Shows: []string{"control.ping", "handshake.accepted"},
		newRewriter: unasked(func(f frame) frame {
			return f.with("type", arcp.HumanInputRequest).with("job_id", arcp.NewJobID()).with("event_seq", 1).
				with("payload", json.RawMessage(`{"prompt":"?","expires_at":"2026-01-02T03:04:05Z"}`))
		})},
	{Name: "unasked", Says: "a frame nobody asked for comes", Shows: []string{"control.ping", "handshake.accepted"},
		newRewriter: unasked(func(f frame) frame { return f.with("type", arcp.Ack).with("payload", struct{}{}) })},
	{Name: "repeat the token", Says: "the client's token comes back", Shows: []string{"handshake.accepted"},
		newRewriter: repeatToken},
}

// unasked makes a stage that sends an extra frame, made from a pong, before the pong.
func unasked(extra func(f frame) frame) func() rewriter {
	return change(func(f frame) []frame {
		if f.Type != arcp.Pong {
			return []frame{f}
		}
		return []frame{extra(f.withNewID()), f}
	})
}

// repeatToken puts the token of session.open into session.accepted.
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

// connectionFaults break how a connection ends.
var connectionFaults = []Fault{
	{Name: "close with another code", Says: "a session that was closed in order ends with 1011", Shows: []string{"close.answer"},
		newRewriter: ending(transport.CloseInternal)},
	{Name: "talk after the farewell", Says: "a frame follows session.closed", Shows: []string{"close.answer"},
		newRewriter: change(func(f frame) []frame {
			if f.Type != arcp.SessionClosed {
				return []frame{f}
			}
			return []frame{f, f.withNewID().with("type", arcp.Ack).with("payload", struct{}{})}
		})},
	{Name: "no farewell", Says: "session.close only closes the connection", Shows: []string{"close.answer"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.SessionClosed {
				return nil
			}
			return []frame{f}
		})},
}
