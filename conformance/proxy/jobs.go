package proxy

import (
	"bytes"
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// flowFaults break the rules for acknowledgements.
var flowFaults = []Fault{
	{Name: "free too much", Says: "an acknowledgement frees two events more than it says", Shows: []string{"flow.unacknowledged"},
		newRewriter: asked(arcp.SessionAck, func(f frame) frame { return f.withPayload("last_processed_seq", f.number("last_processed_seq")+2) })},
	{Name: "believe any acknowledgement", Says: "what comes after an acknowledgement beyond the last event is freed as well", Shows: []string{"flow.beyond"},
		across: believeAcks},
	{Name: "refuse a smaller acknowledgement", Says: "a smaller acknowledgement is refused", Shows: []string{"flow.backwards"}, newRewriter: refuseSmaller},
	{Name: "answer acknowledgements", Says: "an acknowledgement is answered", Shows: []string{"flow.unacknowledged", "unimplemented.silent-types"}, newRewriter: answerAcks},
	{Name: "gap after a free", Says: "a resume before what was acknowledged begins after it", Shows: []string{"flow.advisory"}, newRewriter: skipFreed},
	{Name: "move the window", Says: "an acknowledgement lets more events through than it says", Shows: []string{"flow.window"},
		newRewriter: asked(arcp.SessionAck, func(f frame) frame { return f.withPayload("last_processed_seq", f.number("last_processed_seq")+2) })},
	{Name: "hold answers back", Says: "a full window holds answers back too", Shows: []string{"flow.window"}, Mute: true, newRewriter: never(arcp.Pong)},
	{Name: "no window for the asking", Says: "a window that the client asks for does not apply", Shows: []string{"flow.window-asked"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame { return f.withPayload("capabilities", map[string]bool{"ack": true}) })},
	{Name: "a window for one connection", Says: "a window that is asked for by session.resume does not apply", Shows: []string{"flow.window-asked"},
		newRewriter: asked(arcp.SessionResume, func(f frame) frame { return f.withPayload("ack_window", nil) })},
	{Name: "a window for everybody", Says: "events of a session that never acknowledges are held back", Shows: []string{"flow.window-free"}, Mute: true,
		newRewriter: change(func(f frame) []frame {
			if f.EventSeq > 100 {
				return nil
			}
			return []frame{f}
		})},
	{Name: "do not warn", Says: "a client that falls behind is not told", Shows: []string{"flow.lag"}, newRewriter: never(arcp.Backpressure)},
	{Name: "warn twice", Says: "a client that falls behind is told twice", Shows: []string{"flow.lag"},
		newRewriter: change(func(f frame) []frame {
			if f.Type == arcp.Backpressure {
				return []frame{f, f.withNewID()}
			}
			return []frame{f}
		})},
	{Name: "number a warning", Says: "backpressure is numbered", Shows: []string{"flow.lag"},
		newRewriter: every(arcp.Backpressure, func(f frame) frame { return f.with("event_seq", 1) })},
}

// believeAcks refuses to resume a session that acknowledged events it was never sent.
func believeAcks() func() rewriter {
	last, acked := uint64(0), uint64(0)
	return func() rewriter {
		return rewriter{
			out: func(f frame) []frame {
				if f.Type == arcp.SessionAck {
					acked = max(acked, f.number("last_processed_seq"))
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				if last = max(last, f.EventSeq); f.Type == arcp.SessionResumed && acked > last {
					f = f.with("type", arcp.SessionRejected).with("session_id", nil).
						with("payload", arcp.Errorf(arcp.CodeResumeWindowExpired, "not kept"))
				}
				return []frame{f}
			},
		}
	}
}

// refuseSmaller refuses, before the next pong, an acknowledgement that is
// smaller than one before.
func refuseSmaller() rewriter {
	acked := uint64(0)
	var refused []arcp.MessageID
	return beforePong(func(f frame) bool {
		n := f.number("last_processed_seq")
		smaller := f.Type == arcp.SessionAck && n < acked
		acked = max(acked, n)
		return smaller
	}, refused, arcp.Nack, arcp.Errorf(arcp.CodeOutOfRange, "smaller than before"))
}

// answerAcks answers, before the next pong, every acknowledgement.
func answerAcks() rewriter {
	return beforePong(func(f frame) bool { return f.Type == arcp.SessionAck }, nil, arcp.Ack, struct{}{})
}

// beforePong answers the last message that is selected before the next pong.
func beforePong(selects func(f frame) bool, waiting []arcp.MessageID, typ arcp.Type, payload any) rewriter {
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

// skipFreed turns the refusal of a resume into a session that begins later.
func skipFreed() rewriter {
	var asked frame
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.SessionResume {
				asked = f
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type != arcp.SessionRejected {
				return []frame{f}
			}
			resumed := f.with("type", arcp.SessionResumed).with("session_id", "sess_1")
			return []frame{resumed.with("payload", arcp.SessionResumedPayload{SessionID: "sess_1", ResumeToken: "rt_1",
				ReplayedFrom: asked.number("last_event_seq"), Replayed: true})}
		},
	}
}

// forgetRetry withholds events of jobs that the client has unsubscribed from.
func forgetRetry() rewriter {
	gone := make(map[arcp.JobID]bool)
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.JobUnsubscribe {
				if p, err := arcp.DecodePayload[arcp.JobUnsubscribePayload](&f.Envelope); err == nil {
					gone[p.JobID] = true
				}
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if gone[f.JobID] {
				return nil
			}
			return []frame{f}
		},
	}
}

// dedupFaults break the rules for repeated submits.
var dedupFaults = []Fault{
	{Name: "forget the key", Says: "a key is good for another request, which runs", Shows: []string{"dedup.key-reused"},
		newRewriter: keyOfOne(func(f, _ frame) frame { return f.with("idempotency_key", nil) })},
	{Name: "look at the key only", Says: "another request under a key is answered with the first one's job", Shows: []string{"dedup.key-reused"},
		newRewriter: keyOfOne(func(f, first frame) frame { return first.with("id", f.ID) })},
	{Name: "forget the retry", Says: "job.unsubscribe also ends what a retry waits for", Shows: []string{"dedup.unsubscribe"}, Mute: true,
		newRewriter: forgetRetry},
	{Name: "run again", Says: "a submit that is sent again on a later connection runs again", Shows: []string{"dedup.ended", "dedup.running", "dedup.takeover"},
		across: runAgain},
	{Name: "ignore what is sent again", Says: "a submit that is sent again on a later connection is not answered", Shows: []string{"dedup.ended"}, Mute: true,
		across: ignoreAgain},
	{Name: "answer without the end", Says: "a submit that is sent again is not told the end of its job", Shows: []string{"dedup.ended", "dedup.takeover"}, Mute: true,
		newRewriter: taken(func(f frame) []frame {
			if f.Type == arcp.JobCompleted {
				return nil
			}
			return []frame{f}
		})},
	{Name: "answer each copy", Says: "a submit that is sent again is answered as often as it comes", Shows: []string{"dedup.same-connection"}, newRewriter: performCopies},
	{Name: "refuse once", Says: "a refused submit that is sent again is not answered", Shows: []string{"dedup.refused"}, Mute: true,
		newRewriter: taken(func(f frame) []frame {
			if f.Type == arcp.JobFailed {
				return nil
			}
			return []frame{f}
		})},
}

// keyOfOne makes a stage that replaces submits whose key was used with another payload.
func keyOfOne(other func(f, first frame) frame) func() rewriter {
	return func() rewriter {
		var first frame
		return rewriter{out: func(f frame) []frame {
			switch {
			case f.Type != arcp.ToolInvoke || !bytes.Contains(f.text, []byte(`"idempotency_key"`)):
			case first.ID == "":
				first = f
			case !bytes.Equal(f.Payload, first.Payload):
				f = other(f, first)
			}
			return []frame{f}
		}}
	}
}

// runAgain gives a submit that is sent again on another connection an id of its
// own, and its answers the old one.
func runAgain() func() rewriter {
	seen, old := map[arcp.MessageID]bool{}, map[arcp.MessageID]arcp.MessageID{}
	return func() rewriter {
		return rewriter{
			out: func(f frame) []frame {
				if original := f.ID; f.Type == arcp.ToolInvoke && seen[original] {
					f = f.withNewID()
					old[f.ID] = original
				}
				seen[f.ID] = true
				return []frame{f}
			},
			in: func(f frame) []frame {
				if original, ok := old[f.CorrelationID]; ok {
					f = f.with("correlation_id", original)
				}
				return []frame{f}
			},
		}
	}
}

// ignoreAgain drops submits that were sent on another connection.
func ignoreAgain() func() rewriter {
	seen := map[arcp.MessageID]bool{}
	return func() rewriter {
		return rewriter{out: func(f frame) []frame {
			if f.Type == arcp.ToolInvoke && seen[f.ID] {
				return nil
			}
			seen[f.ID] = true
			return []frame{f}
		}}
	}
}

// livenessFaults break the rules for silent peers.
var livenessFaults = []Fault{
	{Name: "never ping", Says: "a session is not pinged", Shows: []string{"liveness.ping"}, Mute: true, newRewriter: never(arcp.SessionPing)},
	{Name: "number a heartbeat", Says: "session.ping is numbered", Shows: []string{"liveness.ping"},
		newRewriter: every(arcp.SessionPing, func(f frame) frame { return f.with("event_seq", 1) })},
	{Name: "ping with one nonce", Says: "every session.ping has the same nonce", Shows: []string{"liveness.ping"},
		newRewriter: every(arcp.SessionPing, func(f frame) frame { return f.withPayload("nonce", "same") })},
	{Name: "ping without a time", Says: "session.ping does not say when it was sent", Shows: []string{"liveness.ping"},
		newRewriter: every(arcp.SessionPing, func(f frame) frame { return f.withPayload("sent_at", nil) })},
	{Name: "ping everybody", Says: "a session that did not ask for it is pinged", Shows: []string{"liveness.negotiated"},
		newRewriter: change(func(f frame) []frame {
			if f.Type != arcp.JobStarted {
				return []frame{f}
			}
			ping := f.withNewID().with("type", arcp.SessionPing).with("event_seq", nil).with("job_id", nil).with("correlation_id", nil)
			return []frame{f, ping.with("payload", arcp.SessionPingPayload{Nonce: "n", SentAt: f.Timestamp})}
		})},
	{Name: "lose the peer with another code", Says: "a silent peer's connection ends with 1011", Shows: []string{"liveness.silence"},
		newRewriter: ending(transport.CloseInternal)},
}

// retryFaults break the rules for attempts and their outcome.
var retryFaults = []Fault{
	{Name: "do not retry", Says: "retry is ignored", Shows: []string{"retry.attempts", "retry.floor"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("retry", nil) })},
	{Name: "retry twice as often", Says: "every failure has another attempt", Shows: []string{"retry.off", "retry.final"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			return f.withPayload("retry", arcp.Raw(`{"max_attempts":2,"initial_ms":1}`)).
				withPayload("arguments", arcp.Raw(`{"code":"UNAVAILABLE","message":"m"}`))
		})},
	{Name: "count attempts from 0", Says: "the attempt that failed is told instead of the one to come", Shows: []string{"retry.attempts"},
		newRewriter: every(arcp.EventEmit, func(f frame) frame {
			return f.withPayload("data", arcp.Raw(`{"attempt":1,"code":"UNAVAILABLE","delay_ms":10}`))
		})},
	{Name: "call a retry otherwise", Says: "a retry is announced under another name", Shows: []string{"retry.attempts"},
		newRewriter: every(arcp.EventEmit, func(f frame) frame { return f.withPayload("name", "again") })},
	{Name: "fail every attempt", Says: "the job fails with every attempt", Shows: []string{"retry.attempts", "retry.queued"},
		newRewriter: every(arcp.EventEmit, func(f frame) frame {
			return f.with("type", arcp.JobFailed).with("payload", arcp.Errorf(arcp.CodeUnavailable, "not now"))
		})},
	{Name: "retry at once", Says: "a retry does not wait", Shows: []string{"retry.floor"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			return f.withPayload("arguments", arcp.Raw(`{"code":"UNAVAILABLE","message":"m"}`))
		})},
	{Name: "run while waiting", Says: "a job is running between its attempts", Shows: []string{"retry.queued"},
		newRewriter: every(arcp.SessionJobs, func(f frame) frame {
			p, err := arcp.DecodePayload[arcp.SessionJobsPayload](&f.Envelope)
			if err != nil {
				return f
			}
			for i := range p.Jobs {
				p.Jobs[i].Status = string(arcp.StateRunning)
			}
			return f.with("payload", p)
		})},
	{Name: "give up without a client", Says: "nothing is retried while nobody is connected", Shows: []string{"retry.away"}, Mute: true,
		newRewriter: taken(func(f frame) []frame {
			if f.event() {
				return nil
			}
			return []frame{f}
		})},
	{Name: "read any retry option", Says: "a retry option that cannot be followed is ignored", Shows: []string{"retry.malformed"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("retry", nil) })},
	{Name: "one checkpoint", Says: "every checkpoint has the same id", Shows: []string{"recovery.checkpoints"},
		newRewriter: every(arcp.JobCheckpoint, func(f frame) frame { return f.withPayload("checkpoint_id", "chk_same") })},
	{Name: "checkpoint first", Says: "a checkpoint comes before the progress it holds", Shows: []string{"recovery.checkpoints"},
		newRewriter: swap(isType(arcp.JobProgress), isType(arcp.JobCheckpoint), true)},
	{Name: "checkpoints for all", Says: "who did not negotiate checkpoints sees them", Shows: []string{"recovery.checkpoints-negotiated", "recovery.checkpoints-followed"},
		newRewriter: asked(arcp.SessionOpen, func(f frame) frame {
			return f.withPayload("capabilities", arcp.Raw(`{"checkpoints":true}`))
		})},
	{Name: "label nothing", Says: "a checkpoint that was asked for has another label", Shows: []string{"recovery.create"},
		newRewriter: asked(arcp.CheckpointCreate, func(f frame) frame { return f.withPayload("label", "another") })},
	{Name: "promise any checkpoint", Says: "checkpoint.create is accepted for any job", Shows: []string{"recovery.create-refused"},
		newRewriter: instead(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Name: "restore the last one", Says: "a restored job says that it went on from somewhere else", Shows: []string{"recovery.restore"},
		newRewriter: replaced(`"resumed_from":3`, `"resumed_from":5`)},
	{Name: "restore anything", Says: "what is not there is restored", Shows: []string{"recovery.restore-unknown"},
		newRewriter: every(arcp.Nack, func(f frame) frame { return f.with("type", arcp.Ack).with("payload", struct{}{}) })},
	{Name: "wait for nothing", Says: "jobs.wait tells what was before the end", Shows: []string{"recovery.wait"}, newRewriter: result(`"status":"cancelled"`, `"status":"running"`)},
	{Name: "keep what is to be deleted", Says: "jobs.delete deletes nothing", Shows: []string{"recovery.delete"}, newRewriter: replacedOut(`"jobs.delete"`, `"jobs.get"`)},
	{Name: "another outcome", Says: "the outcome of a job is not that of its end", Shows: []string{"recovery.outcome"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("message", "another") })},
}

