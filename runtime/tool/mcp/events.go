package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// eventReader bounds the events of a stream of server-sent events. An event that is too large becomes an
// error for the request that the stream answers. One goroutine uses an eventReader.
type eventReader struct {
	src      *bufio.Reader
	maxBytes int        // of an event
	id       jsonrpc.ID // of the request; not valid: the stream answers no request, and an event that is too large is dropped

	rest []byte // of the last event
	err  error
}

func newEventReader(src io.Reader, maxBytes int, id jsonrpc.ID) *eventReader {
	return &eventReader{src: bufio.NewReaderSize(src, 64<<10), maxBytes: maxBytes, id: id}
}

func (r *eventReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.event()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// event reads one event, up to an empty line. It buffers at most maxBytes of the event.
func (r *eventReader) event() ([]byte, error) {
	var event []byte
	large, lineStart := false, true
	for {
		part, err := r.src.ReadSlice('\n')
		if large = large || len(event)+len(part) > r.maxBytes; large {
			event = nil
		} else {
			event = append(event, part...)
		}
		blank := lineStart && err == nil && len(bytes.TrimRight(part, "\r\n")) == 0
		lineStart = err == nil
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || err == nil && !blank:
			continue
		case large:
			return r.replacement(err)
		}
		return event, err
	}
}

// replacement returns the event that replaces an event that is too large. It returns the error end of
// the stream unchanged.
func (r *eventReader) replacement(end error) ([]byte, error) {
	if !r.id.IsValid() {
		return nil, end
	}
	data, err := jsonrpc.EncodeMessage(tooLarge(r.id, r.maxBytes))
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "event: message\ndata: %s\n\n", data), end
}
