package draft_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

func emit(name, data string) arcp.EventEmitPayload {
	p := arcp.EventEmitPayload{Name: name}
	if data != "" {
		p.Data = arcp.Raw(data)
	}
	return p
}

// event is a payload of the log and its type.
type event struct {
	t       arcp.Type
	payload any
}

// events precede the end of a job.
var events = []event{
	{arcp.JobStarted, arcp.JobStartedPayload{Description: "first"}},
	{arcp.JobStarted, arcp.JobStartedPayload{}},
	{arcp.JobProgress, arcp.JobProgressPayload{Current: 3, Total: new(10.0), Units: "files", Percent: new(30.0), Message: "m"}},
	{arcp.JobProgress, arcp.JobProgressPayload{Current: 0.5, Total: new(0.75)}},
	{arcp.JobProgress, arcp.JobProgressPayload{Current: 99.9, Total: new(99.9)}},
	{arcp.JobProgress, arcp.JobProgressPayload{Current: 12, Total: new(10.0)}},
	{arcp.JobProgress, arcp.JobProgressPayload{Current: -2}},
	{arcp.JobProgress, arcp.JobProgressPayload{Current: 1e300}},
	{arcp.JobProgress, arcp.JobProgressPayload{Percent: new(12.5)}},
	{arcp.JobProgress, arcp.Raw(`{"current":1e3,"total":2.5E3,"units":null,"message":""}`)},
	{arcp.JobProgress, arcp.Raw(`{"current":"many","total":"more","units":7}`)},
	{arcp.JobCheckpoint, arcp.JobCheckpointPayload{CheckpointID: "chk_1", Data: arcp.Raw(`{"n":null}`), Label: "half"}},
	{arcp.JobResultChunk, arcp.JobResultChunkPayload{ResultID: "res_1", ChunkSeq: 0, Data: "ab", Encoding: "utf8", More: true}},
	{arcp.JobResultChunk, arcp.JobResultChunkPayload{ResultID: "res_1", ChunkSeq: 1, Encoding: "utf8"}},
	{arcp.Log, arcp.LogPayload{Level: "trace", Message: "m", Attributes: arcp.Raw(`{"k":null}`)}},
	{arcp.Log, arcp.LogPayload{Level: "critical", Message: "\"quoted\"\n"}},
	{arcp.Log, arcp.LogPayload{Level: "warn", Message: "m", Attributes: arcp.Raw("{\n\"k\":\r1}")}},
	{arcp.Log, arcp.Raw(`{"level":"NOTICE","message":null,"attributes":[]}`)},
	{arcp.Metric, arcp.MetricPayload{Name: "cost.tokens", Value: "0.10", Unit: "USD", Dims: arcp.Raw(`{"a":"b","n":1.5,"o":{"x":"y"},"z":null}`)}},
	{arcp.Metric, arcp.Raw(`{"name":"n","value":"high","unit":"","dimensions":{"k":"v"}}`)},
	{arcp.ArtifactRef, arcp.ArtifactRefPayload{ArtifactObject: arcp.ArtifactObject{ArtifactID: "art_1", URI: "arcp://a", MediaType: "text/plain", Size: 4, SHA256: "ab"}}},
	{arcp.ArtifactRef, arcp.Raw(`{"uri":"u"}`)},
	{arcp.PermissionRequest, arcp.PermissionRequestPayload{Permission: "fs.write", Resource: "/a", Operation: "write", Reason: "why"}},
	{arcp.HumanInputRequest, arcp.HumanInputRequestPayload{Prompt: "name?", ResponseSchema: arcp.Raw(`{}`), ExpiresAt: moment}},
	{arcp.HumanChoiceRequest, arcp.HumanChoiceRequestPayload{Prompt: "which?", Options: []arcp.Option{{ID: "a", Label: "A"}}, ExpiresAt: moment}},
	{arcp.HumanInputCancelled, arcp.HumanInputCancelledPayload{Code: arcp.CodeCancelled, Reason: "answered"}},
	{arcp.LeaseGranted, arcp.LeaseGrantedPayload{LeaseID: "lease_1", Permission: "p", Resource: "r", Operation: "o", ExpiresAt: moment}},
	{arcp.LeaseExtended, arcp.LeaseExtendedPayload{LeaseID: "lease_1", ExpiresAt: moment}},
	{arcp.LeaseRevoked, arcp.LeaseRevokedPayload{LeaseID: "lease_1", Reason: "done"}},
	{arcp.EventEmit, emit("tool_call", `{"tool":"t","args":{"x":1},"call_id":"c1"}`)},
	{arcp.EventEmit, emit("tool_call", `{"tool":"t","call_id":"c1"}`)},
	{arcp.EventEmit, emit("tool_call", `{"tool":7}`)},
	{arcp.EventEmit, emit("tool_result", `{"call_id":"c1","result":"r"}`)},
	{arcp.EventEmit, emit("tool_result", `{"call_id":"c1","result":null}`)},
	{arcp.EventEmit, emit("tool_result", `{"call_id":"c1","result":1,"error":{"code":"LEASE_EXPIRED","message":"over","retryable":true,"details":{"k":1}}}`)},
	{arcp.EventEmit, emit("tool_result", `{"call_id":"c1","error":{"code":"MY_OWN","retryable":true}}`)},
	{arcp.EventEmit, emit("tool_result", `{"call_id":"c1","error":{"code":7,"message":8,"details":9}}`)},
	{arcp.EventEmit, emit("tool_result", `{"call_id":"c1","error":"failed"}`)},
	{arcp.EventEmit, emit("delegate", `{"delegate_id":"d","child_job_id":"job_c","agent":"a@1","lease":{"fs.read":["/a"],"fs_read":["/a"]},"input":{"x":1}}`)},
	{arcp.EventEmit, emit("delegate", `{"child_job_id":"job_c","agent":"a@1","lease_request":{"fs.read":["/a"]},"lease_constraints":{"expires_at":"2026-05-09T14:00:00Z"}}`)},
	{arcp.EventEmit, emit("delegate", `{"agent":"a@1"}`)},
	{arcp.EventEmit, emit("thought", `{"text":"hm"}`)},
	{arcp.EventEmit, emit("thought", `"hm"`)},
	{arcp.EventEmit, emit("credential_rotated", `{"id":"cred_1","value":"secret"}`)},
	{arcp.EventEmit, emit("credential_rotated", `{"id":"cred_1"}`)},
	{arcp.EventEmit, emit("retry", `{"attempt":2}`)},
	{arcp.EventEmit, emit("plain", ``)},
	{arcp.EventEmit, emit("a \"name\"", `null`)},
	{arcp.EventEmit, emit("list", `[1]`)},
	{arcp.EventEmit, arcp.Raw(`{"name":7}`)},
}

