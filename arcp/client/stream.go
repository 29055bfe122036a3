package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/arcpd/arcpd/arcp"
)

// maxOpenStreams bounds the open streams that a Streams tracks. A runtime allows a job fewer.
const maxOpenStreams = 1024

// ErrNoStream is the error of a StreamReader whose job has ended without the stream.
var ErrNoStream = errors.New("the job has ended without the stream")

// Streams decodes and checks the events of the streams of one job. Its zero value has no streams. It
// belongs to one goroutine.
type Streams struct{ open map[arcp.StreamID]*Stream }

// Stream is a stream of a job.
type Stream struct {
	ID arcp.StreamID
	arcp.StreamOpenPayload

	// Partial says that the beginning of the stream was before the first event. The members of
	// StreamOpenPayload are then empty.
	Partial bool
	Chunks  uint64       // number of the chunks of the stream so far
	Ended   bool         // stream.close or stream.error has come
	Err     *RemoteError // of stream.error; nil: none
}

// Receive handles an event of the job. For an event of a stream it returns the stream and, for
// stream.chunk, the content: the decoded data of text, thought and binary streams, and the JSON object of
// others. For other events the stream is nil. The error is a *ProtocolError for a chunk that does not
// follow the one before, for a wrong number of chunks at the end, and for data that cannot be decoded.
func (s *Streams) Receive(ev *Event) (st *Stream, content []byte, err error) {
	switch ev.Type {
	case arcp.StreamOpen:
		st, err = s.add(ev)
	case arcp.StreamChunk:
		if st, err = s.find(ev); err == nil {
			content, err = st.chunk(ev)
		}
	case arcp.StreamClose, arcp.StreamError:
		if st, err = s.find(ev); err == nil {
			delete(s.open, st.ID)
			err = st.end(ev)
		}
	}
	if err != nil {
		err = &ProtocolError{string(ev.Type), fmt.Errorf("stream %s: %w", ev.StreamID, err)}
	}
	return st, content, err
}

// add adds the stream of stream.open. A resumed session may get the event again.
func (s *Streams) add(ev *Event) (*Stream, error) {
	if st := s.open[ev.StreamID]; st != nil {
		return st, nil
	}
	st, err := s.find(ev)
	if err != nil {
		return nil, err
	}
	st.Partial = false
	st.StreamOpenPayload, err = arcp.DecodePayload[arcp.StreamOpenPayload](ev)
	return st, err
}

// find returns the stream of an event. A stream that is not known is Partial.
func (s *Streams) find(ev *Event) (*Stream, error) {
	st := s.open[ev.StreamID]
	switch {
	case st != nil:
		return st, nil
	case len(s.open) >= maxOpenStreams:
		return nil, fmt.Errorf("more than %d open streams", maxOpenStreams)
	case s.open == nil:
		s.open = make(map[arcp.StreamID]*Stream)
	}
	st = &Stream{ID: ev.StreamID, Partial: true}
	s.open[st.ID] = st
	return st, nil
}

func (st *Stream) chunk(ev *Event) ([]byte, error) {
	p, err := arcp.DecodePayload[arcp.StreamChunkPayload](ev)
	switch {
	case err != nil:
		return nil, err
	case p.Sequence != st.Chunks && !(st.Partial && st.Chunks == 0):
		return nil, fmt.Errorf("chunk %d comes instead of chunk %d", p.Sequence, st.Chunks)
	}
	st.Chunks = p.Sequence + 1
	if p.Encoding == arcp.EncodingSidecar {
		return p.Bytes(arcp.StreamBinary)
	}
	if p.Data.Kind() != '"' {
		return p.Data, nil
	}
	var text string
	if err := arcp.Unmarshal(p.Data, &text); err != nil {
		return nil, err
	}
	if st.Kind == arcp.StreamBinary || p.Encoding == "base64" {
		return base64.StdEncoding.DecodeString(text)
	}
	return []byte(text), nil
}

func (st *Stream) end(ev *Event) error {
	st.Ended, st.Err = true, RemoteErrorOf(ev)
	if st.Err != nil {
		return nil
	}
	p, err := arcp.DecodePayload[arcp.StreamClosePayload](ev)
	if err != nil || st.Partial && st.Chunks == 0 {
		return err
	}
	sent := uint64(0)
	if p.FinalSequence != nil {
		sent = *p.FinalSequence + 1
	}
	if sent != st.Chunks {
		return fmt.Errorf("it ends after %d chunks, and %d have come", sent, st.Chunks)
	}
	return nil
}

// StreamReader reads the content of one stream of a job. It belongs to one goroutine.
type StreamReader struct {
	ctx     context.Context
	job     *Job
	name    string
	streams Streams
	stream  *Stream // nil: it has not come
	rest    []byte
	err     error // of the next Read with an empty rest
}

// ReadStream returns a reader of the first stream of the job with a name, or of the first stream if the
// name is empty. Read waits for the content, until ctx ends. It returns io.EOF after stream.close, a
// *RemoteError after stream.error, a *ProtocolError if a chunk is missing, and ErrNoStream if the job
// ends without the stream. Read takes the events from Job.Events, and drops those that are not of the
// stream. The objects of event, log and metric streams are separated by line feeds.
func (j *Job) ReadStream(ctx context.Context, name string) *StreamReader {
	return &StreamReader{ctx: ctx, job: j, name: name}
}

// Stream returns the stream, or nil before its first event.
func (r *StreamReader) Stream() *Stream { return r.stream }

func (r *StreamReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil && len(p) > 0 {
		r.fill()
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}

// fill reads events until there is content, or the stream has ended.
func (r *StreamReader) fill() {
	for ev, err := range r.job.Events(r.ctx) {
		if err != nil {
			r.err = err
			return
		}
		if r.receive(&ev); len(r.rest) > 0 || r.err != nil {
			return
		}
	}
	switch {
	case r.err != nil:
	case r.stream == nil:
		r.err = ErrNoStream
	default:
		r.err = io.ErrUnexpectedEOF
	}
}

func (r *StreamReader) receive(ev *Event) {
	st, content, err := r.streams.Receive(ev)
	if st != nil && r.stream == nil && !st.Partial && (r.name == "" || st.Name == r.name) {
		r.stream = st
	}
	if st == nil || st != r.stream {
		return
	}
	switch r.rest = content; {
	case err != nil:
		r.rest, r.err = nil, err
	case st.Err != nil:
		r.err = st.Err
	case st.Ended:
		r.err = io.EOF
	}
	if len(content) > 0 && st.Kind != arcp.StreamText && st.Kind != arcp.StreamBinary && st.Kind != arcp.StreamThought {
		r.rest = append(content[:len(content):len(content)], '\n')
	}
}
