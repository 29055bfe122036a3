package transporttest

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// Peer is the other end of a connection of lines, below frames.
type Peer interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// DialPeer makes a connection and returns its other end.
type DialPeer func(t *testing.T) (transport.Conn, Peer)

// RunHalf checks the connections that dial makes, which are HalfClosers.
func RunHalf(t *testing.T, dial DialPeer) {
	for name, run := range map[string]func(p halfPair){
		"WritesAfterHalfClose": writesAfterHalfClose,
		"FindsLaterClose":      findsLaterClose,
		"FindsClose":           findsClose,
	} {
		t.Run(name, func(t *testing.T) {
			conn, peer := dial(t)
			t.Cleanup(func() {
				_ = conn.Abort()
				_ = peer.Close()
			})
			run(halfPair{t, conn, peer})
		})
	}
}

type halfPair struct {
	*testing.T
	conn transport.Conn
	peer Peer
}

// reads returns HalfCloser.Reads of the connection.
func (p halfPair) reads() bool {
	p.Helper()
	h, ok := p.conn.(transport.HalfCloser)
	if !ok {
		p.Fatalf("a %T is no HalfCloser", p.conn)
	}
	return h.Reads()
}

// sendsThenEnds sends two frames of the peer, calls end, and reads the frames and the end.
func (p halfPair) sendsThenEnds(end func() error) {
	p.Helper()
	if _, err := io.WriteString(p.peer, "1\n2\n"); err != nil {
		p.Fatal(err)
	}
	if err := end(); err != nil {
		p.Fatal(err)
	}
	for _, want := range []string{"1", "2"} {
		if frame, err := p.conn.Read(); err != nil || string(frame) != want {
			p.Fatalf("Read() = %q, %v, want %q", frame, err, want)
		}
	}
	for range 2 {
		_, err := p.conn.Read()
		if e, ok := errors.AsType[*transport.Error](err); !ok || !e.Remote || !errors.Is(err, io.EOF) {
			p.Fatalf("Read() at the end = %v, want the peer's end", err)
		}
	}
}

// write writes more frames than all buffers hold.
func (p halfPair) write() (err error) {
	frame := strings.Repeat("x", 4095)
	for range 256 {
		err = errors.Join(err, p.conn.Write([]byte(frame)))
	}
	return errors.Join(err, p.conn.Flush())
}

// writesAfterHalfClose checks that a peer that only ended sending receives all frames.
func writesAfterHalfClose(p halfPair) {
	p.sendsThenEnds(p.peer.CloseWrite)
	if !p.reads() {
		p.Error("Reads() = false for a peer that has only ended sending, want true")
	}
	wrote := make(chan error, 1)
	go func() { wrote <- errors.Join(p.write(), p.conn.Close(transport.CloseNormal, "")) }()
	got, err := io.ReadAll(p.peer)
	if err != nil || len(got) != 256*4096 {
		p.Errorf("the peer reads %d bytes, %v, want all %d", len(got), err, 256*4096)
	}
	if err := <-wrote; err != nil {
		p.Errorf("Write, Flush and Close = %v, want no error", err)
	}
	if p.reads() {
		p.Error("Reads() = true for a closed connection, want false")
	}
}

// findsLaterClose checks that Reads and writes report a peer that closes after its half-close.
func findsLaterClose(p halfPair) {
	p.sendsThenEnds(p.peer.CloseWrite)
	if err := p.peer.Close(); err != nil {
		p.Fatal(err)
	}
	for end := time.Now().Add(callTimeout); p.reads(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatal("Reads() = true for a closed peer, want false")
		}
	}
	if err := p.write(); err == nil {
		p.Error("Write and Flush to a closed peer succeed, want an error")
	}
}

// findsClose checks that Reads and writes report a closed peer.
func findsClose(p halfPair) {
	p.sendsThenEnds(p.peer.Close)
	if p.reads() {
		p.Error("Reads() = true for a closed peer, want false")
	}
	if err := p.write(); err == nil {
		p.Error("Write and Flush to a closed peer succeed, want an error")
	}
}
