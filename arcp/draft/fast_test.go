package draft

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// The usual forms of a hello are decoded without reflection, and every form to the same value as
// with it.
func TestHelloIsDecodedAsByReflection(t *testing.T) {
	for raw, fast := range map[string]bool{
		`{}`: true,
		`{"client":{"name":"n","kind":"k","version":"1","fingerprint":"f","principal":"p","more":[1]},"auth":{"scheme":"bearer","token":"t","x":{}},"more":1}`: true,
		`{"client_name":"n","client_version":"1","auth":{"type":"none"},"capabilities":{"encodings":["json"],"features":["ack"],"agents":[],"x":1}}`:           true,
		`{"capabilities":{"features":{"ack":true}}}`:          true,
		`{"client":{"name":"\u0041"}}`:                        false,
		`{"client":null,"auth":{"scheme":null}}`:              false,
		`{"resume":{"resume_token":"t","last_event_seq":3}}`:  false,
		`{"resume_token":"t","last_event_seq":3,"client":{}}`: false,
	} {
		var p HelloPayload
		if got := p.decodeFast(arcp.Raw(raw)); got != fast {
			t.Errorf("%s: decoded fast: %t, want %t", raw, got, fast)
		}
		got, err := readHello(&arcp.Envelope{Payload: arcp.Raw(raw)})
		if err != nil {
			t.Fatal(err)
		}
		var want HelloPayload
		if err := arcp.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %#v\nwant %#v", raw, got, want)
		}
	}
	if _, err := readHello(&arcp.Envelope{Payload: arcp.Raw(`{"client":{"name":7}}`)}); err == nil {
		t.Error("a name that is a number is decoded")
	}
}

func TestAcceptedIsEncodedAsByReflection(t *testing.T) {
	at := Time{time.Date(2026, 5, 9, 15, 0, 0, 123456789, time.FixedZone("", 7200))}
	type plain AcceptedPayload // without AppendJSON
	for _, p := range []AcceptedPayload{
		{},
		{JobID: "job_1", Agent: "a@1", Lease: arcp.Raw(`{"fs.read":["/a"]}`), LeaseConstraints: &LeaseConstraints{at}, Budget: arcp.Raw(`{"USD":5.0}`),
			Credentials: []arcp.Credential{{ID: "c", Scheme: "bearer", Value: "v", Endpoint: "e"}}, ParentJobID: "job_0", AcceptedAt: at, TraceID: "t\"é",
			Correlation: correlation("msg_1")},
		{Credentials: []arcp.Credential{}},
	} {
		want, err := arcp.Marshal(plain(p))
		if got := string(p.AppendJSON(nil)); err != nil || got != string(want) {
			t.Errorf("got %s\nwant %s, %v", got, want, err)
		}
	}
}

func TestEachTextRefusesOtherValues(t *testing.T) {
	for raw, want := range map[string]bool{
		`[]`: true, `[ ]`: true, `["a" , "]\\","\""]`: true, `[""]`: false, `["a",1]`: false, `[null]`: false, `{}`: false, `"a"`: false, ``: false,
		`[["a"]]`: false,
	} {
		n := 0
		if got := eachText(arcp.Raw(raw), func(text arcp.Raw) { n += len(text) }); got != want {
			t.Errorf("%s: %t, want %t", raw, got, want)
		}
	}
}

func TestEachMemberReadsAsThePackageOfTheFormat(t *testing.T) {
	type member struct{ name, value string }
	read := func(each func(arcp.Raw, func([]byte, arcp.Raw) bool) bool, raw string) (list []member, ok bool) {
		ok = each(arcp.Raw(raw), func(name []byte, value arcp.Raw) bool {
			list = append(list, member{string(name), string(value)})
			return string(name) != "stop"
		})
		return list, ok
	}
	for _, raw := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":"b","c":{"d":["}",1,{}]},"e":[],"":null}`, ` { "a" : -1.5e3 , "b" : [ true , false ] , "c" : "" } `,
		`{"a":"\"}","b":2}`, `{"\u0061":1}`, `{"stop":1,"a":2}`, `[]`, `"a"`, ``, `{`, `{"a"`, `{"a":`, `{"a":"`, `{"a":[1`, `{"a":{"b":1}`,
	} {
		got, ok := read(eachMember, raw)
		want, wantOK := read(arcp.EachMember, raw)
		if ok != wantOK || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %t, want %v, %t", raw, got, ok, want, wantOK)
		}
	}
}

func BenchmarkEachMember(b *testing.B) {
	raw := arcp.Raw(`{"level":"info","message":"` + strings.Repeat("x", 64) + `"}`)
	n := 0
	for b.Loop() {
		eachMember(raw, func([]byte, arcp.Raw) bool { n++; return true })
	}
}

// The usual forms of a log are encoded without an encoder, and to the same body as with one.
func TestLogIsEncodedAsByTheEncoder(t *testing.T) {
	for payload, fast := range map[string]bool{
		`{"level":"info","message":"m"}`:                                                        true,
		`{"level":"critical","message":"","attributes":{}}`:                                     true,
		`{"level":"trace","message":"}\u0041","attributes":{"a":1}}`:                            false,
		`{"level":"warn","message":"{,}","attributes":{"a":{"b":[1,"}"]},"c":"é"}}`:             true,
		`{"level":"other","message":"m","attributes":{"attributes":{"level":"x"}}}`:             true,
		`{"level":"info","message":"m","attributes":[1]}`:                                       false,
		`{"level":"info","message":"m","attributes":null}`:                                      false,
		`{"level":"info","message":"m","attributes":{"a":1},"more":{"b":2}}`:                    false,
		"{\"level\":\"info\",\"message\":\"m\",\"attributes\":{\n\"a\":\r1}}":                   false,
		`{"level":"info","message":"m","attributes":{"a":1} }`:                                  false,
		`{"level":"info","message":"m" }`:                                                       false,
		`{"level": "info","message":"m"}`:                                                       false,
		`{"message":"m","level":"info"}`:                                                        false,
		`{"level":7,"message":"m"}`:                                                             false,
		`{"level":"info"}`:                                                                      false,
		`{}`:                                                                                    false,
		`{"level":"info","message":"` + strings.Repeat("x", maxCopied) + `"}`:                   false,
		`{"level":"info","message":"m","attributes":{"a":"` + strings.Repeat("x", 1000) + `"}}`: true,
	} {
		event := EventOf(&arcp.Envelope{ID: "msg_1", Type: arcp.Log, Timestamp: time.Unix(1, 0), JobID: "job_1", Payload: arcp.Raw(payload)})
		got, ok := appendLog([]byte("before"), &event)
		if ok != fast {
			t.Errorf("%.80s: encoded without an encoder: %t, want %t", payload, ok, fast)
		}
		if !ok {
			if string(got) != "before" {
				t.Errorf("%.80s: %.80s was appended, want nothing", payload, got)
			}
			continue
		}
		e := encoder{encoding: encoding{event: &event, quirks: Universal.quirks()}}
		e.read()
		if want, err := e.append([]byte("before")); err != nil || string(got) != string(want) {
			t.Errorf("got %s\nwant %s, %v", got, want, err)
		}
	}
}
