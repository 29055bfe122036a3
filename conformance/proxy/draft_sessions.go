package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// draftWelcomeFaults are defects of session.welcome.
var draftWelcomeFaults = []Fault{
	{Defect: "accepted_at of session.welcome has no time zone", Checks: []string{"draft.hello.accepted-at"}, House: true,
		newRewriter: editReceived(script.SessionWelcome, func(f frame) frame { return f.withPayload("accepted_at", "2026-01-02T03:04:05") })},
	{Defect: "a session cannot be resumed at any time", Checks: []string{"draft.hello.resume-window"}, House: true,
		newRewriter: editReceived(script.SessionWelcome, func(f frame) frame { return f.withPayload("resume_window_sec", 0) })},
	{Defect: "every session has the same resume_token", Checks: []string{"draft.hello.sessions-differ"},
		newRewriter: editReceived(script.SessionWelcome, func(f frame) frame {
			return f.withPayload("resume_token", "rt_0123456789abcdef0123456789abcdef")
		})},
	{Defect: "features of session.welcome are all that the server has", Checks: []string{"draft.hello.features", "draft.hello.features-unknown",
		"draft.hello.features-none", "draft.hello.features-map", "draft.hello.features-repeated"}, House: true,
		newRewriter: editCapabilities(func(c map[string]json.RawMessage) {
			c["features"] = encode([]string{"ack", "list_jobs", "subscribe", "progress", "agent_versions", "result_chunk"})
		})},
	{Defect: "the server reads the first four features of session.hello only", Checks: []string{"draft.hello.features", "draft.hello.features-order"}, House: true,
		newRewriter: editSent(script.SessionHello, func(f frame) frame {
			return f.editObject("capabilities", func(c map[string]json.RawMessage) {
				var names []json.RawMessage
				if json.Unmarshal(c["features"], &names) == nil {
					c["features"] = encode(names[:min(len(names), 4)])
				}
			})
		})},
	{Defect: "a feature that the server does not have is negotiated", Checks: []string{"draft.hello.features-unknown"}, House: true,
		newRewriter: editFeatures(func(names []string) []string { return append(names, "x-nobody.teleport") })},
	{Defect: "a negotiated feature is listed twice", Checks: []string{"draft.hello.features-repeated"}, House: true,
		newRewriter: editFeatures(func(names []string) []string { return append(names, names...) })},
	{Defect: "session.welcome has no interval", Checks: []string{"draft.hello.interval"},
		newRewriter: editReceived(script.SessionWelcome, func(f frame) frame { return f.withPayload("heartbeat_interval_sec", nil) })},
	{Defect: "session.welcome always has an interval", Checks: []string{"draft.hello.interval-unnegotiated"}, House: true,
		newRewriter: editReceived(script.SessionWelcome, func(f frame) frame { return f.withPayload("heartbeat_interval_sec", 2) })},
	{Defect: "agents are listed without their versions", Checks: []string{"draft.hello.inventory"}, House: true,
		newRewriter: editAgents(func(agent map[string]json.RawMessage) { agent["versions"] = encode([]string{}) })},
	{Defect: "the default of an agent is a version that it does not have", Checks: []string{"draft.hello.inventory-default"},
		newRewriter: editAgents(func(agent map[string]json.RawMessage) { agent["default"] = encode("9.9.9") })},
	{Defect: "frames have version 1.0", Checks: []string{"draft.hello.version"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame { return []frame{f.with("arcp", "1.0")} })},
}

