package proxy

import (
	"errors"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// taken makes a stage that edits the frames after session.resumed.
func taken(edit func(f frame) []frame) func() rewriter {
	return func() rewriter {
		begun := false
		return rewriter{in: func(f frame) []frame {
			if f.Type == arcp.SessionResumed {
				begun = true
				return []frame{f}
			}
			if !begun {
				return []frame{f}
			}
			return edit(f)
		}}
	}
}

// takenEvents makes a stage that edits the events after session.resumed.
func takenEvents(edit func(f frame) frame) func() rewriter {
	return taken(func(f frame) []frame {
		if f.event() {
			f = edit(f)
		}
		return []frame{f}
	})
}

// asked makes a stage that edits the messages of a type that the client sends.
func asked(typ arcp.Type, edit func(f frame) frame) func() rewriter {
	return func() rewriter {
		return rewriter{out: func(f frame) []frame {
			if f.Type == typ {
				f = edit(f)
			}
			return []frame{f}
		}}
	}
}

// ending makes a stage that has connections end with another code.
func ending(code transport.CloseCode) func() rewriter {
	return func() rewriter { return rewriter{end: func(err error) error { return closedBy(err, code) }} }
}

// never makes a stage that keeps frames of a type from the client.
func never(typ arcp.Type) func() rewriter {
	return change(func(f frame) []frame {
		if f.Type == typ {
			return nil
		}
		return []frame{f}
	})
}

// instead makes a stage that replaces a refusal with the code by another message.
func instead(code arcp.Code, typ arcp.Type, payload any) func() rewriter {
	return change(func(f frame) []frame {
		if f.Type == arcp.Nack && f.code() == code {
			f = f.with("type", typ).with("payload", payload)
		}
		return []frame{f}
	})
}

func (f frame) code() arcp.Code {
	p, _ := arcp.DecodePayload[arcp.ErrorPayload](&f.Envelope) // none is a code too
	return p.Code
}

// number is a payload member of a message that is a count, or 0.
func (f frame) number(name string) uint64 {
	var members map[string]arcp.Raw
	var n uint64
	if arcp.Unmarshal(f.Payload, &members) != nil || arcp.Unmarshal(members[name], &n) != nil {
		return 0
	}
	return n
}

// word is a payload member of a message that is text, or "".
func (f frame) word(name string) string {
	var members map[string]arcp.Raw
	var s string
	if arcp.Unmarshal(f.Payload, &members) != nil || arcp.Unmarshal(members[name], &s) != nil {
		return ""
	}
	return s
}

// replayFaults break the rules for replayed events.
var replayFaults = []Fault{
	{Name: "replay first", Says: "events come before session.resumed", Shows: []string{"resume.replay", "resume.answer"},
		newRewriter: swap(isType(arcp.SessionResumed), frame.event, false)},
	{Name: "replay with new ids", Says: "an event that comes again has another id", Shows: []string{"resume.replay", "resume.forwarded"},
		newRewriter: takenEvents(frame.withNewID)},
	{Name: "replay at a new time", Says: "an event that comes again has another time", Shows: []string{"resume.replay"},
		newRewriter: takenEvents(func(f frame) frame { return f.with("timestamp", "2026-01-02T03:04:05Z") })},
	{Name: "replay other payloads", Says: "the payload of an event that comes again is encoded anew", Shows: []string{"resume.replay"},
		newRewriter: takenEvents(func(f frame) frame { return f.withPayload("replayed", true) })},
	{Name: "replay without correlation", Says: "an event that comes again is correlated to nothing", Shows: []string{"resume.replay"},
		newRewriter: takenEvents(func(f frame) frame { return f.with("correlation_id", nil) })},
	{Name: "replay without origin", Says: "a copy that comes again does not say where it is from", Shows: []string{"resume.forwarded"},
		newRewriter: takenEvents(func(f frame) frame { return f.with("extensions", nil) })},
	{Name: "replay with another number", Says: "events that come again are counted anew", Shows: []string{"resume.replay", "resume.while-running"},
		newRewriter: takenEvents(func(f frame) frame { return f.with("event_seq", f.EventSeq+100) })},
	{Name: "count connections", Says: "every connection counts from 1", Shows: []string{"resume.numbers"},
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
	{Name: "lose an event at the seam", Says: "the first event after a resume is lost", Shows: []string{"resume.replay", "resume.while-running"},
		newRewriter: seam(func(f frame) []frame { return nil })},
	{Name: "hide the seam", Says: "the first event after a resume is lost and the rest renumbered", Shows: []string{"resume.while-running", "takeover.while-running"}, Mute: true,
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
	{Name: "repeat an event at the seam", Says: "the first event after a resume comes twice", Shows: []string{"resume.replay"},
		newRewriter: seam(func(f frame) []frame { return []frame{f, f} })},
	{Name: "replay everything", Says: "a resume begins with the first event", Shows: []string{"resume.replay", "resume.every-position"},
		newRewriter: asked(arcp.SessionResume, func(f frame) frame { return f.withPayload("last_event_seq", 0) })},
	{Name: "replay one too many", Says: "the event at the position comes too, under another's name", Shows: []string{"resume.replay"},
		newRewriter: func() rewriter {
			var asked uint64
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.SessionResume {
						asked = f.number("last_event_seq")
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
	{Name: "no replay", Says: "what was not read is lost", Shows: []string{"resume.unread", "resume.while-away"}, Mute: true,
		newRewriter: taken(func(f frame) []frame {
			if f.event() {
				return nil
			}
			return []frame{f}
		})},
	{Name: "forget the features", Says: "a resumed session sees no checkpoints", Shows: []string{"resume.features"},
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

// seam makes a stage that edits the first event after session.resumed.
func seam(edit func(f frame) []frame) func() rewriter {
	return func() rewriter {
		begun, done := false, false
		return rewriter{in: func(f frame) []frame {
			begun = begun || f.Type == arcp.SessionResumed
			if !begun || done || !f.event() {
				return []frame{f}
			}
			done = true
			return edit(f)
		}}
	}
}

// resumeFaults break the rules for resuming a session.
var resumeFaults = []Fault{
	{Name: "echo another position", Says: "replayed_from is always 0", Shows: []string{"resume.answer"},
		newRewriter: every(arcp.SessionResumed, func(f frame) frame { return f.withPayload("replayed_from", 0) })},
	{Name: "deny the replay", Says: "replayed is always false", Shows: []string{"resume.answer"},
		newRewriter: every(arcp.SessionResumed, func(f frame) frame { return f.withPayload("replayed", false) })},
	{Name: "resume a new session", Says: "session.resumed names another session", Shows: []string{"resume.answer"},
		newRewriter: every(arcp.SessionResumed, func(f frame) frame {
			return f.with("session_id", "sess_new").withPayload("session_id", "sess_new")
		})},
	{Name: "number session.resumed", Says: "the answer to a resume is numbered", Shows: []string{"resume.answer"},
		newRewriter: every(arcp.SessionResumed, func(f frame) frame { return f.with("event_seq", 1) })},
	{Name: "keep the token", Says: "a resume gives the token that was used", Shows: []string{"resume.answer"}, newRewriter: keepToken},
	{Name: "never retire a token", Says: "a token that was used is good again", Shows: []string{"resume.token-used"}, across: oldTokens},
	{Name: "retire a token at once", Says: "a token is good for nothing although its successor was lost", Shows: []string{"resume.token-lost"}, across: onceOnly},
	{Name: "take any token", Says: "a wrong token resumes the last session", Shows: []string{"resume.token-wrong"}, across: anyToken},
	{Name: "refuse resumes as unauthenticated", Says: "a wrong token is UNAUTHENTICATED", Shows: []string{"resume.token-wrong", "resume.three-failures"},
		newRewriter: every(arcp.SessionRejected, func(f frame) frame { return f.withPayload("code", arcp.CodeUnauthenticated) })},
	{Name: "hang up on the third failure with another code", Says: "three wrong tokens end with 1000", Shows: []string{"resume.three-failures"},
		newRewriter: ending(transport.CloseNormal)},
	{Name: "resume from the future", Says: "a position that was not reached counts as the last", Shows: []string{"resume.beyond"},
		newRewriter: asked(arcp.SessionResume, func(f frame) frame {
			if f.number("last_event_seq") > 3 {
				f = f.withPayload("last_event_seq", 0)
			}
			return f
		})},
	{Name: "perform what came early", Says: "a ping before session.resumed is answered", Shows: []string{"resume.dropped-before"},
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
	{Name: "open anew", Says: "session.open makes a new session whatever it names", Shows: []string{"resume.open-own", "takeover.open"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame { return f.with("session_id", nil) })},
	{Name: "open at the start", Says: "last_event_seq in session.open is ignored", Shows: []string{"resume.open-own"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame {
			if f.SessionID != "" {
				f = f.withPayload("last_event_seq", 0)
			}
			return f
		})},
	{Name: "open and replay", Says: "without a position everything comes again", Shows: []string{"resume.open-goes-on", "resume.open-goes-on-acked", "takeover.open-goes-on"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame {
			if f.SessionID != "" && f.number("last_event_seq") == 0 {
				f = f.withPayload("last_event_seq", 0)
			}
			return f
		})},
	{Name: "open from the future", Says: "session.open ignores a position that was not reached", Shows: []string{"resume.open-beyond"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame { return f.withPayload("last_event_seq", nil) })},
	{Name: "open what is asked for", Says: "session.open gives the session it names, whoever asks", Shows: []string{"resume.open-foreign", "resume.open-unknown"},
		newRewriter: giveNamed},
	{Name: "negotiate again", Says: "taking over with session.open negotiates anew", Shows: []string{"resume.open-features"},
		newRewriter: every(arcp.SessionAccepted, func(f frame) frame {
			return f.withPayload("capabilities", struct{}{})
		})},
	{Name: "position at the message", Says: "resume repeats the message it names", Shows: []string{"resume.after-message"}, across: oneBefore},
	{Name: "position nowhere", Says: "resume after an unknown message is accepted", Shows: []string{"resume.message-unknown"},
		newRewriter: instead(arcp.CodeDataLoss, arcp.Ack, struct{}{})},
	{Name: "say not what is kept", Says: "DATA_LOSS has no details", Shows: []string{"resume.message-unknown", "feeds.since-unknown"},
		newRewriter: every(arcp.Nack, func(f frame) frame { return f.withPayload("details", nil) })},
	{Name: "resume in silence", Says: "resume has no answer", Shows: []string{"resume.after-message"}, newRewriter: never(arcp.Ack)},
	{Name: "ignore checkpoints as positions", Says: "checkpoint_id in resume is ignored", Shows: []string{"resume.checkpoint", "resume.both"}, Mute: true,
		newRewriter: asked(arcp.Resume, func(f frame) frame { return f.withPayload("checkpoint_id", nil) })},
	{Name: "change the position late", Says: "resume is accepted at any time", Shows: []string{"resume.too-late"},
		newRewriter: instead(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Name: "close for good", Says: "session.close ends the session", Shows: []string{"resume.closed"},
		newRewriter: asked(arcp.SessionClose, func(f frame) frame { return f.withPayload("forget", true) })},
	{Name: "forget nothing", Says: "forget in session.close is ignored", Shows: []string{"resume.forgotten"},
		newRewriter: asked(arcp.SessionClose, func(f frame) frame { return f.withPayload("forget", nil) })},
	{Name: "say nothing of the eviction", Says: "session.evicted is not sent", Shows: []string{"resume.evicted", "sessions.evict"},
		newRewriter: never(arcp.SessionEvicted)},
	{Name: "supersede with another code", Says: "the older connection ends with 1000", Shows: []string{"takeover.superseded", "takeover.open", "takeover.while-running"},
		newRewriter: ending(transport.CloseNormal)},
	{Name: "serve everybody", Says: "every connection that shows the token gets an answer to its ping", Shows: []string{"takeover.race"},
		newRewriter: serveAll},
	{Name: "unfollow on resume", Says: "a resumed session does not follow any more", Shows: []string{"resume.following"}, Mute: true,
		newRewriter: taken(func(f frame) []frame {
			if f.event() {
				return nil
			}
			return []frame{f}
		})},
}

func keepToken() rewriter {
	var token string
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.SessionResume {
				token = f.word("resume_token")
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

// tokens makes stages that put another token into a session.resume: pick is
// given the tokens that were handed out, the newest last, and how often the one
// was shown before.
func tokens(pick func(given []string, shown string, before int) string) func() func() rewriter {
	return func() func() rewriter {
		var given []string
		times := map[string]int{}
		return func() rewriter {
			return rewriter{
				out: func(f frame) []frame {
					if f.Type != arcp.SessionResume {
						return []frame{f}
					}
					shown := f.word("resume_token")
					times[shown]++
					return []frame{f.withPayload("resume_token", pick(given, shown, times[shown]-1))}
				},
				in: func(f frame) []frame {
					if f.Type == arcp.SessionResumed || f.Type == arcp.SessionAccepted {
						given = append(given, f.word("resume_token"))
					}
					return []frame{f}
				},
			}
		}
	}
}

// oldTokens puts the newest token in the place of any that was handed out.
var oldTokens = tokens(func(given []string, shown string, _ int) string {
	if slices.Contains(given, shown) {
		return given[len(given)-1]
	}
	return shown
})

// anyToken replaces an invalid token by the newest one.
var anyToken = tokens(func(given []string, shown string, _ int) string {
	if len(given) > 0 && !slices.Contains(given, shown) {
		return given[len(given)-1]
	}
	return shown
})

// onceOnly spoils a token that is shown again.
var onceOnly = tokens(func(_ []string, shown string, before int) string {
	if before > 0 {
		return "rt_spoiled"
	}
	return shown
})

// giveNamed names the session that a session.open asked for in every frame.
func giveNamed() rewriter {
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

// oneBefore puts the event before the one that a position names in its place.
func oneBefore() func() rewriter {
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
					if id := before[arcp.MessageID(f.word("after_message_id"))]; id != "" {
						f = f.withPayload("after_message_id", id)
					}
				case arcp.Subscribe:
					p, _ := arcp.DecodePayload[arcp.SubscribePayload](&f.Envelope) // one that is wrong passes
					if p.Since != nil && before[p.Since.AfterMessageID] != "" {
						f = f.withPayload("since", arcp.Since{AfterMessageID: before[p.Since.AfterMessageID]})
					}
				}
				return []frame{f}
			},
		}
	}
}

// serveAll answers pings on a connection that has ended.
func serveAll() rewriter {
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

// closedBy is err with another code if it is the server's closing.
func closedBy(err error, code transport.CloseCode) error {
	if closed, ok := errors.AsType[*transport.Error](err); ok && closed.Remote {
		return &transport.Error{Code: code, Reason: "oops", Remote: true}
	}
	return err
}

// wrapped is a subscribe.event like f that brings another envelope.
func (f frame) wrapped(inner []byte) frame {
	return f.withNewID().withPayload("event", arcp.Raw(inner))
}
