package conformance

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

const head = `{"arcp":"1.1","timestamp":"2026-01-02T03:04:05Z",`

const acceptedFrame = head + `"id":"msg_s1","type":"session.accepted","session_id":"sess_1","correlation_id":"msg_open",` +
	`"payload":{"session_id":"sess_1","runtime":{"kind":"k","version":"1"},"capabilities":{"human_input":true,"features":["result_chunk"]}}}`

// frameOf returns a frame of the session. rest are the members after the type.
func frameOf(id, typ, rest string) string {
	return head + `"session_id":"sess_1","id":"msg_` + id + `","type":"` + typ + `",` + rest + `}`
}

// eventOf returns an event of job_1.
func eventOf(id, typ, seq, payload string) string {
	return frameOf(id, typ, `"job_id":"job_1","correlation_id":"msg_invoke","trace_id":"t","event_seq":`+seq+`,"payload":`+payload)
}

var (
	jobAcceptedFrame = eventOf("a", "job.accepted", "1", `{"job_id":"job_1"}`)
	jobStartedFrame  = eventOf("b", "job.started", "2", `{}`)
	completedFrame   = eventOf("c", "job.completed", "3", `{"value":null}`)
)

// newTestValidator returns a validator for a client that opened a session, pinged and submitted a
// job.
func newTestValidator() *validator {
	sent := []string{"msg_open", "msg_invoke", "msg_ping", "own", "msg_retry"}
	v := newValidator([]string{"s3cret"}, func(id string) bool { return slices.Contains(sent, id) || id == "msg_other" || id == "other" })
	for _, id := range sent {
		v.rec.own[id] = true
	}
	v.version = "1.1"
	v.offered.Features = []string{"result_chunk"}
	return v
}

// broken returns the first rule that a frame violates.
func (v *validator) broken(frame string) error {
	_, broken := v.frame([]byte(frame))
	if len(broken) == 0 {
		return nil
	}
	return fmt.Errorf("rule %q: %s", broken[0].rule.id, broken[0].text)
}

func TestValidatorAccepts(t *testing.T) {
	for name, frames := range map[string][]string{
		"a job":           {jobAcceptedFrame, jobStartedFrame, completedFrame},
		"a refusal":       {frameOf("a", "job.failed", `"correlation_id":"msg_invoke","payload":{"code":"NOT_FOUND","message":"m","retryable":false,"details":{"code":"AGENT_NOT_AVAILABLE"}}`)},
		"pong":            {frameOf("a", "pong", `"correlation_id":"msg_ping","payload":{}`)},
		"pong to any id":  {frameOf("a", "pong", `"correlation_id":"own","payload":{"nonce":"n"}`)},
		"the last page":   {frameOf("a", "session.jobs", `"correlation_id":"msg_ping","payload":{"request_id":"msg_ping","jobs":[],"next_cursor":null}`)},
		"unknown members": {frameOf("a", "pong", `"correlation_id":"msg_ping","new":1,"payload":{"new":{}}`)},
		"foreign null":    {jobAcceptedFrame, eventOf("b", "log", "2", `{"level":"info","message":"m","attributes":{"a":null}}`)},
		"extensions":      {frameOf("a", "pong", `"correlation_id":"msg_ping","extensions":{"a":null},"payload":{}`)},
		"a heartbeat":     {jobAcceptedFrame, frameOf("h", "job.heartbeat", `"job_id":"job_1","payload":{"sequence":1,"state":"running"}`)},
		"a followed job": {frameOf("a", "job.failed", `"job_id":"job_2","trace_id":"t","event_seq":1,"payload":{"code":"UNKNOWN","message":"m","retryable":false}`),
			frameOf("b", "log", `"job_id":"job_3","trace_id":"t","event_seq":2,"payload":{"level":"info","message":"m"}`)},
		"a repeated submit": {jobAcceptedFrame, completedFrameAt("2"),
			strings.Replace(eventOf("a", "job.accepted", "3", `{"job_id":"job_1"}`), "msg_invoke", "msg_retry", 1),
			strings.Replace(eventOf("c", "job.completed", "4", `{}`), "msg_invoke", "msg_retry", 1)},
		"an artifact's answer":   {frameOf("a", "artifact.ref", `"correlation_id":"msg_ping","payload":{"artifact":{"artifact_id":"art_1","uri":"u","media_type":"m","size":1},"artifact_id":"art_1","uri":"u","media_type":"m","size":1}`)},
		"an answered permission": {jobAcceptedFrame, permissionFrame, leaseFrame("msg_ping", "3"), completedFrameAt("4")},
		"a denied elevation":     {frameOf("a", "permission.deny", `"correlation_id":"msg_ping","payload":{"permission":"p","reason":"r"}`)},
		"chunks": {jobAcceptedFrame, eventOf("b", "job.result_chunk", "2", `{"result_id":"r","chunk_seq":0,"data":"a","encoding":"utf8","more":true}`),
			eventOf("c", "job.result_chunk", "3", `{"result_id":"r","chunk_seq":1,"data":"a","encoding":"utf8","more":false}`)},
	} {
		v := newTestValidator()
		for _, f := range append([]string{acceptedFrame}, frames...) {
			if err := v.broken(f); err != nil {
				t.Errorf("%s: %v\n%s", name, err, f)
			}
		}
	}
}

