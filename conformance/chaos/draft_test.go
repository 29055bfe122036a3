package chaos

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

// inDraft makes the stream one of the draft dialect.
func (s *testStream) inDraft() *testStream {
	s.Dialect = arcp.DialectDraft
	return s
}

// emitsInDraft returns the messages of a job that emits two logs: job.accepted has no number, and the
// events do not name the submit.
func (s *testStream) emitsInDraft(job arcp.JobID, submit arcp.MessageID) []arcp.Envelope {
	return asDraft(s.emits(job, submit))
}

func asDraft(events []arcp.Envelope) []arcp.Envelope {
	events[0].EventSeq = 0
	for i := 1; i < len(events); i++ {
		events[i].EventSeq--
		events[i].CorrelationID, events[i].Extensions = "", nil
	}
	return events
}

func TestDraftStreamAcceptsCorrectSession(t *testing.T) {
	s := newTestStream(t, 0, aliceSession).inDraft()
	id := s.submits(1, twoLogs)
	events := s.emitsInDraft(jobOne, id)
	s.send(events...)
	s.Attach(2)
	s.send(events[3:]...)
	want(t, "a replay", s.Findings)
	if open := s.Pending(); len(open) > 0 || s.Last() != 4 {
		t.Errorf("last %d, open %v", s.Last(), open)
	}

	s.RecordSent(id)
	s.send(events[0])
	if open := s.Pending(); len(open) != 1 || !strings.Contains(open[0], "since it was accepted") {
		t.Errorf("accepted again, open is %v", open)
	}
	events[4].EventSeq = 5
	s.send(events[4])
	want(t, "sent on two connections", s.Findings)
	if open := s.Pending(); len(open) > 0 {
		t.Errorf("open is %v", open)
	}
}

// The connection may be lost between job.accepted, which is not repeated, and the events of the job.
func TestDraftStreamAcceptsLostAnswer(t *testing.T) {
	s := newTestStream(t, 0, aliceSession).inDraft()
	events := s.emitsInDraft(jobOne, s.submits(1, twoLogs))
	s.send(events[1:]...)
	want(t, "only events", s.Findings)
	if open := s.Pending(); len(open) != 1 || !strings.Contains(open[0], "was not answered") {
		t.Errorf("open is %v", open)
	}

	key := s.submits(2, Task{Kind: Echo, Key: "k"})
	outcome := s.event(jobTwo, "", arcp.JobCompleted, "{}")
	outcome.EventSeq, outcome.TraceID = 5, trace("alice", 9, 9)
	s.send(outcome)
	want(t, "the outcome of a repeated key", s.Findings)
	compare := func() []Finding { return Compare([]*Stream{s.Stream}, nil, nil) }
	want(t, "the submit of the key is not answered", compare(), RuleForeign)
	answer := s.event(jobTwo, key, arcp.JobAccepted, "{}")
	answer.EventSeq = 0
	s.send(answer)
	want(t, "the submit of the key is answered", compare())
}

// TestDraftStreamFinds covers the violations whose evidence differs from that in the RFC's dialect.
func TestDraftStreamFinds(t *testing.T) {
	for _, c := range []struct {
		why   string
		rule  Rule
		wrong func(s *testStream, events []arcp.Envelope)
	}{
		{"a number is left out", RuleGap, func(s *testStream, e []arcp.Envelope) { s.send(e[0], e[1], e[3]) }},
		{"a replay has other contents", RuleChanged, func(s *testStream, e []arcp.Envelope) {
			s.send(e...)
			s.Attach(1)
			e[2].Payload = arcp.Raw(`{"attributes":{"n":7}}`)
			s.send(e[2])
		}},
		{"an event is lost and the numbers closed up", RuleOrder, func(s *testStream, e []arcp.Envelope) {
			e[3].EventSeq = 2
			s.send(e[0], e[1], e[3])
		}},
		{"a submit is accepted twice on a connection", RuleTwice, func(s *testStream, e []arcp.Envelope) { s.send(e[0], e[0]) }},
		{"a job ends twice", RuleTwice, func(s *testStream, e []arcp.Envelope) { s.send(e...); e[4].EventSeq = 5; s.send(e[4]) }},
		{"a log comes twice", RuleTwice, func(s *testStream, e []arcp.Envelope) { s.send(e[:3]...); e[2].EventSeq = 3; s.send(e[2]) }},
		{"a job has two ends", RuleEnd, func(s *testStream, e []arcp.Envelope) {
			s.send(e...)
			second := s.event(jobOne, e[0].CorrelationID, arcp.JobCancelled, `{}`)
			second.EventSeq = 5
			s.send(second)
		}},
		{"a submit has two jobs", RuleKey, func(s *testStream, e []arcp.Envelope) { s.send(e[0]); e[0].JobID = jobTwo; s.send(e[0]) }},
		{"a job without a submit", RuleForeign, func(s *testStream, e []arcp.Envelope) { e[1].TraceID, e[1].JobID = "", jobTwo; s.send(e[0], e[1]) }},
		{"an answer without a submit", RuleAnswer, func(s *testStream, e []arcp.Envelope) { e[0].CorrelationID = "msg_x"; s.send(e[0]) }},
		{"another session's frame", RuleForeign, func(s *testStream, e []arcp.Envelope) { e[0].SessionID = otherSession; s.send(e[0]) }},
	} {
		s := newTestStream(t, 0, aliceSession).inDraft()
		c.wrong(s, s.emitsInDraft(jobOne, s.submits(1, twoLogs)))
		want(t, c.why, s.Findings, c.rule)
	}
}