// sessionFaults break the rules for the tools sessions.….
var sessionFaults = []Fault{
	{Name: "everybody is connected", Says: "every session is listed as connected", Shows: []string{"sessions.list"}, Mute: true, newRewriter: replaced("detached", "connected")},
	{Name: "one page", Says: "sessions.list returns the first page again and again", Shows: []string{"sessions.pages"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			var args map[string]arcp.Raw
			if p, err := arcp.DecodePayload[arcp.ToolInvokePayload](&f.Envelope); err != nil || arcp.Unmarshal(p.Arguments, &args) != nil || args["cursor"] == nil {
				return f
			}
			delete(args, "cursor")
			return f.withPayload("arguments", args)
		})},
	{Name: "evict for good", Says: "sessions.evict ends the session whatever it is asked", Shows: []string{"sessions.evict"}, newRewriter: replacedOut(`"forget":false`, `"forget":true`)},
	{Name: "evict for a while", Says: "forget in sessions.evict is ignored", Shows: []string{"sessions.evict-forget"}, newRewriter: replacedOut(`"forget":true`, `"forget":false`)},
	{Name: "evict anybody", Says: "ending a session that is not there succeeds", Shows: []string{"sessions.evict-unknown", "sessions.other-principal"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame {
			return f.with("type", arcp.JobCompleted).with("payload", arcp.JobCompletedPayload{Value: arcp.Raw(`{"evicted":true}`)})
		})},
}
