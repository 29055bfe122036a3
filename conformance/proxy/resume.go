package proxy

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// replayFaults are defects of replayed events.
var replayFaults = []Fault{
	{Defect: "replayed events are sent before session.resumed", Checks: []string{"resume.replay", "resume.answer"},
		newRewriter: swap(isType(arcp.SessionResumed), frame.event, false)},
	{Defect: "a replayed event has another id", Checks: []string{"resume.replay", "resume.forwarded"},
		newRewriter: editReplayed(frame.withNewID)},
	{Defect: "a replayed event has another timestamp", Checks: []string{"resume.replay"},
		newRewriter: editReplayed(func(f frame) frame { return f.with("timestamp", "2026-01-02T03:04:05Z") })},
	{Defect: "the payload of a replayed event is encoded differently", Checks: []string{"resume.replay"},
		newRewriter: editReplayed(func(f frame) frame { return f.withPayload("replayed", true) })},
	{Defect: "a replayed event has no correlation_id", Checks: []string{"resume.replay"},
		newRewriter: editReplayed(func(f frame) frame { return f.with("correlation_id", nil) })},
	{Defect: "a replayed event of another session has no origin", Checks: []string{"resume.forwarded"}, House: true,
		newRewriter: editReplayed(func(f frame) frame { return f.with("extensions", nil) })},
	{Defect: "replayed events have other numbers", Checks: []string{"resume.replay", "resume.while-running"},
		newRewriter: editReplayed(func(f frame) frame { return f.with("event_seq", f.EventSeq+100) })},
	{Defect: "event_seq starts at 1 on each connection", Checks: []string{"resume.numbers"},
		newRewriter: func() rewriter {
			first := uint64(0)
			return rewriter{in: func(f frame) []frame {
				if !f.event() {
					return []frame{f}
				}
				if first == 0 {
					first = f.EventSeq
				}
				return []frame{f.with("event_seq", f.EventSeq-first+1)}
			}}
		}},
	{Defect: "the first event after session.resumed is never sent", Checks: []string{"resume.replay", "resume.while-running"},
		newRewriter: rewriteFirstResumed(func(f frame) []frame { return nil })},
	{Defect: "the first event after session.resumed is never sent and later events are renumbered", Checks: []string{"resume.while-running", "takeover.while-running"}, Silent: true,
		newRewriter: func() rewriter {
			begun, lost := false, false
			return rewriter{in: func(f frame) []frame {
				begun = begun || f.Type == arcp.SessionResumed
				switch {
				case !begun || !f.event():
					return []frame{f}
				case !lost:
					lost = true
					return nil
				}
				return []frame{f.with("event_seq", f.EventSeq-1)}
			}}
		}},
	{Defect: "the first event after session.resumed is sent twice", Checks: []string{"resume.replay"},
		newRewriter: rewriteFirstResumed(func(f frame) []frame { return []frame{f, f} })},
	{Defect: "a resume replays all events", Checks: []string{"resume.replay", "resume.every-position"},
		newRewriter: editSent(arcp.SessionResume, func(f frame) frame { return f.withPayload("last_event_seq", 0) })},
	{Defect: "a resume also replays the event at the acknowledged position", Checks: []string{"resume.replay"},
		newRewriter: func() rewriter {
			var asked uint64
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.SessionResume {
						asked = f.numberMember("last_event_seq")
						f = f.withPayload("last_event_seq", max(asked, 1)-1)
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					if f.Type == arcp.SessionResumed {
						f = f.withPayload("replayed_from", asked)
					}
					return []frame{f}
				},
			}
		}},
	{Defect: "a resume replays no event", Checks: []string{"resume.unread", "resume.while-away"}, Silent: true,
		newRewriter: rewriteResumed(func(f frame) []frame {
			if f.event() {
				return nil
			}
			return []frame{f}
		})},
	{Defect: "a resumed session loses the feature checkpoints", Checks: []string{"resume.features"}, House: true,
		newRewriter: func() rewriter {
			begun, gone := false, uint64(0)
			return rewriter{in: func(f frame) []frame {
				begun = begun || f.Type == arcp.SessionResumed
				switch {
				case begun && f.Type == arcp.JobCheckpoint:
					gone++
					return nil
				case f.event():
					return []frame{f.with("event_seq", f.EventSeq-gone)}
				}
				return []frame{f}
			}}
		}},
}

