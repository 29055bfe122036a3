package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
)

// errGarbage ends a session with a program that does not speak MCP.
var errGarbage = errors.New("what it writes to standard output is not MCP")

// errNoID ends a session in which a message without an id is too large.
var errNoID = errors.New("it sent a message that is too large, and not to what")

// codeTooLarge is the JSON-RPC code of the error that replaces an answer that is too large. It is in
// the range for server errors.
const codeTooLarge = -32019

// tooLarge returns the error that replaces an answer of more than maxBytes.
func tooLarge(id jsonrpc.ID, maxBytes int) *jsonrpc.Response {
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: codeTooLarge, Message: fmt.Sprintf("the answer has more than %d bytes", maxBytes)}}
}

// stdio is the transport to a program: one JSON-RPC message a line.
type stdio struct {
	in       io.ReadCloser
	out      io.WriteCloser
	observer *observer
	maxBytes int               // of a received message
	dropped  func(line []byte) // called with each line that is no message
}

// Connect implements sdk.Transport.
func (st stdio) Connect(context.Context) (sdk.Connection, error) {
	return &stdioConn{stdio: st, lines: bufio.NewReaderSize(st.in, 64<<10)}, nil
}

// stdioConn is an sdk.Connection. It ignores lines that are no JSON object or array, such as a greeting.
// It replaces an answer that is too large by an error for its request. One goroutine calls Read.
type stdioConn struct {
	stdio
	lines   *bufio.Reader
	batch   []jsonrpc.Message // messages that Read has not returned yet
	garbage int               // lines in a row that are no messages
	closed  atomic.Bool
	writeMu sync.Mutex
}

func (c *stdioConn) SessionID() string { return "" }

// Close closes the input and the output of the connection. A waiting Read ends.
func (c *stdioConn) Close() error {
	c.closed.Store(true)
	return errors.Join(c.in.Close(), c.out.Close())
}

// Write implements sdk.Connection. Many goroutines may call it.
func (c *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	line, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	c.observer.sent(ctx, msg)
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_, err = c.out.Write(append(line, '\n'))
	return err
}

// Read implements sdk.Connection.
func (c *stdioConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for len(c.batch) == 0 {
		err := ctx.Err()
		if err == nil {
			err = c.next()
		}
		switch {
		case err == nil:
		case c.closed.Load():
			return nil, io.EOF
		default:
			return nil, err
		}
	}
	msg := c.batch[0]
	c.batch = c.batch[1:]
	c.observer.received(msg)
	return msg, nil
}

// next reads a line and appends its messages to the batch.
func (c *stdioConn) next() error {
	line, large, err := c.line()
	switch line = bytes.TrimSpace(line); {
	case large != nil && !large.id.IsValid():
		return errNoID
	case large != nil:
		c.batch = append(c.batch, tooLarge(large.id, c.maxBytes))
		return nil
	case len(line) == 0:
		return err
	}
	msgs, bad := decode(line)
	if bad == nil {
		c.batch, c.garbage = msgs, 0
		return nil
	}
	if k := arcp.Raw(line).Kind(); (k == '{' || k == '[') && arcp.Raw(line).IsValid() {
		return bad
	}
	c.dropped(line)
	if c.garbage++; c.garbage > maxGarbageLines && err == nil {
		return errGarbage
	}
	return err
}

// decode decodes a message or a batch of messages.
func decode(line []byte) (msgs []jsonrpc.Message, err error) {
	if line[0] != '[' {
		msg, err := jsonrpc.DecodeMessage(line)
		return []jsonrpc.Message{msg}, err
	}
	var batch []json.RawMessage
	if err := arcp.Unmarshal(line, &batch); err != nil {
		return nil, err
	}
	for _, raw := range batch {
		msg, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, msg)
	}
	return msgs, nil
}

// line reads a line. For a line that is too long it returns only the scanner of its id.
func (c *stdioConn) line() (line []byte, large *idScanner, err error) {
	for {
		part, err := c.lines.ReadSlice('\n')
		switch {
		case large != nil:
			large.scan(part)
		case len(line)+len(part) > c.maxBytes:
			large = new(idScanner)
			large.scan(line)
			large.scan(part)
			line = nil
		default:
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, large, err
		}
	}
}

// maxIDMember bounds the member "id" of a message, in bytes.
const maxIDMember = 256

// idScanner finds the id of a message of any size: the member "id" of the outermost object. It
// buffers at most maxIDMember+1 bytes.
type idScanner struct {
	id jsonrpc.ID // not valid: not found

	depth             int
	inString, escaped bool
	member            []byte // the current member at depth 1, without nested values
}

func (s *idScanner) scan(text []byte) {
	for _, b := range text {
		switch {
		case s.inString:
			s.inString = b != '"' || s.escaped
			s.escaped = b == '\\' && !s.escaped
		case b == '"':
			s.inString = true
		case b == '{' || b == '[':
			if s.depth++; s.depth == 1 {
				continue
			}
		case b == '}' || b == ']':
			if s.depth--; s.depth == 0 {
				s.endMember()
				continue
			}
		case b == ',' && s.depth == 1:
			s.endMember()
			continue
		}
		if s.depth == 1 && len(s.member) <= maxIDMember {
			s.member = append(s.member, b)
		}
	}
}

func (s *idScanner) endMember() {
	key, value, _ := bytes.Cut(s.member, []byte(":"))
	if string(bytes.TrimSpace(key)) == `"id"` && len(s.member) <= maxIDMember {
		var id any
		if json.Unmarshal(value, &id) == nil {
			s.id, _ = jsonrpc.MakeID(id) // not valid after an error
		}
	}
	s.member = s.member[:0]
}
