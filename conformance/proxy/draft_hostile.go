package proxy

import (
	"bytes"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// draftHostileFaults are defects of the handling of invalid frames.
var draftHostileFaults = []Fault{
	{Defect: "an invalid hello is refused with UNAUTHENTICATED", Checks: []string{"draft.hostile.broken", "draft.hostile.types", "draft.hostile.envelope",
		"draft.hostile.duplicate-names", "draft.hostile.deep"}, House: true,
		newRewriter: editReceived(script.SessionError, func(f frame) frame { return f.withPayload("code", arcp.CodeUnauthenticated) })},
	{Defect: "a connection ends with code 1011 after the refusal of its hello", Checks: []string{"draft.hostile.broken", "draft.hostile.types",
		"draft.hostile.envelope", "draft.hostile.duplicate-names", "draft.hostile.deep"}, House: true,
		newRewriter: closeWith(transport.CloseInternal)},
	{Defect: "a frame above the limit ends the connection with code 1008", Checks: []string{"draft.hostile.huge"}, House: true,
		newRewriter: closeWith(transport.ClosePolicy)},
	{Defect: "an invalid hello ends the sessions of the others", Checks: []string{"draft.hostile.bystander"}, House: true, newShared: endWithRefusal},
	{Defect: "a job that is submitted before session.hello is listed", Checks: []string{"draft.hostile.submit-first"}, newShared: listEarlySubmit},
	{Defect: "a frame that cannot be decoded is answered with session.error", Checks: []string{"draft.hostile.garbage"}, House: true,
		newRewriter: answerSent(isType(""), arcp.SessionPong, false)},
	{Defect: "a frame that cannot be decoded counts twice", Checks: []string{"draft.hostile.bad-frames"}, House: true,
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == "" {
					return []frame{f, f}
				}
				return []frame{f}
			}}
		}},
	{Defect: "invalid frames end the connection with code 1000", Checks: []string{"draft.hostile.too-many-bad-frames"}, House: true,
		newRewriter: closeWith(transport.CloseNormal)},
	{Defect: "a session ends with its connection", Checks: []string{"draft.hostile.binary", "draft.hostile.not-utf8"}, House: true,
		newRewriter: refuseHello(func(f frame) bool { return bytes.Contains(f.Payload, []byte("last_event_seq")) })},
	{Defect: "a binary frame is answered", Checks: []string{"draft.hostile.binary"}, House: true, newRewriter: replaceBroken(isBinary, ping)},
	{Defect: "text that is not UTF-8 is answered", Checks: []string{"draft.hostile.not-utf8"}, House: true, newRewriter: replaceBroken(isNotUTF8, ping)},
	{Defect: "a binary frame is ignored", Checks: []string{"draft.hostile.binary"}, House: true, Silent: true, newRewriter: replaceBroken(isBinary)},
	{Defect: "text that is not UTF-8 is read with replacement characters", Checks: []string{"draft.hostile.not-utf8"}, House: true, Silent: true,
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				f.text = bytes.ToValidUTF8(f.text, []byte("\ufffd"))
				return []frame{f}
			}}
		}},
	{Defect: "a binary frame ends the connection with code 1007", Checks: []string{"draft.hostile.binary"}, House: true, newRewriter: closeWith(transport.CloseNotUTF8)},
	{Defect: "text that is not UTF-8 ends the connection with code 1003", Checks: []string{"draft.hostile.not-utf8"}, House: true, newRewriter: closeWith(transport.CloseNotText)},
	{Defect: "a binary frame ends every connection", Checks: []string{"draft.hostile.binary"}, House: true, newShared: closeAll(isBinary)},
	{Defect: "text that is not UTF-8 ends every connection", Checks: []string{"draft.hostile.not-utf8"}, House: true, newShared: closeAll(isNotUTF8)},
}

// ping is a valid session.ping.
var ping = parse([]byte(`{"arcp":"1.1","id":"msg_01JZ0000000000000000000000","type":"session.ping","payload":{"nonce":"n","sent_at":"2026-01-02T03:04:05Z"}}`))

// replaceBroken returns rewriters that replace the selected frames of the client.
func replaceBroken(selects func(f frame) bool, by ...frame) func() rewriter {
	return func() rewriter {
		return rewriter{out: func(f frame) []frame {
			if selects(f) {
				return by
			}
			return []frame{f}
		}}
	}
}

// endWithRefusal ends every connection with a session.error after the refusal of a hello.
func endWithRefusal() func() rewriter {
	var refusal frame
	return func() rewriter {
		return rewriter{in: func(f frame) []frame {
			switch {
			case f.Type == script.SessionError:
				refusal = f
			case refusal.text != nil && f.Type != script.JobError:
				f = refusal.with("session_id", f.SessionID)
			}
			return []frame{f}
		}}
	}
}

// listEarlySubmit lists a job of the first message of a connection without a session.
func listEarlySubmit() func() rewriter {
	var trace string
	return func() rewriter {
		return rewriter{
			out: func(f frame) []frame {
				if f.SessionID == "" && f.Type == script.JobSubmit {
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
