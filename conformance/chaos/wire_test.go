package chaos

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// A connection is cut at a byte within any frame, stalls, and runs undisturbed after the
// campaign.
func TestWireBreaks(t *testing.T) {
	for _, c := range []struct {
		why   string
		fault fault
		calm  bool
		want  int
		cuts  int64
		least time.Duration
	}{
		{"nothing", fault{cutAfter: -1, stall: -1}, false, 1000, 0, 0},
		{"a cut", fault{cutAfter: 700, stall: -1}, false, 700, 1, 0},
		{"a cut at once", fault{cutAfter: 0, stall: -1}, false, 0, 1, 0},
		{"a stall", fault{cutAfter: -1, stall: 500, pause: 20 * time.Millisecond}, false, 1000, 0, 20 * time.Millisecond},
		{"a cut when it is calm", fault{cutAfter: 700, stall: -1}, true, 1000, 0, 0},
	} {
		var w wire
		w.calm.Store(c.calm)
		client, near := net.Pipe()
		far, server := net.Pipe()
		go w.carry(far, near, c.fault)
		go func() {
			for range 10 {
				if _, err := client.Write(bytes.Repeat([]byte("x"), 100)); err != nil {
					return // cut
				}
			}
			_ = client.Close() // all is written
		}()
		start := time.Now()
		got, err := io.ReadAll(server)
		if len(got) != c.want || err != nil || w.cuts.Load() != c.cuts || time.Since(start) < c.least {
			t.Errorf("%s: %d bytes (%v), %d cuts after %s; want %d and %d after %s",
				c.why, len(got), err, w.cuts.Load(), time.Since(start), c.want, c.cuts, c.least)
		}
	}
}

// While the server is down the relay ends connections.
func TestWireWithoutServer(t *testing.T) {
	w, err := newWire(1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	nobody := "127.0.0.1:1"
	w.target.Store(&nobody)
	conn, err := net.Dial("tcp", w.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a server that is down", n)
	}
}
