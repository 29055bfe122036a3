package exec

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// streamBlock is the number of bytes that are read from a command at once, which become a chunk.
const streamBlock = 32 << 10

// streamed copies the standard output of a command to a stream.
type streamed struct {
	stream *tool.Stream
	limit  int
	full   func() // called when the output exceeds limit

	bytes    int
	exceeded bool
	err      error // of the stream: the rest of the output is dropped
}

// streamResult is the result of a command whose output is a stream.
type streamResult struct {
	StreamID arcp.StreamID `json:"stream_id"`
	Bytes    int           `json:"bytes"`
}

// read copies r to its end, or until the output exceeds the limit. A write may wait for a client longer
// than the deadline of r: the next read then has pipeGrace.
func (s *streamed) read(r *os.File) {
	buf := make([]byte, streamBlock)
	wrote := false
	for {
		n, err := r.Read(buf)
		if s.bytes += n; s.bytes > s.limit {
			s.exceeded = true
			s.full()
			return
		}
		if n > 0 && s.err == nil {
			_, s.err = s.stream.Write(buf[:n])
			wrote = s.err == nil
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && wrote:
			wrote = false
			_ = r.SetReadDeadline(time.Now().Add(pipeGrace)) // pipes have deadlines
		default:
			if !errors.Is(err, io.EOF) && s.err == nil {
				s.err = arcp.Errorf(arcp.CodeUnknown, "the output of the command has no end")
			}
			return
		}
	}
}

// value closes the stream and returns the result. A stream that a client has cancelled is no failure.
func (s *streamed) value() (arcp.Raw, error) {
	err := s.err
	if err == nil {
		err = s.stream.Close()
	}
	if e, _ := arcp.AsError(err); err != nil && e.Code != arcp.CodeCancelled {
		return nil, err
	}
	return arcp.Marshal(streamResult{s.stream.ID(), s.bytes})
}
