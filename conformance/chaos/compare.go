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
func Compare(streams []*Stream, lists map[string][]arcp.JobEntry, effects []Effect) []Finding {
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
	all := newActivity(streams)
	for _, s := range streams {
		j.follows(s)
		j.repetitions(s)
		j.cancels(s)
		j.children(s)
		j.schedules(s, all)
	}
	j.effects(streams, effects)
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
	parent    arcp.JobID // empty: a submit started the job
	source    *View      // view of the submitting session: all events of the job that it sees
	submitter *Stream    // the submitting session
	events    map[[16]byte]Event
	end       *Event
	cancelled bool // a client requested its cancellation
}

type comparison struct {
	jobs     map[arcp.JobID]*jobRecord
	byTrace  map[string]*Submit
	findings []Finding
}

func (c *comparison) find(rule Rule, observer, format string, args ...any) {
	c.findings = append(c.findings, Finding{rule, observer, fmt.Sprintf(format, args...)})
}

func (c *comparison) job(id arcp.JobID) *jobRecord {
	t := c.jobs[id]
	if t == nil {
		t = &jobRecord{events: make(map[[16]byte]Event)}
		c.jobs[id] = t
	}
	return t
}

// addView adds one session's view of a job.
func (c *comparison) addView(s *Stream, v *View) {
	t := c.job(v.Job)
	if t.principal == "" {
		t.principal, t.trace = s.Principal, v.Trace
	}
	if t.principal != s.Principal || t.trace != v.Trace {
		c.find(RuleForeign, s.Observer, "%s belongs to %s with trace %s, and was received with trace %s", v.Job, t.principal, t.trace, v.Trace)
	}
	if _, follows := s.Follows[v.Job]; s.Dialect == arcp.DialectDraft && !v.Submitted() && !follows && s.accepted[v.Job] == nil {
		c.find(RuleForeign, s.Observer, "%s was received, which the session neither submitted nor follows", v.Job)
	}
	if v.Submitted() {
		t.source, t.submitter, t.parent = v, s, v.Parent
	}
	for _, e := range v.Events {
		if was, ok := t.events[e.ID]; ok && !was.same(&e) {
			c.find(RuleChanged, s.Observer, "%s: event %d differs from the event in another session", v.Job, e.Seq)
		}
		t.events[e.ID] = e
	}
	switch {
	case v.End == nil:
	case t.end == nil:
		t.end = v.End
	case t.end.ID != v.End.ID:
		c.find(RuleEnd, s.Observer, "%s ended with %s here and with a different %s in another session", v.Job, v.End.Type, t.end.Type)
	}
}

// follows checks that followers of a job received the events of its submitter.
func (c *comparison) follows(s *Stream) {
	for id, f := range s.Follows {
		t, v := c.jobs[id], s.Jobs[id]
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
				c.find(RuleLost, s.Observer, "%s: %s, event %d of the submitter, was not forwarded", id, e.Type, e.Seq)
			case ok && copied.Origin != 0 && copied.Origin != e.Seq:
				c.find(RuleOrigin, s.Observer, "%s: event %d was forwarded as %d", id, e.Seq, copied.Origin)
			}
			delete(got, e.ID)
		}
		for _, e := range got {
			if t.submitter.sees(e.Type) {
				c.find(RuleLost, s.Observer, "%s: %s, event %d here, was not sent to the submitter", id, e.Type, e.Seq)
			}
		}
	}
}

// repetitions finds events of followed jobs that arrived more often than the end of the job. A
// session receives each event of a followed job once (§5.4).
func (c *comparison) repetitions(s *Stream) {
	for id := range s.Follows {
		if v := s.Jobs[id]; v != nil && v.repeated() != nil {
			c.find(RuleTwice, s.Observer, "%s", v.repeats())
		}
	}
}

// cancels checks that accepted cancellations were performed, and that no other job was cancelled.
func (c *comparison) cancels(s *Stream) {
	for id, accepted := range s.Cancelled {
		if t := c.jobs[id]; accepted && t.end != nil && !endsCancelled(t.end.Type) {
			c.find(RuleAnswer, s.Observer, "%s ended with %s after its cancel was accepted", id, t.end.Type)
		}
	}
	for id, v := range s.Jobs {
		if v.End != nil && v.End.Type == arcp.JobCancelled && v.Parent == "" && !c.jobs[id].cancelled {
			c.find(RuleEnd, s.Observer, "%s was cancelled without a request", id)
		}
	}
}

