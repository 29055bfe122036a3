package arcp

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/arcpd/arcpd/internal/clip"
)

// EncodingSidecar is the encoding of content in the binary frame that follows its message, and the name in
// [Capabilities].BinaryEncoding of a peer that accepts such frames (§6.7).
const EncodingSidecar = "sidecar"

// sidecarVersion is the first byte of a binary frame.
const sidecarVersion = 0x01

// SidecarKind says what the id of a binary frame identifies.
type SidecarKind byte

// The kinds of binary frames.
const (
	SidecarStream  SidecarKind = 0 // a stream.chunk, by its stream_id and sequence
	SidecarMessage SidecarKind = 1 // another message, by its id; the sequence is 0
)

// SidecarHeader is the header of a binary frame. The content follows it.
type SidecarHeader struct {
	Kind     SidecarKind
	ID       string // stream_id or id of the message
	Sequence uint64 // of the chunk
}

func (h SidecarHeader) String() string {
	id := clip.Ellipsis(h.ID, maxShownID)
	if h.Kind == SidecarStream {
		return fmt.Sprintf("chunk %d of stream %s", h.Sequence, id)
	}
	return fmt.Sprintf("the content of message %s", id)
}

// maxShownID bounds the id in the text of a header, in bytes.
const maxShownID = 64

// Append appends the header to dst.
func (h SidecarHeader) Append(dst []byte) []byte {
	dst = append(dst, sidecarVersion, byte(h.Kind))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(h.ID)))
	return binary.BigEndian.AppendUint64(append(dst, h.ID...), h.Sequence)
}

// IsSidecar reports whether an encoded frame is a binary frame. A frame with an envelope begins with a brace.
func IsSidecar(frame []byte) bool { return len(frame) > 0 && frame[0] == sidecarVersion }

// ParseSidecar returns the header and the content of a binary frame. The content is a part of the frame.
func ParseSidecar(frame []byte) (h SidecarHeader, content []byte, err error) {
	const start = 4 // bytes before the id
	switch {
	case len(frame) < start:
		return h, nil, errors.New("a binary frame is shorter than its header")
	case frame[0] != sidecarVersion:
		return h, nil, fmt.Errorf("a binary frame begins with %#02x instead of %#02x", frame[0], sidecarVersion)
	case frame[1] > byte(SidecarMessage):
		return h, nil, fmt.Errorf("a binary frame has the unknown kind %d", frame[1])
	}
	end := start + int(binary.BigEndian.Uint16(frame[2:]))
	switch {
	case len(frame) < end+8:
		return h, nil, errors.New("a binary frame is shorter than its header")
	case !ValidID(string(frame[start:end])):
		return h, nil, fmt.Errorf("the id of a binary frame has not 1 to %d visible ASCII characters", MaxIDLen)
	}
	h = SidecarHeader{SidecarKind(frame[1]), string(frame[start:end]), binary.BigEndian.Uint64(frame[end:])}
	return h, frame[end+8:], nil
}

// SidecarAnnouncement describes the binary frame that must follow a message.
type SidecarAnnouncement struct {
	SidecarHeader
	Size uint64 // bytes of content

	hasData bool // the message has content, too
}

// sidecarName is in the payload of each message that announces a binary frame.
var sidecarName = []byte(`"` + EncodingSidecar + `"`)

// Announces returns the binary frame that must follow the message. ok is false if there is none.
func (e *Envelope) Announces() (a SidecarAnnouncement, ok bool) {
	switch e.Type {
	case StreamChunk, ArtifactPut, ToolInvoke:
	default:
		return a, false
	}
	if !bytes.Contains(e.Payload, sidecarName) {
		return a, false
	}
	a.SidecarHeader = SidecarHeader{Kind: SidecarMessage, ID: string(e.ID)}
	var encoding string
	var err error
	switch e.Type {
	case StreamChunk:
		var p StreamChunkPayload
		p, err = DecodePayload[StreamChunkPayload](e)
		a = SidecarAnnouncement{SidecarHeader{SidecarStream, string(e.StreamID), p.Sequence}, p.Size, hasData(p.Data)}
		encoding = p.Encoding
	case ArtifactPut:
		var p ArtifactPutPayload
		p, err = DecodePayload[ArtifactPutPayload](e)
		a.Size, a.hasData, encoding = p.Length, p.Data != "", p.Encoding
	case ToolInvoke:
		var p sidecarCall
		if p, err = DecodePayload[sidecarCall](e); p.Tool == putTool {
			a.Size, a.hasData, encoding = p.Arguments.Size, hasData(p.Arguments.Data), p.Arguments.Encoding
		}
	}
	return a, err == nil && encoding == EncodingSidecar // an undecodable payload announces nothing
}

// hasData reports whether the member data has content.
func hasData(data Raw) bool { return len(data) > 0 && data.Kind() != 'n' && string(data) != `""` }

// putTool is the tool whose calls may announce a binary frame (§7.10).
const putTool = "artifact.put"

// sidecarCall has the members of a tool.invoke that announce a binary frame.
type sidecarCall struct {
	Tool      string `json:"tool"`
	Arguments struct {
		Encoding string `json:"encoding"`
		Size     uint64 `json:"size"`
		Data     Raw    `json:"data"`
	} `json:"arguments"`
}

// Check returns the content of a binary frame. The error describes the frame that was announced if this is
// another one.
func (a SidecarAnnouncement) Check(frame []byte) ([]byte, error) {
	h, content, err := ParseSidecar(frame)
	switch {
	case a.hasData:
		return nil, errors.New("a message that announces a binary frame has no data")
	case err != nil:
		return nil, fmt.Errorf("%w; the message announces a binary frame with %s", err, a.SidecarHeader)
	case h != a.SidecarHeader:
		return nil, fmt.Errorf("the binary frame has %s; the message announces %s", h, a.SidecarHeader)
	case uint64(len(content)) != a.Size:
		return nil, fmt.Errorf("the binary frame of %s has %d bytes; the message announces %d", h, len(content), a.Size)
	}
	return content, nil
}