// ends are the events that end a job. The connection has received a result in chunks before.
var ends = []event{
	{arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw(`{"x":null}`), Summary: "done"}},
	{arcp.JobCompleted, arcp.JobCompletedPayload{}},
	{arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw(`null`)}},
	{arcp.JobCompleted, arcp.JobCompletedPayload{ResultRef: &arcp.ArtifactObject{ArtifactID: "art_1", URI: "arcp://a", MediaType: "text/plain", Size: 4}}},
	{arcp.WorkflowComplete, arcp.WorkflowCompletePayload{Value: arcp.Raw(`1`)}},
	{arcp.ToolResult, arcp.ToolResultPayload{Value: arcp.Raw(`"s"`)}},
	{arcp.JobFailed, arcp.Errorf(arcp.CodeTimeout, "too slow")},
	{arcp.JobFailed, arcp.Errorf(arcp.CodeInternal, "fault")},
	{arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable, "")},
	{arcp.JobFailed, arcp.Errorf(arcp.CodeUnknown, "tool failed").WithDetails(map[string]string{"code": "E1"})},
	{arcp.JobFailed, arcp.Errorf(arcp.CodeBudgetExhausted, "empty")},
	{arcp.JobFailed, arcp.Errorf(arcp.CodeLeaseRevoked, "gone")},
	{arcp.JobFailed, arcp.Raw(`{"code":7}`)},
	{arcp.ToolError, arcp.Errorf(arcp.CodeLeaseExpired, "over")},
	{arcp.JobCancelled, arcp.JobCancelledPayload{}},
	{arcp.JobCancelled, arcp.JobCancelledPayload{Reason: "user", Code: arcp.CodeAborted}},
	{arcp.JobCancelled, arcp.Raw(`{"code":7}`)},
}

