package draft_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

// halves are both halves of the codec, without a network.
type halves struct {
	t      *testing.T
	client *draft.ClientCodec
	server *draft.ServerCodec
	seq    uint64
}

func newHalves(t *testing.T) *halves {
	h := &halves{t: t, client: draft.NewClientCodec()}
	frame, env := h.encode(arcp.SessionOpen, arcp.SessionOpenPayload{Auth: arcp.Auth{Scheme: "bearer", Token: "t"}, Client: arcp.ClientInfo{Kind: "test", Version: "1"},
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{arcp.FeatureHeartbeat: true, arcp.FeatureProvisionedCredentials: true}}})
	var err error
	if h.server, err = draft.NewServerCodec(frame); err != nil {
		t.Fatal(err)
	}
	if h.server.Profile() != draft.OwnClient {
		t.Fatalf("profile %s", h.server.Profile())
	}
	got, err := h.server.Decode(frame)
	if err != nil || got.Type != arcp.SessionOpen || got.ID != env.ID {
		t.Fatalf("session.open is decoded as %+v, %v; want the id %s", got, err, env.ID)
	}
	accepted := h.answer(arcp.SessionAccepted, env.ID, acceptedSession())
	p := decoded[arcp.SessionAcceptedPayload](t, accepted)
	if p.ResumeToken != "token" || p.HeartbeatIntervalSec != 30 || !p.Capabilities.Has(arcp.FeatureHeartbeat) || p.Capabilities.Has(arcp.FeatureAck) || accepted.CorrelationID != env.ID || len(p.Capabilities.Agents) != 2 {
		t.Fatalf("the welcome is decoded as %s, want what was accepted", accepted.Append(nil))
	}
	return h
}

