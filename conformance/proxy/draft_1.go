package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// draftWelcomeFaults are defects of session.welcome.
var draftWelcomeFaults = []Fault{
	{Defect: "accepted_at of session.welcome has no time zone", Checks: []string{"draft.hello.accepted-at"},
		newRewriter: editReceived(sessionWelcome, func(f frame) frame { return f.withPayload("accepted_at", "2026-01-02T03:04:05") })},
	{Defect: "a session cannot be resumed at any time", Checks: []string{"draft.hello.resume-window"},
		newRewriter: editReceived(sessionWelcome, func(f frame) frame { return f.withPayload("resume_window_sec", 0) })},
	{Defect: "every session has the same resume_token", Checks: []string{"draft.hello.sessions-differ"},
		newRewriter: editReceived(sessionWelcome, func(f frame) frame {
			return f.withPayload("resume_token", "rt_0123456789abcdef0123456789abcdef")
		})},
	{Defect: "features of session.welcome are all that the server has", Checks: []string{"draft.hello.features", "draft.hello.features-unknown",
		"draft.hello.features-none", "draft.hello.features-map", "draft.hello.features-repeated"},
		newRewriter: editCapabilities(func(c map[string]json.RawMessage) {
			c["features"] = encode([]string{"ack", "list_jobs", "subscribe", "progress", "agent_versions", "result_chunk"})
		})},
	{Defect: "the server reads the first four features of session.hello only", Checks: []string{"draft.hello.features", "draft.hello.features-order"},
		newRewriter: editSent(sessionHello, func(f frame) frame {
			return f.editObject("capabilities", func(c map[string]json.RawMessage) {
				var names []json.RawMessage
				if json.Unmarshal(c["features"], &names) == nil {
					c["features"] = encode(names[:min(len(names), 4)])
				}
			})
		})},
	{Defect: "a feature that the server does not have is negotiated", Checks: []string{"draft.hello.features-unknown"},
		newRewriter: editFeatures(func(names []string) []string { return append(names, "x-nobody.teleport") })},
	{Defect: "a negotiated feature is listed twice", Checks: []string{"draft.hello.features-repeated"},
		newRewriter: editFeatures(func(names []string) []string { return append(names, names...) })},
	{Defect: "session.welcome has no interval", Checks: []string{"draft.hello.interval"},
		newRewriter: editReceived(sessionWelcome, func(f frame) frame { return f.withPayload("heartbeat_interval_sec", nil) })},
	{Defect: "session.welcome always has an interval", Checks: []string{"draft.hello.interval-unnegotiated"},
		newRewriter: editReceived(sessionWelcome, func(f frame) frame { return f.withPayload("heartbeat_interval_sec", 2) })},
	{Defect: "agents are listed without their versions", Checks: []string{"draft.hello.inventory"},
		newRewriter: editAgents(func(agent map[string]json.RawMessage) { agent["versions"] = encode([]string{}) })},
	{Defect: "the default of an agent is a version that it does not have", Checks: []string{"draft.hello.inventory-default"},
		newRewriter: editAgents(func(agent map[string]json.RawMessage) { agent["default"] = encode("9.9.9") })},
	{Defect: "frames have version 1.0", Checks: []string{"draft.hello.version"},
		newRewriter: rewriteReceived(func(f frame) []frame { return []frame{f.with("arcp", "1.0")} })},
}

// draftRefusalFaults are defects of the reading of session.hello.
var draftRefusalFaults = []Fault{
	{Defect: "a hello without a name of its client is refused", Checks: []string{"draft.hello.optional"},
		newRewriter: refuseHello(func(f frame) bool { return f.objectMember("client") == nil })},
	{Defect: "a hello with an unknown member is refused", Checks: []string{"draft.hello.unknown-members"},
		newRewriter: refuseHello(func(f frame) bool { return bytes.Contains(f.text, []byte("something_new")) })},
	{Defect: "a hello without features is refused", Checks: []string{"draft.hello.features-none"},
		newRewriter: refuseHello(func(f frame) bool { return !bytes.Contains(f.text, []byte(`"features":["`)) })},
	{Defect: "a session has the id of its hello", Checks: []string{"draft.hello.session-id-ignored"},
		newRewriter: takeSessionID},
	{Defect: "the version of session.hello is not read", Checks: []string{"draft.hello.version-other"},
		newRewriter: editSent(sessionHello, func(f frame) frame { return f.with("arcp", arcp.Version) })},
	{Defect: "a client without valid credentials is welcomed", Checks: []string{"draft.hello.token-missing", "draft.hello.token-wrong",
		"draft.hello.anonymous", "draft.hello.scheme-other"},
		newRewriter: editReceived(sessionError, func(f frame) frame {
			return f.with("type", sessionWelcome).with("payload", json.RawMessage(`{"session_id":"sess_00000000000000000000000000","resume_token":"rt_0",
				"resume_window_sec":1,"runtime":{"name":"a","version":"1"},"capabilities":{"encodings":["json"],"features":[]}}`))
		})},
	{Defect: "invalid credentials are refused with PERMISSION_DENIED", Checks: []string{"draft.hello.token-missing", "draft.hello.token-wrong",
		"draft.hello.anonymous", "draft.hello.scheme-other"},
		newRewriter: editReceived(sessionError, func(f frame) frame { return f.withPayload("code", arcp.CodePermissionDenied) })},
	{Defect: "the refusal of a hello is retryable", Checks: []string{"draft.hello.refused-retryable", "draft.hello.version-other"},
		newRewriter: editReceived(sessionError, func(f frame) frame { return f.withPayload("retryable", true) })},
	{Defect: "a refused hello ends the sessions of the others", Checks: []string{"draft.hello.refused-alone"}, newShared: endWithRefusal},
	{Defect: "a second hello is welcomed", Checks: []string{"draft.hello.twice"}, newRewriter: welcomeAgain},
}

