package runtime_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// binaryContent returns n bytes that are no text.
func binaryContent(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// contentTool writes content to a binary stream, and pauses after the first half until proceed is closed.
func contentTool(content []byte, proceed <-chan struct{}) *tool.Tool {
	return tool.MustNew(tool.Capability{Name: "content"}, func(ctx context.Context, job tool.Job, _ struct{}) (any, error) {
		st, err := job.OpenStream(tool.StreamOptions{Kind: arcp.StreamBinary, ContentType: `text/"quoted"`})
		if err != nil {
			return nil, err
		}
		if _, err := st.Write(content[:len(content)/2]); err != nil {
			return nil, err
		}
		select {
		case <-proceed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if _, err := st.Write(content[len(content)/2:]); err != nil {
			return nil, err
		}
		return nil, st.Close()
	})
}

// socketPeer is the client end of a WebSocket.
type socketPeer struct {
	*testing.T
	conn transport.BinaryConn
	sent int
}

func (s *server) connect(t *testing.T) *socketPeer {
	t.Helper()
	conn, err := transport.Dial(t.Context(), s.url, transport.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Abort() })
	return &socketPeer{T: t, conn: conn.(transport.BinaryConn)}
}

// openSidecar opens a session with binary frames, or another list of encodings.
func (s *server) openSidecar(t *testing.T, encodings string) (p *socketPeer, accepted arcp.Envelope) {
	t.Helper()
	p = s.connect(t)
	p.conn.AcceptBinary()
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},`+
		`"capabilities":{"streaming":true,"artifacts":true,"ack":true,"binary_encoding":%s}}`, token, encodings), "")
	return p, p.expect(arcp.SessionAccepted)
}

// send sends a text frame with more members, and returns its id.
func (p *socketPeer) send(typ arcp.Type, payload, members string) string {
	p.Helper()
	p.sent++
	id := fmt.Sprintf("msg_%d", p.sent)
	frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"timestamp":"2030-01-02T15:04:05Z",%s"payload":%s}`, id, typ, members, payload)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
	return id
}

