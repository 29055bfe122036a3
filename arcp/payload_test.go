package arcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

var (
	rawType  = reflect.TypeFor[arcp.Raw]()
	timeType = reflect.TypeFor[time.Time]()
	capsType = reflect.TypeFor[arcp.Capabilities]()
	moment   = time.Date(2026, 5, 9, 15, 0, 0, 20_000_000, time.FixedZone("", 2*3600)) // written in UTC
)

func fullCapabilities() arcp.Capabilities {
	flags := make(map[arcp.Feature]bool)
	for i, f := range arcp.Features {
		flags[f] = i%2 == 0
	}
	return arcp.Capabilities{Flags: flags, HeartbeatRecovery: "fail", HeartbeatInterval: 30, AckWindow: 64, BinaryEncoding: []string{"base64"},
		Extensions: []string{}, Retention: &arcp.ArtifactRetention{DefaultSeconds: 3600, MaxSeconds: 86400},
		Agents: []arcp.Agent{{Name: "echo", Versions: []string{"1.0.0"}, Default: "1.0.0"}, {Name: "bare"}}, Features: []string{"ack"},
		Encodings: []string{"json"}, Required: []string{"ack"}, Extra: map[string]arcp.Raw{"arcpx.b.v1": arcp.Raw(`{"x":1}`), "arcpx.a.v1": arcp.Raw("7")}}
}

// fill sets v to a sample with all members, or with only the required members.
func fill(v reflect.Value, name string, everything bool) {
	switch {
	case v.Type() == rawType:
		if everything {
			v.SetBytes([]byte(`{"k":1}`))
		}
		return
	case v.Type() == timeType:
		if everything || !v.CanInterface() {
			v.Set(reflect.ValueOf(moment))
		}
		return
	case v.Type() == capsType:
		if everything {
			v.Set(reflect.ValueOf(fullCapabilities()))
		}
		return
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			name, opts, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			required := v.Field(i).Type() == rawType && opts == "" // there is no empty one
			fill(v.Field(i), name, everything || required)
		}
		return
	case !everything:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(name)
		if v.Type() == reflect.TypeFor[arcp.Number]() {
			v.SetString("12.50")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Int, reflect.Int64:
		v.SetInt(600)
	case reflect.Float64:
		v.SetFloat(42.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, true)
	case reflect.Uint8: // of a []byte
		v.SetUint('x')
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, true)
	default:
		panic("no sample of " + v.Type().String())
	}
}

// samples are the least and the fullest payload of every row.
func samples(do func(s *arcp.Spec, which string, payload any)) {
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		for _, which := range []string{"least", "full"} {
			p := s.NewPayload()
			fill(reflect.ValueOf(p).Elem(), "", which == "full")
			do(s, which, p)
		}
	}
}

// The golden file shows every change of the wire.
func TestPayloadEncodingsAreTheSame(t *testing.T) {
	var b strings.Builder
	samples(func(s *arcp.Spec, which string, payload any) {
		raw, err := arcp.Marshal(payload)
		if err != nil {
			t.Fatalf("%s %s: %v", s.Type, which, err)
		}
		fmt.Fprintf(&b, "%s %s %s\n", s.Type, which, raw)
		if null := bytes.Contains(raw, []byte("null")); null != (s.Type == arcp.SessionJobs && which == "least") {
			t.Errorf("%s %s: %s: null is only for next_cursor", s.Type, which, raw)
		}
		if which == "least" {
			wantRequired(t, s, payload, raw)
		}
		again := s.NewPayload()
		if err := arcp.Unmarshal(raw, again); err != nil {
			t.Errorf("%s %s: %v", s.Type, which, err)
		}
		if second, err := arcp.Marshal(again); err != nil || !bytes.Equal(second, raw) {
			t.Errorf("%s %s is\n%s and after decoding\n%s, %v", s.Type, which, raw, second, err)
		}
	})
	golden(t, "payloads.golden", b.String())
}

// wantRequired checks that the encoding of a zero payload has exactly its required members.
func wantRequired(t *testing.T, s *arcp.Spec, payload any, raw arcp.Raw) {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	var required []string
	collectRequired(reflect.TypeOf(payload).Elem(), &required)
	for _, name := range required {
		if _, ok := members[name]; !ok {
			t.Errorf("%s: required member %s is missing in %s", s.Type, name, raw)
		}
		delete(members, name)
	}
	if len(members) > 0 {
		t.Errorf("%s: optional members are there although empty: %v", s.Type, members)
	}
}

