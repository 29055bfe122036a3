package proxy

import (
	"github.com/arcpd/arcpd/arcp"
)

// isBackfillEnd reports whether f forwards the event that marks the end of a backfill.
func isBackfillEnd(f frame) bool { return f.forwarded().SubscriptionID != "" }

// feedFaults are defects of subscriptions.
var feedFaults = []Fault{
	{Defect: "the envelope of subscribe.accepted has no subscription_id", Checks: []string{"feeds.accepted"}, House: true,
		newRewriter: editReceived(arcp.SubscribeAccepted, func(f frame) frame { return f.with("subscription_id", nil) })},
	{Defect: "the payload of subscribe.accepted has no subscription_id", Checks: []string{"feeds.accepted"},
		newRewriter: editReceived(arcp.SubscribeAccepted, func(f frame) frame { return f.withPayload("subscription_id", nil) })},
	{Defect: "subscribe.event is sent before subscribe.accepted", Checks: []string{"feeds.since"},
		newRewriter: swap(isType(arcp.SubscribeAccepted), isType(arcp.SubscribeEvent), false)},
	{Defect: "subscribe.event has no subscription_id", Checks: []string{"feeds.whole"},
		newRewriter: editReceived(arcp.SubscribeEvent, func(f frame) frame { return f.with("subscription_id", nil) })},
	{Defect: "subscribe.event has an event_seq", Checks: []string{"feeds.whole"},
		newRewriter: editReceived(arcp.SubscribeEvent, func(f frame) frame { return f.with("event_seq", 1) })},
	{Defect: "a forwarded event has the session_id of the subscriber", Checks: []string{"feeds.whole"},
		newRewriter: editReceived(arcp.SubscribeEvent, func(f frame) frame {
			return f.withPayload("event", arcp.Raw(f.forwarded().with("session_id", f.SessionID).text))
		})},
	{Defect: "a forwarded event has no event_seq", Checks: []string{"feeds.whole"}, House: true,
		newRewriter: editForwarded(func(in frame) frame { return in.with("event_seq", nil) })},
	{Defect: "a forwarded event has another id than the original", Checks: []string{"feeds.whole"},
		newRewriter: editForwarded(frame.withNewID)},
	{Defect: "subscribe.event contains the payload of the event without its envelope", Checks: []string{"feeds.whole"},
		newRewriter: editReceived(arcp.SubscribeEvent, func(f frame) frame { return f.withPayload("event", f.forwarded().Payload) })},
	{Defect: "a forwarded event has another payload than the original", Checks: []string{"feeds.whole"},
		newRewriter: editForwarded(func(in frame) frame { return in.withPayload("forwarded", true) })},
	{Defect: "the event with event_seq 5 is never forwarded", Checks: []string{"feeds.whole", "feeds.since-live"},
		newRewriter: rewriteForwarded(5, func(frame) []frame { return nil })},
	{Defect: "the event with event_seq 5 is forwarded twice", Checks: []string{"feeds.whole", "feeds.since-live"},
		newRewriter: rewriteForwarded(5, func(f frame) []frame { return []frame{f, f.withNewID()} })},
	{Defect: "the events with event_seq 5 and 6 are forwarded in reverse order", Checks: []string{"feeds.whole", "feeds.since-live"},
		newRewriter: swap(forwardsEvent(5), forwardsEvent(6), false)},
	{Defect: "the answer to session.open is forwarded", Checks: []string{"feeds.no-control"}, House: true, newShared: forwardHandshake},
	{Defect: "an event of another principal is forwarded", Checks: []string{"feeds.other-principal"}, newShared: forwardForeign},
	{Defect: "a subscription to a job of the own session replaces the session's own events", Checks: []string{"feeds.own-session"}, House: true, Silent: true,
		newRewriter: dropOwnEvents},
	{Defect: "all events are forwarded to the first subscription", Checks: []string{"feeds.two"}, newRewriter: moveToFirst},
	{Defect: "the end of the backfill is never reported", Checks: []string{"feeds.since", "feeds.since-last"}, Silent: true,
		newRewriter: dropWhere(isBackfillEnd)},
	{Defect: "the end of the backfill is reported twice", Checks: []string{"feeds.since", "feeds.since-live"},
		newRewriter: duplicateWhere(isBackfillEnd, frame.withNewID)},
	{Defect: "the end of the backfill is reported before the last backfilled event", Checks: []string{"feeds.since"},
		newRewriter: swap(func(f frame) bool { return f.forwarded().Type == arcp.JobCompleted }, isBackfillEnd, false)},
	{Defect: "the end of a backfill is reported for a subscription without since", Checks: []string{"feeds.since-last", "feeds.whole"},
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type != arcp.SubscribeAccepted {
				return []frame{f}
			}
			marker := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: "subscription.backfill_complete"})
			marker.ARCP, marker.ID, marker.Timestamp, marker.SubscriptionID = f.ARCP, arcp.NewMessageID(), f.Timestamp, f.SubscriptionID
			return []frame{f, f.with("type", arcp.SubscribeEvent).with("correlation_id", nil).with("payload", struct{}{}).wrapped(marker.Append(nil))}
		})},
	{Defect: "a subscription includes the event that since names", Checks: []string{"feeds.since"}, newShared: positionOneBefore},
	{Defect: "since in subscribe is ignored", Checks: []string{"feeds.since"}, Silent: true,
		newRewriter: editSent(arcp.Subscribe, func(f frame) frame { return f.withPayload("since", nil) })},
	{Defect: "since in subscribe may name an unknown message", Checks: []string{"feeds.since-unknown"}, House: true, newRewriter: acceptSubscribe(arcp.CodeDataLoss)},
	{Defect: "a filter may name a session of another principal", Checks: []string{"feeds.foreign-session"}, newRewriter: acceptSubscribe(arcp.CodePermissionDenied)},
	{Defect: "a malformed filter is accepted", Checks: []string{"feeds.filter-malformed"}, House: true, newRewriter: acceptSubscribe(arcp.CodeInvalidRequest)},
	{Defect: "unsubscribe is ignored", Checks: []string{"feeds.unsubscribe"},
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == arcp.Unsubscribe {
					return nil
				}
				return []frame{f}
			}}
		}},
	{Defect: "unsubscribe is answered with ack", Checks: []string{"feeds.unsubscribe"}, House: true, newRewriter: answerUnsubscribe},
	{Defect: "unsubscribe of an unknown subscription is not answered", Checks: []string{"feeds.unsubscribe-unknown", "feeds.connection"}, House: true, Silent: true,
		newRewriter: dropWhere(func(f frame) bool { return f.Type == arcp.Nack && f.code() == arcp.CodeNotFound })},
}

