package strict

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	hello   = "01JZ0000000000000000000001"
	submit  = "01JZ0000000000000000000002"
	list    = "01JZ0000000000000000000003"
	follow  = "01JZ0000000000000000000004"
	other   = "01JZ0000000000000000000005"
	ownJob  = "job_01JZ0000000000000000000001"
	newJob  = "job_01JZ0000000000000000000002"
	session = "sess_01JZ0000000000000000000001"
	trace   = "4bf92f3577b34da6a3ce929d0e0e4736"
	moment  = "2026-05-09T13:00:00.020Z"
)

// frame makes a frame. id is the id of the request, or a new one.
func frame(id, typ, members, payload string) string {
	if members != "" {
		members += ","
	}
	return fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"session_id":%q,"timestamp":%q,"correlation_id":%q,%s"payload":{%s}}`,
		id, typ, session, moment, id, members, payload)
}

func request(id string) string { return fmt.Sprintf(`"request_id":%q,"reply_to":%q`, id, id) }

// good are frames with all members that the libraries decode. They are sent in the order of
// goodOrder.
func good(lib Library) map[string]string {
	lease := `"lease":{"fs.read":["/a"]},`
	budget := `"budget":{"USD":5.0},`
	status := "timed_out"
	switch lib {
	case Ruby:
		lease = `"lease":{"id":"l"},`
	case Python:
		budget, status = `"budget":{"USD":"5.0"},`, "error"
	}
	envelope := func(job string, seq int) string {
		return fmt.Sprintf(`"job_id":%q,"trace_id":%q,"event_seq":%d`, job, trace, seq)
	}
	job := fmt.Sprintf(`"job_id":%q,"trace_id":%q`, ownJob, trace)
	event := func(seq int, kind, body string) string {
		return frame("msg_01JZ0000000000000000000009", "job.event", envelope(ownJob, seq),
			fmt.Sprintf(`"kind":%q,"ts":%q,"body":{%s}`, kind, moment, body))
	}
	shared := lease + budget + `"lease_constraints":{"expires_at":"` + moment + `"},` +
		`"credentials":[{"id":"c","scheme":"bearer","value":"v","endpoint":"e"}],`
	frames := map[string]string{
		"session.welcome": frame(hello, "session.welcome", "",
			fmt.Sprintf(`"session_id":%q,"runtime":{"name":"r","version":"1"},"accepted_at":%q,
				"resume_token":"t","resume_window_sec":600,"heartbeat_interval_sec":30,
				"capabilities":{"encodings":["json"],"features":["heartbeat"],"agents":[{"name":"a","versions":["1"],"default":"1"}]}`,
				session, moment)),
		"job.accepted": frame(submit, "job.accepted", job,
			fmt.Sprintf(`"job_id":%q,"agent":"a@1",%s"accepted_at":%q,%s`, ownJob, shared, moment, request(submit))),
		"session.jobs": frame(list, "session.jobs", "",
			fmt.Sprintf(`"jobs":[{"job_id":%q,"agent":"a@1","status":"running","lease":{},"created_at":%q,"submitted_at":%q,
				"last_event_seq":3,"parent_job_id":null}],"next_cursor":null,%s`,
				ownJob, moment, moment, request(list))),
		"job.subscribed": frame(follow, "job.subscribed", fmt.Sprintf(`"job_id":%q`, newJob),
			fmt.Sprintf(`"job_id":%q,"current_status":"running","agent":"a@1",%s"subscribed_from":0,"replayed":true,%s`,
				newJob, shared, request(follow))),
		"session.ping":  frame(other, "session.ping", "", fmt.Sprintf(`"nonce":"n","sent_at":%q`, moment)),
		"session.pong":  frame(other, "session.pong", "", fmt.Sprintf(`"ping_nonce":"n","received_at":%q`, moment)),
		"job.cancelled": frame(other, "job.cancelled", job, fmt.Sprintf(`"job_id":%q,"reason":"r"`, ownJob)),
		"log":           event(1, "log", `"level":"info","message":"m","fields":{"k":null},"attributes":{}`),
		"thought":       event(2, "thought", `"text":"t"`),
		"tool_call":     event(3, "tool_call", `"tool":"t","args":{},"call_id":"c"`),
		"tool_result":   event(4, "tool_result", `"call_id":"c","error":{"code":"TIMEOUT","message":"m","retryable":true}`),
		"status":        event(5, "status", `"phase":"p","message":"m","details":{}`),
		"metric":        event(6, "metric", `"name":"n","value":1.5,"unit":"u","dims":{},"dimensions":{"k":"v"}`),
		"artifact_ref":  event(7, "artifact_ref", `"uri":"u","content_type":"c","byte_size":1,"sha256":"s"`),
		"delegate": event(8, "delegate",
			`"delegate_id":"d","child_job_id":"j","agent":"a","lease":{},"lease_request":{},"lease_constraints":{}`),
		"progress":     event(9, "progress", `"current":3,"total":10,"units":"u","message":"m"`),
		"result_chunk": event(10, "result_chunk", `"result_id":"res_1","chunk_seq":0,"data":"d","encoding":"utf8","more":false`),
		"job.result": frame("msg_01JZ0000000000000000000009", "job.result", envelope(ownJob, 11),
			fmt.Sprintf(`"job_id":%q,"final_status":"success","summary":"s","result_id":"res_1","result_size":1,"completed_at":%q`, ownJob, moment)),
		"job.error": frame("msg_01JZ0000000000000000000009", "job.error", envelope(newJob, 12),
			fmt.Sprintf(`"job_id":%q,"final_status":%q,"code":"TIMEOUT","message":"m","retryable":true,"details":{},"completed_at":%q`,
				newJob, status, moment)),
		"session.error":  frame(other, "session.error", "", `"code":"TIMEOUT","message":"m","retryable":true,"details":{}`),
		"session.closed": frame(other, "session.closed", "", `"reason":"r"`),
		"session.bye":    frame(other, "session.bye", "", `"reason":"r"`),
	}
	if lib == PHP { // the end of a job answers its submit, not job.accepted
		answers := fmt.Sprintf(`"correlation_id":%q,`, submit)
		frames["job.accepted"] = strings.Replace(frames["job.accepted"], answers, "", 1)
		frames["job.result"] = strings.Replace(frames["job.result"], `"correlation_id":"msg_01JZ0000000000000000000009",`, answers, 1)
	}
	return frames
}

var goodOrder = []string{
	"session.welcome", "job.accepted", "session.jobs", "job.subscribed", "session.ping", "session.pong", "job.cancelled",
	"log", "thought", "tool_call", "tool_result", "status", "metric", "artifact_ref", "delegate", "progress", "result_chunk",
	"job.result", "job.error", "session.error", "session.closed", "session.bye",
}

// conversation is a connection in which the runtime has sent the good frames before one.
func conversation(lib Library, before string) *Checker {
	c := New(lib)
	c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"session.hello","payload":{}}`, hello))
	c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"job.submit","trace_id":%q,"payload":{"agent":"a"}}`, submit, trace))
	c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"session.list_jobs","payload":{}}`, list))
	c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"job.subscribe","job_id":%q,"payload":{}}`, follow, newJob))
	c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"job.cancel","job_id":%q,"payload":{}}`, other, ownJob))
	for _, name := range goodOrder {
		if name == before {
			break
		}
		c.Received(compact(good(lib)[name]))
	}
	return c
}

