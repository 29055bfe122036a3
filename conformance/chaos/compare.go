package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// Compare compares the streams of all sessions with each other and with the job list of each
// principal. It is called after all jobs have ended. It does not repeat findings of the streams.
func Compare(streams []*Stream, lists map[string][]arcp.JobEntry) []Finding {
	j := &comparison{jobs: make(map[arcp.JobID]*jobRecord), byTrace: make(map[string]*Submit)}
	for _, s := range streams {
		for _, submit := range s.Submits {
			j.byTrace[submit.Trace] = submit
		}
		for id := range s.Cancelled {
			j.job(id).cancelled = true
		}
		for _, v := range s.Jobs {
			j.addView(s, v)
		}
	}
	for _, s := range streams {
		j.follows(s)
		j.repetitions(s)
		j.cancels(s)
	}
	j.keys(streams)
	for _, principal := range slices.Sorted(maps.Keys(lists)) {
		j.listed(principal, lists[principal])
	}
	j.missing(lists)
	slices.SortStableFunc(j.findings, func(a, b Finding) int { return cmp.Compare(a.String(), b.String()) })
	return j.findings
}

// jobRecord is the combined knowledge of all sessions about a job.
type jobRecord struct {
	principal string
	trace     string
	source    *View   // view of the submitting session: all events of the job that it sees
	submitter *Stream // the submitting session
	events    map[[16]byte]Event
	end       *Event
	cancelled bool // a client requested its cancellation
}

type comparison struct {
	jobs     map[arcp.JobID]*jobRecord
	byTrace  map[string]*Submit
	findings []Finding
}

func (j *comparison) find(rule Rule, observer, format string, args ...any) {
	j.findings = append(j.findings, Finding{rule, observer, fmt.Sprintf(format, args...)})
}

func (j *comparison) job(id arcp.JobID) *jobRecord {
	t := j.jobs[id]
	if t == nil {
		t = &jobRecord{events: make(map[[16]byte]Event)}
		j.jobs[id] = t
	}
	return t
}

// addView adds one session's view of a job.
func (j *comparison) addView(s *Stream, v *View) {
	t := j.job(v.Job)
	if t.principal == "" {
		t.principal, t.trace = s.Principal, v.Trace
	}
	if t.principal != s.Principal || t.trace != v.Trace {
		j.find(RuleForeign, s.Observer, "%s belongs to %s with trace %s, and was received with trace %s", v.Job, t.principal, t.trace, v.Trace)
	}
	if _, follows := s.Follows[v.Job]; s.Dialect == arcp.DialectDraft && !v.Submitted() && !follows && s.accepted[v.Job] == nil {
		j.find(RuleForeign, s.Observer, "%s was received, which the session neither submitted nor follows", v.Job)
	}
	if v.Submitted() {
		t.source, t.submitter = v, s
	}
	for _, e := range v.Events {
		if was, ok := t.events[e.ID]; ok && !was.same(&e) {
			j.find(RuleChanged, s.Observer, "%s: event %d differs from the event in another session", v.Job, e.Seq)
		}
		t.events[e.ID] = e
	}
	switch {
	case v.End == nil:
	case t.end == nil:
		t.end = v.End
	case t.end.ID != v.End.ID:
		j.find(RuleEnd, s.Observer, "%s ended with %s here and with a different %s in another session", v.Job, v.End.Type, t.end.Type)
	}
}

// follows checks that followers of a job received the events of its submitter.
func (j *comparison) follows(s *Stream) {
	for id, f := range s.Follows {
		t, v := j.jobs[id], s.Jobs[id]
		if !f.Confirmed || v == nil || t.source == nil || t.source == v {
			continue
		}
		got := make(map[[16]byte]Event, len(v.Events))
		for _, e := range v.Events {
			got[e.ID] = e
		}
		for _, e := range t.source.Events {
			copied, ok := got[e.ID]
			switch {
			case !ok && s.sees(e.Type):
				j.find(RuleLost, s.Observer, "%s: %s, event %d of the submitter, was not forwarded", id, e.Type, e.Seq)
			case ok && copied.Origin != 0 && copied.Origin != e.Seq:
				j.find(RuleOrigin, s.Observer, "%s: event %d was forwarded as %d", id, e.Seq, copied.Origin)
			}
			delete(got, e.ID)
		}
		for _, e := range got {
			if t.submitter.sees(e.Type) {
				j.find(RuleLost, s.Observer, "%s: %s, event %d here, was not sent to the submitter", id, e.Type, e.Seq)
			}
		}
	}
}

// repetitions finds events of followed jobs that arrived more often than the end of the job. A
// session receives each event of a followed job once (§5.4).
func (j *comparison) repetitions(s *Stream) {
	for id := range s.Follows {
		if v := s.Jobs[id]; v != nil && v.repeated() != nil {
			j.find(RuleTwice, s.Observer, "%s", v.repeats())
		}
	}
}

