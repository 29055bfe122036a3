package draft_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

func opened(t *testing.T) *draft.ServerCodec { return libraries[0].connect(t).s }

// inbound are the members of frames after the id. Each line of the golden file has one and what
// is made of it.
var inbound = []string{
	`"type":"job.submit","trace_id":"` + trace + `","payload":{"agent":"a@2","input":{"x": [1, null]},"lease_request":{"fs.read":["/a/**"]},"lease_constraints":{"expires_at":"2026-07-01T13:00:00Z"},"idempotency_key":"k","max_runtime_sec":300}`,
	`"type":"job.submit","payload":{"agent":"a","input":null,"lease_request":null,"max_runtime_sec":null,"parent_job_id":"job_1","delegate_id":"d"},"job_id":"job_2","event_seq":null,"priority":"critical","extensions":{"optional":true}`,
	`"type":"job.submit","payload":{"agent":"a","input":"text","lease_request":{"capabilities":["fs.read"],"cost.budget":["USD:1"],"expires_at":"2026-07-01T13:00:00Z"}}`,
	`"type":"job.submit","payload":{"agent":"a","lease_request":{"expires_at":"2026-07-01T13:00:00Z"},"lease_constraints":{"expires_at":"2026-07-01T14:00:00Z"}}`,
	`"type":"job.submit","payload":{}`,
	`"type":"job.submit","payload":{"agent":""}`,
	`"type":"job.submit","payload":{"agent":7}`,
	`"type":"job.submit","payload":{"agent":"a","lease_request":["x"]}`,
	`"type":"job.cancel","job_id":"job_1","payload":{}`,
	`"type":"job.cancel","payload":{"job_id":"job_1","reason":"user"}`,
	`"type":"job.cancel","job_id":"job_1","payload":{"job_id":"job_1"}`,
	`"type":"job.cancel","job_id":"job_1","payload":{"job_id":"job_2"}`,
	`"type":"job.cancel","payload":{}`,
	`"type":"job.cancel","payload":{"job_id":"a b"}`,
	`"type":"job.subscribe","job_id":"job_1","payload":{"from_event_seq":3,"history":true}`,
	`"type":"job.subscribe","payload":{"job_id":"job_1","from_event_seq":3}`,
	`"type":"job.subscribe","payload":{"history":true}`,
	`"type":"job.unsubscribe","job_id":"job_1","payload":{}`,
	`"type":"job.unsubscribe","payload":{}`,
	`"type":"session.list_jobs","payload":{"filter":{"status":["pending","running","success","error","cancelled","timed_out"],"agent":"a","created_after":"2026-07-01T00:00:00Z","created_before":null},"limit":50,"cursor":null}`,
	`"type":"session.list_jobs","payload":{"filter":null,"limit":0,"cursor":"c"}`,
	`"type":"session.list_jobs","payload":{"filter":{"status":"running"},"limit":-1}`,
	`"type":"session.list_jobs","payload":{"filter":{"status":["fast"]}}`,
	`"type":"session.list_jobs","payload":{"filter":{"created_after":"yesterday"}}`,
	`"type":"session.list_jobs","payload":{"filter":{"status":[7]}}`,
	`"type":"session.list_jobs"`,
	`"type":"session.ack","payload":{"last_processed_seq":42}`,
	`"type":"session.ack","payload":{}`,
	`"type":"session.ping","payload":{"nonce":"n","sent_at":"2026-07-01T00:00:00Z"}`,
	`"type":"session.ping","payload":{"nonce":7}`,
	`"type":"session.pong","payload":{"ping_nonce":"n","received_at":"0001-01-01T00:00:00Z"}`,
	`"type":"session.pong","payload":{"ping_nonce":"n","received_at":"now"}`,
	`"type":"session.close","payload":{"reason":"done"}`,
	`"type":"session.bye","payload":{}`,
	`"type":"session.bye","payload":{"reason":{}}`,
	`"type":"session.hello","payload":{}`,
	`"type":"x-vendor.acme.hi","payload":{}`,
	`"type":"acme.hi","extensions":{"optional":true},"payload":{}`,
	`"type":"acme.hi","payload":{}`,
	`"type":"job.accepted","payload":{}`,
	`"type":"job.submit","payload":[]`,
	`"type":"job.submit","type":"job.submit","payload":{}`,
	`"type":"session.ping","payload":{"sent_at":"2026-07-01T00:00:00Z"}`,
	`"type":"session.list_jobs","payload":{"filter":{"created_after":"2026-07-01T00:00:00.123456Z","created_before":"2026-07-01T00:00:00.5Z"}}`,
}

