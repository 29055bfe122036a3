package transport

import (
	"bytes"
	"errors"
	"io"
)

var (
	errNewline = errors.New("transport: a frame with a newline does not fit on a line")
	errBlank   = errors.New("transport: an empty frame would be a blank line")
)

// lines is one frame a line. Lines end with \n, or \r\n on input; blank ones
// are skipped on input and never sent. There is no farewell: a stream that
// ends after a line has ended in order.
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

func (lines) farewell(CloseCode, string) []byte { return nil }

func (lines) eof(within bool) error {
	if within {
		return io.ErrUnexpectedEOF
	}
	return &Error{Code: CloseNoStatus, Remote: true, Err: io.EOF}
}
