package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/transport"
)

// logicalStep is a request in no dialect. It is sent in both, and has the same outcome.
type logicalStep struct {
	name    string
	tool    string
	args    string
	lease   string // lease_request; empty: none
	timeout int    // seconds; 0: none
	cancel  bool   // when the job has started
	twice   bool   // the submit is repeated with its idempotency key
	then    string // list, subscribe or resume when the job has ended
	want    string // outcome in both dialects
}

var logicalSteps = []logicalStep{
	{name: "echo", tool: "demo.echo", args: `{"a":1}`, want: `completed {"a":1} []`},
	{name: "log", tool: "demo.emit", args: `{"count":2,"bytes":1}`, want: `completed {"emitted":2} [log log]`},
	{name: "progress", tool: "demo.progress", args: `{"steps":2,"interval_ms":0}`, want: `completed {"steps":2} [progress progress]`},
	{name: "failing", tool: "demo.fail", args: `{"code":"INTERNAL","message":"no"}`, want: "failed INTERNAL_ERROR []"},
	{name: "cancel", tool: "demo.sleep", args: `{"ms":60000}`, cancel: true, want: "cancelled CANCELLED []"},
	{name: "timeout", tool: "demo.sleep", args: `{"ms":60000}`, timeout: 1, want: "failed TIMEOUT []"},
	{name: "lease refusal", tool: "demo.access", args: `{"namespace":"net.fetch","target":"https://b/"}`, lease: `{"net.fetch":["https://a/*"]}`, want: "failed PERMISSION_DENIED []"},
	{name: "budget exhausted", tool: "demo.spend", args: `{"currency":"USD","amount":"3","times":3}`, lease: `{"cost.budget":["USD:5"],"tool.call":["demo.*"]}`,
		want: "failed BUDGET_EXHAUSTED [metric metric metric metric]"},
	{name: "resubmit", tool: "demo.echo", args: `{"b":2}`, twice: true, want: `completed {"b":2} [] same job`},
	{name: "list", tool: "demo.echo", args: `{"c":3}`, then: "list", want: `completed {"c":3} [], listed as completed`},
	{name: "subscribe", tool: "demo.emit", args: `{"count":2,"bytes":1}`, then: "subscribe", want: `completed {"emitted":2} [log log], seen as completed {"emitted":2} [log log]`},
	{name: "resume", tool: "demo.emit", args: `{"count":2,"bytes":1}`, then: "resume", want: `completed {"emitted":2} [log log], seen as completed {"emitted":2} [log log]`},
	{name: "unknown tool", tool: "demo.nothing", args: `{}`, want: "refused AGENT_NOT_AVAILABLE"},
	{name: "bad arguments", tool: "demo.sleep", args: `{"ms":"x"}`, want: "refused INVALID_REQUEST"},
}

// translator writes logical steps in a dialect.
type translator struct {
	dialect arcp.Dialect
	session arcp.SessionID
	token   string // for a resume
	conn    transport.Conn
}

func (tr *translator) send(t *testing.T, typ arcp.Type, payload any) (id string) {
	t.Helper()
	var frame []byte
	if tr.dialect == arcp.DialectDraft {
		frame, id = strict.TypeScript.Frame(string(typ), payload, nil)
		if tr.session != "" {
			var members map[string]any
			if err := json.Unmarshal(frame, &members); err != nil {
				t.Fatal(err)
			}
			members["session_id"] = tr.session
			frame, _ = json.Marshal(members) // of JSON
		}
	} else {
		env := arcp.Frame(typ, payload)
		env.ARCP, env.ID, env.Timestamp, env.SessionID = arcp.Version, arcp.NewMessageID(), time.Now(), tr.session
		frame, id = env.Append(nil), string(env.ID)
	}
	if err := tr.conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if err := tr.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return id
}