func TestDecodedRequestsAreTheSame(t *testing.T) {
	var b strings.Builder
	for i, members := range inbound {
		s := opened(t)
		frame := fmt.Sprintf(`{"arcp":"1.1","id":"m%d",%s}`, i, members)
		env, err := s.Decode([]byte(frame))
		fmt.Fprintf(&b, "%s\n", frame)
		var r *draft.Refusal
		switch {
		case err == nil:
			fmt.Fprintf(&b, "= %s %s\n", env.Type, env.Payload)
			if env.SessionID != "" || env.JobID != "" || env.EventSeq != 0 || env.Priority != arcp.PriorityNormal || env.Extensions != nil {
				t.Errorf("%s: members are left: %+v", frame, env)
			}
			if spec := arcp.Lookup(env.Type); arcp.Unmarshal(env.Payload, spec.NewPayload()) != nil {
				t.Errorf("%s: the payload %s is not that of %s", frame, env.Payload, env.Type)
			}
		case errors.As(err, &r):
			nack := r.Nack()
			nack.Timestamp = moment
			frames, err := answerFrames(s, &nack)
			fmt.Fprintf(&b, "! %v; %d frames\n", r, len(frames))
			if err != nil {
				t.Errorf("the refusal of %s has no answer: %v", frame, err)
			}
		default:
			fmt.Fprintf(&b, "! not an envelope: %v\n", err)
		}
	}
	golden(t, "inbound.golden", b.String())
}

var hellos = []string{
	`"type":"session.hello","payload":{}`,
	`"type":"session.hello","session_id":"ses_mine","payload":{"client_name":"rb","client_version":"2","auth":{"token":"t"},"capabilities":{"features":{"ack":true,"heartbeat":false}}}`,
	`"type":"session.hello","payload":{"client":{"name":"n","version":"1"},"auth":{"scheme":"Bearer","token":"t"},"capabilities":{"features":["ack"],"encodings":["json"],"agents":[]}}`,
	`"type":"session.hello","payload":{"auth":{"scheme":"anonymous"}}`,
	`"type":"session.hello","payload":{"auth":null,"capabilities":null,"client":null,"resume":null}`,
	`"type":"session.hello","payload":{"resume":{"session_id":"sess_1","resume_token":"t","last_event_seq":4}}`,
	`"type":"session.hello","payload":{"resume_token":"t","last_event_seq":4}`,
	`"type":"session.hello","payload":{"resume":{"token":"t","last_event_seq":4}}`,
	`"type":"session.hello","payload":{"resume":{"session_id":"sess_1","resume_token":"t"}}`,
	`"type":"session.resume","payload":{"session_id":"sess_1","resume_token":"t","last_event_seq":4}`,
	`"type":"session.resume","payload":{"resume_token":"t"}`,
	`"type":"session.resume","payload":{}`,
	`"type":"session.hello","payload":{"resume":{}}`,
	`"type":"session.hello","payload":{"resume":{"session_id":"a b","resume_token":"t"}}`,
	`"type":"session.hello","payload":{"client":7}`,
	`"type":"session.hello","payload":{"capabilities":{"features":7}}`,
}

func TestDecodedHellosAreTheSame(t *testing.T) {
	var b strings.Builder
	for i, members := range hellos {
		frame := fmt.Appendf(nil, `{"arcp":"1.1","id":"m%d",%s}`, i, members)
		s, err := draft.NewServerCodec(frame)
		if err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
		env, err := s.Decode(frame)
		fmt.Fprintf(&b, "%s\n= %s %s %s %v\n", frame, env.Type, env.SessionID, env.Payload, err)
		if err == nil {
			continue
		}
		r, ok := errors.AsType[*draft.Refusal](err)
		if !ok {
			t.Fatalf("%s: %v", frame, err)
		}
		nack := r.Nack()
		if frames, err := answerFrames(s, &nack); len(frames) != 2 || err != nil {
			t.Errorf("%s: a mistake in a hello fails the handshake: %s, %v", frame, frames, err)
		}
	}
	golden(t, "hellos.golden", b.String())
}

