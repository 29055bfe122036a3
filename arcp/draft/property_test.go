package draft_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

// Any order of requests, answers, refusals and events satisfies the library of the profile.
func TestConversationsSatisfyEveryLibrary(t *testing.T) {
	for _, l := range append(libraries[:len(libraries):len(libraries)], everyProfile[0]) {
		t.Run(fmt.Sprintf("%s %v", l.name, l.profile), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				c := l.connect(t).accept()
				jobs, n := []arcp.JobID{}, 0
				for range rapid.IntRange(1, 12).Draw(rt, "steps") {
					switch rapid.IntRange(0, 6).Draw(rt, "step") {
					case 0:
						n++
						jobs = append(jobs, eventJob(n))
						c.submit(eventJob(n))
					case 1:
						r := rapid.SampledFrom(refusals).Draw(rt, "refused")
						code := rapid.SampledFrom(arcp.Codes).Draw(rt, "code").Code
						id := c.request(r.request)
						c.answer(arcp.Nack, id, arcp.Errorf(code, "refused"))
						c.checker.Abandon(string(id))
					case 2:
						id := c.request(`"type":"session.list_jobs","payload":{}`)
						c.answer(arcp.SessionJobs, id, arcp.SessionJobsPayload{RequestID: id, Jobs: []arcp.JobEntry{}})
					case 3:
						n++
						id := c.request(`"type":"job.subscribe","payload":{"job_id":"` + string(eventJob(n)) + `"}`)
						jobs = append(jobs, eventJob(n))
						c.answer(arcp.JobSubscribed, id, arcp.JobSubscribedPayload{JobID: eventJob(n), CurrentStatus: "running", Agent: "a@1"})
					case 4, 5:
						if len(jobs) > 0 {
							e := rapid.SampledFrom(events).Draw(rt, "event")
							if e.t != arcp.JobResultChunk {
								c.event(rapid.SampledFrom(jobs).Draw(rt, "job"), e.t, e.payload)
							}
						}
					case 6:
						if len(jobs) > 0 {
							i := rapid.IntRange(0, len(jobs)-1).Draw(rt, "job")
							e := rapid.SampledFrom(ends).Draw(rt, "end")
							c.event(jobs[i], e.t, e.payload)
							jobs = append(jobs[:i:i], jobs[i+1:]...)
						}
					}
				}
				if t.Failed() {
					rt.Fatal("a frame is refused")
				}
			})
		})
	}
}

// Several requests wait at once and are answered in their order.
func TestPipelinedSubmits(t *testing.T) {
	for _, l := range libraries {
		c := l.connect(t).accept()
		var ids []arcp.MessageID
		for i := range 4 {
			ids = append(ids, c.request(fmt.Sprintf(`"type":"job.submit","trace_id":"%032x","payload":{"agent":"echo"}`, i+1)))
		}
		for i, id := range ids {
			env := arcp.Frame(arcp.JobAccepted, acceptedJob(eventJob(i)))
			if i == 2 {
				env = arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeDuplicateKey, "used"))
			}
			env.CorrelationID, env.TraceID = id, fmt.Sprintf("%032x", i+1)
			frames, err := c.s.AppendAnswer(nil, moment, &env)
			if err != nil {
				t.Fatal(err)
			}
			for _, frame := range frames {
				c.received(frame)
			}
		}
		if left := c.checker.Unanswered(); len(left) > 0 {
			t.Errorf("%s: without an answer: %v", l.name, left)
		}
	}
}

// No first frame panics, and one that opens nothing is an error.
func FuzzFirstFrame(f *testing.F) {
	for i, members := range hellos {
		f.Add(fmt.Appendf(nil, `{"arcp":"1.1","id":"m%d",%s}`, i, members))
	}
	for i, members := range inbound {
		f.Add(fmt.Appendf(nil, `{"arcp":"1.1","id":"m%d",%s}`, i, members))
	}
	for _, l := range libraries {
		f.Add(fmt.Appendf(nil, `{"arcp":"1.1","id":"`+l.id+`",%s}}`, 1, l.hello))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		opens := draft.Opens(frame)
		s, err := draft.NewSession(frame)
		if err != nil {
			if opens {
				t.Fatalf("Opens, but %v", err)
			}
			return
		}
		env, err := s.Decode(frame)
		if err == nil {
			wantDecodable(t, &env)
			if env.Type != arcp.SessionOpen && env.Type != arcp.SessionResume {
				t.Fatalf("a first frame is %s", env.Type)
			}
			return
		}
		wantRefused(t, s, err)
	})
}

// No later frame panics, and every error has frames or none, but is never a wrong frame.
func FuzzDecode(f *testing.F) {
	for i, members := range inbound {
		f.Add(fmt.Appendf(nil, `{"arcp":"1.1","id":"m%d",%s}`, i, members), uint8(i))
	}
	f.Fuzz(func(t *testing.T, frame []byte, n uint8) {
		c := libraries[int(n)%len(libraries)].connect(t).accept()
		env, err := c.s.Decode(frame)
		if err == nil {
			wantDecodable(t, &env)
			return
		}
		wantRefused(t, c.s, err)
	})
}

// wantDecodable checks that an envelope is one of package arcp.
func wantDecodable(t *testing.T, env *arcp.Envelope) {
	t.Helper()
	spec := arcp.Lookup(env.Type)
	if spec == nil || spec.From&arcp.FromClient == 0 {
		t.Fatalf("a client must not send %s", env.Type)
	}
	env.Timestamp = moment
	again, err := arcp.Decode(env.Append(nil))
	if err != nil {
		t.Fatalf("%s: %v", env.Append(nil), err)
	}
	if !bytes.Equal(bytes.TrimSpace(again.Payload), bytes.TrimSpace(env.Payload)) && !bytes.ContainsAny(env.Payload, "\n\r") {
		t.Fatalf("%s is %s", env.Payload, again.Payload)
	}
}

func wantRefused(t *testing.T, s *draft.Session, err error) {
	t.Helper()
	r, ok := errors.AsType[*draft.Refusal](err)
	if !ok {
		if _, ok := errors.AsType[*arcp.EncodingError](err); !ok {
			t.Fatalf("the error is %T", err)
		}
		return
	}
	nack := r.Nack()
	frames, err := s.AppendAnswer(nil, moment, &nack)
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range frames {
		if _, err := arcp.DecodeDraft(frame); err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
	}
}

// No payload of an event panics, and a frame is valid whatever a tool has emitted.
func FuzzEvent(f *testing.F) {
	for _, e := range append(events[:len(events):len(events)], ends...) {
		f.Add(string(e.t), []byte(newEvent(job, e.t, e.payload).Payload))
	}
	f.Fuzz(func(t *testing.T, typ string, payload []byte) {
		// The log has valid JSON only.
		if _, err := arcp.DecodeDraft(fmt.Appendf(nil, `{"arcp":"1.1","id":"m","type":"t","payload":%s}`, payload)); err != nil {
			return
		}
		for _, l := range libraries {
			s := l.connect(t).accept().s
			frame, err := s.AppendEvent(nil, 1, &draft.Event{ID: "msg_1", Type: arcp.Type(typ), Time: moment, JobID: job, Payload: payload})
			if err != nil {
				return
			}
			if _, err := arcp.DecodeFromRuntime(frame); err != nil || bytes.ContainsAny(frame, "\n\r") {
				t.Fatalf("%s: %v", frame, err)
			}
		}
	})
}
