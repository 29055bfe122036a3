// Package proxy stands between a client and a server and breaks exactly one
// rule of the protocol. It shows that a conformance check can fail: a check
// nothing can make fail shows nothing.
//
// A proxied connection belongs to one goroutine that reads and writes, as the
// connections of checks do.
package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Fault is one rule to break.
type Fault struct {
	Name  string
	Says  string   // the apparent behaviour of the server behind the proxy
	Shows []string // checks of which at least one has to fail
	Mute  bool     // shows itself by nothing coming, hence only when a check runs out of time

	newRewriter func() rewriter        // state of one connection
	across      func() func() rewriter // or of all connections of a check
}

// rewriter changes the frames of one connection. A nil function leaves its direction as it is.
type rewriter struct {
	in  func(f frame) []frame // from the server: the frames that the client gets instead
	out func(f frame) []frame // from the client: the frames that the server gets instead
	end func(err error) error // how the connection ends

	afterEnd func() []frame // frames of a connection that has ended
}

// Wrap returns conn with the fault in it.
func Wrap(conn transport.Conn, f Fault) transport.Conn { return f.Begin()(conn) }

// Begin returns a function that puts the fault into the connections of one check.
func (f Fault) Begin() func(transport.Conn) transport.Conn {
	begin := f.newRewriter
	if f.across != nil {
		begin = f.across()
	}
	return func(conn transport.Conn) transport.Conn { return &proxied{Conn: conn, rewriter: begin()} }
}

type proxied struct {
	transport.Conn
	rewriter rewriter
	ready    []frame // for the client
}

// Read implements transport.Conn.
func (p *proxied) Read() ([]byte, error) {
	for len(p.ready) == 0 {
		text, err := p.Conn.Read()
		switch {
		case err == nil:
			p.ready = apply(p.rewriter.in, parse(text))
		case p.rewriter.afterEnd != nil:
			p.ready = p.rewriter.afterEnd()
		}
		if err != nil && len(p.ready) == 0 {
			return nil, p.ending(err)
		}
	}
	next := p.ready[0]
	p.ready = p.ready[1:]
	return next.text, nil
}

func (p *proxied) ending(err error) error {
	if p.rewriter.end == nil {
		return err
	}
	return p.rewriter.end(err)
}

// Write implements transport.Conn.
func (p *proxied) Write(text []byte) error {
	for _, f := range apply(p.rewriter.out, parse(text)) {
		if err := p.Conn.Write(f.text); err != nil {
			return err
		}
	}
	return nil
}

func apply(change func(frame) []frame, f frame) []frame {
	if change == nil {
		return []frame{f}
	}
	return change(f)
}

// frame is a frame under way. The envelope of one that cannot be decoded is
// zero: such a frame passes.
type frame struct {
	arcp.Envelope
	text []byte
}

func parse(text []byte) frame {
	f := frame{text: bytes.Clone(text)}
	f.Envelope, _ = arcp.Decode(f.text) // the zero envelope shows that the text is none
	return f
}

// event reports an event of a job.
func (f frame) event() bool { return f.EventSeq > 0 }

// with returns a copy with an envelope member set; nil takes it out.
func (f frame) with(name string, value any) frame {
	var members map[string]json.RawMessage
	if json.Unmarshal(f.text, &members) != nil {
		return f
	}
	set(members, name, value)
	return parse(encode(members))
}

// withPayload returns a copy with a payload member set; nil takes it out.
func (f frame) withPayload(name string, value any) frame {
	var members map[string]json.RawMessage
	if json.Unmarshal(f.Payload, &members) != nil {
		return f
	}
	set(members, name, value)
	return f.with("payload", json.RawMessage(encode(members)))
}

// withNewID returns a copy with another id.
func (f frame) withNewID() frame { return f.with("id", arcp.NewMessageID()) }

func set(members map[string]json.RawMessage, name string, value any) {
	if value == nil {
		delete(members, name)
		return
	}
	members[name] = encode(value)
}

// null is the JSON null, for a member that is there and has no value.
var null = json.RawMessage("null")

// encode writes v with the escapes that JSON requires only.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("proxy: " + err.Error()) // only plain values get here
	}
	return bytes.TrimSpace(b.Bytes())
}

// replaced makes a stage that replaces a text in received frames.
func replaced(old, text string) func() rewriter {
	return change(func(f frame) []frame { return []frame{f.replace(old, text)} })
}

// replacedOut makes a stage that replaces a text in sent frames.
func replacedOut(old, text string) func() rewriter {
	return func() rewriter {
		return rewriter{out: func(f frame) []frame { return []frame{f.replace(old, text)} }}
	}
}

func (f frame) replace(old, text string) frame {
	return parse(bytes.ReplaceAll(f.text, []byte(old), []byte(text)))
}
