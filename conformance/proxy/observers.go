package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// observerFaults are defects of observers.
var observerFaults = []Fault{
	acknowledgeObserver("submits", "observers.submit"), acknowledgeObserver("cancels", "observers.cancel"), acknowledgeObserver("interrupts", "observers.interrupt"),
	acknowledgeObserver("checkpoints", "observers.checkpoints"), acknowledgeObserver("answers", "observers.questions"), acknowledgeObserver("grants", "observers.permissions"),
	acknowledgeObserver("approvals", "observers.approvals"), acknowledgeObserver("elevations", "observers.trust"),
	{Defect: "a submit of an observer is refused and its job is created", Checks: []string{"observers.submit"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.withJob("job_of_an_observer") })},
	{Defect: "a job cancel of an observer is refused and performed", Checks: []string{"observers.cancel"}, House: true,
		newShared: performRefused(func(f frame) bool { return f.Type == arcp.Cancel && f.stringMember("target") == arcp.TargetJob })},
	{Defect: "a session cancel of an observer is refused and performed", Checks: []string{"observers.cancel"}, House: true,
		newShared: performRefused(func(f frame) bool { return f.Type == arcp.Cancel && f.stringMember("target") == arcp.TargetSession })},
	{Defect: "an interrupt of an observer is refused and performed", Checks: []string{"observers.interrupt"}, House: true, newShared: performRefused(isType(arcp.Interrupt))},
	{Defect: "a restore of an observer is refused and its job is created", Checks: []string{"observers.checkpoints"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.withJob("job_of_an_observer") })},
	{Defect: "an answer of an observer is refused and recorded", Checks: []string{"observers.questions"}, House: true, newShared: performRefused(isType(arcp.HumanInputResponse))},
	{Defect: "a permission.grant of an observer is refused and performed", Checks: []string{"observers.permissions"}, House: true, newShared: performRefused(isType(arcp.PermissionGrant))},
	{Defect: "a lease.refresh of an observer is refused and performed", Checks: []string{"observers.permissions"}, House: true, newShared: performRefused(isType(arcp.LeaseRefresh))},
	{Defect: "a lease.revoked of an observer is refused and performed", Checks: []string{"observers.permissions"}, House: true, newShared: performRefused(isType(arcp.LeaseRevoked))},
	{Defect: "an approval of an observer is refused and recorded", Checks: []string{"observers.approvals"}, House: true, newShared: performRefused(isType(arcp.HumanChoiceResponse))},
	{Defect: "an observer receives the questions of an observed principal as its own", Checks: []string{"observers.questions"}, House: true,
		newShared: leakQuestion(func(with, owner arcp.SessionOpenPayload) bool { return with.Auth.Token != owner.Auth.Token })},
	{Defect: "an observer receives the questions of a principal that it does not observe", Checks: []string{"observers.questions-unseen"}, House: true,
		newShared: leakQuestion(func(with, owner arcp.SessionOpenPayload) bool { return with.Auth.Token != owner.Auth.Token })},
	{Defect: "an answer to a question of an unobserved principal is PERMISSION_DENIED", Checks: []string{"observers.questions-unseen"}, House: true,
		newRewriter: replaceCode(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Defect: "the refusal of an answer reveals that the unobserved question exists", Checks: []string{"observers.questions-unseen"}, House: true, newShared: revealExistence},
	{Defect: "an answer of an observer to an observed question is NOT_FOUND", Checks: []string{"observers.questions", "observers.approvals"}, House: true,
		newRewriter: replaceCode(arcp.CodePermissionDenied, arcp.CodeNotFound)},
	{Defect: "an observer gets the capability executes", Checks: []string{"observers.executes"}, House: true,
		newRewriter: editReceived(arcp.SessionAccepted, func(f frame) frame {
			return f.editObject("capabilities", func(o map[string]json.RawMessage) { o["executes"] = encode(true) })
		})},
	{Defect: "an event of an observed principal is not forwarded", Checks: []string{"observers.session", "observers.jobs"}, Silent: true, newRewriter: rewriteForwarded(6, func(frame) []frame { return nil })},
	{Defect: "a forwarded event of an observed principal has no session_id", Checks: []string{"observers.session"}, House: true,
		newRewriter: editForwarded(func(in frame) frame { return in.with("session_id", nil).with("correlation_id", nil) })},
	{Defect: "a forwarded event of an observed principal has another payload", Checks: []string{"observers.session", "observers.jobs"},
		newRewriter: editForwarded(func(in frame) frame { return in.withPayload("forwarded", true) })},
	{Defect: "thoughts of an observed principal are not redacted", Checks: []string{"observers.thoughts"}, House: true,
		newRewriter: editForwarded(func(in frame) frame { return in.withPayload("redacted", nil) })},
	{Defect: "redacted thoughts of an observed principal have their text", Checks: []string{"observers.thoughts"}, House: true,
		newRewriter: editForwarded(func(in frame) frame {
			return in.withPayload("content", fmt.Sprintf("%d..\n", in.numberMember("sequence")))
		})},
	{Defect: "thoughts of an observed principal are not forwarded", Checks: []string{"observers.thoughts"}, Silent: true, House: true,
		newRewriter: dropWhere(func(f frame) bool { return f.forwarded().Type == arcp.StreamChunk })},
	{Defect: "questions of an observed principal are not forwarded", Checks: []string{"observers.session-questions"}, House: true,
		newRewriter: dropWhere(func(f frame) bool { return f.forwarded().Type == arcp.HumanInputRequest })},
	{Defect: "a forwarded question has another event_seq than the original", Checks: []string{"observers.session-questions"}, House: true,
		newRewriter: editForwarded(func(in frame) frame {
			if in.Type == arcp.HumanInputRequest {
				in = in.with("event_seq", in.EventSeq+1)
			}
			return in
		})},
	{Defect: "a job of an unobserved principal is forwarded beside an observed job", Checks: []string{"observers.jobs"},
		newShared: forwardFrom(1, func(f frame) bool { return f.Type.Terminal() })},
	{Defect: "jobs that the filter does not name are forwarded", Checks: []string{"observers.jobs"},
		newShared: forwardFrom(0, isType(arcp.JobCompleted))},
	{Defect: "since is ignored for events of another principal", Checks: []string{"observers.since"}, House: true, Silent: true,
		newRewriter: editSent(arcp.Subscribe, func(f frame) frame { return f.withPayload("since", nil) })},
	{Defect: "a backfilled event of an observed principal is forwarded twice", Checks: []string{"observers.since"}, House: true,
		newRewriter: rewriteForwarded(3, func(f frame) []frame { return []frame{f, f.withNewID()} })},
	{Defect: "results of built-in tools called by another principal are forwarded", Checks: []string{"observers.own-tools"}, House: true,
		newShared: forwardFrom(0, func(f frame) bool { return f.Type == arcp.JobCompleted && bytes.Contains(f.Payload, []byte(`"items"`)) })},
	{Defect: "agent events of another principal are forwarded", Checks: []string{"observers.own-tools"}, House: true, newShared: forwardAgents},
	{Defect: "a filter may name a session of an unobserved principal", Checks: []string{"observers.unseen"}, newRewriter: acceptSubscribe(arcp.CodePermissionDenied)},
	{Defect: "a filter that names only jobs of unobserved principals is accepted", Checks: []string{"observers.unseen"}, House: true, newRewriter: acceptSubscribe(arcp.CodeNotFound)},
	{Defect: "a filter that names a job of an unobserved principal is PERMISSION_DENIED", Checks: []string{"observers.unseen"}, House: true, newRewriter: replaceCode(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Defect: "the refusal of a filter reveals that the unobserved job exists", Checks: []string{"observers.unseen"}, House: true, newShared: revealExistence},
	{Defect: "since may name a message of an unobserved principal", Checks: []string{"observers.unseen"}, House: true, newRewriter: acceptSubscribe(arcp.CodeDataLoss)},
	{Defect: "a filter may name sessions of several principals", Checks: []string{"observers.several"}, House: true, newRewriter: acceptSubscribe(arcp.CodeInvalidRequest)},
	{Defect: "a subscription without a filter includes events of observed principals", Checks: []string{"observers.no-filter"}, House: true, newRewriter: copyToFirst},
	{Defect: "a subscription without a filter includes events of unobserved principals", Checks: []string{"observers.no-filter"}, House: true,
		newShared: forwardFrom(1, isType(arcp.JobCompleted))},
	{Defect: "session.list_jobs includes jobs of observed principals", Checks: []string{"observers.lists"}, House: true, newShared: listObserved},
	{Defect: "job.subscribe to a job of an observed principal is PERMISSION_DENIED instead of JOB_NOT_FOUND", Checks: []string{"observers.lists"}, House: true,
		newRewriter: replaceCode(arcp.CodeJobNotFound, arcp.CodePermissionDenied)},
	{Defect: "the refusal of job.subscribe reveals that the observed job exists", Checks: []string{"observers.lists"}, House: true, newShared: revealExistence},
}

// acknowledgeObserver returns a fault that acknowledges an operation denied to observers.
func acknowledgeObserver(operations, check string) Fault {
	return Fault{Defect: operations + " of observers are acknowledged", Checks: []string{check}, House: true,
		newRewriter: replaceNack(arcp.CodePermissionDenied, arcp.Ack, struct{}{})}
}

// tokenList holds the tokens of the connections of a check, in the order of session.open.
type tokenList []string

// index returns the position of the token of a session.open in the list; -1 for any other frame.
func (t *tokenList) index(f frame) int {
	p, err := arcp.DecodePayload[arcp.SessionOpenPayload](&f.Envelope)
	if f.Type != arcp.SessionOpen || err != nil {
		return -1
	}
	if i := slices.Index(*t, p.Auth.Token); i >= 0 {
		return i
	}
	*t = append(*t, p.Auth.Token)
	return len(*t) - 1
}

// withClientIndex returns rewriters that know the token of their connection. client points to the
// token's index, or to -1 before session.open. Index 0 is the observed principal.
func withClientIndex(begin func(client *int) rewriter) func() rewriter {
	var tokens tokenList
	return func() rewriter {
		client := -1
		s := begin(&client)
		out := s.out
		s.out = func(f frame) []frame {
			if i := tokens.index(f); i >= 0 {
				client = i
			}
			return apply(out, f)
		}
		return s
	}
}

// performRefused returns rewriters that perform a selected operation of another principal. The
// operation is sent as a message of the first principal, before its next message.
func performRefused(selects func(f frame) bool) func() func() rewriter {
	return func() func() rewriter {
		var pending []frame
		return withClientIndex(func(client *int) rewriter {
			own := map[arcp.MessageID]bool{} // messages inserted by this rewriter
			return rewriter{
				out: func(f frame) []frame {
					switch {
					case *client > 0 && selects(f):
						pending = append(pending, f)
					case *client == 0 && f.SessionID != "" && len(pending) > 0:
						list := make([]frame, 0, len(pending)+1)
						for _, p := range pending {
							p = p.withNewID().with("session_id", f.SessionID)
							own[p.ID] = true
							list = append(list, p)
						}
						pending = nil
						return append(list, f)
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					if !f.event() && own[f.CorrelationID] {
						return nil
					}
					return []frame{f}
				},
			}
		})
	}
}

// forwardFrom returns rewriters that forward a selected event of a connection with the nth token.
func forwardFrom(nth int, selects func(f frame) bool) func() func() rewriter {
	return func() func() rewriter {
		var foreign []frame
		return withClientIndex(func(client *int) rewriter {
			return rewriter{in: func(f frame) []frame {
				switch {
				case *client == nth && f.event() && selects(f):
					foreign = append(foreign, f)
				case *client != nth && f.Type == arcp.SubscribeEvent && len(foreign) > 0:
					return []frame{f.wrapped(foreign[0].text), f}
				}
				return []frame{f}
			}}
		})
	}
}

// forwardAgents forwards the registration of an agent by the first principal.
func forwardAgents() func() rewriter {
	var agent json.RawMessage
	return withClientIndex(func(client *int) rewriter {
		return rewriter{in: func(f frame) []frame {
			switch {
			case *client == 0 && f.Type == arcp.JobCompleted && bytes.Contains(f.Payload, []byte(`"registered_at"`)):
				agent, _ = json.Marshal(f.objectMember("value")) // a decoded object can be encoded
			case *client > 0 && f.Type == arcp.SubscribeEvent && agent != nil:
				event := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventHost, Data: arcp.Raw(agent)})
				event.ARCP, event.ID, event.Timestamp = f.ARCP, arcp.NewMessageID(), f.Timestamp
				return []frame{f.wrapped(event.Append(nil)), f}
			}
			return []frame{f}
		}}
	})
}