func (p *socketPeer) sendBinary(h arcp.SidecarHeader, content string) {
	p.Helper()
	if err := errors.Join(p.conn.WriteBinary(append(h.Append(nil), content...)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
}

// read reads an envelope, and the binary frame that it announces.
func (p *socketPeer) read() arcp.Envelope {
	p.Helper()
	frame, err := p.conn.Read()
	if err != nil {
		p.Fatal(err)
	}
	if p.conn.Binary() {
		p.Fatalf("no message announces the binary frame %q", frame[:min(len(frame), 100)])
	}
	env, err := arcp.Decode(frame)
	if err != nil {
		p.Fatal(err)
	}
	announced, ok := env.Announces()
	if !ok {
		return env
	}
	frame, err = p.conn.Read()
	if err != nil || !p.conn.Binary() {
		p.Fatalf("%s is followed by %q, %v; want a binary frame", env.Type, frame, err)
	}
	if err := env.Attach(announced, frame); err != nil {
		p.Fatal(err)
	}
	return env
}

// expect reads up to a frame of a type.
func (p *socketPeer) expect(t arcp.Type) arcp.Envelope {
	p.Helper()
	for {
		if env := p.read(); env.Type == t {
			return env
		}
	}
}

// answer reads up to the answer to a message.
func (p *socketPeer) answer(id string) arcp.Envelope {
	p.Helper()
	for {
		if env := p.read(); string(env.CorrelationID) == id {
			return env
		}
	}
}

// expectFor reads up to a frame of a type that answers a message.
func (p *socketPeer) expectFor(t arcp.Type, id string) arcp.Envelope {
	p.Helper()
	for {
		if env := p.expect(t); string(env.CorrelationID) == id {
			return env
		}
	}
}

// collect starts a job that collects streams of the client, and returns its id.
func (p *socketPeer) collect() arcp.JobID {
	p.Helper()
	p.send(arcp.ToolInvoke, `{"tool":"demo.collect","arguments":{}}`, "")
	return p.expect(arcp.JobAccepted).JobID
}

// openStream opens a stream to a job.
func (p *socketPeer) openStream(job arcp.JobID, stream, kind string) {
	p.Helper()
	id := p.send(arcp.StreamOpen, fmt.Sprintf(`{"kind":%q}`, kind), fmt.Sprintf(`"job_id":%q,"stream_id":%q,`, job, stream))
	if env := p.answer(id); env.Type != arcp.Ack {
		p.Fatalf("stream.open is answered with %s %s", env.Type, env.Payload)
	}
}

func chunkPayload(sequence, size int) string {
	return fmt.Sprintf(`{"sequence":%d,"encoding":"sidecar","size":%d}`, sequence, size)
}

func streamHeader(stream string, sequence uint64) arcp.SidecarHeader {
	return arcp.SidecarHeader{Kind: arcp.SidecarStream, ID: stream, Sequence: sequence}
}

func messageHeader(id string) arcp.SidecarHeader {
	return arcp.SidecarHeader{Kind: arcp.SidecarMessage, ID: id}
}

// Binary frames are offered where the transport has them, and used if the client lists them.
func TestSidecarIsNegotiated(t *testing.T) {
	s := start(t, memory(t), nil)
	for encodings, used := range map[string]bool{`["base64","sidecar"]`: true, `["base64"]`: false, `[]`: false} {
		_, accepted := s.openSidecar(t, encodings)
		text := string(accepted.Payload)
		if !strings.Contains(text, `"binary_encoding":["base64","sidecar"]`) || strings.Contains(text, `"binary_streams":true`) != used {
			t.Errorf("a client that lists %s is accepted with %s", encodings, text)
		}
	}
	p := s.connect(t)
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},"capabilities":{"required":["binary_streams"]}}`, token), "")
	if e := refusal(t, p.expect(arcp.SessionRejected)); e.Code != arcp.CodeUnimplemented || !strings.Contains(e.Message, "must list sidecar") {
		t.Errorf("binary_streams without sidecar: %v", e)
	}
	inBubble(t, nil, func(f *fixture) {
		p := f.connect(nil)
		p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},"capabilities":{"binary_encoding":["sidecar"]}}`, token))
		text := string(p.expect(arcp.SessionAccepted).Payload)
		if !strings.Contains(text, `"binary_encoding":["base64"]`) || strings.Contains(text, `"binary_streams":true`) {
			t.Errorf("a connection without binary frames is accepted with %s", text)
		}
	})
}

// Followers with and without binary frames, and the feed of the principal, see the same bytes.
func TestSidecarIsAViewOfTheStream(t *testing.T) {
	content, proceed := binaryContent(5<<16+7), make(chan struct{})
	close(proceed)
	s := start(t, memory(t), nil)
	if err := s.AddTool(contentTool(content, proceed)); err != nil {
		t.Fatal(err)
	}
	var sidecars [2]atomic.Int32
	var readers [2]*client.StreamReader
	dial := func(n int) *client.Client {
		c, err := client.Dial(t.Context(), s.url, client.Options{NoSidecar: n == 1, Auth: client.Auth{Token: "alice-" + token},
			OnEnvelope: func(env *arcp.Envelope) bool {
				if env.Sidecar != nil {
					sidecars[n].Add(1)
				}
				return false
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Abort)
		return c
	}
	a, b := dial(0), dial(1)
	feed, err := b.SubscribeFeed(t.Context(), client.SubscribeFeedParams{})
	if err != nil {
		t.Fatal(err)
	}
	job, err := a.Invoke(t.Context(), client.InvokeParams{Tool: "content"})
	if err != nil {
		t.Fatal(err)
	}
	followed, err := b.SubscribeJob(t.Context(), client.SubscribeJobParams{JobID: job.ID(), History: true})
	if err != nil {
		t.Fatal(err)
	}
	readers[0], readers[1] = job.ReadStream(t.Context(), ""), followed.ReadStream(t.Context(), "")
	for n, r := range readers {
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, content) || r.Stream().ContentType != `text/"quoted"` {
			t.Errorf("follower %d reads %d bytes, %v; want %d", n, len(got), err, len(content))
		}
		if used := sidecars[n].Load() > 0; used != (n == 0) {
			t.Errorf("follower %d has %d binary frames", n, sidecars[n].Load())
		}
	}
	var streams client.Streams
	var fed []byte
	for ev, err := range feed.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		st, data, err := streams.Receive(&ev)
		if err != nil {
			t.Fatal(err)
		}
		if fed = append(fed, data...); st != nil && st.Ended {
			break
		}
	}
	if !bytes.Equal(fed, content) {
		t.Errorf("the feed has %d bytes, want %d", len(fed), len(content))
	}
}