func compact(frame string) []byte {
	return []byte(strings.NewReplacer("\n", "", "\t", "").Replace(frame))
}

func TestGoodFramesHaveNoViolations(t *testing.T) {
	for _, lib := range Libraries {
		for _, name := range goodOrder {
			for _, v := range conversation(lib, name).Received(compact(good(lib)[name])) {
				t.Errorf("%s: the good %s breaks a rule: %v", lib, name, v)
			}
		}
		if left := conversation(lib, "").Unanswered(); len(left) > 0 {
			t.Errorf("%s: without an answer: %v", lib, left)
		}
	}
}

// Every member of the tables is missed, and is refused with another type.
func TestEveryFieldCanFail(t *testing.T) {
	for lib, d := range decoders {
		for _, name := range goodOrder {
			before := conversation(lib, name)
			fields, root := d.messages[name], []string{"payload"}
			if fields == nil {
				fields, root = d.bodies[name], []string{"payload", "body"}
			}
			for i := range fields {
				plantField(t, before, good(lib)[name], root, &fields[i])
			}
			for i := range d.envelope {
				if name != "log" { // all frames have the same envelope
					break
				}
				plantField(t, before, good(lib)[name], nil, &d.envelope[i])
			}
		}
	}
}

// clone returns a checker in the same state.
func (c *Checker) clone() *Checker {
	copied := *c
	copied.requests = slices.Clone(c.requests)
	copied.jobs = make(map[string]*job)
	for id, j := range c.jobs {
		copied.jobs[id] = new(*j)
	}
	return &copied
}

