package proxy

import (
	"bytes"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// permissionFaults are defects of permissions.
var permissionFaults = []Fault{
	{Defect: "permission.request is sent before job.started", Checks: []string{"permissions.request"},
		newRewriter: swap(isType(arcp.JobStarted), isType(arcp.PermissionRequest), true)},
	{Defect: "permission.request does not have the priority critical", Checks: []string{"permissions.request"}, House: true,
		newRewriter: editReceived(arcp.PermissionRequest, func(f frame) frame { return f.with("priority", nil) })},
	{Defect: "the correlation_id of lease.granted names the submit", Checks: []string{"permissions.grant"},
		newRewriter: func() rewriter {
			var submit arcp.MessageID
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.ToolInvoke {
						submit = f.ID
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					if f.Type == arcp.LeaseGranted {
						f = f.with("correlation_id", submit)
					}
					return []frame{f}
				},
			}
		}},
	{Defect: "a permission lasts an hour longer than granted", Checks: []string{"permissions.grant", "permissions.narrower", "permissions.longer"},
		newRewriter: editReceived(arcp.LeaseGranted, func(f frame) frame { return f.delayed("expires_at", time.Hour) })},
	{Defect: "a grant of part of the resource grants all of the requested resource", Checks: []string{"permissions.narrower"}, House: true,
		newRewriter: replaceSent(`"resource":"order:71"`, `"resource":"order:7*"`)},
	{Defect: "a grant of more than requested is reduced instead of refused", Checks: []string{"permissions.wider"}, House: true,
		newRewriter: editSent(arcp.PermissionGrant, func(f frame) frame { return f.withPayload("resource", "order:7*") })},
	{Defect: "permission.deny grants the permission", Checks: []string{"permissions.deny"}, Silent: true,
		newRewriter: editSent(arcp.PermissionDeny, func(f frame) frame {
			return f.with("type", arcp.PermissionGrant).with("payload", arcp.PermissionGrantPayload{Permission: "order.refund", Resource: "order:7*",
				Operation: "refund", LeaseSeconds: 60})
		})},
	{Defect: "the reason of permission.deny is not passed to the job", Checks: []string{"permissions.deny"}, House: true,
		newRewriter: editSent(arcp.PermissionDeny, func(f frame) frame { return f.withPayload("reason", "no") })},
	{Defect: "an unanswered permission request is granted", Checks: []string{"permissions.expires"}, House: true,
		newRewriter: completeFailed(arcp.CodePermissionDenied)},
	{Defect: "an answer to a question of another principal is PERMISSION_DENIED", Checks: []string{"permissions.foreign", "questions.foreign", "approvals.system-foreign"}, House: true,
		newRewriter: replaceCode(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Defect: "an answer to no pending question is acknowledged", Checks: []string{"permissions.unknown", "questions.unknown", "questions.late", "permissions.late"}, House: true,
		newRewriter: replaceNack(arcp.CodeNotFound, arcp.Ack, struct{}{})},
	{Defect: "a permission is extended by an hour more than requested", Checks: []string{"permissions.refresh"}, House: true,
		newRewriter: editReceived(arcp.LeaseExtended, func(f frame) frame { return f.delayed("expires_at", time.Hour) })},
	{Defect: "any session can extend a permission", Checks: []string{"permissions.refresh-refused"}, House: true,
		newRewriter: replaceNack(arcp.CodePermissionDenied, arcp.Ack, struct{}{})},
	{Defect: "lease.revoked from a client is ignored", Checks: []string{"permissions.revoke"}, House: true, Silent: true,
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == arcp.LeaseRevoked {
					return nil
				}
				return []frame{f}
			}}
		}},
	{Defect: "the end of an elevation is not reported", Checks: []string{"permissions.elevate-revoked"}, House: true, Silent: true,
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.LeaseRevoked && f.CorrelationID == "" })},
	{Defect: "use of a revoked permission is PERMISSION_DENIED", Checks: []string{"permissions.revoke", "permissions.revoked-use"}, House: true,
		newRewriter: replaceCode(arcp.CodeLeaseRevoked, arcp.CodePermissionDenied)},
	{Defect: "lease.granted is not forwarded to followers of the job", Checks: []string{"permissions.followed"}, House: true,
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.LeaseGranted && f.Extensions != nil })},
	{Defect: "a denied elevation is answered with nack", Checks: []string{"permissions.elevate-denied"}, House: true,
		newRewriter: editReceived(arcp.PermissionDeny, func(f frame) frame {
			return f.with("type", arcp.Nack).with("payload", arcp.Errorf(arcp.CodePermissionDenied, "denied"))
		})},
	{Defect: "a principal can approve its own request", Checks: []string{"permissions.elevate", "approvals.system-self", "approvals.gate"}, House: true,
		newRewriter: replaceNack(arcp.CodePermissionDenied, arcp.Ack, struct{}{})},
}