// keptStore is a store that outlives its runtime.
type keptStore struct{ store.Store }

func (keptStore) Close() error { return nil }

// A session that is resumed in the middle of a stream, also on a new runtime, goes on with binary frames. An
// event that is sent again is the same.
func TestSidecarAfterResume(t *testing.T) {
	content, proceed := binaryContent(6<<16), make(chan struct{})
	st := keptStore{memory(t)}
	begin := func() *server {
		s := start(t, st, nil)
		if err := s.AddTool(contentTool(content, proceed)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := begin()
	p, accepted := s.openSidecar(t, `["sidecar"]`)
	p.send(arcp.ToolInvoke, `{"tool":"content"}`, "")
	first := p.expect(arcp.StreamChunk)
	p.expect(arcp.StreamChunk)
	_ = p.conn.Abort() // as a lost connection

	resume := func(s *server, accepted arcp.Envelope) (*socketPeer, arcp.Envelope) {
		p := s.connect(t)
		p.conn.AcceptBinary()
		p.send(arcp.SessionResume, fmt.Sprintf(`{"resume_token":%q,"last_event_seq":%d}`, resumeToken(t, accepted), first.EventSeq-1),
			fmt.Sprintf(`"session_id":%q,`, accepted.SessionID))
		return p, p.expect(arcp.SessionResumed)
	}
	p, resumed := resume(s, accepted)
	got := []byte{}
	for n := range 3 {
		chunk := p.expect(arcp.StreamChunk)
		if chunk.Sidecar == nil || n == 0 && (!bytes.Equal(chunk.Sidecar, first.Sidecar) || chunk.ID != first.ID || !bytes.Equal(chunk.Payload, first.Payload)) {
			t.Fatalf("chunk %d after the resume is %s with %d bytes", n, chunk.Payload, len(chunk.Sidecar))
		}
		got = append(got, chunk.Sidecar...)
	}
	close(proceed)
	for range 3 {
		got = append(got, p.expect(arcp.StreamChunk).Sidecar...)
	}
	if !bytes.Equal(got, content) {
		t.Error("the content after the resume differs")
	}
	p.expect(arcp.JobCompleted)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, _ = resume(begin(), resumed)
	got = got[:0]
	for range 6 {
		got = append(got, p.expect(arcp.StreamChunk).Sidecar...)
	}
	if !bytes.Equal(got, content) {
		t.Error("the content after the restart differs")
	}
}

// The chunks of two streams of a client may be interleaved, with binary frames and with base64.
func TestClientSidecarsInterleave(t *testing.T) {
	s := start(t, memory(t), nil)
	p, _ := s.openSidecar(t, `["sidecar"]`)
	for _, id := range []string{"str_a", "str_b"} {
		p.openStream(p.collect(), id, arcp.StreamBinary)
	}
	for n := range 3 {
		for _, id := range []string{"str_a", "str_b"} {
			text := fmt.Sprintf("\xff%s%d", id, n)
			request := p.send(arcp.StreamChunk, chunkPayload(n, len(text)), fmt.Sprintf(`"stream_id":%q,`, id))
			p.sendBinary(streamHeader(id, uint64(n)), text)
			if env := p.answer(request); env.Type != arcp.Ack {
				t.Fatalf("chunk %d is answered with %s %s", n, env.Type, env.Payload)
			}
		}
	}
	request := p.send(arcp.StreamChunk, `{"sequence":3,"data":"/w=="}`, `"stream_id":"str_a",`)
	if env := p.answer(request); env.Type != arcp.Ack {
		t.Fatalf("a chunk in base64 is answered with %s %s", env.Type, env.Payload)
	}
	for id, last := range map[string]int{"str_a": 3, "str_b": 2} {
		p.send(arcp.StreamClose, fmt.Sprintf(`{"final_sequence":%d}`, last), fmt.Sprintf(`"stream_id":%q,`, id))
		var content strings.Builder
		for n := range 3 {
			fmt.Fprintf(&content, "\xff%s%d", id, n)
		}
		if last == 3 {
			content.WriteString("\xff")
		}
		sum := sha256.Sum256([]byte(content.String()))
		if env := p.expect(arcp.JobCompleted); !strings.Contains(string(env.Payload), hex.EncodeToString(sum[:])) {
			t.Errorf("the tool has read %s of %s, want %q", env.Payload, id, content.String())
		}
	}
}

// A binary frame that differs from the announced one refuses the message, which can be sent again.
func TestSidecarMismatch(t *testing.T) {
	s := start(t, memory(t), nil)
	p, _ := s.openSidecar(t, `["sidecar"]`)
	job := p.collect()
	p.openStream(job, "str_a", arcp.StreamBinary)
	for name, test := range map[string]struct {
		header  arcp.SidecarHeader
		content string
		want    string
	}{
		"stream":   {streamHeader("str_b", 0), "abc", "the binary frame has chunk 0 of stream str_b; the message announces chunk 0 of stream str_a"},
		"sequence": {streamHeader("str_a", 1), "abc", "the message announces chunk 0 of stream str_a"},
		"kind":     {messageHeader("str_a"), "abc", "the binary frame has the content of message str_a"},
		"short":    {streamHeader("str_a", 0), "ab", "has 2 bytes; the message announces 3"},
		"long":     {streamHeader("str_a", 0), "abcd", "has 4 bytes; the message announces 3"},
		"empty":    {streamHeader("str_a", 0), "", "has 0 bytes; the message announces 3"},
	} {
		request := p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
		p.sendBinary(test.header, test.content)
		if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument || !strings.Contains(e.Message, test.want) {
			t.Errorf("%s: %v, want %s", name, e, test.want)
		}
	}
	for frame, want := range map[string]string{"": "shorter", "\x01\x00": "shorter", "\x02\x00\x00\x01a12345678": "begins with 0x02",
		"\x01\x07\x00\x01a12345678": "unknown kind 7", "\x01\x00\x00\x0512345678": "shorter", "\x01\x00\x00\x01 12345678": "visible ASCII"} {
		request := p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
		if err := errors.Join(p.conn.WriteBinary([]byte(frame)), p.conn.Flush()); err != nil {
			t.Fatal(err)
		}
		if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument || !strings.Contains(e.Message, want) {
			t.Errorf("%q: %v, want %s", frame, e, want)
		}
	}
	for name, test := range map[string]struct {
		t             arcp.Type
		payload, want string
	}{
		"data of a chunk":     {arcp.StreamChunk, `{"sequence":0,"encoding":"sidecar","size":3,"data":"YWJj"}`, "has no data"},
		"data of an artifact": {arcp.ArtifactPut, `{"media_type":"a/b","encoding":"sidecar","length":3,"data":"YWJj"}`, "has no data"},
		"data of a call":      {arcp.ToolInvoke, `{"tool":"artifact.put","arguments":{"encoding":"sidecar","size":3,"data":"YWJj"}}`, "has no data"},
		"large payload":       {arcp.ArtifactPut, `{"media_type":"a/b","encoding":"sidecar","length":3,"data":"","x":"` + strings.Repeat("x", 64<<10) + `"}`, "may have a payload of 65536 bytes"},
		"large call":          {arcp.ToolInvoke, `{"tool":"artifact.put","arguments":{"encoding":"sidecar","size":1048577}}`, "may have 1048576 bytes of content"},
	} {
		request := p.send(test.t, test.payload, `"stream_id":"str_a",`)
		header := messageHeader(request)
		if test.t == arcp.StreamChunk {
			header = streamHeader("str_a", 0)
		}
		p.sendBinary(header, "abc")
		if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument || !strings.Contains(e.Message, test.want) {
			t.Errorf("%s: %v, want %s", name, e, test.want)
		}
	}
	p.sent-- // the same id: a refused message counts as not sent
	request := p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
	p.sendBinary(streamHeader("str_a", 0), "abc")
	if env := p.answer(request); env.Type != arcp.Ack {
		t.Errorf("the repeated chunk is answered with %s %s", env.Type, env.Payload)
	}
}

// A text frame in the place of a binary one refuses the message, and is handled. The late binary frame is
// refused without a message.
func TestSidecarIsMissing(t *testing.T) {
	s := start(t, memory(t), nil)
	p, accepted := s.openSidecar(t, `["sidecar"]`)
	p.openStream(p.collect(), "str_a", arcp.StreamBinary)
	request := p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
	ping := p.send(arcp.Ping, "{}", "")
	p.sendBinary(streamHeader("str_a", 0), "abc")
	if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument || !strings.Contains(e.Message, "a text frame follows") {
		t.Errorf("a missing binary frame: %v", e)
	}
	if env := p.answer(ping); env.Type != arcp.Pong {
		t.Errorf("the text frame is answered with %s", env.Type)
	}
	env := p.expect(arcp.Nack)
	if e := refusal(t, env); e.Code != arcp.CodeInvalidArgument || env.StreamID != "str_a" || env.CorrelationID != "" {
		t.Errorf("a late binary frame: %v about %q", e, env.StreamID)
	}
	p.sendBinary(messageHeader("msg_late"), "abc")
	if env := p.expect(arcp.Nack); env.CorrelationID != "msg_late" {
		t.Errorf("a late binary frame of a message is refused for %q", env.CorrelationID)
	}
	request = p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`) // an announcement follows an announcement
	again := p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
	p.sendBinary(streamHeader("str_a", 0), "abc")
	if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument {
		t.Errorf("a message between: %v", e)
	}
	if env := p.answer(again); env.Type != arcp.Ack {
		t.Errorf("the second announcement is answered with %s %s", env.Type, env.Payload)
	}
	request = p.send(arcp.StreamChunk, chunkPayload(1, 3), `"stream_id":"str_a",`)
	p.send(arcp.SessionAck, `{"last_processed_seq":1}`, fmt.Sprintf(`"session_id":%q,`, accepted.SessionID)) // is not queued like other messages
	p.sendBinary(streamHeader("str_a", 1), "abc")
	if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument {
		t.Errorf("an acknowledgement between: %v", e)
	}
}

// 100 binary frames in a row that nothing announces end the connection, as other malformed frames do.
func TestManyUnannouncedSidecars(t *testing.T) {
	s := start(t, memory(t), nil)
	p, _ := s.openSidecar(t, `["sidecar"]`)
	for range 100 {
		p.sendBinary(streamHeader("str_a", 0), "abc")
	}
	for {
		_, err := p.conn.Read()
		if err == nil {
			continue
		}
		if te, ok := errors.AsType[*transport.Error](err); !ok || te.Code != transport.ClosePolicy {
			t.Errorf("the connection ends with %v, want %d", err, transport.ClosePolicy)
		}
		return
	}
}

// A client that announces a binary frame and sends nothing more delays only itself: its session is resumed, and
// the chunk is sent again.
func TestSidecarNeverComes(t *testing.T) {
	s := start(t, memory(t), nil)
	p, accepted := s.openSidecar(t, `["sidecar"]`)
	p.openStream(p.collect(), "str_a", arcp.StreamBinary)
	p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
	other, _ := s.openSidecar(t, `["sidecar"]`)
	if env := other.answer(other.send(arcp.Ping, "{}", "")); env.Type != arcp.Pong {
		t.Errorf("another session is answered with %s", env.Type)
	}
	_ = p.conn.Abort() // as a lost connection
	p = s.connect(t)
	p.conn.AcceptBinary()
	p.send(arcp.SessionResume, fmt.Sprintf(`{"resume_token":%q,"last_event_seq":0}`, resumeToken(t, accepted)), fmt.Sprintf(`"session_id":%q,`, accepted.SessionID))
	p.expect(arcp.SessionResumed)
	p.sent = 1000
	request := p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
	p.sendBinary(streamHeader("str_a", 0), "abc")
	if env := p.answer(request); env.Type != arcp.Ack {
		t.Errorf("the repeated chunk is answered with %s %s", env.Type, env.Payload)
	}
}

// Without negotiation a binary frame ends the connection, and a message that announces one is refused.
func TestSidecarWithoutNegotiation(t *testing.T) {
	s := start(t, memory(t), nil)
	p, _ := s.openSidecar(t, `["base64"]`)
	p.openStream(p.collect(), "str_a", arcp.StreamBinary)
	requests := []string{
		p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`),
		p.send(arcp.ArtifactPut, `{"media_type":"text/plain","data":"","encoding":"sidecar","length":3}`, ""),
	}
	for _, request := range requests {
		if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument || !strings.Contains(e.Message, "has not negotiated") {
			t.Errorf("an announcement without negotiation: %v", e)
		}
	}
	call := p.send(arcp.ToolInvoke, `{"tool":"artifact.put","arguments":{"media_type":"text/plain","encoding":"sidecar","size":3}}`, "")
	if e := refusal(t, p.expectFor(arcp.JobFailed, call)); e.Code != arcp.CodeInvalidArgument {
		t.Errorf("a call without negotiation: %v", e)
	}
	p.sendBinary(streamHeader("str_a", 0), "abc")
	_, err := p.conn.Read()
	if te, ok := errors.AsType[*transport.Error](err); !ok || te.Code != transport.CloseNotText {
		t.Errorf("the connection ends with %v, want %d", err, transport.CloseNotText)
	}
}

