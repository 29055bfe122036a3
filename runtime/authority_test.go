package runtime_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// people is an auth file with a principal of every kind.
const people = `
principals:
  - {name: alice, tokens: ["%s"], roles: [client]}
  - {name: ann, tokens: ["%s"], roles: [client, approver], sees: ["alice"]}
  - {name: adam, tokens: ["%s"], roles: [client, approver], sees: ["al*"]}
  - {name: bob, tokens: ["%s"], roles: [client, approver]}
  - {name: root, tokens: ["%s"], roles: [client, admin]}
  - {name: limited, tokens: ["%s"], roles: [client], trust: constrained, lease: {"fs.read": ["/data/**"], "cost.budget": ["USD:1.00"]}}
`

// loadPeople reads an auth file with the tokens of people.
func loadPeople(t *testing.T, people string) *auth.Config {
	t.Helper()
	var prints []any
	for _, name := range []string{"alice", "ann", "adam", "bob", "root", "limited"} {
		prints = append(prints, auth.FileHash(auth.Secret(name+"-"+token)))
	}
	file := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, people, prints...), 0o600); err != nil {
		t.Fatal(err)
	}
	ac, err := auth.Load(file, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return ac
}

// withPeople is a configuration with the principals of people, and tools that need them.
func withPeople(t *testing.T) func(*runtime.Config) {
	t.Helper()
	ac := loadPeople(t, people)
	return func(c *runtime.Config) {
		c.Auth = auth.NewSet(ac)
		danger, err := tool.NewRaw(tool.Capability{Name: "danger", Approval: tool.ApprovalManual, Recovery: tool.RecoveryRerun},
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(`"done"`), nil })
		grave, err3 := tool.NewRaw(tool.Capability{Name: "grave", Approval: tool.Approval{Mode: "manual", Quorum: 2, EscalateAfter: time.Minute}, Recovery: tool.RecoveryRerun},
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(`"done"`), nil })
		trusting, err2 := tool.NewRaw(tool.Capability{Name: "trusting", MinTrust: "privileged", SideEffect: tool.SideEffectNone},
			func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(`"done"`), nil })
		if err := errors.Join(err, err2, err3, c.Tools.Register(danger), c.Tools.Register(grave), c.Tools.Register(trusting)); err != nil {
			t.Fatal(err)
		}
	}
}

// human opens a session with a person.
func (b *fixture) human(name string) *peer {
	b.Helper()
	p := b.connect(nil)
	p.openHuman(name, "")
	p.expect("session.accepted")
	return p
}

func (p *peer) openHuman(name, id string) {
	p.n++
	session := ""
	if id != "" {
		session = fmt.Sprintf(`"session_id":%q,`, id)
	}
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_open%d",%s"type":"session.open","timestamp":"2030-01-02T15:04:05Z","payload":{"auth":{"scheme":"bearer","token":"%s-%s"},`+
		`"client":{"kind":"test","version":"1"},"capabilities":{"human_input":true}}}`, p.n, session, name, token)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
}

// answer sends an answer to a question and returns its id.
func (p *peer) answer(question arcp.MessageID, typ, payload string) string {
	p.Helper()
	p.n++
	id := fmt.Sprintf("msg_%d", p.n)
	frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"correlation_id":%q,"timestamp":"2030-01-02T15:04:05Z","payload":%s}`, id, typ, question, payload)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
	return id
}

// run runs a tool and returns its result, or its error.
func (p *peer) run(name, args string) (arcp.Raw, *arcp.Error) {
	p.Helper()
	id := p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, name, args))
	var chunks arcp.Raw // of a long result
	for {
		env := p.read()
		if string(env.CorrelationID) != id {
			continue
		}
		switch env.Type {
		case arcp.JobResultChunk:
			chunk, err := arcp.DecodePayload[arcp.JobResultChunkPayload](&env)
			if err != nil {
				p.Fatal(err)
			}
			chunks = append(chunks, chunk.Data...)
		case arcp.JobCompleted:
			done, err := arcp.DecodePayload[arcp.JobCompletedPayload](&env)
			if err != nil {
				p.Fatal(err)
			}
			if len(chunks) > 0 {
				return chunks, nil
			}
			return done.Value, nil
		case arcp.JobFailed, arcp.JobCancelled, arcp.Nack:
			e := refusal(p.T, env)
			return nil, &e
		}
	}
}

// must is run of a call that succeeds.
func (p *peer) must(name, args string) map[string]any {
	p.Helper()
	raw, refused := p.run(name, args)
	if refused != nil {
		p.Fatalf("%s %s: %v", name, args, refused)
	}
	var out map[string]any
	if err := arcp.Unmarshal(raw, &out); err != nil {
		p.Fatalf("%s: %s: %v", name, raw, err)
	}
	return out
}

// silent fails the test if a session was sent something.
func (p *peer) silent(why string) {
	p.Helper()
	p.send("ping", "{}")
	if env := p.read(); env.Type != arcp.Pong {
		p.Fatalf("%s: sent %s %s", why, env.Type, env.Payload)
	}
}

func codeOf(e *arcp.Error) arcp.Code {
	if e == nil {
		return ""
	}
	return e.Code
}

// A gate is asked of all sessions that may approve it, never of the asking one, and is
// invisible to others.
func TestGateReachesApprovers(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, other, ann, bob, root := b.human("alice"), b.human("alice"), b.human("ann"), b.human("bob"), b.human("root")
		id := alice.submit("danger", `{"x":1}`)
		request := ann.expect("human.choice.request")
		if p, err := arcp.DecodePayload[arcp.HumanChoiceRequestPayload](&request); err != nil || !strings.Contains(string(p.Details), `"x":1`) || request.JobID != id {
			t.Errorf("%s, %v", request.Payload, err)
		}
		asked := root.expect("human.choice.request")
		late := b.human("adam")
		seen := late.expect("human.choice.request")
		if seen.ID != request.ID || asked.ID != request.ID {
			t.Errorf("%s is asked as %s and %s", request.ID, asked.ID, seen.ID)
		}
		other.silent("the principal has no approver")
		bob.silent("another principal")
		alice.until("event.emit")
		alice.silent("who asks")

		for _, c := range []struct {
			who  *peer
			want arcp.Code
		}{{alice, arcp.CodePermissionDenied}, {other, arcp.CodePermissionDenied}, {bob, arcp.CodeNotFound}} {
			c.who.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"me"}`)
			if e := refusal(t, c.who.until("nack")); e.Code != c.want {
				t.Errorf("%+v, want %s", e, c.want)
			}
		}
		ann.answer(request.ID, "human.input.response", `{"value":1}`)
		if e := refusal(t, ann.expect("nack")); e.Code != arcp.CodeInvalidArgument {
			t.Errorf("an answer of another kind: %+v", e)
		}
		ann.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"me"}`)
		ann.expect("ack")
		if env := root.expect("human.input.cancelled"); env.CorrelationID != request.ID {
			t.Errorf("withdrawn as %s, want %s", env.CorrelationID, request.ID)
		}
		late.expect("human.input.cancelled")
		late.answer(request.ID, "human.choice.response", `{"choice_id":"deny","responded_by":"me"}`)
		late.expect("nack")
		alice.until("job.completed")
		ann.silent("who has answered")
		if n := b.sum("arcp_approvals_pending", ""); n != 0 {
			t.Errorf("%v questions are pending", n)
		}
	})
}

// Two people answer at the same instant: one answer counts, and both are told the outcome. A
// session that is asked a job's question does not follow the job because of it, and is not
// told which session of another principal submitted it.
func TestAskedAndNotFollowing(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, other, ann := b.human("alice"), b.human("alice"), b.human("ann")
		id := alice.submit("demo.count", `{"to":5,"interval_ms":1000}`)
		alice.send("interrupt", fmt.Sprintf(`{"target":"job","target_id":%q,"prompt":"stop"}`, id))
		question := other.expect("human.input.request")
		if origin := string(question.Extensions); !strings.Contains(origin, string(alice.session)) {
			t.Errorf("to the same principal: %s", origin)
		}
		other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":false}`, id))
		other.expect("job.subscribed")
		other.answer(question.ID, "human.input.response", `{"value":{"action":"continue"}}`)
		other.until("job.completed")

		alice.run("approval.request", `{"action":"wipe","system_level":true}`)
		gated := alice.send("tool.invoke", `{"tool":"danger","arguments":{}}`)
		for {
			question = ann.expect("human.choice.request")
			if strings.Contains(string(question.Payload), "danger") {
				break
			}
		}
		if origin := string(question.Extensions); !strings.Contains(origin, "event_seq") || strings.Contains(origin, "session_id") {
			t.Errorf("to another principal: %s", origin)
		}
		ann.answer(question.ID, "human.choice.response", `{"choice_id":"deny"}`)
		ann.until("ack")
		if env := alice.until("job.failed"); string(env.CorrelationID) != gated {
			t.Errorf("%s failed", env.CorrelationID)
		}
	})
}

