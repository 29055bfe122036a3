package transporttest

import (
	"errors"
	"io"
	"strconv"
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
		"PeerReadsOn":   peerReadsOn,
		"PeerGoesLater": peerGoesLater,
		"PeerGone":      peerGone,
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

// reads returns the connection's knowledge of its peer.
func (p halfPair) reads() bool {
	p.Helper()
	h, ok := p.conn.(transport.HalfCloser)
	if !ok {
		p.Fatalf("a %T is no HalfCloser", p.conn)
	}
	return h.Reads()
}

// ends has the peer send two frames and then end sending by end.
func (p halfPair) ends(end func() error) {
	p.Helper()
	if _, err := io.WriteString(p.peer, "1\n2\n"); err != nil {
		p.Fatal(err)
	}
	if err := end(); err != nil {
		p.Fatal(err)
	}
	for _, want := range []string{"1", "2"} {
		if frame, err := p.conn.Read(); err != nil || string(frame) != want {
			p.Fatalf("Read() = %q, %v, want what was sent before the end", frame, err)
		}
	}
	for range 2 {
		_, err := p.conn.Read()
		if e, ok := errors.AsType[*transport.Error](err); !ok || !e.Remote || !errors.Is(err, io.EOF) {
			p.Fatalf("Read() at the end = %v, want the peer's end", err)
		}
	}
}

// write writes many frames, more than is buffered anywhere.
func (p halfPair) write() (err error) {
	frame := strings.Repeat("x", 4095)
	for range 256 {
		err = errors.Join(err, p.conn.Write([]byte(frame)))
	}
	return errors.Join(err, p.conn.Flush())
}

func peerReadsOn(p halfPair) {
	p.ends(p.peer.CloseWrite)
	if !p.reads() {
		p.Errorf("Reads() = false of a peer that has only ended sending")
	}
	wrote := make(chan error, 1)
	go func() { wrote <- errors.Join(p.write(), p.conn.Close(transport.CloseNormal, "")) }()
	got, err := io.ReadAll(p.peer)
	if err != nil || len(got) != 256*4096 {
		p.Errorf("the peer reads %s bytes, %v, want all that was written", strconv.Itoa(len(got)), err)
	}
	if err := <-wrote; err != nil {
		p.Errorf("Write, Flush and Close = %v", err)
	}
	if p.reads() {
		p.Errorf("Reads() = true of a connection that was closed")
	}
}

// peerGoesLater checks that the end of a half-closed peer is found by reads, and by writing.
func peerGoesLater(p halfPair) {
	p.ends(p.peer.CloseWrite)
	if err := p.peer.Close(); err != nil {
		p.Fatal(err)
	}
	for end := time.Now().Add(hang); p.reads(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("Reads() = true of a peer that has gone")
		}
	}
	if err := p.write(); err == nil {
		p.Errorf("Write and Flush succeed though nobody reads")
	}
}

func peerGone(p halfPair) {
	p.ends(p.peer.Close)
	if p.reads() {
		p.Errorf("Reads() = true of a peer that has gone")
	}
	if err := p.write(); err == nil {
		p.Errorf("Write and Flush succeed though nobody reads")
	}
}
