package proxy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// coded makes a stage that puts one code of a failure in the place of another.
func coded(from, to arcp.Code) func() rewriter {
	return change(func(f frame) []frame {
		if (f.Type == arcp.JobFailed || f.Type == arcp.Nack || f.Type == arcp.HumanInputCancelled) && f.code() == from {
			f = f.withPayload("code", to)
		}
		return []frame{f}
	})
}

// succeeds makes a stage that has jobs end well that fail with the code.
func succeeds(code arcp.Code) func() rewriter {
	return every(arcp.JobFailed, func(f frame) frame {
		if f.event() && f.code() == code {
			f = f.with("type", arcp.JobCompleted).with("payload", json.RawMessage(`{"value":{"allowed":true}}`))
		}
		return f
	})
}

// without makes a stage that loses events, and renumbers those after them.
func without(selects func(f frame) bool) func() rewriter {
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

// adding makes a stage that has an event follow those that more returns one for,
// and renumbers those after it.
func adding(more func(f frame) (frame, bool)) rewriter {
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

// later puts a time of a payload off.
func (f frame) later(name string, d time.Duration) frame {
	at, err := time.Parse(time.RFC3339, f.word(name))
	if err != nil {
		return f
	}
	return f.withPayload(name, at.Add(d))
}

// object is a payload member that is an object; nil if it is none.
func (f frame) object(name string) map[string]json.RawMessage {
	var p map[string]json.RawMessage
	var o map[string]json.RawMessage
	if json.Unmarshal(f.Payload, &p) != nil || json.Unmarshal(p[name], &o) != nil {
		return nil
	}
	return o
}

// nested edits an object in the payload, if it is there.
func (f frame) nested(name string, edit func(o map[string]json.RawMessage)) frame {
	o := f.object(name)
	if o == nil {
		return f
	}
	edit(o)
	return f.withPayload(name, o)
}

// leaseFaults break the rules for a job's lease.
var leaseFaults = []Fault{
	{Name: "allow everything", Says: "a lease is not looked at", Shows: []string{"leases.denied", "leases.none", "leases.paths-tricks", "leases.urls-tricks", "leases.names-tricks"},
		newRewriter: succeeds(arcp.CodePermissionDenied)},
	{Name: "allow nothing", Says: "a lease covers nothing", Shows: []string{"leases.paths", "leases.urls", "leases.names", "leases.spellings"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("lease_request", struct{}{}) })},
	{Name: "compare beginnings", Says: "what begins like a pattern is covered", Shows: []string{"leases.paths-tricks"},
		newRewriter: replacedOut(`["/w/**"]`, `["/w*/**"]`)},
	{Name: "hosts of another case", Says: "hosts are compared letter by letter", Shows: []string{"leases.urls"},
		newRewriter: replacedOut(`API.Example.COM`, `api-example.com`)},
	{Name: "any subdomain", Says: "a star in a host stands for any number of labels", Shows: []string{"leases.urls-tricks"},
		newRewriter: replacedOut(`["https://*.example.com/**"]`, `["https://**.example.com/**"]`)},
	{Name: "every member is every other", Says: "fs.read allows writing", Shows: []string{"leases.members-apart"},
		newRewriter: replacedOut(`"namespace":"fs.write"`, `"namespace":"fs.read"`)},
	{Name: "one spelling", Says: "job.accepted has the lease in one spelling", Shows: []string{"leases.accepted", "leases.spellings"},
		newRewriter: every(arcp.JobAccepted, func(f frame) frame {
			return f.nested("lease", func(o map[string]json.RawMessage) {
				for name := range o {
					if strings.Contains(name, "_") && name != "expires_at" {
						delete(o, name)
					}
				}
			})
		})},
	{Name: "a spelling that is not known", Says: "filesystem.read is a permission of its own", Shows: []string{"leases.spellings"},
		newRewriter: replacedOut(`"filesystem.read"`, `"filesystem-read"`)},
	{Name: "the first spelling wins", Says: "spellings may differ", Shows: []string{"leases.spellings-differ"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			return f.nested("lease_request", func(o map[string]json.RawMessage) { delete(o, "fs_read") })
		})},
	{Name: "say no end", Says: "job.accepted has no lease_constraints", Shows: []string{"leases.accepted", "leases.expires-alone"},
		newRewriter: every(arcp.JobAccepted, func(f frame) frame { return f.withPayload("lease_constraints", nil) })},
	{Name: "one place of the end", Says: "lease_constraints do not count", Shows: []string{"leases.expires-earlier", "leases.expires-past"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("lease_constraints", nil) })},
	{Name: "read no lease", Says: "a lease that cannot be read is none", Shows: []string{"leases.malformed", "leases.patterns-refused", "leases.invisible-refusal"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("lease_request", nil) })},
	{Name: "deny what has ended", Says: "a lease that has ended is PERMISSION_DENIED", Shows: []string{"leases.expired"},
		newRewriter: coded(arcp.CodeLeaseExpired, arcp.CodePermissionDenied)},
	{Name: "denials to be tried again", Says: "a denial may be retried", Shows: []string{"leases.denied"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", true) })},
	{Name: "any model", Says: "model.use does not count", Shows: []string{"leases.model", "leases.model-none"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame {
			return f.nested("lease_request", func(o map[string]json.RawMessage) { delete(o, "model.use") })
		})},
	{Name: "hide leases in lists", Says: "a list has no leases", Shows: []string{"leases.shown"},
		newRewriter: every(arcp.SessionJobs, func(f frame) frame { return parse(bytes.ReplaceAll(f.text, []byte(`"lease":`), []byte(`"hidden":`))) })},
	{Name: "hide leases from followers", Says: "job.subscribed has no lease", Shows: []string{"leases.shown"},
		newRewriter: every(arcp.JobSubscribed, func(f frame) frame { return f.withPayload("lease", struct{}{}) })},
}

// budgetFaults break the rules for a job's budget.
var budgetFaults = []Fault{
	{Name: "hide the budget", Says: "job.accepted has no budget", Shows: []string{"budgets.accepted", "leases.accepted"},
		newRewriter: every(arcp.JobAccepted, func(f frame) frame { return f.withPayload("budget", nil) })},
	{Name: "budget in floating point", Says: "amounts are rounded", Shows: []string{"budgets.accepted"},
		newRewriter: every(arcp.JobAccepted, frame.roundNumbers)},
	{Name: "budget as text", Says: "amounts are strings", Shows: []string{"budgets.accepted"},
		newRewriter: every(arcp.JobAccepted, func(f frame) frame {
			return f.nested("budget", func(o map[string]json.RawMessage) {
				for currency, amount := range o {
					o[currency] = encode(string(amount))
				}
			})
		})},
	{Name: "say not what is left", Says: "cost.budget.remaining is not sent", Shows: []string{"budgets.exact", "budgets.thinned"},
		newRewriter: without(isMetric("cost.budget.remaining"))},
	{Name: "say not what it costs", Says: "the cost itself is not sent", Shows: []string{"budgets.exact", "budgets.none"},
		newRewriter: without(isMetric("cost.demo"))},
	{Name: "what is left comes first", Says: "cost.budget.remaining comes before its cost", Shows: []string{"budgets.exact"},
		newRewriter: swap(isMetric("cost.demo"), isMetric("cost.budget.remaining"), true)},
	{Name: "nothing below nothing", Says: "what is left never gets below 0", Shows: []string{"budgets.overspent"},
		newRewriter: every(arcp.Metric, func(f frame) frame { return f.replace(`"value":-0.20`, `"value":0`) })},
	{Name: "never exhausted", Says: "a budget is not looked at", Shows: []string{"budgets.exhausted", "budgets.zero", "budgets.any-currency"},
		newRewriter: succeeds(arcp.CodeBudgetExhausted)},
	{Name: "exhausted for now", Says: "a budget that is used up may be tried again", Shows: []string{"budgets.exhausted"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("retryable", f.code() == arcp.CodeBudgetExhausted) })},
	{Name: "one currency", Says: "every currency counts", Shows: []string{"budgets.other-currency"},
		newRewriter: replacedOut(`"currency":"EUR"`, `"currency":"USD"`)},
	{Name: "budget before cover", Says: "a budget that is used up hides what is not covered", Shows: []string{"budgets.denied-first"},
		newRewriter: coded(arcp.CodePermissionDenied, arcp.CodeBudgetExhausted)},
	{Name: "no budget beside the lease", Says: "cost_budget beside the lease is ignored", Shows: []string{"budgets.beside"},
		newRewriter: asked(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("cost_budget", nil) })},
}