// draftRefusalFaults are defects of the reading of session.hello.
var draftRefusalFaults = []Fault{
	{Defect: "a hello without a name of its client is refused", Checks: []string{"draft.hello.optional"}, House: true,
		newRewriter: refuseHello(func(f frame) bool { return f.objectMember("client") == nil })},
	{Defect: "a hello with an unknown member is refused", Checks: []string{"draft.hello.unknown-members"},
		newRewriter: refuseHello(func(f frame) bool { return bytes.Contains(f.text, []byte("something_new")) })},
	{Defect: "a hello without features is refused", Checks: []string{"draft.hello.features-none"}, House: true,
		newRewriter: refuseHello(func(f frame) bool { return !bytes.Contains(f.text, []byte(`"features":["`)) })},
	{Defect: "a session has the id of its hello", Checks: []string{"draft.hello.session-id-ignored"}, House: true,
		newRewriter: takeSessionID},
	{Defect: "the version of session.hello is not read", Checks: []string{"draft.hello.version-other"}, House: true,
		newRewriter: editSent(script.SessionHello, func(f frame) frame { return f.with("arcp", arcp.Version) })},
	{Defect: "a client without valid credentials is welcomed", Checks: []string{"draft.hello.token-missing", "draft.hello.token-wrong",
		"draft.hello.anonymous", "draft.hello.scheme-other"},
		newRewriter: editReceived(script.SessionError, func(f frame) frame {
			return f.with("type", script.SessionWelcome).with("payload", json.RawMessage(`{"session_id":"sess_00000000000000000000000000","resume_token":"rt_0",
				"resume_window_sec":1,"runtime":{"name":"a","version":"1"},"capabilities":{"encodings":["json"],"features":[]}}`))
		})},
	{Defect: "invalid credentials are refused with PERMISSION_DENIED", Checks: []string{"draft.hello.token-missing", "draft.hello.token-wrong",
		"draft.hello.anonymous", "draft.hello.scheme-other"}, House: true,
		newRewriter: editReceived(script.SessionError, func(f frame) frame { return f.withPayload("code", arcp.CodePermissionDenied) })},
	{Defect: "the refusal of a hello is retryable", Checks: []string{"draft.hello.refused-retryable", "draft.hello.version-other"}, House: true,
		newRewriter: editReceived(script.SessionError, func(f frame) frame { return f.withPayload("retryable", true) })},
	{Defect: "a refused hello ends the sessions of the others", Checks: []string{"draft.hello.refused-alone"}, House: true, newShared: endWithRefusal},
	{Defect: "a second hello is welcomed", Checks: []string{"draft.hello.twice"}, House: true, newRewriter: welcomeAgain},
}

// editCapabilities returns rewriters that edit the capabilities in session.welcome.
func editCapabilities(edit func(c map[string]json.RawMessage)) func() rewriter {
	return editReceived(script.SessionWelcome, func(f frame) frame { return f.editObject("capabilities", edit) })
}

// editFeatures returns rewriters that edit the features in session.welcome.
func editFeatures(edit func(names []string) []string) func() rewriter {
	return editCapabilities(func(c map[string]json.RawMessage) {
		var names []string
		if json.Unmarshal(c["features"], &names) == nil {
			c["features"] = encode(edit(names))
		}
	})
}

// editAgents returns rewriters that edit each agent in session.welcome.
func editAgents(edit func(agent map[string]json.RawMessage)) func() rewriter {
	return editCapabilities(func(c map[string]json.RawMessage) {
		var agents []map[string]json.RawMessage
		if json.Unmarshal(c["agents"], &agents) != nil {
			return
		}
		for _, agent := range agents {
			edit(agent)
		}
		c["agents"] = encode(agents)
	})
}

// refuseHello returns rewriters that refuse each selected hello with INVALID_REQUEST.
func refuseHello(selects func(f frame) bool) func() rewriter {
	return func() rewriter {
		refused := false
		return rewriter{
			out: func(f frame) []frame {
				refused = refused || f.Type == script.SessionHello && selects(f)
				return []frame{f}
			},
			in: func(f frame) []frame {
				if refused && f.Type == script.SessionWelcome {
					f = f.with("type", script.SessionError).with("payload", arcp.Errorf(arcp.CodeInvalidRequest, "invalid hello"))
				}
				return []frame{f}
			},
		}
	}
}

// takeSessionID gives a session the session_id of its hello.
func takeSessionID() rewriter {
	var id arcp.SessionID
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == script.SessionHello {
				id = f.SessionID
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if id != "" && f.Type == script.SessionWelcome {
				f = f.with("session_id", id).withPayload("session_id", id)
			}
			return []frame{f}
		},
	}
}

// welcomeAgain answers a second hello with a copy of session.welcome.
func welcomeAgain() rewriter {
	var welcome frame
	hellos := 0
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == script.SessionHello {
				hellos++
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			switch {
			case f.Type == script.SessionWelcome:
				welcome = f
			case hellos > 1:
				hellos = 1
				return []frame{welcome.withNewID(), f}
			}
			return []frame{f}
		},
	}
}

