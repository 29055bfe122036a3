package proxy

import (
	"github.com/arcpd/arcpd/arcp"
)

// forwarded is the envelope that a subscribe.event brings; zero if f is none.
func (f frame) forwarded() frame {
	if f.Type != arcp.SubscribeEvent {
		return frame{}
	}
	p, err := arcp.DecodePayload[arcp.SubscribeEventPayload](&f.Envelope)
	if err != nil {
		return frame{}
	}
	return parse(p.Event)
}

// inside makes a stage that edits the events that subscriptions bring.
func inside(edit func(in frame) frame) func() rewriter {
	return every(arcp.SubscribeEvent, func(f frame) frame {
		if in := f.forwarded(); in.event() {
			f = f.withPayload("event", arcp.Raw(edit(in).text))
		}
		return f
	})
}

func isBrought(seq uint64) func(frame) bool {
	return func(f frame) bool { return f.forwarded().EventSeq == seq }
}

// brought makes a stage that replaces subscribe.event frames whose event has
// the number.
func brought(seq uint64, edit func(f frame) []frame) func() rewriter {
	return change(func(f frame) []frame {
		if isBrought(seq)(f) {
			return edit(f)
		}
		return []frame{f}
	})
}

// isMarker reports the end of a backfill.
func isMarker(f frame) bool { return f.forwarded().SubscriptionID != "" }