func plantField(t *testing.T, before *Checker, frame string, root []string, f *field) {
	optional := false
	path := slices.Clone(root)
	for _, s := range f.path {
		optional = optional || s.optional
		path = append(path, s.name)
	}
	refused := func(how string, value any) {
		raw, ok := plant(frame, path, value)
		if !ok { // the frame has no such member
			return
		}
		if found := before.clone().Received(raw); len(found) == 0 {
			t.Errorf("%v is %s and nothing is found in %s", f, how, raw)
		}
	}
	if !optional {
		refused("missing", nil)
	}
	for _, wrong := range []any{7.0, "!", "", true, []any{1.0}, map[string]any{"k": 1.0}, -1.5} {
		raw, err := json.Marshal(map[string]any{"v": wrong})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := decode(raw); err != nil || !f.holds(e["v"]) {
			refused("wrong", wrong)
		}
	}
}

// plant replaces a member, or removes it if the value is nil.
func plant(frame string, path []string, value any) (raw []byte, ok bool) {
	var root any
	if err := json.Unmarshal(compact(frame), &root); err != nil {
		panic(err)
	}
	at := root
	for _, name := range path[:len(path)-1] {
		object, _ := at.(map[string]any)
		if at = object[name]; at == nil {
			return nil, false
		}
		if items, list := at.([]any); list {
			at = items[0]
		}
	}
	object, is := at.(map[string]any)
	last := path[len(path)-1]
	if !is {
		return nil, false
	}
	if value == nil {
		delete(object, last)
	} else {
		object[last] = value
	}
	raw, err := json.Marshal(root)
	return raw, err == nil
}

// fault is a good frame with one text replaced, followed by itself or replaced by another one.
type fault struct {
	rule     Rule
	lib      Library
	name     string
	old, new string
	repeat   bool   // the frame comes twice; the second time it is wrong
	instead  string // name of the frame that comes in its place
}