var permissionFrame = eventOf("q", "permission.request", "2", `{"permission":"p","resource":"r","operation":"o"}`)

// leaseFrame returns a lease.granted of job_1 that answers the message corr.
func leaseFrame(corr, seq string) string {
	return frameOf("l"+seq, "lease.granted", `"job_id":"job_1","trace_id":"t","event_seq":`+seq+`,"correlation_id":"`+corr+
		`","payload":{"lease_id":"lease_1","permission":"p","resource":"r","operation":"o","expires_at":"2026-01-02T03:04:05Z"}`)
}

// withdrawnFrame returns a human.input.cancelled of job_1.
func withdrawnFrame(rest string) string {
	return frameOf("w", "human.input.cancelled", `"job_id":"job_1","trace_id":"t",`+rest+`"payload":{"code":"CANCELLED"}`)
}

// human.input.cancelled is an event that names the withdrawn question.
func TestValidatorOfWithdrawals(t *testing.T) {
	for rest, rule := range map[string]string{
		`"event_seq":3,"correlation_id":"msg_q",`:      "",
		`"event_seq":3,"correlation_id":"msg_invoke",`: "correlation",
		`"event_seq":3,"correlation_id":"msg_x",`:      "correlation",
		`"event_seq":3,`:            "correlated",
		`"correlation_id":"msg_q",`: "numbered",
	} {
		v := newTestValidator()
		v.offered.Flags = map[arcp.Feature]bool{arcp.FeatureHumanInput: true}
		for _, f := range []string{acceptedFrame, jobAcceptedFrame, permissionFrame} {
			if err := v.broken(f); err != nil {
				t.Fatal(err)
			}
		}
		err := v.broken(withdrawnFrame(rest))
		if rule == "" && err != nil || rule != "" && (err == nil || !strings.Contains(err.Error(), `"`+rule+`"`)) {
			t.Errorf("with %s: %v, want rule %q", rest, err, rule)
		}
	}
}

func completedFrameAt(seq string) string { return eventOf("c", "job.completed", seq, `{}`) }