// draftCloseFaults are defects of the end of a session.
var draftCloseFaults = []Fault{
	{Defect: "a session ends with an event_seq", Checks: []string{"draft.close.close", "draft.close.bye"}, House: true,
		newRewriter: editReceived(arcp.SessionClosed, func(f frame) frame { return f.with("event_seq", 1) })},
	{Defect: "the end of a session ends the connection with code 1011", Checks: []string{"draft.close.close", "draft.close.bye",
		"draft.close.reason-optional", "draft.close.answers-first"}, House: true,
		newRewriter: closeWith(transport.CloseInternal)},
	{Defect: "the end of a session without a reason is refused", Checks: []string{"draft.close.reason-optional"}, House: true,
		newRewriter: refuseEnd},
	{Defect: "an event follows session.closed", Checks: []string{"draft.close.last"}, House: true,
		newRewriter: func() rewriter {
			var event frame
			return rewriter{in: func(f frame) []frame {
				if f.event() {
					event = f
				}
				if f.Type == arcp.SessionClosed && event.text != nil {
					return []frame{f, event.withNewID().with("event_seq", event.EventSeq+1)}
				}
				return []frame{f}
			}}
		}},
	{Defect: "session.closed overtakes earlier answers", Checks: []string{"draft.close.answers-first"}, House: true,
		newRewriter: swap(isType(arcp.SessionPong), isType(arcp.SessionClosed), false)},
	{Defect: "the end of a session cancels its jobs", Checks: []string{"draft.close.jobs-go-on", "draft.close.resumable", "draft.close.transport"},
		newShared: func() func() rewriter {
			return editReceived(script.JobResult, func(f frame) frame { return f.with("type", script.JobError).with("payload", cancelledPayload(f.JobID)) })
		}},
	{Defect: "a closed session cannot be resumed", Checks: []string{"draft.close.resumable", "draft.close.transport"},
		newRewriter: refuseHello(func(f frame) bool { return bytes.Contains(f.Payload, []byte("last_event_seq")) })},
	{Defect: "session.close ends the other sessions too", Checks: []string{"draft.close.others"}, House: true, newShared: closeOthers},
}

// cancelledPayload returns the payload of job.error of a cancelled job.
func cancelledPayload(job arcp.JobID) map[string]any {
	return map[string]any{"job_id": job, "final_status": "cancelled", "code": arcp.CodeCancelled, "message": "cancelled", "retryable": false,
		"completed_at": "2026-01-02T03:04:05Z"}
}

// refuseEnd refuses session.close and session.bye without a reason.
func refuseEnd() rewriter {
	refused := false
	return rewriter{
		out: func(f frame) []frame {
			refused = (f.Type == arcp.SessionClose || f.Type == script.SessionBye) && f.stringMember("reason") == ""
			return []frame{f}
		},
		in: func(f frame) []frame {
			if refused && f.Type == arcp.SessionClosed {
				f = f.with("type", script.SessionError).with("payload", arcp.Errorf(arcp.CodeInvalidRequest, "reason is required"))
			}
			return []frame{f}
		},
	}
}

// closeOthers sends session.closed on the other connections after the first one.
func closeOthers() func() rewriter {
	var closed frame
	return func() rewriter {
		return rewriter{in: func(f frame) []frame {
			if f.Type == arcp.SessionClosed {
				closed = f
			} else if closed.text != nil {
				f = closed.with("session_id", f.SessionID)
			}
			return []frame{f}
		}}
	}
}