var faults = []fault{
	{rule: RuleSize, lib: Go, name: "log", old: `"message":"m"`, new: `"message":"` + strings.Repeat("x", MaxFrame) + `"`},
	{rule: RuleJSON, lib: Go, name: "log", old: `}}}`, new: `}}`},
	{rule: RuleJSON, lib: Go, name: "log", old: `}}}`, new: "}}\n}"},
	{rule: RuleJSON, lib: Go, name: "log", old: `}}}`, new: "}}}{}"},
	{rule: RuleEnvelope, lib: CSharp, name: "log", old: `"arcp":"1.1"`, new: `"arcp":"1"`},
	{rule: RuleEnvelope, lib: TypeScript, name: "log", old: trace, new: strings.Repeat("0", 32)},
	{rule: RuleEnvelope, lib: PHP, name: "session.welcome", old: `"timestamp":"` + moment + `",`, new: ``},
	{rule: RuleEnvelope, lib: Ruby, name: "session.ping", old: `"session_id":"` + session + `",`, new: ``},
	{rule: RuleType, lib: Java, name: "session.ping", old: `"session.ping"`, new: `"session.refresh"`},
	{rule: RulePayload, lib: TypeScript, name: "session.welcome", old: `"versions":["1"],`, new: ``},
	{rule: RulePayload, lib: TypeScript, name: "session.welcome", old: `"resume_window_sec":600`, new: `"resume_window_sec":0`},
	{rule: RulePayload, lib: TypeScript, name: "session.jobs", old: `"next_cursor":null,`, new: ``},
	{rule: RulePayload, lib: Java, name: "session.welcome", old: `[{"name":"a","versions":["1"],"default":"1"}]`, new: `["a"]`},
	{rule: RulePayload, lib: FSharp, name: "session.welcome", old: `"agents":`, new: `"agent":`},
	{rule: RulePayload, lib: Go, name: "job.accepted", old: `"USD":5.0`, new: `"USD":"5.0"`},
	{rule: RulePayload, lib: Python, name: "job.accepted", old: `"USD":"5.0"`, new: `"USD":5.0`},
	{rule: RulePayload, lib: Python, name: "job.error", old: `"final_status":"error"`, new: `"final_status":"timed_out"`},
	{rule: RulePayload, lib: Ruby, name: "job.accepted", old: `{"id":"l"}`, new: `{}`},
	{rule: RulePayload, lib: Ruby, name: "job.result", old: `"payload":{"job_id":"` + ownJob + `",`, new: `"payload":{`},
	{rule: RulePayload, lib: TypeScript, name: "job.accepted", old: `"scheme":"bearer"`, new: `"scheme":"basic"`},
	{rule: RulePayload, lib: TypeScript, name: "job.error", old: `"code":"TIMEOUT"`, new: `"code":"UNAVAILABLE"`},
	{rule: RulePayload, lib: Go, name: "log", old: `"ts":"` + moment, new: `"ts":"now`},
	{rule: RuleBody, lib: FSharp, name: "tool_call", old: `"args":{},`, new: ``},
	{rule: RuleBody, lib: FSharp, name: "log", old: `"level":"info"`, new: `"level":"trace"`},
	{rule: RuleBody, lib: Go, name: "progress", old: `"current":3`, new: `"current":3.5`},
	{rule: RuleBody, lib: Java, name: "progress", old: `"current":3`, new: `"current":11`},
	{rule: RuleBody, lib: Java, name: "status", old: `"kind":"status"`, new: `"kind":"trace_span"`},
	{rule: RuleNull, lib: TypeScript, name: "session.welcome", old: `"default":"1"`, new: `"default":null`},
	{rule: RuleNull, lib: TypeScript, name: "job.error", old: `"details":{}`, new: `"details":null`},
	{rule: RuleID, lib: Python, name: "log", old: "msg_01JZ0000000000000000000009", new: "msg_9"},
	{rule: RuleID, lib: Python, name: "log", old: `"session_id":"` + session, new: `"session_id":"sess_1`},
	{rule: RuleSession, lib: Go, name: "log", old: session, new: "sess_01JZ0000000000000000000002"},
	{rule: RuleSession, lib: TypeScript, name: "log", old: `"session_id":"` + session + `",`, new: ``},
	{rule: RuleHandshake, lib: Go, name: "session.welcome", repeat: true},
	{rule: RuleHandshake, lib: FSharp, name: "session.welcome", old: `"id":"` + hello, new: `"id":"` + other},
	{rule: RuleHandshake, lib: Go, name: "session.welcome", old: `"type":"session.welcome"`, new: `"type":"session.bye"`},
	{rule: RuleSeq, lib: TypeScript, name: "log", old: `"event_seq":1`, new: `"event_seq":2`},
	{rule: RuleSeq, lib: CSharp, name: "thought", repeat: true},
	{rule: RuleSeq, lib: CSharp, name: "thought", old: `,"event_seq":2`, new: ``},
	{rule: RuleSeq, lib: CSharp, name: "job.cancelled", old: `"payload"`, new: `"event_seq":1,"payload"`},
	{rule: RuleAnswer, lib: Go, name: "job.accepted", repeat: true},
	{rule: RuleAnswer, lib: Python, name: "job.accepted", old: request(submit), new: request(list)},
	{rule: RuleAnswer, lib: Java, name: "job.accepted", old: request(submit), new: request(list)},
	{rule: RuleAnswer, lib: FSharp, name: "session.jobs", old: `"id":"` + list, new: `"id":"` + other},
	{rule: RuleAnswer, lib: Ruby, name: "job.subscribed", old: `"reply_to":"` + follow, new: `"reply_to":"` + other},
	{rule: RuleAnswer, lib: PHP, name: "job.accepted", old: `"job_id":"` + ownJob + `","trace_id"`,
		new: `"correlation_id":"` + submit + `","job_id":"` + ownJob + `","trace_id"`},
	{rule: RuleAnswer, lib: PHP, name: "job.result", old: `"correlation_id":"` + submit, new: `"correlation_id":"` + other},
	{rule: RuleAnswer, lib: PHP, name: "session.jobs", old: `"correlation_id":"` + list, new: `"correlation_id":"` + other},
	{rule: RuleJob, lib: Go, name: "log", old: ownJob, new: newJob[:len(newJob)-1] + "9"},
	{rule: RuleJob, lib: CSharp, name: "job.cancelled", old: ownJob, new: newJob[:len(newJob)-1] + "9"},
	{rule: RuleJob, lib: CSharp, name: "job.accepted", old: `"payload":{"job_id":"` + ownJob, new: `"payload":{"job_id":"` + newJob},
	{rule: RuleJob, lib: CSharp, name: "job.subscribed", old: `"payload":{"job_id":"` + newJob, new: `"payload":{"job_id":"` + ownJob},
	{rule: RuleJob, lib: Go, name: "job.error", old: `"job_id":"` + newJob, new: `"job_id":"` + ownJob},
	{rule: RuleResult, lib: Go, name: "job.result", old: `"result_id":"res_1","result_size":1`, new: `"result":1`},
	{rule: RuleResult, lib: Go, name: "job.result", old: `"result_id":"res_1","result_size":1`, new: `"result":1,"output":2`},
	{rule: RuleResult, lib: TypeScript, name: "job.result", old: `"result_size":1`, new: `"result":1,"output":1`},
	{rule: RuleResult, lib: TypeScript, name: "job.result", old: `"result_id":"res_1"`, new: `"result_id":"res_2"`},
	{rule: RuleRetryable, lib: TypeScript, name: "job.error", old: `"TIMEOUT"`, new: `"LEASE_EXPIRED"`},
	{rule: RuleRetryable, lib: TypeScript, name: "session.error", old: `"code":"TIMEOUT","message":"m","retryable":true`,
		new: `"code":"INTERNAL_ERROR","message":"m","retryable":false`},
	{rule: RuleChunk, lib: Go, name: "result_chunk", old: `"chunk_seq":0`, new: `"chunk_seq":1`},
	{rule: RuleError, lib: TypeScript, name: "job.result", instead: "session.error"},
	{rule: RuleError, lib: Python, name: "session.jobs", instead: "session.error"},
	{rule: RuleHeartbeat, lib: Java, name: "session.welcome", old: `"features":["heartbeat"]`, new: `"features":[]`},
	{rule: RuleHeartbeat, lib: Java, name: "session.welcome", old: `"heartbeat_interval_sec":30,`, new: ``},
	{rule: RuleToolResult, lib: Go, name: "tool_result", old: `"call_id":"c"`, new: `"call_id":"c","result":{}`},
	{rule: RuleToolResult, lib: Go, name: "tool_result", old: `,"error":{"code":"TIMEOUT","message":"m","retryable":true}`, new: ``},
}

