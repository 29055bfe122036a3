package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftErrorFaults are defects of job.error.
var draftErrorFaults = []Fault{
	{Defect: "job.error does not tell when the job failed", Checks: []string{"draft.errors.members"}, House: true,
		newRewriter: editError(func(f frame) frame { return f.withPayload("completed_at", nil) })},
	{Defect: "job.error has the code of the agent", Checks: []string{"draft.errors.closed", "draft.errors.mapped"}, House: true,
		newRewriter: editError(func(f frame) frame {
			if code := f.objectMember("details")["arcp_code"]; code != nil {
				f = f.withPayload("code", code)
			}
			return f
		})},
	{Defect: "an agent cannot fail with PERMISSION_DENIED", Checks: []string{"draft.errors.kept", "draft.errors.details"}, House: true,
		newRewriter: replaceDraftCode(arcp.CodePermissionDenied, arcp.CodeInvalidRequest)},
	{Defect: "the details of an error are lost", Checks: []string{"draft.errors.details", "draft.errors.mapped"}, House: true,
		newRewriter: editError(func(f frame) frame { return f.withPayload("details", nil) })},
	{Defect: "retryable is negated", Checks: []string{"draft.errors.retryable", "draft.errors.retryable-default", "draft.timeout.retryable", "draft.budgets.exhausted"},
		newRewriter: editError(func(f frame) frame {
			return f.withPayload("retryable", !bytes.Contains(f.Payload, []byte(`"retryable":true`)))
		})},
	{Defect: "final_status is error whatever the code", Checks: []string{"draft.errors.status", "draft.timeout.status"},
		newRewriter: editError(func(f frame) frame { return f.withPayload("final_status", "error") })},
	{Defect: "an error may have no message", Checks: []string{"draft.errors.message", "draft.cancel.reasonless", "draft.errors.members"},
		newRewriter: editError(func(f frame) frame { return f.withPayload("message", "") })},
	{Defect: "the message of a panic has its stack", Checks: []string{"draft.errors.panic"}, House: true,
		newRewriter: editError(func(f frame) frame { return f.withPayload("message", "goroutine 7 [running]: main.go:7") })},
	{Defect: "a refused submit ends the other jobs of its session", Checks: []string{"draft.errors.refusal-harmless"}, House: true,
		newRewriter: failOthers(func(f frame) bool { return f.Type == script.JobError && !f.event() })},
}

// draftCancelFaults are defects of job.cancel.
var draftCancelFaults = []Fault{
	{Defect: "job.cancelled follows the end of its job", Checks: []string{"draft.cancel.acknowledged"}, House: true,
		newRewriter: swap(isType(arcp.JobCancelled), isType(script.JobError), false)},
	{Defect: "a job.cancel must name its job in the payload", Checks: []string{"draft.cancel.envelope"}, House: true, Silent: true,
		newRewriter: editSent(script.JobCancel, func(f frame) frame { return f.with("job_id", nil) })},
	{Defect: "a job.cancel must name its job in the envelope", Checks: []string{"draft.cancel.payload"}, House: true, Silent: true,
		newRewriter: editSent(script.JobCancel, func(f frame) frame { return f.withPayload("job_id", nil) })},
	{Defect: "the reason of a cancel is lost", Checks: []string{"draft.cancel.reason"}, House: true,
		newRewriter: editSent(script.JobCancel, func(f frame) frame { return f.withPayload("reason", nil) })},
	{Defect: "the cancel of an unknown job is refused with PERMISSION_DENIED", Checks: []string{"draft.cancel.unknown"}, House: true, newRewriter: denyUnknown},
	{Defect: "the cancel of a job that has ended ends it again", Checks: []string{"draft.cancel.ended"}, newRewriter: endAgain},
	{Defect: "the cancel of a job without events is ignored", Checks: []string{"draft.cancel.at-once"}, Silent: true, newRewriter: ignoreEarlyCancel},
	{Defect: "a cancelled job has a result", Checks: []string{"draft.cancel.stubborn", "draft.cancel.again", "draft.cancel.at-once", "draft.idempotency.running"},
		newRewriter: completeDraft(arcp.CodeCancelled, `{}`)},
	{Defect: "a job ends once for each cancel", Checks: []string{"draft.cancel.again"}, House: true, newRewriter: endForEachCancel},
	{Defect: "a cancel ends every job of its session", Checks: []string{"draft.cancel.other-job"}, House: true, newRewriter: cancelAll},
	{Defect: "a session may cancel its own jobs only", Checks: []string{"draft.cancel.other-session"}, House: true, Silent: true, newRewriter: ignoreForeignCancel},
	{Defect: "another principal may cancel a job", Checks: []string{"draft.cancel.foreign"}, House: true, newShared: cancelForOthers},
}

