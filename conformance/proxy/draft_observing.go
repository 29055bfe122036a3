package proxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftListFaults are defects of session.list_jobs.
var draftListFaults = []Fault{
	{Defect: "a member of session.list_jobs that cannot be read is ignored", Checks: []string{"draft.list.malformed"}, House: true,
		newRewriter: editSent(arcp.SessionListJobs, func(f frame) frame { return f.with("payload", struct{}{}) })},
	{Defect: "session.list_jobs is answered twice", Checks: []string{"draft.list.answer"},
		newRewriter: duplicateWhere(isType(arcp.SessionJobs), frame.withNewID)},
	{Defect: "a listed job has the agent without its version", Checks: []string{"draft.list.entry"},
		newRewriter: editEntries(func(e map[string]any) map[string]any { e["agent"] = "demo.echo"; return e })},
	{Defect: "a listed job has no lease", Checks: []string{"draft.list.lease"}, House: true,
		newRewriter: editEntries(func(e map[string]any) map[string]any { e["lease"] = map[string]any{}; return e })},
	{Defect: "every job that has ended is listed as a success", Checks: []string{"draft.list.status"},
		newRewriter: editEntries(func(e map[string]any) map[string]any {
			if e["status"] != "running" {
				e["status"] = "success"
			}
			return e
		})},
	{Defect: "filter.status is ignored", Checks: []string{"draft.list.filter-status", "draft.list.filter-together", "draft.list.filter-wrong"},
		newRewriter: editListFilter(func(filter map[string]any) { delete(filter, "status") })},
	{Defect: "filter.agent is ignored", Checks: []string{"draft.list.filter-agent", "draft.list.filter-together"},
		newRewriter: editListFilter(func(filter map[string]any) { delete(filter, "agent") })},
	{Defect: "filter.created_after and filter.created_before are ignored", Checks: []string{"draft.list.filter-time", "draft.list.filter-before", "draft.list.filter-after"},
		newRewriter: editListFilter(func(filter map[string]any) { delete(filter, "created_after"); delete(filter, "created_before") })},
	{Defect: "the newest job is listed first", Checks: []string{"draft.list.order", "draft.list.paging"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame {
			jobs := f.entries()
			slices.Reverse(jobs)
			return f.withPayload("jobs", jobs)
		})},
	{Defect: "the limit of a page is ignored", Checks: []string{"draft.list.limit"},
		newRewriter: editSent(arcp.SessionListJobs, func(f frame) frame { return f.withPayload("limit", nil) })},
	{Defect: "a page without a limit or with a large one has no jobs", Checks: []string{"draft.list.limit-large"}, House: true,
		newRewriter: func() rewriter {
			large := false
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.SessionListJobs {
						limit := f.numberMember("limit")
						large = limit == 0 || limit > 1000
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					if f.Type == arcp.SessionJobs && large {
						f = f.withPayload("jobs", []any{}).withPayload("next_cursor", null)
					}
					return []frame{f}
				},
			}
		}},
	{Defect: "a cursor is ignored", Checks: []string{"draft.list.paging", "draft.list.cursor-wrong", "draft.list.cursor-filter", "draft.visibility.cursor"},
		newRewriter: editSent(arcp.SessionListJobs, func(f frame) frame { return f.withPayload("cursor", nil) })},
	{Defect: "the last page has a cursor", Checks: []string{"draft.list.last-page"}, House: true,
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.withPayload("next_cursor", "more") })},
	{Defect: "a session lists the jobs that it has submitted itself", Checks: []string{"draft.list.sessions"}, newRewriter: listOwn},
	{Defect: "a job that has ended is not listed", Checks: []string{"draft.list.ended", "draft.list.status"}, House: true,
		newRewriter: editEntries(func(e map[string]any) map[string]any {
			if e["status"] != "running" {
				return nil
			}
			return e
		})},
	{Defect: "the end of a job is sent to each session that has listed the job", Checks: []string{"draft.list.read-only"}, newShared: leakEnds(true)},
}

// entries returns the jobs of a page.
func (f frame) entries() []map[string]any {
	var p struct {
		Jobs []map[string]any `json:"jobs"`
	}
	if json.Unmarshal(f.Payload, &p) != nil {
		return nil
	}
	return p.Jobs
}

// editEntries returns rewriters that edit each listed job. A nil result removes the job.
func editEntries(edit func(entry map[string]any) map[string]any) func() rewriter {
	return editReceived(arcp.SessionJobs, func(f frame) frame {
		list := []map[string]any{}
		for _, e := range f.entries() {
			if e = edit(e); e != nil {
				list = append(list, e)
			}
		}
		return f.withPayload("jobs", list)
	})
}

