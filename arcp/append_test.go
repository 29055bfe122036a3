package arcp

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// plainJSON encodes a payload as reflection would, without its AppendJSON.
func plainJSON(t *testing.T, payload any) string {
	t.Helper()
	v := reflect.ValueOf(payload)
	fields := make([]reflect.StructField, v.NumField())
	for i := range fields {
		fields[i] = v.Type().Field(i)
	}
	raw, err := jsonx.Marshal(v.Convert(reflect.StructOf(fields)).Interface(), encodeOptions)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestAppendJSONEqualsReflection(t *testing.T) {
	at := time.Date(2026, 5, 9, 15, 0, 0, 123456789, time.FixedZone("", 7200))
	ref := &ArtifactObject{ArtifactID: "art_1", URI: "arcp://x", MediaType: "a/b", Size: 3, ExpiresAt: at}
	for _, p := range []jsonAppender{
		JobAcceptedPayload{}, JobStartedPayload{}, JobProgressPayload{}, JobHeartbeatPayload{}, JobResultChunkPayload{},
		JobCompletedPayload{}, StreamChunkPayload{}, LogPayload{}, MetricPayload{}, SessionAckPayload{},
		JobAcceptedPayload{JobID: "job_1", Agent: "a@1", Lease: Raw(`{"a":["b"]}`), LeaseConstraints: &LeaseConstraints{ExpiresAt: at}, Budget: Raw(`{"USD":5.0}`),
			Credentials: []Credential{{ID: "c", Scheme: "bearer", Value: "v", Endpoint: "e"}}, ParentJobID: "job_0", RestoredFrom: &RestoredFrom{"job_9", "chk_1"}, AcceptedAt: at, TraceID: "t\"é"},
		JobAcceptedPayload{JobID: "job_1", Credentials: []Credential{}},
		JobStartedPayload{Description: "line\nbreak\t\x01"},
		JobProgressPayload{Current: 0.1, Total: new(1e300), Units: "u", Percent: new(-0.5), Message: "m"},
		JobProgressPayload{Current: 1e-9, Total: new(1e20)},
		JobHeartbeatPayload{Sequence: 1, DeadlineMS: 2, State: "running"},
		JobResultChunkPayload{ResultID: "res_1", ChunkSeq: math.MaxUint64, Data: "日本", Encoding: "utf8", More: true},
		JobCompletedPayload{Value: Raw(`[1,2.50]`), ResultRef: ref, ResultID: "res_1", ResultSize: new(uint64(0)), Summary: "s"},
		StreamChunkPayload{Sequence: 3, Data: Raw(`"x"`), ContentType: "c", SHA256: "s", Redacted: true, Role: "r", Content: "x", Encoding: "e", Size: 9, Kind: "log"},
		LogPayload{Level: "info", Message: "<&>", Attributes: Raw(`{"n":1}`)},
		MetricPayload{Name: "n", Value: "1.50", Unit: "u", Dims: Raw(`{}`)},
		SessionAckPayload{LastProcessedSeq: 7},
		SessionOpenPayload{},
		SessionOpenPayload{Auth: Auth{Scheme: "bearer", Token: "t"}, Client: ClientInfo{Kind: "k", Version: "1", Fingerprint: "f", Principal: "p"},
			Capabilities: Capabilities{Features: []string{"ack"}, Encodings: []string{"json"}}, LastEventSeq: new(uint64(0))},
		SessionAcceptedPayload{},
		SessionAcceptedPayload{SessionID: "sess_1", Runtime: RuntimeInfo{Kind: "k", Version: "1", Fingerprint: "f", TrustLevel: "trusted"},
			Capabilities: Capabilities{Flags: map[Feature]bool{FeatureStreaming: true, FeatureAnonymous: false}, HeartbeatRecovery: "fail",
				HeartbeatInterval: 30, AckWindow: 9, BinaryEncoding: []string{"base64"}, Extensions: []string{}, Retention: &ArtifactRetention{1, 2},
				Agents: []Agent{{Name: "a", Versions: []string{"1", "2"}, Default: "1"}, {Name: "b"}}, Encodings: []string{"json"},
				Extra: map[string]Raw{"x.y": Raw(`{"z":[1]}`)}},
			Lease: &SessionLease{ExpiresAt: at}, ResumeToken: "rt_1", ResumeWindowSec: 600, HeartbeatIntervalSec: 30},
	} {
		if got, want := string(p.AppendJSON(nil)), plainJSON(t, p); got != want {
			t.Errorf("%T\n got %s\nwant %s", p, got, want)
		}
	}
}

func TestAppendJSONIsAlwaysValid(t *testing.T) {
	for _, p := range []jsonAppender{
		JobProgressPayload{Current: math.NaN(), Total: new(math.Inf(1)), Percent: new(math.Inf(-1))},
		LogPayload{Level: "\xff", Message: "\xc3\x28"},
		JobAcceptedPayload{Credentials: []Credential{{Constraints: Raw(`{"a":`)}}},
	} {
		if raw := p.AppendJSON(nil); !json.Valid(raw) {
			t.Errorf("%T: %s", p, raw)
		}
	}
	raw := LogPayload{Attributes: Raw("{\n\"a\":\r\n1}")}.AppendJSON(nil)
	if want := "{\"level\":\"\",\"message\":\"\",\"attributes\":{ \"a\":  1}}"; string(raw) != want {
		t.Errorf("got %s, want %s: on one line", raw, want)
	}
}

func TestAppendStringWritesValidJSON(t *testing.T) {
	for in, want := range map[string]string{
		"": `""`, "plain text": `"plain text"`, "exactly8": `"exactly8"`, `quote"`: `"quote\""`, "12345678\n": `"12345678\n"`,
		"é": `"é"`, "\u2028<>&": "\"\u2028<>&\"", "\x00": `"\u0000"`, "\x7f": "\"\x7f\"", "a\xffb": `"a�b"`, `\`: `"\\"`,
	} {
		if got := string(AppendString(nil, in)); got != want {
			t.Errorf("AppendString(%q) = %s, want %s", in, got, want)
		}
	}
}

// AppendString escapes the common characters itself, in the same way as the JSON library.
func TestAppendStringEscapesAsTheLibrary(t *testing.T) {
	for c := range utf8.RuneSelf {
		for _, in := range []string{string(rune(c)), "before" + string(rune(c)) + "and after", "é\n" + string(rune(c)), "\n\t" + string(rune(c))} {
			want, err := jsontext.AppendQuote([]byte("start"), in)
			if got := AppendString([]byte("start"), in); err != nil || string(got) != string(want) {
				t.Errorf("AppendString(%q) = %s, want %s, %v", in, got, want, err)
			}
		}
	}
}