// feedFaults break the rules for subscriptions.
var feedFaults = []Fault{
	{Name: "accept without an envelope id", Says: "subscribe.accepted has the id only in its payload", Shows: []string{"feeds.accepted"},
		newRewriter: every(arcp.SubscribeAccepted, func(f frame) frame { return f.with("subscription_id", nil) })},
	{Name: "accept without a payload id", Says: "subscribe.accepted has the id only in its envelope", Shows: []string{"feeds.accepted"},
		newRewriter: every(arcp.SubscribeAccepted, func(f frame) frame { return f.withPayload("subscription_id", nil) })},
	{Name: "bring before accepting", Says: "events come before subscribe.accepted", Shows: []string{"feeds.since"},
		newRewriter: swap(isType(arcp.SubscribeAccepted), isType(arcp.SubscribeEvent), false)},
	{Name: "bring without an id", Says: "subscribe.event does not name its subscription", Shows: []string{"feeds.whole"},
		newRewriter: every(arcp.SubscribeEvent, func(f frame) frame { return f.with("subscription_id", nil) })},
	{Name: "number what is brought", Says: "subscribe.event has an event_seq", Shows: []string{"feeds.whole"},
		newRewriter: every(arcp.SubscribeEvent, func(f frame) frame { return f.with("event_seq", 1) })},
	{Name: "bring another session", Says: "an event is brought with the subscriber's session", Shows: []string{"feeds.whole"},
		newRewriter: every(arcp.SubscribeEvent, func(f frame) frame {
			return f.withPayload("event", arcp.Raw(f.forwarded().with("session_id", f.SessionID).text))
		})},
	{Name: "bring without numbers", Says: "an event is brought without its number", Shows: []string{"feeds.whole"},
		newRewriter: inside(func(in frame) frame { return in.with("event_seq", nil) })},
	{Name: "bring new ids", Says: "an event is brought with an id of its own", Shows: []string{"feeds.whole"},
		newRewriter: inside(frame.withNewID)},
	{Name: "bring a part", Says: "an event is brought without its envelope", Shows: []string{"feeds.whole"},
		newRewriter: every(arcp.SubscribeEvent, func(f frame) frame { return f.withPayload("event", f.forwarded().Payload) })},
	{Name: "bring other payloads", Says: "the payload of an event that is brought is another", Shows: []string{"feeds.whole"},
		newRewriter: inside(func(in frame) frame { return in.withPayload("brought", true) })},
	{Name: "bring too little", Says: "an event is not brought", Shows: []string{"feeds.whole", "feeds.since-live"},
		newRewriter: brought(5, func(frame) []frame { return nil })},
	{Name: "bring twice", Says: "an event is brought twice", Shows: []string{"feeds.whole", "feeds.since-live"},
		newRewriter: brought(5, func(f frame) []frame { return []frame{f, f.withNewID()} })},
	{Name: "bring out of order", Says: "two events change places", Shows: []string{"feeds.whole", "feeds.since-live"},
		newRewriter: swap(isBrought(5), isBrought(6), false)},
	{Name: "bring handshakes", Says: "the answer to session.open is brought", Shows: []string{"feeds.no-control"}, across: bringControl},
	{Name: "bring what others do", Says: "an event of another principal is brought", Shows: []string{"feeds.other-principal"}, across: bringForeign},
	{Name: "disturb the session", Says: "who subscribes to an own job does not get its events as events", Shows: []string{"feeds.own-session"}, Mute: true,
		newRewriter: swallowOwn},
	{Name: "bring to one subscription", Says: "everything comes to the first subscription", Shows: []string{"feeds.two"}, newRewriter: firstOnly},
	{Name: "leave out the end of the backfill", Says: "the end of the backfill is not told", Shows: []string{"feeds.since", "feeds.since-last"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if isMarker(f) {
				return nil
			}
			return []frame{f}
		})},
	{Name: "end the backfill twice", Says: "the end of the backfill is told twice", Shows: []string{"feeds.since", "feeds.since-live"},
		newRewriter: change(func(f frame) []frame {
			if isMarker(f) {
				return []frame{f, f.withNewID()}
			}
			return []frame{f}
		})},
	{Name: "end the backfill early", Says: "the end of the backfill is told before it", Shows: []string{"feeds.since"},
		newRewriter: swap(func(f frame) bool { return f.forwarded().Type == arcp.JobCompleted }, isMarker, false)},
	{Name: "end what was not begun", Says: "without since an end of the backfill is told", Shows: []string{"feeds.since-last", "feeds.whole"},
		newRewriter: change(func(f frame) []frame {
			if f.Type != arcp.SubscribeAccepted {
				return []frame{f}
			}
			marker := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: "subscription.backfill_complete"})
			marker.ARCP, marker.ID, marker.Timestamp, marker.SubscriptionID = f.ARCP, arcp.NewMessageID(), f.Timestamp, f.SubscriptionID
			return []frame{f, f.with("type", arcp.SubscribeEvent).with("correlation_id", nil).with("payload", struct{}{}).wrapped(marker.Append(nil))}
		})},
	{Name: "bring the message too", Says: "since brings the message it names", Shows: []string{"feeds.since"}, across: oneBefore},
	{Name: "begin now", Says: "since is ignored", Shows: []string{"feeds.since"}, Mute: true,
		newRewriter: asked(arcp.Subscribe, func(f frame) frame { return f.withPayload("since", nil) })},
	{Name: "begin anywhere", Says: "since an unknown message is accepted", Shows: []string{"feeds.since-unknown"}, newRewriter: acceptSubscribe(arcp.CodeDataLoss)},
	{Name: "show strangers", Says: "a filter may name any session", Shows: []string{"feeds.foreign-session"}, newRewriter: acceptSubscribe(arcp.CodePermissionDenied)},
	{Name: "read any filter", Says: "a filter that cannot be read is accepted", Shows: []string{"feeds.filter-malformed"}, newRewriter: acceptSubscribe(arcp.CodeInvalidRequest)},
	{Name: "go on after unsubscribe", Says: "unsubscribe is ignored", Shows: []string{"feeds.unsubscribe"},
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == arcp.Unsubscribe {
					return nil
				}
				return []frame{f}
			}}
		}},
	{Name: "answer unsubscribe", Says: "unsubscribe is answered", Shows: []string{"feeds.unsubscribe"}, newRewriter: answerUnsubscribe},
	{Name: "unsubscribe anything", Says: "unsubscribe of what is none has no answer", Shows: []string{"feeds.unsubscribe-unknown", "feeds.connection"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.Nack && f.code() == arcp.CodeNotFound {
				return nil
			}
			return []frame{f}
		})},
}

// unfiltered is a fault that ignores a member of filters.
func unfiltered(member, check string) Fault {
	return Fault{Name: "ignore " + member, Says: member + " in a filter is ignored", Shows: []string{check},
		newRewriter: filtered(func(filter map[string]arcp.Raw) { delete(filter, member) })}
}