// editListFilter returns rewriters that edit the filter of each session.list_jobs.
func editListFilter(edit func(filter map[string]any)) func() rewriter {
	return editSent(arcp.SessionListJobs, func(f frame) frame {
		var p struct {
			Filter map[string]any `json:"filter"`
		}
		if json.Unmarshal(f.Payload, &p) != nil || p.Filter == nil {
			return f
		}
		edit(p.Filter)
		return f.withPayload("filter", p.Filter)
	})
}

// listOwn removes the jobs that were not accepted on the connection from each page.
func listOwn() rewriter {
	own := map[any]bool{}
	return rewriter{in: func(f frame) []frame {
		switch f.Type {
		case arcp.JobAccepted:
			own[string(f.JobID)] = true
		case arcp.SessionJobs:
			jobs := slices.DeleteFunc(f.entries(), func(e map[string]any) bool { return !own[e["job_id"]] })
			f = f.withPayload("jobs", jobs)
		}
		return []frame{f}
	}}
}

// leakEnds returns rewriters that send the end of each job to the other connections; with listed only to
// those that have listed jobs.
func leakEnds(listed bool) func() func() rewriter {
	return func() func() rewriter {
		var end frame
		return func() rewriter {
			leaks := !listed
			return rewriter{in: func(f frame) []frame {
				switch {
				case f.Type == arcp.SessionJobs:
					leaks = true
				case f.Type == script.JobError && f.event():
					end = f
				case f.Type == arcp.SessionPong && leaks && end.event() && end.SessionID != f.SessionID:
					return []frame{end.withNewID().with("session_id", f.SessionID).with("event_seq", 1), f}
				}
				return []frame{f}
			}}
		}
	}
}

// draftSubscribeFaults are defects of job.subscribe.
var draftSubscribeFaults = []Fault{
	{Defect: "job.subscribed has the agent without its version", Checks: []string{"draft.subscribe.answer"},
		newRewriter: editReceived(arcp.JobSubscribed, func(f frame) frame { return f.withPayload("agent", "demo.emit") })},
	{Defect: "the first event after job.subscribed is never sent and later events are renumbered", Checks: []string{"draft.subscribe.history", "draft.subscribe.history-then-live",
		"draft.subscribe.many", "draft.subscribe.from"}, newRewriter: dropFirstFollowed},
	{Defect: "the events of a followed job are numbered by job", Checks: []string{"draft.subscribe.numbers", "draft.subscribe.two-jobs"}, newRewriter: numberByJob},
	{Defect: "job.subscribed does not tell the budget", Checks: []string{"draft.subscribe.authority"}, House: true,
		newRewriter: editReceived(arcp.JobSubscribed, func(f frame) frame { return f.withPayload("budget", nil) })},
	{Defect: "job.subscribed does not tell the end of the lease", Checks: []string{"draft.subscribe.authority"}, House: true,
		newRewriter: editReceived(arcp.JobSubscribed, func(f frame) frame { return f.withPayload("lease_constraints", nil) })},
	{Defect: "the history comes without being asked for", Checks: []string{"draft.subscribe.live", "draft.subscribe.from-alone"},
		newRewriter: editSent(arcp.JobSubscribe, func(f frame) frame { return f.withPayload("history", true) })},
	{Defect: "from_event_seq is ignored", Checks: []string{"draft.subscribe.from"},
		newRewriter: editSent(arcp.JobSubscribe, func(f frame) frame { return f.withPayload("from_event_seq", nil) })},
	{Defect: "a job that has ended cannot be followed", Checks: []string{"draft.subscribe.ended", "draft.subscribe.history"},
		newRewriter: editReceived(arcp.JobSubscribed, func(f frame) frame {
			if f.stringMember("current_status") == "running" {
				return f
			}
			return f.refused(codeJobNotFound)
		})},
	{Defect: "a job has two copies of its end in a session that sees the job for two reasons", Checks: []string{"draft.subscribe.same-session", "draft.subscribe.twice",
		"draft.idempotency.running-again", "draft.idempotency.followed", "draft.idempotency.same-session"}, House: true,
		newRewriter: doubleEnds},
	{Defect: "a job has one follower at most", Checks: []string{"draft.subscribe.many"}, House: true, newShared: followOnce},
	{Defect: "job.unsubscribe is ignored", Checks: []string{"draft.subscribe.unsubscribe", "draft.subscribe.unsubscribe-resumed"}, newRewriter: dropSent(arcp.JobUnsubscribe)},
	{Defect: "job.unsubscribe takes the events of the job from the session that has submitted it", Checks: []string{"draft.subscribe.unsubscribe-own"}, Silent: true,
		newRewriter: loseUnsubscribed},
	{Defect: "the job of a subscription is read from the envelope only", Checks: []string{"draft.subscribe.payload-only"}, House: true,
		newRewriter: editSent(arcp.JobSubscribe, func(f frame) frame {
			if f.JobID == "" {
				f = f.withPayload("job_id", nil)
			}
			return f
		})},
	{Defect: "a subscription to an unknown job is PERMISSION_DENIED", Checks: []string{"draft.subscribe.unknown"}, House: true, newRewriter: replaceDraftCode(codeJobNotFound, "PERMISSION_DENIED")},
	{Defect: "a refused subscription ends the other jobs of its session", Checks: []string{"draft.subscribe.refused-harmless"}, House: true,
		newRewriter: failBeforePong(isType(arcp.JobSubscribe))},
	{Defect: "a member of job.subscribe that cannot be read is ignored", Checks: []string{"draft.subscribe.malformed"}, House: true,
		newRewriter: editSent(arcp.JobSubscribe, func(f frame) frame { return f.with("payload", map[string]any{"job_id": f.JobID}) })},
	{Defect: "a subscription without a job_id is JOB_NOT_FOUND", Checks: []string{"draft.subscribe.no-job", "draft.subscribe.malformed"}, House: true, newRewriter: replaceDraftCode("INVALID_REQUEST", codeJobNotFound)},
}

