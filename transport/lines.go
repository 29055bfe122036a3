package transport

import (
	"bytes"
	"errors"
	"io"
)

var (
	errNewline = errors.New("transport: the frame contains a newline")
	errBlank   = errors.New("transport: the frame is empty")
)

// lines is the framing with one frame on each line. Lines end with \n, or \r\n on input. Blank lines
// are skipped on input and never sent. There is no close frame: a stream that ends after a line is
// closed in order.
type lines struct{}

func (lines) wrap(frame []byte) (outFrame, error) {
	if len(frame) == 0 {
		return outFrame{}, errBlank
	}
	if bytes.IndexByte(frame, '\n') >= 0 {
		return outFrame{}, errNewline
	}
	return outFrame{body: frame, tail: "\n"}, nil
}

func (lines) end(_, p []byte) int {
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		return i + 1
	}
	return -1
}

func (lines) unwrap(raw []byte) ([]byte, bool, error) {
	line := bytes.TrimSuffix(raw[:len(raw)-1], []byte("\r"))
	return line, len(line) > 0, nil
}

func (lines) overhead() int { return len("\r\n") }

func (lines) closeFrame(CloseCode, string) []byte { return nil }

func (lines) eof(within bool) error {
	if within {
		return io.ErrUnexpectedEOF
	}
	return &Error{Code: CloseNoStatus, Remote: true, Err: io.EOF}
}
