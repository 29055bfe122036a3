// Package transport carries frames: it knows bytes, not ARCP. A frame is one
// UTF-8 text, sent as one WebSocket text message or one line.
//
// Every Conn follows the same contract, checked by one suite in transporttest.
package transport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Conn is a connection to a peer.
//
// One goroutine may call Read, and at the same time one other may call Write
// and Flush; Close and Abort may be called by anyone at any time, more than
// once, and make the other calls return.
type Conn interface {
	// Read blocks for the next frame. The slice is valid until the next Read.
	// A frame over the read limit, not UTF-8 or not text fails with an *Error
	// that says which close code it deserves; the connection is then unusable
	// but for Close. A peer that closed in order yields an *Error with its code
	// and Remote set. io.EOF is never returned bare.
	Read() ([]byte, error)

	// Write puts one frame into the connection's buffer of at most 64 KiB and sends only the bytes
	// that do not fit. The frame may be reused afterwards.
	Write(frame []byte) error

	// Flush sends the buffered bytes. Write and Flush block at most for the write timeout without
	// the peer taking any byte.
	Flush() error

	// Close sends the frames that Write has buffered and a close frame, then ends the connection.
	// It waits at most a second for a blocked Write or the peer's answer. The reason is cut to 123
	// bytes.
	Close(code CloseCode, reason string) error

	// Abort ends the connection at once without a word.
	Abort() error

	// SetReadLimit bounds the frames that follow, in bytes.
	SetReadLimit(n int64)

	// Ping asks the peer's transport for a sign of life and returns without
	// waiting for it. A transport without pings returns nil and does nothing.
	Ping() error

	// LastSeen returns when bytes of any kind last arrived, or when the peer took bytes that had
	// to wait for it: a peer that is behind with reading answers pings late. Initially it is the
	// time of the connection.
	LastSeen() time.Time

	// Info describes the connection. It does not change.
	Info() Info
}

// Bufferer is implemented by every Conn of this package.
type Bufferer interface {
	// Buffered reports whether Read has something to begin with. It counts as a
	// call of Read.
	Buffered() bool
}

// HalfCloser is a Conn whose peer may end sending and continue to read, as programs in a
// pipeline do: Conns over stdio and unix sockets. Read then fails as after an orderly close,
// with an error that wraps io.EOF, and writing continues.
type HalfCloser interface {
	// Reads reports whether the peer still reads, as far as the operating system knows. Once
	// false, it stays false.
	Reads() bool
}

// Info describes a connection.
type Info struct {
	Kind       string // websocket, stdio, unix or pipe: a metric label
	RemoteAddr string // without a port for networks; empty if there is none
	PeerUID    int    // of the process at the other end of stdio or unix; -1 if unknown
	PeerCerts  []*x509.Certificate
	Local      bool // stdio, unix, pipe: the operating system vouches for the peer
	Pings      bool // Ping does something, and LastSeen moves when it is answered

	Pass *Pass // of a connection that a Gate has counted when it was accepted; else nil
}

// CloseCode is a WebSocket close code (RFC 6455 §7.4, SPEC.md §6.5).
type CloseCode int

// The codes that are used.
const (
	CloseNormal     CloseCode = 1000
	CloseGoingAway  CloseCode = 1001 // shutdown
	CloseProtocol   CloseCode = 1002 // not WebSocket (RFC 6455)
	CloseNotText    CloseCode = 1003 // a binary frame
	CloseNoStatus   CloseCode = 1005 // the peer gave no code; never sent
	CloseAbnormal   CloseCode = 1006 // the connection broke; never sent
	CloseNotUTF8    CloseCode = 1007
	ClosePolicy     CloseCode = 1008 // authentication, eviction, superseded
	CloseTooBig     CloseCode = 1009
	CloseInternal   CloseCode = 1011
	CloseOverloaded CloseCode = 1013
)

// Error says why a connection ended.
type Error struct {
	Code   CloseCode
	Reason string
	Remote bool // the peer closed; else something on this side of the wire failed
	Err    error
}

func (e *Error) Error() string {
	who := "connection failed"
	if e.Remote {
		who = "closed by peer"
	}
	s := fmt.Sprintf("%s: %d", who, e.Code)
	if e.Reason != "" {
		s += " " + e.Reason
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// ErrClosed is wrapped by the errors of a connection that was closed on this
// side.
var ErrClosed = errors.New("transport: connection closed")

// Defaults of the limits below.
const (
	DefaultReadLimit    = 8 << 20
	DefaultWriteTimeout = 30 * time.Second
	BufferSize          = 64 << 10
)

// Limits bounds a connection. Zero members are the defaults.
type Limits struct {
	ReadLimit    int64         // bytes a frame; default DefaultReadLimit
	WriteTimeout time.Duration // without progress; default DefaultWriteTimeout
}