func TestValidatorRefuses(t *testing.T) {
	pong := func(rest string) string { return frameOf("p", "pong", `"correlation_id":"msg_ping",`+rest) }
	for _, c := range []struct {
		rule   string // the violated rule
		frames []string
	}{
		{"envelope", []string{`{`}},
		{"envelope", []string{`[]`}},
		{"decodes", []string{pong(`"payload":{},"payload":{}`)}},
		{"envelope", []string{frameOf("p", "pong", `"correlation_id":"msg_ping"`)}},
		{"decodes", []string{eventOf("a", "job.accepted", `"1"`, `{"job_id":"job_1"}`)}},
		{"type", []string{frameOf("a", "job.exploded", `"payload":{}`)}},
		{"direction", []string{frameOf("a", "session.open", `"payload":{}`)}},
		{"negotiated", []string{frameOf("a", "human.input.request", `"job_id":"job_1","event_seq":1,"payload":{"prompt":"?","expires_at":"2026-01-02T03:04:05Z"}`)}},
		{"negotiated", []string{frameOf("a", "session.ping", `"payload":{"nonce":"n","sent_at":"2026-01-02T03:04:05Z"}`)}},
		{"negotiated", []string{frameOf("a", "tool.invoke", `"payload":{"tool":"x"}`)}},
		{"version", []string{strings.Replace(pong(`"payload":{}`), `"1.1"`, `"1.0"`, 1)}},
		{"utc", []string{strings.Replace(pong(`"payload":{}`), `05Z`, `05+00:00`, 1)}},
		{"secrets", []string{pong(`"payload":{"nonce":"my s3cret"}`)}},
		{"prefixes", []string{strings.Replace(pong(`"payload":{}`), `msg_p`, `p`, 1)}},
		{"prefixes", []string{pong(`"job_id":"1","payload":{}`)}},
		{"prefixes", []string{frameOf("a", "job.started", `"job_id":"job_2","trace_id":"t","event_seq":1,"correlation_id":"other","payload":{}`)}},
		{"payloads", []string{pong(`"payload":{"nonce":5}`)}},
		{"required-members", []string{frameOf("a", "job.failed", `"correlation_id":"msg_invoke","payload":{"code":"UNKNOWN","message":"m"}`)}},
		{"required-members", []string{frameOf("a", "cancel.refused", `"correlation_id":"msg_ping","payload":{"reason":"r"}`)}},
		{"required-members", []string{frameOf("a", "session.jobs", `"correlation_id":"msg_ping","payload":{"request_id":"msg_ping","jobs":[{"job_id":"job_1","agent":"a","status":"running","created_at":"2026-01-02T03:04:05Z"}],"next_cursor":null}`)}},
		{"nulls", []string{pong(`"payload":{"nonce":null}`)}},
		{"nulls", []string{pong(`"trace_id":null,"payload":{}`)}},
		{"values", []string{frameOf("a", "nack", `"correlation_id":"msg_ping","payload":{"code":"RATE_LIMITED","message":"m","retryable":true}`)}},
		{"values", []string{frameOf("a", "nack", `"correlation_id":"msg_ping","payload":{"code":"OK","message":"m","retryable":true}`)}},
		{"log-levels", []string{jobAcceptedFrame, eventOf("b", "log", "2", `{"level":"INFO","message":"m"}`)}},
		{"values", []string{jobAcceptedFrame, eventOf("b", "job.progress", "2", `{"current":-1}`)}},
		{"states", []string{frameOf("a", "session.jobs", `"correlation_id":"msg_ping","payload":{"request_id":"msg_ping","jobs":[{"job_id":"job_1","agent":"a","status":"waiting","created_at":"2026-01-02T03:04:05Z","last_event_seq":1}],"next_cursor":null}`)}},
		{"correlated", []string{frameOf("a", "pong", `"payload":{}`)}},
		{"correlated", []string{frameOf("a", "job.subscribed", `"correlation_id":"msg_ping","payload":{"job_id":"job_1","current_status":"running","agent":"a","subscribed_from":1}`)}},
		{"same-ids", []string{strings.Replace(jobAcceptedFrame, `{"job_id":"job_1"}`, `{"job_id":"job_2"}`, 1)}},
		{"session", []string{strings.Replace(pong(`"payload":{}`), `sess_1`, `sess_2`, 1)}},
		{"correlation", []string{strings.Replace(pong(`"payload":{}`), `msg_ping`, `msg_nobody`, 1)}},
		{"ids-unique", []string{pong(`"payload":{}`), pong(`"payload":{"nonce":"n"}`)}},
		{"one-end", []string{jobAcceptedFrame, completedFrameAt("2"), eventOf("d", "job.completed", "3", `{}`)}},
		{"sent-once", []string{pong(`"payload":{}`), pong(`"payload":{}`)}},
		{"numbered", []string{pong(`"event_seq":1,"payload":{}`)}},
		{"numbered", []string{strings.Replace(jobAcceptedFrame, `,"event_seq":1`, ``, 1)}},
		{"numbered", []string{jobAcceptedFrame, strings.Replace(eventOf("b", "event.emit", "2", `{"name":"n"}`), `,"event_seq":2`, ``, 1)}},
		{"numbered", []string{frameOf("b", "event.emit", `"event_seq":1,"payload":{"name":"n"}`)}},
		{"numbered", []string{jobAcceptedFrame, strings.Replace(eventOf("b", "job.failed", "2", `{"code":"UNKNOWN","message":"m","retryable":false}`), `,"event_seq":2`, ``, 1)}},
		{"numbers", []string{jobAcceptedFrame, completedFrame}},
		{"first-number", []string{strings.Replace(jobAcceptedFrame, `"event_seq":1`, `"event_seq":2`, 1)}},
		{"correlation", []string{jobAcceptedFrame, leaseFrame("msg_nobody", "2")}},
		{"negotiated", []string{frameOf("a", "permission.deny", `"correlation_id":"msg_nobody","payload":{"permission":"p","reason":"r"}`)}},
		{"order", []string{jobAcceptedFrame, completedFrameAt("2"), leaseFrame("msg_ping", "3")}},
		{"order", []string{jobAcceptedFrame, jobStartedFrame, completedFrame, eventOf("d", "log", "4", `{"level":"info","message":"m"}`)}},
		{"order", []string{jobAcceptedFrame, eventOf("b", "job.accepted", "2", `{"job_id":"job_1"}`)}},
		{"order", []string{jobAcceptedFrame, strings.Replace(jobStartedFrame, "msg_invoke", "msg_ping", 1)}},
		{"order", []string{jobAcceptedFrame, completedFrameAt("2"), frameOf("h", "job.heartbeat", `"job_id":"job_1","payload":{"sequence":1,"state":"running"}`)}},
		{"order", []string{jobAcceptedFrame, eventOf("b", "job.result_chunk", "2", `{"result_id":"r","chunk_seq":1,"data":"a","encoding":"utf8","more":true}`)}},
		{"trace", []string{jobAcceptedFrame, strings.Replace(jobStartedFrame, `"trace_id":"t"`, `"trace_id":"u"`, 1)}},
		{"trace", []string{strings.Replace(jobAcceptedFrame, `"trace_id":"t",`, ``, 1)}},
	} {
		v := newTestValidator()
		var err error
		all := append([]string{acceptedFrame}, c.frames...)
		for i, f := range all {
			err = v.broken(f)
			if err != nil && i < len(all)-1 {
				t.Errorf("%v\n%s", err, f)
			}
		}
		want := `rule "` + c.rule + `"`
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\nerror is %v, want %s", all[len(all)-1], err, want)
		}
	}
}

