package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
)

// hostFaults are defects of agents and host events.
var hostFaults = []Fault{
	{Defect: "any session can change an agent", Checks: []string{"host.owner", "host.reconnect"}, House: true,
		newRewriter: completeFailed(arcp.CodePermissionDenied)},
	{Defect: "agents of another principal are visible", Checks: []string{"host.foreign", "host.unknown"}, House: true,
		newRewriter: replaceCode(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Defect: "a new agent has the status running", Checks: []string{"host.register", "host.again"}, House: true,
		newRewriter: replaceReceived(`"status":"idle"`, `"status":"running"`)},
	{Defect: "an agent keeps running after its session has ended", Checks: []string{"host.session-end"}, House: true, Silent: true,
		newRewriter: replaceReceived(`"status":"stopped"`, `"status":"running"`)},
	{Defect: "an agent without a connection keeps its status", Checks: []string{"host.disconnected"}, House: true, Silent: true,
		newRewriter: replaceReceived(`"status":"disconnected"`, `"status":"running"`)},
	{Defect: "every agent registered without an id has the same id", Checks: []string{"host.new-id"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			return f.editArguments("host.register_agent", func(args map[string]json.RawMessage) { args["id"] = json.RawMessage(`"agent-000000000000"`) })
		})},
	{Defect: "an unknown agent status is accepted", Checks: []string{"host.wrong"}, House: true,
		newRewriter: replaceSent(`"status":"busy"`, `"status":"idle"`)},
	{Defect: "current_task of an agent is ignored", Checks: []string{"host.status"}, House: true, newRewriter: withoutArgument("host.set_status", "current_task")},
	{Defect: "the payload of an agent status is ignored", Checks: []string{"host.payload", "host.subscribe"}, House: true,
		newRewriter: withoutArgument("host.set_status", "payload")},
	{Defect: "the cursor of host.agents is ignored", Checks: []string{"host.pages"}, House: true, newRewriter: withoutArgument("host.agents", "cursor")},
	{Defect: "the limit of host.events is ignored", Checks: []string{"host.events"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			return f.editArguments("host.events", func(args map[string]json.RawMessage) { args["limit"] = json.RawMessage("500") })
		})},
	{Defect: "host.subscribe sends no snapshot", Checks: []string{"host.subscribe"}, House: true,
		newRewriter: replaceReceived(`"host.snapshot"`, `"host.event"`)},
	{Defect: "a host event is missing from host.subscribe", Checks: []string{"host.subscribe"}, House: true,
		newRewriter: dropEvents(func(f frame) bool {
			return f.Type == arcp.EventEmit && bytes.Contains(f.Payload, []byte(`"payload":7}`))
		})},
	{Defect: "a host event is sent twice by host.subscribe", Checks: []string{"host.subscribe"}, House: true,
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) {
				return f.withNewID(), f.Type == arcp.EventEmit && bytes.Contains(f.Payload, []byte(`"payload":7}`))
			})
		}},
	{Defect: "host.subscribe does not report approvals", Checks: []string{"host.approvals"}, House: true,
		newRewriter: replaceReceived(`"kind":"approval.requested"`, `"kind":"agent.registered"`)},
	{Defect: "host events are never forwarded to subscriptions", Checks: []string{"host.feed", "host.feed-since"}, House: true, Silent: true,
		newRewriter: dropWhere(func(f frame) bool { return f.forwarded().isHostEvent() })},
	{Defect: "a host event is forwarded twice", Checks: []string{"host.feed"}, House: true,
		newRewriter: duplicateWhere(func(f frame) bool { return f.forwarded().isHostEvent() }, frame.withNewID)},
	{Defect: "a host event is forwarded after the event that followed it", Checks: []string{"host.feed"}, House: true,
		newRewriter: swap(func(f frame) bool { return f.forwarded().isHostEvent() }, func(f frame) bool { return f.forwarded().Type == arcp.JobCompleted }, false)},
	{Defect: "a host event of another principal is forwarded", Checks: []string{"host.feed"}, House: true, newShared: forwardForeignHost},
	{Defect: "since cannot name a host event", Checks: []string{"host.feed-since"}, House: true, newShared: replaceHostSince},
	{Defect: "a host event has another id when it is forwarded again", Checks: []string{"host.feed-since"}, House: true, newShared: changeHostIDs},
	{Defect: "a host event has the session_id and event_seq of a session", Checks: []string{"host.feed"}, House: true,
		newRewriter: editReceived(arcp.SubscribeEvent, func(f frame) frame {
			if in := f.forwarded(); in.isHostEvent() {
				f = f.withPayload("event", arcp.Raw(in.with("session_id", f.SessionID).with("event_seq", 1).text))
			}
			return f
		})},
	{Defect: "filters do not apply to host events", Checks: []string{"host.feed-filter"}, House: true,
		newRewriter: editFilter(func(filter map[string]arcp.Raw) { clear(filter) })},
	{Defect: "host.subscribe continues after its connection is lost", Checks: []string{"host.leash"}, House: true, Silent: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			if f.stringMember("tool") == "host.subscribe" {
				f = f.withPayload("on_disconnect", "continue")
			}
			return f
		})},
}

// isHostEvent reports whether f is a host event. A host event has no job.
func (f frame) isHostEvent() bool {
	return f.Type == arcp.EventEmit && f.JobID == "" && bytes.Contains(f.Payload, []byte(`"`+arcp.EventHost+`"`))
}

// replaceHostSince replaces the host event that since names by an unknown message.
func replaceHostSince() func() rewriter {
	brought := map[arcp.MessageID]bool{}
	return func() rewriter {
		return rewriter{
			in: func(f frame) []frame {
				if in := f.forwarded(); in.isHostEvent() {
					brought[in.ID] = true
				}
				return []frame{f}
			},
			out: func(f frame) []frame {
				p, err := arcp.DecodePayload[arcp.SubscribePayload](&f.Envelope)
				if err == nil && f.Type == arcp.Subscribe && p.Since != nil && brought[p.Since.AfterMessageID] {
					f = f.withPayload("since", arcp.Since{AfterMessageID: arcp.NewMessageID()})
				}
				return []frame{f}
			},
		}
	}
}

// changeHostIDs gives a host event another id when it is forwarded again.
func changeHostIDs() func() rewriter {
	brought := map[arcp.MessageID]bool{}
	return rewriteReceived(func(f frame) []frame {
		in := f.forwarded()
		if !in.isHostEvent() {
			return []frame{f}
		}
		if brought[in.ID] {
			return []frame{f.wrapped(in.withNewID().text)}
		}
		brought[in.ID] = true
		return []frame{f}
	})
}

// forwardForeignHost forwards host events of the first principal to other principals.
func forwardForeignHost() func() rewriter {
	var first string
	var foreign []frame
	return func() rewriter {
		own := true
		return rewriter{
			out: func(f frame) []frame {
				if p, err := arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope); err == nil && f.Type == arcp.SessionOpen {
					if first == "" {
						first = p.Auth.Token
					}
					own = p.Auth.Token == first
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				in := f.forwarded()
				switch {
				case own && in.isHostEvent():
					foreign = append(foreign, in)
				case in.isHostEvent():
					var frames []frame
					for _, o := range foreign {
						frames = append(frames, f.wrapped(o.text))
					}
					return append(frames, f)
				}
				return []frame{f}
			},
		}
	}
}