// endsCancelled reports whether a cancelled job may end with the type. A cancelled direct job ends
// with tool.error.
func endsCancelled(t arcp.Type) bool { return t == arcp.JobCancelled || t == arcp.ToolError }

// keys checks that submits with the same idempotency key have the same job, and all other submits
// different jobs.
func (c *comparison) keys(streams []*Stream) {
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
					c.find(RuleKey, s.Observer, "the key %s has the jobs %s and %s", submit.Key, was, submit.Job)
				}
				byKey[k] = submit.Job
			}
			if was, ok := owner[submit.Job]; ok && was != request {
				c.find(RuleKey, s.Observer, "%s is the answer to %s and to %s", submit.Job, was, request)
			}
			owner[submit.Job] = request
		}
	}
}

// states are the listed states for final events.
var states = map[arcp.Type]arcp.JobState{arcp.JobCompleted: arcp.StateCompleted, arcp.ToolResult: arcp.StateCompleted, arcp.WorkflowComplete: arcp.StateCompleted,
	arcp.JobFailed: arcp.StateFailed, arcp.JobCancelled: arcp.StateCancelled}

// listed checks each job of a list: it is known, listed once, and in the state of its final event.
func (c *comparison) listed(principal string, list []arcp.JobEntry) {
	listed, traces := make(map[arcp.JobID]bool), make(map[string]arcp.JobID)
	for _, e := range list {
		t := c.jobs[e.JobID]
		switch {
		case listed[e.JobID]:
			c.find(RuleList, principal, "%s is listed twice", e.JobID)
		case t == nil || t.principal == "":
			c.unknown(principal, &e)
		case t.parent != e.ParentJobID:
			c.find(RuleChild, principal, "%s is listed as a child of %q and is a child of %q", e.JobID, e.ParentJobID, t.parent)
		case t.principal != principal:
			c.find(RuleForeign, principal, "%s is listed and belongs to %s", e.JobID, t.principal)
		case t.end != nil && states[t.end.Type] != "" && string(states[t.end.Type]) != e.Status:
			c.find(RuleList, principal, "%s is listed as %s and ended with %s", e.JobID, e.Status, t.end.Type)
		case !arcp.JobState(e.Status).Terminal():
			c.find(RuleEnd, principal, "%s is still %s", e.JobID, e.Status)
		}
		listed[e.JobID] = true
		if e.ParentJobID != "" { // it has the trace of its parent
			continue
		}
		if was, ok := traces[e.TraceID]; ok && was != e.JobID {
			c.find(RuleKey, principal, "the submit %s was executed as %s and as %s", e.TraceID, was, e.JobID)
		}
		traces[e.TraceID] = e.JobID
	}
}

// unknown reports a listed job that no session has received.
func (c *comparison) unknown(principal string, e *arcp.JobEntry) {
	submit := c.byTrace[e.TraceID]
	switch {
	case e.ParentJobID != "":
		c.find(RuleChild, principal, "%s is listed as a child of %s, and no session received it", e.JobID, e.ParentJobID)
	case submit == nil:
		c.find(RuleList, principal, "%s is listed without a submit: trace %s", e.JobID, e.TraceID)
	case submit.Job == "":
		c.find(RuleLost, principal, "%s is listed, and its submit %s was never answered", e.JobID, e.TraceID)
	default:
		c.find(RuleKey, principal, "%s is listed beside %s, which answered the same submit %s", e.JobID, submit.Job, e.TraceID)
	}
}

// missing finds jobs that are not listed.
func (c *comparison) missing(lists map[string][]arcp.JobEntry) {
	listed := make(map[arcp.JobID]bool)
	for _, list := range lists {
		for _, e := range list {
			listed[e.JobID] = true
		}
	}
	for id, t := range c.jobs {
		if _, asked := lists[t.principal]; asked && !listed[id] {
			c.find(RuleLost, t.principal, "%s (%s) was accepted and is not listed", id, t.trace)
		}
	}
}