// copyToFirst copies each subscribe.event to the first subscription of the connection.
func copyToFirst() rewriter {
	var first arcp.SubscriptionID
	return rewriter{in: func(f frame) []frame {
		if f.Type == arcp.SubscribeAccepted && first == "" {
			first = f.SubscriptionID
		}
		if f.Type == arcp.SubscribeEvent && f.SubscriptionID != first {
			return []frame{f.withNewID().with("subscription_id", first), f}
		}
		return []frame{f}
	}}
}

// revealExistence changes the refusal of a message that names an existing job or question.
func revealExistence() func() rewriter {
	existing := map[string]bool{} // jobs and questions
	return withClientIndex(func(*int) rewriter {
		named := map[arcp.MessageID]bool{} // messages that name an existing job or question
		return rewriter{
			out: func(f frame) []frame {
				for id := range existing {
					named[f.ID] = named[f.ID] || bytes.Contains(f.text, []byte(id))
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				switch {
				case f.Type == arcp.HumanInputRequest:
					existing[string(f.ID)] = true
				case f.Type == arcp.JobAccepted:
					existing[string(f.JobID)] = true
				case f.Type == arcp.Nack && named[f.CorrelationID]:
					f = f.withPayload("message", "it is not yours")
				}
				return []frame{f}
			},
		}
	})
}

// withJob returns a copy of the session.jobs f with one more job.
func (f frame) withJob(id arcp.JobID) frame {
	p, err := arcp.DecodePayload[arcp.SessionJobsPayload](&f.Envelope)
	if err != nil {
		return f
	}
	entry := arcp.JobEntry{JobID: id, Agent: "demo.echo@1.0.0", Status: string(arcp.StateCompleted), CreatedAt: time.Now().UTC()}
	return f.withPayload("jobs", append(p.Jobs, entry))
}

// listObserved adds a job of the first principal to the lists of the others.
func listObserved() func() rewriter {
	var job arcp.JobID
	return withClientIndex(func(client *int) rewriter {
		return rewriter{in: func(f frame) []frame {
			switch {
			case *client == 0 && f.Type == arcp.JobAccepted:
				job = f.JobID
			case *client > 0 && f.Type == arcp.SessionJobs:
				f = f.withJob(job)
			}
			return []frame{f}
		}}
	})
}
