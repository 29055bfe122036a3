package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// Judge compares the streams of all sessions with each other and with the lists of the
// principals' jobs, after everything has ended. It does not repeat findings of the streams.
func Judge(streams []*Stream, lists map[string][]arcp.JobEntry) []Finding {
	j := &judge{jobs: make(map[arcp.JobID]*truth), byTrace: make(map[string]*Submit)}
	for _, s := range streams {
		for id, submit := range s.Submits {
			j.byTrace[string(id)] = submit
		}
		for id := range s.Cancelled {
			j.truth(id).asked = true
		}
		for _, v := range s.Jobs {
			j.learn(s, v)
		}
	}
	for _, s := range streams {
		j.follows(s)
		j.twice(s)
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

// truth is the joint knowledge of all sessions about a job.
type truth struct {
	principal string
	trace     string
	source    *View // of the session that submitted it: all its events
	whole     bool  // the source negotiated checkpoints, too
	events    map[[16]byte]Event
	end       *Event
	asked     bool // a client has asked to cancel it
}

type judge struct {
	jobs     map[arcp.JobID]*truth
	byTrace  map[string]*Submit
	findings []Finding
}

func (j *judge) find(rule Rule, who, format string, args ...any) {
	j.findings = append(j.findings, Finding{rule, who, fmt.Sprintf(format, args...)})
}

func (j *judge) truth(id arcp.JobID) *truth {
	t := j.jobs[id]
	if t == nil {
		t = &truth{events: make(map[[16]byte]Event)}
		j.jobs[id] = t
	}
	return t
}

// learn adds one session's view of a job.
func (j *judge) learn(s *Stream, v *View) {
	t := j.truth(v.Job)
	if t.principal == "" {
		t.principal, t.trace = s.Principal, v.Trace
	}
	if t.principal != s.Principal || t.trace != v.Trace {
		j.find(RuleForeign, s.Observer, "%s is of %s (%s), and was told of as %s", v.Job, t.principal, t.trace, v.Trace)
	}
	if v.Followed() {
		t.source, t.whole = v, s.Checkpoints
	}
	for _, e := range v.Events {
		if was, ok := t.events[e.ID]; ok && was.Body != e.Body {
			j.find(RuleChanged, s.Observer, "%s: event %d is not what another session was sent", v.Job, e.Seq)
		}
		t.events[e.ID] = e
	}
	switch {
	case v.End == nil:
	case t.end == nil:
		t.end = v.End
	case t.end.ID != v.End.ID:
		j.find(RuleEnd, s.Observer, "%s ended with %s here and with another %s elsewhere", v.Job, v.End.Type, t.end.Type)
	}
}

// follows checks that followers of a job received the events of its submitter.
func (j *judge) follows(s *Stream) {
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
			case !ok && (e.Type != arcp.JobCheckpoint || s.Checkpoints):
				j.find(RuleLost, s.Observer, "%s: %s, event %d of its session, was not forwarded", id, e.Type, e.Seq)
			case ok && copied.Origin != 0 && copied.Origin != e.Seq:
				j.find(RuleOrigin, s.Observer, "%s: event %d was forwarded as %d", id, e.Seq, copied.Origin)
			}
			delete(got, e.ID)
		}
		for _, e := range got {
			if e.Type != arcp.JobCheckpoint || t.whole {
				j.find(RuleLost, s.Observer, "%s: the submitter was not sent %s, event %d here", id, e.Type, e.Seq)
			}
		}
	}
}

// twice finds events of followed jobs that arrived more often than the job's end did: a
// session that follows a job already receives nothing twice (§5.4).
func (j *judge) twice(s *Stream) {
	for id := range s.Follows {
		if v := s.Jobs[id]; v != nil && v.repeated() != nil {
			j.find(RuleTwice, s.Observer, "%s", v.repeats())
		}
	}
}

// cancels checks that accepted cancellations were performed, and no others.
func (j *judge) cancels(s *Stream) {
	for id, accepted := range s.Cancelled {
		if t := j.jobs[id]; accepted && t.end != nil && !cancelled(t.end.Type) {
			j.find(RuleAnswer, s.Observer, "%s ended with %s after its cancel was accepted", id, t.end.Type)
		}
	}
	for id, v := range s.Jobs {
		if v.End != nil && v.End.Type == arcp.JobCancelled && !j.jobs[id].asked {
			j.find(RuleEnd, s.Observer, "%s was cancelled, which nobody has asked for", id)
		}
	}
}