func isMetric(name string) func(frame) bool {
	return func(f frame) bool { return f.Type == arcp.Metric && f.word("name") == name }
}

// permissionFaults break the rules for permissions.
var permissionFaults = []Fault{
	{Name: "ask before starting", Says: "a permission is asked for before the job is started", Shows: []string{"permissions.request"},
		newRewriter: swap(isType(arcp.JobStarted), isType(arcp.PermissionRequest), true)},
	{Name: "ask by the way", Says: "what is asked of people is not critical", Shows: []string{"permissions.request"},
		newRewriter: every(arcp.PermissionRequest, func(f frame) frame { return f.with("priority", nil) })},
	{Name: "answer a grant as the submit", Says: "lease.granted is correlated to the submit", Shows: []string{"permissions.grant"},
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
	{Name: "grant for longer", Says: "a permission lasts an hour longer than was granted", Shows: []string{"permissions.grant", "permissions.narrower", "permissions.longer"},
		newRewriter: every(arcp.LeaseGranted, func(f frame) frame { return f.later("expires_at", time.Hour) })},
	{Name: "grant what was asked", Says: "a grant of less is one of everything", Shows: []string{"permissions.narrower"},
		newRewriter: replacedOut(`"resource":"order:71"`, `"resource":"order:7*"`)},
	{Name: "grant more than was asked", Says: "a wider grant is cut to what was asked", Shows: []string{"permissions.wider"},
		newRewriter: asked(arcp.PermissionGrant, func(f frame) frame { return f.withPayload("resource", "order:7*") })},
	{Name: "deny nothing", Says: "a denial grants", Shows: []string{"permissions.deny"}, Mute: true,
		newRewriter: asked(arcp.PermissionDeny, func(f frame) frame {
			return f.with("type", arcp.PermissionGrant).with("payload", arcp.PermissionGrantPayload{Permission: "order.refund", Resource: "order:7*",
				Operation: "refund", LeaseSeconds: 60})
		})},
	{Name: "keep the reason", Says: "a job is not told why it was denied", Shows: []string{"permissions.deny"},
		newRewriter: asked(arcp.PermissionDeny, func(f frame) frame { return f.withPayload("reason", "no") })},
	{Name: "grant what nobody answers", Says: "a permission that is not answered in time is granted", Shows: []string{"permissions.expires"},
		newRewriter: succeeds(arcp.CodePermissionDenied)},
	{Name: "deny what is another's", Says: "another principal's question is PERMISSION_DENIED", Shows: []string{"permissions.foreign", "questions.foreign", "approvals.system-foreign"},
		newRewriter: coded(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Name: "take any answer to nothing", Says: "an answer to nothing is acknowledged", Shows: []string{"permissions.unknown", "questions.unknown", "questions.late", "permissions.late"},
		newRewriter: instead(arcp.CodeNotFound, arcp.Ack, struct{}{})},
	{Name: "extend by more", Says: "a permission is extended by an hour more than was asked", Shows: []string{"permissions.refresh"},
		newRewriter: every(arcp.LeaseExtended, func(f frame) frame { return f.later("expires_at", time.Hour) })},
	{Name: "extend for anybody", Says: "any session has a permission extended", Shows: []string{"permissions.refresh-refused"},
		newRewriter: instead(arcp.CodePermissionDenied, arcp.Ack, struct{}{})},
	{Name: "keep what was revoked", Says: "lease.revoked of a client is ignored", Shows: []string{"permissions.revoke"}, Mute: true,
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == arcp.LeaseRevoked {
					return nil
				}
				return []frame{f}
			}}
		}},
	{Name: "take back in silence", Says: "a session is not told that it is not trusted more any longer", Shows: []string{"permissions.elevate-revoked"}, Mute: true,
		newRewriter: without(func(f frame) bool { return f.Type == arcp.LeaseRevoked && f.CorrelationID == "" })},
	{Name: "deny what was revoked", Says: "a permission that was taken back is PERMISSION_DENIED", Shows: []string{"permissions.revoke", "permissions.revoked-use"},
		newRewriter: coded(arcp.CodeLeaseRevoked, arcp.CodePermissionDenied)},
	{Name: "hide grants from followers", Says: "followers do not see that a permission was granted", Shows: []string{"permissions.followed"},
		newRewriter: without(func(f frame) bool { return f.Type == arcp.LeaseGranted && f.Extensions != nil })},
	{Name: "refuse what is denied", Says: "an elevation that is denied is refused with nack", Shows: []string{"permissions.elevate-denied"},
		newRewriter: every(arcp.PermissionDeny, func(f frame) frame {
			return f.with("type", arcp.Nack).with("payload", arcp.Errorf(arcp.CodePermissionDenied, "denied"))
		})},
	{Name: "believe who asks", Says: "who asks for an approval may give it", Shows: []string{"permissions.elevate", "approvals.system-self", "approvals.gate"},
		newRewriter: instead(arcp.CodePermissionDenied, arcp.Ack, struct{}{})},
}