func decoded[P any](t *testing.T, env arcp.Envelope) P {
	t.Helper()
	p, err := arcp.DecodePayload[P](&env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// encode encodes a message of the client.
func (h *halves) encode(typ arcp.Type, payload any) ([]byte, arcp.Envelope) {
	h.t.Helper()
	env := arcp.Frame(typ, payload)
	env.ARCP, env.ID, env.Timestamp = arcp.Version, arcp.NewMessageID(), moment
	frame, err := h.client.Append(nil, &env)
	if err != nil {
		h.t.Fatalf("%s: %v", typ, err)
	}
	return frame, env
}

// request passes a message of the client through both halves.
func (h *halves) request(typ arcp.Type, payload any) (got arcp.Envelope) {
	h.t.Helper()
	frame, env := h.encode(typ, payload)
	got, err := h.server.Decode(frame)
	if err != nil {
		h.t.Fatalf("%s: %v", frame, err)
	}
	if got.ID != env.ID {
		h.t.Errorf("%s has the id %s, want %s", typ, got.ID, env.ID)
	}
	return got
}

// answer passes a message of the runtime through both halves. It has the type "" if there is none.
func (h *halves) answer(typ arcp.Type, to arcp.MessageID, payload any) (got arcp.Envelope) {
	h.t.Helper()
	env := arcp.Frame(typ, payload)
	env.CorrelationID, env.TraceID = to, trace
	frames, err := answerFrames(h.server, &env)
	if err != nil {
		h.t.Fatalf("%s: %v", typ, err)
	}
	for _, frame := range frames {
		env, ok, err := h.client.Decode(frame)
		if err != nil {
			h.t.Fatalf("%s: %v", frame, err)
		}
		if ok && got.Type == "" {
			got = env
		}
	}
	return got
}

// event passes an event of a job through both halves.
func (h *halves) event(id arcp.JobID, typ arcp.Type, payload any) arcp.Envelope {
	h.t.Helper()
	h.seq++
	frame, err := h.server.AppendEvent(nil, h.seq, "", newEvent(id, typ, payload))
	if err != nil {
		h.t.Fatalf("%s: %v", typ, err)
	}
	env, ok, err := h.client.Decode(frame)
	if err != nil || !ok {
		h.t.Fatalf("%s: %v", frame, err)
	}
	if env.EventSeq != h.seq || env.JobID != id || env.TraceID != trace {
		h.t.Errorf("%s is decoded as %s, want event %d of %s with the trace %s", frame, env.Append(nil), h.seq, id, trace)
	}
	return env
}

func (h *halves) submit(id arcp.JobID) arcp.MessageID {
	h.t.Helper()
	request := h.request(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "echo", Arguments: arcp.Raw(`{"x":1}`)})
	got := h.answer(arcp.JobAccepted, request.ID, acceptedJob(id))
	if p := decoded[arcp.JobAcceptedPayload](h.t, got); got.Type != arcp.JobAccepted || p.JobID != id || got.CorrelationID != request.ID || len(p.Credentials) != 2 {
		h.t.Fatalf("the submit %s is answered by %s, want job.accepted of %s with both credentials", request.ID, got.Append(nil), id)
	}
	return request.ID
}

// wantPayload compares a message with a type and the JSON of a payload.
func wantPayload(t *testing.T, got arcp.Envelope, typ arcp.Type, payload string) {
	t.Helper()
	if got.Type != typ || string(got.Payload) != payload {
		t.Errorf("%s %s, want %s %s", got.Type, got.Payload, typ, payload)
	}
}

// Requests arrive as they were sent.
func TestRequestsSurviveTheCodec(t *testing.T) {
	h := newHalves(t)
	limit, after := uint32(7), uint64(9)
	for _, test := range []struct {
		typ     arcp.Type
		payload any
		want    string // empty: the payload
	}{
		{arcp.SessionPing, arcp.SessionPingPayload{Nonce: "n", SentAt: moment.UTC()}, `{"nonce":"n","sent_at":"2026-05-09T13:00:00.020000Z"}`},
		{arcp.SessionPong, arcp.SessionPongPayload{PingNonce: "n", ReceivedAt: moment.UTC()}, `{"ping_nonce":"n","received_at":"2026-05-09T13:00:00.020000Z"}`},
		{arcp.SessionAck, arcp.SessionAckPayload{LastProcessedSeq: 3}, ""},
		{arcp.SessionListJobs, arcp.SessionListJobsPayload{Limit: &limit, Cursor: "c", Filter: &arcp.JobFilter{Agent: "a", Status: []string{"completed"}}}, ""},
		{arcp.SessionListJobs, arcp.SessionListJobsPayload{Filter: &arcp.JobFilter{Status: []string{"failed", "queued"}}}, `{"filter":{"status":["error","timed_out","accepted","queued"]}}`},
		{arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "a@1", Arguments: arcp.Raw(`{"k":[1,2]}`), SubmitOptions: arcp.SubmitOptions{
			LeaseRequest: arcp.Raw(`{"fs.read":["/a"]}`), IdempotencyKey: "key", OnDisconnect: "continue"}}, `{"tool":"a@1","arguments":{"k":[1,2]},"lease_request":{"fs.read":["/a"]},"idempotency_key":"key"}`},
		{arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(job), Reason: "r"}, ""},
		{arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job, FromEventSeq: &after, History: true}, ""},
		{arcp.JobUnsubscribe, arcp.JobUnsubscribePayload{JobID: job}, ""},
		{arcp.SessionClose, arcp.SessionClosePayload{Reason: "r"}, ""},
	} {
		want := test.want
		if want == "" {
			env := arcp.Frame(test.typ, test.payload)
			want = string(env.Payload)
		}
		wantPayload(t, h.request(test.typ, test.payload), test.typ, want)
	}
}

