package chaos

import (
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// world has two sessions of alice and the list of jobs. The second session follows the job of the
// first.
type world struct {
	a, b  *testStream
	list  []arcp.JobEntry
	first []arcp.Envelope // as received by a
	rerun []arcp.Envelope // as forwarded to b
}

func newWorld(t *testing.T) *world {
	w := &world{a: newTestStream(t, 0, aliceSession), b: newTestStream(t, 1, otherSession)}
	id := w.a.submits(1, twoLogs)
	w.first = w.a.emits(jobOne, id)
	w.b.Follows[jobOne] = &Follow{ID: "msg_follow", Sent: 1, Confirmed: true}
	for _, e := range w.first {
		e.SessionID = otherSession
		w.rerun = append(w.rerun, e)
	}
	w.originates(0)
	w.list = []arcp.JobEntry{{JobID: jobOne, TraceID: w.a.Submits[id].Trace, Status: "completed"}}
	return w
}

// originates sets the numbers of the forwarded events in the session of the first, which are larger than
// the numbers of the second session by a difference.
func (w *world) originates(difference int) {
	for i := range w.rerun {
		w.rerun[i].Extensions = nil
		if seq := i + 1 + difference; seq > 0 {
			w.rerun[i].Extensions = arcp.Raw(fmt.Sprintf(`{"arcpx.arcp.origin.v1":{"event_seq":%d}}`, seq))
		}
	}
}

// findings sends the frames to the sessions and compares them.
func (w *world) findings() []Finding {
	w.a.send(w.first...)
	w.b.send(w.rerun...)
	return Compare([]*Stream{w.a.Stream, w.b.Stream}, map[string][]arcp.JobEntry{"alice": w.list}, nil)
}

// number numbers events without a gap.
func number(events []arcp.Envelope) []arcp.Envelope {
	for i := range events {
		events[i].EventSeq = uint64(i + 1)
	}
	return events
}

func TestCompareAcceptsCorrectRun(t *testing.T) {
	w := newWorld(t)
	want(t, "nothing is wrong", w.findings())
	want(t, "nor for a", w.a.Findings)
	want(t, "nor for b", w.b.Findings)
}

// An ended job may be followed again. All its events are then repeated.
func TestCompareAcceptsRepeatedHistory(t *testing.T) {
	w := newWorld(t)
	w.b.Follows[jobOne].Sent = 2
	w.a.send(w.first...)
	w.b.send(w.rerun...)
	for n, e := range w.rerun {
		e.EventSeq += uint64(len(w.rerun))
		w.b.send(e)
		if open := w.b.Pending(); (len(open) > 0) != (n < len(w.rerun)-1) {
			t.Errorf("%d of %d events came again: open is %q", n+1, len(w.rerun), open)
		}
	}
	want(t, "nothing is wrong", Compare([]*Stream{w.a.Stream, w.b.Stream}, map[string][]arcp.JobEntry{"alice": w.list}, nil))
	want(t, "nor for b", w.b.Findings)
}

// TestCompareFinds covers each contradiction between sessions and lists.
func TestCompareFinds(t *testing.T) {
	for _, c := range []struct {
		why   string
		rule  Rule
		wrong func(w *world)
	}{
		{"an event is not forwarded", RuleLost, func(w *world) { w.rerun = number(append(w.rerun[:2], w.rerun[3:]...)) }},
		{"an event is forwarded that the submitter was not told", RuleLost, func(w *world) { w.first = number(append(w.first[:2], w.first[3:]...)) }},
		{"an event is forwarded with other contents", RuleChanged, func(w *world) { w.rerun[2].Payload = arcp.Raw(`{}`) }},
		{"an event is forwarded with another number", RuleOrigin, func(w *world) { w.rerun[2].Extensions = w.rerun[1].Extensions }},
		{"the history is repeated for a followed job", RuleTwice, func(w *world) {
			w.b.Follows[jobOne].Sent = 2
			w.rerun = number(append(append([]arcp.Envelope{}, w.rerun[:2]...), w.rerun...))
		}},
		{"a job ends differently for two", RuleEnd, func(w *world) {
			w.rerun[4] = w.rerun[3]
			w.rerun[4].Type, w.rerun[4].EventSeq = arcp.JobCancelled, 5
			w.rerun[4].ID = w.b.event(jobOne, "", arcp.JobCancelled, "{}").ID[:29] + "Z"
		}},
		{"a job is cancelled that nobody asked for", RuleEnd, func(w *world) { w.first[4].Type = arcp.JobCancelled }},
		{"a cancelled job completes", RuleAnswer, func(w *world) { w.a.Cancelled[jobOne] = true }},
		{"a job is not listed", RuleLost, func(w *world) { w.list = nil }},
		{"a job is listed twice", RuleList, func(w *world) { w.list = append(w.list, w.list[0]) }},
		{"a job is listed with another end", RuleList, func(w *world) { w.list[0].Status = "failed" }},
		{"a job nobody submitted is listed", RuleList, func(w *world) { w.list = append(w.list, arcp.JobEntry{JobID: jobTwo, TraceID: "?"}) }},
		{"a submit was executed twice", RuleKey, func(w *world) { w.list = append(w.list, arcp.JobEntry{JobID: jobTwo, TraceID: w.list[0].TraceID}) }},
		{"a listed job's submit was not answered", RuleLost, func(w *world) {
			id := w.a.submits(2, twoLogs)
			w.list = append(w.list, arcp.JobEntry{JobID: jobTwo, TraceID: w.a.Submits[id].Trace})
		}},
		{"a key stands for two jobs", RuleKey, func(w *world) {
			for n, job := range []arcp.JobID{"job_x", "job_y"} {
				w.a.Submits[w.a.submits(10+n, Task{Kind: Echo, Key: "k"})].Job = job
			}
		}},
		{"two submits get one job", RuleKey, func(w *world) { w.a.Submits[w.a.submits(10, twoLogs)].Job = jobOne }},
		{"somebody else's job is listed", RuleForeign, func(w *world) { w.a.Principal, w.b.Principal = "bob", "bob" }},
	} {
		w := newWorld(t)
		c.wrong(w)
		want(t, c.why, w.findings(), c.rule)
	}
}