// questionFaults break the rules for questions to people.
var questionFaults = []Fault{
	{Name: "withdraw in silence", Says: "human.input.cancelled is not sent", Shows: []string{"questions.first-wins", "questions.expires", "approvals.system"}, Mute: true,
		newRewriter: without(isType(arcp.HumanInputCancelled))},
	{Name: "withdraw nothing", Says: "human.input.cancelled is correlated to the submit", Shows: []string{"questions.first-wins", "questions.cancelled"},
		newRewriter: every(arcp.HumanInputCancelled, func(f frame) frame { return f.with("correlation_id", nil) })},
	{Name: "withdraw another question", Says: "human.input.cancelled is correlated to something else", Shows: []string{"questions.first-wins", "questions.cancelled"},
		newRewriter: every(arcp.HumanInputCancelled, func(f frame) frame { return f.with("correlation_id", arcp.NewMessageID()) })},
	{Name: "withdraw from who has answered", Says: "who has answered is told that it was answered", Shows: []string{"questions.ask"}, newRewriter: withdrawFromWinner},
	{Name: "withdraw late", Says: "a question is withdrawn after the end of its job", Shows: []string{"questions.cancelled", "interrupts.cancelled"},
		newRewriter: swap(isType(arcp.HumanInputCancelled), isType(arcp.JobCancelled), true)},
	{Name: "expire as if cancelled", Says: "a question that expires is withdrawn as CANCELLED", Shows: []string{"questions.expires", "questions.choose-expires", "permissions.expires"},
		newRewriter: every(arcp.HumanInputCancelled, func(f frame) frame { return f.withPayload("code", arcp.CodeCancelled) })},
	{Name: "fail with another code", Says: "the job of a question that expires is ABORTED", Shows: []string{"questions.expires", "questions.choose-expires"},
		newRewriter: every(arcp.JobFailed, func(f frame) frame { return f.withPayload("code", arcp.CodeAborted) })},
	{Name: "ask twice", Says: "a question comes twice", Shows: []string{"questions.ask", "questions.later"},
		newRewriter: func() rewriter {
			return adding(func(f frame) (frame, bool) { return f, f.Type == arcp.HumanInputRequest })
		}},
	{Name: "ask twice in other words", Says: "a question comes twice, under two ids", Shows: []string{"questions.ask", "questions.resumed"},
		newRewriter: func() rewriter {
			return adding(func(f frame) (frame, bool) { return f.withNewID(), f.Type == arcp.HumanInputRequest })
		}},
	{Name: "ask anew", Says: "who comes later is asked with another message", Shows: []string{"questions.later", "questions.first-wins"}, newRewriter: askAnew},
	{Name: "ask only who is there", Says: "who comes later is not asked", Shows: []string{"questions.later"}, Mute: true, newRewriter: askOnlyOwners},
	{Name: "ask who has no person", Says: "a session that did not negotiate human_input is asked", Shows: []string{"questions.negotiated", "questions.later", "interrupts.other-session"},
		across: leak(func(with, _ arcp.SessionOpenPayload) bool { return !with.Capabilities.Has(arcp.FeatureHumanInput) })},
	{Name: "ask another principal", Says: "another principal's sessions are asked", Shows: []string{"questions.foreign"},
		across: leak(func(with, owner arcp.SessionOpenPayload) bool { return with.Auth.Token != owner.Auth.Token })},
	{Name: "number what is hidden", Says: "a question that is not sent is counted", Shows: []string{"questions.negotiated"}, newRewriter: countHidden},
	{Name: "take any value", Says: "an answer that does not fit is acknowledged", Shows: []string{"questions.schema", "questions.choose", "interrupts.wrong-answer"},
		newRewriter: instead(arcp.CodeInvalidArgument, arcp.Ack, struct{}{})},
	{Name: "round answers", Says: "answers are read as floating point", Shows: []string{"questions.ask"},
		newRewriter: every(arcp.JobCompleted, frame.roundNumbers)},
	{Name: "swallow answers", Says: "an answer is not acknowledged", Shows: []string{"questions.ask"}, Mute: true, newRewriter: never(arcp.Ack)},
	{Name: "hide the expiry", Says: "a question does not say when it expires", Shows: []string{"questions.ask", "questions.blocked"},
		newRewriter: every(arcp.HumanInputRequest, func(f frame) frame { return f.withPayload("expires_at", nil) })},
	{Name: "default as an answer", Says: "a default was somebody's answer", Shows: []string{"questions.default"},
		newRewriter: replaced(`"responded_by":"default"`, `"responded_by":"somebody"`)},
	{Name: "nobody in particular", Says: "a tool is not told who has answered", Shows: []string{"questions.responder"},
		newRewriter: replaced(`"responded_by":"conformance"`, `"responded_by":"somebody"`)},
	{Name: "shuffle the options", Says: "options come in another order", Shows: []string{"questions.choose"},
		newRewriter: every(arcp.HumanChoiceRequest, func(f frame) frame {
			p, err := arcp.DecodePayload[arcp.HumanChoiceRequestPayload](&f.Envelope)
			if err != nil {
				return f
			}
			slices.Reverse(p.Options)
			return f.withPayload("options", p.Options)
		})},
	{Name: "wait as if running", Says: "a job that asks is listed as running", Shows: []string{"questions.blocked", "permissions.blocked", "interrupts.blocked", "questions.time"},
		newRewriter: replaced(`"status":"blocked"`, `"status":"running"`)},
	{Name: "wait on its own time", Says: "the time of a job goes on while it asks", Shows: []string{"questions.time"},
		newRewriter: every(arcp.JobCompleted, func(f frame) frame {
			if !bytes.Contains(f.Payload, []byte(`"responded_by"`)) {
				return f
			}
			return f.with("type", arcp.JobFailed).with("payload", arcp.Errorf(arcp.CodeTimeout, "too long"))
		})},
	{Name: "history asks too", Says: "a history has questions", Shows: []string{"questions.not-followed"}, newRewriter: historyAsks},
}