const codeJobNotFound arcp.Code = "JOB_NOT_FOUND"

// refused returns a session.error in place of the answer f.
func (f frame) refused(code arcp.Code) frame {
	return f.with("type", script.SessionError).with("payload", map[string]any{"code": code, "message": "refused", "retryable": false, "request_id": f.stringMember("request_id")})
}

// replaceDraftCode returns rewriters that replace a code in refusals and failures.
func replaceDraftCode(from, to arcp.Code) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if f.code() == from {
			f = f.withPayload("code", to)
		}
		return []frame{f}
	})
}

// dropSent returns rewriters that drop each frame of type typ from the client.
func dropSent(typ arcp.Type) func() rewriter { return dropSentWhere(isType(typ)) }

// dropSentWhere returns rewriters that drop the selected frames of the client.
func dropSentWhere(selects func(f frame) bool) func() rewriter {
	return func() rewriter {
		return rewriter{out: func(f frame) []frame {
			if selects(f) {
				return nil
			}
			return []frame{f}
		}}
	}
}

// dropFirstFollowed drops the first event after job.subscribed, and renumbers the later events.
func dropFirstFollowed() rewriter {
	followed, gone := false, uint64(0)
	return rewriter{in: func(f frame) []frame {
		switch {
		case f.Type == arcp.JobSubscribed:
			followed = true
		case f.event() && followed:
			followed = false
			gone++
			return nil
		case f.event():
			f = f.with("event_seq", f.EventSeq-gone)
		}
		return []frame{f}
	}}
}

// numberByJob numbers the events of each followed job from 1.
func numberByJob() rewriter {
	next := map[arcp.JobID]uint64{}
	return rewriter{in: func(f frame) []frame {
		switch {
		case f.Type == arcp.JobSubscribed:
			next[f.JobID] = 1
		case f.event() && next[f.JobID] > 0:
			f = f.with("event_seq", next[f.JobID])
			next[f.JobID]++
		}
		return []frame{f}
	}}
}

// doubleEnds repeats the end of each job that the client has submitted and follows, or follows twice.
func doubleEnds() rewriter {
	reasons := map[arcp.JobID]int{}
	return insertEvents(func(f frame) (frame, bool) {
		if f.Type == arcp.JobAccepted || f.Type == arcp.JobSubscribed {
			reasons[f.JobID]++
		}
		return f.withNewID(), f.event() && reasons[f.JobID] > 1 && (f.Type == script.JobError || f.Type == script.JobResult)
	})
}

// followOnce refuses the second and each later subscription to a job.
func followOnce() func() rewriter {
	followed := map[arcp.JobID]bool{}
	return rewriteReceived(func(f frame) []frame {
		if f.Type == arcp.JobSubscribed {
			if followed[f.JobID] {
				f = f.refused(codeJobNotFound)
			}
			followed[f.JobID] = true
		}
		return []frame{f}
	})
}

// failBeforePong returns rewriters that end the oldest job before the first pong after a selected message.
func failBeforePong(selects func(f frame) bool) func() rewriter {
	return func() rewriter {
		sent := false
		r := failOthers(func(f frame) bool {
			due := sent && f.Type == arcp.SessionPong
			sent = sent && !due
			return due
		})()
		r.out = func(f frame) []frame {
			sent = sent || selects(f)
			return []frame{f}
		}
		return r
	}
}