func (tr *translator) read(t *testing.T) *received {
	t.Helper()
	for {
		text, err := tr.conn.Read()
		if err != nil {
			t.Fatal(err)
		}
		env, err := decodeDraft(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if env.Type != arcp.SessionPing && env.Type != arcp.JobHeartbeat {
			return &received{Envelope: env, Text: slices.Clone(text)}
		}
	}
}

func (tr *translator) open(t *testing.T, target *Target) {
	if tr.dialect == arcp.DialectDraft {
		tr.send(t, "session.hello", strict.TypeScript.Hello(target.Token))
	} else {
		tr.send(t, arcp.SessionOpen, newCheckRun(t.Context(), target, nil).openPayload())
	}
	f := tr.read(t)
	tr.token = f.text("resume_token")
	if tr.session = f.SessionID; tr.session == "" {
		tr.session = arcp.SessionID(f.text("session_id"))
	}
}

func (tr *translator) submit(t *testing.T, s *logicalStep, key string) string {
	p := map[string]any{}
	tool, args, typ := "tool", "arguments", arcp.ToolInvoke
	if tr.dialect == arcp.DialectDraft {
		tool, args, typ = "agent", "input", "job.submit"
	}
	p[tool], p[args] = s.tool, arcp.Raw(s.args)
	if s.lease != "" {
		p["lease_request"] = arcp.Raw(s.lease)
	}
	if s.timeout > 0 {
		p["max_runtime_sec"] = s.timeout
	}
	if s.twice {
		p["idempotency_key"] = key
	}
	return tr.send(t, typ, p)
}

func (tr *translator) cancel(t *testing.T, job string) {
	if tr.dialect == arcp.DialectDraft {
		tr.send(t, "job.cancel", map[string]any{"job_id": job})
		return
	}
	tr.send(t, arcp.Cancel, arcp.CancelPayload{Target: "job", TargetID: job})
}

// sameCodes are codes of the RFC's dialect, by what they are in the draft.
var sameCodes = map[string]string{"INTERNAL": "INTERNAL_ERROR", "DEADLINE_EXCEEDED": "TIMEOUT", "INVALID_ARGUMENT": "INVALID_REQUEST"}

// outcome runs a step and returns its outcome: the status, the code or the result, and the kinds of the events.
func (tr *translator) outcome(t *testing.T, target *Target, s *logicalStep) string {
	t.Helper()
	key := strings.ReplaceAll(t.Name()+tr.dialect.String(), "/", "-") + s.name
	tr.submit(t, s, key)
	end, job := tr.follow(t, s)
	if s.twice && job != "" {
		tr.submit(t, s, key)
		if tr.read(t).jobOf() == job {
			end += " same job"
		}
	}
	switch s.then {
	case "list":
		return end + ", listed as " + tr.list(t, job)
	case "subscribe":
		other := connect(t, target, tr.dialect)
		other.open(t, target)
		other.subscribe(t, job)
		again, _ := other.follow(t, s)
		return end + ", seen as " + again
	case "resume":
		_ = tr.conn.Abort() // the session is resumed on another connection
		other := connect(t, target, tr.dialect)
		other.resume(t, target, tr)
		again, _ := other.follow(t, s)
		return end + ", seen as " + again
	}
	return end
}

func (r *received) jobOf() string {
	if r.JobID != "" {
		return string(r.JobID)
	}
	return r.text("job_id")
}

// follow reads to the end of a job, or to a refusal.
func (tr *translator) follow(t *testing.T, s *logicalStep) (end, job string) {
	t.Helper()
	var kinds []string
	for {
		f := tr.read(t)
		switch typ := string(f.Type); typ {
		case "job.accepted":
			job = f.jobOf()
			if s.cancel {
				tr.cancel(t, job)
			}
		case "log", "metric", "job.progress", "job.event":
			kind := strings.TrimPrefix(typ, "job.")
			if kind == "event" {
				kind = f.text("kind")
			}
			if kind != "status" {
				kinds = append(kinds, kind)
			}
		case "job.completed", "job.result":
			var p map[string]arcp.Raw
			if err := arcp.Unmarshal(f.Payload, &p); err != nil {
				t.Fatal(err)
			}
			value := p["value"]
			if tr.dialect == arcp.DialectDraft {
				value = p["result"]
			}
			return fmt.Sprintf("completed %s %v", value, kinds), job
		case "job.failed", "job.error", "job.cancelled", "nack":
			code := string(f.errorCode())
			if same := sameCodes[code]; same != "" {
				code = same
			}
			switch {
			case code == "" && typ == "job.cancelled" && tr.dialect == arcp.DialectDraft:
				continue // the answer to job.cancel
			case job == "":
				return "refused " + code, job
			case code == "CANCELLED":
				return fmt.Sprintf("cancelled %s %v", code, kinds), job
			}
			return fmt.Sprintf("failed %s %v", code, kinds), job
		}
	}
}

// list returns the status of a job in session.jobs.
func (tr *translator) list(t *testing.T, job string) string {
	tr.send(t, arcp.SessionListJobs, map[string]any{})
	for {
		f := tr.read(t)
		if f.Type != arcp.SessionJobs {
			continue
		}
		var p struct {
			Jobs []struct {
				JobID  string `json:"job_id"`
				Status string `json:"status"`
			} `json:"jobs"`
		}
		if err := arcp.Unmarshal(f.Payload, &p); err != nil {
			t.Fatal(err)
		}
		for _, j := range p.Jobs {
			if j.JobID == job {
				return strings.Replace(j.Status, "success", "completed", 1)
			}
		}
		return "not listed"
	}
}

// subscribe asks for the events of a job from its beginning.
func (tr *translator) subscribe(t *testing.T, job string) {
	tr.send(t, arcp.JobSubscribe, map[string]any{"job_id": job, "history": true, "from_event_seq": 0})
}

// resume attaches to the session of an earlier connection, with all its events.
func (tr *translator) resume(t *testing.T, target *Target, earlier *translator) {
	if tr.dialect == arcp.DialectDraft {
		hello := strict.TypeScript.Hello(target.Token)
		maps.Copy(hello, strict.TypeScript.Resume(string(earlier.session), earlier.token, 0))
		tr.send(t, "session.hello", hello)
		return
	}
	tr.send(t, arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: earlier.token})
}