// withdrawFromWinner withdraws a question after its answer was acknowledged.
func withdrawFromWinner() rewriter {
	questions := map[arcp.MessageID]frame{}
	answers := map[arcp.MessageID]arcp.MessageID{} // to which question
	s := adding(func(f frame) (frame, bool) {
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

// askAnew gives questions of jobs that another session submitted ids of their own.
func askAnew() rewriter {
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

// askOnlyOwners keeps questions from sessions that submitted nothing.
func askOnlyOwners() rewriter {
	return without(func(f frame) bool { return f.Type == arcp.HumanInputRequest && f.Extensions != nil })()
}

// leak gives the last question that any connection was sent to those that are
// selected, before their next pong.
func leak(to func(with, owner arcp.SessionOpenPayload) bool) func() func() rewriter {
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
					own, _ = arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope) // one that is wrong passes
				}
				return []frame{f}
			}
			s.in = func(f frame) []frame {
				if f.event() {
					last = f.EventSeq
				}
				if f.Type == arcp.HumanInputRequest && f.Extensions == nil { // others are of trials beside this one
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

// countHidden leaves out a number after a job has started, in sessions without a
// person.
func countHidden() rewriter {
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

// historyAsks inserts a question behind job.started in the history that followers get.
func historyAsks() rewriter {
	return adding(func(f frame) (frame, bool) {
		if f.Type != arcp.JobStarted || f.Extensions == nil {
			return f, false
		}
		return f.withNewID().with("type", arcp.PermissionRequest).with("correlation_id", nil).
			with("payload", arcp.PermissionRequestPayload{Permission: "p", Resource: "r", Operation: "o"}), true
	})
}

// interruptFaults break the rules for interrupts.
var interruptFaults = []Fault{
	{Name: "interrupt anything", Says: "every interrupt is acknowledged", Shows: []string{"interrupts.not-interruptible", "interrupts.twice"},
		newRewriter: instead(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Name: "interrupt for anybody", Says: "a session that may not is acknowledged", Shows: []string{"interrupts.strict"},
		newRewriter: instead(arcp.CodePermissionDenied, arcp.Ack, struct{}{})},
	{Name: "interrupt another's job", Says: "another principal's job is PERMISSION_DENIED", Shows: []string{"interrupts.foreign"},
		newRewriter: coded(arcp.CodeJobNotFound, arcp.CodePermissionDenied)},
	{Name: "interrupt sessions", Says: "sessions and streams can be interrupted", Shows: []string{"interrupts.other-targets"},
		newRewriter: instead(arcp.CodeUnimplemented, arcp.Ack, struct{}{})},
	{Name: "lose the guidance", Says: "the tool is not told the guidance", Shows: []string{"interrupts.continue"},
		newRewriter: replacedOut(`"guidance":"be quick"`, `"guidance":"take your time"`)},
	{Name: "ask something else", Says: "the prompt of an interrupt is lost", Shows: []string{"interrupts.continue"},
		newRewriter: replacedOut(`"prompt":"what now?"`, `"prompt":"?"`)},
	{Name: "go on regardless", Says: "the answer to an interrupt does not cancel", Shows: []string{"interrupts.cancel"}, Mute: true,
		newRewriter: replacedOut(`"action":"cancel"`, `"action":"continue"`)},
}

// approvalFaults break the rules for the tools approval.….
var approvalFaults = []Fault{
	{Name: "resolve again", Says: "the last resolution stands", Shows: []string{"approvals.resolve-twice"},
		newRewriter: succeeds(arcp.CodeFailedPrecondition)},
	{Name: "resolve for others", Says: "any session resolves an approval", Shows: []string{"approvals.resolve-other"},
		newRewriter: replaced(`"status":"pending"`, `"status":"resolved"`)},
	{Name: "approve in the end", Says: "an approval that nobody gives is given", Shows: []string{"approvals.system-expires", "approvals.wait"},
		newRewriter: replaced(`"outcome":"TimedOut"`, `"outcome":"Approved"`)},
	{Name: "approve denials", Says: "a denial approves", Shows: []string{"approvals.system-denied", "approvals.resolve-default", "approvals.quorum-denied"},
		newRewriter: replaced(`"outcome":"Denied"`, `"outcome":"Approved"`)},
	{Name: "show approvals to everybody", Says: "another principal's approvals are there", Shows: []string{"approvals.foreign", "approvals.unknown"},
		newRewriter: succeeds(arcp.CodeNotFound)},
	{Name: "withdraw for anybody", Says: "any session withdraws an approval", Shows: []string{"approvals.cancel"},
		newRewriter: succeeds(arcp.CodePermissionDenied)},
	{Name: "vote twice", Says: "one principal's votes count as two", Shows: []string{"approvals.quorum"},
		newRewriter: instead(arcp.CodeFailedPrecondition, arcp.Ack, struct{}{})},
	{Name: "the same page of approvals", Says: "a cursor of approval.list is ignored", Shows: []string{"approvals.list"}, newRewriter: withoutArgument("approval.list", "cursor")},
	{Name: "approvals of any status", Says: "the status asked of approval.list is ignored", Shows: []string{"approvals.list-status"}, newRewriter: withoutArgument("approval.list", "status")},
	{Name: "other options", Says: "an approval has the options approve and deny", Shows: []string{"approvals.request", "approvals.resolve"}, newRewriter: withoutArgument("approval.request", "options")},
	{Name: "approvals without details", Says: "who is asked is not told the details", Shows: []string{"approvals.system"},
		newRewriter: every(arcp.HumanChoiceRequest, func(f frame) frame { return f.withPayload("details", nil) })},
	{Name: "call the runtime's own", Says: "a client can call approval.elevate", Shows: []string{"approvals.elevate-not-callable"},
		newRewriter: succeeds(arcp.CodePermissionDenied)},
}

// withoutArgument makes a stage that takes an argument from the calls of a tool.
func withoutArgument(tool, name string) func() rewriter {
	return asked(arcp.ToolInvoke, func(f frame) frame {
		return f.onCall(tool, func(args map[string]json.RawMessage) { delete(args, name) })
	})
}