// However a session ends or loses its connection, it is not asked any more.
func TestQuestionWithoutApprovers(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice := b.human("alice")
		forgotten, evicted, cancelled, cut := b.human("alice"), b.human("alice"), b.human("alice"), b.human("alice")
		if n := b.rt.People(); n != 5 {
			t.Errorf("%d people are there", n)
		}
		forgotten.send("session.close", `{"forget":true}`)
		alice.must("sessions.evict", fmt.Sprintf(`{"session_id":%q,"forget":true}`, evicted.session))
		alice.send("cancel", fmt.Sprintf(`{"target":"session","target_id":%q}`, cancelled.session))
		if err := cut.conn.Abort(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := b.rt.People(); n != 1 {
			t.Errorf("%d people are there, want who is left", n)
		}
	})
}

func TestTwoAnswersAtOnce(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, ann, adam := b.human("alice"), b.human("ann"), b.human("adam")
		for range 20 {
			alice.submit("danger", "{}")
			request := ann.until("human.choice.request")
			adam.until("human.choice.request")
			var wg sync.WaitGroup
			told := make([]arcp.Type, 2)
			for i, p := range []*peer{ann, adam} {
				wg.Go(func() {
					p.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"me"}`)
					for told[i] == "" || told[i] == arcp.HumanInputCancelled {
						told[i] = p.read().Type
					}
				})
			}
			wg.Wait()
			slices.Sort(told)
			if !slices.Equal(told, []arcp.Type{arcp.Ack, arcp.Nack}) {
				t.Fatalf("told %q", told)
			}
			alice.until("job.completed")
			synctest.Wait()
		}
	})
}

// A question that is pending when the runtime is killed is answered once, after the session
// was resumed, and the job continues.
func TestQuestionOverRestart(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice := b.human("alice")
		id := alice.submit("demo.ask", `{"prompt":"which?","response_schema":{"type":"string"}}`)
		request := alice.until("human.input.request")
		session := alice.session
		b.shutdown(0)
		b.serve.Wait()
		b.boot(withPeople(t))

		again := b.connect(nil)
		again.openHuman("alice", string(session))
		again.expect("session.accepted")
		again.send("ping", "{}")
		second := b.human("alice") // is asked too
		if env := second.until("human.input.request"); env.ID != request.ID {
			t.Errorf("asked as %s, want %s", env.ID, request.ID)
		}
		again.answer(request.ID, "human.input.response", `{"value":7}`)
		if e := refusal(t, again.until("nack")); e.Code != arcp.CodeInvalidArgument {
			t.Errorf("against the schema: %+v", e)
		}
		again.answer(request.ID, "human.input.response", `{"value":"blue","responded_by":"alice's phone"}`)
		again.until("ack")
		env := again.until("job.completed")
		if env.JobID != id || !strings.Contains(string(env.Payload), `"blue"`) || !strings.Contains(string(env.Payload), "alice's phone") {
			t.Errorf("%s %s", env.JobID, env.Payload)
		}
		second.until("human.input.cancelled")
	})
}

func TestPermissionOverTheWire(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, other := b.dial("alice"), b.human("alice") // the submitter needs no human_input: it may grant
		alice.submit("demo.permit", `{"permission":"order.refund","resource":"order:7","operation":"refund","lease_seconds":60,"hold_ms":1000}`)
		request := alice.until("permission.request")
		other.expect("permission.request")
		alice.answer(request.ID, "permission.grant", `{"permission":"order.refund","resource":"order:**","operation":"refund","lease_seconds":60}`)
		if e := refusal(t, alice.until("nack")); e.Code != arcp.CodeInvalidArgument {
			t.Errorf("wider than asked: %+v", e)
		}
		grant := alice.answer(request.ID, "permission.grant", `{"permission":"order.refund","resource":"order:7","operation":"refund","lease_seconds":30}`)
		granted := alice.until("lease.granted")
		g, err := arcp.DecodePayload[arcp.LeaseGrantedPayload](&granted)
		if err != nil || string(granted.CorrelationID) != grant || time.Until(g.ExpiresAt) > 30*time.Second {
			t.Errorf("%s: %s, %v", granted.CorrelationID, granted.Payload, err)
		}
		if env := other.until("human.input.cancelled"); env.CorrelationID != request.ID {
			t.Errorf("withdrawn as %s", env.CorrelationID)
		}
		refresh := alice.send("lease.refresh", fmt.Sprintf(`{"lease_id":%q,"additional_seconds":60}`, g.LeaseID))
		if env := alice.until("lease.extended"); string(env.CorrelationID) != refresh {
			t.Errorf("extended as %s", env.CorrelationID)
		}
		alice.until("job.completed")
		alice.send("lease.refresh", fmt.Sprintf(`{"lease_id":%q,"additional_seconds":60}`, g.LeaseID))
		if e := refusal(t, alice.until("nack")); e.Code != arcp.CodeNotFound {
			t.Errorf("after the job: %+v", e)
		}

		alice.submit("demo.permit", `{"permission":"p","resource":"r","operation":"o","lease_seconds":60,"hold_ms":1000}`)
		request = alice.until("permission.request")
		alice.answer(request.ID, "permission.deny", `{"permission":"p","reason":"not today"}`)
		alice.until("ack")
		if e := refusal(t, alice.until("job.failed")); e.Code != arcp.CodePermissionDenied || !strings.Contains(e.Message, "not today") {
			t.Errorf("%+v", e)
		}
	})
}

func TestLeasesOfPrincipals(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		p := b.dial("limited")
		for _, c := range []struct {
			tool, args, options string
			want                arcp.Code
		}{
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, "", ""},
			{"demo.access", `{"namespace":"fs.read","target":"/data/../etc/passwd"}`, "", arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.write","target":"/data/x"}`, "", arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"lease_request":{"fs.read":["/data/sub/**"]}`, arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.read","target":"/data/sub/x"}`, `,"lease_request":{"fs.read":["/data/sub/**"]}`, ""},
			{"demo.access", `{"namespace":"fs.read","target":"/x"}`, `,"lease_request":{"fs.read":["/**"]}`, arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"lease_request":{"fs.read":["/data/**"],"cost.budget":["USD:2"]}`, arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"lease_request":null`, ""},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"lease_request":{}`, arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"lease_request":{ }`, arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"cost_budget":["USD:0.50"]`, ""},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"cost_budget":["USD:0"]`, arcp.CodeBudgetExhausted},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"cost_budget":["USD:1.01"]`, arcp.CodePermissionDenied},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"lease_constraints":{"expires_at":"2099-01-01T00:00:00Z"}`, ""},
			{"demo.access", `{"namespace":"fs.read","target":"/data/x"}`, `,"lease_constraints":{"expires_at":"2099-01-01T02:00:00+02:00"}`, arcp.CodeInvalidRequest},
			{"trusting", `{}`, "", arcp.CodePermissionDenied},
		} {
			id := p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s%s}`, c.tool, c.args, c.options))
			env := p.read()
			for env.Type != arcp.JobCompleted && env.Type != arcp.JobFailed || string(env.CorrelationID) != id {
				env = p.read()
			}
			got := arcp.Code("")
			if env.Type == arcp.JobFailed {
				got = refusal(t, env).Code
			}
			if got != c.want {
				t.Errorf("%s %s %s: %q, want %q (%s)", c.tool, c.args, c.options, got, c.want, env.Payload)
			}
		}
		p.send("tool.invoke", `{"tool":"demo.echo","arguments":{},"lease_request":{"fs_read":["/data/a"],"cost_budget":["USD:0.50"]},"lease_constraints":{"expires_at":"2099-01-01T00:00:00Z"}}`)
		env := p.until("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil || !strings.Contains(string(a.Lease), `"fs.read":["/data/a"]`) || !strings.Contains(string(a.Lease), `"fs_read":["/data/a"]`) ||
			string(a.Budget) != `{"USD":0.50}` || a.LeaseConstraints == nil {
			t.Errorf("%s, %v", env.Payload, err)
		}
	})
}

func TestApprovalTools(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, other, ann, bob := b.human("alice"), b.human("alice"), b.human("ann"), b.human("bob")
		own := alice.must("approval.request", `{"action":"deploy","details":{"to":"prod"},"options":["now","later"]}`)
		id := own["approval_id"].(string)
		if own["status"] != "pending" || own["principal"] != "alice" {
			t.Errorf("%v", own)
		}
		byID := fmt.Sprintf(`{"approval_id":%q}`, id)
		if _, e := bob.run("approval.get", byID); codeOf(e) != arcp.CodeNotFound {
			t.Errorf("somebody else sees it: %v", e)
		}
		if got := ann.must("approval.get", byID); got["action"] != "deploy" || got["session_id"] != nil {
			t.Errorf("who sees alice is told %v, want what is asked, but not by which session", got)
		}
		if got := other.must("approval.get", byID); got["session_id"] != string(alice.session) {
			t.Errorf("alice is told %v", got)
		}
		resolve := func(what string) string { return fmt.Sprintf(`{"approval_id":%q,%s}`, id, what) }
		if _, e := other.run("approval.resolve", resolve(`"resolution":"never"`)); codeOf(e) != arcp.CodeInvalidArgument {
			t.Errorf("what is no option is asked of who owns it: %v", e)
		}
		if got := other.must("approval.resolve", resolve(`"resolution":"now"`)); got["status"] != "pending" {
			t.Errorf("resolved by a session that does not own it: %v", got)
		}
		if told := string(alice.until("event.emit").Payload); !strings.Contains(told, "approval.resolve_requested") || !strings.Contains(told, string(other.session)) {
			t.Errorf("its owner is told %s", told)
		}
		if _, e := alice.run("approval.resolve", resolve(`"approved":true`)); codeOf(e) != arcp.CodeInvalidArgument {
			t.Errorf("not an option: %v", e)
		}
		if got := alice.must("approval.resolve", resolve(`"resolution":"later"`)); got["status"] != "resolved" || got["resolved_by"] != "alice" {
			t.Errorf("%v", got)
		}
		if _, e := alice.run("approval.resolve", resolve(`"resolution":"now"`)); codeOf(e) != arcp.CodeFailedPrecondition {
			t.Errorf("twice: %v", e)
		}
		if got := alice.must("approval.get", byID); got["resolution"] != "later" {
			t.Errorf("the first does not stand: %v", got)
		}

		system := alice.must("approval.request", `{"action":"wipe","system_level":true}`)
		id = system["approval_id"].(string)
		request := ann.until("human.choice.request")
		if _, e := alice.run("approval.resolve", resolve(`"approved":true`)); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("the requester approves itself: %v", e)
		}
		if list := ann.must("approval.questions", "{}")["items"].([]any); len(list) != 1 || list[0].(map[string]any)["request_id"] != string(request.ID) {
			t.Errorf("open questions: %v", list)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := other.must("approval.wait", fmt.Sprintf(`{"approval_id":%q,"timeout_ms":60000}`, id)); got["outcome"] != "Approved" {
				t.Errorf("waited for %v", got)
			}
		})
		synctest.Wait()
		if got := ann.must("approval.answer", fmt.Sprintf(`{"request_id":%q,"choice_id":"approve"}`, request.ID)); got["status"] != "resolved" {
			t.Errorf("%v", got)
		}
		wg.Wait()

		gone := alice.must("approval.request", `{"action":"wipe","system_level":true}`)
		id = gone["approval_id"].(string)
		if _, e := other.run("approval.cancel", resolve(`"x":1`)[:len(resolve(`"x":1`))-len(`,"x":1}`)]+"}"); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("withdrawn by another session: %v", e)
		}
		if got := alice.must("approval.cancel", fmt.Sprintf(`{"approval_id":%q}`, id)); got["status"] != "cancelled" {
			t.Errorf("%v", got)
		}
		if got := alice.must("approval.wait", fmt.Sprintf(`{"approval_id":%q}`, id)); got["outcome"] != "Cancelled" {
			t.Errorf("%v", got)
		}

		page := alice.must("approval.list", `{"limit":2}`)
		if n := len(page["items"].([]any)); n != 2 || page["next_cursor"] == nil {
			t.Errorf("the first page: %v", page)
		}
		rest := alice.must("approval.list", fmt.Sprintf(`{"limit":2,"cursor":%q}`, page["next_cursor"]))
		if n := len(rest["items"].([]any)); n != 1 || rest["next_cursor"] != nil {
			t.Errorf("the second page: %v", rest)
		}
		if list := bob.must("approval.list", "{}")["items"].([]any); len(list) != 0 {
			t.Errorf("bob sees %v", list)
		}
		if list := alice.must("approval.list", `{"status":"cancelled"}`)["items"].([]any); len(list) != 1 {
			t.Errorf("cancelled: %v", list)
		}
	})
}

// Approvals survive a restart, end with the session that owns them, and are
// forgotten after the retention.
func TestApprovalsLast(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice := b.human("alice")
		id := alice.must("approval.request", `{"action":"deploy"}`)["approval_id"].(string)
		gate := alice.must("approval.request", `{"action":"wipe","system_level":true}`)["approval_id"].(string)
		b.shutdown(0)
		b.serve.Wait()
		b.boot(withPeople(t))
		ann := b.human("ann")
		request := ann.until("human.choice.request")
		if p, err := arcp.DecodePayload[arcp.HumanChoiceRequestPayload](&request); err != nil || p.ApprovalID != gate {
			t.Errorf("%s, %v", request.Payload, err)
		}
		ann.answer(request.ID, "human.choice.response", `{"choice_id":"deny","responded_by":"ann"}`)
		ann.expect("ack")
		if got := ann.must("approval.get", fmt.Sprintf(`{"approval_id":%q}`, id)); got["status"] != "pending" {
			t.Errorf("%v", got)
		}
		time.Sleep(runtime.DefaultResumeWindow + time.Minute) // the session is over
		ann = b.human("ann")
		if got := ann.must("approval.get", fmt.Sprintf(`{"approval_id":%q}`, id)); got["status"] != "cancelled" {
			t.Errorf("%v", got)
		}
		time.Sleep(runtime.DefaultRetention + time.Hour)
		ann = b.human("ann")
		if list := ann.must("approval.list", "{}")["items"].([]any); len(list) != 0 {
			t.Errorf("kept: %v", list)
		}
	})
}

// Sessions that ask and wait without end reach a bound, also where no limit of jobs counts.
// Others do not.
func TestManyWhoWait(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, bob := b.connect(nil), b.human("bob")
		alice.open("alice")
		alice.expect("session.accepted")
		refusedOf := func(n int, args string) (refused int) {
			t.Helper()
			for range n {
				alice.send("tool.invoke", args)
			}
			synctest.Wait()
			alice.send("ping", "{}")
			for pong := false; !pong; {
				switch env := alice.read(); {
				case env.Type == arcp.Pong:
					pong = true
				case env.Type == arcp.JobFailed:
					refused++
					if e := refusal(t, env); e.Code != arcp.CodeResourceExhausted {
						t.Errorf("refused with %v", e.Code)
					}
				}
			}
			return refused
		}
		gate := `{"tool":"approval.gate","arguments":{"action":"wipe"}}`
		for n := 0; n < 1000; n += 100 {
			if refused := refusedOf(100, gate); refused != 0 {
				t.Fatalf("%d of the first %d gates refused", refused, n+100)
			}
		}
		if n := refusedOf(10, gate); n != 10 {
			t.Errorf("%d of 10 gates too many refused", n)
		}
		if _, e := alice.run("approval.request", `{"action":"wipe","system_level":true}`); codeOf(e) != arcp.CodeResourceExhausted {
			t.Errorf("approval.request: %v", e)
		}
		alice.send("permission.request", `{"permission":"trust.elevate.privileged","resource":"session","operation":"elevate"}`)
		if e := refusal(t, alice.expect("nack")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("an elevation: %v", e)
		}
		first := alice.must("approval.list", `{"limit":1}`)["items"].([]any)[0].(map[string]any)["approval_id"]
		wait := fmt.Sprintf(`{"tool":"approval.wait","arguments":{"approval_id":%q,"timeout_ms":3600000}}`, first)
		refused := 0
		for n := 0; n < 3200; n += 100 {
			refused += refusedOf(100, wait)
		}
		if refused != 3200-3096 {
			t.Errorf("%d of 3200 who wait refused, want %d", refused, 3200-3096)
		}
		bob.must("approval.request", `{"action":"wipe","system_level":true}`)
	})
}

// The requester withdraws its approval, also if only the job's own session may cancel the
// asking job.
func TestStrictGateIsWithdrawn(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice := b.human("alice")
		alice.send("tool.invoke", `{"tool":"approval.gate","arguments":{"action":"wipe"},"strict_cancel":true}`)
		synctest.Wait()
		asked := alice.must("approval.list", `{"status":"pending"}`)["items"].([]any)[0].(map[string]any)["approval_id"]
		if got := alice.must("approval.cancel", fmt.Sprintf(`{"approval_id":%q}`, asked)); got["status"] != "cancelled" {
			t.Errorf("%v", got)
		}
	})
}

// The question, the cancellation of the job that asks and the end of the call that withdraws
// it are one write: a crash cannot come between them.
func TestGateIsWithdrawnInOneWrite(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice := b.human("alice")
		asked := alice.must("approval.request", `{"action":"wipe","system_level":true}`)["approval_id"].(string)
		var first *store.Write
		b.st.set(func() {
			b.st.reads = func(w *store.Write) {
				changesGate := slices.ContainsFunc(w.Ops, func(op store.Op) bool {
					r, ok := op.(*store.PutRecord)
					return ok && (strings.HasSuffix(r.Key, asked) || strings.HasSuffix(r.Key, "memo"))
				})
				if first == nil && changesGate {
					first = w
				}
			}
		})
		alice.must("approval.cancel", fmt.Sprintf(`{"approval_id":%q}`, asked))
		b.st.set(func() { b.st.reads = nil })
		if first == nil {
			t.Fatal("nothing was written")
		}
		question, memo := "", ""
		for _, op := range first.Ops {
			switch rec, ok := op.(*store.PutRecord); {
			case !ok:
			case strings.HasSuffix(rec.Key, asked):
				question = string(rec.Value)
			default:
				memo += string(rec.Value)
			}
		}
		if !strings.Contains(question, `"cancelled"`) || !strings.Contains(memo, "withdrawn") {
			t.Errorf("the first write has the question %q and the memo %q", question, memo)
		}
		if len(first.With) != 1 || store.Find[*store.AppendEvents](first.With[0]).State != arcp.StateCompleted {
			t.Errorf("the first write does not end the call: %+v", first.With)
		}
	})
}

// Only the option approve is an approval: no other option, and no unanswered question.
func TestOutcomeIsApprovedByApproval(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice := b.human("alice")
		for resolution, want := range map[string]string{"abort": "Denied", "deny": "Denied", "approve": "Approved"} {
			id := alice.must("approval.request", `{"action":"deploy","options":["approve","abort","deny"]}`)["approval_id"]
			alice.must("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"resolution":%q}`, id, resolution))
			if got := alice.must("approval.wait", fmt.Sprintf(`{"approval_id":%q}`, id)); got["outcome"] != want {
				t.Errorf("%s is %v, want %s", resolution, got["outcome"], want)
			}
		}
	})
}