// ignoreFilterMember returns a fault that ignores the member of a filter.
func ignoreFilterMember(member, check string) Fault {
	return Fault{Defect: member + " in a filter is ignored", Checks: []string{check},
		newRewriter: editFilter(func(filter map[string]arcp.Raw) { delete(filter, member) })}
}

// feedFilterFaults are defects of the filters of subscriptions.
var feedFilterFaults = []Fault{
	ignoreFilterMember("job_id", "feeds.filter-job"), ignoreFilterMember("session_id", "feeds.filter-session"), ignoreFilterMember("trace_id", "feeds.filter-trace"),
	ignoreFilterMember("types", "feeds.filter-types"), ofHouse(ignoreFilterMember("min_priority", "feeds.filter-priority")),
	{Defect: "an unknown message type in a filter is ignored", Checks: []string{"feeds.filter-unknown-type"}, House: true,
		newRewriter: editFilter(func(filter map[string]arcp.Raw) {
			var types []arcp.Type
			if arcp.Unmarshal(filter["types"], &types) == nil && len(types) > 0 && arcp.Lookup(types[0]) == nil {
				delete(filter, "types")
			}
		})},
	{Defect: "an empty list of types in a filter selects no event", Checks: []string{"feeds.filter-empty"}, House: true, Silent: true,
		newRewriter: editFilter(func(filter map[string]arcp.Raw) {
			if string(filter["types"]) == "[]" {
				filter["types"] = arcp.Raw(`["none"]`)
			}
		})},
}

// forwardHandshake forwards the session.accepted of another connection.
func forwardHandshake() func() rewriter {
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

// forwardForeign forwards an event of a connection opened with another token than the first.
func forwardForeign() func() rewriter {
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

// dropOwnEvents drops the events of a session after its first subscription.
func dropOwnEvents() rewriter {
	subscribed := false
	return rewriter{in: func(f frame) []frame {
		subscribed = subscribed || f.Type == arcp.SubscribeAccepted
		if subscribed && f.event() {
			return nil
		}
		return []frame{f}
	}}
}

// moveToFirst moves each subscribe.event to the first subscription of the connection.
func moveToFirst() rewriter {
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

// answerUnsubscribe answers an unsubscribe with ack before the next pong.
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