func collectRequired(typ reflect.Type, names *[]string) {
	for f := range typ.Fields() {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			collectRequired(f.Type, names)
		case name == "-":
		case opts == "":
			*names = append(*names, name)
		case opts != "omitzero" && opts != "omitempty":
			panic(typ.Name() + " has the option " + opts)
		}
	}
}

func TestEnvelopeEncodingIsTheSame(t *testing.T) {
	full := arcp.Envelope{ARCP: "1.0", ID: "msg_1", Type: arcp.Log, Timestamp: moment, Source: "a\"b", Target: "b", SessionID: "sess_1", JobID: "job_1",
		StreamID: "str_1", SubscriptionID: "sub_1", TraceID: "tr\n", SpanID: "sp", ParentSpanID: "ps", CorrelationID: "msg_2", CausationID: "msg_3",
		IdempotencyKey: "<key>", Priority: arcp.PriorityHigh, EventSeq: 7, Extensions: arcp.Raw(`{"optional":true}`), Payload: arcp.Raw(`{"level":"info","message":"x"}`)}
	least := arcp.Envelope{ARCP: "1.1", ID: "msg_1", Type: arcp.Ping, Timestamp: moment, Priority: arcp.PriorityNormal}
	bad := least
	bad.Source = "not \xff UTF-8"
	golden(t, "envelope.golden", fmt.Sprintf("%s\n%s\n%s\n", full.Append(nil), least.Append(nil), bad.Append(nil)))
}

func TestTimesAreWrittenInUTCWithMicroseconds(t *testing.T) {
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{moment, `"2026-05-09T13:00:00.020000Z"`},
		{time.Time{}, `"0001-01-01T00:00:00.000000Z"`},
		{time.Date(2026, 12, 31, 23, 59, 59, 999_999_999, time.UTC), `"2026-12-31T23:59:59.999999Z"`},
		{time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)), `"9999-12-31T23:59:59.999999Z"`},
		{time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC), `"9999-12-31T23:59:59.999999Z"`},
		{time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), `"0000-01-01T00:00:00.000000Z"`},
	} {
		got := string(arcp.AppendTime(nil, c.at))
		if got != c.want || len(got) != arcp.TimeLen {
			t.Errorf("AppendTime(%v) = %s, want %s", c.at, got, c.want)
		}
	}
}

func TestAppendJSONLeavesDstOnError(t *testing.T) {
	dst := []byte("before ")
	got, err := arcp.AppendJSON(dst, map[string]any{"at": moment, "html": "<&>"})
	if err != nil || !strings.HasPrefix(string(got), "before {") || !strings.Contains(string(got), `"at":"2026-05-09T13:00:00.020000Z"`) || !strings.Contains(string(got), "<&>") {
		t.Errorf("AppendJSON = %s, %v", got, err)
	}
	got, err = arcp.AppendJSON(dst, map[string]any{"f": func() {}})
	if err == nil || string(got) != string(dst) {
		t.Errorf("AppendJSON of a func = %s, %v", got, err)
	}
	raw, err := arcp.Marshal(struct{ V arcp.Raw }{arcp.Raw(` {"n": 1.50, "s":"\u0041\/"} `)})
	if want := `{"V":{"n":1.50,"s":"\u0041\/"}}`; err != nil || string(raw) != want {
		t.Errorf("Marshal = %s, %v, want %s: numbers and strings stay as received", raw, err, want)
	}
}

func TestFrameOfEmptyPayloadHasAnObject(t *testing.T) {
	env := arcp.Frame(arcp.Ping, arcp.PingPayload{})
	if string(env.Payload) != "{}" || env.Type != arcp.Ping {
		t.Errorf("Frame = %+v", env)
	}
}

