package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/arcpd/arcpd/arcp"
)

// errGarbage ends a session with a program that does not speak MCP.
var errGarbage = errors.New("what it writes to standard output is not MCP")

// errNoID ends a session in which nobody can be told that an answer is lost.
var errNoID = errors.New("it sent a message that is too large, and not to what")

// endsKept is how much of either end of a line that is too long is kept, to find
// out what it answers.
const endsKept = 512

// lineReader reads messages, a line each, and passes on those that the SDK can
// take: a line that is no JSON object, such as a greeting, is left out, and one
// that is too long becomes an error for the request that it answers. One goroutine
// reads.
type lineReader struct {
	src     *bufio.Reader
	closer  io.Closer
	tap     *connWrapper
	dropped func(line []byte) // of a line that is no message

	rest    []byte // of the line being passed on
	garbage int    // lines in a row
	err     error
}

func newLineReader(src io.ReadCloser, t *connWrapper, dropped func(line []byte)) *lineReader {
	return &lineReader{src: bufio.NewReaderSize(src, 64<<10), closer: src, tap: t, dropped: dropped}
}

func (r *lineReader) Close() error { return r.closer.Close() }

func (r *lineReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.next()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next is the next message with its newline; empty if there was none.
func (r *lineReader) next() ([]byte, error) {
	line, end, err := r.line()
	if end != nil {
		return r.tooLong(line, end, err)
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, err
	}
	if k := arcp.Raw(line).Kind(); k != '{' && k != '[' || !arcp.Raw(line).IsValid() {
		return nil, r.ignore(line, err)
	}
	r.garbage = 0
	r.tap.received(line)
	return append(line, '\n'), err
}

func (r *lineReader) ignore(line []byte, err error) error {
	r.dropped(line)
	if r.garbage++; r.garbage > maxGarbageLines && err == nil {
		return errGarbage
	}
	return err
}

func (r *lineReader) tooLong(begin, end []byte, err error) ([]byte, error) {
	id, ok := idOf(begin, end)
	if !ok {
		return nil, errNoID
	}
	return append(r.tap.tooLarge(id), '\n'), err
}

// line reads a line. Of one that is too long it returns the two ends.
func (r *lineReader) line() (line, end []byte, err error) {
	for {
		part, err := r.src.ReadSlice('\n')
		if len(line)+len(part) > r.tap.most {
			return r.skip(append(line, part...), err)
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return line, nil, err
		}
	}
}

// skip reads on to the end of a line whose beginning is known.
func (r *lineReader) skip(line []byte, err error) ([]byte, []byte, error) {
	begin := bytes.Clone(line[:endsKept])
	end := bytes.Clone(line[len(line)-endsKept:])
	for err == bufio.ErrBufferFull {
		var part []byte
		part, err = r.src.ReadSlice('\n')
		end = append(end, part...)
		end = end[max(0, len(end)-endsKept):]
	}
	return begin, bytes.Clone(end), err
}

// lineWriter shows the wrapper what is written, a message at a time.
type lineWriter struct {
	io.WriteCloser
	tap *connWrapper
}

func (w lineWriter) Write(p []byte) (int, error) {
	w.tap.sent(p)
	return w.WriteCloser.Write(p)
}