// resumeFaults are defects of resuming a session.
var resumeFaults = []Fault{
	{Defect: "replayed_from in session.resumed is always 0", Checks: []string{"resume.answer"}, House: true,
		newRewriter: editReceived(arcp.SessionResumed, func(f frame) frame { return f.withPayload("replayed_from", 0) })},
	{Defect: "replayed in session.resumed is always false", Checks: []string{"resume.answer"}, House: true,
		newRewriter: editReceived(arcp.SessionResumed, func(f frame) frame { return f.withPayload("replayed", false) })},
	{Defect: "session.resumed names another session", Checks: []string{"resume.answer"},
		newRewriter: editReceived(arcp.SessionResumed, func(f frame) frame {
			return f.with("session_id", "sess_new").withPayload("session_id", "sess_new")
		})},
	{Defect: "session.resumed has an event_seq", Checks: []string{"resume.answer"},
		newRewriter: editReceived(arcp.SessionResumed, func(f frame) frame { return f.with("event_seq", 1) })},
	{Defect: "session.resumed has the old resume token", Checks: []string{"resume.answer"}, newRewriter: returnOldToken},
	{Defect: "a used resume token is accepted again", Checks: []string{"resume.token-used"}, House: true, newShared: acceptUsedTokens},
	{Defect: "a resume token is refused although its successor was never received", Checks: []string{"resume.token-lost"}, House: true, newShared: refuseRepeatedTokens},
	{Defect: "a wrong resume token resumes the newest session", Checks: []string{"resume.token-wrong"}, newShared: acceptAnyToken},
	{Defect: "the refusal of a wrong resume token has the code UNAUTHENTICATED", Checks: []string{"resume.token-wrong", "resume.three-failures"}, House: true,
		newRewriter: editReceived(arcp.SessionRejected, func(f frame) frame { return f.withPayload("code", arcp.CodeUnauthenticated) })},
	{Defect: "three wrong resume tokens end the connection with code 1000", Checks: []string{"resume.three-failures"}, House: true,
		newRewriter: closeWith(transport.CloseNormal)},
	{Defect: "a resume from a number beyond the last event is accepted", Checks: []string{"resume.beyond"}, House: true,
		newRewriter: editSent(arcp.SessionResume, func(f frame) frame {
			if f.numberMember("last_event_seq") > 3 {
				f = f.withPayload("last_event_seq", 0)
			}
			return f
		})},
	{Defect: "a ping sent before session.resumed is answered", Checks: []string{"resume.dropped-before"}, House: true,
		newRewriter: func() rewriter {
			var early []arcp.MessageID
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.Ping {
						early = append(early, f.ID)
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					if f.Type != arcp.SessionResumed || len(early) == 0 {
						return []frame{f}
					}
					return []frame{f, f.withNewID().with("type", arcp.Pong).with("payload", struct{}{}).with("correlation_id", early[0])}
				},
			}
		}},
	{Defect: "session.open with a session_id opens a new session", Checks: []string{"resume.open-own", "takeover.open"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame { return f.with("session_id", nil) })},
	{Defect: "last_event_seq in session.open is ignored", Checks: []string{"resume.open-own"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			if f.SessionID != "" {
				f = f.withPayload("last_event_seq", 0)
			}
			return f
		})},
	{Defect: "session.open with a session_id and no last_event_seq replays all events", Checks: []string{"resume.open-goes-on", "resume.open-goes-on-acked", "takeover.open-goes-on"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			if f.SessionID != "" && f.numberMember("last_event_seq") == 0 {
				f = f.withPayload("last_event_seq", 0)
			}
			return f
		})},
	{Defect: "last_event_seq in session.open may lie beyond the last event", Checks: []string{"resume.open-beyond"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame { return f.withPayload("last_event_seq", nil) })},
	{Defect: "session.open attaches to a session of any principal", Checks: []string{"resume.open-foreign", "resume.open-unknown"}, House: true,
		newRewriter: openNamed},
	{Defect: "session.open with a session_id negotiates the capabilities again", Checks: []string{"resume.open-features"}, House: true,
		newRewriter: editReceived(arcp.SessionAccepted, func(f frame) frame {
			return f.withPayload("capabilities", struct{}{})
		})},
	{Defect: "resume after a message sends that message again", Checks: []string{"resume.after-message"}, newShared: positionOneBefore},
	{Defect: "resume after an unknown message is accepted", Checks: []string{"resume.message-unknown"}, House: true,
		newRewriter: replaceNack(arcp.CodeDataLoss, arcp.Ack, struct{}{})},
	{Defect: "resume after a message that was deleted is accepted", Checks: []string{"resume.message-deleted"},
		newRewriter: replaceNack(arcp.CodeDataLoss, arcp.Ack, struct{}{})},
	{Defect: "resume after a message that was deleted is NOT_FOUND", Checks: []string{"resume.message-deleted"},
		newRewriter: replaceCode(arcp.CodeDataLoss, arcp.CodeNotFound)},
	{Defect: "nack with DATA_LOSS has no details", Checks: []string{"resume.message-unknown", "feeds.since-unknown"}, House: true,
		newRewriter: editReceived(arcp.Nack, func(f frame) frame { return f.withPayload("details", nil) })},
	{Defect: "resume is not answered", Checks: []string{"resume.after-message"}, House: true, newRewriter: dropReceived(arcp.Ack)},
	{Defect: "checkpoint_id in resume is ignored", Checks: []string{"resume.checkpoint", "resume.both"}, House: true, Silent: true,
		newRewriter: editSent(arcp.Resume, func(f frame) frame { return f.withPayload("checkpoint_id", nil) })},
	{Defect: "resume is accepted after the first events were sent", Checks: []string{"resume.too-late"}, House: true,
		newRewriter: replaceNack(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Defect: "session.close without forget ends the session", Checks: []string{"resume.closed"}, House: true,
		newRewriter: editSent(arcp.SessionClose, func(f frame) frame { return f.withPayload("forget", true) })},
	{Defect: "forget in session.close is ignored", Checks: []string{"resume.forgotten"}, House: true,
		newRewriter: editSent(arcp.SessionClose, func(f frame) frame { return f.withPayload("forget", nil) })},
	{Defect: "session.evicted is never sent", Checks: []string{"resume.evicted", "sessions.evict", "cancel.session"},
		newRewriter: dropReceived(arcp.SessionEvicted)},
	{Defect: "a superseded connection ends with code 1000", Checks: []string{"takeover.superseded", "takeover.open", "takeover.while-running"}, House: true,
		newRewriter: closeWith(transport.CloseNormal)},
	{Defect: "a superseded connection still answers a ping", Checks: []string{"takeover.race"}, House: true,
		newRewriter: answerAfterEnd},
	{Defect: "a resumed session stops following its jobs", Checks: []string{"resume.following"}, House: true, Silent: true,
		newRewriter: rewriteResumed(func(f frame) []frame {
			if f.event() {
				return nil
			}
			return []frame{f}
		})},
}

