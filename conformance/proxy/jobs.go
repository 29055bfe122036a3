package proxy

import (
	"bytes"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// flowFaults are defects of acknowledgements.
var flowFaults = []Fault{
	{Defect: "session.ack releases two events more than acknowledged", Checks: []string{"flow.unacknowledged"},
		newRewriter: editSent(arcp.SessionAck, func(f frame) frame {
			return f.withPayload("last_processed_seq", f.numberMember("last_processed_seq")+2)
		})},
	{Defect: "session.ack beyond the last event releases later events in advance", Checks: []string{"flow.beyond"}, House: true,
		newShared: releaseUnsent},
	{Defect: "session.ack with a smaller number is refused", Checks: []string{"flow.backwards"}, House: true, newRewriter: refuseSmaller},
	{Defect: "session.ack is answered", Checks: []string{"flow.unacknowledged", "unimplemented.silent-types"}, House: true, newRewriter: answerAcks},
	{Defect: "a resume from an acknowledged position skips the released events", Checks: []string{"flow.advisory"}, newRewriter: skipReleased},
	{Defect: "session.ack opens the window two events too far", Checks: []string{"flow.window"}, House: true,
		newRewriter: editSent(arcp.SessionAck, func(f frame) frame {
			return f.withPayload("last_processed_seq", f.numberMember("last_processed_seq")+2)
		})},
	{Defect: "a full ack window also delays answers", Checks: []string{"flow.window"}, House: true, Silent: true, newRewriter: dropReceived(arcp.Pong)},
	{Defect: "the ack window requested in session.open is ignored", Checks: []string{"flow.window-asked"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame { return f.withPayload("capabilities", map[string]bool{"ack": true}) })},
	{Defect: "the ack window requested in session.resume is ignored", Checks: []string{"flow.window-asked"}, House: true,
		newRewriter: editSent(arcp.SessionResume, func(f frame) frame { return f.withPayload("ack_window", nil) })},
	{Defect: "events are held back from a session without an ack window", Checks: []string{"flow.window-free"}, House: true, Silent: true,
		newRewriter: dropWhere(func(f frame) bool { return f.EventSeq > 100 })},
	{Defect: "backpressure is never sent", Checks: []string{"flow.lag"}, House: true, newRewriter: dropReceived(arcp.Backpressure)},
	{Defect: "backpressure is sent twice", Checks: []string{"flow.lag"}, House: true,
		newRewriter: duplicateWhere(func(f frame) bool { return f.Type == arcp.Backpressure }, frame.withNewID)},
	{Defect: "backpressure has an event_seq", Checks: []string{"flow.lag"}, House: true,
		newRewriter: editReceived(arcp.Backpressure, func(f frame) frame { return f.with("event_seq", 1) })},
}

// releaseUnsent refuses to resume a session that acknowledged events never sent to it.
func releaseUnsent() func() rewriter {
	last, acked := uint64(0), uint64(0)
	return func() rewriter {
		return rewriter{
			out: func(f frame) []frame {
				if f.Type == arcp.SessionAck {
					acked = max(acked, f.numberMember("last_processed_seq"))
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

// refuseSmaller refuses an acknowledgement with a smaller number than an earlier one.
func refuseSmaller() rewriter {
	acked := uint64(0)
	var refused []arcp.MessageID
	return answerBeforePong(func(f frame) bool {
		n := f.numberMember("last_processed_seq")
		smaller := f.Type == arcp.SessionAck && n < acked
		acked = max(acked, n)
		return smaller
	}, refused, arcp.Nack, arcp.Errorf(arcp.CodeOutOfRange, "smaller than before"))
}

// answerAcks answers each acknowledgement before the next pong.
func answerAcks() rewriter {
	return answerBeforePong(func(f frame) bool { return f.Type == arcp.SessionAck }, nil, arcp.Ack, struct{}{})
}

// skipReleased replaces the refusal of a resume by a session that starts at a later event.
func skipReleased() rewriter {
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
				ReplayedFrom: asked.numberMember("last_event_seq"), Replayed: true})}
		},
	}
}

// dropUnsubscribed drops events of each job that the client has unsubscribed from.
func dropUnsubscribed() rewriter {
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

// dedupFaults are defects of repeated submits.
var dedupFaults = []Fault{
	{Defect: "an idempotency key used for another request is ignored and the request runs", Checks: []string{"dedup.key-reused"},
		newRewriter: rewriteReusedKey(func(f, _ frame) frame { return f.with("idempotency_key", nil) })},
	{Defect: "an idempotency key used for another request returns the first job", Checks: []string{"dedup.key-reused"},
		newRewriter: rewriteReusedKey(func(f, first frame) frame { return first.with("id", f.ID) })},
	{Defect: "job.unsubscribe also stops the events for a repeated submit", Checks: []string{"dedup.unsubscribe"}, House: true, Silent: true,
		newRewriter: dropUnsubscribed},
	{Defect: "a submit repeated on a later connection runs again", Checks: []string{"dedup.ended", "dedup.running", "dedup.takeover", "dedup.unanswered"},
		newShared: rerunRepeated},
	{Defect: "a submit repeated on a later connection is not answered", Checks: []string{"dedup.ended"}, House: true, Silent: true,
		newShared: dropRepeated},
	{Defect: "a submit repeated on a later connection does not receive the end of its job", Checks: []string{"dedup.ended", "dedup.takeover", "dedup.unanswered"}, Silent: true,
		newRewriter: rewriteResumed(func(f frame) []frame {
			if f.Type == arcp.JobCompleted {
				return nil
			}
			return []frame{f}
		})},
	{Defect: "a submit repeated on one connection is answered each time", Checks: []string{"dedup.same-connection"}, House: true, newRewriter: performCopies},
	{Defect: "a refused submit repeated on a later connection is not answered", Checks: []string{"dedup.refused"}, House: true, Silent: true,
		newRewriter: rewriteResumed(func(f frame) []frame {
			if f.Type == arcp.JobFailed {
				return nil
			}
			return []frame{f}
		})},
}

// rewriteReusedKey returns rewriters that replace a submit with a used idempotency key and another
// payload.
func rewriteReusedKey(other func(f, first frame) frame) func() rewriter {
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

// rerunRepeated gives a submit repeated on another connection a new id, and its answers the
// original correlation_id.
func rerunRepeated() func() rewriter {
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

// dropRepeated drops a submit that was sent on another connection before.
func dropRepeated() func() rewriter {
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

// livenessFaults are defects of keepalive.
var livenessFaults = []Fault{
	{Defect: "session.ping is never sent", Checks: []string{"liveness.ping"}, Silent: true, newRewriter: dropReceived(arcp.SessionPing)},
	{Defect: "session.ping has an event_seq", Checks: []string{"liveness.ping"},
		newRewriter: editReceived(arcp.SessionPing, func(f frame) frame { return f.with("event_seq", 1) })},
	{Defect: "every session.ping has the same nonce", Checks: []string{"liveness.ping"},
		newRewriter: editReceived(arcp.SessionPing, func(f frame) frame { return f.withPayload("nonce", "same") })},
	{Defect: "session.ping has no sent_at", Checks: []string{"liveness.ping"}, House: true,
		newRewriter: editReceived(arcp.SessionPing, func(f frame) frame { return f.withPayload("sent_at", nil) })},
	{Defect: "session.ping is sent to a session without heartbeat", Checks: []string{"liveness.negotiated"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame {
			if f.Type != arcp.JobStarted {
				return []frame{f}
			}
			ping := f.withNewID().with("type", arcp.SessionPing).with("event_seq", nil).with("job_id", nil).with("correlation_id", nil)
			return []frame{f, ping.with("payload", arcp.SessionPingPayload{Nonce: "n", SentAt: f.Timestamp})}
		})},
	{Defect: "a silent client is disconnected with code 1011", Checks: []string{"liveness.silence"},
		newRewriter: closeWith(transport.CloseInternal)},
}

// startFaults are defects of workflow.start and agent.delegate.
var startFaults = []Fault{
	{Defect: "a workflow ends with job.completed", Checks: []string{"jobs.workflow"}, House: true,
		newRewriter: editReceived(arcp.WorkflowComplete, func(f frame) frame { return f.with("type", arcp.JobCompleted) })},
	{Defect: "a delegated task arrives without its context", Checks: []string{"jobs.delegation"}, House: true,
		newRewriter: editSent(arcp.AgentDelegate, func(f frame) frame { return f.withPayload("context", nil) })},
}

// retryFaults are defects of attempts and their outcome.
var retryFaults = []Fault{
	{Defect: "retry in a submit is ignored", Checks: []string{"retry.attempts", "retry.floor"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("retry", nil) })},
	{Defect: "a failed job is retried without a request or against a final error", Checks: []string{"retry.off", "retry.final"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			return f.withPayload("retry", arcp.Raw(`{"max_attempts":2,"initial_ms":1}`)).
				withPayload("arguments", arcp.Raw(`{"code":"UNAVAILABLE","message":"m"}`))
		})},
	{Defect: "the retry event has the number of the failed attempt instead of the next one", Checks: []string{"retry.attempts"}, House: true,
		newRewriter: editReceived(arcp.EventEmit, func(f frame) frame {
			return f.withPayload("data", arcp.Raw(`{"attempt":1,"code":"UNAVAILABLE","delay_ms":10}`))
		})},
	{Defect: "the retry event has the wrong name", Checks: []string{"retry.attempts"}, House: true,
		newRewriter: editReceived(arcp.EventEmit, func(f frame) frame { return f.withPayload("name", "again") })},
	{Defect: "the job fails at its first failed attempt", Checks: []string{"retry.attempts", "retry.queued"}, House: true,
		newRewriter: editReceived(arcp.EventEmit, func(f frame) frame {
			return f.with("type", arcp.JobFailed).with("payload", arcp.Errorf(arcp.CodeUnavailable, "not now"))
		})},
	{Defect: "a retry starts without the requested delay", Checks: []string{"retry.floor"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			return f.withPayload("arguments", arcp.Raw(`{"code":"UNAVAILABLE","message":"m"}`))
		})},
	{Defect: "a job between two attempts has the status running", Checks: []string{"retry.queued"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame {
			p, err := arcp.DecodePayload[arcp.SessionJobsPayload](&f.Envelope)
			if err != nil {
				return f
			}
			for i := range p.Jobs {
				p.Jobs[i].Status = string(arcp.StateRunning)
			}
			return f.with("payload", p)
		})},
	{Defect: "a job is not retried while its client is disconnected", Checks: []string{"retry.away"}, House: true, Silent: true,
		newRewriter: rewriteResumed(func(f frame) []frame {
			if f.event() {
				return nil
			}
			return []frame{f}
		})},
	{Defect: "an invalid retry option is ignored", Checks: []string{"retry.malformed"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("retry", nil) })},
	{Defect: "heartbeat_recovery is not advertised", Checks: []string{"recovery.heartbeat-recovery"},
		newRewriter: replaceReceived(`"heartbeat_recovery":`, `"no_recovery":`)},
	{Defect: "every checkpoint has the same id", Checks: []string{"recovery.checkpoints"},
		newRewriter: editReceived(arcp.JobCheckpoint, func(f frame) frame { return f.withPayload("checkpoint_id", "chk_same") })},
	{Defect: "a checkpoint is sent before the progress that it contains", Checks: []string{"recovery.checkpoints"}, House: true,
		newRewriter: swap(isType(arcp.JobProgress), isType(arcp.JobCheckpoint), true)},
	{Defect: "job.checkpoint is sent to a session without checkpoints", Checks: []string{"recovery.checkpoints-negotiated", "recovery.checkpoints-followed"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			return f.withPayload("capabilities", arcp.Raw(`{"checkpoints":true}`))
		})},
	{Defect: "the checkpoint that a client requests has another label", Checks: []string{"recovery.create"}, House: true,
		newRewriter: editSent(arcp.CheckpointCreate, func(f frame) frame { return f.withPayload("label", "another") })},
	{Defect: "checkpoint.create is accepted for every job", Checks: []string{"recovery.create-refused"}, House: true,
		newRewriter: replaceNack(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Defect: "a restored job reports the wrong checkpoint in resumed_from", Checks: []string{"recovery.restore"}, House: true,
		newRewriter: replaceReceived(`"resumed_from":3`, `"resumed_from":5`)},
	{Defect: "an unknown checkpoint can be restored", Checks: []string{"recovery.restore-unknown"}, House: true,
		newRewriter: editReceived(arcp.Nack, func(f frame) frame { return f.with("type", arcp.Ack).with("payload", struct{}{}) })},
	{Defect: "jobs.wait returns a job before it has ended", Checks: []string{"recovery.wait"}, House: true, newRewriter: replaceResult(`"status":"cancelled"`, `"status":"running"`)},
	{Defect: "jobs.delete deletes nothing", Checks: []string{"recovery.delete"}, House: true, newRewriter: replaceSent(`"jobs.delete"`, `"jobs.get"`)},
	{Defect: "the stored outcome of a job differs from its final event", Checks: []string{"recovery.outcome"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("message", "another") })},
}

