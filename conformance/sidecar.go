package conformance

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// isBinary reports whether the frame that was read last is binary.
func isBinary(tc transport.Conn) bool {
	b, ok := tc.(proxy.BinaryReader)
	return ok && b.Binary()
}

// joinSidecar returns a message with the content of the binary frame that it announces, which is the next frame:
// the content is in base64 in the member data of the payload. A message that announces none is unchanged.
func (l *link) joinSidecar(text []byte) ([]byte, error) {
	env, err := arcp.DecodeFromRuntime(text)
	if err != nil {
		return text, nil // the validator reports the reason
	}
	announced, ok := env.Announces()
	if !ok {
		return text, nil
	}
	frame, err := l.tc.Read()
	if err != nil {
		return nil, l.ended(err)
	}
	l.t.tr.add(l.n, Received, frame)
	if !isBinary(l.tc) {
		return nil, fmt.Errorf("the binary frame follows its message at once: a text frame follows %s", env.Type)
	}
	content, err := announced.Check(frame)
	if err != nil {
		return nil, fmt.Errorf("a binary frame belongs to the message before it: %w", err)
	}
	return withData(text, content)
}

// withData returns a message whose payload has content as data. Before it has no data, or empty data.
func withData(text, content []byte) ([]byte, error) {
	var members, payload map[string]json.RawMessage
	err := json.Unmarshal(text, &members)
	if err == nil {
		err = json.Unmarshal(members["payload"], &payload)
	}
	if data := string(payload["data"]); err == nil && data != "" && data != `""` {
		err = errors.New("content is in the message or in its binary frame: it is in both")
	}
	if err != nil {
		return nil, err
	}
	payload["data"], _ = json.Marshal(content) // bytes are always encoded
	if members["payload"], err = json.Marshal(payload); err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// sendSidecar is the step sidecar: it sends a binary frame. args are the kind, stream or message, the id, the
// sequence, and the content in base64.
func sendSidecar(c connection, args []script.Value) (script.Value, error) {
	var sequence uint64
	if err := arcp.Unmarshal(args[2], &sequence); err != nil {
		return nil, err
	}
	content, err := base64.StdEncoding.DecodeString(text(args[3]))
	if err != nil {
		return nil, err
	}
	h := arcp.SidecarHeader{Kind: arcp.SidecarMessage, ID: text(args[1]), Sequence: sequence}
	if text(args[0]) == "stream" {
		h.Kind = arcp.SidecarStream
	}
	frame := append(h.Append(nil), content...)
	l := c.transportLink()
	l.t.tr.add(l.n, Sent, frame)
	l.setSent(binaryFrame)
	return nil, l.tc.(proxy.BinaryWriter).WriteBinary(frame)
}
