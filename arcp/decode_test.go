package arcp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

// frame builds an envelope's text from a valid one: each edit is NAME=JSON, or
// NAME= to leave the member out.
func frame(edits ...string) string {
	members := [][2]string{{"arcp", `"1.1"`}, {"id", `"msg_1"`}, {"type", `"ping"`},
		{"timestamp", `"2026-05-09T13:00:00Z"`}, {"payload", `{}`}}
	for _, edit := range edits {
		name, value, _ := strings.Cut(edit, "=")
		found := false
		for i := range members {
			if members[i][0] == name {
				members[i][1], found = value, true
			}
		}
		if !found {
			members = append(members, [2]string{name, value})
		}
	}
	var parts []string
	for _, m := range members {
		if m[1] != "" {
			parts = append(parts, `"`+m[0]+`":`+m[1])
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func nest(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestDecodeRefusesInvalidFrames(t *testing.T) {
	long := strings.Repeat("x", arcp.MaxIDLen+1)
	for name, c := range map[string]struct {
		frame  string
		reason string
		id     arcp.MessageID // reported; most frames have a readable one
		text   string         // part of the message
	}{
		"empty":                    {``, arcp.ReasonNotJSON, "", "ends too early"},
		"an array":                 {`[` + frame() + `]`, arcp.ReasonNotJSON, "", "instead of an object"},
		"a string":                 {`"x"`, arcp.ReasonNotJSON, "", "instead of an object"},
		"cut off":                  {strings.TrimSuffix(frame(), "}"), arcp.ReasonNotJSON, "msg_1", "ends too early"},
		"cut off before the id":    {`{"arcp":"1.1","payload":{`, arcp.ReasonNotJSON, "", "ends too early"},
		"trailing data":            {frame() + `{}`, arcp.ReasonNotJSON, "msg_1", "instead of the end"},
		"trailing comma":           {frame() + `,`, arcp.ReasonNotJSON, "msg_1", "instead of the end"},
		"a byte order mark":        {"\ufeff" + frame(), arcp.ReasonNotJSON, "", "instead of an object"},
		"duplicate member":         {frame("arcp2=1", `arcp="1.1","arcp":"1.1"`), arcp.ReasonNotJSON, "msg_1", `duplicate member name "arcp"`},
		"duplicate id":             {frame(`id="msg_1","id":"msg_2"`), arcp.ReasonNotJSON, "msg_1", `duplicate member name "id"`},
		"duplicate by escape":      {frame(`\u0069d="msg_2"`), arcp.ReasonNotJSON, "msg_1", `duplicate member name "id"`},
		"duplicate in payload":     {frame(`payload={"a":1,"a":1}`), arcp.ReasonNotJSON, "msg_1", `duplicate member name "a"`},
		"duplicate deep":           {frame(`payload={"x":[{"y":{"a":1,"a":1}}]}`), arcp.ReasonNotJSON, "msg_1", `duplicate member name "a"`},
		"duplicate in extensions":  {frame(`extensions={"a":1,"a":1}`), arcp.ReasonNotJSON, "msg_1", "duplicate"},
		"duplicate in unknown":     {frame(`other={"a":1,"a":1}`), arcp.ReasonNotJSON, "msg_1", "duplicate"},
		"bad UTF-8":                {frame("source=\"\xff\""), arcp.ReasonNotJSON, "msg_1", "invalid UTF-8"},
		"bad UTF-8 in payload":     {frame("payload={\"a\":\"\xc3\x28\"}"), arcp.ReasonNotJSON, "msg_1", "invalid UTF-8"},
		"half a surrogate pair":    {frame(`payload={"a":"\ud800"}`), arcp.ReasonNotJSON, "msg_1", "surrogate"},
		"control character":        {frame("source=\"a\nb\""), arcp.ReasonNotJSON, "msg_1", "control character"},
		"depth 65":                 {frame(`payload={"a":` + nest(63) + `}`), arcp.ReasonTooDeep, "msg_1", "deeper than 64"},
		"depth a million":          {strings.Repeat(`{"a":`, 1_000_000), arcp.ReasonTooDeep, "", "deeper than 64"},
		"depth of brackets":        {strings.Repeat(`[`, 65), arcp.ReasonNotJSON, "", "instead of an object"},
		"no arcp":                  {frame("arcp="), arcp.ReasonEnvelope, "msg_1", `"arcp" is required`},
		"arcp a number":            {frame("arcp=1.1"), arcp.ReasonEnvelope, "msg_1", `"arcp" must be a string, not a number`},
		"arcp in another case":     {frame("arcp=", `ARCP="1.1"`), arcp.ReasonEnvelope, "msg_1", `"arcp" is required`},
		"no id":                    {frame("id="), arcp.ReasonEnvelope, "", `"id" is required`},
		"id null":                  {frame("id=null"), arcp.ReasonEnvelope, "", `"id" is required`},
		"id empty":                 {frame(`id=""`), arcp.ReasonEnvelope, "", `"id" is required`},
		"id a number":              {frame("id=1"), arcp.ReasonEnvelope, "", `"id" must be a string, not a number`},
		"id in another case":       {frame("id=", `Id="msg_1"`), arcp.ReasonEnvelope, "", `"id" is required`},
		"id huge":                  {frame(`id="` + long + `"`), arcp.ReasonBadID, "", `"id" is longer than 256 bytes`},
		"id with a space":          {frame(`id="a b"`), arcp.ReasonBadID, "", `"id" must be 1 to 256 visible ASCII`},
		"id not ASCII":             {frame(`id="msg_é"`), arcp.ReasonBadID, "", `"id" must be 1 to 256 visible ASCII`},
		"no type":                  {frame("type="), arcp.ReasonEnvelope, "msg_1", `"type" is required`},
		"type an object":           {frame("type={}"), arcp.ReasonEnvelope, "msg_1", `"type" must be a string, not an object`},
		"type huge":                {frame(`type="` + long + `"`), arcp.ReasonEnvelope, "msg_1", `"type" is longer`},
		"no timestamp":             {frame("timestamp="), arcp.ReasonEnvelope, "msg_1", `"timestamp" is required: RFC 3339`},
		"timestamp a number":       {frame("timestamp=1770000000"), arcp.ReasonEnvelope, "msg_1", `"timestamp" must be a string`},
		"timestamp without a zone": {frame(`timestamp="2026-05-09T13:00:00"`), arcp.ReasonEnvelope, "msg_1", `"timestamp" must be a time as in RFC 3339`},
		"timestamp with a space":   {frame(`timestamp="2026-05-09 13:00:00Z"`), arcp.ReasonEnvelope, "msg_1", `"timestamp" must be a time`},
		"timestamp day 32":         {frame(`timestamp="2026-05-32T13:00:00Z"`), arcp.ReasonEnvelope, "msg_1", `"timestamp" must be a time`},
		"no payload":               {frame("payload="), arcp.ReasonEnvelope, "msg_1", `"payload" is required: an object`},
		"payload null":             {frame("payload=null"), arcp.ReasonEnvelope, "msg_1", `"payload" is required: an object`},
		"payload an array":         {frame("payload=[]"), arcp.ReasonEnvelope, "msg_1", `"payload" must be an object, not an array`},
		"payload a string":         {frame(`payload="{}"`), arcp.ReasonEnvelope, "msg_1", `"payload" must be an object, not a string`},
		"extensions an array":      {frame(`extensions=[]`), arcp.ReasonEnvelope, "msg_1", `"extensions" must be an object, not an array`},
		"session_id a number":      {frame("session_id=1"), arcp.ReasonEnvelope, "msg_1", `"session_id" must be a string`},
		"session_id not ASCII":     {frame(`session_id="sess_é"`), arcp.ReasonBadID, "msg_1", `"session_id" must be 1 to 256 visible`},
		"job_id huge":              {frame(`job_id="` + long + `"`), arcp.ReasonBadID, "msg_1", `"job_id" is longer`},
		"correlation_id a list":    {frame(`correlation_id=["a"]`), arcp.ReasonEnvelope, "msg_1", `"correlation_id" must be a string, not an array`},
		"trace_id with a newline":  {frame(`trace_id="a\nb"`), arcp.ReasonBadID, "msg_1", `"trace_id" must not contain control characters`},
		"key huge":                 {frame(`idempotency_key="` + long + `"`), arcp.ReasonBadID, "msg_1", `"idempotency_key" is longer`},
		"priority unknown":         {frame(`priority="urgent"`), arcp.ReasonPriority, "msg_1", `low, normal, high or critical`},
		"priority in upper case":   {frame(`priority="HIGH"`), arcp.ReasonPriority, "msg_1", `low, normal, high or critical`},
		"event_seq a float":        {frame("event_seq=1.0"), arcp.ReasonEnvelope, "msg_1", `"event_seq" must be a whole number`},
		"event_seq an exponent":    {frame("event_seq=1e3"), arcp.ReasonEnvelope, "msg_1", `"event_seq" must be a whole number`},
		"event_seq negative":       {frame("event_seq=-1"), arcp.ReasonEnvelope, "msg_1", `"event_seq" must be a whole number`},
		"event_seq a string":       {frame(`event_seq="1"`), arcp.ReasonEnvelope, "msg_1", `"event_seq" must be a whole number`},
		"event_seq too large":      {frame("event_seq=18446744073709551616"), arcp.ReasonEnvelope, "msg_1", `"event_seq" must be a whole number`},
		"broken before its id":     {`{"arcp":1,"timestamp":"x","id":"msg_9"}`, arcp.ReasonEnvelope, "msg_9", `"arcp" must be a string`},
		"a quoted megabyte":        {frame(`a` + strings.Repeat("x", 1<<20) + `=1,"a` + strings.Repeat("x", 1<<20) + `":1`), arcp.ReasonNotJSON, "msg_1", "duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			env, err := arcp.Decode([]byte(c.frame))
			e, ok := errors.AsType[*arcp.EncodingError](err)
			if !ok {
				t.Fatalf("Decode = %+v, %v; want an *EncodingError", env, err)
			}
			if e.Reason != c.reason || e.ID != c.id || !strings.Contains(e.Message, c.text) {
				t.Errorf("got %s, id %q, %q; want %s, id %q, %q in it", e.Reason, e.ID, e.Message, c.reason, c.id, c.text)
			}
			if len(e.Message) > 600 {
				t.Errorf("the message has %d bytes: it must not repeat the frame", len(e.Message))
			}
			if env.ID != "" || env.Payload != nil {
				t.Errorf("Decode also returned %+v", env)
			}
		})
	}
}

func TestDecodeAcceptsUnusualForms(t *testing.T) {
	key := strings.Repeat("k", arcp.MaxIDLen)
	for name, c := range map[string]struct {
		frame string
		check func(arcp.Envelope) bool
	}{
		"the least":           {frame(), func(e arcp.Envelope) bool { return e.ID == "msg_1" && e.Type == "ping" && e.ARCP == "1.1" }},
		"white space":         {" \n\t" + strings.ReplaceAll(frame(), `":`, "\" :\r\n ") + "\n ", func(e arcp.Envelope) bool { return e.ID == "msg_1" }},
		"unknown members":     {frame(`other={"a":[1]}`, `Session_ID="x"`), func(e arcp.Envelope) bool { return e.SessionID == "" }},
		"null is absent":      {frame("session_id=null", "priority=null", "event_seq=null", "extensions=null", "trace_id=null"), func(e arcp.Envelope) bool { return e.Extensions == nil && e.Priority == "" }},
		"empty is absent":     {frame(`session_id=""`, `trace_id=""`), func(e arcp.Envelope) bool { return e.SessionID == "" }},
		"an escaped name":     {frame("type=", `\u0074ype="log"`), func(e arcp.Envelope) bool { return e.Type == arcp.Log }},
		"an escaped value":    {frame(`id="msg\u005f\/1"`), func(e arcp.Envelope) bool { return e.ID == "msg_/1" }},
		"an id without msg_":  {frame(`id="01J"`), func(e arcp.Envelope) bool { return e.ID == "01J" }},
		"an id of 256 bytes":  {frame(`id="` + key + `"`), func(e arcp.Envelope) bool { return string(e.ID) == key }},
		"a trace in any text": {frame(`trace_id="Spur é 😀"`, `idempotency_key="order 7"`), func(e arcp.Envelope) bool { return e.TraceID == "Spur é 😀" && e.IdempotencyKey == "order 7" }},
		"another version":     {frame(`arcp="9.9"`), func(e arcp.Envelope) bool { return e.ARCP == "9.9" && !arcp.SupportedVersion(e.ARCP) }},
		"an offset":           {frame(`timestamp="2026-05-09T15:00:00.5+02:00"`), func(e arcp.Envelope) bool { return e.Timestamp == time.Date(2026, 5, 9, 13, 0, 0, 5e8, time.UTC) }},
		"an unknown type":     {frame(`type="com.acme.thing.v1"`), func(e arcp.Envelope) bool { return e.Type == "com.acme.thing.v1" }},
		"depth 64":            {frame(`payload={"a":` + nest(62) + `}`), func(e arcp.Envelope) bool { return len(e.Payload) > 100 }},
		"brackets in strings": {frame(`payload={"a":"` + strings.Repeat("[{", 100) + `"}`), func(e arcp.Envelope) bool { return true }},
		"the largest number":  {frame("event_seq=18446744073709551615"), func(e arcp.Envelope) bool { return e.EventSeq == 1<<64-1 }},
		"a long source":       {frame(`source="` + strings.Repeat("s", 1000) + `"`), func(e arcp.Envelope) bool { return len(e.Source) == 1000 }},
		"every text at once": {frame(`session_id="sess_1"`, `job_id="job_1"`, `stream_id="str_1"`, `subscription_id="sub_1"`, `trace_id="t"`, `span_id="s"`, `parent_span_id="p"`, `correlation_id="c"`, `causation_id="d"`, `idempotency_key="k"`, `source="a"`, `target="b"`, `priority="high"`), func(e arcp.Envelope) bool {
			return e.SessionID == "sess_1" && e.JobID == "job_1" && e.StreamID == "str_1" && e.SubscriptionID == "sub_1" && e.TraceID == "t" &&
				e.SpanID == "s" && e.ParentSpanID == "p" && e.CorrelationID == "c" && e.CausationID == "d" && e.IdempotencyKey == "k" &&
				e.Source == "a" && e.Target == "b" && e.Priority == arcp.PriorityHigh && e.ID == "msg_1"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			env, err := arcp.Decode([]byte(c.frame))
			if err != nil {
				t.Fatalf("Decode(%s) = %v", c.frame, err)
			}
			if !c.check(env) {
				t.Errorf("Decode(%s) = %+v", c.frame, env)
			}
		})
	}
}

func TestDecodeKeepsPayloadBytes(t *testing.T) {
	const payload = "{ \"n\" : 1.50 , \"big\":123456789012345678901234567890,\n\"e\":\"\\u0041\\/\" }"
	text := []byte(frame("payload=" + payload))
	env, err := arcp.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if string(env.Payload) != payload {
		t.Errorf("payload is %s, want the bytes received", env.Payload)
	}
	clear(text)
	if string(env.Payload) != payload || env.ID != "msg_1" {
		t.Error("the envelope shares memory with the frame")
	}
	if out := string(env.Append(nil)); !strings.Contains(out, strings.ReplaceAll(payload, "\n", " ")) {
		t.Errorf("appended %s: the payload may only lose its newlines, which would end the frame on some transports", out)
	}
}

// A number that a client sends is decoded; the session machine ignores it.
func TestDecodeKeepsEventSeqOfAClient(t *testing.T) {
	env, err := arcp.Decode([]byte(frame("event_seq=7", `type="tool.invoke"`)))
	if err != nil || env.EventSeq != 7 {
		t.Errorf("Decode = %d, %v", env.EventSeq, err)
	}
}

func TestPayloadErrorsNameTheMember(t *testing.T) {
	decode := func(payload string, into func(*arcp.Envelope) error) error {
		return into(&arcp.Envelope{ID: "msg_7", Payload: arcp.Raw(payload)})
	}
	invoke := func(e *arcp.Envelope) error { _, err := arcp.DecodePayload[arcp.ToolInvokePayload](e); return err }
	list := func(e *arcp.Envelope) error { _, err := arcp.DecodePayload[arcp.SessionListJobsPayload](e); return err }
	open := func(e *arcp.Envelope) error { _, err := arcp.DecodePayload[arcp.SessionOpenPayload](e); return err }
	metric := func(e *arcp.Envelope) error { _, err := arcp.DecodePayload[arcp.MetricPayload](e); return err }
	for _, c := range []struct {
		payload string
		into    func(*arcp.Envelope) error
		want    string
	}{
		{`{"tool":7}`, invoke, `payload member "tool": a string is required, not a number`},
		{`{"max_runtime_sec":"5"}`, invoke, `payload member "max_runtime_sec": a number is required, not a string`},
		{`{"strict_cancel":"yes"}`, invoke, `payload member "strict_cancel": a boolean is required, not a string`},
		{`{"cost_budget":"USD:1"}`, invoke, `payload member "cost_budget": an array is required, not a string`},
		{`{"lease_constraints":{"expires_at":"soon"}}`, invoke, `payload member "lease_constraints/expires_at": a time as in RFC 3339, for example "2026-01-02T15:04:05Z" is required`},
		{`{"lease_constraints":[]}`, invoke, `payload member "lease_constraints": an object is required, not an array`},
		{`{"limit":1.0}`, list, `payload member "limit": a whole number from 0 to 4294967295 is required`},
		{`{"limit":-1}`, list, `payload member "limit": a whole number from 0 to 4294967295 is required`},
		{`{"limit":4294967296}`, list, `payload member "limit": a whole number from 0 to 4294967295 is required`},
		{`{"filter":{"status":[1]}}`, list, `payload member "filter/status/0": a string is required, not a number`},
		{`{"capabilities":{"streaming":"yes"}}`, open, `payload member "capabilities": streaming: a boolean is required, not a string`},
		{`{"capabilities":{"agents":[{"name":1}]}}`, open, `payload member "capabilities": agents: name: a string is required, not a number`},
		{`{"capabilities":{"artifact_retention":{"max_seconds":-1}}}`, open, `payload member "capabilities": artifact_retention: max_seconds: a whole number from 0 to 18446744073709551615 is required`},
		{`{"capabilities":[]}`, open, `payload member "capabilities": an object is required, not an array`},
		{`{"value":"1"}`, metric, `payload member "value": a number is required, not a string`},
		{`{"a":1,"a":2}`, invoke, `payload: duplicate object member name "a"`},
	} {
		err := decode(c.payload, c.into)
		e, ok := errors.AsType[*arcp.EncodingError](err)
		if !ok || !strings.HasPrefix(e.Message, c.want) || e.Reason != arcp.ReasonPayload || e.ID != "msg_7" {
			t.Errorf("payload %s: got %+v, want %s", c.payload, err, c.want)
		}
	}
}

func TestEveryMinorVersionOfOneIsSupported(t *testing.T) {
	for v, want := range map[string]bool{"1": true, "1.0": true, "1.1": true, "1.99": true, "": false, "2": false, "2.0": false, "10": false,
		"1.": false, "1.x": false, "1.1.1": false, " 1": false, "1.123456789": false, "01": false, "v1": false} {
		if got := arcp.SupportedVersion(v); got != want {
			t.Errorf("SupportedVersion(%q) = %v, want %v", v, got, want)
		}
	}
}

func TestOnlyTrueMakesAnExtensionOptional(t *testing.T) {
	for ext, want := range map[string]bool{`{"optional":true}`: true, `{"optional":false}`: false, `{"optional":"true"}`: false, `{}`: false, `{"Optional":true}`: false} {
		env, err := arcp.Decode([]byte(frame("extensions=" + ext)))
		if err != nil {
			t.Fatal(err)
		}
		if got := env.OptionalExtension(); got != want {
			t.Errorf("extensions %s: OptionalExtension = %v, want %v", ext, got, want)
		}
	}
}

// DecodeOwned decodes as Decode. The payload shares the memory of the frame only if it is most of it.
func TestDecodeOwned(t *testing.T) {
	const head = `{"arcp":"1.1","id":"msg_1","type":"ping","timestamp":"2026-01-02T15:04:05Z","session_id":"s",`
	large := `{"text":"` + strings.Repeat("x", 1000) + `"}`
	for _, tt := range []struct {
		rest    string
		aliases bool
	}{
		{`"payload":` + large + `}`, true},
		{`"extensions":{"a":1},"payload":` + large + `}`, true},
		{`"extensions":` + large + `,"payload":{"a":1}}`, false},
		{`"extensions":` + large + `}`, false},
		{`"payload":{},"payload":{}}`, false},
		{`"payload":{}`, false},
	} {
		frame := []byte(head + tt.rest)
		want, wantErr := arcp.Decode(frame)
		got, err := arcp.DecodeOwned(frame)
		if d := cmp.Diff(want, got); d != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%.200s: %v, want %v, %s", frame, err, wantErr, d)
		}
		payload, extensions := string(got.Payload), string(got.Extensions)
		for i := range frame {
			frame[i] = '-'
		}
		if changed := string(got.Payload) != payload; changed != tt.aliases || string(got.Extensions) != extensions {
			t.Errorf("%.200s: the payload shares memory: %v; the extensions are %s", tt.rest, changed, got.Extensions)
		}
	}
}
