package tool_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func openStream(t *testing.T, job *tooltest.Job, kind string) *tool.Stream {
	t.Helper()
	st, err := job.Job().OpenStream(tool.StreamOptions{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// A text is cut between runes, however it is written, and its chunks are bounded.
func TestTextStreamCutsBetweenRunes(t *testing.T) {
	text := []byte(strings.Repeat("añ€😀", 3*tool.MaxStreamChunk/10))
	for _, size := range []int{1, 2, 3, 7, tool.MaxStreamChunk, len(text)} {
		job := tooltest.New(tooltest.Script{})
		st := openStream(t, job, "")
		for rest := text; len(rest) > 0; {
			n, err := st.Write(rest[:min(size, len(rest))])
			if err != nil || n != min(size, len(rest)) {
				t.Fatalf("Write = %d, %v", n, err)
			}
			rest = rest[n:]
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		got := job.Record().Streams[0]
		if !bytes.Equal(got.Content(), text) {
			t.Errorf("in parts of %d bytes: the text has changed", size)
		}
		for _, c := range got.Chunks {
			if len(c.Data) > tool.MaxStreamChunk+2 {
				t.Errorf("a chunk of %d bytes", len(c.Data))
			}
		}
	}
}

// Bytes that are no UTF-8 are replaced, and also the beginning of a rune that never ends.
func TestTextStreamReplacesInvalidBytes(t *testing.T) {
	job := tooltest.New(tooltest.Script{})
	st := openStream(t, job, arcp.StreamText)
	for _, part := range []string{"a\xff", "b\xe2\x82"} {
		if _, err := st.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	stream := job.Record().Streams[0]
	if got := string(stream.Content()); got != "a\uFFFDb\uFFFD" {
		t.Errorf("%q", got)
	}
}

// The replacements are longer than the bytes, and the chunks are bounded all the same.
func TestChunksOfInvalidBytesAreBounded(t *testing.T) {
	job := tooltest.New(tooltest.Script{})
	st := openStream(t, job, arcp.StreamText)
	text := bytes.Repeat([]byte("a\xff"), tool.MaxStreamChunk)
	if n, err := st.Write(text); err != nil || n != len(text) {
		t.Fatalf("Write = %d, %v", n, err)
	}
	got := job.Record().Streams[0]
	if string(got.Content()) != strings.Repeat("a\uFFFD", tool.MaxStreamChunk) {
		t.Error("the text has changed")
	}
	for _, c := range got.Chunks {
		if len(c.Data) > tool.MaxStreamChunk+2 {
			t.Errorf("a chunk of %d bytes", len(c.Data))
		}
	}
}

func TestBinaryStream(t *testing.T) {
	content := bytes.Repeat([]byte{0, 1, 2, 0xff}, tool.MaxStreamChunk/3)
	job := tooltest.New(tooltest.Script{})
	st := openStream(t, job, arcp.StreamBinary)
	if n, err := st.Write(content); n != len(content) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
	stream := job.Record().Streams[0]
	if !bytes.Equal(stream.Content(), content) {
		t.Error("the content has changed")
	}
	if c := stream.Chunks[0]; c.Size != tool.MaxStreamChunk || c.Encoding != "base64" || c.ContentType != "application/octet-stream" {
		t.Errorf("the first chunk has %d bytes, encoding %q, content type %q", c.Size, c.Encoding, c.ContentType)
	}
}

// A redacted thought is a chunk like others. Its text is both in data and in content.
func TestThoughtStream(t *testing.T) {
	job := tooltest.New(tooltest.Script{})
	st := openStream(t, job, arcp.StreamThought)
	for _, thought := range []tool.Thought{{Role: "assistant_thought", Text: "hm"}, {Redacted: true}} {
		if err := st.WriteThought(thought); err != nil {
			t.Fatal(err)
		}
	}
	chunks := job.Record().Streams[0].Chunks
	if c := chunks[0]; string(c.Data) != `"hm"` || c.Content != "hm" || c.Role != "assistant_thought" || c.Redacted {
		t.Errorf("%+v", c)
	}
	if c := chunks[1]; string(c.Data) != `""` || !c.Redacted {
		t.Errorf("%+v, want a redacted chunk without content", c)
	}
}

// What does not fit the kind of a stream is refused, and no chunk follows from it.
func TestStreamRefusals(t *testing.T) {
	job := tooltest.New(tooltest.Script{})
	text, events, thoughts := openStream(t, job, arcp.StreamText), openStream(t, job, arcp.StreamEvents), openStream(t, job, arcp.StreamThought)
	_, badKind := job.Job().OpenStream(tool.StreamOptions{Kind: "video"})
	_, longName := job.Job().OpenStream(tool.StreamOptions{Name: strings.Repeat("x", 300)})
	_, wrongWrite := events.Write([]byte("{}"))
	for why, c := range map[string]struct {
		err  error
		code arcp.Code
	}{
		"unknown kind":       {badKind, arcp.CodeInvalidArgument},
		"long name":          {longName, arcp.CodeInvalidArgument},
		"text for events":    {wrongWrite, arcp.CodeFailedPrecondition},
		"event for text":     {text.WriteJSON(map[string]int{}), arcp.CodeFailedPrecondition},
		"thought for text":   {text.WriteThought(tool.Thought{}), arcp.CodeFailedPrecondition},
		"event is no object": {events.WriteJSON([]int{1}), arcp.CodeInvalidArgument},
		"event is nothing":   {events.WriteJSON(nil), arcp.CodeInvalidArgument},
		"invalid JSON":       {events.WriteJSON(arcp.Raw("{")), arcp.CodeInvalidArgument},
		"long thought":       {thoughts.WriteThought(tool.Thought{Text: strings.Repeat("x", tool.MaxStreamChunk+1)}), arcp.CodeInvalidArgument},
	} {
		if e, ok := errors.AsType[*arcp.Error](c.err); !ok || e.Code != c.code {
			t.Errorf("%s: %v, want %s", why, c.err, c.code)
		}
	}
	for _, st := range job.Record().Streams {
		if len(st.Chunks) > 0 {
			t.Errorf("the stream of the kind %s has %d chunks", st.Kind, len(st.Chunks))
		}
	}
}

// A stream ends with the error of CloseWithError, once.
func TestStreamCloseWithError(t *testing.T) {
	for _, c := range []struct {
		err  error
		code arcp.Code
	}{{arcp.Errorf(arcp.CodeDataLoss, "lost"), arcp.CodeDataLoss}, {errors.New("other"), arcp.CodeUnknown}} {
		job := tooltest.New(tooltest.Script{})
		st := openStream(t, job, "")
		if err := st.CloseWithError(c.err); err != nil {
			t.Fatal(err)
		}
		if got := job.Record().Streams[0].Err; got == nil || got.Code != c.code {
			t.Errorf("%v ends the stream with %v", c.err, got)
		}
		if st.Close() == nil {
			t.Error("a stream is closed twice")
		}
	}
}

// A stream of a client is read as chunks or as bytes, and its end is io.EOF or the error of the client.
func TestClientStream(t *testing.T) {
	failure := arcp.Errorf(arcp.CodeDataLoss, "the disk is gone")
	opened := arcp.StreamOpenPayload{Kind: arcp.StreamText, Name: "in", ContentType: "text/plain"}
	chunks := []tool.ClientChunk{{Data: []byte("hel")}, {}, {Data: []byte("lo")}}
	job := tooltest.New(tooltest.Script{Streams: []tooltest.ClientStream{{StreamOpenPayload: opened, Chunks: chunks},
		{StreamOpenPayload: opened, Chunks: chunks[:1], Err: failure}}})
	st, err := job.Job().AcceptStream(t.Context())
	if err != nil || st.Name != "in" || st.Kind != arcp.StreamText || st.ContentType != "text/plain" || st.ID == "" {
		t.Fatalf("%+v, %v", st, err)
	}
	if got, err := io.ReadAll(iotest.OneByteReader(st)); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if st, err = job.Job().AcceptStream(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(st); !errors.Is(err, failure) || string(got) != "hel" {
		t.Errorf("%q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := job.Job().AcceptStream(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a third stream: %v", err)
	}
}