func TestValidatorBeforeSession(t *testing.T) {
	v := newTestValidator()
	rejected := strings.Replace(frameOf("r", "session.rejected", `"correlation_id":"msg_open","payload":{"code":"UNAUTHENTICATED","message":"m","retryable":false}`), `"session_id":"sess_1",`, ``, 1)
	if err := v.broken(rejected); err != nil {
		t.Errorf("session.rejected without a session: error = %v, want nil", err)
	}
	if err := v.broken(frameOf("p", "pong", `"correlation_id":"msg_ping","payload":{}`)); err == nil {
		t.Error("pong before session.accepted: error = nil, want a refusal")
	}
}

func TestValidatorAfterResume(t *testing.T) {
	v := newTestValidator()
	resumed := frameOf("s", "session.resumed", `"correlation_id":"msg_open","payload":{"session_id":"sess_1","resume_token":"rt","replayed_from":2,"replayed":true}`)
	for _, f := range []string{resumed, completedFrame} {
		if err := v.broken(f); err != nil {
			t.Errorf("event_seq continues after a resume: %v", err)
		}
	}
}

// A type is allowed after its capability was negotiated.
func TestValidatorKnowsNegotiated(t *testing.T) {
	v := newTestValidator()
	v.offered.Flags = map[arcp.Feature]bool{arcp.FeatureHumanInput: true}
	ask := frameOf("q", "human.input.request", `"job_id":"job_9","trace_id":"t","event_seq":1,"payload":{"prompt":"?","expires_at":"2026-01-02T03:04:05Z"}`)
	for _, f := range []string{acceptedFrame, ask} {
		if err := v.broken(f); err != nil {
			t.Error(err)
		}
	}
}