// cancelled reports how a job may end that was cancelled; a direct one has no
// other word for it than an error.
func cancelled(t arcp.Type) bool { return t == arcp.JobCancelled || t == arcp.ToolError }

// keys checks that requests with the same idempotency key got the same job, and
// others their own.
func (j *judge) keys(streams []*Stream) {
	type scoped struct{ principal, key string }
	byKey, owner := make(map[scoped]arcp.JobID), make(map[arcp.JobID]string)
	for _, s := range streams {
		for _, submit := range s.Submits {
			if submit.Job == "" {
				continue
			}
			who := string(submit.ID)
			if submit.Key != "" {
				who = submit.Key
				k := scoped{s.Principal, submit.Key}
				if was, ok := byKey[k]; ok && was != submit.Job {
					j.find(RuleKey, s.Observer, "%s stands for %s and %s", submit.Key, was, submit.Job)
				}
				byKey[k] = submit.Job
			}
			if was, ok := owner[submit.Job]; ok && was != who {
				j.find(RuleKey, s.Observer, "%s is the answer to %s and to %s", submit.Job, was, who)
			}
			owner[submit.Job] = who
		}
	}
}

// states are how a terminal event is listed.
var states = map[arcp.Type]arcp.JobState{arcp.JobCompleted: arcp.StateCompleted, arcp.ToolResult: arcp.StateCompleted,
	arcp.JobFailed: arcp.StateFailed, arcp.JobCancelled: arcp.StateCancelled}

// listed compares a list with the streams: each job on it is known and has ended in that
// state.
func (j *judge) listed(principal string, list []arcp.JobEntry) {
	once, traces := make(map[arcp.JobID]bool), make(map[string]arcp.JobID)
	for _, e := range list {
		t := j.jobs[e.JobID]
		switch {
		case once[e.JobID]:
			j.find(RuleList, principal, "%s is listed twice", e.JobID)
		case t == nil || t.principal == "":
			j.unknown(principal, &e)
		case t.principal != principal:
			j.find(RuleForeign, principal, "%s is listed, which belongs to %s", e.JobID, t.principal)
		case t.end != nil && states[t.end.Type] != "" && string(states[t.end.Type]) != e.Status:
			j.find(RuleList, principal, "%s is listed as %s and ended with %s", e.JobID, e.Status, t.end.Type)
		case !arcp.JobState(e.Status).Terminal():
			j.find(RuleEnd, principal, "%s is still %s", e.JobID, e.Status)
		}
		if was, ok := traces[e.TraceID]; ok && was != e.JobID {
			j.find(RuleKey, principal, "the submit %s was executed as %s and as %s", e.TraceID, was, e.JobID)
		}
		once[e.JobID], traces[e.TraceID] = true, e.JobID
	}
}

// unknown checks a listed job that no session has received.
func (j *judge) unknown(principal string, e *arcp.JobEntry) {
	submit := j.byTrace[e.TraceID]
	switch {
	case submit == nil:
		j.find(RuleList, principal, "%s is listed, which nobody has submitted: %s", e.JobID, e.TraceID)
	case submit.Job == "":
		j.find(RuleLost, principal, "%s is listed, and its submit %s was never answered", e.JobID, e.TraceID)
	default:
		j.find(RuleKey, principal, "%s is listed beside %s, which answered the same submit %s", e.JobID, submit.Job, e.TraceID)
	}
}

// missing looks for jobs that are not listed.
func (j *judge) missing(lists map[string][]arcp.JobEntry) {
	once := make(map[arcp.JobID]bool)
	for _, list := range lists {
		for _, e := range list {
			once[e.JobID] = true
		}
	}
	for id, t := range j.jobs {
		if _, asked := lists[t.principal]; asked && !once[id] {
			j.find(RuleLost, t.principal, "%s (%s) was accepted and is not listed", id, t.trace)
		}
	}
}