// draftPingFaults are defects of the heartbeat.
var draftPingFaults = []Fault{
	{Defect: "session.pong has another nonce than its ping", Checks: []string{"draft.ping.nonce", "draft.ping.once", "draft.ping.busy", "draft.ping.sent-at",
		"draft.ping.unnegotiated"},
		newRewriter: editReceived(arcp.SessionPong, func(f frame) frame { return f.withPayload("ping_nonce", "mine") })},
	{Defect: "received_at of session.pong is a fixed time", Checks: []string{"draft.ping.received-at"},
		newRewriter: editReceived(arcp.SessionPong, func(f frame) frame { return f.withPayload("received_at", "2020-01-02T03:04:05Z") })},
	{Defect: "two pings of a session are answered in reverse order", Checks: []string{"draft.ping.order"}, House: true,
		newRewriter: swap(isType(arcp.SessionPong), isType(arcp.SessionPong), false)},
	{Defect: "session.ping has two pongs", Checks: []string{"draft.ping.once", "draft.ping.order"}, House: true,
		newRewriter: duplicateWhere(isType(arcp.SessionPong), frame.withNewID)},
	{Defect: "session.ping is answered after the end of the job", Checks: []string{"draft.ping.busy"}, Silent: true, newRewriter: pongAfterResult},
	{Defect: "a ping without sent_at is refused", Checks: []string{"draft.ping.sent-at"}, House: true,
		newRewriter: answerSent(func(f frame) bool { return f.Type == arcp.SessionPing && f.stringMember("sent_at") == "" }, arcp.SessionPong, true)},
	{Defect: "session.ping is refused without the feature heartbeat", Checks: []string{"draft.ping.unnegotiated"}, House: true,
		newRewriter: answerSent(isType(arcp.SessionPing), arcp.SessionPong, true)},
	{Defect: "an invalid ping has a pong", Checks: []string{"draft.ping.payloads"}, House: true,
		newRewriter: editSent(arcp.SessionPing, func(f frame) frame {
			if f.stringMember("nonce") == "" {
				f = f.withPayload("nonce", "none")
			}
			return f
		})},
	{Defect: "a pong without a ping fails with INTERNAL_ERROR", Checks: []string{"draft.ping.pong-unasked"}, House: true,
		newRewriter: answerSent(isType(arcp.SessionPong), arcp.SessionPong, false)},
	{Defect: "every session.ping of the server has the same nonce", Checks: []string{"draft.ping.server"},
		newRewriter: editReceived(arcp.SessionPing, func(f frame) frame { return f.withPayload("nonce", "n") })},
	{Defect: "session.pong is no sign of life", Checks: []string{"draft.ping.answers"}, House: true, newRewriter: dropSent(arcp.SessionPong)},
	{Defect: "a session without the feature heartbeat is pinged", Checks: []string{"draft.ping.server-unnegotiated"},
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type != arcp.JobAccepted {
				return []frame{f}
			}
			return []frame{f, f.withNewID().with("job_id", nil).with("type", arcp.SessionPing).
				with("payload", json.RawMessage(`{"nonce":"n","sent_at":"2026-01-02T03:04:05Z"}`))}
		})},
	{Defect: "a silent client is told CANCELLED", Checks: []string{"draft.ping.silence"},
		newRewriter: editReceived(script.SessionError, func(f frame) frame { return f.withPayload("code", arcp.CodeCancelled) })},
}

// pongAfterResult delivers each session.pong after the next job.result.
func pongAfterResult() rewriter {
	var held []frame
	return rewriter{in: func(f frame) []frame {
		switch f.Type {
		case arcp.SessionPong:
			held = append(held, f)
			return nil
		case script.JobResult:
			out := append([]frame{f}, held...)
			held = nil
			return out
		}
		return []frame{f}
	}}
}

// answerSent returns rewriters that answer each selected message with session.error before the next
// frame of type next. With instead the error replaces that frame.
func answerSent(selects func(f frame) bool, next arcp.Type, instead bool) func() rewriter {
	return func() rewriter {
		pending := false
		return rewriter{
			out: func(f frame) []frame {
				pending = pending || selects(f)
				return []frame{f}
			},
			in: func(f frame) []frame {
				if !pending || f.Type != next {
					return []frame{f}
				}
				pending = false
				refusal := f.withNewID().with("type", script.SessionError).with("payload", map[string]any{"code": "INTERNAL_ERROR", "message": "failed", "retryable": true})
				if instead {
					return []frame{refusal}
				}
				return []frame{refusal, f}
			},
		}
	}
}

// draftAckFaults are defects of acknowledgements.
var draftAckFaults = []Fault{
	{Defect: "session.ack is answered with session.error", Checks: []string{"draft.ack.silent", "draft.ack.backwards", "draft.ack.beyond", "draft.ack.unnegotiated",
		"draft.ack.payloads"},
		newRewriter: answerSent(isType(arcp.SessionAck), arcp.SessionPong, false)},
	{Defect: "a smaller acknowledgement frees later events", Checks: []string{"draft.ack.backwards", "draft.ack.beyond"}, House: true,
		newRewriter: refuseHello(func(f frame) bool { return bytes.Contains(f.Payload, []byte("last_event_seq")) })},
	{Defect: "events that were not acknowledged are freed", Checks: []string{"draft.ack.unacknowledged", "draft.ack.backwards", "draft.ack.beyond"},
		newRewriter: dropFirstReplayed},
	{Defect: "the resume of events that are not kept is refused with INVALID_REQUEST", Checks: []string{"draft.ack.advisory"}, House: true,
		newRewriter: editReceived(script.SessionError, func(f frame) frame { return f.withPayload("code", arcp.CodeInvalidRequest) })},
	{Defect: "the window is twice as large as configured", Checks: []string{"draft.ack.window"}, House: true,
		newRewriter: editSent(arcp.SessionAck, func(f frame) frame {
			return f.withPayload("last_processed_seq", 2*f.numberMember("last_processed_seq"))
		})},
	{Defect: "a session without the feature ack has a window", Checks: []string{"draft.ack.window-free"}, House: true,
		newRewriter: dropWhere(func(f frame) bool { return f.EventSeq == 1000 })},
}