// loseUnsubscribed drops the events of each job after its job.unsubscribe.
func loseUnsubscribed() rewriter {
	left := map[arcp.JobID]bool{}
	return rewriter{
		out: func(f frame) []frame {
			if f.Type == arcp.JobUnsubscribe {
				left[f.JobID] = true
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.event() && left[f.JobID] {
				return nil
			}
			return []frame{f}
		},
	}
}

// draftResumeFaults are defects of resumes and of takeovers.
var draftResumeFaults = []Fault{
	{Defect: "a resume is answered with the token that it has used", Checks: []string{"draft.resume.answer", "draft.resume.message"}, newRewriter: returnUsedToken},
	{Defect: "a resume leaves out the first event after its position", Checks: []string{"draft.resume.every-position", "draft.resume.unread", "draft.resume.message",
		"draft.resume.no-position", "draft.resume.cut-again", "draft.resume.cut-chunks", "draft.takeover.half-open", "draft.takeover.while-running"}, Silent: true,
		newRewriter: dropFirstReplayed},
	{Defect: "a resume replays every event", Checks: []string{"draft.resume.every-position", "draft.resume.caught-up", "draft.resume.numbers", "draft.resume.acknowledged"},
		newRewriter: editResume(func(m map[string]any) { m["last_event_seq"] = 0 })},
	{Defect: "a resume by a client that has every event is refused", Checks: []string{"draft.resume.caught-up", "draft.resume.numbers", "draft.resume.acknowledged"}, newShared: refuseCaughtUp},
	{Defect: "a resume at a position that was not reached is one at the last event", Checks: []string{"draft.resume.ahead"}, House: true, newShared: clampPosition},
	{Defect: "a resume with any token has the session", Checks: []string{"draft.resume.token-wrong", "draft.resume.token-used", "draft.resume.message-wrong"}, newShared: anyToken},
	{Defect: "a resume that fails opens a new session", Checks: []string{"draft.resume.ahead", "draft.resume.token-wrong", "draft.resume.token-used", "draft.resume.principal", "draft.resume.unknown",
		"draft.resume.message-wrong"},
		newShared: welcomeRefused},
	{Defect: "a resume does not compare the principal", Checks: []string{"draft.resume.principal"}, newShared: anyPrincipal},
	{Defect: "a welcome uses up the token before its client has sent a message", Checks: []string{"draft.resume.token-lost"}, House: true, newShared: useUpTokens},
	{Defect: "session.resume is refused as the first message", Checks: []string{"draft.resume.message", "draft.resume.no-position"},
		newRewriter: refuseMessage},
	{Defect: "session.resume without a position replays nothing", Checks: []string{"draft.resume.no-position"}, Silent: true, House: true, newShared: startAtLast},
	{Defect: "a job fails when the connection of its session ends", Checks: []string{"draft.resume.running", "draft.resume.while-away", "draft.resume.unread", "draft.resume.cut-again", "draft.ping.survives"},
		newRewriter: editResumed(func(f frame) frame {
			if f.Type != script.JobResult && f.Type != script.JobError {
				return f
			}
			return f.with("type", script.JobError).with("payload", map[string]any{"job_id": f.JobID, "final_status": "error", "code": "INTERNAL_ERROR",
				"message": "session closed", "retryable": true, "completed_at": f.stringMember("completed_at")})
		})},
	{Defect: "a resume negotiates the features again", Checks: []string{"draft.resume.features"}, House: true,
		newRewriter: editResumed(func(f frame) frame {
			if f.Type != script.SessionWelcome {
				return f
			}
			return f.editObject("capabilities", func(o map[string]json.RawMessage) { o["features"] = json.RawMessage(`["ack","list_jobs","subscribe"]`) })
		})},
	{Defect: "two connections of a session go on after a resume", Checks: []string{"draft.takeover.race", "draft.takeover.half-open"}, House: true, newShared: shareSession},
	{Defect: "a resumed session follows no job", Checks: []string{"draft.resume.follows", "draft.takeover.follower", "draft.takeover.race"}, House: true, Silent: true,
		newRewriter: afterResume(func() func(f frame) []frame { return dropWhere(frame.event)().in })},
	{Defect: "a session whose connection may be half-open cannot be resumed", Checks: []string{"draft.takeover.half-open", "draft.takeover.while-running", "draft.takeover.follower", "draft.takeover.race"}, House: true,
		newRewriter: refuseResumes},
}

// shareSession makes the end of a connection with a session one that the client does not see: pings are
// answered, and the events that other connections have had since come on this one, too.
func shareSession() func() rewriter {
	var events []frame
	return func() rewriter {
		var welcome frame
		var pings []frame
		copied := 0
		return rewriter{
			out: func(f frame) []frame {
				if f.Type == arcp.SessionPing {
					pings = append(pings, f)
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				if f.Type == script.SessionWelcome {
					welcome = f
				}
				if f.event() {
					events = append(events, f)
				}
				copied = len(events)
				return []frame{f}
			},
			afterEnd: func() []frame {
				if welcome.Type == "" {
					return nil
				}
				frames := slices.Clone(events[copied:])
				for _, ping := range pings {
					frames = append(frames, welcome.withNewID().with("type", arcp.SessionPong).
						with("payload", map[string]any{"ping_nonce": ping.stringMember("nonce"), "received_at": past}))
				}
				copied, pings = len(events), nil
				return frames
			},
		}
	}
}

// resumption returns what the first message of a client says of the session to resume; nil if it resumes none.
func (f frame) resumption() map[string]any {
	var p struct {
		Resume map[string]any `json:"resume"`
	}
	if f.Type == script.SessionHello && json.Unmarshal(f.Payload, &p) == nil {
		return p.Resume
	}
	var members map[string]any
	if f.Type == arcp.SessionResume && json.Unmarshal(f.Payload, &members) == nil {
		return members
	}
	return nil
}

// withResumption returns a copy with other members.
func (f frame) withResumption(m map[string]any) frame {
	if f.Type == script.SessionHello {
		return f.withPayload("resume", m)
	}
	return f.with("payload", m)
}

// editResume returns rewriters that edit what each resume says of its session.
func editResume(edit func(m map[string]any)) func() rewriter {
	return func() rewriter { return rewriter{out: editingResume(edit)} }
}

func editingResume(edit func(m map[string]any)) func(f frame) []frame {
	return func(f frame) []frame {
		if m := f.resumption(); m != nil {
			edit(m)
			f = f.withResumption(m)
		}
		return []frame{f}
	}
}

// afterResume returns rewriters that replace the frames of the connections that resume a session.
func afterResume(begin func() func(f frame) []frame) func() rewriter {
	return func() rewriter {
		edit, resumed := begin(), false
		return rewriter{
			out: func(f frame) []frame {
				resumed = resumed || f.resumption() != nil
				return []frame{f}
			},
			in: func(f frame) []frame {
				if resumed {
					return edit(f)
				}
				return []frame{f}
			},
		}
	}
}

// editResumed returns rewriters that edit each frame of the connections that resume a session.
func editResumed(edit func(f frame) frame) func() rewriter {
	return afterResume(func() func(f frame) []frame { return func(f frame) []frame { return []frame{edit(f)} } })
}

// dropFirstReplayed drops the first event of each connection that resumes a session.
func dropFirstReplayed() rewriter {
	return afterResume(func() func(f frame) []frame {
		dropped := false
		return func(f frame) []frame {
			if f.event() && !dropped {
				dropped = true
				return nil
			}
			return []frame{f}
		}
	})()
}

// refuseResumes refuses each resume.
func refuseResumes() rewriter {
	return editResumed(func(f frame) frame {
		if f.Type == script.SessionWelcome {
			f = f.refused("RESUME_WINDOW_EXPIRED")
		}
		return f
	})()
}

// refuseMessage refuses each session.resume.
func refuseMessage() rewriter {
	refuses := false
	return rewriter{
		out: func(f frame) []frame {
			refuses = refuses || f.Type == arcp.SessionResume
			return []frame{f}
		},
		in: func(f frame) []frame {
			if refuses && f.Type == script.SessionWelcome {
				f = f.refused("INVALID_REQUEST")
			}
			return []frame{f}
		},
	}
}

// returnUsedToken answers a resume with the token that the resume has used.
func returnUsedToken() rewriter {
	var token any
	return rewriter{
		out: func(f frame) []frame {
			if m := f.resumption(); m != nil {
				token = m["resume_token"]
			}
			return []frame{f}
		},
		in: func(f frame) []frame {
			if f.Type == script.SessionWelcome && token != nil {
				f = f.withPayload("resume_token", token)
			}
			return []frame{f}
		},
	}
}

// number returns a decoded JSON number; 0 for any other value.
func number(v any) uint64 {
	n, _ := v.(float64)
	return uint64(n)
}

// lastSeq returns a function that records the highest event number, which is in last.
func lastSeq(last *uint64) func(f frame) []frame {
	return func(f frame) []frame {
		*last = max(*last, f.EventSeq)
		return []frame{f}
	}
}

// refuseCaughtUp refuses each resume at the last event.
func refuseCaughtUp() func() rewriter {
	var last uint64
	return func() rewriter {
		refuse := false
		record := lastSeq(&last)
		return rewriter{
			out: func(f frame) []frame {
				if m := f.resumption(); m != nil {
					refuse = number(m["last_event_seq"]) == last
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				if f.Type == script.SessionWelcome && refuse {
					return []frame{f.refused("RESUME_WINDOW_EXPIRED")}
				}
				return record(f)
			},
		}
	}
}

// clampPosition replaces a position after the last event with the last event.
func clampPosition() func() rewriter {
	var last uint64
	return func() rewriter {
		return rewriter{in: lastSeq(&last), out: editingResume(func(m map[string]any) { m["last_event_seq"] = min(number(m["last_event_seq"]), last) })}
	}
}

// startAtLast gives a resume without a position the last event.
func startAtLast() func() rewriter {
	var last uint64
	return func() rewriter {
		return rewriter{in: lastSeq(&last), out: editingResume(func(m map[string]any) {
			if m["last_event_seq"] == nil {
				m["last_event_seq"] = last
			}
		})}
	}
}

// anyToken replaces the token of each resume by the newest one.
func anyToken() func() rewriter {
	var token string
	return func() rewriter {
		return rewriter{
			in: func(f frame) []frame {
				if f.Type == script.SessionWelcome {
					token = f.stringMember("resume_token")
				}
				return []frame{f}
			},
			out: editingResume(func(m map[string]any) { m["resume_token"] = token }),
		}
	}
}

// welcomeRefused answers a resume that is refused with a welcome.
func welcomeRefused() func() rewriter {
	payload := json.RawMessage(`{"session_id":"sess_01JZ0000000000000000000000","runtime":{"name":"r","version":"1"},"resume_token":"rt_1","resume_window_sec":600,` +
		`"accepted_at":"2026-01-01T00:00:00Z","capabilities":{"encodings":["json"],"features":[],"agents":[]}}`)
	return func() rewriter {
		welcomed := false
		return rewriter{in: func(f frame) []frame {
			if f.Type == script.SessionError && !welcomed {
				f = f.with("type", script.SessionWelcome).with("payload", payload)
			}
			welcomed = welcomed || f.Type == script.SessionWelcome
			return []frame{f}
		}}
	}
}

// anyPrincipal replaces the credentials of each resume by those of the first session.hello.
func anyPrincipal() func() rewriter {
	var auth map[string]json.RawMessage
	return func() rewriter {
		return rewriter{out: func(f frame) []frame {
			switch {
			case f.Type != script.SessionHello:
			case auth == nil:
				auth = f.objectMember("auth")
			case f.resumption() != nil:
				f = f.withPayload("auth", auth)
			}
			return []frame{f}
		}}
	}
}

// useUpTokens makes each token after its first use a wrong one.
func useUpTokens() func() rewriter {
	used := map[any]bool{}
	return editResume(func(m map[string]any) {
		token := m["resume_token"]
		if used[token] {
			m["resume_token"] = "used"
		}
		used[token] = true
	})
}

// draftBuiltinFaults are defects of the runtime's own agents.
var draftBuiltinFaults = []Fault{
	{Defect: "tools.list has another name for an agent", Checks: []string{"draft.builtin.tools"}, House: true, newRewriter: replaceOutput(`"name":"demo.echo"`, `"name":"demo.other"`)},
	{Defect: "tools.describe describes one version of an agent only", Checks: []string{"draft.builtin.describe"}, House: true, newRewriter: replaceOutput(`"version":"0.9.0"`, `"version":"1.0.0"`)},
	{Defect: "a job that was cancelled is completed for jobs.get and jobs.wait", Checks: []string{"draft.builtin.job", "draft.builtin.wait"}, House: true,
		newRewriter: replaceOutput(`"status":"cancelled"`, `"status":"completed"`)},
	{Defect: "jobs.delete returns the job and deletes nothing", Checks: []string{"draft.builtin.delete"}, House: true, newRewriter: replaceSent(`"jobs.delete"`, `"jobs.get"`)},
	{Defect: "an approval is resolved with its first option", Checks: []string{"draft.builtin.approval"}, House: true, newRewriter: replaceOutput(`"resolution":"later"`, `"resolution":"now"`)},
	{Defect: "approval.wait returns Approved for each approval", Checks: []string{"draft.builtin.approval-wait"}, House: true, newRewriter: replaceOutput(`"outcome":"Denied"`, `"outcome":"Approved"`)},
	{Defect: "a resource has another kind than it was registered with", Checks: []string{"draft.builtin.resource"}, House: true, newRewriter: replaceOutput(`"kind":"sandbox"`, `"kind":"vm"`)},
	{Defect: "a lease that is released stays active", Checks: []string{"draft.builtin.lease"}, House: true, newRewriter: replaceOutput(`"state":"released"`, `"state":"active"`)},
	{Defect: "every host agent is idle", Checks: []string{"draft.builtin.host"}, House: true, newRewriter: replaceOutput(`"status":"running"`, `"status":"idle"`)},
	{Defect: "every session is detached", Checks: []string{"draft.builtin.sessions"}, House: true, newRewriter: replaceOutput(`"state":"connected"`, `"state":"detached"`)},
	{Defect: "sessions.evict forgets each session", Checks: []string{"draft.builtin.evict"}, House: true, newRewriter: replaceSent(`"forget":false`, `"forget":true`)},
	{Defect: "sessions.evict forgets no session", Checks: []string{"draft.builtin.evict-forget"}, House: true, newRewriter: replaceSent(`"forget":true`, `"forget":false`)},
	{Defect: "an artifact has the digest of other content", Checks: []string{"draft.builtin.artifact"}, House: true, newRewriter: replaceOutput(`"sha256":"2cf24dba`, `"sha256":"3cf24dba`)},
	{Defect: "the part of an artifact is from its start", Checks: []string{"draft.builtin.artifact"}, House: true, newRewriter: replaceSent(`"offset":1`, `"offset":0`)},
	{Defect: "an artifact with a wrong digest is stored", Checks: []string{"draft.builtin.artifact-refused"}, House: true, newRewriter: replaceSent(`"sha256":"0cf24dba`, `"sha256":"2cf24dba`)},
	{Defect: "a range past the end of an artifact is empty", Checks: []string{"draft.builtin.artifact-refused"}, House: true, newRewriter: replaceSent(`"offset":6`, `"offset":5`)},
	{Defect: "an agent of the runtime succeeds for an object that does not exist", Checks: []string{"draft.builtin.job-unknown", "draft.builtin.approval-unknown", "draft.builtin.resource",
		"draft.visibility.job", "draft.visibility.approval", "draft.visibility.sessions"}, House: true,
		newRewriter: editReceived(script.JobError, func(f frame) frame {
			if !f.event() || f.code() != codeJobNotFound && !bytes.Contains(f.Payload, []byte(`"arcp_code":"NOT_FOUND"`)) {
				return f
			}
			return f.with("type", script.JobResult).with("payload", map[string]any{"job_id": f.JobID, "final_status": "success", "result": struct{}{}, "output": struct{}{},
				"completed_at": f.stringMember("completed_at")})
		})},
	{Defect: "a schedule is counted as fired before its time", Checks: []string{"draft.builtin.schedule"}, House: true, newRewriter: replaceOutput(`"fired":0`, `"fired":1`)},
	{Defect: "a schedule of an unknown agent calls another", Checks: []string{"draft.builtin.schedule-refused"}, Silent: true, House: true, newRewriter: replaceSent(`"no.such.agent"`, `"demo.echo"`)},
	{Defect: "wrong input of an agent is AGENT_NOT_AVAILABLE", Checks: []string{"draft.builtin.arguments"}, House: true, newRewriter: replaceDraftCode("INVALID_REQUEST", "AGENT_NOT_AVAILABLE")},
}

// draftVisibilityFaults are defects that tell a principal of the jobs and sessions of another one.
var draftVisibilityFaults = []Fault{
	{Defect: "a list has the jobs of every principal", Checks: []string{"draft.visibility.list"}, newShared: listAll},
	{Defect: "the job of another principal can be followed", Checks: []string{"draft.visibility.subscribe", "draft.visibility.subscribe-same"}, newRewriter: acceptFollowed},
	{Defect: "the refusal of a subscription reveals that the job exists", Checks: []string{"draft.visibility.subscribe-same"}, House: true, newShared: revealJobs},
	{Defect: "the cancel of another principal's job is acknowledged", Checks: []string{"draft.visibility.cancel"}, newRewriter: acknowledgeCancel},
	{Defect: "the end of a job is sent to each session", Checks: []string{"draft.visibility.events", "draft.visibility.subscribe"}, newShared: leakEnds(false)},
	{Defect: "an idempotency key is one of all principals", Checks: []string{"draft.visibility.key"}, House: true, newShared: shareKeys},
	{Defect: "the refusal of a resume reveals that the session exists", Checks: []string{"draft.visibility.resume", "draft.resume.principal"}, House: true, newShared: revealSessions},
}

// replaceOutput returns rewriters that replace a text in the results of jobs.
func replaceOutput(old, text string) func() rewriter {
	return editReceived(script.JobResult, func(f frame) frame { return f.replace(old, text) })
}

// listAll adds the jobs of all connections to each page.
func listAll() func() rewriter {
	var all []any
	return rewriteReceived(func(f frame) []frame {
		switch f.Type {
		case arcp.JobAccepted:
			all = append(all, map[string]any{"job_id": f.JobID, "agent": f.stringMember("agent"), "status": "success", "lease": struct{}{},
				"created_at": f.stringMember("accepted_at"), "submitted_at": f.stringMember("accepted_at"), "last_event_seq": 1})
		case arcp.SessionJobs:
			f = f.withPayload("jobs", all)
		}
		return []frame{f}
	})
}

// lastJob returns a function that records the job of each message of type typ, which is in job.
func lastJob(typ arcp.Type, job *arcp.JobID) func(f frame) []frame {
	return func(f frame) []frame {
		if f.Type == typ {
			*job = f.JobID
		}
		return []frame{f}
	}
}

// acceptFollowed replaces each refusal of a subscription by job.subscribed.
func acceptFollowed() rewriter {
	var job arcp.JobID
	return rewriter{out: lastJob(arcp.JobSubscribe, &job), in: func(f frame) []frame {
		if f.Type == script.SessionError && f.code() == codeJobNotFound {
			f = f.with("type", arcp.JobSubscribed).with("job_id", job).with("payload", map[string]any{"job_id": job, "current_status": "running", "agent": "demo.sleep@1.0.0",
				"lease": struct{}{}, "request_id": f.stringMember("request_id")})
		}
		return []frame{f}
	}}
}

// revealJobs refuses a subscription with another message if any connection has submitted the job.
func revealJobs() func() rewriter {
	known := map[arcp.JobID]bool{}
	return func() rewriter {
		var job arcp.JobID
		return rewriter{out: lastJob(arcp.JobSubscribe, &job), in: func(f frame) []frame {
			switch {
			case f.Type == arcp.JobAccepted:
				known[f.JobID] = true
			case f.Type == script.SessionError && known[job]:
				f = f.withPayload("message", "the job is another principal's")
			}
			return []frame{f}
		}}
	}
}

// acknowledgeCancel sends job.cancelled for each job.cancel before the next session.pong.
func acknowledgeCancel() rewriter {
	var job arcp.JobID
	return rewriter{out: lastJob(script.JobCancel, &job), in: func(f frame) []frame {
		if f.Type != arcp.SessionPong || job == "" {
			return []frame{f}
		}
		ack := f.withNewID().with("type", arcp.JobCancelled).with("job_id", job).with("payload", map[string]any{"job_id": job})
		job = ""
		return []frame{ack, f}
	}}
}

// shareKeys answers each later submit with the job of the first.
func shareKeys() func() rewriter {
	var first arcp.JobID
	return rewriteReceived(func(f frame) []frame {
		if f.Type == arcp.JobAccepted {
			first = cmp.Or(first, f.JobID)
			f = f.with("job_id", first).withPayload("job_id", first)
		}
		return []frame{f}
	})
}

// revealSessions refuses a resume with another code if any connection has opened the session.
func revealSessions() func() rewriter {
	known := map[any]bool{}
	return func() rewriter {
		reveals := false
		return rewriter{
			out: func(f frame) []frame {
				if m := f.resumption(); m != nil {
					reveals = known[m["session_id"]]
				}
				return []frame{f}
			},
			in: func(f frame) []frame {
				switch {
				case f.Type == script.SessionWelcome:
					known[string(f.SessionID)] = true
				case f.Type == script.SessionError && reveals:
					f = f.withPayload("code", "PERMISSION_DENIED")
				}
				return []frame{f}
			},
		}
	}
}

// draftRecoveryFaults are defects of a server that was killed and started again.
var draftRecoveryFaults = []Fault{
	{Defect: "a server that was started again knows no session", Checks: []string{"draft.recovery.events", "draft.recovery.job", "draft.recovery.running", "draft.recovery.following"}, House: true,
		newRewriter: refuseResumes},
	{Defect: "a server that was started again has lost an event of each session", Checks: []string{"draft.recovery.events", "draft.recovery.running"}, Silent: true, House: true, newRewriter: dropFirstReplayed},
	{Defect: "a server that was started again takes any token", Checks: []string{"draft.recovery.token"}, House: true, newShared: anyToken},
	{Defect: "a server that was started again lists no job", Checks: []string{"draft.recovery.list", "draft.recovery.cursor", "draft.recovery.job"}, House: true,
		newShared: later(editEntries(func(map[string]any) map[string]any { return nil }))},
	{Defect: "a server that was started again knows no idempotency key", Checks: []string{"draft.recovery.key"}, House: true,
		newShared: later(editSent(script.JobSubmit, func(f frame) frame { return f.withPayload("idempotency_key", nil) }))},
	{Defect: "a server that was started again has no history of a job", Checks: []string{"draft.recovery.history"}, House: true,
		newShared: later(editReceived(arcp.JobSubscribed, func(f frame) frame { return f.refused(codeJobNotFound) }))},
	{Defect: "a server that was started again refuses each cursor", Checks: []string{"draft.recovery.cursor"}, House: true,
		newShared: later(editSent(arcp.SessionListJobs, func(f frame) frame {
			if f.stringMember("cursor") != "" {
				f = f.withPayload("cursor", "of another server")
			}
			return f
		}))},
}

// later returns rewriters of which the first connection has none.
func later(begin func() rewriter) func() func() rewriter {
	return func() func() rewriter {
		first := true
		return func() rewriter {
			if first {
				first = false
				return rewriter{}
			}
			return begin()
		}
	}
}