// Only a binary stream has binary frames.
func TestSidecarOfATextStream(t *testing.T) {
	s := start(t, memory(t), nil)
	p, _ := s.openSidecar(t, `["sidecar"]`)
	p.openStream(p.collect(), "str_a", arcp.StreamText)
	request := p.send(arcp.StreamChunk, chunkPayload(0, 3), `"stream_id":"str_a",`)
	p.sendBinary(streamHeader("str_a", 0), "abc")
	if e := refusal(t, p.answer(request)); e.Code != arcp.CodeInvalidArgument || !strings.Contains(e.Message, "only the chunks of binary streams") {
		t.Errorf("a binary frame of a text stream: %v", e)
	}
}

// artifact.put, a call of artifact.put, and the answer to artifact.fetch have their content in binary frames.
func TestSidecarOfArtifacts(t *testing.T) {
	s := start(t, memory(t), nil)
	p, _ := s.openSidecar(t, `["sidecar"]`)
	id := p.send(arcp.ArtifactPut, `{"media_type":"text/plain","data":"","encoding":"sidecar","length":5}`, "")
	p.sendBinary(messageHeader(id), "hello")
	var ref arcp.ArtifactRefPayload
	answer := p.answer(id)
	if err := arcp.Unmarshal(answer.Payload, &ref); err != nil || ref.Size != 5 {
		t.Fatalf("artifact.put is answered with %s %s", answer.Type, answer.Payload)
	}
	answer = p.answer(p.send(arcp.ArtifactFetch, fmt.Sprintf(`{"artifact_id":%q}`, ref.ArtifactID), ""))
	if string(answer.Sidecar) != "hello" || !strings.Contains(string(answer.Payload), `"data":"","sha256":"2cf24dba`) {
		t.Errorf("artifact.fetch is answered with %s %s, %q", answer.Type, answer.Payload, answer.Sidecar)
	}
	answer = p.answer(p.send(arcp.ArtifactFetch, fmt.Sprintf(`{"artifact_id":%q,"offset":1,"length":2}`, ref.ArtifactID), ""))
	if string(answer.Sidecar) != "el" || !strings.Contains(string(answer.Payload), `"size":5,"encoding":"sidecar","length":2`) {
		t.Errorf("a part is answered with %s %s, %q", answer.Type, answer.Payload, answer.Sidecar)
	}
	answer = p.answer(p.send(arcp.ArtifactFetch, fmt.Sprintf(`{"artifact_id":%q,"offset":5}`, ref.ArtifactID), ""))
	if answer.Sidecar == nil || len(answer.Sidecar) > 0 {
		t.Errorf("the part behind the end is %s with %d bytes", answer.Payload, len(answer.Sidecar))
	}
	id = p.send(arcp.ToolInvoke, `{"tool":"artifact.put","arguments":{"media_type":"text/plain","encoding":"sidecar","size":5}}`, "")
	p.sendBinary(messageHeader(id), "hello")
	if env := p.expect(arcp.JobCompleted); !strings.Contains(string(env.Payload), `"sha256":"2cf24dba`) {
		t.Errorf("a call of artifact.put ends with %s", env.Payload)
	}
	id = p.send(arcp.ArtifactPut, `{"media_type":"text/plain","data":"","encoding":"sidecar","length":4194305}`, "")
	p.sendBinary(messageHeader(id), strings.Repeat("x", 4<<20+1))
	if e := refusal(t, p.answer(id)); e.Code != arcp.CodeInvalidArgument {
		t.Errorf("more than 4 MiB: %v", e)
	}
}