// A principal that sees some others finds their resolved approvals, none of third ones, and no
// names of those in a cursor.
func TestSomeAreSeen(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, bob, ann := b.human("alice"), b.human("bob"), b.human("ann")
		ids := map[*peer]string{}
		for range 2 {
			for _, p := range []*peer{alice, bob, ann} {
				ids[p] = p.must("approval.request", `{"action":"deploy"}`)["approval_id"].(string)
				p.must("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"approved":true}`, ids[p]))
			}
		}
		if got := ann.must("approval.get", fmt.Sprintf(`{"approval_id":%q}`, ids[alice])); got["status"] != "resolved" {
			t.Errorf("%v", got)
		}
		if _, e := ann.run("approval.get", fmt.Sprintf(`{"approval_id":%q}`, ids[bob])); codeOf(e) != arcp.CodeNotFound {
			t.Errorf("%v", e)
		}
		if _, e := ann.run("approval.get", `{"approval_id":"approval-none"}`); codeOf(e) != arcp.CodeNotFound {
			t.Errorf("%v", e)
		}
		if got := b.human("root").must("approval.get", fmt.Sprintf(`{"approval_id":%q}`, ids[bob])); got["status"] != "resolved" {
			t.Errorf("an admin: %v", got)
		}
		seen, cursor := 0, ""
		for more := true; more; {
			page := ann.must("approval.list", fmt.Sprintf(`{"limit":1,"cursor":%q}`, cursor))
			for _, item := range page["items"].([]any) {
				if seen++; item.(map[string]any)["principal"] == "bob" {
					t.Errorf("sees %v", item)
				}
			}
			cursor, more = page["next_cursor"].(string)
			if raw, err := base64.RawURLEncoding.DecodeString(cursor); err != nil || strings.Contains(string(raw), "approval") {
				t.Errorf("cursor %q, %v", raw, err)
			}
		}
		if seen != 4 {
			t.Errorf("%d are seen, want those of alice and ann", seen)
		}
	})
}