// Attach makes the content of the binary frame e.Sidecar, which is the end of frame with its capacity: frame belongs to
// e afterwards. For a tool.invoke it adds the argument data with the content in base64 instead. It returns the error of
// Check, or an error if the payload is no object.
func (e *Envelope) Attach(a SidecarAnnouncement, frame []byte) error {
	content, err := a.Check(frame)
	switch {
	case err != nil:
		return err
	case e.Type == ToolInvoke:
		return e.setArgument(content)
	}
	e.Sidecar = content
	return nil
}

// setArgument replaces the arguments encoding and size of a call by data.
func (e *Envelope) setArgument(content []byte) error {
	var members, arguments map[string]Raw
	if err := Unmarshal(e.Payload, &members); err != nil {
		return err
	}
	if err := Unmarshal(members["arguments"], &arguments); err != nil {
		return err
	}
	delete(arguments, "encoding")
	delete(arguments, "size")
	data := make([]byte, 0, base64.StdEncoding.EncodedLen(len(content))+2)
	data = append(base64.StdEncoding.AppendEncode(append(data, '"'), content), '"')
	arguments["data"] = data
	members["arguments"] = appendMembers(nil, arguments)
	e.Payload = appendMembers(make([]byte, 0, len(data)+len(e.Payload)+64), members)
	return nil
}

// appendMembers appends an object with encoded members.
func appendMembers(dst []byte, members map[string]Raw) []byte {
	o := beginObject(dst)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		o.raw(name, members[name])
	}
	return o.end()
}

// Inline puts the content of Sidecar into the payload, in base64, and sets Sidecar to nil. It does nothing
// without a Sidecar.
func (e *Envelope) Inline() {
	if e.Sidecar == nil {
		return
	}
	data := base64.StdEncoding.EncodeToString(e.Sidecar)
	switch e.Type {
	case StreamChunk:
		if p, err := DecodePayload[StreamChunkPayload](e); err == nil {
			p.Data, p.Encoding = AppendString(nil, data), "base64"
			e.Payload = p.AppendJSON(nil)
		}
	case ArtifactPut:
		if p, err := DecodePayload[ArtifactPutPayload](e); err == nil {
			p.Data, p.Encoding, p.Length, p.Sidecar = data, "", 0, nil
			e.Payload = Frame(e.Type, p).Payload
		}
	}
	e.Sidecar = nil
}

// AppendSidecar appends the binary frame of the message, whose Sidecar is not nil.
func (e *Envelope) AppendSidecar(dst []byte) []byte {
	return append(e.AppendSidecarHeader(dst), e.Sidecar...)
}

// AppendSidecarHeader is AppendSidecar without the content, which follows the header in the frame.
func (e *Envelope) AppendSidecarHeader(dst []byte) []byte {
	h := SidecarHeader{Kind: SidecarMessage, ID: string(e.ID)}
	if e.Type == StreamChunk {
		p, _ := DecodePayload[StreamChunkPayload](e) // made by Frame
		h = SidecarHeader{SidecarStream, string(e.StreamID), p.Sequence}
	}
	return h.Append(dst)
}

// sidecarPayload is a payload whose content may be in a binary frame. Frame and DecodePayload pass the content.
type sidecarPayload interface{ sidecarContent() *[]byte }

func (p *StreamChunkPayload) sidecarContent() *[]byte { return &p.Sidecar }
func (p *ArtifactPutPayload) sidecarContent() *[]byte { return &p.Sidecar }

// sidecarOf returns the content of the payload p of a new message that is in a binary frame; nil: none.
func sidecarOf(p any) []byte {
	switch p := p.(type) {
	case StreamChunkPayload:
		return p.Sidecar
	case ArtifactPutPayload:
		return p.Sidecar
	}
	return nil
}

// errNoSidecar is the error of content that was announced, and did not come.
func errNoSidecar() *Error {
	return Errorf(CodeInvalidArgument, "the encoding sidecar needs a binary frame, which this session has not negotiated: send the data in base64")
}

// Bytes returns the content of a chunk of a text, thought or binary stream: its text, the decoded base64 of a
// binary chunk, or its binary frame. The error is an *Error with the code INVALID_ARGUMENT.
func (p *StreamChunkPayload) Bytes(kind string) ([]byte, error) {
	if p.Encoding == EncodingSidecar {
		switch {
		case p.Sidecar == nil:
			return nil, errNoSidecar()
		case kind != StreamBinary:
			return nil, Errorf(CodeInvalidArgument, "only the chunks of binary streams have the encoding sidecar")
		}
		return p.Sidecar, nil
	}
	var text string
	if err := Unmarshal(p.Data, &text); err != nil {
		return nil, Errorf(CodeInvalidArgument, "the data of a stream of the kind %s is a string", kind)
	}
	if kind != StreamBinary {
		return []byte(text), nil
	}
	return decodeBase64(text)
}

// Bytes returns the content of the message: its binary frame, or the decoded data. The error is an *Error
// with the code INVALID_ARGUMENT.
func (p *ArtifactPutPayload) Bytes() ([]byte, error) {
	if p.Encoding != EncodingSidecar {
		return decodeBase64(p.Data)
	}
	if p.Sidecar == nil {
		return nil, errNoSidecar()
	}
	return p.Sidecar, nil
}

func decodeBase64(text string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, Errorf(CodeInvalidArgument, "data: %s", err)
	}
	return b, nil
}
