package conn

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// machineConfigs are the configurations of the machines of new connections.
type machineConfigs struct {
	text    dialectConfigs // of connections without binary frames, and of the draft dialect
	sidecar dialectConfigs // of connections with binary frames
}

// dialectConfigs are machineConfigs of one kind of connections.
type dialectConfigs struct {
	auth      machine.Config // while credentials are required
	anonymous machine.Config // while anonymous clients are accepted
}

func (s *Server) newMachineConfigs() machineConfigs {
	configs := func(sidecar bool) dialectConfigs {
		return dialectConfigs{s.newMachineConfig(false, sidecar), s.newMachineConfig(true, sidecar)}
	}
	return machineConfigs{text: configs(false), sidecar: configs(true)}
}

// machineConfig returns the configuration of the machine of a new connection.
func (s *Server) machineConfig(sidecar bool) *machine.Config {
	configs := &s.machineConfigs.text
	if sidecar {
		configs = &s.machineConfigs.sidecar
	}
	if s.opts.Auth.Offers(auth.None) {
		return &configs.anonymous
	}
	return &configs.auth
}

// binaryEncodings returns the offered member binary_encoding.
func binaryEncodings(sidecar bool) []string {
	if sidecar {
		return []string{"base64", arcp.EncodingSidecar}
	}
	return []string{"base64"}
}

// hasBinary reports whether a connection has binary frames.
func hasBinary(tc transport.Conn) bool {
	_, ok := tc.(transport.BinaryConn)
	return ok
}

// acceptSidecars begins the use of binary frames if the session has negotiated them (SPEC.md §6.7). It is
// called before session.accepted or session.resumed is sent.
func (c *conn) acceptSidecars() {
	bin, ok := c.tc.(transport.BinaryConn)
	if !ok || c.dialect.name() != arcp.DialectRFC || !c.session.negotiated(arcp.FeatureBinaryStreams) {
		return
	}
	c.output.sidecar = true
	c.inbox.sidecar.Store(true)
	bin.AcceptBinary()
}

// sidecarReader joins each message that announces a binary frame with that frame, which is the next one of the
// connection. It holds at most one message, whose payload has at most maxAnnouncement bytes, until the next frame
// or the end of the connection. Only the reader uses it.
type sidecarReader struct {
	conn      transport.BinaryConn // nil: the connection has no binary frames
	held      *inbound             // waits for its binary frame; nil: none
	announced arcp.SidecarAnnouncement
}

func newSidecarReader(tc transport.Conn) (sr sidecarReader) {
	sr.conn, _ = tc.(transport.BinaryConn)
	return sr
}

// isBinary reports whether the frame that was read last is binary.
func (sr *sidecarReader) isBinary() bool { return sr.conn != nil && sr.conn.Binary() }

// maxAnnouncement bounds the payload of a message that announces a binary frame, because it is held until that
// frame is there. The content is in the binary frame.
const maxAnnouncement = 64 << 10

// hold holds a message that announces a binary frame, and reports whether it does. A message that is refused is
// held, too: its binary frame follows.
func (sr *sidecarReader) hold(in inbound) bool {
	if in.env == nil {
		return false
	}
	announced, ok := in.env.Announces()
	if !ok {
		return false
	}
	switch {
	case len(in.env.Payload) > maxAnnouncement:
		refuseHeld(&in, "a message that announces a binary frame may have a payload of %d bytes, and this one has %d", maxAnnouncement, len(in.env.Payload))
		in.env.Payload = nil
	case in.env.Type == arcp.ToolInvoke && announced.Size > artifact.MaxChunk:
		refuseHeld(&in, "the binary frame of a call may have %d bytes of content, and this one announces %d", artifact.MaxChunk, announced.Size)
	}
	sr.held, sr.announced = &in, announced
	return true
}

// refuseHeld makes a fault of a held message.
func refuseHeld(in *inbound, format string, args ...any) {
	in.fault = &sidecarFault{request: in.env.ID, env: in.env, message: fmt.Sprintf(format, args...)}
}

// resolve handles the next frame after hold, and each binary frame. It returns the message with its binary
// frame, or why there is none. ok is false if there is no message, because the connection has ended.
func (sr *sidecarReader) resolve(frame []byte, binary bool, ended error) (in inbound, ok bool) {
	held := sr.held
	sr.held = nil
	switch {
	case ended != nil:
		return in, false
	case held == nil:
		return inbound{fault: unannounced(frame), size: len(frame)}, true
	case held.fault != nil:
		return *held, true
	case !binary:
		refuseHeld(held, "the message announces a binary frame with %s, and a text frame follows it", sr.announced)
		return *held, true
	}
	before := len(held.env.Payload)
	if err := held.env.Attach(sr.announced, transport.KeepFrame(sr.conn, frame)); err != nil {
		refuseHeld(held, "%s", err)
	}
	held.size += max(len(frame), len(held.env.Payload)-before)
	return *held, true
}

// sidecarFault is a binary frame that no message announces, or a message without the binary frame that it
// announces.
type sidecarFault struct {
	env     *arcp.Envelope // the message; nil: none
	request arcp.MessageID // that the refusal answers; empty: not known
	stream  arcp.StreamID  // of the frame; empty: none
	message string
}