// A message that the dialect cannot express is an error that names it, and is not recorded.
func TestUnsupportedRequestIsNotRecorded(t *testing.T) {
	invoke := func(o arcp.SubmitOptions) any { return arcp.ToolInvokePayload{Tool: "a", SubmitOptions: o} }
	for _, test := range []struct {
		typ     arcp.Type
		payload any
		want    string
	}{
		{arcp.AgentDelegate, struct{}{}, "agent.delegate"},
		{arcp.Subscribe, struct{}{}, "subscribe"},
		{arcp.ToolInvoke, invoke(arcp.SubmitOptions{Direct: true}), "tool.invoke with direct"},
		{arcp.ToolInvoke, invoke(arcp.SubmitOptions{OnDisconnect: "cancel"}), "tool.invoke with on_disconnect"},
		{arcp.ToolInvoke, invoke(arcp.SubmitOptions{CostBudget: []string{"USD:1"}}), "tool.invoke with cost_budget"},
		{arcp.Cancel, arcp.CancelPayload{Target: "session", TargetID: "s"}, "cancel with target session"},
		{arcp.SessionClose, arcp.SessionClosePayload{OpenJobs: "cancel"}, "session.close with open_jobs cancel"},
		{arcp.SessionListJobs, arcp.SessionListJobsPayload{Filter: &arcp.JobFilter{Principal: "p"}}, "session.list_jobs with filter/principal"},
	} {
		env := arcp.Frame(test.typ, test.payload)
		env.ID = "msg_1"
		dst, err := draft.NewClientCodec().Append([]byte("x"), &env)
		if _, ok := errors.AsType[*draft.UnsupportedError](err); !ok || err.Error() != "the draft dialect has no "+test.want || string(dst) != "x" {
			t.Errorf("%s: Append(x) = %q, %v; want x and that the dialect has no %s", test.typ, dst, err, test.want)
		}
		if draft.Check(&env) == nil {
			t.Errorf("Check accepts %s", test.want)
		}
	}
}