// draftEnvelopeFaults are defects of the handling of envelopes.
var draftEnvelopeFaults = []Fault{
	{Defect: "a message with an unknown member fails", Checks: []string{"draft.envelope.unknown-members", "draft.envelope.unknown-members-answered"}, Silent: true,
		newRewriter: answerSent(contains("x_new"), arcp.SessionPong, true)},
	{Defect: "a message of an unknown type fails with INTERNAL_ERROR", Checks: []string{"draft.envelope.unknown-types"}, House: true,
		newRewriter: answerSent(isType("session.teleport"), arcp.SessionPong, false)},
	{Defect: "a message of a vendor is answered", Checks: []string{"draft.envelope.vendor-types"}, House: true,
		newRewriter: answerSent(isType("x-vendor.nobody.hello"), arcp.SessionPong, false)},
	{Defect: "an incomplete envelope fails with INTERNAL_ERROR", Checks: []string{"draft.envelope.incomplete"}, House: true,
		newRewriter: answerSent(isType(""), arcp.SessionPong, false)},
	{Defect: "session.jobs names another request", Checks: []string{"draft.envelope.ids"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.withPayload("request_id", "msg_1").withPayload("reply_to", "msg_1") })},
	{Defect: "a message with another session_id fails", Checks: []string{"draft.envelope.session-ignored"}, House: true,
		newRewriter: answerSent(contains("sess_00000000000000000000000000"), arcp.SessionJobs, true)},
	{Defect: "session.pong names another session", Checks: []string{"draft.envelope.session-named"},
		newRewriter: editReceived(arcp.SessionPong, func(f frame) frame { return f.with("session_id", "sess_00000000000000000000000000") })},
	{Defect: "every event has the same id", Checks: []string{"draft.envelope.ids-differ"}, House: true,
		newRewriter: editEvents(func(f frame) frame { return f.with("id", "msg_00000000000000000000000000") })},
	{Defect: "job.result has another trace_id than its submit", Checks: []string{"draft.envelope.trace", "draft.envelope.trace-absent"},
		newRewriter: editReceived(script.JobResult, func(f frame) frame { return f.with("trace_id", "ffffffffffffffffffffffffffffffff") })},
	{Defect: "an invalid trace_id is repeated", Checks: []string{"draft.envelope.trace-invalid"}, House: true, newRewriter: repeatTrace},
	{Defect: "events are numbered after the event_seq of a message of the client", Checks: []string{"draft.envelope.client-event-seq"}, House: true,
		newRewriter: countFromClient},
	{Defect: "a message that comes twice is performed twice in the draft dialect", Checks: []string{"draft.envelope.duplicate-id"}, House: true,
		newRewriter: performTwice},
	{Defect: "white space in a frame is an error", Checks: []string{"draft.envelope.white-space"},
		newRewriter: answerSent(contains("\t"), arcp.SessionPong, true)},
}

// contains selects the frames whose text contains part.
func contains(part string) func(frame) bool {
	return func(f frame) bool { return bytes.Contains(f.text, []byte(part)) }
}

// repeatTrace gives each event the trace_id of the last submit.
func repeatTrace() rewriter {
	var trace string
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == script.JobSubmit {
				trace = f.TraceID
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.event() {
				f = f.with("trace_id", trace)
			}
			return []frame{f}
		},
	}
}

// countFromClient adds the event_seq of each message of the client to the numbers of later events.
func countFromClient() rewriter {
	skipped := uint64(0)
	return rewriter{
		out: func(f frame) []frame {
			skipped += f.EventSeq
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.event() {
				f = f.with("event_seq", f.EventSeq+skipped)
			}
			return []frame{f}
		},
	}
}