func TestEachRuleFindsItsFault(t *testing.T) {
	found := make(map[Rule]bool)
	for _, f := range faults {
		frame := string(compact(good(f.lib)[f.name]))
		if !f.repeat && !strings.Contains(frame, f.old) {
			t.Errorf("%s: %s has no %s", f.lib, f.name, f.old)
			continue
		}
		c := conversation(f.lib, f.name)
		if f.repeat {
			c.Received([]byte(frame))
		}
		faulty := strings.Replace(frame, f.old, f.new, 1)
		if f.instead != "" {
			faulty = string(compact(good(f.lib)[f.instead]))
		}
		violations := c.Received([]byte(faulty))
		if !slices.ContainsFunc(violations, func(v Violation) bool { return v.Rule == f.rule }) {
			t.Errorf("%s: %s with %s for %s: got %v, want %s", f.lib, f.name, f.new, f.old, violations, f.rule)
		}
		found[f.rule] = true
	}
	for _, rule := range Rules {
		if !found[rule] {
			t.Errorf("no fault breaks the rule %s", rule)
		}
	}
	if extra := len(slices.Collect(maps.Keys(found))) - len(Rules); extra > 0 {
		t.Errorf("%d rules are not listed", extra)
	}
}

// Chunks of a result keep their identifier and encoding.
func TestChunksMustKeepIDAndEncoding(t *testing.T) {
	c := conversation(Go, "result_chunk")
	first := strings.Replace(good(Go)["result_chunk"], `"more":false`, `"more":true`, 1)
	if found := c.Received(compact(first)); len(found) > 0 {
		t.Fatal(found)
	}
	second := strings.NewReplacer(`"event_seq":10`, `"event_seq":11`, `"chunk_seq":0`, `"chunk_seq":1`, `"utf8"`, `"base64"`).Replace(first)
	if found := c.Received(compact(second)); len(found) != 1 || found[0].Rule != RuleChunk {
		t.Errorf("got %v", found)
	}
}