func TestOnlyHelloAndDraftResumeOpen(t *testing.T) {
	for frame, opens := range map[string]bool{
		``:  false,
		`{`: false,
		`{"arcp":"1.1","id":"m","type":"session.hello","payload":{}}`:                                                           true,
		`{"arcp":"1.1","id":"m","type":"session.hello","timestamp":"2026-07-01T13:00:00Z","payload":{}}`:                        true,
		`{"arcp":"1.1","id":"m","type":"session.resume","payload":{}}`:                                                          true,
		`{"arcp":"1.1","id":"m","type":"session.resume","timestamp":"2026-07-01T13:00:00Z","payload":{}}`:                       false,
		`{"arcp":"1.1","id":"m","type":"session.resume","timestamp":"2026-07-01T13:00:00Z","payload":{"resume_token":"rtd_x"}}`: true,
		`{"arcp":"1.1","id":"m","type":"session.resume","timestamp":"2026-07-01T13:00:00Z","payload":{"resume_token":"rt_x"}}`:  false,
		`{"arcp":"1.1","id":"m","type":"session.open","type":"session.hello","payload":{}}`:                                     false,
		`session.hello`: false,
		`{"arcp":"1.1","id":"m","type":"session.open","payload":{}}`:                      false,
		`{"arcp":"1.1","id":"m","type":"job.submit","payload":{"agent":"session.hello"}}`: false,
	} {
		if _, err := draft.NewServerCodec([]byte(frame)); opens != (err == nil) || !opens && err != draft.ErrOtherDialect {
			t.Errorf("NewServerCodec(%s) = %v, want a codec: %v", frame, err, opens)
		}
	}
}

// A first frame that was meant to be a hello and cannot be decoded fails the handshake.
func TestBrokenHelloFailsTheHandshake(t *testing.T) {
	for _, frame := range []string{
		`{"arcp":"1.1","id":"m","type":"session.hello","payload":{"client"`,
		`["session.hello"]`,
		`{"arcp":"1.1","id":"m","type":"session.hello","session_id":"a b","payload":{}}`,
		`{"arcp":"1.1","id":"m","type":"session.hello","type":"session.hello","payload":{}}`,
		`{"arcp":"1.1","type":"session.hello","payload":{}}`,
		`{"arcp":"1.1","id":"m","type":"session.hello","payload":{"client":{"name":"a","name":"b"}}}`,
		`{"id":"m","type":"session.hello","payload":{}}`,
		`{"arcp":"1.1","id":"m","type":"session.hello","payload":{"a":` + strings.Repeat("[", 100) + `}}`,
		"{\"arcp\":\"1.1\",\"id\":\"m\",\"type\":\"session.hello\",\"payload\":{\"a\":\"\xff\"}}",
	} {
		s, err := draft.NewServerCodec([]byte(frame))
		if err != nil {
			t.Fatalf("%s does not open a connection: %v", frame, err)
		}
		_, err = s.Decode([]byte(frame))
		r, ok := errors.AsType[*draft.Refusal](err)
		if !ok || r.Cause == nil {
			t.Fatalf("%s: %v", frame, err)
		}
		nack := r.Nack()
		frames, err := answerFrames(s, &nack)
		if err != nil || len(frames) != 2 || !strings.Contains(string(frames[0]), `"session.error"`) || !strings.Contains(string(frames[1]), `"job.error"`) {
			t.Errorf("%s is answered by %s, %v", frame, frames, err)
		}
	}
}

func TestSecondHelloIsRefused(t *testing.T) {
	c := libraries[0].connect(t).accept()
	_, err := c.s.Decode(c.frame(c.lib.hello + "}"))
	r, ok := errors.AsType[*draft.Refusal](err)
	if !ok || r.Request != "" {
		t.Errorf("got %v", err)
	}
}

// A submit whose envelope is broken fails like one that is refused.
func TestBrokenSubmitFailsLikeARefusedOne(t *testing.T) {
	for _, l := range libraries {
		c := l.connect(t).accept()
		frame := c.frame(`"type":"job.submit","job_id":7,"payload":{"agent":"a"}`)
		c.checker.Sent(frame)
		_, err := c.s.Decode(frame)
		r, ok := errors.AsType[*draft.Refusal](err)
		if !ok || !errors.Is(err, r.Cause) {
			t.Fatalf("%s: %v", l.name, err)
		}
		c.answer(arcp.Nack, r.Request, *r.Err)
		if left := c.checker.Unanswered(); len(left) > 0 {
			t.Errorf("%s: without an answer: %v", l.name, left)
		}
	}
}

