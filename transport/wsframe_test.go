package transport

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// splitWire is a wire on which bytes arrive in pieces of at most step bytes. It stores the bytes
// sent.
type splitWire struct {
	in   []byte
	step int
	sent []byte
}

func (w *splitWire) receive() ([]byte, error) {
	if len(w.in) == 0 {
		return nil, io.EOF
	}
	n := min(w.step, len(w.in))
	p := bytes.Clone(w.in[:n])
	w.in = w.in[n:]
	return p, nil
}

func (w *splitWire) send(p []byte, _ time.Duration) (bool, error) {
	w.sent = append(w.sent, p...)
	return false, nil
}

func (*splitWire) release()        {}
func (*splitWire) interrupt()      {}
func (*splitWire) awaitPeerClose() {}
func (*splitWire) kill()           {}
func (*splitWire) join()           {}

func readerOf(stream []byte, step int, limit int64) *wsConn {
	c := newServerConn()
	c.start(&splitWire{in: stream, step: step}, Limits{ReadLimit: limit}, Info{})
	return c
}

func masked(op ws.OpCode, fin bool, payload []byte) []byte {
	return ws.MustCompileFrame(ws.MaskFrameWith(ws.NewFrame(op, fin, payload), newMask()))
}

// A message arrives as it was sent: in one frame or in fragments, with pings between them,
// however the bytes come.
func FuzzMessages(f *testing.F) {
	f.Add(3, 200, 70_000, 1, 1)
	f.Add(0, 125, 126, 7, 2)
	f.Add(65535, 65536, 0, 1000, 40)
	f.Fuzz(func(t *testing.T, a, b, c, step, parts int) {
		const most = 1 << 18
		step, parts = 1+int(uint(step)%most), 1+int(uint(parts)%50)
		var stream []byte
		var want [][]byte
		for i, n := range []int{a, b, c} {
			text := bytes.Repeat([]byte{'a' + byte(i)}, int(uint(n)%most))
			want = append(want, text)
			op, rest := ws.OpText, text
			for part := range parts {
				n := len(rest) / (parts - part)
				stream = append(stream, masked(op, part == parts-1, rest[:n])...)
				op, rest = ws.OpContinuation, rest[n:]
				stream = append(stream, masked(ws.OpPing, true, []byte("still there?"))...)
			}
		}
		r := readerOf(stream, step, most)
		for i := range want {
			if got, err := r.Read(); err != nil || !bytes.Equal(got, want[i]) {
				t.Fatalf("message %d: %d bytes, %v; want %d", i, len(got), err, len(want[i]))
			}
		}
		if _, err := r.Read(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last message: %v", err)
		}
	})
}

// FuzzFrames: any bytes end in an error, or are messages within the limit.
func FuzzFrames(f *testing.F) {
	f.Add(masked(ws.OpText, true, []byte("hello")), 3)
	f.Add(append(masked(ws.OpText, false, []byte("he")), masked(ws.OpContinuation, true, []byte("llo"))...), 1)
	f.Add([]byte("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff1234"), 100)
	f.Fuzz(func(t *testing.T, stream []byte, step int) {
		const limit = 64
		r := readerOf(stream, 1+int(uint(step)%100), limit)
		for {
			p, err := r.Read()
			if err != nil {
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Errorf("%T: %v", err, err)
				}
				return
			}
			if len(p) > limit {
				t.Fatalf("a message of %d bytes", len(p))
			}
		}
	})
}

// Invalid WebSocket frames are refused with the code for them (RFC 6455 §5, §7.4).
func TestInvalidFramesHaveACloseCode(t *testing.T) {
	for name, c := range map[string]struct {
		frames []byte
		code   CloseCode
	}{
		"a frame without a mask":        {ws.MustCompileFrame(ws.NewTextFrame([]byte("x"))), CloseProtocol},
		"a reserved bit":                {[]byte{0x81 | 0x40, 0x80, 1, 2, 3, 4}, CloseProtocol},
		"a reserved opcode":             {[]byte{0x83, 0x80, 1, 2, 3, 4}, CloseProtocol},
		"a continuation of nothing":     {masked(ws.OpContinuation, true, nil), CloseProtocol},
		"a message within a message":    {append(masked(ws.OpText, false, nil), masked(ws.OpText, true, nil)...), CloseProtocol},
		"a ping in fragments":           {masked(ws.OpPing, false, nil), CloseProtocol},
		"a ping that is too long":       {masked(ws.OpPing, true, make([]byte, 126)), CloseProtocol},
		"a length beyond 63 bits":       {[]byte("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff1234"), CloseProtocol},
		"a farewell of one byte":        {masked(ws.OpClose, true, []byte{3}), CloseProtocol},
		"a farewell that is never sent": {masked(ws.OpClose, true, ws.NewCloseFrameBody(ws.StatusNoStatusRcvd, "")), CloseProtocol},
		"a farewell that is not UTF-8":  {masked(ws.OpClose, true, ws.NewCloseFrameBody(ws.StatusNormalClosure, "\xff")), CloseProtocol},
		"a binary frame":                {masked(ws.OpBinary, true, nil), CloseNotText},
		"a text that is not UTF-8":      {masked(ws.OpText, true, []byte("\xff")), CloseNotUTF8},
		"a frame beyond the limit":      {masked(ws.OpText, true, make([]byte, 65)), CloseTooBig},
		"fragments beyond the limit": {append(masked(ws.OpText, false, make([]byte, 40)), masked(ws.OpContinuation, true, make([]byte, 25))...),
			CloseTooBig},
		"a length that would be too much": {[]byte("\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff1234"), CloseTooBig},
		"a farewell":                      {masked(ws.OpClose, true, ws.NewCloseFrameBody(4999, "bye")), 4999},
		"a farewell to an overload":       {masked(ws.OpClose, true, ws.NewCloseFrameBody(1013, "")), CloseOverloaded},
		"a farewell without a code":       {masked(ws.OpClose, true, nil), CloseNoStatus},
		"the end within a frame":          {masked(ws.OpText, true, []byte("hello"))[:8], CloseAbnormal},
	} {
		for _, step := range []int{1, 1000} {
			_, err := readerOf(c.frames, step, 64).Read()
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != c.code {
				t.Errorf("%s, %d bytes at a time: %v, want code %d", name, step, err, c.code)
			}
		}
	}
}

// Frames are sent while the fragments of a message arrive.
func TestPingsAreSentBetweenFragments(t *testing.T) {
	const messages = 500
	var stream []byte
	for range messages {
		stream = append(stream, masked(ws.OpText, false, []byte("he"))...)
		stream = append(stream, masked(ws.OpContinuation, true, []byte("llo"))...)
	}
	r := readerOf(stream, 16, 64)
	var pings sync.WaitGroup
	pings.Go(func() {
		for range messages {
			if err := r.Ping(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range messages {
		if p, err := r.Read(); err != nil || string(p) != "hello" {
			t.Fatalf("Read = %q, %v, want hello", p, err)
		}
	}
	pings.Wait()
}
