package client

import (
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

var (
	errUnannounced = errors.New("no message announces the binary frame")
	errTextFrame   = errors.New("a text frame follows instead of the binary frame")
	errNoBinary    = errors.New("the connection has no binary frames")
)

// offersSidecar reports whether the client offers binary frames on a connection.
func (o *Options) offersSidecar(conn transport.Conn) bool {
	_, ok := conn.(transport.BinaryConn)
	return ok && !o.NoSidecar && o.Capabilities.BinaryEncoding == nil
}

// acceptSidecars makes a connection accept binary frames. A resumed session may have negotiated them, whatever
// the options are.
func acceptSidecars(conn transport.Conn) {
	if b, ok := conn.(transport.BinaryConn); ok {
		b.AcceptBinary()
	}
}

// sendsSidecars reports whether the session and its connection have binary frames.
func sendsSidecars(c *Client) bool {
	s := c.Session()
	if c.opts.NoSidecar || s.Dialect != arcp.DialectRFC || !s.Capabilities.Has(arcp.FeatureBinaryStreams) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.conn.(transport.BinaryConn)
	return ok
}

// isBinary reports whether the frame that was read last is binary.
func isBinary(conn transport.Conn) bool {
	b, ok := conn.(transport.BinaryConn)
	return ok && b.Binary()
}

// readSidecar reads the binary frame that a message announces, if it does.
func readSidecar(conn transport.Conn, env *arcp.Envelope) error {
	if _, ok := conn.(transport.BinaryConn); !ok || env.Type == arcp.ToolInvoke {
		return nil
	}
	announced, ok := env.Announces()
	if !ok {
		return nil
	}
	frame, err := conn.Read()
	if err != nil {
		return connectionLost(err)
	}
	err = errTextFrame
	if isBinary(conn) {
		err = env.Attach(announced, transport.KeepFrame(conn, frame))
	}
	if err != nil {
		return &ProtocolError{string(env.Type), fmt.Errorf("%s: %w", announced, err)}
	}
	return nil
}

// writeFrame writes an encoded frame, as a text or a binary frame.
func writeFrame(conn transport.Conn, frame []byte) error {
	if !arcp.IsSidecar(frame) {
		return conn.Write(frame)
	}
	if b, ok := conn.(transport.BinaryConn); ok {
		return b.WriteBinary(frame)
	}
	return errNoBinary
}

// binaryChunk returns the payload of stream.chunk with content.
func binaryChunk(c *Client, content []byte) arcp.StreamChunkPayload {
	if sendsSidecars(c) {
		return arcp.StreamChunkPayload{Encoding: arcp.EncodingSidecar, Size: uint64(len(content)), Sidecar: content}
	}
	return arcp.StreamChunkPayload{Data: quotedBase64(content), Encoding: "base64"}
}

// withSidecar returns a chunk in base64 with its content in a binary frame, if the client sends these. The
// runtime refuses data that cannot be decoded.
func withSidecar(c *Client, p arcp.StreamChunkPayload) arcp.StreamChunkPayload {
	if p.Encoding != "base64" || !sendsSidecars(c) {
		return p
	}
	if content, err := p.Bytes(arcp.StreamBinary); err == nil {
		p.Data, p.Encoding, p.Size, p.Sidecar = nil, arcp.EncodingSidecar, uint64(len(content)), notNil(content)
	}
	return p
}

// sidecarPut returns artifact.put with its content in a binary frame, if the client sends these.
func sidecarPut(c *Client, p PutArtifactParams, content []byte) arcp.ArtifactPutPayload {
	if !sendsSidecars(c) {
		return p.message(content)
	}
	put := p.message(nil)
	put.Encoding, put.Length, put.Sidecar, put.SHA256 = arcp.EncodingSidecar, uint64(len(content)), notNil(content), digestOf(content)
	return put
}

// notNil returns b, or an empty slice.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// memoryOf returns the bytes of a message that count against the limit of a queue.
func memoryOf(env *arcp.Envelope) int {
	return len(env.Payload) + len(env.Extensions) + len(env.Sidecar)
}
