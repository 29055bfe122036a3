package tool

import (
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of streams.
const (
	// MaxStreamChunk is the number of bytes in a chunk of a text, thought or binary stream. Write divides
	// more bytes into several chunks.
	MaxStreamChunk = 64 << 10

	maxStreamName = 256 // bytes of a name, a content type or a role
)

// StreamOptions describe a stream.
type StreamOptions struct {
	Name        string // by which clients select the stream; at most 256 bytes; empty: no name
	Kind        string // one of arcp.StreamKinds; empty: arcp.StreamText
	ContentType string // media type of the content; empty: by the kind
}

// OpenStream opens a stream of the job: a sequence of chunks that clients read while the job runs. A
// job may have 64 open streams, beyond which the error is RESOURCE_EXHAUSTED. The error is
// INVALID_ARGUMENT for options that are not valid.
//
// A stream that is open when the tool returns is closed. If the job fails or is cancelled, if another
// attempt follows, or if the runtime crashes, the stream ends with an error. A later attempt opens its
// own streams.
func (j Job) OpenStream(o StreamOptions) (*Stream, error) {
	p, err := o.payload()
	if err != nil {
		return nil, err
	}
	host, hostErr := j.host.OpenStream(p)
	if hostErr != nil {
		return nil, hostErr
	}
	return &Stream{host: host, kind: p.Kind, contentType: p.ContentType}, nil
}

// payload returns the payload of stream.open.
func (o StreamOptions) payload() (arcp.StreamOpenPayload, *arcp.Error) {
	p := arcp.StreamOpenPayload{Kind: o.Kind, Name: o.Name, ContentType: o.ContentType}
	switch {
	case p.Kind == "":
		p.Kind = arcp.StreamText
	case !slices.Contains(arcp.StreamKinds, p.Kind):
		return p, arcp.Errorf(arcp.CodeInvalidArgument, "stream: kind must be one of %s", strings.Join(arcp.StreamKinds, ", "))
	}
	if len(p.Name) > maxStreamName || len(p.ContentType) > maxStreamName {
		return p, arcp.Errorf(arcp.CodeInvalidArgument, "stream: name and content type may have at most %d bytes", maxStreamName)
	}
	defaultType := "application/json"
	switch p.Kind {
	case arcp.StreamText, arcp.StreamThought:
		defaultType, p.Encoding = "text/plain", "utf8"
	case arcp.StreamBinary:
		defaultType, p.Encoding = "application/octet-stream", "base64"
	}
	if p.ContentType == "" {
		p.ContentType = defaultType
	}
	return p, nil
}

// Stream is an open stream of a job. Many goroutines may use it.
//
// Write is for text and binary streams, WriteJSON for event, log and metric streams, and WriteThought
// for thought streams. The chunks become durable in the background, in the order of the calls, like the
// other events of the job. A method blocks while the queue of the job's events is full, and while a
// client has asked for a slower stream. The error of a stream that a client has cancelled is CANCELLED;
// the job continues.
type Stream struct {
	host              StreamHost
	kind, contentType string

	mu   sync.Mutex // one call at a time
	rest []byte     // of a text: the beginning of a rune whose end was not written yet
}

// ID returns the id of the stream.
func (s *Stream) ID() arcp.StreamID { return s.host.ID() }

// Write appends bytes to a text or binary stream, in chunks of at most MaxStreamChunk bytes. A text is
// cut between runes: the beginning of a rune waits for the next call. Each byte that is not UTF-8 is
// replaced by U+FFFD. The error is FAILED_PRECONDITION for a stream of another kind.
func (s *Stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.kind {
	case arcp.StreamText:
		return s.writeText(p)
	case arcp.StreamBinary:
		return s.writeBinary(p)
	}
	return 0, s.wrongKind("Write")
}

func (s *Stream) writeBinary(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, MaxStreamChunk) {
		data := make([]byte, 0, base64.StdEncoding.EncodedLen(len(part))+2)
		data = append(base64.StdEncoding.AppendEncode(append(data, '"'), part), '"')
		err = s.host.Chunk(arcp.StreamChunkPayload{Data: data, ContentType: s.contentType, Encoding: "base64", Size: uint64(len(part))})
		if err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (s *Stream) writeText(p []byte) (n int, err error) {
	held := len(s.rest)
	text := p
	if held > 0 {
		text = append(s.rest, p...)
	}
	s.rest = nil
	for len(text) > 0 {
		chunk, read := nextText(text)
		if read == 0 { // the beginning of a rune
			s.rest = slices.Clone(text)
			return len(p), nil
		}
		if err := s.text(chunk); err != nil {
			return max(n-held, 0), err
		}
		n += read
		text = text[read:]
	}
	return len(p), nil
}

// nextText returns the text of the next chunk, with U+FFFD for each byte that is not UTF-8, and the number
// of bytes of b that it stands for. The number is 0 if b is only the beginning of a rune.
func nextText(b []byte) (chunk string, read int) {
	b = b[:min(len(b), MaxStreamChunk+utf8.UTFMax)]
	if valid := min(len(b), MaxStreamChunk); utf8.Valid(b[:valid]) {
		return string(b[:valid]), valid // as nearly always
	}
	var text strings.Builder
	for read < len(b) && utf8.FullRune(b[read:]) {
		r, size := utf8.DecodeRune(b[read:])
		if text.Len()+utf8.RuneLen(r) > MaxStreamChunk {
			break
		}
		text.WriteRune(r)
		read += size
	}
	return text.String(), read
}

func (s *Stream) text(chunk string) error {
	data := make([]byte, 0, len(chunk)+len(`""`)+4) // a few escapes
	return s.host.Chunk(arcp.StreamChunkPayload{Data: arcp.AppendString(data, chunk)})
}

// WriteJSON appends a chunk with a value to an event, log or metric stream. v is encoded with
// arcp.Marshal, and an arcp.Raw is used unchanged. The error is INVALID_ARGUMENT for a value that is not
// a JSON object, RESOURCE_EXHAUSTED for a chunk over 512 KiB, and FAILED_PRECONDITION for a stream of
// another kind.
func (s *Stream) WriteJSON(v any) error {
	switch s.kind {
	case arcp.StreamEvents, arcp.StreamLog, arcp.StreamMetric:
	default:
		return s.wrongKind("WriteJSON")
	}
	raw, err := encodeEvent(v)
	if err != nil {
		return err
	}
	if raw.Kind() != '{' {
		return arcp.Errorf(arcp.CodeInvalidArgument, "stream: a chunk of the kind %s is a JSON object", s.kind)
	}
	p := arcp.StreamChunkPayload{Data: raw}
	if s.kind != arcp.StreamEvents {
		p.Kind = s.kind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host.Chunk(p)
}

// Thought is a chunk of a thought stream.
type Thought struct {
	Role string // author, such as assistant_thought; at most 256 bytes
	Text string // at most MaxStreamChunk bytes

	// Redacted says that the content is left out. Clients get the chunk with Text, which is empty or a
	// summary.
	Redacted bool
}

// WriteThought appends a chunk to a thought stream. The error is INVALID_ARGUMENT for a role or a text
// that is too long, RESOURCE_EXHAUSTED for a chunk over 512 KiB, in which the text is twice, and
// FAILED_PRECONDITION for a stream of another kind. Bytes that are not UTF-8 are replaced by U+FFFD.
func (s *Stream) WriteThought(t Thought) error {
	text, role := strings.ToValidUTF8(t.Text, "\uFFFD"), strings.ToValidUTF8(t.Role, "\uFFFD")
	switch {
	case s.kind != arcp.StreamThought:
		return s.wrongKind("WriteThought")
	case len(role) > maxStreamName || len(text) > MaxStreamChunk:
		return arcp.Errorf(arcp.CodeInvalidArgument, "stream: a thought may have %d bytes, and its role %d", MaxStreamChunk, maxStreamName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host.Chunk(arcp.StreamChunkPayload{Data: arcp.AppendString(nil, text), Content: text,
		Role: role, Redacted: t.Redacted, Kind: s.kind})
}

// Close ends the stream. The second call returns an error.
func (s *Stream) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) > 0 {
		err = s.text("\uFFFD")
		s.rest = nil
	}
	if endErr := s.host.End(nil); err == nil {
		err = endErr
	}
	return err
}

// CloseWithError ends the stream with an error: clients get its code and message. An error that is not
// an *arcp.Error has the code UNKNOWN. A nil error is Close.
func (s *Stream) CloseWithError(err error) error {
	if err == nil {
		return s.Close()
	}
	e, ok := arcp.AsError(err)
	if !ok {
		e = arcp.Errorf(arcp.CodeUnknown, "%s", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host.End(e)
}

func (s *Stream) wrongKind(method string) error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "stream: %s does not write to a stream of the kind %s", method, s.kind)
}
