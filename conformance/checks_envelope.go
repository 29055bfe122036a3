package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// message is an envelope to be broken before it is sent.
type message map[string]any

// rightPing is a ping nothing is wrong with.
func (c *Conn) rightPing() message {
	c.nonce++
	return message{"arcp": "1.1", "id": fmt.Sprintf("msg_conformance_%d_%d", c.n, c.nonce), "type": "ping",
		"timestamp": "2026-01-02T03:04:05Z", "payload": map[string]any{}}
}

// with sets a member; set to drop it is taken out.
func (m message) with(name string, value any) message {
	if value == drop {
		delete(m, name)
		return m
	}
	m[name] = value
	return m
}

type absent struct{}

var drop any = absent{}

func (m message) String() string {
	text, err := json.Marshal(map[string]any(m)) // sorted, so that runs are alike
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (m message) id() arcp.MessageID { s, _ := m["id"].(string); return arcp.MessageID(s) }

// sendMessage sends m and returns its id.
func (c *Conn) sendMessage(m message) arcp.MessageID {
	c.SendRaw(m.String(), string(m.id()))
	return m.id()
}

func envelopeNoID(_ context.Context, t *T) {
	c := t.Open()
	for _, text := range []string{`nonsense`, `[]`, `"text"`, `42`, `null`, `true`, `{}`, `{"arcp":"1.1"}`, `}`, `{]`, `{"id":5}`,
		`{"arcp":"1.1","id":null,"type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{}}`,
		`{"arcp":"1.1","type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{}}`} {
		c.SendRaw(text)
		c.ExpectNothing("there is nobody to answer to " + text)
	}
}

func envelopeTruncated(_ context.Context, t *T) {
	c := t.Open()
	whole := c.rightPing().String()
	for _, n := range []int{1, 10, len(whole) / 2, len(whole) - 2, len(whole) - 1} {
		c.mayNack("what is cut off is refused or dropped", whole[:n])
	}
	c.mayNack("two objects are not one envelope", whole+whole)
	c.mayNack("nothing follows an envelope", whole+"]")
}

// mayNack sends a bad frame that the server may refuse or drop; performing it
// or hanging up are wrong.
func (c *Conn) mayNack(why, text string) {
	var id string
	if _, rest, ok := strings.Cut(text, `"id":"`); ok {
		id, _, _ = strings.Cut(rest, `"`)
	}
	c.SendRaw(text, id)
	ping, _ := c.Ping()
	f := c.event(why)
	if f.Type == arcp.Nack {
		c.t.wantCode(why, f, arcp.CodeInvalidRequest)
		f = c.event(why)
	}
	c.match(why, f, arcp.Pong, ping)
}

func envelopeMembers(_ context.Context, t *T) {
	c := t.Open()
	for _, breach := range []struct {
		name  string
		value any
	}{
		{"arcp", drop}, {"arcp", 1.1}, {"arcp", nil}, {"arcp", ""},
		{"type", drop}, {"type", 5}, {"type", nil}, {"type", ""}, {"type", []string{"ping"}},
		{"timestamp", drop}, {"timestamp", 1767323045}, {"timestamp", "yesterday"}, {"timestamp", nil},
		{"timestamp", "2026-01-02"}, {"timestamp", "2026-01-02T03:04:05"}, {"timestamp", "2026-13-02T03:04:05Z"},
		{"payload", drop}, {"payload", nil}, {"payload", []int{}}, {"payload", "text"}, {"payload", 5},
		{"session_id", 5}, {"job_id", true}, {"trace_id", 7}, {"correlation_id", map[string]any{}},
		{"priority", "urgent"}, {"priority", 1}, {"priority", "HIGH"}, {"idempotency_key", 9},
		{"source", 5}, {"target", []string{}},
	} {
		m := c.rightPing().with(breach.name, breach.value)
		why := fmt.Sprintf("an envelope with %s %v is malformed", breach.name, c.t.tr.show(fmt.Append(nil, breach.value)))
		c.ExpectNack(why, c.sendMessage(m), arcp.CodeInvalidRequest)
	}
}

func envelopeDuplicateNames(_ context.Context, t *T) {
	c := t.Open()
	for i, text := range []string{
		`{"arcp":"1.1","id":"%s","type":"ping","type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{}}`,
		`{"arcp":"1.1","id":"%s","type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{},"payload":{}}`,
		`{"arcp":"1.1","id":"%s","type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{"nonce":"a","nonce":"b"}}`,
		`{"arcp":"1.1","id":"%s","type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{"x":{"y":1,"y":2}}}`,
	} {
		id := fmt.Sprintf("msg_twice_%d", i)
		text = fmt.Sprintf(text, id)
		c.SendRaw(text, id)
		c.ExpectNack("which of two values counts would be a guess: "+text, arcp.MessageID(id), arcp.CodeInvalidRequest)
	}
}

func envelopeExactCase(_ context.Context, t *T) {
	c := t.Open()
	for _, name := range []string{"arcp", "type", "timestamp", "payload"} {
		m := c.rightPing()
		m[strings.ToUpper(name[:1])+name[1:]] = m[name]
		id := c.sendMessage(m.with(name, drop))
		c.ExpectNack("a name in another case is another name: "+name, id, arcp.CodeInvalidRequest)
	}
	c.SendRaw(`{"arcp":"1.1","ID":"msg_upper","type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{}}`)
	c.ExpectNothing("ID is not id, so there is nobody to answer to")
}

func envelopeDeep(_ context.Context, t *T) {
	c := t.Open()
	const fits = 48
	args := arcp.Raw(`{"a":` + strings.Repeat("[", fits) + strings.Repeat("]", fits) + `}`)
	got := c.Completed("arguments may nest", c.Invoke("demo.echo", args))
	want(t, "what nests comes back", string(got), string(args))
	for _, depth := range []int{65, 1000, 100_000} {
		nested := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		c.mayNack(fmt.Sprintf("%d levels are too many", depth),
			`{"arcp":"1.1","id":"`+string(arcp.NewMessageID())+`","type":"ping","timestamp":"2026-01-02T03:04:05Z","payload":{"x":`+nested+`}}`)
	}
}

func envelopeIDsAccepted(_ context.Context, t *T) {
	c := t.Open()
	for _, id := range []string{"x", "1", "01JABCDEFGHJKMNPQRSTVWXYZ0", "!~", `a\b"c`, "{}", strings.Repeat("i", 256), "msg_"} {
		m := c.rightPing().with("id", id)
		c.Expect("the id "+id+" is as good as any", arcp.Pong, c.sendMessage(m))
	}
}

func envelopeIDsRefused(_ context.Context, t *T) {
	c := t.Open()
	for _, id := range []any{"", " ", "a b", "a\nb", "a\u0000b", "é", "\u007f", strings.Repeat("i", 257), 5, nil, []string{"x"}} {
		c.SendRaw(c.rightPing().with("id", id).String())
		c.ExpectNothing(fmt.Sprintf("%q is no id, so there is nobody to answer to", fmt.Sprint(id)))
	}
}

func envelopeUnknownMembers(_ context.Context, t *T) {
	c := t.Open()
	m := c.rightPing().with("x_new", map[string]any{"a": []any{1, nil}}).with("another", nil)
	m["payload"] = map[string]any{"nonce": "n", "x_new": true, "y": nil}
	f := c.Expect("a newer client may say more", arcp.Pong, c.sendMessage(m))
	want(t, "what is known is still read", payload[arcp.PongPayload](t, f).Nonce, "n")
}

func envelopeNulls(_ context.Context, t *T) {
	c := t.Open()
	m := c.rightPing()
	for _, name := range []string{"source", "target", "session_id", "job_id", "stream_id", "subscription_id", "trace_id", "span_id",
		"parent_span_id", "correlation_id", "causation_id", "idempotency_key", "priority", "event_seq", "extensions"} {
		m[name] = nil
	}
	m["payload"] = map[string]any{"nonce": nil}
	c.Expect("null stands for an absent member", arcp.Pong, c.sendMessage(m))

	for typ, p := range map[arcp.Type]map[string]any{
		arcp.SessionListJobs: {"filter": nil, "limit": nil, "cursor": nil},
		arcp.ToolInvoke: {"tool": "demo.echo", "arguments": nil, "max_runtime_sec": nil, "cost_budget": nil, "lease_request": nil,
			"lease_constraints": nil, "idempotency_key": nil, "on_disconnect": nil, "strict_cancel": nil, "direct": nil,
			"detach": nil, "retry": nil},
	} {
		id := c.sendMessage(c.rightPing().with("type", typ).with("payload", p))
		if f := c.Answer("null stands for an absent member", id); f.Type != arcp.SessionJobs && f.Type != arcp.JobAccepted {
			t.Failf("null stands for an absent member: got %s", f)
		}
	}
}

func envelopeTimes(_ context.Context, t *T) {
	c := t.Open()
	for _, stamp := range []string{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.123456789Z",
		"2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05.5-11:30", "1999-12-31T23:59:59Z", "2199-12-31T23:59:59Z"} {
		c.Expect("time "+stamp+" is RFC 3339", arcp.Pong, c.sendMessage(c.rightPing().with("timestamp", stamp)))
	}
}

func envelopeSessionMismatch(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	for _, session := range []string{string(other.Session), "sess_00000000000000000000000000"} {
		id := c.sendMessage(c.rightPing().with("session_id", session))
		c.ExpectNack("a connection speaks for its own session only", id, arcp.CodeInvalidArgument)
	}
	other.ExpectNothing("the other session is not touched")
}

func envelopeSessionAbsent(_ context.Context, t *T) {
	c := t.Open()
	c.Expect("no session_id means this one", arcp.Pong, c.sendMessage(c.rightPing()))
	c.Expect("naming it is as good", arcp.Pong, c.sendMessage(c.rightPing().with("session_id", string(c.Session))))
}

func envelopePrefixes(_ context.Context, t *T) {
	c := t.Open()
	for _, name := range []string{"session_id", "job_id", "stream_id", "subscription_id"} {
		for _, value := range []string{"nope", "msg_1"} {
			id := c.sendMessage(c.rightPing().with(name, value))
			c.ExpectNack(name+" "+value+" has the wrong prefix", id, arcp.CodeInvalidArgument)
		}
	}
}

func envelopePayloadPrefixes(_ context.Context, t *T) {
	c := t.Open()
	for _, m := range []message{
		c.rightPing().with("type", "job.subscribe").with("payload", map[string]any{"job_id": "nope"}),
		c.rightPing().with("type", "job.unsubscribe").with("payload", map[string]any{"job_id": "nope"}),
		c.rightPing().with("type", "artifact.fetch").with("payload", map[string]any{"artifact_id": "nope"}),
		c.rightPing().with("type", "lease.refresh").with("payload", map[string]any{"lease_id": "nope", "additional_seconds": 1}),
		c.rightPing().with("type", "unsubscribe").with("payload", map[string]any{"subscription_id": "nope"}),
	} {
		id := c.sendMessage(m)
		c.ExpectNack(fmt.Sprintf("%s of a malformed id is refused", m["type"]), id, arcp.CodeInvalidArgument, arcp.CodeUnimplemented)
	}
}

func envelopeDuplicateID(_ context.Context, t *T) {
	c := t.Open()
	m := c.rightPing()
	c.sendMessage(m)
	c.sendMessage(m)
	c.Expect("the first is answered", arcp.Pong, m.id())
	c.ExpectNothing("the copy is dropped")
	c.sendMessage(m)
	c.ExpectNothing("and so is a late one")
	c.sendMessage(c.rightPing().with("id", string(m.id())).with("type", "session.list_jobs"))
	c.ExpectNothing("an id is used once, whatever it is used for")
}

func envelopeDuplicateSubmit(_ context.Context, t *T) {
	c := t.Open()
	id := arcp.NewMessageID()
	same := func(env *arcp.Envelope) { env.ID = id }
	c.Submit("demo.echo", map[string]any{"n": 1}, same)
	c.Submit("demo.echo", map[string]any{"n": 1}, same)
	job := c.Follow(id)
	c.ExpectNothing("one submit makes one job") // a second one would break the numbers too
	want(t, "one submit is accepted once", len(job.Of(arcp.JobAccepted)), 1)
}

func envelopeClientEventSeq(_ context.Context, t *T) {
	c := t.Open()
	c.Expect("a client has no event numbers", arcp.Pong, c.sendMessage(c.rightPing().with("event_seq", 99)))
	job := c.Invoke("demo.echo", map[string]any{}, func(env *arcp.Envelope) { env.EventSeq = 77 })
	want(t, "the server counts by itself", job.Event(0).EventSeq, 1)
}

func envelopePayloadTypes(_ context.Context, t *T) {
	c := t.Open()
	for _, b := range []struct {
		typ arcp.Type
		p   string
	}{
		{arcp.Ping, `{"nonce":5}`}, {arcp.SessionPing, `{"nonce":[],"sent_at":"2026-01-02T03:04:05Z"}`},
		{arcp.SessionPing, `{"nonce":"n","sent_at":"noon"}`}, {arcp.SessionListJobs, `{"limit":-1}`},
		{arcp.SessionListJobs, `{"limit":1.5}`}, {arcp.SessionListJobs, `{"filter":{"status":"running"}}`},
		{arcp.SessionListJobs, `{"filter":{"created_after":"noon"}}`}, {arcp.SessionAck, `{"last_processed_seq":-1}`},
		{arcp.Cancel, `{"target":"job","target_id":5}`}, {arcp.JobSubscribe, `{"job_id":"job_1","from_event_seq":"live"}`},
	} {
		m := c.rightPing().with("type", b.typ).with("payload", json.RawMessage(b.p))
		c.ExpectNack(fmt.Sprintf("%s %s is malformed", b.typ, b.p), c.sendMessage(m), arcp.CodeInvalidRequest, arcp.CodeInvalidArgument)
	}
}

func envelopeWhiteSpace(_ context.Context, t *T) {
	if t.target.local() {
		t.Skipf("a frame is a line on a unix socket")
	}
	c := t.Open()
	c.SendRaw("\n\t {\r\n \"arcp\" : \"1.1\", \"id\":\"msg_spaced\" ,\n\"type\":\"ping\", \"payload\" : { } , \"timestamp\":\"2026-01-02T03:04:05Z\" } \n", "msg_spaced")
	c.Expect("white space means nothing", arcp.Pong, "msg_spaced")
}