// A client that resumes its session in the middle of a result has received the first chunks before.
func TestResumedResultMayBeginInTheMiddle(t *testing.T) {
	chunk := func(event, seq int) string {
		return frame("msg_01JZ0000000000000000000009", "job.event", fmt.Sprintf(`"job_id":%q,"event_seq":%d`, ownJob, event),
			fmt.Sprintf(`"kind":"result_chunk","ts":%q,"body":{"result_id":"r","chunk_seq":%d,"data":"x","encoding":"utf8","more":true}`,
				moment, seq))
	}
	c := New(TypeScript)
	c.Sent([]byte(frame(hello, "session.hello", "", `"resume":{"session_id":"s","resume_token":"t","last_event_seq":7}`)))
	for _, f := range []string{good(TypeScript)["session.welcome"], chunk(8, 3), chunk(9, 4)} {
		if found := c.Received(compact(f)); len(found) > 0 {
			t.Fatalf("after a resume %s breaks the rules %v", f, found)
		}
	}
	if found := c.Received(compact(chunk(10, 6))); len(found) == 0 {
		t.Error("a lost chunk is no violation")
	}
}

// Nothing follows the end of a job.
func TestNothingMayFollowTheEndOfAJob(t *testing.T) {
	for _, lib := range Libraries {
		c := conversation(lib, "job.error")
		late := strings.Replace(good(lib)["log"], `"event_seq":1`, `"event_seq":12`, 1)
		if found := c.Received(compact(late)); len(found) != 1 || found[0].Rule != RuleJob {
			t.Errorf("%s: got %v", lib, found)
		}
	}
}

// The failure of a handshake is a session.error, a job.error and nothing else.
func TestNothingMayFollowAHandshakeFailure(t *testing.T) {
	for _, lib := range Libraries {
		c := conversation(lib, "session.welcome")
		first := frame(hello, "session.error", "", `"code":"UNAUTHENTICATED","message":"m","retryable":false`)
		second := frame(hello, "job.error", "",
			`"final_status":"error","code":"UNAUTHENTICATED","message":"m","retryable":false,"completed_at":"`+moment+`"`)
		for _, f := range []string{first, second} {
			if found := c.Received([]byte(f)); len(found) > 0 {
				t.Errorf("%s: the handshake failure %s breaks the rules %v", lib, f, found)
			}
		}
		if found := c.Received(compact(good(lib)["session.bye"])); len(found) == 0 {
			t.Errorf("%s: a frame after the failure", lib)
		}
		c = conversation(lib, "session.welcome")
		if found := c.Received([]byte(strings.Replace(first, `"session_id":"`+session+`",`, "", 1))); lib == TypeScript && len(found) == 0 {
			t.Error("a failure without session_id")
		}
	}
}