// A request has the same outcome in both dialects.
func TestDialectsHaveTheSameOutcomes(t *testing.T) {
	own := ownTarget(t)
	for _, s := range logicalSteps {
		t.Run(s.name, func(t *testing.T) {
			for _, d := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
				if got := dialectOutcome(t, &own, d, &s); got != s.want {
					t.Errorf("in the dialect %s the outcome is %s, want %s", d, got, s.want)
				}
			}
		})
	}
}

func dialectOutcome(t *testing.T, target *Target, d arcp.Dialect, s *logicalStep) string {
	t.Helper()
	tr := connect(t, target, d)
	tr.open(t, target)
	return tr.outcome(t, target, s)
}

// connect returns a connection that ends with the test.
func connect(t *testing.T, target *Target, d arcp.Dialect) *translator {
	t.Helper()
	conn, err := target.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Abort() }) // the test may have dropped it
	return &translator{dialect: d, conn: conn}
}

// A fault in one dialect makes another outcome there.
func TestDialectsDifferBehindFault(t *testing.T) {
	own := ownTarget(t)
	for _, c := range []struct {
		dialect      arcp.Dialect
		defect, step string
		want         string
	}{
		{arcp.DialectRFC, "the code of every refusal is INTERNAL", "unknown tool", "refused INTERNAL_ERROR"},
		{arcp.DialectRFC, "the event with event_seq 4 is never sent and later events are renumbered to hide the gap", "log", `completed {"emitted":2} [log]`},
		{arcp.DialectDraft, "a cancelled job has a result", "cancel", "completed {} []"},
		{arcp.DialectDraft, "an agent cannot fail with PERMISSION_DENIED", "lease refusal", "failed INVALID_REQUEST []"},
	} {
		faulty := *own.behind(fault(t, c.defect))
		i := slices.IndexFunc(logicalSteps, func(s logicalStep) bool { return s.name == c.step })
		if got := dialectOutcome(t, &faulty, c.dialect, &logicalSteps[i]); got != c.want {
			t.Errorf("%s: the outcome is %s, want %s", c.defect, got, c.want)
		}
	}
}
