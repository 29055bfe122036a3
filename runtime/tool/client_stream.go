package tool

import (
	"context"
	"io"

	"github.com/arcpd/arcpd/arcp"
)

// AcceptStream waits for the next stream that a client opens to the job. Only a tool with
// Capability.ReadsStreams gets streams; for another one, and in a worker, the error is
// FAILED_PRECONDITION. Reads of the stream end with ctx. A job holds at most 8 streams that the tool has
// not read to their end. A stream ends with the attempt, and a later attempt gets new ones.
func (j Job) AcceptStream(ctx context.Context) (*ClientStream, error) {
	host, err := j.host.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	id, opened := host.Opened()
	return &ClientStream{ID: id, Name: opened.Name, Kind: opened.Kind, ContentType: opened.ContentType, ctx: ctx, host: host}, nil
}

// ClientStream is a stream that a client writes to the job. It belongs to one goroutine.
//
// The content is not stored: chunks that the tool has not read are lost in a crash, and the client is
// told that the stream has ended.
type ClientStream struct {
	ID                      arcp.StreamID
	Name, Kind, ContentType string // as the client has declared them

	ctx  context.Context
	host ClientStreamHost
	rest []byte // of the chunk that Read has begun
}

// ClientChunk is a chunk of a ClientStream.
type ClientChunk struct {
	Data     []byte // the content of text, thought and binary streams, and the JSON object of others
	Role     string // of a thought
	Redacted bool   // of a thought
}

// Next waits for the next chunk. The error is io.EOF after the end of the stream, an *arcp.Error after
// stream.error and for a stream that the runtime has ended, and the cause of ctx.
func (s *ClientStream) Next() (ClientChunk, error) { return s.host.Next(s.ctx) }

// Read reads the content of the chunks as one sequence of bytes. The errors are those of Next.
func (s *ClientStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if len(p) == 0 {
			return 0, nil
		}
		chunk, err := s.Next()
		if err != nil {
			return 0, err
		}
		s.rest = chunk.Data
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// CloseWithError ends a stream that the tool does not read to its end, and drops what was not read. The client
// is sent stream.error with err; an error that is not an *arcp.Error has the code UNKNOWN. It has no effect on
// a stream that has ended.
func (s *ClientStream) CloseWithError(err error) {
	e, ok := arcp.AsError(err)
	if !ok {
		e = arcp.Errorf(arcp.CodeUnknown, "%s", err)
	}
	s.host.Close(e)
}

var _ io.Reader = (*ClientStream)(nil)