func TestMissingMembers(t *testing.T) {
	for _, c := range []struct {
		typ  arcp.Type
		raw  string
		want []string
	}{
		{arcp.SessionAccepted, `{"session_id":"s","runtime":{"kind":"k"},"capabilities":{}}`, []string{"payload.runtime.version"}},
		{arcp.ArtifactRef, `{"artifact":{"artifact_id":"a","uri":"u","media_type":"m","size":1}}`,
			[]string{"payload.artifact_id", "payload.uri", "payload.media_type", "payload.size"}},
		{arcp.Metric, `{"name":"n","value":1}`, []string{"payload.unit"}},
		{arcp.JobSubscribed, `{"job_id":"j","current_status":"c","agent":"a"}`, []string{"payload.subscribed_from"}},
		{arcp.Pong, `{}`, nil},
		{arcp.SessionJobs, `{"request_id":"r","jobs":[{},{}]}`, []string{"payload.jobs[].job_id", "payload.jobs[].agent", "payload.jobs[].status",
			"payload.jobs[].created_at", "payload.jobs[].last_event_seq", "payload.jobs[].job_id", "payload.jobs[].agent", "payload.jobs[].status",
			"payload.jobs[].created_at", "payload.jobs[].last_event_seq", "payload.next_cursor"}},
	} {
		typ := reflect.TypeOf(arcp.Lookup(c.typ).NewPayload()).Elem()
		if got := missingMembers(typ, arcp.Raw(c.raw), "payload"); !slices.Equal(got, c.want) {
			t.Errorf("%s %s lacks %q, want %q", c.typ, c.raw, got, c.want)
		}
	}
}

func TestValidatorRemembersASession(t *testing.T) {
	resumed := frameOf("s", "session.resumed", `"correlation_id":"msg_open","payload":{"session_id":"sess_1","resume_token":"rt","replayed_from":1,"replayed":true}`)
	for name, test := range map[string]struct {
		frame string
		ok    bool
	}{
		"unchanged":            {jobStartedFrame, true},
		"with another payload": {strings.Replace(jobStartedFrame, `"payload":{}`, `"payload":{"description":"again"}`, 1), false},
		"with another id":      {strings.Replace(jobStartedFrame, `"msg_b"`, `"msg_z"`, 1), false},
		"out of order":         {completedFrame, false},
		"of another session":   {strings.Replace(jobStartedFrame, `"sess_1"`, `"sess_2"`, 1), false},
	} {
		first, v := newTestValidator(), newTestValidator()
		for _, f := range []string{acceptedFrame, jobAcceptedFrame, jobStartedFrame, completedFrame} {
			if err := first.broken(f); err != nil {
				t.Fatal(err)
			}
		}
		v.attach(first.rec)
		if err := v.broken(resumed); err != nil {
			t.Fatal(err)
		}
		if err := v.broken(test.frame); (err == nil) != test.ok {
			t.Errorf("a replayed event %s: error is %v", name, err)
		}
	}
}

