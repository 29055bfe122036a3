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

	// Write puts one frame into the connection's buffer, of at most 64 KiB, and
	// sends only what does not fit. The frame is not kept.
	Write(frame []byte) error

	// Flush sends what is buffered. Write and Flush block no longer than the
	// write timeout without any byte being taken by the peer.
	Flush() error

	// Close sends what a Write has buffered and a farewell, without waiting for
	// a blocked Write or for the peer's answer longer than a second, and ends
	// the connection. The reason is cut to 123 bytes.
	Close(code CloseCode, reason string) error

	// Abort ends the connection at once without a word.
	Abort() error

	// SetReadLimit bounds the frames that follow, in bytes.
	SetReadLimit(n int64)

	// Ping asks the peer's transport for a sign of life and returns without
	// waiting for it. A transport without pings returns nil and does nothing.
	Ping() error

	// LastSeen is when bytes of any kind last arrived, or when the peer took some
	// that had to wait for it: who is behind with reading answers pings late. At
	// first it is when the connection was made.
	LastSeen() time.Time

	// Info describes the connection. It does not change.
	Info() Info
}

// Bufferer is what every Conn of this package also is.
type Bufferer interface {
	// Buffered reports whether Read has something to begin with. It counts as a
	// call of Read.
	Buffered() bool
}

// HalfCloser is a Conn whose peer may end sending and read on, as programs in a
// pipeline do: those over stdio and unix sockets. Read fails then as when the peer
// has closed in order, with an error that wraps io.EOF, and writing goes on.
type HalfCloser interface {
	// Reads reports whether the peer still takes what is written, as far as the
	// operating system knows. Once it is false, it stays so.
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