// questionFaults are defects of questions to people.
var questionFaults = []Fault{
	{Defect: "human.input.cancelled is never sent", Checks: []string{"questions.others", "questions.expires", "approvals.system"}, Silent: true,
		newRewriter: dropEvents(isType(arcp.HumanInputCancelled))},
	{Defect: "human.input.cancelled has the correlation_id of the submit", Checks: []string{"questions.others", "questions.cancelled"},
		newRewriter: editReceived(arcp.HumanInputCancelled, func(f frame) frame { return f.with("correlation_id", nil) })},
	{Defect: "the correlation_id of human.input.cancelled names an unknown message", Checks: []string{"questions.others", "questions.cancelled"},
		newRewriter: editReceived(arcp.HumanInputCancelled, func(f frame) frame { return f.with("correlation_id", arcp.NewMessageID()) })},
	{Defect: "the session that answered a question receives human.input.cancelled", Checks: []string{"questions.ask"}, House: true, newRewriter: withdrawFromResponder},
	{Defect: "human.input.cancelled is sent after the end of the job", Checks: []string{"questions.cancelled", "interrupts.cancelled"}, House: true,
		newRewriter: swap(isType(arcp.HumanInputCancelled), isType(arcp.JobCancelled), true)},
	{Defect: "the code of an expired question is CANCELLED", Checks: []string{"questions.expires", "questions.choose-expires", "permissions.expires"},
		newRewriter: editReceived(arcp.HumanInputCancelled, func(f frame) frame { return f.withPayload("code", arcp.CodeCancelled) })},
	{Defect: "the job of an expired question fails with ABORTED", Checks: []string{"questions.expires", "questions.choose-expires"}, House: true,
		newRewriter: editReceived(arcp.JobFailed, func(f frame) frame { return f.withPayload("code", arcp.CodeAborted) })},
	{Defect: "a question is sent twice with the same id", Checks: []string{"questions.ask", "questions.later"}, House: true,
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) { return f, f.Type == arcp.HumanInputRequest })
		}},
	{Defect: "a question is sent twice with different ids", Checks: []string{"questions.ask", "questions.resumed"}, House: true,
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) { return f.withNewID(), f.Type == arcp.HumanInputRequest })
		}},
	{Defect: "a session that connects later receives the question with another id", Checks: []string{"questions.later", "questions.others"}, House: true, newRewriter: changeQuestionIDs},
	{Defect: "a session that connects later does not receive the question", Checks: []string{"questions.later"}, House: true, Silent: true, newRewriter: askOnlySubmitters},
	{Defect: "a session without human_input receives a question", Checks: []string{"questions.negotiated", "questions.later", "interrupts.other-session"}, House: true,
		newShared: leakQuestion(func(with, _ arcp.SessionOpenPayload) bool { return !with.Capabilities.Has(arcp.FeatureHumanInput) })},
	{Defect: "a session of another principal receives a question", Checks: []string{"questions.foreign"}, House: true,
		newShared: leakQuestion(func(with, owner arcp.SessionOpenPayload) bool { return with.Auth.Token != owner.Auth.Token })},
	{Defect: "a question that is not sent uses up an event_seq", Checks: []string{"questions.negotiated"}, House: true, newRewriter: skipHiddenNumbers},
	{Defect: "an answer that violates the schema is acknowledged", Checks: []string{"questions.schema", "questions.choose", "interrupts.wrong-answer"},
		newRewriter: replaceNack(arcp.CodeInvalidArgument, arcp.Ack, struct{}{})},
	{Defect: "numbers in an answer are rounded to floating point", Checks: []string{"questions.ask"},
		newRewriter: editReceived(arcp.JobCompleted, frame.roundNumbers)},
	{Defect: "the answer to a question is not acknowledged", Checks: []string{"questions.ask"}, House: true, Silent: true, newRewriter: dropReceived(arcp.Ack)},
	{Defect: "human.input.request has no expires_at", Checks: []string{"questions.ask", "questions.blocked"},
		newRewriter: editReceived(arcp.HumanInputRequest, func(f frame) frame { return f.withPayload("expires_at", nil) })},
	{Defect: "a default answer is attributed to a person", Checks: []string{"questions.default"},
		newRewriter: replaceReceived(`"responded_by":"default"`, `"responded_by":"somebody"`)},
	{Defect: "responded_by does not name the principal that answered", Checks: []string{"questions.responder"},
		newRewriter: replaceReceived(`"responded_by":"conformance"`, `"responded_by":"somebody"`)},
	{Defect: "the options of a choice are in reverse order", Checks: []string{"questions.choose"},
		newRewriter: editReceived(arcp.HumanChoiceRequest, func(f frame) frame {
			p, err := arcp.DecodePayload[arcp.HumanChoiceRequestPayload](&f.Envelope)
			if err != nil {
				return f
			}
			slices.Reverse(p.Options)
			return f.withPayload("options", p.Options)
		})},
	{Defect: "a job with a pending question has the status running", Checks: []string{"questions.blocked", "permissions.blocked", "interrupts.blocked", "questions.time"},
		newRewriter: replaceReceived(`"status":"blocked"`, `"status":"running"`)},
	{Defect: "the timeout of a job includes the time spent on a question", Checks: []string{"questions.time"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame {
			if !bytes.Contains(f.Payload, []byte(`"responded_by"`)) {
				return f
			}
			return f.with("type", arcp.JobFailed).with("payload", arcp.Errorf(arcp.CodeTimeout, "too long"))
		})},
	{Defect: "the history of a followed job includes its questions", Checks: []string{"questions.not-followed"}, House: true, newRewriter: insertHistoryQuestion},
}