// A page of large questions is shorter than the limit.
func TestPagesAreBounded(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, ann := b.human("alice"), b.human("ann")
		var options []string
		for i := range 60 {
			options = append(options, fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", 250)))
		}
		const n = 200
		for range n { // of 60 KB
			alice.must("approval.request", fmt.Sprintf(`{"action":%q,"options":[%s]}`, strings.Repeat("y", 16<<10), strings.Join(options, ",")))
		}
		if got := len(alice.must("approval.questions", `{"limit":1000}`)["items"].([]any)); got < 50 || got > n*3/4 {
			t.Errorf("%d questions at once", got)
		}
		seen, cursor := 0, ""
		for more := true; more; {
			page := ann.must("approval.list", fmt.Sprintf(`{"limit":1000,"cursor":%q}`, cursor))
			got := len(page["items"].([]any))
			if seen += got; got > n*3/4 {
				t.Errorf("%d questions on a page", got)
			}
			cursor, more = page["next_cursor"].(string)
		}
		if seen != n {
			t.Errorf("%d of %d are listed", seen, n)
		}
	})
}

// A system-level approval that cannot be asked for is refused at once.
func TestApprovalThatCannotBeAsked(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, began := b.human("alice"), time.Now()
		long := strings.Repeat("\u00e9", 16384) // in characters no more than the schema allows
		if _, e := alice.run("approval.request", fmt.Sprintf(`{"action":"%s","system_level":true}`, long)); e == nil || e.Code == arcp.CodeDeadlineExceeded {
			t.Errorf("%v", e)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("after %s", d)
		}
	})
}