// cancels checks that accepted cancellations were performed, and that no other job was cancelled.
func (j *comparison) cancels(s *Stream) {
	for id, accepted := range s.Cancelled {
		if t := j.jobs[id]; accepted && t.end != nil && !endsCancelled(t.end.Type) {
			j.find(RuleAnswer, s.Observer, "%s ended with %s after its cancel was accepted", id, t.end.Type)
		}
	}
	for id, v := range s.Jobs {
		if v.End != nil && v.End.Type == arcp.JobCancelled && !j.jobs[id].cancelled {
			j.find(RuleEnd, s.Observer, "%s was cancelled without a request", id)
		}
	}
}

// endsCancelled reports whether a cancelled job may end with the type. A cancelled direct job ends
// with tool.error.
func endsCancelled(t arcp.Type) bool { return t == arcp.JobCancelled || t == arcp.ToolError }

// keys checks that submits with the same idempotency key have the same job, and all other submits
// different jobs.
func (j *comparison) keys(streams []*Stream) {
	type scoped struct{ principal, key string }
	byKey, owner := make(map[scoped]arcp.JobID), make(map[arcp.JobID]string)
	for _, s := range streams {
		for _, submit := range s.Submits {
			if submit.Job == "" {
				continue
			}
			request := string(submit.ID)
			if submit.Key != "" {
				request = submit.Key
				k := scoped{s.Principal, submit.Key}
				if was, ok := byKey[k]; ok && was != submit.Job {
					j.find(RuleKey, s.Observer, "the key %s has the jobs %s and %s", submit.Key, was, submit.Job)
				}
				byKey[k] = submit.Job
			}
			if was, ok := owner[submit.Job]; ok && was != request {
				j.find(RuleKey, s.Observer, "%s is the answer to %s and to %s", submit.Job, was, request)
			}
			owner[submit.Job] = request
		}
	}
}

// states are the listed states for final events.
var states = map[arcp.Type]arcp.JobState{arcp.JobCompleted: arcp.StateCompleted, arcp.ToolResult: arcp.StateCompleted,
	arcp.JobFailed: arcp.StateFailed, arcp.JobCancelled: arcp.StateCancelled}

// listed checks each job of a list: it is known, listed once, and in the state of its final event.
func (j *comparison) listed(principal string, list []arcp.JobEntry) {
	listed, traces := make(map[arcp.JobID]bool), make(map[string]arcp.JobID)
	for _, e := range list {
		t := j.jobs[e.JobID]
		switch {
		case listed[e.JobID]:
			j.find(RuleList, principal, "%s is listed twice", e.JobID)
		case t == nil || t.principal == "":
			j.unknown(principal, &e)
		case t.principal != principal:
			j.find(RuleForeign, principal, "%s is listed and belongs to %s", e.JobID, t.principal)
		case t.end != nil && states[t.end.Type] != "" && string(states[t.end.Type]) != e.Status:
			j.find(RuleList, principal, "%s is listed as %s and ended with %s", e.JobID, e.Status, t.end.Type)
		case !arcp.JobState(e.Status).Terminal():
			j.find(RuleEnd, principal, "%s is still %s", e.JobID, e.Status)
		}
		if was, ok := traces[e.TraceID]; ok && was != e.JobID {
			j.find(RuleKey, principal, "the submit %s was executed as %s and as %s", e.TraceID, was, e.JobID)
		}
		listed[e.JobID], traces[e.TraceID] = true, e.JobID
	}
}

// unknown reports a listed job that no session has received.
func (j *comparison) unknown(principal string, e *arcp.JobEntry) {
	submit := j.byTrace[e.TraceID]
	switch {
	case submit == nil:
		j.find(RuleList, principal, "%s is listed without a submit: trace %s", e.JobID, e.TraceID)
	case submit.Job == "":
		j.find(RuleLost, principal, "%s is listed, and its submit %s was never answered", e.JobID, e.TraceID)
	default:
		j.find(RuleKey, principal, "%s is listed beside %s, which answered the same submit %s", e.JobID, submit.Job, e.TraceID)
	}
}

// missing finds jobs that are not listed.
func (j *comparison) missing(lists map[string][]arcp.JobEntry) {
	listed := make(map[arcp.JobID]bool)
	for _, list := range lists {
		for _, e := range list {
			listed[e.JobID] = true
		}
	}
	for id, t := range j.jobs {
		if _, asked := lists[t.principal]; asked && !listed[id] {
			j.find(RuleLost, t.principal, "%s (%s) was accepted and is not listed", id, t.trace)
		}
	}
}