func eventJob(n int) arcp.JobID {
	return arcp.JobID(fmt.Sprintf("job_01JZ0000000000000000%06d", 100+n))
}

// allEvents sends all events, each end to another job.
func allEvents(c *connection) {
	c.accept()
	c.submit(job)
	for _, e := range events {
		c.event(job, e.t, e.payload)
	}
	c.event(job, arcp.JobCompleted, arcp.JobCompletedPayload{ResultID: "res_1", ResultSize: new(uint64(2)), Summary: "chunks"})
	for i, e := range ends {
		c.submit(eventJob(i))
		c.event(eventJob(i), e.t, e.payload)
	}
}

func TestEventFramesAreTheSame(t *testing.T) {
	var b strings.Builder
	c := libraries[2].connect(t)
	allEvents(c)
	plain := make(map[string]bool)
	for line := range strings.Lines(c.log.String()) {
		plain[line] = true
	}
	b.WriteString(c.log.String())
	for _, profile := range []int{0, 3} { // Go and Python, where they differ
		c := libraries[profile].connect(t)
		allEvents(c)
		fmt.Fprintf(&b, "# %v\n", c.lib.profile)
		for line := range strings.Lines(c.log.String()) {
			if strings.Contains(line, `"event_seq"`) && !plain[line] {
				b.WriteString(line)
			}
		}
	}
	golden(t, "events.golden", b.String())
}

func TestEventsSatisfyEveryLibrary(t *testing.T) {
	for _, l := range append(libraries[:len(libraries):len(libraries)], everyProfile[0]) {
		allEvents(l.connect(t))
	}
}

// Whether bodies are shared is a promise about their bytes.
func TestSharedEventsHaveOneBody(t *testing.T) {
	for _, e := range append(events[:len(events):len(events)], ends...) {
		differ := false
		first, err := draft.EventBody(newEvent(job, e.t, e.payload), draft.Universal)
		if err != nil {
			t.Fatal(err)
		}
		for p := draft.Universal; p <= draft.OwnClient; p++ {
			body, err := draft.EventBody(newEvent(job, e.t, e.payload), p)
			if err != nil {
				t.Fatal(err)
			}
			differ = differ || string(body.JSON) != string(first.JSON)
		}
		if differ && draft.Shared(e.t) {
			t.Errorf("%s differs between profiles", e.t)
		}
	}
	if !draft.Shared(arcp.Log) || draft.Shared(arcp.JobProgress) || draft.Shared(arcp.JobFailed) {
		t.Error("Shared is wrong")
	}
}

func TestExactlyVisibleTypesHaveFrames(t *testing.T) {
	all := arcp.VisibleInDraft(func(arcp.Feature) bool { return true })
	none := arcp.VisibleInDraft(func(arcp.Feature) bool { return false })
	want := arcp.Lookup(arcp.JobProgress).Bit | arcp.Lookup(arcp.JobResultChunk).Bit
	if all&^none != want || none&^all != 0 {
		t.Errorf("all %b, none %b", all, none)
	}
	// Exactly the visible types have frames, and all of their events have one.
	encoded := arcp.TypeSet(0)
	s := libraries[0].connect(t).accept().s
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		_, err := s.AppendEvent(nil, 1, "", rawEvent(spec.Type, arcp.Raw(`{}`)))
		if err == nil {
			encoded |= spec.Bit
		}
		if err == nil && spec.Bit == 0 {
			t.Errorf("%s is not numbered and has a frame", spec.Type)
		}
	}
	if encoded|arcp.DraftChunks != all {
		t.Errorf("encoded %b, visible %b", encoded, all)
	}
	if all&arcp.Lookup(arcp.JobAccepted).Bit != 0 {
		t.Error("job.accepted is numbered")
	}
}