// withdrawFromResponder withdraws a question from the session that answered it.
func withdrawFromResponder() rewriter {
	questions := map[arcp.MessageID]frame{}
	answers := map[arcp.MessageID]arcp.MessageID{} // question id by answer id
	s := insertEvents(func(f frame) (frame, bool) {
		if f.Type == arcp.HumanInputRequest {
			questions[f.ID] = f
		}
		question, asked := questions[answers[f.CorrelationID]]
		if f.Type != arcp.Ack || !asked {
			return f, false
		}
		return question.withNewID().with("type", arcp.HumanInputCancelled).with("correlation_id", question.ID).
			with("payload", arcp.HumanInputCancelledPayload{Code: arcp.CodeCancelled, Reason: "answered"}), true
	})
	s.out = func(f frame) []frame {
		if f.Type == arcp.HumanInputResponse {
			answers[f.ID] = f.CorrelationID
		}
		return []frame{f}
	}
	return s
}

// changeQuestionIDs gives questions of jobs from another session new ids.
func changeQuestionIDs() rewriter {
	original := map[arcp.MessageID]arcp.MessageID{}
	return rewriter{
		in: func(f frame) []frame {
			if f.Type == arcp.HumanInputRequest && f.Extensions != nil {
				id := f.ID
				f = f.withNewID()
				original[f.ID] = id
			}
			return []frame{f}
		},
		out: func(f frame) []frame {
			if id, ok := original[f.CorrelationID]; ok {
				f = f.with("correlation_id", id)
			}
			return []frame{f}
		},
	}
}

// askOnlySubmitters drops questions of jobs from another session.
func askOnlySubmitters() rewriter {
	return dropEvents(func(f frame) bool { return f.Type == arcp.HumanInputRequest && f.Extensions != nil })()
}

// leakQuestion returns rewriters that send the last question of any connection to the selected
// connections, before their next pong.
func leakQuestion(to func(with, owner arcp.SessionOpenPayload) bool) func() func() rewriter {
	return func() func() rewriter {
		var question frame
		var owner arcp.SessionOpenPayload
		return func() rewriter {
			var own arcp.SessionOpenPayload
			var told arcp.MessageID
			s := rewriter{}
			last := uint64(0)
			s.out = func(f frame) []frame {
				if f.Type == arcp.SessionOpen {
					own, _ = arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope) // a malformed message passes unchanged
				}
				return []frame{f}
			}
			s.in = func(f frame) []frame {
				if f.event() {
					last = f.EventSeq
				}
				if f.Type == arcp.HumanInputRequest && f.Extensions == nil { // a question with extensions belongs to another session
					question, owner = f, own
				}
				if f.Type != arcp.Pong || question.ID == "" || question.ID == told || !to(own, owner) {
					return []frame{f}
				}
				told = question.ID
				return []frame{question.with("session_id", f.SessionID).with("event_seq", last+1).with("correlation_id", nil), f}
			}
			return s
		}
	}
}

// skipHiddenNumbers skips one event number after job.started in sessions without human_input.
func skipHiddenNumbers() rewriter {
	person := false
	return rewriter{
		out: func(f frame) []frame {
			if p, err := arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope); err == nil && f.Type == arcp.SessionOpen {
				person = p.Capabilities.Has(arcp.FeatureHumanInput)
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if !person && f.EventSeq > 2 {
				f = f.with("event_seq", f.EventSeq+1)
			}
			return []frame{f}
		},
	}
}

