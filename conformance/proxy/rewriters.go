package proxy

import (
	"encoding/json"
	"errors"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// rewriteReceived returns rewriters that replace each frame of the server.
func rewriteReceived(in func(f frame) []frame) func() rewriter {
	return func() rewriter { return rewriter{in: in} }
}

// editReceived returns rewriters that edit each frame of type typ from the server.
func editReceived(typ arcp.Type, edit func(f frame) frame) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if f.Type == typ {
			f = edit(f)
		}
		return []frame{f}
	})
}

// editEvents returns rewriters that edit each event.
func editEvents(edit func(f frame) frame) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if f.event() {
			f = edit(f)
		}
		return []frame{f}
	})
}

// swap returns rewriters that exchange a frame selected by first with the next frame selected by
// second. With renumber the two frames also exchange their event numbers.
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

// rewriteResumed returns rewriters that replace each frame after session.resumed.
func rewriteResumed(edit func(f frame) []frame) func() rewriter {
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

// editReplayed returns rewriters that edit each event after session.resumed.
func editReplayed(edit func(f frame) frame) func() rewriter {
	return rewriteResumed(func(f frame) []frame {
		if f.event() {
			f = edit(f)
		}
		return []frame{f}
	})
}

// editSent returns rewriters that edit each frame of type typ from the client.
func editSent(typ arcp.Type, edit func(f frame) frame) func() rewriter {
	return func() rewriter {
		return rewriter{out: func(f frame) []frame {
			if f.Type == typ {
				f = edit(f)
			}
			return []frame{f}
		}}
	}
}

// closeWith returns rewriters that replace the close code of the server.
func closeWith(code transport.CloseCode) func() rewriter {
	return func() rewriter { return rewriter{end: func(err error) error { return closedBy(err, code) }} }
}

// dropReceived returns rewriters that drop each frame of type typ from the server.
func dropReceived(typ arcp.Type) func() rewriter {
	return dropWhere(func(f frame) bool { return f.Type == typ })
}

// replaceNack returns rewriters that replace each nack with the code by a message of type typ.
func replaceNack(code arcp.Code, typ arcp.Type, payload any) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if f.Type == arcp.Nack && f.code() == code {
			f = f.with("type", typ).with("payload", payload)
		}
		return []frame{f}
	})
}

// closedBy replaces the close code in err, if the server closed the connection.
func closedBy(err error, code transport.CloseCode) error {
	if closed, ok := errors.AsType[*transport.Error](err); ok && closed.Remote {
		return &transport.Error{Code: code, Reason: "oops", Remote: true}
	}
	return err
}

// rewriteFirstResumed returns rewriters that replace the first event after session.resumed.
func rewriteFirstResumed(edit func(f frame) []frame) func() rewriter {
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

// replaceCode returns rewriters that replace the code from by to in failures.
func replaceCode(from, to arcp.Code) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if (f.Type == arcp.JobFailed || f.Type == arcp.Nack || f.Type == arcp.HumanInputCancelled) && f.code() == from {
			f = f.withPayload("code", to)
		}
		return []frame{f}
	})
}

// completeFailed returns rewriters that complete each job that failed with the code.
func completeFailed(code arcp.Code) func() rewriter {
	return editReceived(arcp.JobFailed, func(f frame) frame {
		if f.event() && f.code() == code {
			f = f.with("type", arcp.JobCompleted).with("payload", json.RawMessage(`{"value":{"allowed":true}}`))
		}
		return f
	})
}

// dropEvents returns rewriters that drop the selected events and renumber the later events.
func dropEvents(selects func(f frame) bool) func() rewriter {
	return func() rewriter {
		gone := uint64(0)
		return rewriter{in: func(f frame) []frame {
			switch {
			case !f.event():
				return []frame{f}
			case selects(f):
				gone++
				return nil
			}
			return []frame{f.with("event_seq", f.EventSeq-gone)}
		}}
	}
}

// insertEvents returns a rewriter that inserts the event returned by more after its argument, and
// renumbers the later events.
func insertEvents(more func(f frame) (frame, bool)) rewriter {
	last, added := uint64(0), uint64(0)
	return rewriter{in: func(f frame) []frame {
		extra, ok := more(f)
		if f.event() {
			f = f.with("event_seq", f.EventSeq+added)
			last = f.EventSeq
		}
		if !ok {
			return []frame{f}
		}
		added, last = added+1, last+1
		return []frame{f, extra.with("event_seq", last)}
	}}
}