// filtered makes a stage that edits the filters of subscriptions.
func filtered(edit func(filter map[string]arcp.Raw)) func() rewriter {
	return asked(arcp.Subscribe, func(f frame) frame {
		var p struct {
			Filter map[string]arcp.Raw `json:"filter"`
		}
		if arcp.Unmarshal(f.Payload, &p) != nil || p.Filter == nil {
			return f
		}
		edit(p.Filter)
		return f.withPayload("filter", p.Filter)
	})
}

// feedFilterFaults break the rules for filters of subscriptions.
var feedFilterFaults = []Fault{
	unfiltered("job_id", "feeds.filter-job"), unfiltered("session_id", "feeds.filter-session"), unfiltered("trace_id", "feeds.filter-trace"),
	unfiltered("types", "feeds.filter-types"), unfiltered("min_priority", "feeds.filter-priority"),
	{Name: "skip unknown types", Says: "a type that does not exist is left out of a filter", Shows: []string{"feeds.filter-unknown-type"},
		newRewriter: filtered(func(filter map[string]arcp.Raw) {
			var types []arcp.Type
			if arcp.Unmarshal(filter["types"], &types) == nil && len(types) > 0 && arcp.Lookup(types[0]) == nil {
				delete(filter, "types")
			}
		})},
	{Name: "select nothing", Says: "an empty list in a filter selects nothing", Shows: []string{"feeds.filter-empty"}, Mute: true,
		newRewriter: filtered(func(filter map[string]arcp.Raw) {
			if string(filter["types"]) == "[]" {
				filter["types"] = arcp.Raw(`["none"]`)
			}
		})},
}

// acceptSubscribe makes a stage that accepts a subscribe that was refused with
// the code.
func acceptSubscribe(code arcp.Code) func() rewriter {
	return change(func(f frame) []frame {
		if f.Type != arcp.Nack || f.code() != code {
			return []frame{f}
		}
		return []frame{f.with("type", arcp.SubscribeAccepted).with("subscription_id", "sub_1").
			with("payload", arcp.SubscribeAcceptedPayload{SubscriptionID: "sub_1"})}
	})
}

// bringControl brings the answer to another connection's session.open.
func bringControl() func() rewriter {
	var opened []frame
	return func() rewriter {
		return rewriter{in: func(f frame) []frame {
			if f.Type == arcp.SessionAccepted {
				opened = append(opened, f)
			}
			if f.Type != arcp.SubscribeEvent || len(opened) == 0 {
				return []frame{f}
			}
			control := opened[len(opened)-1]
			return []frame{f.wrapped(control.text), f}
		}}
	}
}

// bringForeign brings the events of connections that were opened with another
// token than the first.
func bringForeign() func() rewriter {
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
				switch {
				case !own && f.event():
					foreign = append(foreign, f)
				case own && f.Type == arcp.SubscribeEvent && len(foreign) > 0:
					return []frame{f.wrapped(foreign[0].text), f}
				}
				return []frame{f}
			},
		}
	}
}

// swallowOwn keeps the events of a session that subscribes from it.
func swallowOwn() rewriter {
	subscribed := false
	return rewriter{in: func(f frame) []frame {
		subscribed = subscribed || f.Type == arcp.SubscribeAccepted
		if subscribed && f.event() {
			return nil
		}
		return []frame{f}
	}}
}

// firstOnly gives everything to the first subscription.
func firstOnly() rewriter {
	var first arcp.SubscriptionID
	return rewriter{in: func(f frame) []frame {
		if f.Type == arcp.SubscribeAccepted && first == "" {
			first = f.SubscriptionID
		}
		if f.Type == arcp.SubscribeEvent {
			f = f.with("subscription_id", first)
		}
		return []frame{f}
	}}
}

// answerUnsubscribe sends an ack for each unsubscribe, before the next pong.
func answerUnsubscribe() rewriter {
	var ended []arcp.MessageID
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.Unsubscribe {
				ended = append(ended, f.ID)
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type != arcp.Pong || len(ended) == 0 {
				return []frame{f}
			}
			ack := f.withNewID().with("type", arcp.Ack).with("payload", struct{}{}).with("correlation_id", ended[0])
			ended = nil
			return []frame{ack, f}
		},
	}
}
