package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

const (
	aliceSession = arcp.SessionID("sess_00000000000000000000000001")
	otherSession = arcp.SessionID("sess_00000000000000000000000002")
	jobOne       = arcp.JobID("job_00000000000000000000000001")
	jobTwo       = arcp.JobID("job_00000000000000000000000002")
)

var moment = time.Unix(1, 0)

// testStream is a stream that a test writes frames into.
type testStream struct {
	*Stream
	*testing.T
	seq uint64
	ids uint64 // of events, in increasing order
}

func newTestStream(t *testing.T, n int, id arcp.SessionID) *testStream {
	s := NewStream(fmt.Sprintf("alice/%02d", n), "alice", id, []string{"bob"})
	s.Checkpoints = true
	return &testStream{Stream: s, T: t}
}

// submits records a submit that was sent once.
func (s *testStream) submits(n int, task Task) arcp.MessageID {
	id := arcp.MessageID(arcp.MessagePrefix + marker("alice", 0, n))
	s.AddSubmit(&Submit{Task: task, ID: id, Trace: trace("alice", 0, n)})
	s.RecordSent(id)
	return id
}

// event returns the next event, with the next number and id.
func (s *testStream) event(job arcp.JobID, submit arcp.MessageID, t arcp.Type, payload string) arcp.Envelope {
	s.seq++
	s.ids++
	var id [16]byte
	id[15] = byte(s.ids)
	traceID := ""
	if own := s.Submits[submit]; own != nil {
		traceID = own.Trace
	}
	return arcp.Envelope{ARCP: "1.1", ID: arcp.MessageID(arcp.AppendIDBody([]byte(arcp.MessagePrefix), id)), Type: t,
		Timestamp: moment, SessionID: s.Session, JobID: job, CorrelationID: submit, TraceID: traceID,
		EventSeq: s.seq, Payload: arcp.Raw(payload)}
}

func (s *testStream) send(events ...arcp.Envelope) {
	for i := range events {
		m, problems := rfcCodec{}.decode(events[i].Append(nil))
		if len(problems) > 0 {
			s.Fatal(problems)
		}
		s.Receive(m.frame, &m.Envelope)
	}
}

// emits returns all events of a job that emits two logs.
func (s *testStream) emits(job arcp.JobID, submit arcp.MessageID) (events []arcp.Envelope) {
	for _, e := range [][2]string{{"job.accepted", `{}`}, {"job.started", `{}`}, {"log", `{"attributes":{"n":0}}`},
		{"log", `{"attributes":{"n":1}}`}, {"job.completed", `{"value":{"emitted":2}}`}} {
		events = append(events, s.event(job, submit, arcp.Type(e[0]), e[1]))
	}
	return events
}

var twoLogs = Task{Kind: Emit, Arguments: `{"count":2}`, N: 2}

// want compares the findings with the expected rules.
func want(t *testing.T, why string, findings []Finding, rules ...Rule) {
	t.Helper()
	var got []Rule
	for _, f := range findings {
		if !slices.Contains(got, f.Rule) {
			got = append(got, f.Rule)
		}
	}
	for _, r := range rules {
		if !slices.Contains(got, r) {
			t.Errorf("%s: found %v, want %s", why, findings, r)
		}
	}
	if len(rules) == 0 && len(findings) > 0 {
		t.Errorf("%s: found %v, want nothing", why, findings)
	}
}

func TestStreamAcceptsCorrectSession(t *testing.T) {
	s := newTestStream(t, 0, aliceSession)
	events := s.emits(jobOne, s.submits(1, twoLogs))
	s.send(events...)
	s.Attach(2)
	s.send(events[2:]...)
	want(t, "a replay", s.Findings)
	if open := s.Pending(); len(open) > 0 || s.Last() != 5 || s.Position() != 5 {
		t.Errorf("last %d, position %d, open %v", s.Last(), s.Position(), open)
	}
}