// sessionFaults are defects of the tools whose names begin with "sessions.".
var sessionFaults = []Fault{
	{Defect: "sessions.list reports every session as connected", Checks: []string{"sessions.list"}, House: true, Silent: true, newRewriter: replaceReceived("detached", "connected")},
	{Defect: "sessions.list returns the first page for every cursor", Checks: []string{"sessions.pages"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame {
			var args map[string]arcp.Raw
			if p, err := arcp.DecodePayload[arcp.ToolInvokePayload](&f.Envelope); err != nil || arcp.Unmarshal(p.Arguments, &args) != nil || args["cursor"] == nil {
				return f
			}
			delete(args, "cursor")
			return f.withPayload("arguments", args)
		})},
	{Defect: "sessions.evict with forget false ends the session", Checks: []string{"sessions.evict"}, House: true, newRewriter: replaceSent(`"forget":false`, `"forget":true`)},
	{Defect: "forget in sessions.evict is ignored", Checks: []string{"sessions.evict-forget"}, House: true, newRewriter: replaceSent(`"forget":true`, `"forget":false`)},
	{Defect: "sessions.evict succeeds for an unknown session", Checks: []string{"sessions.evict-unknown", "sessions.other-principal"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame {
			return f.with("type", arcp.JobCompleted).with("payload", arcp.JobCompletedPayload{Value: arcp.Raw(`{"evicted":true}`)})
		})},
}