// Chunks of thoughts, logs and metrics have the frames of their kind. Other chunks have none.
func TestChunksWithFrames(t *testing.T) {
	for payload, want := range map[string]string{
		`{"sequence":1,"data":"hm","role":"assistant","content":"hm","kind":"thought"}`:      `"kind":"thought",TIME"body":{"text":"hm"}`,
		`{"sequence":1,"data":"","redacted":true,"kind":"thought"}`:                          `"kind":"thought",TIME"body":{"text":""}`,
		`{"sequence":1,"data":{"level":"critical","message":"m"},"kind":"log"}`:              `"kind":"log",TIME"body":{"level":"error","message":"m"}`,
		`{"sequence":1,"data":{},"kind":"log"}`:                                              `"kind":"log",TIME"body":{"level":"info","message":""}`,
		`{"sequence":1,"data":{"name":"n","value":2,"unit":"u","kind":"x"},"kind":"metric"}`: `"kind":"metric",TIME"body":{"name":"n","value":2,"unit":"u"}`,
		`{"sequence":1,"data":"x"}`:                                                          "",
		`{"sequence":1,"data":{"message":"m","kind":"log"}}`:                                 "",
		`{"sequence":1,"data":{},"kind":"event"}`:                                            "",
	} {
		body, err := draft.EventBody(rawEvent(arcp.StreamChunk, arcp.Raw(payload)), draft.Go)
		if want == "" {
			if err == nil {
				t.Errorf("%s has the frame %s", payload, body.JSON)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", payload, err)
			continue
		}
		got := timeMember.ReplaceAllString(string(body.JSON), "TIME")
		if !strings.Contains(got, want) {
			t.Errorf("%s has the frame %s, want %s", payload, got, want)
		}
	}
}

// timeMember is the time of an event.
var timeMember = regexp.MustCompile(`"ts":"[^"]*",`)

func TestLargeValuesAreWrittenOnce(t *testing.T) {
	s := libraries[0].connect(t).accept().s
	half := arcp.Raw(`"` + strings.Repeat("x", 510_000) + `"`)
	for _, l := range libraries {
		frame, err := l.connect(t).accept().s.AppendEvent(nil, 1, "", newEvent(job, arcp.JobCompleted, arcp.JobCompletedPayload{Value: half}))
		if once := strings.Count(string(frame), string(half)) == 1; err != nil || !once || strings.Contains(string(frame), `"output"`) != (l.profile == draft.Go) {
			t.Errorf("%s: a large value: %d bytes, once: %t, %v", l.name, len(frame), once, err)
		}
	}
	dst := []byte("before")
	got, err := s.AppendEvent(dst, 1, "", newEvent(job, arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw(`"` + strings.Repeat("x", 1_020_000) + `"`)}))
	if e, ok := errors.AsType[*draft.TooLargeError](err); !ok || e.Type != arcp.JobCompleted || e.Size < 1_020_000 || string(got) != "before" {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if _, err := draft.EventBody(newEvent(job, arcp.JobCompleted, arcp.JobCompletedPayload{Value: half}), draft.Go); err == nil {
		t.Error("the body has no limit")
	}
	// Values that are written twice are not if they are large.
	object := arcp.Raw(`{"k":` + string(half) + `}`)
	for _, e := range []event{{arcp.HumanInputRequest, arcp.HumanInputRequestPayload{Prompt: string(half), ExpiresAt: moment}}, {arcp.Log, arcp.LogPayload{Level: "info", Message: "m", Attributes: object}}, {arcp.Metric, arcp.MetricPayload{Name: "n", Value: "1", Dims: object}}} {
		if _, err := s.AppendEvent(nil, 1, "", newEvent(job, e.t, e.payload)); err != nil {
			t.Errorf("%s: %v", e.t, err)
		}
	}
}

func TestCodesInFailuresAreTheSame(t *testing.T) {
	for _, info := range draft.Codes {
		if got, ok := info.Code.Info(); !ok || got != info {
			t.Errorf("%s: Info = %v, %v; want %v", info.Code, got, ok, info)
		}
	}
	if _, ok := draft.Code("NO").Info(); ok {
		t.Error("an unknown code has a row")
	}
	var b strings.Builder
	for _, info := range arcp.Codes {
		for _, kind := range []string{"submit", "list", "subscribe", "open", "resume"} {
			c := libraries[0].connect(t)
			if kind == "resume" {
				c = libraries[0].connectWith(t, `,"resume_token":"t"`)
			}
			id := c.firstID()
			if kind != "open" && kind != "resume" {
				c.accept()
				for _, r := range refusals {
					if r.name == kind {
						id = c.request(r.request)
					}
				}
			}
			frames := c.answer(arcp.Nack, id, arcp.Errorf(info.Code, "m"))
			fmt.Fprintf(&b, "%s of %s: %s\n", info.Code, kind, between(string(frames[0]), `"payload":{`, `"request_id"`))
		}
	}
	golden(t, "codes.golden", b.String())
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}