// Answers are correlated to their requests.
func TestAnswersNameTheirRequests(t *testing.T) {
	h := newHalves(t)
	list := h.request(arcp.SessionListJobs, arcp.SessionListJobsPayload{})
	got := h.answer(arcp.SessionJobs, list.ID, arcp.SessionJobsPayload{RequestID: list.ID, Jobs: []arcp.JobEntry{{JobID: job, Agent: "a", Status: "blocked", CreatedAt: moment, LastEventSeq: 4}}})
	page := decoded[arcp.SessionJobsPayload](t, got)
	if got.CorrelationID != list.ID || page.RequestID != list.ID || len(page.Jobs) != 1 || page.Jobs[0].Status != "running" || page.Jobs[0].LastEventSeq != 4 {
		t.Errorf("the list %s is answered by %s, want the running job at event 4", list.ID, got.Append(nil))
	}

	ping := h.request(arcp.Ping, arcp.PingPayload{Nonce: "n"})
	if ping.Type != arcp.SessionPing {
		t.Errorf("a ping is decoded as %s, want %s", ping.Type, arcp.SessionPing)
	}
	got = h.answer(arcp.SessionPong, ping.ID, arcp.SessionPongPayload{PingNonce: "n", ReceivedAt: moment})
	wantPayload(t, got, arcp.Pong, `{"nonce":"n"}`)
	if got.CorrelationID != ping.ID {
		t.Errorf("pong is correlated to %s", got.CorrelationID)
	}
	wantPayload(t, h.answer(arcp.SessionPing, "", arcp.SessionPingPayload{Nonce: "m", SentAt: moment}), arcp.SessionPing, `{"nonce":"m","sent_at":"2026-05-09T13:00:00.020000Z"}`)

	subscribe := h.request(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job, History: true})
	got = h.answer(arcp.JobSubscribed, subscribe.ID, arcp.JobSubscribedPayload{JobID: job, CurrentStatus: "completed", Agent: "a", Replayed: true})
	if p := decoded[arcp.JobSubscribedPayload](t, got); got.CorrelationID != subscribe.ID || p.CurrentStatus != "completed" || !p.Replayed {
		t.Errorf("the subscribe %s is answered by %s, want the completed job, replayed", subscribe.ID, got.Append(nil))
	}

	for _, test := range []struct {
		typ     arcp.Type
		payload any
		refusal any
		want    arcp.Type
		code    arcp.Code
	}{
		{arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "a"}, arcp.Errorf(arcp.CodeNotFound, "no agent"), arcp.Nack, arcp.CodeNotFound},
		{arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "a"}, arcp.Errorf(arcp.CodeUnavailable, "later"), arcp.Nack, arcp.CodeUnavailable},
		{arcp.SessionListJobs, struct{}{}, arcp.Errorf(arcp.CodePermissionDenied, "no"), arcp.Nack, arcp.CodePermissionDenied},
		{arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job}, arcp.Errorf(arcp.CodeJobNotFound, "no"), arcp.Nack, arcp.CodeJobNotFound},
	} {
		request := h.request(test.typ, test.payload)
		got := h.answer(arcp.Nack, request.ID, test.refusal)
		if e := decoded[arcp.Error](t, got); got.Type != test.want || got.CorrelationID != request.ID || e.Code != test.code {
			t.Errorf("refused %s: %s", test.typ, got.Append(nil))
		}
	}

	cancel := func() arcp.MessageID {
		return h.request(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(job)}).ID
	}
	id := cancel()
	got = h.answer(arcp.CancelAccepted, id, arcp.CancelAcceptedPayload{TargetID: string(job)})
	wantPayload(t, got, arcp.CancelAccepted, `{"target_id":"`+string(job)+`"}`)
	for reason, code := range map[string]arcp.Code{"not_found": arcp.CodeJobNotFound, "permission_denied": arcp.CodePermissionDenied, "already_terminal": arcp.CodeFailedPrecondition} {
		id = cancel()
		got = h.answer(arcp.CancelRefused, id, arcp.CancelRefusedPayload{TargetID: string(job), Reason: reason, Code: code, Message: "m"})
		if p := decoded[arcp.CancelRefusedPayload](t, got); got.Type != arcp.CancelRefused || got.CorrelationID != id || p.Reason != reason || p.Code != code || p.Message != "m" {
			t.Errorf("the cancel %s is answered by %s, want cancel.refused with %s and %s", id, got.Append(nil), reason, code)
		}
	}

	wantPayload(t, h.answer(arcp.SessionClose, "", arcp.SessionClosePayload{Reason: "r"}), arcp.SessionClose, `{"reason":"r"}`)
	wantPayload(t, h.answer(arcp.SessionEvicted, "", arcp.SessionEvictedPayload{Code: arcp.CodeUnauthenticated, Reason: "r"}), arcp.SessionEvicted, `{"code":"UNAUTHENTICATED","reason":"r"}`)
	bye := h.request(arcp.SessionClose, arcp.SessionClosePayload{})
	if got = h.answer(arcp.SessionClosed, bye.ID, arcp.SessionClosedPayload{Reason: "r"}); got.Type != arcp.SessionClosed || got.CorrelationID != bye.ID {
		t.Errorf("the close %s is answered by %s, want session.closed", bye.ID, got.Append(nil))
	}
}