// unannounced returns the fault of a binary frame that no message announces.
func unannounced(frame []byte) *sidecarFault {
	h, _, err := arcp.ParseSidecar(frame)
	f := &sidecarFault{message: "the message before a binary frame must announce it"}
	switch {
	case err != nil:
		f.message += ": " + err.Error()
	case h.Kind == arcp.SidecarStream && arcp.StreamID(h.ID).Valid():
		f.stream = arcp.StreamID(h.ID)
	case h.Kind == arcp.SidecarMessage:
		f.request = arcp.MessageID(h.ID)
	}
	return f
}

// refuseSidecar answers a fault with nack INVALID_ARGUMENT. The fault counts as a malformed frame and against
// the rate. The message has no effect, and the client may send it again with the same id.
func (c *conn) refuseSidecar(now time.Time, f *sidecarFault) {
	env := f.env
	if env == nil {
		env = &arcp.Envelope{ID: f.request}
	}
	if c.machine.Phase() != machine.Accepted || c.rates.refuse(now, env) {
		return
	}
	answer := answerTo(f.request, arcp.Nack, arcp.Errorf(arcp.CodeInvalidArgument, "%s", f.message))
	answer.StreamID = f.stream
	c.send(now, answer)
	c.machine.Malformed(&arcp.EncodingError{Reason: arcp.ReasonSidecar, Message: f.message})
}

// writeFrame writes an encoded frame, as a text or a binary frame. content is the rest of a binary frame; nil: none.
func (o *outbox) writeFrame(frame, content []byte) error {
	if o.bin != nil && arcp.IsSidecar(frame) {
		return o.bin.WriteContent(frame, content)
	}
	return o.conn.Write(frame)
}

// Members of the body of a stream.chunk.
const (
	streamMember = `,"stream_id":"`
	dataMember   = `,"data":"`
	base64Member = `"encoding":"base64"`
)

// maxSizeMember is the number of bytes between the encoding and the end of the payload.
const maxSizeMember = len(base64Member) + len(`,"size":18446744073709551615}`)

// binaryChunk is a stream.chunk of a binary stream in two frames.
type binaryChunk struct {
	event   *store.Event // without data, with the encoding sidecar
	head    arcp.SidecarHeader
	content []byte
}

// splitChunk splits an event that is a chunk of a binary stream. It reports false for all other events.
func splitChunk(e *store.Event) (bc binaryChunk, ok bool) {
	if e.Type != arcp.StreamChunk || !mayBeBinary(e.Body) {
		return bc, false
	}
	payload := e.Payload()
	body := e.Body[:len(e.Body)-len(payload)-1]
	const start = len(`{"sequence":`)
	at := bytes.Index(payload, []byte(dataMember)) // the member follows the number
	if at < start {
		return bc, false
	}
	data, tail, closed := bytes.Cut(payload[at+len(dataMember):], []byte(`"`))
	_, id, named := bytes.Cut(body, []byte(streamMember))
	id, _, _ = bytes.Cut(id, []byte(`"`))
	sequence, err := strconv.ParseUint(string(payload[start:at]), 10, 64)
	encoding := bytes.LastIndex(tail, []byte(base64Member))
	if !closed || !named || err != nil || encoding < 0 {
		return bc, false
	}
	content, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(data))), data)
	if err != nil { // a tool's Stream has encoded it
		return bc, false
	}
	view := *e
	view.Body = slices.Concat(body, payload[:at], tail[:encoding], []byte(`"encoding":"`+arcp.EncodingSidecar+`"`), tail[encoding+len(base64Member):], []byte("}"))
	return binaryChunk{&view, arcp.SidecarHeader{Kind: arcp.SidecarStream, ID: string(id), Sequence: sequence}, content}, true
}

// mayBeBinary reports whether the body of a chunk ends with the encoding base64, or with it and a size. Text of
// chunks may end so, too.
func mayBeBinary(body []byte) bool {
	end := len(body) - len("}}")
	if end < 1 {
		return false
	}
	if last := body[end-1]; last < '0' || last > '9' {
		return bytes.HasSuffix(body[:end], []byte(base64Member))
	}
	return bytes.Contains(body[max(0, len(body)-1-maxSizeMember):], []byte(base64Member))
}

// minContent is the size from which a content is not copied: a copy of less costs less than another call of the
// kernel.
const minContent = transport.BufferSize

// appendContent appends a binary frame with a content. data is b.data with the header of the frame. The content must
// not change any more.
func (b *batch) appendContent(data, content []byte) {
	if len(content) < minContent {
		data = append(data, content...)
	} else {
		b.contents = append(b.contents, frameContent{len(b.ends), content})
	}
	b.data = data
	b.ends = append(b.ends, len(b.data))
}

// sidecarAnswer returns the payload of artifact.put with content in a binary frame.
func sidecarAnswer(p arcp.ArtifactPutPayload, content []byte) arcp.ArtifactPutPayload {
	p.Encoding, p.Length = arcp.EncodingSidecar, uint64(len(content))
	p.Sidecar = content[:len(content):len(content)]
	if content == nil {
		p.Sidecar = []byte{}
	}
	return p
}