// draftTimeoutFaults are defects of max_runtime_sec.
var draftTimeoutFaults = []Fault{
	{Defect: "max_runtime_sec is ignored", Checks: []string{"draft.timeout.end", "draft.timeout.status", "draft.timeout.retryable", "draft.timeout.others", "draft.timeout.malformed"}, Silent: true,
		newRewriter: withoutOption("max_runtime_sec")},
	{Defect: "a job that ran too long is cancelled too", Checks: []string{"draft.timeout.uncancelled"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame {
			if !f.ends() || f.code() != arcp.Code("TIMEOUT") {
				return []frame{f}
			}
			return []frame{f.withNewID().with("type", arcp.JobCancelled).with("event_seq", nil).with("payload", map[string]any{"job_id": f.JobID}), f}
		})},
	{Defect: "max_runtime_sec is one second for every job", Checks: []string{"draft.timeout.within"},
		newRewriter: editSent(script.JobSubmit, func(f frame) frame {
			if f.has("max_runtime_sec") {
				f = f.withPayload("max_runtime_sec", 1)
			}
			return f
		})},
	{Defect: "a job that ran too long ends the other jobs of its session", Checks: []string{"draft.timeout.others"},
		newRewriter: failOthers(func(f frame) bool { return f.ends() && f.code() == arcp.Code("TIMEOUT") })},
}

// draftKeyFaults are defects of idempotency_key.
var draftKeyFaults = []Fault{
	{Defect: "idempotency_key is ignored", Checks: []string{"draft.idempotency.same-session", "draft.idempotency.acceptance", "draft.idempotency.terminal", "draft.idempotency.failure",
		"draft.idempotency.running", "draft.idempotency.connections", "draft.idempotency.order", "draft.idempotency.other-request", "draft.idempotency.unharmed",
		"draft.idempotency.race"},
		newRewriter: withoutOption("idempotency_key")},
	{Defect: "a request with its members in another order is another request", Checks: []string{"draft.idempotency.order"},
		newRewriter: refuseSubmits(arcp.CodeDuplicateKey, func(f frame) bool { return bytes.Contains(f.Payload, []byte(`"c":2},"a":1`)) })},
	{Defect: "the end of a job that has ended is not told again", Checks: []string{"draft.idempotency.ended", "draft.idempotency.same-session"}, House: true, Silent: true,
		newRewriter: func() rewriter {
			ended := map[arcp.JobID]bool{}
			return dropEvents(func(f frame) bool {
				again := f.ends() && ended[f.JobID]
				ended[f.JobID] = ended[f.JobID] || f.ends()
				return again
			})()
		}},
	{Defect: "the end of a job that has ended precedes the answer to the repeated submit", Checks: []string{"draft.idempotency.ended", "draft.idempotency.same-session"}, House: true,
		newRewriter: func() rewriter {
			known := map[arcp.JobID]bool{}
			return swap(func(f frame) bool {
				again := f.Type == arcp.JobAccepted && known[f.JobID]
				known[f.JobID] = true
				return again
			}, frame.ends, false)()
		}},
	{Defect: "DUPLICATE_KEY ends the job that has the key", Checks: []string{"draft.idempotency.unharmed"}, House: true, newRewriter: refuseAsFirst},
	{Defect: "a key is common to all principals", Checks: []string{"draft.idempotency.principal"}, newShared: mergeKeys},
	{Defect: "a submit without a key is the same job as an equal one", Checks: []string{"draft.idempotency.keyless"},
		newRewriter: editSent(script.JobSubmit, func(f frame) frame { return f.withPayload("idempotency_key", f.SessionID) })},
	{Defect: "a refused submit uses its key up", Checks: []string{"draft.idempotency.refused"}, House: true,
		newRewriter: func() rewriter {
			keys := map[string]bool{}
			return refuseSubmits(arcp.CodeDuplicateKey, func(f frame) bool {
				key := f.stringMember("idempotency_key")
				used := keys[key]
				keys[key] = true
				return used
			})()
		}},
}

// editError returns rewriters that edit the end of each job that has failed.
func editError(edit func(f frame) frame) func() rewriter {
	return editReceived(script.JobError, func(f frame) frame {
		if f.event() {
			f = edit(f)
		}
		return f
	})
}

// withoutOption returns rewriters that remove the member of each submit.
func withoutOption(name string) func() rewriter {
	return editSent(script.JobSubmit, func(f frame) frame { return f.withPayload(name, nil) })
}

// completeDraft returns rewriters that complete each job that failed with the code.
func completeDraft(code arcp.Code, value string) func() rewriter {
	return editError(func(f frame) frame {
		if f.code() != code {
			return f
		}
		return f.with("type", script.JobResult).with("payload", map[string]any{"job_id": f.JobID, "final_status": "success", "completed_at": past,
			"result": json.RawMessage(value), "output": json.RawMessage(value)})
	})
}

// failed returns the end of a job, made from another frame.
func (f frame) failed(job arcp.JobID, seq uint64) frame {
	p := map[string]any{"job_id": job, "final_status": "error", "code": "INTERNAL_ERROR", "message": "failed", "retryable": true, "completed_at": past}
	return f.withNewID().with("type", script.JobError).with("job_id", job).with("event_seq", seq).with("payload", p)
}