// Events arrive as the runtime logs them, up to the differences that ClientCodec lists.
func TestEventsSurviveTheCodec(t *testing.T) {
	const artifact = `{"artifact_id":"art_1","uri":"arcp://a","media_type":"text/plain","size":5}`
	h := newHalves(t)
	submit := h.submit(job)
	for _, test := range []struct {
		typ     arcp.Type
		payload string
		as      arcp.Type // empty: typ
		want    string    // empty: payload
	}{
		{arcp.JobStarted, `{"description":"d"}`, "", ""},
		{arcp.JobProgress, `{"current":1.5,"total":3,"units":"u","message":"m"}`, "", ""},
		{arcp.JobProgress, `{"current":0,"percent":40}`, "", `{"current":40,"total":100,"units":"percent"}`},
		{arcp.JobCheckpoint, `{"checkpoint_id":"c","label":"l"}`, "", ""},
		{arcp.JobResultChunk, `{"result_id":"r","chunk_seq":2,"data":"x","encoding":"base64","more":true}`, "", ""},
		{arcp.Log, `{"level":"warn","message":"m","attributes":{"a":1}}`, "", ""},
		{arcp.Log, `{"level":"trace","message":"m"}`, "", `{"level":"debug","message":"m"}`},
		{arcp.Metric, `{"name":"n","value":1,"unit":"s","dims":{"a":1}}`, "", ""},
		{arcp.ArtifactRef, `{"uri":"u","media_type":"text/plain","size":3,"sha256":"00"}`, "", ""},
		{arcp.PermissionRequest, `{"permission":"p","reason":"r"}`, "", ""},
		{arcp.HumanInputRequest, `{"prompt":"p"}`, "", ""},
		{arcp.HumanChoiceRequest, `{"prompt":"p","options":[]}`, arcp.HumanInputRequest, ""},
		{arcp.HumanInputCancelled, `{"reason":"r"}`, "", ""},
		{arcp.LeaseGranted, `{"lease_id":"l"}`, "", ""},
		{arcp.LeaseExtended, `{"lease_id":"l"}`, "", ""},
		{arcp.LeaseRevoked, `{"lease_id":"l","reason":"r"}`, "", ""},
		{arcp.EventEmit, `{"name":"tool_call","data":{"tool":"t","args":{},"call_id":"c"}}`, "", ""},
		{arcp.EventEmit, `{"name":"tool_result","data":{"call_id":"c","result":{"x":1}}}`, "", ""},
		{arcp.EventEmit, `{"name":"thought","data":{"text":"t"}}`, "", ""},
		{arcp.EventEmit, `{"name":"credential_rotated","data":{"id":"i","value":"v"}}`, "", ""},
		{arcp.EventEmit, `{"name":"other","data":{"x":1}}`, "", ""},
		{arcp.StreamChunk, `{"role":"r","content":"c","kind":"thought"}`, arcp.EventEmit, `{"name":"thought","data":{"text":"c"}}`},
		{arcp.StreamChunk, `{"data":{"level":"info","message":"m"},"kind":"log"}`, arcp.Log, `{"level":"info","message":"m"}`},
		{arcp.StreamChunk, `{"data":{"name":"n","value":1.50,"unit":"u"},"kind":"metric"}`, arcp.Metric, `{"name":"n","value":1.50,"unit":"u"}`},
	} {
		as, want := test.as, test.want
		if as == "" {
			as = test.typ
		}
		if want == "" {
			want = test.payload
		}
		got := h.event(job, test.typ, arcp.Raw(test.payload))
		wantPayload(t, got, as, want)
		if got.CorrelationID != submit {
			t.Errorf("%s is correlated to %s", test.typ, got.CorrelationID)
		}
	}
	for i, test := range []struct {
		typ     arcp.Type
		payload string
		as      arcp.Type
		want    string
	}{
		{arcp.JobCompleted, `{"value":{"x":1},"summary":"s"}`, arcp.JobCompleted, `{"value":{"x":1},"summary":"s"}`},
		{arcp.JobCompleted, `{"result_id":"r","result_size":5}`, arcp.JobCompleted, `{"result_id":"r","result_size":5}`},
		{arcp.JobCompleted, `{"result_ref":` + artifact + `,"result_size":5}`, arcp.JobCompleted, `{"result_ref":` + artifact + `,"result_size":5}`},
		{arcp.ToolResult, `{"value":1}`, arcp.JobCompleted, `{"value":1}`},
		{arcp.JobFailed, `{"code":"DEADLINE_EXCEEDED","message":"m","retryable":true}`, arcp.JobFailed, `{"code":"DEADLINE_EXCEEDED","message":"m","retryable":true}`},
		{arcp.JobFailed, `{"code":"UNAVAILABLE","message":"m","retryable":true,"details":{"a":1}}`, arcp.JobFailed, `{"code":"UNAVAILABLE","message":"m","retryable":true,"details":{"a":1}}`},
		{arcp.ToolError, `{"code":"INTERNAL","message":"m","retryable":true}`, arcp.JobFailed, `{"code":"INTERNAL","message":"m","retryable":true}`},
		{arcp.JobCancelled, `{"reason":"r","code":"CANCELLED"}`, arcp.JobCancelled, `{"reason":"r","code":"CANCELLED"}`},
		{arcp.JobCancelled, `{"reason":"r","code":"ABORTED"}`, arcp.JobCancelled, `{"reason":"r","code":"ABORTED"}`},
	} {
		id := arcp.JobID(strings.Replace(string(job), "9", string(rune('A'+i)), 1))
		submit := h.submit(id)
		got := h.event(id, test.typ, arcp.Raw(test.payload))
		wantPayload(t, got, test.as, test.want)
		if got.CorrelationID != submit {
			t.Errorf("%s is correlated to %s", test.typ, got.CorrelationID)
		}
	}
}