func TestQuorumAndEscalation(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, ann, adam, root := b.human("alice"), b.human("ann"), b.human("adam"), b.human("root")
		id := alice.must("approval.request", `{"action":"wipe","system_level":true,"quorum":2,"escalate_after_ms":60000}`)["approval_id"].(string)
		ann.until("human.choice.request")
		adam.until("human.choice.request")
		root.silent("asked later")
		vote := func(p *peer) (map[string]any, *arcp.Error) {
			raw, e := p.run("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"approved":true}`, id))
			var out map[string]any
			if e == nil {
				if err := arcp.Unmarshal(raw, &out); err != nil {
					t.Fatal(err)
				}
			}
			return out, e
		}
		if got, e := vote(ann); e != nil || got["status"] != "pending" {
			t.Errorf("%v, %v", got, e)
		}
		if _, e := vote(ann); codeOf(e) != arcp.CodeFailedPrecondition {
			t.Errorf("one person votes twice: %v", e)
		}
		second := b.human("ann")
		if _, e := vote(second); codeOf(e) != arcp.CodeFailedPrecondition {
			t.Errorf("one person votes twice from two sessions: %v", e)
		}
		time.Sleep(61 * time.Second)
		root.expect("human.choice.request")
		if got, e := vote(root); e != nil || got["status"] != "resolved" || got["resolution"] != "approve" {
			t.Errorf("%v, %v", got, e)
		}
	})
}