// editCapabilities returns rewriters that edit the capabilities in session.welcome.
func editCapabilities(edit func(c map[string]json.RawMessage)) func() rewriter {
	return editReceived(sessionWelcome, func(f frame) frame { return f.editObject("capabilities", edit) })
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
				refused = refused || f.Type == sessionHello && selects(f)
				return []frame{f}
			},
			in: func(f frame) []frame {
				if refused && f.Type == sessionWelcome {
					f = f.with("type", sessionError).with("payload", arcp.Errorf(arcp.CodeInvalidRequest, "invalid hello"))
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
			if f.Type == sessionHello {
				id = f.SessionID
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if id != "" && f.Type == sessionWelcome {
				f = f.with("session_id", id).withPayload("session_id", id)
			}
			return []frame{f}
		},
	}
}

// endWithRefusal ends every connection with a session.error after the refusal of a hello.
func endWithRefusal() func() rewriter {
	var refusal frame
	return func() rewriter {
		return rewriter{in: func(f frame) []frame {
			switch {
			case f.Type == sessionError:
				refusal = f
			case refusal.text != nil && f.Type != jobError:
				f = refusal.with("session_id", f.SessionID)
			}
			return []frame{f}
		}}
	}
}

// welcomeAgain answers a second hello with a copy of session.welcome.
func welcomeAgain() rewriter {
	var welcome frame
	hellos := 0
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == sessionHello {
				hellos++
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			switch {
			case f.Type == sessionWelcome:
				welcome = f
			case hellos > 1:
				hellos = 1
				return []frame{welcome.withNewID(), f}
			}
			return []frame{f}
		},
	}
}

// draftHostileFaults are defects of the handling of invalid frames.
var draftHostileFaults = []Fault{
	{Defect: "an invalid hello is refused with UNAUTHENTICATED", Checks: []string{"draft.hostile.broken", "draft.hostile.types", "draft.hostile.envelope",
		"draft.hostile.duplicate-names", "draft.hostile.deep"},
		newRewriter: editReceived(sessionError, func(f frame) frame { return f.withPayload("code", arcp.CodeUnauthenticated) })},
	{Defect: "a connection ends with code 1011 after the refusal of its hello", Checks: []string{"draft.hostile.broken", "draft.hostile.types",
		"draft.hostile.envelope", "draft.hostile.duplicate-names", "draft.hostile.deep"},
		newRewriter: closeWith(transport.CloseInternal)},
	{Defect: "a frame above the limit ends the connection with code 1008", Checks: []string{"draft.hostile.huge"},
		newRewriter: closeWith(transport.ClosePolicy)},
	{Defect: "an invalid hello ends the sessions of the others", Checks: []string{"draft.hostile.bystander"}, newShared: endWithRefusal},
	{Defect: "a job that is submitted before session.hello is listed", Checks: []string{"draft.hostile.submit-first"}, newShared: listEarlySubmit},
	{Defect: "a frame that cannot be decoded is answered with session.error", Checks: []string{"draft.hostile.garbage"}, newRewriter: answerBroken},
	{Defect: "a frame that cannot be decoded counts twice", Checks: []string{"draft.hostile.bad-frames"},
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == "" {
					return []frame{f, f}
				}
				return []frame{f}
			}}
		}},
	{Defect: "invalid frames end the connection with code 1000", Checks: []string{"draft.hostile.too-many-bad-frames"},
		newRewriter: closeWith(transport.CloseNormal)},
	{Defect: "a session ends with its connection", Checks: []string{"draft.hostile.binary", "draft.hostile.not-utf8"},
		newRewriter: refuseHello(func(f frame) bool { return bytes.Contains(f.Payload, []byte("last_event_seq")) })},
}

// listEarlySubmit lists a job of the first message of a connection without a session.
func listEarlySubmit() func() rewriter {
	var trace string
	return func() rewriter {
		return rewriter{
			out: func(f frame) []frame {
				if f.SessionID == "" && f.Type == jobSubmit {
					trace = f.TraceID
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				if f.Type == arcp.SessionJobs && trace != "" {
					f = f.withPayload("jobs", []map[string]any{{"job_id": "job_00000000000000000000000000", "agent": "demo.echo@1.0.0", "status": "success",
						"trace_id": trace, "lease": struct{}{}, "created_at": "2026-01-02T03:04:05Z", "submitted_at": "2026-01-02T03:04:05Z", "last_event_seq": 0}})
				}
				return []frame{f}
			},
		}
	}
}

// answerBroken answers a frame that cannot be decoded before the next pong.
func answerBroken() rewriter {
	broken := false
	return rewriter{
		out: func(f frame) []frame {
			broken = broken || f.Type == ""
			return []frame{f}
		},
		in: func(f frame) []frame {
			if !broken || f.Type != arcp.SessionPong {
				return []frame{f}
			}
			broken = false
			return []frame{f.withNewID().with("type", sessionError).with("payload", arcp.Errorf(arcp.CodeInvalidRequest, "invalid frame")), f}
		},
	}
}