// A resume is answered by session.resumed with the position of the request.
func TestResumeIsAnsweredWithThePosition(t *testing.T) {
	client := draft.NewClientCodec()
	env := arcp.Frame(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: "old", LastEventSeq: 5})
	env.ID, env.SessionID, env.Timestamp = "msg_1", "sess_1", moment
	frame, err := client.Append(nil, &env)
	if err != nil {
		t.Fatalf("session.resume is encoded as %s, %v; want a frame that opens a session", frame, err)
	}
	server, err := draft.NewServerCodec(frame)
	if err != nil {
		t.Fatal(err)
	}
	got, err := server.Decode(frame)
	if err != nil || got.Type != arcp.SessionResume || got.SessionID != "sess_1" {
		t.Fatalf("session.resume is decoded as %+v, %v; want the session sess_1", got, err)
	}
	answer := arcp.Frame(arcp.SessionResumed, arcp.SessionResumedPayload{SessionID: "sess_1", ResumeToken: "new", ReplayedFrom: 5})
	answer.CorrelationID = env.ID
	frames, err := answerFrames(server, &answer)
	if err != nil || len(frames) != 1 {
		t.Fatalf("session.resumed is encoded as %s, %v; want one frame", frames, err)
	}
	got, ok, err := client.Decode(frames[0])
	if err != nil || !ok {
		t.Fatalf("%s: %v", frames[0], err)
	}
	if p := decoded[arcp.SessionResumedPayload](t, got); got.Type != arcp.SessionResumed || got.CorrelationID != "msg_1" || p.ReplayedFrom != 5 || p.ResumeToken != "new" {
		t.Errorf("the resume is answered by %s, want position 5 and the new token", got.Append(nil))
	}
}

// A refused session is one session.rejected.
func TestRefusedSessionIsRejectedOnce(t *testing.T) {
	for _, typ := range []arcp.Type{arcp.SessionRejected, arcp.SessionUnauthenticated} {
		h := &halves{t: t, client: draft.NewClientCodec()}
		frame, env := h.encode(arcp.SessionOpen, arcp.SessionOpenPayload{Auth: arcp.Auth{Scheme: "bearer"}, Client: arcp.ClientInfo{Kind: "test", Version: "1"}})
		h.server, _ = draft.NewServerCodec(frame)
		if _, err := h.server.Decode(frame); err != nil {
			t.Fatal(err)
		}
		got := h.answer(typ, env.ID, arcp.Errorf(arcp.CodeUnauthenticated, "m"))
		if e := decoded[arcp.Error](t, got); got.Type != arcp.SessionRejected || got.CorrelationID != env.ID || e.Code != arcp.CodeUnauthenticated {
			t.Errorf("%s is decoded as %s, want session.rejected with UNAUTHENTICATED", typ, got.Append(nil))
		}
	}
}