// insertHistoryQuestion inserts a question after job.started into the history of a followed job.
func insertHistoryQuestion() rewriter {
	return insertEvents(func(f frame) (frame, bool) {
		if f.Type != arcp.JobStarted || f.Extensions == nil {
			return f, false
		}
		return f.withNewID().with("type", arcp.PermissionRequest).with("correlation_id", nil).
			with("payload", arcp.PermissionRequestPayload{Permission: "p", Resource: "r", Operation: "o"}), true
	})
}

// interruptFaults are defects of interrupts.
var interruptFaults = []Fault{
	{Defect: "an interrupt of a job that cannot be interrupted is acknowledged", Checks: []string{"interrupts.not-interruptible", "interrupts.twice"}, House: true,
		newRewriter: replaceNack(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Defect: "an interrupt from a session without permission is acknowledged", Checks: []string{"interrupts.strict"}, House: true,
		newRewriter: replaceNack(arcp.CodePermissionDenied, arcp.Ack, struct{}{})},
	{Defect: "an interrupt of a job of another principal is PERMISSION_DENIED", Checks: []string{"interrupts.foreign"}, House: true,
		newRewriter: replaceCode(arcp.CodeJobNotFound, arcp.CodePermissionDenied)},
	{Defect: "an interrupt of a session or stream is acknowledged", Checks: []string{"interrupts.other-targets"}, House: true,
		newRewriter: replaceNack(arcp.CodeUnimplemented, arcp.Ack, struct{}{})},
	{Defect: "the guidance of an interrupt is not passed to the tool", Checks: []string{"interrupts.continue"}, Silent: true,
		newRewriter: replaceSent(`"guidance":"be quick"`, `"guidance":"take your time"`)},
	{Defect: "the prompt of an interrupt is replaced", Checks: []string{"interrupts.continue"},
		newRewriter: replaceSent(`"prompt":"what now?"`, `"prompt":"?"`)},
	{Defect: "the answer cancel to an interrupt continues the job", Checks: []string{"interrupts.cancel"}, House: true, Silent: true,
		newRewriter: replaceSent(`"action":"cancel"`, `"action":"continue"`)},
}

// approvalFaults are defects of the tools whose names begin with "approval.".
var approvalFaults = []Fault{
	{Defect: "a resolved approval can be resolved again", Checks: []string{"approvals.resolve-twice"}, House: true,
		newRewriter: completeFailed(arcp.CodeFailedPrecondition)},
	{Defect: "any session can resolve an approval", Checks: []string{"approvals.resolve-other"}, House: true,
		newRewriter: replaceReceived(`"status":"pending"`, `"status":"resolved"`)},
	{Defect: "an expired approval counts as approved", Checks: []string{"approvals.system-expires", "approvals.wait"}, House: true,
		newRewriter: replaceReceived(`"outcome":"TimedOut"`, `"outcome":"Approved"`)},
	{Defect: "a denied approval counts as approved", Checks: []string{"approvals.system-denied", "approvals.resolve-default", "approvals.quorum-denied"}, House: true,
		newRewriter: replaceReceived(`"outcome":"Denied"`, `"outcome":"Approved"`)},
	{Defect: "approvals of another principal are visible", Checks: []string{"approvals.foreign", "approvals.unknown"}, House: true,
		newRewriter: completeFailed(arcp.CodeNotFound)},
	{Defect: "any session can withdraw an approval", Checks: []string{"approvals.cancel"}, House: true,
		newRewriter: completeFailed(arcp.CodePermissionDenied)},
	{Defect: "two votes of one principal count twice", Checks: []string{"approvals.quorum"}, House: true,
		newRewriter: replaceNack(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Defect: "the cursor of approval.list is ignored", Checks: []string{"approvals.list"}, House: true, newRewriter: withoutArgument("approval.list", "cursor")},
	{Defect: "the status in approval.list is ignored", Checks: []string{"approvals.list-status"}, House: true, newRewriter: withoutArgument("approval.list", "status")},
	{Defect: "the options of approval.request are ignored", Checks: []string{"approvals.request", "approvals.resolve"}, House: true, newRewriter: withoutArgument("approval.request", "options")},
	{Defect: "human.choice.request has no details", Checks: []string{"approvals.system"}, House: true,
		newRewriter: editReceived(arcp.HumanChoiceRequest, func(f frame) frame { return f.withPayload("details", nil) })},
	{Defect: "a client can call approval.elevate", Checks: []string{"approvals.elevate-not-callable"}, House: true,
		newRewriter: completeFailed(arcp.CodePermissionDenied)},
}