// A client stores and reads artifacts with and without binary frames.
func TestClientArtifactsWithAndWithoutSidecars(t *testing.T) {
	s := start(t, memory(t), nil)
	for _, without := range []bool{false, true} {
		c, err := client.Dial(t.Context(), s.url, client.Options{NoSidecar: without, Auth: client.Auth{Token: "alice-" + token}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Abort)
		for _, size := range []int{0, 1, 1 << 20, 4 << 20, 4<<20 + 1, 6 << 20} {
			content := binaryContent(size)
			ref, err := c.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "image/png", Content: bytes.NewReader(content)})
			if err != nil || ref.Size != uint64(size) {
				t.Fatalf("Put of %d bytes = %+v, %v", size, ref, err)
			}
			r, err := c.Artifacts().Get(t.Context(), ref.ArtifactID)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
				t.Errorf("Get of %d bytes = %d bytes, %v", size, len(got), err)
			}
			if size > 4<<20 {
				continue
			}
			if got, err := c.Artifacts().Fetch(t.Context(), ref.ArtifactID); err != nil || !bytes.Equal(got.Content, content) {
				t.Errorf("Fetch of %d bytes = %d bytes, %v", size, len(got.Content), err)
			}
		}
	}
}

// writeToJob writes content to a job that collects it, in chunks of 64 KiB.
func writeToJob(t testing.TB, c *client.Client, content []byte) {
	t.Helper()
	job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.collect", Arguments: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := job.OpenStream(t.Context(), arcp.StreamOpenPayload{Kind: arcp.StreamBinary})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	res, err := job.Wait(t.Context())
	sum := sha256.Sum256(content)
	if err != nil || !strings.Contains(string(res.Value), hex.EncodeToString(sum[:])) {
		t.Fatalf("the tool has read %s, %v", res.Value, err)
	}
}

// A client writes a binary stream with and without binary frames.
func TestClientStreamsWithAndWithoutSidecars(t *testing.T) {
	s := start(t, memory(t), nil)
	for _, without := range []bool{false, true} {
		c, err := client.Dial(t.Context(), s.url, client.Options{NoSidecar: without, Auth: client.Auth{Token: "alice-" + token}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Abort)
		writeToJob(t, c, binaryContent(5<<16+1))
	}
}