// failOthers returns rewriters that end the oldest accepted job after each selected frame.
func failOthers(selects func(f frame) bool) func() rewriter {
	return func() rewriter {
		var jobs []arcp.JobID
		var last uint64
		return rewriter{in: func(f frame) []frame {
			last = max(last, f.EventSeq)
			switch {
			case f.Type == arcp.JobAccepted:
				jobs = append(jobs, f.JobID)
			case selects(f) && len(jobs) > 0:
				return []frame{f, f.failed(jobs[0], last+1)}
			}
			return []frame{f}
		}}
	}
}

// denyUnknown refuses the cancel of a job that the session does not have, before the next pong.
func denyUnknown() rewriter {
	jobs, denied := map[string]bool{}, false
	return rewriter{
		out: func(f frame) []frame {
			denied = denied || f.Type == script.JobCancel && !jobs[f.stringMember("job_id")]
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type == arcp.JobAccepted {
				jobs[string(f.JobID)] = true
			}
			if f.Type != arcp.SessionPong || !denied {
				return []frame{f}
			}
			denied = false
			return []frame{f.withNewID().with("type", script.SessionError).with("payload", json.RawMessage(`{"code":"PERMISSION_DENIED","message":"no","retryable":false}`)), f}
		},
	}
}

// endAgain repeats the end of a job that is cancelled after its end, before the next pong.
func endAgain() rewriter {
	ends := map[arcp.JobID]frame{}
	var again *frame
	return rewriter{
		out: func(f frame) []frame {
			if end, ended := ends[f.JobID]; ended && f.Type == script.JobCancel {
				again = &end
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.ends() {
				ends[f.JobID] = f
			}
			if f.Type != arcp.SessionPong || again == nil {
				return []frame{f}
			}
			end := again.failed(again.JobID, again.EventSeq+1)
			again = nil
			return []frame{end, f}
		},
	}
}

// ignoreEarlyCancel drops the cancel of a job that has no events.
func ignoreEarlyCancel() rewriter {
	running := map[arcp.JobID]bool{}
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == script.JobCancel && !running[f.JobID] {
				return nil
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.event() {
				running[f.JobID] = true
			}
			return []frame{f}
		},
	}
}

// endForEachCancel sends the end of a cancelled job as often as it was cancelled.
func endForEachCancel() rewriter {
	cancels := 0
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == script.JobCancel {
				cancels++
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			list := []frame{f}
			for n := 1; n < cancels && f.ends(); n++ {
				list = append(list, f.withNewID().with("event_seq", f.EventSeq+uint64(n)))
			}
			return list
		},
	}
}

// cancelAll cancels every job of the session.
func cancelAll() rewriter {
	var jobs []arcp.JobID
	return rewriter{
		out: func(f frame) []frame {
			list := []frame{f}
			for _, job := range jobs {
				if f.Type == script.JobCancel && job != f.JobID {
					list = append(list, f.withNewID().with("job_id", job).withPayload("job_id", job))
				}
			}
			return list
		},
		in: func(f frame) []frame {
			if f.Type == arcp.JobAccepted {
				jobs = append(jobs, f.JobID)
			}
			return []frame{f}
		},
	}
}

// ignoreForeignCancel drops the cancel of a job that the session has not submitted.
func ignoreForeignCancel() rewriter {
	own := map[arcp.JobID]bool{}
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == script.JobCancel && !own[f.JobID] {
				return nil
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			own[f.JobID] = own[f.JobID] || f.Type == arcp.JobAccepted
			return []frame{f}
		},
	}
}

// cancelForOthers sends the cancel of another session with the next message of the session that has
// the job.
func cancelForOthers() func() rewriter {
	var foreign *frame
	return func() rewriter {
		own := map[arcp.JobID]bool{}
		return rewriter{
			out: func(f frame) []frame {
				switch {
				case f.Type == script.JobCancel && !own[f.JobID]:
					foreign = &f
				case foreign != nil && own[foreign.JobID]:
					cancel := foreign.with("session_id", f.SessionID)
					foreign = nil
					return []frame{cancel, f}
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				own[f.JobID] = own[f.JobID] || f.Type == arcp.JobAccepted
				return []frame{f}
			},
		}
	}
}

// refuseAsFirst sends DUPLICATE_KEY with the id of the first job.
func refuseAsFirst() rewriter {
	var first arcp.JobID
	return rewriter{in: func(f frame) []frame {
		switch {
		case f.Type == arcp.JobAccepted && first == "":
			first = f.JobID
		case f.Type == script.JobError && f.code() == arcp.CodeDuplicateKey:
			f = f.with("job_id", first).withPayload("job_id", first)
		}
		return []frame{f}
	}}
}

// mergeKeys gives the job of a key to each session that submits with the key.
func mergeKeys() func() rewriter {
	jobs := map[string]arcp.JobID{}
	return func() rewriter {
		var key, own, shared string
		return rewriter{
			out: func(f frame) []frame {
				if f.Type == script.JobSubmit {
					key = f.stringMember("idempotency_key")
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				if f.Type == arcp.JobAccepted {
					if job := jobs[key]; job != "" {
						own, shared = string(f.JobID), string(job)
					} else {
						jobs[key] = f.JobID
					}
				}
				if own != "" {
					f = f.replace(own, shared)
				}
				return []frame{f}
			},
		}
	}
}
