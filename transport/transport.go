// Package transport carries frames over connections. It knows of ARCP only the subprotocol names.
// A frame is a UTF-8 text, sent as one WebSocket text message or as one line. A [BinaryConn] has binary
// frames, too.
//
// Every Conn has the same contract, which the suite in transporttest checks.
package transport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Conn is a connection to a peer.
//
// One goroutine may call Read while another calls Write and Flush. Any goroutine may call Close and
// Abort at any time and repeatedly. They make the other calls return.
type Conn interface {
	// Read waits for the next frame. The slice is valid until the next Read. The error is an
	// *Error, never io.EOF itself. For a frame that is above the read limit, not text or not
	// UTF-8 it has the close code to send, and only Close may follow. After a close by the
	// peer it has the peer's code, and Remote is set.
	Read() ([]byte, error)

	// Write appends a frame to the send buffer of 64 KiB, and sends only the bytes that do not
	// fit. The caller may reuse the frame.
	Write(frame []byte) error

	// Flush sends the buffered bytes. Write and Flush fail when the peer receives no byte for
	// the write timeout.
	Flush() error

	// Close sends the buffered frames and a close frame in one write, if they fit, and ends the
	// connection. It waits at most a second for a blocked Write and for the answer of the peer.
	// Read returns no further frame. The reason is truncated to 123 bytes.
	Close(code CloseCode, reason string) error

	// Abort ends the connection at once without a close frame.
	Abort() error

	// SetReadLimit bounds the size of the following frames, in bytes.
	SetReadLimit(n int64)

	// Ping sends a ping of the transport and does not wait for the answer. A transport without
	// pings does nothing and returns nil.
	Ping() error

	// LastSeen returns the time of the last activity of the peer: received bytes, or the end
	// of a write that was blocked by the peer. Initially it is the time of the connection.
	LastSeen() time.Time

	// Info describes the connection. It does not change.
	Info() Info
}

// Bufferer is an optional interface. Every Conn of this package implements it.
type Bufferer interface {
	// Buffered reports whether received bytes are not read yet. It must not be called during
	// Read.
	Buffered() bool
}

// FrameOwner is an optional interface of Conns.
type FrameOwner interface {
	// FrameOwned reports whether the last frame of Read stays valid after the next Read, as large frames
	// do: it belongs to the caller. It must not be called during Read.
	FrameOwned() bool
}

// KeepFrame returns the last frame of Read in memory that stays valid after the next Read: frame itself if c is a
// FrameOwner that gives it away, otherwise a copy. Only the goroutine that calls Read may call it.
func KeepFrame(c Conn, frame []byte) []byte {
	if owner, ok := c.(FrameOwner); ok && len(frame) > BufferSize && owner.FrameOwned() {
		return frame
	}
	return append(make([]byte, 0, len(frame)), frame...)
}

// TryFlusher is an optional interface of Conns.
type TryFlusher interface {
	// TryFlush sends the buffered bytes if all of them can be sent without waiting. It reports
	// false if Flush has to send them, or a part of them. The goroutine that may call Flush may
	// call it.
	TryFlush() (sent bool, err error)
}

// BinaryConn is an optional interface of Conns with binary frames: WebSockets. Other Conns have none.
type BinaryConn interface {
	Conn

	// AcceptBinary makes Read return binary frames, too. Before it is called, Read fails with
	// CloseNotText for a binary frame. Any goroutine may call it.
	AcceptBinary()

	// Binary reports whether the frame that Read returned last is binary. Only the goroutine that
	// calls Read may call it.
	Binary() bool

	// WriteBinary is Write for a binary frame.
	WriteBinary(frame []byte) error

	// WriteContent is WriteBinary for a frame in two parts. A large content is sent without a copy.
	WriteContent(head, content []byte) error
}

// HalfCloser is an optional interface of Conns over stdio and unix sockets. Their peer may end sending and
// continue to read, like a program in a pipeline. Read then fails with an error that wraps io.EOF, and
// writing continues.
type HalfCloser interface {
	// Reads reports whether the peer still reads, according to the operating system. Once
	// false it stays false.
	Reads() bool
}

// Info describes a connection.
type Info struct {
	Kind       string // websocket, stdio, unix or pipe: a metric label
	RemoteAddr string // without the port; empty without a network
	PeerUID    int    // user id of the peer process for stdio and unix; -1 if unknown
	PeerCerts  []*x509.Certificate
	Local      bool // stdio, unix, pipe: the operating system authenticates the peer
	Pings      bool // Ping is supported: its answer advances LastSeen

	Pass *Pass // for a connection accepted by a listener of a Gate; else nil
}

// CloseCode is a WebSocket close code (RFC 6455 §7.4, SPEC.md §6.5).
type CloseCode int

// The close codes.
const (
	CloseNormal     CloseCode = 1000
	CloseGoingAway  CloseCode = 1001 // shutdown
	CloseProtocol   CloseCode = 1002 // violation of RFC 6455
	CloseNotText    CloseCode = 1003 // a binary frame that was not negotiated
	CloseNoStatus   CloseCode = 1005 // close without a code; never sent
	CloseAbnormal   CloseCode = 1006 // the connection broke; never sent
	CloseNotUTF8    CloseCode = 1007
	ClosePolicy     CloseCode = 1008 // authentication, eviction, superseded
	CloseTooBig     CloseCode = 1009
	CloseInternal   CloseCode = 1011
	CloseOverloaded CloseCode = 1013
)

// Error is the reason why a connection ended.
type Error struct {
	Code   CloseCode
	Reason string
	Remote bool // the peer closed the connection; false: a local failure
	Err    error
}

func (e *Error) Error() string {
	end := "connection failed"
	if e.Remote {
		end = "closed by peer"
	}
	s := fmt.Sprintf("%s: %d", end, e.Code)
	if e.Reason != "" {
		s += " " + e.Reason
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// ErrClosed is wrapped by the errors of a connection after Close or Abort.
var ErrClosed = errors.New("transport: connection closed")

// Defaults of Limits, and the size of the buffers in bytes.
const (
	DefaultReadLimit    = 8 << 20
	DefaultWriteTimeout = 30 * time.Second
	BufferSize          = 64 << 10
)

// Limits bounds a connection. A zero member has the documented default.
type Limits struct {
	ReadLimit    int64         // largest frame in bytes; default DefaultReadLimit
	WriteTimeout time.Duration // time without progress; default DefaultWriteTimeout
}
