//go:build linux

package transport_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/transport"
)

// A connection that accepts binary frames tells them from text frames, also in fragments, and with a control
// frame between these.
func TestBinaryFramesAreRead(t *testing.T) {
	server, c := rawDial(t, transport.Limits{})
	conn := server.(transport.BinaryConn)
	conn.AcceptBinary()
	c.write(c.frame(fin|binaryOp, "\xff\x00") + c.frame(fin|text, "{}") + c.frame(binaryOp, "\xfe") + c.frame(fin|ping, "") +
		c.frame(fin, "\xfd") + c.frame(text, "[") + c.frame(fin, "]") + c.frame(fin|binaryOp, ""))
	for _, want := range []struct {
		frame  string
		binary bool
	}{{"\xff\x00", true}, {"{}", false}, {"\xfe\xfd", true}, {"[]", false}, {"", true}} {
		frame, err := conn.Read()
		if err != nil || string(frame) != want.frame || conn.Binary() != want.binary {
			t.Fatalf("Read() = %q, %v, Binary() = %v; want %q, %v", frame, err, conn.Binary(), want.frame, want.binary)
		}
	}
}

// The read limit bounds binary frames, and text has to be UTF-8 also after a binary frame.
func TestBinaryFramesAreBounded(t *testing.T) {
	for frames, want := range map[string]transport.CloseCode{
		frameOf(fin|binaryOp, strings.Repeat("x", 11)):                           transport.CloseTooBig,
		frameOf(binaryOp, "123456") + frameOf(fin, "123456"):                     transport.CloseTooBig,
		frameOf(fin|binaryOp, "\xff") + frameOf(fin|text, "\xff"):                transport.CloseNotUTF8,
		frameOf(binaryOp, "\xff") + frameOf(fin|text, "x") + frameOf(fin, "123"): transport.CloseProtocol,
	} {
		server, c := rawDial(t, transport.Limits{ReadLimit: 10})
		conn := server.(transport.BinaryConn)
		conn.AcceptBinary()
		c.write(frames)
		_, err := conn.Read()
		if err == nil {
			_, err = conn.Read()
		}
		if e, ok := errors.AsType[*transport.Error](err); !ok || e.Code != want {
			t.Errorf("%q: Read() = %v, want %d", frames, err, want)
		}
	}
}

func frameOf(head byte, payload string) string { return rawClient{}.frame(head, payload) }

// binaryBytes returns n bytes that differ from their neighbours.
func binaryBytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// Both sides write binary frames of every size of header between text frames.
func TestBinaryFramesAreWritten(t *testing.T) {
	s, _ := newDirectServer(t, "/")
	near, err := transport.Dial(t.Context(), s.url, transport.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	far := <-s.conns
	for _, ends := range [][2]transport.Conn{{near, far}, {far, near}} {
		from, to := ends[0].(transport.BinaryConn), ends[1].(transport.BinaryConn)
		to.AcceptBinary()
		sizes := []int{0, 1, 125, 126, 65_535, 65_536, 200_000, 300_000, 290_000, 1 << 20, 1<<20 - 5, 300_000}
		go func() {
			for _, size := range sizes {
				frame, half := binaryBytes(size), size/2
				if errors.Join(from.Write([]byte("{}")), from.WriteBinary(frame),
					from.WriteContent(frame[:half], frame[half:]), from.WriteContent(nil, frame), from.WriteContent(frame, nil)) != nil {
					return // the reader fails, too
				}
			}
			_ = from.Flush() // likewise
		}()
		for _, size := range sizes {
			if frame, err := to.Read(); err != nil || string(frame) != "{}" || to.Binary() {
				t.Fatalf("before %d bytes: Read() = %d bytes, %v", size, len(frame), err)
			}
			var kept [][]byte // stay valid
			for range 4 {
				frame, err := to.Read()
				if err != nil || !to.Binary() {
					t.Fatalf("Read() = %d bytes, %v; want %d", len(frame), err, size)
				}
				kept = append(kept, transport.KeepFrame(to, frame))
			}
			for i, frame := range kept {
				if !bytes.Equal(frame, binaryBytes(size)) {
					t.Errorf("frame %d of %d bytes: %d bytes, or other ones", i, size, len(frame))
				}
			}
			for i, frame := range kept { // later frames are received in their memory
				transport.ReleaseFrame(frame[min(i, len(frame)):])
			}
		}
	}
	_ = near.Abort() // the test is over
	_ = far.Abort()
}

// Lines and pipes have no binary frames.
func TestOnlySocketsHaveBinaryFrames(t *testing.T) {
	a, b := transport.Pipe(transport.Limits{})
	for _, conn := range []transport.Conn{a, b} {
		if _, ok := conn.(transport.BinaryConn); ok {
			t.Errorf("a %s has binary frames", conn.Info().Kind)
		}
		_ = conn.Abort()
	}
}
