// Package proxy connects a client to a server and adds one defect to the server's behaviour. The
// faults prove that each conformance check can fail.
//
// Each proxied connection belongs to one goroutine that reads and writes.
package proxy

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/arcpd/arcpd/transport"
)

// Fault is one defect of a server and the checks that must detect it.
type Fault struct {
	Defect string   // the behaviour of the server behind the proxy, as one sentence; unique
	Checks []string // ids of checks; at least one of them must fail
	Silent bool     // a frame never comes, or a state is never reached: only then the timeout of a check is a detection
	House  bool     // the level house detects the defect, and the protocol not in each run

	newRewriter func() rewriter                           // state of one connection
	newShared   func() func() rewriter                    // state shared by all connections of a check
	newLinks    func(http.RoundTripper) http.RoundTripper // of the requests for links of a check; nil: none is changed
}

// ofHouse returns the fault with the mark House.
func ofHouse(f Fault) Fault {
	f.House = true
	return f
}

// rewriter changes the frames and the end of one connection. A nil function changes nothing.
type rewriter struct {
	in     func(f frame) []frame // replaces a frame from the server
	out    func(f frame) []frame // replaces a frame from the client
	end    func(err error) error // replaces the error that ends the connection
	closed func() error          // returns an error that ends the connection instead of a frame from the server

	afterEnd func() []frame // returns frames to deliver after the end, once
}

// BinaryWriter is a connection that can also send binary frames.
type BinaryWriter interface {
	WriteBinary(data []byte) error
}

// BinaryReader is a connection that can also read binary frames.
type BinaryReader interface {
	Binary() bool // the frame that Read returned last is binary
}

// Wrap returns conn with the fault f.
func Wrap(conn transport.Conn, f Fault) transport.Conn { return f.Begin()(conn) }

// Begin returns a function that adds the fault to each connection of one check.
func (f Fault) Begin() func(transport.Conn) transport.Conn {
	begin := f.newRewriter
	if f.newShared != nil {
		begin = f.newShared()
	}
	return func(conn transport.Conn) transport.Conn { return &proxied{Conn: conn, rewriter: begin()} }
}

type proxied struct {
	transport.Conn
	rewriter rewriter
	ready    []frame // frames that the client has not read yet
	binary   bool    // the frame that Read returned last is binary
}

func (p *proxied) Read() ([]byte, error) {
	for len(p.ready) == 0 {
		text, err := p.Conn.Read()
		if err == nil && p.rewriter.closed != nil {
			err = p.rewriter.closed()
		}
		switch {
		case err == nil:
			p.ready = apply(p.rewriter.in, p.parse(text))
		case p.rewriter.afterEnd != nil:
			p.ready = p.rewriter.afterEnd()
		}
		if err != nil && len(p.ready) == 0 {
			return nil, p.replaceEnd(err)
		}
	}
	next := p.ready[0]
	p.ready = p.ready[1:]
	p.binary = next.binary
	return next.text, nil
}

// parse returns the frame that was read last.
func (p *proxied) parse(text []byte) frame {
	if b, ok := p.Conn.(BinaryReader); ok && b.Binary() {
		return frame{text: bytes.Clone(text), binary: true}
	}
	return parse(text)
}

// Binary implements BinaryReader.
func (p *proxied) Binary() bool { return p.binary }

func (p *proxied) replaceEnd(err error) error {
	if p.rewriter.end == nil {
		return err
	}
	return p.rewriter.end(err)
}

func (p *proxied) Write(text []byte) error { return p.write(parse(text)) }

// WriteBinary implements BinaryWriter. It fails with errors.ErrUnsupported if the connection is none.
func (p *proxied) WriteBinary(data []byte) error {
	return p.write(frame{text: bytes.Clone(data), binary: true})
}

func (p *proxied) write(sent frame) error {
	for _, f := range apply(p.rewriter.out, sent) {
		if err := p.writeFrame(f); err != nil {
			return err
		}
	}
	return nil
}

func (p *proxied) writeFrame(f frame) error {
	if !f.binary {
		return p.Conn.Write(f.text)
	}
	conn, ok := p.Conn.(BinaryWriter)
	if !ok {
		return errors.ErrUnsupported
	}
	return conn.WriteBinary(f.text)
}

func apply(change func(frame) []frame, f frame) []frame {
	if change == nil {
		return []frame{f}
	}
	return change(f)
}