// A number that is used twice on one connection is no replay.
func TestValidatorOfRepeatedNumbers(t *testing.T) {
	v := newTestValidator()
	for _, frame := range []string{acceptedFrame, jobAcceptedFrame} {
		if err := v.broken(frame); err != nil {
			t.Fatal(err)
		}
	}
	f, broken := v.frame([]byte(eventOf("b", "job.started", "1", `{}`)))
	var ids []string
	for _, b := range broken {
		ids = append(ids, b.rule.id)
	}
	if f.repeated || slices.Contains(ids, "replay") || !slices.Contains(ids, "numbers") {
		t.Errorf("a second event 1 on the connection breaks %q, want numbers and not replay", ids)
	}
}

func TestValidatorOfSubscriptions(t *testing.T) {
	for name, test := range map[string]struct {
		inner string
		ok    bool
	}{
		"an event":                          {jobStartedFrame, true},
		"about the subscription":            {`{"arcp":"1.1","id":"msg_m","type":"event.emit","timestamp":"2026-01-02T03:04:05Z","subscription_id":"sub_1","payload":{"name":"n"}}`, true},
		"about another subscription":        {`{"arcp":"1.1","id":"msg_m","type":"event.emit","timestamp":"2026-01-02T03:04:05Z","subscription_id":"sub_2","payload":{"name":"n"}}`, false},
		"a handshake":                       {acceptedFrame, false},
		"an answer":                         {frameOf("p", "pong", `"correlation_id":"msg_ping","payload":{}`), false},
		"an event without session":          {strings.Replace(jobStartedFrame, `"session_id":"sess_1",`, ``, 1), false},
		"an event of a job without session": {strings.NewReplacer(`"session_id":"sess_1",`, ``, `"correlation_id":"msg_invoke",`, ``).Replace(jobStartedFrame), true},
		"an event of the host":              {`{"arcp":"1.1","id":"msg_m","type":"event.emit","timestamp":"2026-01-02T03:04:05Z","payload":{"name":"host.event","data":{}}}`, true},
		"a host event with session":         {`{"arcp":"1.1","id":"msg_m","type":"event.emit","timestamp":"2026-01-02T03:04:05Z","session_id":"sess_1","payload":{"name":"host.event","data":{}}}`, false},
		"an event without job":              {`{"arcp":"1.1","id":"msg_m","type":"event.emit","timestamp":"2026-01-02T03:04:05Z","payload":{"name":"n"}}`, false},
		"an event unnumbered":               {strings.Replace(jobStartedFrame, `"event_seq":2,`, ``, 1), false},
		"a payload of its own":              {`{"n":1}`, false},
	} {
		v := newTestValidator()
		if err := v.broken(acceptedFrame); err != nil {
			t.Fatal(err)
		}
		f := frameOf("e", "subscribe.event", `"subscription_id":"sub_1","payload":{"event":`+test.inner+`}`)
		if err := v.broken(f); (err == nil) != test.ok {
			t.Errorf("%s in a subscription: error is %v", name, err)
		}
	}
}

// The same message may be delivered twice: only rules of the level house are about it.
func TestValidatorOfCopies(t *testing.T) {
	v := newTestValidator()
	end := completedFrameAt("2")
	for _, f := range []string{acceptedFrame, jobAcceptedFrame, end} {
		if err := v.broken(f); err != nil {
			t.Fatal(err)
		}
	}
	_, broken := v.frame([]byte(strings.Replace(end, `"event_seq":2`, `"event_seq":3`, 1)))
	var ids []string
	for _, b := range broken {
		ids = append(ids, b.rule.id)
		if b.rule.level != House {
			t.Errorf("a copy violates %s: %s", b.rule.id, b.text)
		}
	}
	if !slices.Contains(ids, "order") {
		t.Errorf("a copy violates %v, want order", ids)
	}
}
