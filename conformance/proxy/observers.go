package proxy

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// observerFaults break the rules for observers.
var observerFaults = []Fault{
	obeyed("submits", "observers.submit"), obeyed("cancels", "observers.cancel"), obeyed("interrupts", "observers.interrupt"),
	obeyed("checkpoints", "observers.checkpoints"), obeyed("answers", "observers.questions"), obeyed("grants", "observers.permissions"),
	obeyed("approvals", "observers.approvals"), obeyed("elevations", "observers.trust"),
	{Name: "refuse what was submitted", Says: "what an observer submits is refused, and is a job", Shows: []string{"observers.submit"},
		newRewriter: every(arcp.SessionJobs, func(f frame) frame { return f.listing("job_of_an_observer") })},
	{Name: "refuse and cancel", Says: "a cancel of an observer is refused, and done", Shows: []string{"observers.cancel"},
		across: performed(func(f frame) bool { return f.Type == arcp.Cancel && f.word("target") == arcp.TargetJob })},
	{Name: "refuse and evict", Says: "the end of a session that an observer wants is refused, and comes", Shows: []string{"observers.cancel"},
		across: performed(func(f frame) bool { return f.Type == arcp.Cancel && f.word("target") == arcp.TargetSession })},
	{Name: "refuse and interrupt", Says: "an interrupt of an observer is refused, and done", Shows: []string{"observers.interrupt"}, across: performed(isType(arcp.Interrupt))},
	{Name: "refuse and restore", Says: "a restore of an observer is refused, and is a job", Shows: []string{"observers.checkpoints"},
		newRewriter: every(arcp.SessionJobs, func(f frame) frame { return f.listing("job_of_an_observer") })},
	{Name: "refuse and take", Says: "an answer of an observer is refused, and taken", Shows: []string{"observers.questions"}, across: performed(isType(arcp.HumanInputResponse))},
	{Name: "refuse and grant", Says: "a grant of an observer is refused, and given", Shows: []string{"observers.permissions"}, across: performed(isType(arcp.PermissionGrant))},
	{Name: "refuse and extend", Says: "an observer's lease.refresh is refused, and done", Shows: []string{"observers.permissions"}, across: performed(isType(arcp.LeaseRefresh))},
	{Name: "refuse and take back", Says: "an observer's lease.revoked is refused, and done", Shows: []string{"observers.permissions"}, across: performed(isType(arcp.LeaseRevoked))},
	{Name: "refuse and approve", Says: "an approval of an observer is refused, and given", Shows: []string{"observers.approvals"}, across: performed(isType(arcp.HumanChoiceResponse))},
	{Name: "ask observers", Says: "who only observes is asked what jobs of the seen ask", Shows: []string{"observers.questions"},
		across: leak(func(with, owner arcp.SessionOpenPayload) bool { return with.Auth.Token != owner.Auth.Token })},
	{Name: "ask observers of strangers", Says: "who only observes is asked what jobs of the unseen ask", Shows: []string{"observers.questions-unseen"},
		across: leak(func(with, owner arcp.SessionOpenPayload) bool { return with.Auth.Token != owner.Auth.Token })},
	{Name: "know of unseen questions", Says: "a question of who is not seen is PERMISSION_DENIED", Shows: []string{"observers.questions-unseen"},
		newRewriter: coded(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Name: "hint at unseen questions", Says: "the refusal says which question there is", Shows: []string{"observers.questions-unseen"}, across: hinting},
	{Name: "deny that a question is there", Says: "a question that an observer sees is not there for it", Shows: []string{"observers.questions", "observers.approvals"},
		newRewriter: coded(arcp.CodePermissionDenied, arcp.CodeNotFound)},
	{Name: "observers execute", Says: "an observer has the capability executes", Shows: []string{"observers.executes"},
		newRewriter: every(arcp.SessionAccepted, func(f frame) frame {
			return f.nested("capabilities", func(o map[string]json.RawMessage) { o["executes"] = encode(true) })
		})},
	{Name: "see too little", Says: "an event of who is seen is not brought", Shows: []string{"observers.session"}, newRewriter: brought(6, func(frame) []frame { return nil })},
	{Name: "see without the session", Says: "an event of who is seen does not say whose session it is of", Shows: []string{"observers.session"},
		newRewriter: inside(func(in frame) frame { return in.with("session_id", nil).with("correlation_id", nil) })},
	{Name: "see other payloads", Says: "the payload of an event of who is seen is another", Shows: []string{"observers.session"},
		newRewriter: inside(func(in frame) frame { return in.withPayload("brought", true) })},
	{Name: "see no questions", Says: "what jobs of who is seen ask is not brought", Shows: []string{"observers.session-questions"},
		newRewriter: change(func(f frame) []frame {
			if f.forwarded().Type == arcp.HumanInputRequest {
				return nil
			}
			return []frame{f}
		})},
	{Name: "number questions", Says: "a question that is brought has a number of its own", Shows: []string{"observers.session-questions"},
		newRewriter: inside(func(in frame) frame {
			if in.Type == arcp.HumanInputRequest {
				in = in.with("event_seq", in.EventSeq+1)
			}
			return in
		})},
	{Name: "see jobs of anybody", Says: "a job of who is not seen is brought beside one that is", Shows: []string{"observers.jobs"},
		across: bringing(1, func(f frame) bool { return f.Type.Terminal() })},
	{Name: "see all jobs", Says: "jobs that are not named are brought", Shows: []string{"observers.jobs"},
		across: bringing(0, isType(arcp.JobCompleted))},
	{Name: "observe from now on", Says: "since is ignored for what is another's", Shows: []string{"observers.since"}, Mute: true,
		newRewriter: asked(arcp.Subscribe, func(f frame) frame { return f.withPayload("since", nil) })},
	{Name: "observe the backfill twice", Says: "an event of the backfill comes again", Shows: []string{"observers.since"},
		newRewriter: brought(3, func(f frame) []frame { return []frame{f, f.withNewID()} })},
	{Name: "see answers of the runtime", Says: "what the runtime's own tools answer to others is brought", Shows: []string{"observers.own-tools"},
		across: bringing(0, func(f frame) bool { return f.Type == arcp.JobCompleted && bytes.Contains(f.Payload, []byte(`"items"`)) })},
	{Name: "see agents", Says: "the events of another's agents are brought", Shows: []string{"observers.own-tools"}, across: bringAgents},
	{Name: "observe anybody", Says: "sessions of who is not seen are observed", Shows: []string{"observers.unseen"}, newRewriter: acceptSubscribe(arcp.CodePermissionDenied)},
	{Name: "wait for unseen jobs", Says: "a filter that names jobs of who is not seen only is accepted", Shows: []string{"observers.unseen"}, newRewriter: acceptSubscribe(arcp.CodeNotFound)},
	{Name: "know of unseen jobs", Says: "a job of who is not seen is PERMISSION_DENIED", Shows: []string{"observers.unseen"}, newRewriter: coded(arcp.CodeNotFound, arcp.CodePermissionDenied)},
	{Name: "hint at unseen jobs", Says: "the refusal says which job there is", Shows: []string{"observers.unseen"}, across: hinting},
	{Name: "begin at unseen messages", Says: "a message of who is not seen is a position", Shows: []string{"observers.unseen"}, newRewriter: acceptSubscribe(arcp.CodeDataLoss)},
	{Name: "observe several", Says: "a filter may name sessions of several principals", Shows: []string{"observers.several"}, newRewriter: acceptSubscribe(arcp.CodeInvalidRequest)},
	{Name: "see everybody", Says: "a subscription without a filter brings what everybody does who is seen", Shows: []string{"observers.no-filter"}, newRewriter: bringToFirst},
	{Name: "see strangers", Says: "a subscription brings what somebody does who is not seen", Shows: []string{"observers.no-filter"},
		across: bringing(1, isType(arcp.JobCompleted))},
	{Name: "list what is seen", Says: "jobs of who is seen are listed", Shows: []string{"observers.lists"}, across: listSeen},
	{Name: "follow what is seen", Says: "jobs of who is seen are there to be followed", Shows: []string{"observers.lists"},
		newRewriter: coded(arcp.CodeJobNotFound, arcp.CodePermissionDenied)},
	{Name: "hint at seen jobs", Says: "the refusal to follow says which job there is", Shows: []string{"observers.lists"}, across: hinting},
}

// obeyed is a fault that acknowledges an operation which an observer may not do.
func obeyed(what, check string) Fault {
	return Fault{Name: "acknowledge " + what + " of observers", Says: what + " of who only observes are acknowledged", Shows: []string{check},
		newRewriter: instead(arcp.CodePermissionDenied, arcp.Ack, struct{}{})}
}

// people tells the connections of a check apart by the tokens they were opened with.
type people []string

// of is the place of a session.open's token among those that came; -1 if f is none.
func (t *people) of(f frame) int {
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

// known makes stages of connections whose token is known: client points to the index of the
// token. The first token is the observed principal's.
func known(begin func(client *int) rewriter) func() rewriter {
	var all people
	return func() rewriter {
		client := -1
		s := begin(&client)
		out := s.out
		s.out = func(f frame) []frame {
			if i := all.of(f); i >= 0 {
				client = i
			}
			return apply(out, f)
		}
		return s
	}
}

// performed makes stages that perform an operation of another principal whatever its answer
// was: as a message of one of the first principal's connections, before that one's next
// message.
func performed(selects func(f frame) bool) func() func() rewriter {
	return func() func() rewriter {
		var wishes []frame
		return known(func(client *int) rewriter {
			own := map[arcp.MessageID]bool{} // messages that this stage sent, not the client
			return rewriter{
				out: func(f frame) []frame {
					switch {
					case *client > 0 && selects(f):
						wishes = append(wishes, f)
					case *client == 0 && f.SessionID != "" && len(wishes) > 0:
						list := make([]frame, 0, len(wishes)+1)
						for _, w := range wishes {
							w = w.withNewID().with("session_id", f.SessionID)
							own[w.ID] = true
							list = append(list, w)
						}
						wishes = nil
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

// bringing makes stages that insert an event that was sent to a connection with the nth token.
func bringing(nth int, selects func(f frame) bool) func() func() rewriter {
	return func() func() rewriter {
		var foreign []frame
		return known(func(client *int) rewriter {
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

// bringAgents inserts an event that the first principal has registered an agent.
func bringAgents() func() rewriter {
	var agent json.RawMessage
	return known(func(client *int) rewriter {
		return rewriter{in: func(f frame) []frame {
			switch {
			case *client == 0 && f.Type == arcp.JobCompleted && bytes.Contains(f.Payload, []byte(`"registered_at"`)):
				agent, _ = json.Marshal(f.object("value")) // an object that was read
			case *client > 0 && f.Type == arcp.SubscribeEvent && agent != nil:
				event := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventHost, Data: arcp.Raw(agent)})
				event.ARCP, event.ID, event.Timestamp = f.ARCP, arcp.NewMessageID(), f.Timestamp
				return []frame{f.wrapped(event.Append(nil)), f}
			}
			return []frame{f}
		}}
	})
}

// bringToFirst brings everything to the connection's first subscription, too.
func bringToFirst() rewriter {
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

// hinting makes the refusals of existing things, which the check knows, reveal that they
// exist.
func hinting() func() rewriter {
	there := map[string]bool{} // jobs and questions
	return known(func(*int) rewriter {
		named := map[arcp.MessageID]bool{} // messages that name one of them
		return rewriter{
			out: func(f frame) []frame {
				for id := range there {
					named[f.ID] = named[f.ID] || bytes.Contains(f.text, []byte(id))
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				switch {
				case f.Type == arcp.HumanInputRequest:
					there[string(f.ID)] = true
				case f.Type == arcp.JobAccepted:
					there[string(f.JobID)] = true
				case f.Type == arcp.Nack && named[f.CorrelationID]:
					f = f.withPayload("message", "it is not yours")
				}
				return []frame{f}
			},
		}
	})
}

// listing adds a job to a page.
func (f frame) listing(id arcp.JobID) frame {
	p, err := arcp.DecodePayload[arcp.SessionJobsPayload](&f.Envelope)
	if err != nil {
		return f
	}
	entry := arcp.JobEntry{JobID: id, Agent: "demo.echo@1.0.0", Status: string(arcp.StateCompleted), CreatedAt: time.Now().UTC()}
	return f.withPayload("jobs", append(p.Jobs, entry))
}

// listSeen lists a job of the first to the others.
func listSeen() func() rewriter {
	var job arcp.JobID
	return known(func(client *int) rewriter {
		return rewriter{in: func(f frame) []frame {
			switch {
			case *client == 0 && f.Type == arcp.JobAccepted:
				job = f.JobID
			case *client > 0 && f.Type == arcp.SessionJobs:
				f = f.listing(job)
			}
			return []frame{f}
		}}
	})
}