// TestStreamFinds covers each violation that the frames of one session can show.
func TestStreamFinds(t *testing.T) {
	for _, c := range []struct {
		why   string
		rule  Rule
		wrong func(s *testStream, events []arcp.Envelope)
	}{
		{"a number is left out", RuleGap, func(s *testStream, e []arcp.Envelope) { s.send(e[0], e[2]) }},
		{"a number comes twice", RuleGap, func(s *testStream, e []arcp.Envelope) { e[2].EventSeq = 2; s.send(e[0], e[1], e[2]) }},
		{"numbers start with two", RuleGap, func(s *testStream, e []arcp.Envelope) { s.send(e[1]) }},
		{"a replay has a gap", RuleGap, func(s *testStream, e []arcp.Envelope) { s.send(e...); s.Attach(1); s.send(e[2]) }},
		{"a replay has other contents", RuleChanged, func(s *testStream, e []arcp.Envelope) {
			s.send(e...)
			s.Attach(0)
			e[0].Payload = arcp.Raw(`{"job_id":"x"}`)
			s.send(e[0])
		}},
		{"an event changes under another number", RuleChanged, func(s *testStream, e []arcp.Envelope) {
			s.send(e...)
			e[4].EventSeq, e[4].Payload = 6, arcp.Raw(`{}`)
			s.send(e[4])
		}},
		{"an event is lost and the numbers closed up", RuleOrder, func(s *testStream, e []arcp.Envelope) {
			e[3].EventSeq, e[4].EventSeq = 3, 4
			s.send(e[0], e[1], e[3], e[4])
		}},
		{"an event is lost at the end", RuleOrder, func(s *testStream, e []arcp.Envelope) {
			e[4].EventSeq = 4
			s.send(e[0], e[1], e[2], e[4])
		}},
		{"events change places", RuleOrder, func(s *testStream, e []arcp.Envelope) {
			e[2].EventSeq, e[3].EventSeq = 4, 3
			s.send(e[0], e[1], e[3], e[2])
		}},
		{"a log comes twice", RuleTwice, func(s *testStream, e []arcp.Envelope) { s.send(e[:3]...); e[2].EventSeq = 4; s.send(e[2]) }},
		{"an answer comes twice to a submit that was sent once", RuleTwice, func(s *testStream, e []arcp.Envelope) {
			s.send(e...)
			e[4].EventSeq = 6
			s.send(e[4])
		}},
		{"a job ends twice", RuleEnd, func(s *testStream, e []arcp.Envelope) {
			s.send(e...)
			s.send(s.event(jobOne, e[0].CorrelationID, arcp.JobCancelled, `{}`))
		}},
		{"an event comes after the end", RuleEnd, func(s *testStream, e []arcp.Envelope) {
			s.send(e...)
			s.send(s.event(jobOne, e[0].CorrelationID, arcp.Log, `{"attributes":{"n":2}}`))
		}},
		{"another session's frame", RuleForeign, func(s *testStream, e []arcp.Envelope) { e[0].SessionID = otherSession; s.send(e[0]) }},
		{"another principal's marker", RuleForeign, func(s *testStream, e []arcp.Envelope) { e[0].TraceID = "msg_~bob~01~1"; s.send(e[0]) }},
		{"another principal's trace id", RuleForeign, func(s *testStream, e []arcp.Envelope) { e[0].TraceID = trace("bob", 1, 1); s.send(e[0]) }},
		{"a job without a submit", RuleForeign, func(s *testStream, e []arcp.Envelope) { e[0].CorrelationID = "msg_x"; s.send(e[0]) }},
		{"a submit gets two jobs", RuleKey, func(s *testStream, e []arcp.Envelope) { e[1].JobID = jobTwo; s.send(e[0], e[1]) }},
		{"a submit is refused", RuleAnswer, func(s *testStream, e []arcp.Envelope) {
			e[0].Type, e[0].EventSeq, e[0].JobID = arcp.JobFailed, 0, ""
			s.send(e[0])
		}},
		{"a foreign job is subscribed to", RuleForeign, func(s *testStream, e []arcp.Envelope) {
			e[0].Type, e[0].EventSeq = arcp.JobSubscribed, 0
			s.send(e[0])
		}},
		{"a foreign job is cancelled", RuleForeign, func(s *testStream, e []arcp.Envelope) {
			e[0].Type, e[0].EventSeq, e[0].Payload = arcp.CancelAccepted, 0, arcp.Raw(`{"target_id":"job_x"}`)
			s.send(e[0])
		}},
		{"an own job is unknown to a cancel", RuleLost, func(s *testStream, e []arcp.Envelope) {
			e[0].Type, e[0].EventSeq, e[0].Payload = arcp.CancelRefused, 0, arcp.Raw(`{"target_id":"job_x","reason":"not_found"}`)
			s.send(e[0])
		}},
	} {
		s := newTestStream(t, 0, aliceSession)
		c.wrong(s, s.emits(jobOne, s.submits(1, twoLogs)))
		want(t, c.why, s.Findings, c.rule)
	}
}