// An outcome answers each submit of its job for a library that finds it so, and comes once for the
// others. After a resume, histories and outcomes of earlier subscriptions and submits come.
func TestOutcomeAnswersEachSubmitOnce(t *testing.T) {
	for _, lib := range Libraries {
		numbered := func(name string, seq int) []byte {
			return compact(regexp.MustCompile(`"event_seq":\d+`).ReplaceAllString(good(lib)[name], fmt.Sprintf(`"event_seq":%d`, seq)))
		}
		expect := func(why string, c *Checker, frame []byte, rules ...Rule) {
			t.Helper()
			var got []Rule
			for _, v := range c.Received(frame) {
				got = append(got, v.Rule)
			}
			if !slices.Equal(got, rules) {
				t.Errorf("%s: %s: %v, want %v", lib, why, got, rules)
			}
		}
		c := conversation(lib, "log")
		second := "01JZ0000000000000000000006"
		c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"job.submit","payload":{"agent":"a"}}`, second))
		expect("a submit with the same key is accepted", c, []byte(strings.ReplaceAll(string(compact(good(lib)["job.accepted"])), submit, second)))
		expect("the outcome", c, numbered("job.result", 1))
		if lib == PHP {
			repeated := strings.Replace(string(numbered("job.result", 2)), submit, second, 1)
			expect("the outcome for the second submit", c, []byte(repeated))
		} else {
			expect("the outcome for the second submit", c, numbered("job.result", 2), RuleJob)
		}
		expect("the outcome without a submit", c, numbered("job.result", 3), RuleJob)
		expect("an event after the outcome", c, numbered("log", 4), RuleJob)

		c = New(lib)
		c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"session.hello","payload":{"resume":{"resume_token":"t","last_event_seq":11}}}`, hello))
		expect("the welcome", c, compact(good(lib)["session.welcome"]))
		expect("an event of a job of an earlier connection", c, numbered("log", 12))
		expect("its outcome", c, numbered("job.result", 13))
		expect("its outcome for a repeated submit", c, numbered("job.result", 14))
		expect("its history for another subscription", c, numbered("log", 15))
		expect("its outcome", c, numbered("job.result", 16))
		c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"job.submit","trace_id":%q,"payload":{"agent":"a"}}`, submit, trace))
		expect("its submit is accepted", c, compact(good(lib)["job.accepted"]))
		expect("its outcome for the submit", c, numbered("job.result", 17))
		expect("an event after it", c, numbered("log", 18), RuleJob)
	}
}

// A client may cancel a job that it has no handle of.
func TestJobWithoutHandleMayBeCancelled(t *testing.T) {
	stranger := newJob[:len(newJob)-1] + "7"
	for _, lib := range Libraries {
		c := conversation(lib, "job.cancelled")
		c.Sent(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"job.cancel","payload":{"job_id":%q}}`, other, stranger))
		if found := c.Received([]byte(strings.ReplaceAll(string(compact(good(lib)["job.cancelled"])), ownJob, stranger))); len(found) > 0 {
			t.Errorf("%s: job.cancelled of a job without a handle breaks the rules %v", lib, found)
		}
	}
}

func TestViolationStringNamesFrameAndRule(t *testing.T) {
	v := Violation{RuleSeq, "job.event", "3 after 1"}
	if v.String() != "job.event: seq: 3 after 1" {
		t.Errorf("String() = %q, want the frame, the rule and the text", v)
	}
}

func FuzzReceived(f *testing.F) {
	for _, frame := range good(Go) {
		f.Add(compact(frame), uint8(0))
	}
	f.Fuzz(func(_ *testing.T, frame []byte, n uint8) {
		lib := Libraries[int(n)%len(Libraries)]
		c := conversation(lib, "log")
		c.Sent(frame)
		c.Received(frame)
		New(lib).Received(frame)
	})
}

// The events of a delegated job come with its own id, after the delegation and up to its end.
func TestDelegatedJobHasEventsUntilItsEnd(t *testing.T) {
	const child = "job_01JZ0000000000000000000003"
	for _, lib := range Libraries {
		event := func(job string, seq int, kind, body string) []byte {
			return []byte(frame("msg_01JZ0000000000000000000009", "job.event", fmt.Sprintf(`"job_id":%q,"event_seq":%d`, job, seq),
				fmt.Sprintf(`"kind":%q,"ts":%q,"body":{%s}`, kind, moment, body)))
		}
		log := func(seq int) []byte { return event(child, seq, "log", `"level":"info","message":"m"`) }
		end := []byte(frame("msg_01JZ0000000000000000000009", "job.error", fmt.Sprintf(`"job_id":%q,"event_seq":3`, child),
			fmt.Sprintf(`"job_id":%q,"final_status":"error","code":"TIMEOUT","message":"m","retryable":true,"completed_at":%q`, child, moment)))
		delegation := event(ownJob, 1, "delegate", fmt.Sprintf(`"delegate_id":"d","child_job_id":%q,"agent":"a","lease":{}`, child))
		if found := conversation(lib, "log").Received(log(1)); len(found) == 0 {
			t.Errorf("%s: an event of a job that was not delegated is not refused", lib)
		}
		c := conversation(lib, "log")
		for _, text := range [][]byte{delegation, log(2), end} {
			if found := c.Received(text); len(found) > 0 {
				t.Errorf("%s: %v in %s", lib, found, text)
			}
		}
		if found := c.Received(log(4)); len(found) == 0 {
			t.Errorf("%s: an event after the end of a delegated job is not refused", lib)
		}
	}
}
