package draft_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/arcp/draft/strict"
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
func TestPipelinedSubmitsAreAnsweredInOrder(t *testing.T) {
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
			frames, err := answerFrames(c.s, &env)
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
		s, err := draft.NewServerCodec(frame)
		if err != nil {
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

func wantRefused(t *testing.T, s *draft.ServerCodec, err error) {
	t.Helper()
	r, ok := errors.AsType[*draft.Refusal](err)
	if !ok {
		if _, ok := errors.AsType[*arcp.EncodingError](err); !ok {
			t.Fatalf("the error is %T", err)
		}
		return
	}
	nack := r.Nack()
	frames, err := answerFrames(s, &nack)
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range frames {
		if _, err := arcp.DecodeDraft(frame); err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
	}
}

// wantAccepted checks the frame of an event of any payload with every library. The numbers and
// identifiers of chunks are the tool's.
func wantAccepted(t testing.TB, e *draft.Event) {
	t.Helper()
	for _, l := range append(libraries[:len(libraries):len(libraries)], everyProfile[0]) {
		c := l.connect(t).accept()
		c.submit(job)
		frame, err := c.s.AppendEvent(nil, 1, c.submits[job], e)
		if err != nil {
			return
		}
		for _, v := range c.checker.Received(frame) {
			if v.Rule != strict.RuleChunk && v.Rule != strict.RuleResult {
				t.Fatalf("%s: %v in %s", l.name, v, frame)
			}
		}
		if _, err := arcp.DecodeFromRuntime(frame); err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
	}
}

// A frame is valid whatever a tool has emitted: F# stops to read after one that is not.
func FuzzEvent(f *testing.F) {
	for _, e := range append(events[:len(events):len(events)], ends...) {
		f.Add(string(e.t), []byte(newEvent(job, e.t, e.payload).Payload))
	}
	f.Fuzz(func(t *testing.T, typ string, payload []byte) {
		// The log has valid JSON only.
		if _, err := arcp.DecodeDraft(fmt.Appendf(nil, `{"arcp":"1.1","id":"m","type":"t","payload":%s}`, payload)); err != nil {
			return
		}
		wantAccepted(t, rawEvent(arcp.Type(typ), payload))
	})
}

// Payloads of random members and values.
func TestAnyPayloadSatisfiesEveryLibrary(t *testing.T) {
	var types []arcp.Type
	for _, e := range append(events[:len(events):len(events)], ends...) {
		types = append(types, e.t)
	}
	names := []string{"name", "data", "current", "total", "percent", "units", "message", "result_id", "chunk_seq", "encoding", "more", "level", "attributes",
		"value", "unit", "dims", "uri", "media_type", "size", "sha256", "result_size", "summary", "code", "details", "reason", "retryable", "description"}
	emitted := []string{"tool", "args", "call_id", "result", "error", "child_job_id", "delegate_id", "agent", "lease", "lease_request", "lease_constraints", "input", "text", "id", "value"}
	value := rapid.SampledFrom([]string{`null`, `true`, `0`, `-1`, `1.5`, `1e400`, `99999999999999999999`, `""`, `"x"`, `"TIMEOUT"`, `"utf8"`, `"tool_call"`, `"tool_result"`, `"delegate"`, `"thought"`,
		`"credential_rotated"`, `[]`, `[1]`, `["x"]`, `{}`, `{"k":null}`, `{"fs.read":[1],"net.fetch":["x"]}`, `{"code":"TIMEOUT","message":"m"}`, `{"code":1,"message":null,"details":[]}`})
	object := func(rt *rapid.T, names []string) string {
		members := rapid.MapOfN(rapid.SampledFrom(names), value, 0, 8).Draw(rt, "members")
		var b bytes.Buffer
		for i, name := range slices.Sorted(maps.Keys(members)) {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%s", name, members[name])
		}
		return "{" + b.String() + "}"
	}
	rapid.Check(t, func(rt *rapid.T) {
		e := rawEvent(rapid.SampledFrom(types).Draw(rt, "type"), arcp.Raw(object(rt, names)))
		if e.Type == arcp.EventEmit {
			name := rapid.SampledFrom([]string{"tool_call", "tool_result", "delegate", "thought", "credential_rotated", "other"}).Draw(rt, "name")
			e.Payload = arcp.Raw(fmt.Sprintf(`{"name":%q,"data":%s}`, name, object(rt, emitted)))
		}
		wantAccepted(t, e)
		if t.Failed() {
			rt.FailNow()
		}
	})
}