func TestStreamReportsMissingEvents(t *testing.T) {
	s := newTestStream(t, 0, aliceSession)
	events := s.emits(jobOne, s.submits(1, twoLogs))
	for n, text := range []string{"was not answered", "has not ended"} {
		if open := s.Pending(); len(open) != 1 || !strings.Contains(open[0], text) {
			t.Errorf("after %d events: %q, want one that %s", n, open, text)
		}
		s.send(events[n])
	}
}

// A submit may be answered once for each connection that sent it.
func TestStreamAcceptsRepeatedSubmit(t *testing.T) {
	s := newTestStream(t, 0, aliceSession)
	id := s.submits(1, twoLogs)
	events := s.emits(jobOne, id)
	s.send(events...)
	s.RecordSent(id)
	events[0].EventSeq, events[4].EventSeq = 6, 7
	s.send(events[0], events[4])
	want(t, "sent on two connections", s.Findings)
}

// Every event of each kind of job is predicted.
func TestExpectations(t *testing.T) {
	type message = []string // type and payload
	progress := func(n int) message { return message{"job.progress", fmt.Sprintf(`{"current":%d}`, n)} }
	started, saved, done := message{"job.started", `{}`}, message{"job.checkpoint", `{"checkpoint_id":"chk_1"}`}, message{"job.completed", `{}`}
	failed := func(code string) message {
		return message{"job.failed", `{"code":"` + code + `","message":"~m","retryable":false}`}
	}
	count := Task{Kind: Count, N: 3}
	chunks, art := Task{Kind: Chunks, N: 2}, Task{Kind: Artifact, N: 5}
	chunk := func(n int) message {
		return message{"stream.chunk", fmt.Sprintf(`{"sequence":%d,"data":"%d...\n"}`, n, n)}
	}
	opened, closed := message{"stream.open", `{"kind":"text"}`}, message{"stream.close", `{"final_sequence":1}`}
	broken := message{"stream.error", `{"code":"ABORTED","message":"m","retryable":true}`}
	streamed := message{"job.completed", `{"value":{"chunks":2}}`}
	object := `"artifact_id":"art_1","uri":"u","media_type":"text/plain","size":5`
	ref := message{"artifact.ref", `{"artifact":{` + object + `},` + object + `}`}
	const early = "starts before it is accepted"
	for _, c := range []struct {
		why    string
		task   Task
		events []message
		ok     bool
	}{
		{"continues at its checkpoint", count, []message{started, progress(1), saved, progress(2), started, progress(2), saved, progress(3), saved, done}, true},
		{"restarts although it has a checkpoint", count, []message{started, progress(1), saved, started, progress(1)}, false},
		{"continues after its checkpoint", count, []message{started, progress(1), saved, progress(2), started, progress(3)}, false},
		{"a checkpoint is missing", count, []message{started, progress(1), progress(2), saved}, false},
		{"ends too early", count, []message{started, progress(1), saved, done}, false},
		{"runs again from the start", Task{Kind: Progress, N: 2}, []message{started, progress(1), started, progress(1), progress(2), done}, true},
		{"emits after a restart", twoLogs, []message{started, started}, false},
		{"ends at a restart", twoLogs, []message{started, failed("ABORTED")}, true},
		{"fails without a reason", count, []message{started, failed("ABORTED")}, false},
		{"fails as requested", Task{Kind: Fail, Marker: "~m"}, []message{started, failed("NOT_FOUND")}, true},
		{"completes instead of failing", Task{Kind: Fail}, []message{started, done}, false},
		{"echoes", Task{Kind: Echo, Arguments: `{"a": 1.0}`}, []message{started, {"job.completed", `{"value":{"a": 1.0}}`}}, true},
		{"echoes something else", Task{Kind: Echo, Arguments: `{"a": 1.0}`}, []message{started, {"job.completed", `{"value":{"a":1}}`}}, false},
		{early, Task{Kind: Sleep}, []message{started}, false},
		{"streams", chunks, []message{started, opened, chunk(0), chunk(1), closed, streamed}, true},
		{"streams nothing", Task{Kind: Chunks}, []message{started, opened, {"stream.close", `{}`}, {"job.completed", `{"value":{"chunks":0}}`}}, true},
		{"a chunk is missing", chunks, []message{started, opened, chunk(1)}, false},
		{"a chunk has other data", chunks, []message{started, opened, {"stream.chunk", `{"sequence":0,"data":"1..."}`}}, false},
		{"the last chunk is missing", chunks, []message{started, opened, chunk(0), closed}, false},
		{"a stream is open at the end", chunks, []message{started, opened, chunk(0), chunk(1), streamed}, false},
		{"a stream is closed twice", chunks, []message{started, opened, chunk(0), chunk(1), closed, closed}, false},
		{"a stream ends at a restart", chunks, []message{started, opened, chunk(0), broken, started, opened, chunk(0), chunk(1), closed, streamed}, true},
		{"a stream does not end at a restart", chunks, []message{started, opened, chunk(0), started, opened}, false},
		{"a stream is continued after a restart", chunks, []message{started, opened, chunk(0), broken, started, opened, chunk(1)}, false},
		{"puts an artifact", art, []message{started, ref, {"job.completed", `{"value":{"artifact_id":"art_1"}}`}}, true},
		{"puts an artifact and returns another", art, []message{started, ref, {"job.completed", `{"value":{"artifact_id":"art_2"}}`}}, false},
		{"puts an artifact twice", art, []message{started, ref, ref}, false},
		{"puts no artifact", art, []message{started, {"job.completed", `{"value":{"artifact_id":"art_1"}}`}}, false},
		{"is accepted twice", Task{Kind: Sleep}, []message{{"job.accepted", `{}`}}, false},
		{"is direct", Task{Kind: Sleep, Direct: true}, []message{{"tool.result", `{}`}}, true},
		{"is direct and starts", Task{Kind: Sleep, Direct: true}, []message{started}, false},
		{"emits a foreign event", Task{Kind: Sleep}, []message{started, progress(1)}, false},
	} {
		e, violation := newExpectation(c.task, &Stream{Checkpoints: true, Streams: true}), ""
		if !c.task.Direct && c.why != early {
			c.events = append([]message{{"job.accepted", `{}`}}, c.events...)
		}
		for _, m := range c.events {
			env := arcp.Envelope{Type: arcp.Type(m[0]), Payload: arcp.Raw(m[1])}
			if strings.HasPrefix(m[0], "stream.") {
				env.StreamID = "str_1"
			}
			if v := e.check(&env); violation == "" {
				violation = v
			}
		}
		if (violation == "") != c.ok {
			t.Errorf("%s: violation is %q", c.why, violation)
		}
	}
}
