package arcp_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestSidecarHeader(t *testing.T) {
	h := arcp.SidecarHeader{Kind: arcp.SidecarStream, ID: "str_1", Sequence: 258}
	frame := append(h.Append(nil), "\x00\xff"...)
	if want := "\x01\x00\x00\x05str_1\x00\x00\x00\x00\x00\x00\x01\x02\x00\xff"; string(frame) != want {
		t.Errorf("frame = %q, want %q", frame, want)
	}
	got, content, err := arcp.ParseSidecar(frame)
	if err != nil || got != h || string(content) != "\x00\xff" || !arcp.IsSidecar(frame) {
		t.Errorf("ParseSidecar = %v, %q, %v", got, content, err)
	}
	for n := range len(frame) - 2 {
		if _, _, err := arcp.ParseSidecar(frame[:n]); err == nil {
			t.Errorf("the first %d bytes are a frame", n)
		}
	}
}

// A message announces a binary frame only by the members for it.
func TestAnnounces(t *testing.T) {
	for _, test := range []struct {
		t       arcp.Type
		payload string
		want    string // the header; "": none
		size    uint64
	}{
		{arcp.StreamChunk, `{"sequence":7,"encoding":"sidecar","size":3}`, "chunk 7 of stream str_1", 3},
		{arcp.StreamChunk, `{"sequence":7,"encoding":"sidecar"}`, "chunk 7 of stream str_1", 0},
		{arcp.StreamChunk, `{"sequence":7,"encoding":"base64","data":"sidecar"}`, "", 0},
		{arcp.StreamChunk, `{"sequence":7,"data":{"encoding":"sidecar"}}`, "", 0},
		{arcp.StreamChunk, `{"sequence":"x","encoding":"sidecar"}`, "", 0},
		{arcp.StreamChunk, `{"encoding":"sidecar","size":3,"sequence":"x"}`, "", 0},
		{arcp.StreamChunk, `{"encoding":"sidecar","sequence":7,"size":-5}`, "", 0},
		{arcp.ArtifactPut, `{"media_type":"a/b","data":"","encoding":"sidecar","length":9,"size":20}`, "the content of message msg_1", 9},
		{arcp.ArtifactPut, `{"media_type":"sidecar","data":""}`, "", 0},
		{arcp.ToolInvoke, `{"tool":"artifact.put","arguments":{"encoding":"sidecar","size":4}}`, "the content of message msg_1", 4},
		{arcp.ToolInvoke, `{"tool":"other","arguments":{"encoding":"sidecar","size":4}}`, "", 0},
		{arcp.ToolInvoke, `{"tool":"artifact.put","arguments":["sidecar"]}`, "", 0},
		{arcp.Log, `{"encoding":"sidecar"}`, "", 0},
	} {
		env := arcp.Envelope{ID: "msg_1", Type: test.t, StreamID: "str_1", Payload: arcp.Raw(test.payload)}
		a, ok := env.Announces()
		if ok != (test.want != "") || ok && (a.String() != test.want || a.Size != test.size) {
			t.Errorf("%s %s announces %s with %d bytes, %v; want %q", test.t, test.payload, a, a.Size, ok, test.want)
		}
	}
}