// performTwice gives a message that is sent again an id of its own.
func performTwice() rewriter {
	sent := map[arcp.MessageID]bool{}
	return rewriter{out: func(f frame) []frame {
		if sent[f.ID] {
			f = f.withNewID()
		}
		sent[f.ID] = true
		return []frame{f}
	}}
}

// draftSecretFaults are defects that reveal tokens.
var draftSecretFaults = []Fault{
	{Defect: "session.jobs has the token of the client", Checks: []string{"draft.secrets.token"}, House: true,
		newRewriter: repeatSent(script.SessionHello, arcp.SessionJobs, "debug")},
	{Defect: "the refusal of a hello repeats the hello", Checks: []string{"draft.secrets.token-refused", "draft.secrets.token-misplaced",
		"draft.secrets.token-broken", "draft.secrets.token-other-scheme"}, House: true,
		newRewriter: repeatSent("", script.SessionError, "message")},
	{Defect: "session.jobs has the resume token of the session", Checks: []string{"draft.secrets.resume-token"}, House: true,
		newRewriter: func() rewriter {
			var token string
			return rewriter{in: func(f frame) []frame {
				switch f.Type {
				case script.SessionWelcome:
					token = f.stringMember("resume_token")
				case arcp.SessionJobs:
					f = f.withPayload("debug", token)
				}
				return []frame{f}
			}}
		}},
}

// repeatSent returns rewriters that copy the last message of type from into the payload member name of
// frames of type to. An empty type from is any.
func repeatSent(from, to arcp.Type, name string) func() rewriter {
	return func() rewriter {
		var sent string
		return rewriter{
			out: func(f frame) []frame {
				if from == "" || f.Type == from {
					sent = string(f.text)
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				if f.Type == to {
					f = f.withPayload(name, sent)
				}
				return []frame{f}
			},
		}
	}
}

// draftNumberFaults are defects of event_seq.
var draftNumberFaults = []Fault{
	{Defect: "the first event of a session has number 2", Checks: []string{"draft.numbering.first", "draft.numbering.own"}, House: true,
		newRewriter: editEvents(func(f frame) frame { return f.with("event_seq", f.EventSeq+1) })},
	{Defect: "the events of each job are numbered from 1", Checks: []string{"draft.numbering.session", "draft.numbering.parallel", "draft.numbering.reconnect"},
		newRewriter: restartNumbers},
	{Defect: "a session ends after 10,000 frames", Checks: []string{"draft.numbering.many"}, House: true, newRewriter: endAfter(10000)},
	{Defect: "job.accepted has a number", Checks: []string{"draft.numbering.types"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame { return f.with("event_seq", 1) })},
	{Defect: "job.cancelled has a number", Checks: []string{"draft.numbering.types"},
		newRewriter: editReceived("job.cancelled", func(f frame) frame { return f.with("event_seq", 2) })},
	{Defect: "an answer takes a number", Checks: []string{"draft.numbering.answers"}, House: true,
		newRewriter: skipNumbers(isType(arcp.SessionJobs))},
	{Defect: "a refusal takes a number", Checks: []string{"draft.numbering.refusals"},
		newRewriter: skipNumbers(func(f frame) bool { return f.Type == script.JobError && !f.event() })},
	{Defect: "the events of a job have the numbers of its session in every session", Checks: []string{"draft.numbering.follower"},
		newShared: func() func() rewriter {
			numbers := map[arcp.MessageID]uint64{}
			return editEvents(func(f frame) frame {
				if numbers[f.ID] == 0 {
					numbers[f.ID] = f.EventSeq
				}
				return f.with("event_seq", numbers[f.ID])
			})
		}},
}

// endAfter returns rewriters that replace each frame of the server after the first n by a session.error.
func endAfter(n int) func() rewriter {
	return func() rewriter {
		count := 0
		return rewriter{in: func(f frame) []frame {
			if count++; count <= n {
				return []frame{f}
			}
			return []frame{f.withNewID().with("event_seq", nil).with("job_id", nil).refused("INTERNAL_ERROR").withPayload("retryable", true)}
		}}
	}
}

// skipNumbers returns rewriters that leave out a number after each selected frame of the server.
func skipNumbers(after func(f frame) bool) func() rewriter {
	return func() rewriter {
		skipped := uint64(0)
		return rewriter{in: func(f frame) []frame {
			switch {
			case f.event():
				f = f.with("event_seq", f.EventSeq+skipped)
			case after(f):
				skipped++
			}
			return []frame{f}
		}}
	}
}