// A tool's policy may want several to approve its calls, and admins to be asked later.
// A restart takes no vote back and gives none.
func TestQuorumOfATool(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, ann, adam, root := b.human("alice"), b.human("ann"), b.human("adam"), b.human("root")
		vote := func(p *peer, q arcp.Envelope, choice string, answer arcp.Type) {
			t.Helper()
			p.answer(q.ID, "human.choice.response", fmt.Sprintf(`{"choice_id":%q,"responded_by":"me"}`, choice))
			p.until(answer)
		}
		for _, name := range []string{"tools.describe", "tools.policy"} {
			args := map[string]string{"tools.describe": `{"name":"grave"}`, "tools.policy": `{"prefix":"grave"}`}[name]
			if raw, e := alice.run(name, args); e != nil || !strings.Contains(string(raw), `"approval_policy":{"manual":{"quorum":2,"escalate_after_ms":60000}}`) {
				t.Errorf("%s says %s, %v", name, raw, e)
			}
		}
		alice.submit("grave", "{}")
		ann.until("human.choice.request")
		vote(adam, adam.until("human.choice.request"), "deny", "ack")
		alice.until("job.failed")

		job := alice.submit("grave", "{}")
		request := ann.until("human.choice.request")
		vote(ann, request, "approve", "ack")
		vote(ann, request, "approve", "nack")
		root.silent("asked later")
		session := alice.session
		b.shutdown(0)
		b.serve.Wait()
		b.boot(withPeople(t))

		alice = b.connect(nil)
		alice.openHuman("alice", string(session))
		alice.expect("session.accepted")
		ann, root = b.human("ann"), b.human("root")
		vote(ann, ann.until("human.choice.request"), "approve", "nack")
		root.silent("asked later")
		time.Sleep(61 * time.Second)
		vote(root, root.until("human.choice.request"), "approve", "ack")
		for env := alice.until("job.completed"); env.JobID != job; { // the events of earlier jobs are replayed
			env = alice.until("job.completed")
		}
	})
}

