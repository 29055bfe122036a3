package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
)

// hostFaults break the rules for agents and their events.
var hostFaults = []Fault{
	{Name: "agents of anybody", Says: "any session changes an agent", Shows: []string{"host.owner", "host.reconnect"},
		newRewriter: succeeds(arcp.CodePermissionDenied)},
	{Name: "agents of everybody", Says: "another principal's agents are there", Shows: []string{"host.foreign", "host.unknown"},
		newRewriter: coded(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Name: "busy from the start", Says: "an agent that is registered is running", Shows: []string{"host.register", "host.again"},
		newRewriter: replaced(`"status":"idle"`, `"status":"running"`)},
	{Name: "agents that never stop", Says: "an agent goes on when its session has ended", Shows: []string{"host.session-end"},
		newRewriter: replaced(`"status":"stopped"`, `"status":"running"`)},
	{Name: "one id for all", Says: "an agent without an id has always the same", Shows: []string{"host.new-id"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			return f.onCall("host.register_agent", func(args map[string]json.RawMessage) { args["id"] = json.RawMessage(`"agent-000000000000"`) })
		})},
	{Name: "any status", Says: "a status that is none is taken", Shows: []string{"host.wrong"},
		newRewriter: replacedOut(`"status":"busy"`, `"status":"idle"`)},
	{Name: "forget the task", Says: "current_task is ignored", Shows: []string{"host.status"}, newRewriter: withoutArgument("host.set_status", "current_task")},
	{Name: "the agent whatever is said", Says: "the payload of a status is ignored", Shows: []string{"host.payload", "host.subscribe"},
		newRewriter: withoutArgument("host.set_status", "payload")},
	{Name: "the same page of agents", Says: "a cursor of host.agents is ignored", Shows: []string{"host.pages"}, newRewriter: withoutArgument("host.agents", "cursor")},
	{Name: "all events", Says: "the limit of host.events is ignored", Shows: []string{"host.events"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			return f.onCall("host.events", func(args map[string]json.RawMessage) { args["limit"] = json.RawMessage("500") })
		})},
	{Name: "watch without a snapshot", Says: "host.subscribe does not say what there is", Shows: []string{"host.subscribe"},
		newRewriter: replaced(`"host.snapshot"`, `"host.event"`)},
	{Name: "lose what is watched", Says: "an event of the host is lost", Shows: []string{"host.subscribe"},
		newRewriter: without(func(f frame) bool {
			return f.Type == arcp.EventEmit && bytes.Contains(f.Payload, []byte(`"payload":7}`))
		})},
	{Name: "watch twice", Says: "an event of the host comes twice", Shows: []string{"host.subscribe"},
		newRewriter: func() rewriter {
			return adding(func(f frame) (frame, bool) {
				return f.withNewID(), f.Type == arcp.EventEmit && bytes.Contains(f.Payload, []byte(`"payload":7}`))
			})
		}},
	{Name: "watch agents only", Says: "host.subscribe does not tell of approvals", Shows: []string{"host.approvals"},
		newRewriter: replaced(`"kind":"approval.requested"`, `"kind":"agent.registered"`)},
	{Name: "bring jobs only", Says: "events of the host are not brought", Shows: []string{"host.feed", "host.feed-since"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if f.forwarded().ofHost() {
				return nil
			}
			return []frame{f}
		})},
	{Name: "bring the host twice", Says: "an event of the host is brought twice", Shows: []string{"host.feed"},
		newRewriter: change(func(f frame) []frame {
			if f.forwarded().ofHost() {
				return []frame{f, f.withNewID()}
			}
			return []frame{f}
		})},
	{Name: "bring the host late", Says: "an event of the host is brought after what came after it", Shows: []string{"host.feed"},
		newRewriter: swap(func(f frame) bool { return f.forwarded().ofHost() }, func(f frame) bool { return f.forwarded().Type == arcp.JobCompleted }, false)},
	{Name: "bring the host of others", Says: "an event of another principal's host is brought", Shows: []string{"host.feed"}, across: bringForeignHost},
	{Name: "positions of jobs only", Says: "the id of an event of the host is no position", Shows: []string{"host.feed-since"}, across: forgetHost},
	{Name: "another host each time", Says: "an event of the host has another id when it comes again", Shows: []string{"host.feed-since"}, across: renameHost},
	{Name: "the host of a session", Says: "an event of the host has a session's number", Shows: []string{"host.feed"},
		newRewriter: every(arcp.SubscribeEvent, func(f frame) frame {
			if in := f.forwarded(); in.ofHost() {
				f = f.withPayload("event", arcp.Raw(in.with("session_id", f.SessionID).with("event_seq", 1).text))
			}
			return f
		})},
	{Name: "the host whatever is asked", Says: "filters are not asked about events of the host", Shows: []string{"host.feed-filter"},
		newRewriter: filtered(func(filter map[string]arcp.Raw) { clear(filter) })},
	{Name: "watch for ever", Says: "host.subscribe goes on without a connection", Shows: []string{"host.leash"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			if f.word("tool") == "host.subscribe" {
				f = f.withPayload("on_disconnect", "continue")
			}
			return f
		})},
}

// ofHost reports an event of the host, which is of no job.
func (f frame) ofHost() bool {
	return f.Type == arcp.EventEmit && f.JobID == "" && bytes.Contains(f.Payload, []byte(`"`+arcp.EventHost+`"`))
}

// forgetHost has a subscription since an event of the host be one since a message
// that is not there.
func forgetHost() func() rewriter {
	brought := map[arcp.MessageID]bool{}
	return func() rewriter {
		return rewriter{
			in: func(f frame) []frame {
				if in := f.forwarded(); in.ofHost() {
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

// renameHost gives an event of the host another id when it is brought again.
func renameHost() func() rewriter {
	brought := map[arcp.MessageID]bool{}
	return change(func(f frame) []frame {
		in := f.forwarded()
		if !in.ofHost() {
			return []frame{f}
		}
		if brought[in.ID] {
			return []frame{f.wrapped(in.withNewID().text)}
		}
		brought[in.ID] = true
		return []frame{f}
	})
}

// bringForeignHost sends host events of the first principal to another one.
func bringForeignHost() func() rewriter {
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
				case own && in.ofHost():
					foreign = append(foreign, in)
				case in.ofHost():
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

// onCall edits the arguments of a call of a tool.
func (f frame) onCall(tool string, edit func(args map[string]json.RawMessage)) frame {
	if f.word("tool") != tool {
		return f
	}
	return f.nested("arguments", edit)
}