// withoutArgument returns rewriters that remove the argument name from calls of the tool.
func withoutArgument(tool, name string) func() rewriter {
	return editSent(arcp.ToolInvoke, func(f frame) frame {
		return f.editArguments(tool, func(args map[string]json.RawMessage) { delete(args, name) })
	})
}

// replaceReceived returns rewriters that replace a text in frames of the server.
func replaceReceived(old, text string) func() rewriter {
	return rewriteReceived(func(f frame) []frame { return []frame{f.replace(old, text)} })
}

// replaceSent returns rewriters that replace a text in frames of the client.
func replaceSent(old, text string) func() rewriter {
	return func() rewriter {
		return rewriter{out: func(f frame) []frame { return []frame{f.replace(old, text)} }}
	}
}

// replaceResult returns rewriters that replace a text in job.completed.
func replaceResult(old, text string) func() rewriter {
	return editReceived(arcp.JobCompleted, func(f frame) frame { return f.replace(old, text) })
}

// dropAndRenumber returns rewriters that drop the event with number n and renumber the later
// events.
func dropAndRenumber(n uint64) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		switch {
		case f.EventSeq == n:
			return nil
		case f.EventSeq > n:
			return []frame{f.with("event_seq", f.EventSeq-1)}
		}
		return []frame{f}
	})
}

// insertBeforePong returns rewriters that insert a frame made from each pong before the pong.
func insertBeforePong(extra func(f frame) frame) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if f.Type != arcp.Pong {
			return []frame{f}
		}
		return []frame{extra(f.withNewID()), f}
	})
}

// answerBeforePong returns a rewriter that answers the first pending selected message before the
// next pong.
func answerBeforePong(selects func(f frame) bool, waiting []arcp.MessageID, typ arcp.Type, payload any) rewriter {
	return rewriter{
		out: func(f frame) []frame {
			if selects(f) {
				waiting = append(waiting, f.ID)
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type != arcp.Pong || len(waiting) == 0 {
				return []frame{f}
			}
			answer := f.withNewID().with("type", typ).with("payload", payload).with("correlation_id", waiting[0])
			waiting = nil
			return []frame{answer, f}
		},
	}
}

// editForwarded returns rewriters that edit each event inside a subscribe.event.
func editForwarded(edit func(in frame) frame) func() rewriter {
	return editReceived(arcp.SubscribeEvent, func(f frame) frame {
		if in := f.forwarded(); in.event() {
			f = f.withPayload("event", arcp.Raw(edit(in).text))
		}
		return f
	})
}

func forwardsEvent(seq uint64) func(frame) bool {
	return func(f frame) bool { return f.forwarded().EventSeq == seq }
}

// rewriteForwarded returns rewriters that replace the subscribe.event with the event number seq.
func rewriteForwarded(seq uint64, edit func(f frame) []frame) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if forwardsEvent(seq)(f) {
			return edit(f)
		}
		return []frame{f}
	})
}

// acceptSubscribe returns rewriters that replace the refusal of a subscribe with the code by
// subscribe.accepted.
func acceptSubscribe(code arcp.Code) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if f.Type != arcp.Nack || f.code() != code {
			return []frame{f}
		}
		return []frame{f.with("type", arcp.SubscribeAccepted).with("subscription_id", "sub_1").
			with("payload", arcp.SubscribeAcceptedPayload{SubscriptionID: "sub_1"})}
	})
}

// editFilter returns rewriters that edit the filter of each subscribe.
func editFilter(edit func(filter map[string]arcp.Raw)) func() rewriter {
	return editSent(arcp.Subscribe, func(f frame) frame {
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

// dropWhere returns rewriters that drop the selected frames of the server.
func dropWhere(selects func(f frame) bool) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if selects(f) {
			return nil
		}
		return []frame{f}
	})
}

// duplicateWhere returns rewriters that send a copy after each selected frame of the server.
func duplicateWhere(selects func(f frame) bool, copyOf func(f frame) frame) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if selects(f) {
			return []frame{f, copyOf(f)}
		}
		return []frame{f}
	})
}

func sameFrame(f frame) frame { return f }