// The newest PHP client sends the members of a C# client in another order.
func TestPHPIsToldFromCSharp(t *testing.T) {
	for _, row := range []struct {
		payload string
		want    draft.Profile
	}{
		{`"client":{"name":"x","version":"1"},"auth":{"token":"t"},"capabilities":{"features":["ack"]}`, draft.CSharp},
		{`"auth":{"token":"t"},"client":{"name":"x","version":"1"},"capabilities":{"features":["ack"]}`, draft.PHP},
		{`"client":{"name":"x","version":"1"},"auth":{"token":"t"},"capabilities":{"features":{"ack":true}}`, draft.PHP},
		{`"client":{"kind":"x","version":"1"},"auth":{"token":"t"},"capabilities":{"features":["ack"]}`, draft.PHP},
	} {
		hello := fmt.Appendf(nil, `{"arcp":"1.1","id":"msg_01JZ0000000000000000000001","type":"session.hello","timestamp":"2026-05-09T13:00:00Z","payload":{%s}}`, row.payload)
		s, err := draft.NewServerCodec(hello)
		if err != nil || s.Profile() != row.want {
			t.Errorf("%s is recognised as %v (%v), want %v", row.payload, s.Profile(), err, row.want)
		}
	}
}

// Only Go and PHP are told about a frame that is not understood.
func TestUnknownTypeIsReportedToGoAndPHPOnly(t *testing.T) {
	for _, l := range libraries {
		c := l.connect(t).accept()
		c.submit(job)
		for _, members := range []string{`"type":"acme.unknown","payload":{}`, `"type":7,"payload":{}`, `"type":"session.ack","payload":{}`} {
			frame := c.frame(members)
			c.checker.Sent(frame)
			_, err := c.s.Decode(frame)
			r, ok := errors.AsType[*draft.Refusal](err)
			if !ok {
				t.Fatalf("%s: %v", members, err)
			}
			nack := r.Nack()
			frames, err := answerFrames(c.s, &nack)
			if want := l.profile == draft.Go || l.profile == draft.PHP; err != nil || (len(frames) > 0) != want {
				t.Errorf("%s: %s has the answer %s, %v", l.name, members, frames, err)
			}
			for _, frame := range frames {
				c.received(frame)
			}
		}
	}
}

func TestProfileNamesParseToTheirProfiles(t *testing.T) {
	for p := draft.Universal; p <= draft.OwnClient; p++ {
		if got, err := draft.ParseProfile(p.String()); err != nil || got != p {
			t.Errorf("ParseProfile(%s) = %v, %v", p, got, err)
		}
	}
	_, err := draft.ParseProfile("cobol")
	if want := `draft: unknown profile "cobol"; use one of universal, go, typescript, python, java, csharp, ruby, php, arcp-client`; err == nil || err.Error() != want {
		t.Errorf("ParseProfile(cobol): error %v, want %s", err, want)
	}
	if draft.Profile(99).String() != "universal" {
		t.Error("an unknown profile is not universal")
	}
}

func TestOnlyMessagesOfClientsHaveAPhase(t *testing.T) {
	for i := range draft.Messages {
		m := &draft.Messages[i]
		if draft.Lookup(m.Type) != m || m.NewPayload() == nil {
			t.Errorf("%s: Lookup", m.Type)
		}
		if fromClient := m.From&arcp.FromClient != 0; fromClient != (m.Phase != 0) {
			t.Errorf("%s: from %v in the phase %v", m.Type, m.From, m.Phase)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	for _, v := range []any{draft.HelloPayload{ResumeToken: "hunter2", Auth: draft.HelloAuth{Token: "hunter2"}}, draft.HelloAuth{Token: "hunter2"},
		draft.ResumePayload{ResumeToken: "hunter2", Token: "hunter2"}, draft.WelcomePayload{ResumeToken: "hunter2"}} {
		if s := fmt.Sprintf("%v %+v %#v", v, v, v); strings.Contains(s, "hunter2") {
			t.Errorf("%T prints its secret: %s", v, s)
		}
	}
}
