package arcp

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The everyday forms are read without reflection, and every form to the same
// value as with it.
func TestFastDecodeAgreesWithReflection(t *testing.T) {
	for _, tt := range []struct {
		raw   string
		quick bool
	}{
		{`{"tool":"demo.echo","arguments":{ "a" : [1,2.50] }}`, true},
		{`{ "arguments" : null , "tool" : "demo.echo" }`, true},
		{`{"tool":"demo.echo"}`, true},
		{`{}`, true},
		{`{"tool":"demo.\u0065cho"}`, false},
		{`{"tool":null}`, false},
		{`{"tool":"demo.echo","max_runtime_sec":3}`, false},
		{`{"tool":"demo.echo","unknown":3}`, false},
	} {
		agree[ToolInvokePayload](t, tt.raw, tt.quick)
	}
	for _, tt := range []struct {
		raw   string
		quick bool
	}{
		{`{"auth":{"scheme":"bearer","token":"t"},"client":{"kind":"k","version":"1","fingerprint":"f","principal":"p"},"capabilities":{}}`, true},
		{`{"auth":{"scheme":"none"},"client":{"kind":"k","version":"1"}}`, true},
		{`{"auth":{"scheme":"bearer","token":"t","more":1},"client":{"kind":"k","version":"1"}}`, false},
		{`{"auth":null,"client":{"kind":"k","version":"1"}}`, false},
		{`{"auth":{"scheme":"bearer","token":"t"},"client":{"kind":"k","version":"1"},"capabilities":{"streaming":true,"features":["ack"]}}`, true},
		{`{"auth":{"scheme":"bearer","token":"t"},"client":{"kind":"k","version":"1"},"capabilities":null}`, true},
		{`{"auth":{"scheme":"none"},"client":{"kind":"k","version":"1"},"capabilities":{"features":[ ],"streaming":false}}`, true},
		{`{"auth":{"scheme":"none"},"client":{"kind":"k","version":"1"},"capabilities":{"features":[ "a,b" , "]","" ]}}`, true},
		{`{"auth":{"scheme":"none"},"client":{"kind":"k","version":"1"},"capabilities":{"features":["a\u0063k"],"x":1}}`, true},
		{`{"auth":{"scheme":"none"},"client":{"kind":"k","version":"1"},"capabilities":{"features":[],"encodings":["json"]}}`, true},
		{`{"auth":{"scheme":"none"},"client":{"kind":"k","version":"1"},"capabilities":{"streaming":true,"ack_window":3}}`, true},
	} {
		agree[SessionOpenPayload](t, tt.raw, tt.quick)
	}
	for _, tt := range []struct {
		raw   string
		quick bool
	}{
		{`{"job_id":"job_1","agent":"a@1","lease":{},"budget":{"USD":5.00},"parent_job_id":"job_0","accepted_at":"2026-05-09T13:00:00.000001Z","trace_id":"t"}`, true},
		{`{"job_id":"job_1","lease":null,"accepted_at":"2026-05-09T13:00:00Z"}`, false},
		{`{"job_id":"job_1","accepted_at":null}`, false},
		{`{"job_id":"job_1","accepted_at":"2026-05-09T13:00:00Z","lease_constraints":{"expires_at":"2026-05-09T14:00:00Z"}}`, false},
	} {
		agree[JobAcceptedPayload](t, tt.raw, tt.quick)
	}
	for _, tt := range []struct {
		raw   string
		quick bool
	}{
		{`{"media_type":"text/plain","data":"aGVsbG8=","sha256":"00ff"}`, true},
		{`{"data":"","media_type":"a/b","size":18446744073709551615}`, true},
		{`{"data":"aGVsbG8\u003d","media_type":"a/b"}`, false},
		{`{"data":null,"media_type":"a/b"}`, false},
		{`{"data":"","media_type":"a/b","retain_seconds":7}`, false},
		{`{"data":"","media_type":"a/b","other":{"size":7}}`, false},
	} {
		agree[ArtifactPutPayload](t, tt.raw, tt.quick)
	}
	var p ArtifactPutPayload
	for _, size := range []string{"-1", "1e3", "18446744073709551616", `"7"`} {
		if p.decodeFast(Raw(`{"size":` + size + `}`)) {
			t.Errorf("size %s is read fast", size)
		}
	}
}

func agree[T any](t *testing.T, raw string, quick bool) {
	t.Helper()
	var p T
	if got := any(&p).(fastDecoder).decodeFast(Raw(raw)); got != quick {
		t.Errorf("%s: read fast: %v, want %v", raw, got, quick)
	}
	got, err := DecodePayload[T](&Envelope{Payload: Raw(raw)})
	if err != nil {
		t.Fatal(err)
	}
	var want T
	if err := Unmarshal([]byte(raw), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-reflection +got):\n%s", raw, d)
	}
}