// A session gets a higher trust level for a while, if another session agrees.
func TestElevate(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice, ann := b.human("alice"), b.human("ann")
		if _, e := alice.run("trusting", "{}"); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("%v", e)
		}
		ask := func() string {
			return alice.send("permission.request", `{"permission":"trust.elevate.privileged","resource":"session","operation":"elevate","reason":"release","requested_lease_seconds":60}`)
		}
		id := ask()
		request := ann.until("human.choice.request")
		alice.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"alice"}`)
		alice.until("nack")
		ann.answer(request.ID, "human.choice.response", `{"choice_id":"deny","responded_by":"ann"}`)
		ann.expect("ack")
		if env := alice.until("permission.deny"); string(env.CorrelationID) != id {
			t.Errorf("denied as %s", env.CorrelationID)
		}

		id = ask()
		_ = alice.conn.Abort() // a client that does not know whether its request arrived sends it again
		again := b.connect(nil)
		again.openHuman("alice", string(alice.session))
		again.expect("session.accepted")
		again.n = alice.n - 1
		alice = again
		if ask() != id {
			t.Fatal("the request is another one")
		}
		request = ann.until("human.choice.request")
		ann.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"ann"}`)
		ann.until("ack")
		ann.silent("asked once")
		granted := alice.until("lease.granted")
		if string(granted.CorrelationID) != id {
			t.Errorf("granted as %s", granted.CorrelationID)
		}
		synctest.Wait()
		if _, e := alice.run("trusting", "{}"); e != nil {
			t.Errorf("elevated: %v", e)
		}
		second := b.human("alice")
		if _, e := second.run("trusting", "{}"); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("another session: %v", e)
		}
		time.Sleep(65 * time.Second)
		if _, e := alice.run("trusting", "{}"); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("after the lease: %v", e)
		}

		ask()
		request = ann.until("human.choice.request")
		ann.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"ann"}`)
		granted = alice.until("lease.granted")
		g, err := arcp.DecodePayload[arcp.LeaseGrantedPayload](&granted)
		if err != nil {
			t.Fatal(err)
		}
		ann.until("ack")
		revoke := ann.send("lease.revoked", fmt.Sprintf(`{"lease_id":%q,"reason":"enough"}`, g.LeaseID))
		if env := ann.until("lease.revoked"); string(env.CorrelationID) != revoke {
			t.Errorf("revoked as %s", env.CorrelationID)
		}
		if env := alice.until("lease.revoked"); env.CorrelationID != "" || !strings.Contains(string(env.Payload), string(g.LeaseID)) {
			t.Errorf("who had the lease is told %s %s", env.CorrelationID, env.Payload)
		}
		time.Sleep(5 * time.Second)
		if _, e := alice.run("trusting", "{}"); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("after it was revoked: %v", e)
		}
		b.noneLeftBut(t)
	})
}

// noneLeftBut checks that nothing is pending.
func (b *fixture) noneLeftBut(t *testing.T) {
	t.Helper()
	if n := b.sum("arcp_approvals_pending", "") + b.sum("arcp_leases", ""); n != 0 {
		t.Errorf("%v questions and leases are left", n)
	}
}

func TestInterruptOverTheWire(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		alice := b.human("alice")
		id := alice.submit("demo.count", `{"to":5,"interval_ms":1000}`)
		alice.until("job.progress")
		ask := alice.send("interrupt", fmt.Sprintf(`{"target":"job","target_id":%q,"prompt":"wait"}`, id))
		ack := alice.until("ack")
		request := alice.until("human.input.request")
		if string(ack.CorrelationID) != ask {
			t.Errorf("acknowledged as %s", ack.CorrelationID)
		}
		time.Sleep(time.Minute)
		alice.answer(request.ID, "human.input.response", `{"value":{"action":"continue"},"responded_by":"alice"}`)
		alice.until("ack")
		alice.until("job.completed")
		bob := b.human("bob")
		bob.send("interrupt", fmt.Sprintf(`{"target":"job","target_id":%q,"prompt":"wait"}`, id))
		if e := refusal(t, bob.expect("nack")); e.Code != arcp.CodeJobNotFound {
			t.Errorf("%+v", e)
		}
	})
}

// An approval that expires before it was announced is not waited for.
func TestApprovalThatExpiresAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		alice := b.dial("alice")
		gate, done, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
		b.st.set(func() { b.st.gate = gate })
		go func() { // each commit takes longer than the question has
			defer close(stopped)
			for {
				time.Sleep(5 * time.Millisecond)
				select {
				case gate <- struct{}{}:
				case <-done:
					return
				}
			}
		}()
		defer func() {
			close(done)
			<-stopped
			b.st.set(func() { b.st.gate = nil })
			close(gate) // for a commit that waits at it
		}()
		for range 3 {
			if got := alice.must("approval.request", `{"action":"blink","system_level":true,"expires_in_ms":1}`); got["status"] != "expired" && got["status"] != "pending" {
				t.Errorf("what expires at once is %v", got)
			}
		}
	})
}

// The audit log names the principal that evicted a session, also an admin.
func TestEvictionsAreAudited(t *testing.T) {
	var log bytes.Buffer
	var who, whose string
	withAll := withPeople(t)
	inBubble(t, func(c *runtime.Config) {
		withAll(c)
		c.Log = zerolog.New(zerolog.SyncWriter(&log))
	}, func(b *fixture) {
		alice, root := b.dial("alice"), b.dial("root")
		root.must("sessions.evict", fmt.Sprintf(`{"session_id":%q}`, alice.session))
		who, whose = fmt.Sprintf(`"actor":"root","session_id":%q`, root.session), fmt.Sprintf(`"target":%q,"owner":"alice"`, alice.session)
	})
	if got := log.String(); !strings.Contains(got, who) || !strings.Contains(got, whose) {
		t.Errorf("the log has no record with %s and %s:\n%s", who, whose, got)
	}
}

// Decisions and denials of people are in the audit log: actor, action, target, decision.
func TestDecisionsAreAudited(t *testing.T) {
	var log bytes.Buffer
	var gate, lease string
	withAll := withPeople(t)
	ac := loadPeople(t, strings.Replace(people, "{name: bob, tokens: [\"%s\"], roles: [client, approver]}", "{name: bob, tokens: [\"%s\"], roles: [observer]}", 1))
	inBubble(t, func(c *runtime.Config) {
		withAll(c)
		c.Auth, c.Log = auth.NewSet(ac), zerolog.New(zerolog.SyncWriter(&log))
	}, func(b *fixture) {
		alice, ann, bob := b.human("alice"), b.human("ann"), b.dial("bob")
		refused := func(e *arcp.Error, want arcp.Code) {
			t.Helper()
			if codeOf(e) != want {
				t.Errorf("%v, want %s", e, want)
			}
		}
		bob.send("tool.invoke", `{"tool":"demo.echo","arguments":{}}`)
		refused(new(refusal(t, bob.until("nack"))), arcp.CodePermissionDenied)
		_, e := alice.run("jobs.credentials", "{}")
		refused(e, arcp.CodePermissionDenied)

		row := alice.must("approval.request", `{"action":"go","system_level":true}`)
		gate = row["approval_id"].(string)
		request := ann.until("human.choice.request")
		_, e = ann.run("approval.cancel", fmt.Sprintf(`{"approval_id":%q}`, gate))
		refused(e, arcp.CodePermissionDenied)
		_, e = alice.run("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"approved":true}`, gate))
		refused(e, arcp.CodePermissionDenied)
		ann.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"ann"}`)
		ann.until("ack")

		alice.submit("demo.permit", `{"permission":"p","resource":"r","operation":"o","lease_seconds":60,"hold_ms":3600000}`)
		asked := alice.until("permission.request")
		alice.answer(asked.ID, "permission.grant", `{"permission":"p","resource":"r","operation":"o","lease_seconds":60}`)
		env := alice.until("lease.granted")
		g, err := arcp.DecodePayload[arcp.LeaseGrantedPayload](&env)
		if err != nil {
			t.Fatal(err)
		}
		lease = string(g.LeaseID)
		other := b.dial("alice")
		other.send("lease.refresh", fmt.Sprintf(`{"lease_id":%q,"additional_seconds":60}`, lease))
		refused(new(refusal(t, other.until("nack"))), arcp.CodePermissionDenied)
		alice.send("lease.refresh", fmt.Sprintf(`{"lease_id":%q,"additional_seconds":60}`, lease))
		alice.until("lease.extended")
		alice.send("lease.revoked", fmt.Sprintf(`{"lease_id":%q,"reason":"enough"}`, lease))
		alice.until("lease.revoked")
		alice.silent("the records are written")
	})
	got := log.String()
	for _, want := range []string{
		`"action":"tool.invoke","actor":"bob".*"decision":"denied","reason":"role"`,
		`"action":"jobs.credentials","actor":"alice".*"decision":"denied"`,
		`"action":"approval.cancel","actor":"ann".*"decision":"denied"`,
		`"action":"answer","actor":"alice".*"target":"` + gate + `".*"decision":"denied"`,
		`"action":"answer","actor":"ann".*"target":"` + gate + `".*"decision":"allowed","resolution":"approve"`,
		`"action":"answer","actor":"alice".*"kind":"permission".*"decision":"allowed"`,
		`"action":"lease.refresh","actor":"alice".*"target":"` + lease + `","decision":"denied"`,
		`"action":"lease.refresh","actor":"alice".*"target":"` + lease + `","decision":"allowed"`,
		`"action":"lease.revoked","actor":"alice".*"target":"` + lease + `","decision":"allowed"`,
	} {
		if !regexp.MustCompile(`"logger":"audit",` + want).MatchString(got) {
			t.Errorf("the log has no record with %s:\n%s", want, got)
		}
	}
}

// An elevation survives a restart. Its metric, log and audit record exist once.
func TestElevationOverRestart(t *testing.T) {
	var log bytes.Buffer
	withAll := withPeople(t)
	logged := func(c *runtime.Config) {
		withAll(c)
		c.Log = zerolog.New(zerolog.SyncWriter(&log))
	}
	inBubble(t, logged, func(b *fixture) {
		watcher := b.dial("alice")
		watcher.send("subscribe", `{"filter":{"types":["metric","log"]}}`)
		watcher.expect("subscribe.accepted")
		alice, ann := b.human("alice"), b.human("ann")
		alice.send("permission.request", `{"permission":"trust.elevate.privileged","resource":"session","operation":"elevate"}`)
		request := ann.until("human.choice.request")
		ann.answer(request.ID, "human.choice.response", `{"choice_id":"approve","responded_by":"ann"}`)
		alice.until("lease.granted")
		first := ""
		for _, want := range []string{`"trust.elevations"`, "is trusted as privileged"} {
			env := watcher.expect("subscribe.event")
			if !strings.Contains(string(env.Payload), want) {
				t.Errorf("told is %s, want %s", env.Payload, want)
			}
			if first == "" {
				e, err := arcp.DecodePayload[arcp.SubscribeEventPayload](&env)
				inner, err2 := arcp.Decode(e.Event)
				if err := errors.Join(err, err2); err != nil {
					t.Fatal(err)
				}
				first = string(inner.ID)
			}
		}
		session := alice.session
		b.shutdown(0)
		b.serve.Wait()
		b.boot(logged)

		alice = b.connect(nil)
		alice.openHuman("alice", string(session))
		alice.expect("session.accepted")
		alice.send("ping", "{}")
		alice.until("pong")
		synctest.Wait()
		if _, e := alice.run("trusting", "{}"); e != nil {
			t.Errorf("after the restart: %v", e)
		}
		alice.send("subscribe", fmt.Sprintf(`{"filter":{"types":["metric"]},"since":{"after_message_id":%q}}`, first))
		alice.until("subscribe.accepted")
		if env := alice.until("subscribe.event"); !strings.Contains(string(env.Payload), "backfill_complete") {
			t.Errorf("after the restart it is told again: %s", env.Payload)
		}
	})
	approved := regexp.MustCompile(`"logger":"audit","action":"elevate","actor":"ann".*"decision":"Approved"`)
	if n := len(approved.FindAllString(log.String(), -1)); n != 1 {
		t.Errorf("the approval is audited %d times, want once:\n%s", n, log.String())
	}
}

// An agent does not approve a request that another session makes in its name.
func TestAgentDoesNotApprove(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		agent, asks, third := b.human("ann"), b.human("ann"), b.human("ann")
		agent.must("host.register_agent", `{"id":"bot","name":"bot","kind":"helper"}`)
		for _, name := range []string{"approval.request", "approval.gate"} {
			asks.submit(name, `{"action":"wipe","agent_id":"bot","system_level":true}`)
			request := third.until("human.choice.request")
			q, err := arcp.DecodePayload[arcp.HumanChoiceRequestPayload](&request)
			if err != nil {
				t.Fatal(err)
			}
			if _, e := agent.run("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"approved":true}`, q.ApprovalID)); codeOf(e) != arcp.CodePermissionDenied {
				t.Errorf("%s: the agent approves what it asks for: %v", name, e)
			}
			third.answer(request.ID, "human.choice.response", `{"choice_id":"deny","responded_by":"ann"}`)
			third.until("ack")
		}
	})
}