// A message and its binary frame are the same after they were sent.
func TestSidecarRoundTrip(t *testing.T) {
	for _, env := range []arcp.Envelope{
		arcp.Frame(arcp.StreamChunk, arcp.StreamChunkPayload{Sequence: 4, Encoding: arcp.EncodingSidecar, Size: 3, SHA256: "ab", Sidecar: []byte("\xff\x00x")}),
		arcp.Frame(arcp.ArtifactPut, arcp.ArtifactPutPayload{MediaType: "a/b", Encoding: arcp.EncodingSidecar, Length: 3, Sidecar: []byte("\xff\x00x")}),
		arcp.Frame(arcp.ArtifactPut, arcp.ArtifactPutPayload{MediaType: "a/b", Encoding: arcp.EncodingSidecar, Sidecar: []byte{}}),
	} {
		env.ARCP, env.ID, env.Timestamp, env.StreamID = arcp.Version, "msg_1", moment, "str_1"
		got, err := arcp.Decode(env.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		a, ok := got.Announces()
		if err := got.Attach(a, env.AppendSidecar(nil)); !ok || err != nil || !bytes.Equal(got.Sidecar, env.Sidecar) || got.Sidecar == nil {
			t.Errorf("%s: Attach: %v; the content is %q, want %q", env.Type, err, got.Sidecar, env.Sidecar)
		}
		inline := got
		inline.Inline()
		if _, ok := inline.Announces(); ok || inline.Sidecar != nil || len(env.Sidecar) > 0 && !strings.Contains(string(inline.Payload), `"data":"/wB4"`) {
			t.Errorf("%s: without binary frames the payload is %s", env.Type, inline.Payload)
		}
	}
}

func TestSidecarOfACall(t *testing.T) {
	env := arcp.Envelope{ID: "msg_1", Type: arcp.ToolInvoke, Payload: arcp.Raw(`{"priority":1.0,"tool":"artifact.put","arguments":{"more":true,"encoding":"sidecar","size":2,"offset":1.0}}`)}
	a, _ := env.Announces()
	frame := append(arcp.SidecarHeader{Kind: arcp.SidecarMessage, ID: "msg_1"}.Append(nil), "\xff\x00"...)
	if err := env.Attach(a, frame); err != nil || env.Sidecar != nil {
		t.Fatalf("Attach: %v", err)
	}
	if want := `{"arguments":{"data":"/wA=","more":true,"offset":1.0},"priority":1.0,"tool":"artifact.put"}`; string(env.Payload) != want {
		t.Errorf("payload = %s, want %s", env.Payload, want)
	}
}

func TestBytesOfChunks(t *testing.T) {
	for _, test := range []struct {
		kind    string
		payload arcp.StreamChunkPayload
		want    string // or a part of the error
		failed  bool
	}{
		{arcp.StreamText, arcp.StreamChunkPayload{Data: arcp.Raw(`"é"`)}, "é", false},
		{arcp.StreamBinary, arcp.StreamChunkPayload{Data: arcp.Raw(`"/w=="`), Encoding: "base64"}, "\xff", false},
		{arcp.StreamBinary, arcp.StreamChunkPayload{Data: arcp.Raw(`"?"`)}, "illegal base64", true},
		{arcp.StreamBinary, arcp.StreamChunkPayload{Data: arcp.Raw(`{}`)}, "is a string", true},
		{arcp.StreamBinary, arcp.StreamChunkPayload{Encoding: "sidecar", Sidecar: []byte{0xff}}, "\xff", false},
		{arcp.StreamBinary, arcp.StreamChunkPayload{Encoding: "sidecar"}, "has not negotiated", true},
		{arcp.StreamText, arcp.StreamChunkPayload{Encoding: "sidecar", Sidecar: []byte{'x'}}, "only the chunks of binary streams", true},
	} {
		got, err := test.payload.Bytes(test.kind)
		if failed := err != nil; failed != test.failed || failed && !strings.Contains(err.Error(), test.want) || !failed && string(got) != test.want {
			t.Errorf("Bytes of %s chunk %+v = %q, %v; want %q", test.kind, test.payload, got, err, test.want)
		}
	}
}

// FuzzParseSidecar checks that a parsed frame is made of its header and its content.
func FuzzParseSidecar(f *testing.F) {
	for _, h := range []arcp.SidecarHeader{
		{Kind: arcp.SidecarStream, ID: "str_1", Sequence: 1<<64 - 1},
		{Kind: arcp.SidecarMessage, ID: "msg_1"},
		{Kind: arcp.SidecarStream, ID: strings.Repeat("x", arcp.MaxIDLen)},
	} {
		f.Add(append(h.Append(nil), "content"...))
	}
	f.Add([]byte("\x01\x00\xff\xffx"))
	f.Add([]byte("\x01\x02\x00\x01x12345678"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, content, err := arcp.ParseSidecar(frame)
		if err != nil {
			return
		}
		if again := append(h.Append(nil), content...); !bytes.Equal(again, frame) {
			t.Fatalf("%q is parsed as %v and %q, which are %q", frame, h, content, again)
		}
		if !arcp.IsSidecar(frame) || !arcp.ValidID(h.ID) {
			t.Fatalf("%q has the id %q", frame, h.ID)
		}
	})
}

// FuzzAttach checks that no payload makes a message accept a frame that differs from the announced one, and that
// the payload stays an object.
func FuzzAttach(f *testing.F) {
	for _, payload := range []string{`{"sequence":1,"encoding":"sidecar","size":1}`, `{"media_type":"a","data":"","encoding":"sidecar","length":1}`,
		`{"tool":"artifact.put","arguments":{"encoding":"sidecar","size":1}}`, `{"tool":"artifact.put","arguments":null,"x":"sidecar"}`} {
		f.Add([]byte(payload), "x")
	}
	f.Fuzz(func(t *testing.T, payload []byte, content string) {
		for _, typ := range []arcp.Type{arcp.StreamChunk, arcp.ArtifactPut, arcp.ToolInvoke} {
			env := arcp.Envelope{ARCP: arcp.Version, ID: "msg_1", Type: typ, Timestamp: moment, StreamID: "str_1", Payload: payload}
			decoded, err := arcp.Decode(env.Append(nil))
			if err != nil {
				return
			}
			a, ok := decoded.Announces()
			if !ok {
				continue
			}
			frame := append(a.SidecarHeader.Append(nil), content...)
			if err := decoded.Attach(a, frame); (err == nil) != (a.Size == uint64(len(content))) {
				t.Fatalf("%s: a frame of %d bytes for %d announced ones: %v", payload, len(content), a.Size, err)
			}
			if decoded.Payload.Kind() != '{' {
				t.Fatalf("the payload is %s", decoded.Payload)
			}
		}
	})
}