func returnOldToken() rewriter {
	var token string
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.SessionResume {
				token = f.stringMember("resume_token")
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type == arcp.SessionResumed {
				f = f.withPayload("resume_token", token)
			}
			return []frame{f}
		},
	}
}

// replaceTokens returns rewriters that replace the token of session.resume by the result of pick.
// issued holds the tokens sent by the server, the newest last. before counts the earlier uses of
// token.
func replaceTokens(pick func(issued []string, token string, before int) string) func() func() rewriter {
	return func() func() rewriter {
		var issued []string
		uses := map[string]int{}
		return func() rewriter {
			return rewriter{
				out: func(f frame) []frame {
					if f.Type != arcp.SessionResume {
						return []frame{f}
					}
					token := f.stringMember("resume_token")
					uses[token]++
					return []frame{f.withPayload("resume_token", pick(issued, token, uses[token]-1))}
				},
				in: func(f frame) []frame {
					if f.Type == arcp.SessionResumed || f.Type == arcp.SessionAccepted {
						issued = append(issued, f.stringMember("resume_token"))
					}
					return []frame{f}
				},
			}
		}
	}
}

// acceptUsedTokens replaces each issued token by the newest token.
var acceptUsedTokens = replaceTokens(func(issued []string, token string, _ int) string {
	if slices.Contains(issued, token) {
		return issued[len(issued)-1]
	}
	return token
})

// acceptAnyToken replaces an unknown token by the newest token.
var acceptAnyToken = replaceTokens(func(issued []string, token string, _ int) string {
	if len(issued) > 0 && !slices.Contains(issued, token) {
		return issued[len(issued)-1]
	}
	return token
})

// refuseRepeatedTokens invalidates a token at its second use.
var refuseRepeatedTokens = replaceTokens(func(_ []string, token string, before int) string {
	if before > 0 {
		return "rt_invalid"
	}
	return token
})

// openNamed replaces the session id in each frame by the id that session.open named.
func openNamed() rewriter {
	var named arcp.SessionID
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.SessionOpen {
				named = f.SessionID
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if named == "" || f.SessionID == "" {
				return []frame{f}
			}
			f = f.with("session_id", named)
			if f.Type == arcp.SessionAccepted {
				f = f.withPayload("session_id", named)
			}
			return []frame{f}
		},
	}
}

// positionOneBefore replaces the message that a position names by the message before it.
func positionOneBefore() func() rewriter {
	before, last := map[arcp.MessageID]arcp.MessageID{}, map[arcp.SessionID]arcp.MessageID{}
	return func() rewriter {
		return rewriter{
			in: func(f frame) []frame {
				if f.event() && before[f.ID] == "" {
					before[f.ID], last[f.SessionID] = last[f.SessionID], f.ID
				}
				return []frame{f}
			},
			out: func(f frame) []frame {
				switch f.Type {
				case arcp.Resume:
					if id := before[arcp.MessageID(f.stringMember("after_message_id"))]; id != "" {
						f = f.withPayload("after_message_id", id)
					}
				case arcp.Subscribe:
					p, _ := arcp.DecodePayload[arcp.SubscribePayload](&f.Envelope) // a malformed message passes unchanged
					if p.Since != nil && before[p.Since.AfterMessageID] != "" {
						f = f.withPayload("since", arcp.Since{AfterMessageID: before[p.Since.AfterMessageID]})
					}
				}
				return []frame{f}
			},
		}
	}
}

// answerAfterEnd answers the last ping after the end of the connection.
func answerAfterEnd() rewriter {
	var resumed, ping frame
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.Ping {
				ping = f
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type == arcp.SessionResumed {
				resumed = f
			}
			return []frame{f}
		},
		afterEnd: func() []frame {
			if resumed.Type == "" || ping.Type == "" {
				return nil
			}
			answered := ping.ID
			ping = frame{}
			return []frame{resumed.withNewID().with("type", arcp.Pong).with("payload", struct{}{}).with("correlation_id", answered)}
		},
	}
}