// Frames of a runtime never make the codec panic, and their messages can be encoded.
func FuzzClientDecode(f *testing.F) {
	for _, frame := range []string{
		`{"arcp":"1.1","id":"1","type":"session.welcome","payload":{"session_id":"s","capabilities":{"features":["ack"],"agents":[{"name":"a"}]}}}`,
		`{"arcp":"1.1","id":"1","type":"session.error","payload":{"code":"X","message":"m","details":{"arcp_code":"INTERNAL"},"request_id":"msg_1"}}`,
		`{"arcp":"1.1","id":"1","type":"session.pong","payload":{"ping_nonce":"n"}}`,
		`{"arcp":"1.1","id":"1","type":"session.jobs","payload":{"jobs":[{"job_id":"j","status":"pending"}]}}`,
		`{"arcp":"1.1","id":"1","type":"job.accepted","payload":{"job_id":"j"}}`,
		`{"arcp":"1.1","id":"1","type":"job.event","event_seq":1,"job_id":"j","payload":{"kind":"status","body":{"phase":"running","message":"m"}}}`,
		`{"arcp":"1.1","id":"1","type":"job.event","event_seq":1,"job_id":"j","payload":{"kind":"log","body":{"fields":{}}}}`,
		`{"arcp":"1.1","id":"1","type":"job.result","event_seq":1,"job_id":"j","payload":{"output":1}}`,
		`{"arcp":"1.1","id":"1","type":"job.error","job_id":"j","payload":{"final_status":"cancelled","code":"CANCELLED"}}`,
		`{"arcp":"1.1","id":"1","type":"job.cancelled","payload":{"job_id":"j"}}`,
		`{"arcp":"1.1","id":"1","type":"job.subscribed","payload":{"job_id":"j","lease_constraints":{}}}`,
	} {
		f.Add([]byte(frame))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		c := draft.NewClientCodec()
		for _, env := range []arcp.Envelope{
			arcp.Frame(arcp.SessionOpen, struct{}{}), arcp.Frame(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "a"}), arcp.Frame(arcp.SessionListJobs, struct{}{}),
			arcp.Frame(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: "j"}), arcp.Frame(arcp.Ping, arcp.PingPayload{Nonce: "n"}),
		} {
			env.ID, env.Timestamp = "msg_"+arcp.MessageID(env.Type), moment
			if _, err := c.Append(nil, &env); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // before and after the welcome
			if env, ok, err := c.Decode(frame); err == nil && ok {
				env.Timestamp = moment
				if _, err := arcp.DecodeFromRuntime(env.Append(nil)); err != nil {
					t.Fatalf("%s: %v", env.Append(nil), err)
				}
			}
			if _, _, err := c.Decode([]byte(`{"arcp":"1.1","id":"2","type":"session.welcome","payload":{"session_id":"s"}}`)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Any order of requests, answers, refusals and events: each request has one answer that names it, and
// each event one message. A message that has passed through both halves once is not changed by the
// second time.
func TestEachRequestHasOneAnswer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHalves(t)
		var jobs []arcp.JobID
		answered := func(typ arcp.Type, request arcp.Envelope, payload any, want arcp.Type) {
			if got := h.answer(typ, request.ID, payload); got.Type != want || got.CorrelationID != request.ID {
				rt.Fatalf("%s of %s is answered by %s, want %s", typ, request.Type, got.Append(nil), want)
			}
		}
		n := 0
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				n++
				jobs = append(jobs, eventJob(n))
				h.submit(eventJob(n))
			case 1:
				code := rapid.SampledFrom(arcp.Codes).Draw(rt, "code").Code
				request := rapid.SampledFrom([]arcp.Envelope{
					arcp.Frame(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "a"}),
					arcp.Frame(arcp.SessionListJobs, arcp.SessionListJobsPayload{}),
					arcp.Frame(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: job}),
				}).Draw(rt, "refused")
				answered(arcp.Nack, h.request(request.Type, request.Payload), arcp.Errorf(code, "refused"), arcp.Nack)
			case 2:
				request := h.request(arcp.SessionListJobs, arcp.SessionListJobsPayload{})
				answered(arcp.SessionJobs, request, arcp.SessionJobsPayload{RequestID: request.ID}, arcp.SessionJobs)
			case 3:
				n++
				request := h.request(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: eventJob(n)})
				answered(arcp.JobSubscribed, request, arcp.JobSubscribedPayload{JobID: eventJob(n), CurrentStatus: "running", Agent: "a@1"}, arcp.JobSubscribed)
				jobs = append(jobs, eventJob(n))
			case 4:
				if len(jobs) > 0 {
					id := rapid.SampledFrom(jobs).Draw(rt, "job")
					e := rapid.SampledFrom(events).Draw(rt, "event")
					once := h.event(id, e.t, e.payload)
					twice := h.event(id, once.Type, once.Payload)
					if once.Type != twice.Type || string(once.Payload) != string(twice.Payload) || once.CorrelationID != twice.CorrelationID {
						rt.Fatalf("%s %s is %s %s the first and %s %s the second time", e.t, newEvent(id, e.t, e.payload).Payload, once.Type, once.Payload, twice.Type, twice.Payload)
					}
				}
			case 5:
				if len(jobs) > 0 {
					i := rapid.IntRange(0, len(jobs)-1).Draw(rt, "job")
					e := rapid.SampledFrom(ends).Draw(rt, "end")
					once := h.event(jobs[i], e.t, e.payload)
					twice := h.event(jobs[i], once.Type, once.Payload)
					if !once.Type.Terminal() || once.Type != twice.Type || string(once.Payload) != string(twice.Payload) {
						rt.Fatalf("%s %s is %s %s the first and %s %s the second time", e.t, newEvent(jobs[i], e.t, e.payload).Payload, once.Type, once.Payload, twice.Type, twice.Payload)
					}
					jobs = append(jobs[:i:i], jobs[i+1:]...)
				}
			}
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// A runtime that does not name requests answers the oldest of the kind.
func TestUncorrelatedAnswerIsOfTheOldestRequest(t *testing.T) {
	h := newHalves(t)
	_, submit := h.encode(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "a"})
	_, list := h.encode(arcp.SessionListJobs, arcp.SessionListJobsPayload{})
	_, second := h.encode(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "b"})
	_, cancel := h.encode(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: "job_2"})
	_, subscribe := h.encode(arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: "job_3"})
	for _, test := range []struct {
		frame string
		typ   arcp.Type
		want  arcp.MessageID
	}{
		{`"type":"job.accepted","payload":{"job_id":"job_1"}`, arcp.JobAccepted, submit.ID},
		{`"type":"session.jobs","payload":{"jobs":[]}`, arcp.SessionJobs, list.ID},
		{`"type":"job.error","payload":{"code":"AGENT_NOT_AVAILABLE","message":"m"}`, arcp.Nack, second.ID},
		{`"type":"job.subscribed","payload":{"job_id":"job_3"}`, arcp.JobSubscribed, subscribe.ID},
		{`"type":"job.cancelled","payload":{"job_id":"job_2"}`, arcp.CancelAccepted, cancel.ID},
		{`"type":"job.error","job_id":"job_1","payload":{"code":"TIMEOUT","message":"m"}`, arcp.JobFailed, submit.ID},
		{`"type":"job.event","job_id":"job_3","event_seq":1,"payload":{"kind":"unknown","body":{"x":1}}`, arcp.EventEmit, ""},
		{`"type":"session.error","payload":{"code":"HEARTBEAT_LOST","message":"m"}`, arcp.SessionEvicted, ""},
		{`"type":"x-vendor.thing","payload":{}`, "", ""},
	} {
		got, ok, err := h.client.Decode([]byte(`{"arcp":"1.1","id":"m",` + test.frame + `}`))
		if err != nil || ok != (test.typ != "") || ok && (got.Type != test.typ || got.CorrelationID != test.want) {
			t.Errorf("%s is decoded as %s, %t, %v; want %s with the correlation_id %s", test.frame, got.Append(nil), ok, err, test.typ, test.want)
		}
	}
}