// The streams of the two dialects are compared by the contents that both have.
func TestCompareAcrossDialects(t *testing.T) {
	for _, c := range []struct {
		why   string
		rules []Rule
		wrong func(w *world)
	}{
		{"a session of the draft dialect follows", nil, func(w *world) { w.b.inDraft(); w.rerun = asDraft(w.rerun)[1:] }},
		{"a session of the draft dialect submits", nil, func(w *world) { w.a.inDraft(); w.first = asDraft(w.first); w.originates(-1) }},
		{"an event is not forwarded", []Rule{RuleLost}, func(w *world) {
			w.b.inDraft()
			w.rerun = number(append(asDraft(w.rerun)[1:2], w.rerun[3:]...))
		}},
		{"an event has other contents", []Rule{RuleChanged}, func(w *world) {
			w.b.inDraft()
			w.rerun = asDraft(w.rerun)[1:]
			w.rerun[1].Payload = arcp.Raw(`{"attributes":{"n":7}}`)
		}},
		{"an event has another time", []Rule{RuleChanged}, func(w *world) {
			w.b.inDraft()
			w.rerun = asDraft(w.rerun)[1:]
			w.rerun[1].Timestamp = w.rerun[1].Timestamp.Add(1e6)
		}},
	} {
		w := newWorld(t)
		c.wrong(w)
		want(t, c.why, append(append(w.findings(), w.a.Findings...), w.b.Findings...), c.rules...)
	}
}

// The runtime recognises each library by the frame that opens or resumes a session.
func TestLibrariesAreRecognised(t *testing.T) {
	profiles := map[string]string{"fsharp": "java", "go-1.1.0": "go", unknown: "universal"} // the others have their own
	for i := range libraries {
		l := &libraries[i]
		name := l.name
		if other, ok := profiles[name]; ok {
			name = other
		}
		for _, opening := range []arcp.Envelope{
			arcp.Frame(arcp.SessionOpen, arcp.SessionOpenPayload{Auth: arcp.Auth{Scheme: "bearer", Token: "tok"}, Client: arcp.ClientInfo{Kind: "chaos", Version: "1"}}),
			arcp.Frame(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: "rt", LastEventSeq: 7}),
		} {
			opening.ID, opening.Timestamp = "msg_1", moment
			frame, err := l.newCodec("tok", false).encode(&opening)
			if err != nil {
				t.Fatal(err)
			}
			s, err := draft.NewServerCodec(frame)
			if err != nil || s.Profile().String() != name {
				t.Errorf("%s opens with %s, and is recognised as %v (%v)", l.name, frame, s.Profile(), err)
				continue
			}
			env, err := s.Decode(frame)
			if err != nil || env.Type != opening.Type {
				t.Errorf("%s is %s (%v)", frame, env.Type, err)
			}
			if p, _ := arcp.DecodePayload[arcp.SessionResumePayload](&env); env.Type == arcp.SessionResume && (p.ResumeToken != "rt" || p.LastEventSeq != 7) {
				t.Errorf("%s resumes with %s", frame, env.Payload)
			}
		}
	}
}

func TestCodecsFindProblems(t *testing.T) {
	opening := arcp.Frame(arcp.SessionOpen, arcp.SessionOpenPayload{})
	const session = `"session_id":"sess_00000000000000000000000001","timestamp":"2026-05-09T13:00:00.020Z",`
	const welcome = `{"arcp":"1.1","id":"msg_2","type":"session.welcome",` + session + `"correlation_id":"msg_1","payload":{"session_id":"sess_00000000000000000000000001","capabilities":{"features":[]}}}`
	for _, c := range []struct {
		why, frame string
		library    string
		rules      []Rule
	}{
		{"no envelope", `{`, "rfc", []Rule{RuleAnswer}},
		{"no envelope", `{`, "php", []Rule{RuleLibrary, RuleAnswer}},
		{"an event of a job that the library has no handle of", `{"arcp":"1.1","id":"msg_3","type":"job.event",` + session +
			`"job_id":"job_1","event_seq":1,"payload":{"kind":"log","ts":"2026-05-09T13:00:00.020Z","body":{"level":"info","message":""}}}`, "php", []Rule{RuleLibrary}},
	} {
		for i := range libraries {
			l := &libraries[i]
			if c.library == "rfc" {
				l = &rfc
			} else if l.name != c.library {
				continue
			}
			d := l.newCodec("tok", false)
			if _, err := d.encode(&opening); err != nil {
				t.Fatal(err)
			}
			if l != &rfc {
				_, problems := d.decode([]byte(welcome))
				want(t, "the welcome", problems)
			}
			_, problems := d.decode([]byte(c.frame))
			want(t, c.why, problems, c.rules...)
		}
	}
}

// The event in a subscribe.event is the message, and its frame is the frame outside of one.
func TestWrappedEvent(t *testing.T) {
	event := `{"arcp":"1.1","id":"msg_1","type":"job.event","payload":{}}`
	for _, frame := range []string{event, `{"arcp":"1.1","id":"msg_2","type":"subscribe.event","payload":{"event":` + event + `}}`} {
		if got, err := unwrap([]byte(frame)); string(got) != event || err != nil {
			t.Errorf("%s has %s (%v)", frame, got, err)
		}
	}
}