func TestCanonicalSortsMembers(t *testing.T) {
	a, err := arcp.Canonical(arcp.Raw(`{"b": [1.0, 12345678901234567890123], "a":{"d":"\u0041","c":null}}`))
	if want := `{"a":{"c":null,"d":"A"},"b":[1.0,12345678901234567890123]}`; err != nil || string(a) != want {
		t.Errorf("Canonical = %s, %v, want %s", a, err, want)
	}
	if _, err := arcp.Canonical(arcp.Raw(`{"a":1,"a":2}`)); err == nil {
		t.Error("Canonical takes duplicate names")
	}
}

func TestNumberKeepsItsDigits(t *testing.T) {
	type holder struct{ N arcp.Number }
	var h holder
	if err := arcp.Unmarshal([]byte(`{"N":0.10000000000000000000000001}`), &h); err != nil || h.N != "0.10000000000000000000000001" {
		t.Errorf("N = %s, %v", h.N, err)
	}
	for _, bad := range []string{`"1"`, `null`, `[]`} {
		if err := arcp.Unmarshal([]byte(`{"N":`+bad+`}`), &h); err == nil {
			t.Errorf("%s is read as a number", bad)
		}
	}
	if raw, err := arcp.Marshal(holder{}); err != nil || string(raw) != `{"N":0}` {
		t.Errorf("Marshal = %s, %v", raw, err)
	}
	if _, err := arcp.Marshal(holder{"1x"}); err == nil {
		t.Error("a number that is none is written")
	}
	if got := arcp.FloatNumber(1e21); got != "1000000000000000000000" {
		t.Errorf("FloatNumber = %s", got)
	}
}

func TestMetricReadsBothSpellings(t *testing.T) {
	for _, name := range []string{"dims", "dimensions"} {
		var m arcp.MetricPayload
		err := arcp.Unmarshal([]byte(`{"name":"n","value":1,"unit":"u","`+name+`":{"k":"v"}}`), &m)
		if err != nil || string(m.Dims) != `{"k":"v"}` || m.Name != "n" {
			t.Errorf("a metric with %s is decoded as %+v, %v; want the dims k=v", name, m, err)
		}
	}
}

func TestSecretsOfPayloadsDoNotPrint(t *testing.T) {
	for _, v := range []any{arcp.Auth{Scheme: "bearer", Token: "hunter2"}, arcp.Credential{ID: "cred_1", Value: "hunter2"},
		arcp.SessionAcceptedPayload{ResumeToken: "hunter2"}, arcp.SessionResumePayload{ResumeToken: "hunter2"},
		arcp.SessionResumedPayload{ResumeToken: "hunter2"}, arcp.SessionAuthenticatePayload{Response: "hunter2"},
		arcp.SessionOpenPayload{Auth: arcp.Auth{Token: "hunter2"}}, arcp.JobAcceptedPayload{Credentials: []arcp.Credential{{Value: "hunter2"}}}} {
		if s := fmt.Sprintf("%v %+v %#v", v, v, v); strings.Contains(s, "hunter2") {
			t.Errorf("%T prints its secret: %s", v, s)
		}
	}
}

func TestCapabilitiesReadFlagsAndFeatureNames(t *testing.T) {
	var c arcp.Capabilities
	err := arcp.Unmarshal([]byte(`{"streaming":true,"artifacts":false,"ack":null,"features":["subscribe","model.use","heartbeat"],"agents":["a",{"name":"b","default":"1"}],"arcpx.x.v1":[1],"extensions":null}`), &c)
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[arcp.Feature]bool{arcp.FeatureStreaming: true, arcp.FeatureArtifacts: false, arcp.FeatureAck: false,
		arcp.FeatureSubscriptions: true, arcp.FeatureModelUse: true, arcp.FeatureHeartbeat: true, arcp.FeatureRefresh: false} {
		if got := c.Has(f); got != want {
			t.Errorf("Has(%s) = %v, want %v", f, got, want)
		}
	}
	if len(c.Agents) != 2 || c.Agents[0].Name != "a" || c.Agents[1].Default != "1" || string(c.Extra["arcpx.x.v1"]) != "[1]" || len(c.Extra) != 1 {
		t.Errorf("got %+v", c)
	}
	if _, said := c.Flags[arcp.FeatureAck]; said || c.Extensions != nil {
		t.Error("null is not absent")
	}
	if !(arcp.Capabilities{}).IsZero() || c.IsZero() {
		t.Error("IsZero")
	}
}
