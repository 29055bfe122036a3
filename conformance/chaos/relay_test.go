package chaos

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// The relay cuts a connection at any byte or stalls it, but not after the campaign.
func TestRelayBreaks(t *testing.T) {
	for _, c := range []struct {
		why         string
		fault       fault
		undisturbed bool
		want        int
		cuts        int64
		least       time.Duration
	}{
		{"no fault", fault{cutAfter: -1, stall: -1}, false, 1000, 0, 0},
		{"a cut", fault{cutAfter: 700, stall: -1}, false, 700, 1, 0},
		{"a cut at once", fault{cutAfter: 0, stall: -1}, false, 0, 1, 0},
		{"a stall", fault{cutAfter: -1, stall: 500, pause: 20 * time.Millisecond}, false, 1000, 0, 20 * time.Millisecond},
		{"a cut after the campaign", fault{cutAfter: 700, stall: -1}, true, 1000, 0, 0},
	} {
		var r relay
		r.undisturbed.Store(c.undisturbed)
		client, near := net.Pipe()
		far, server := net.Pipe()
		go r.copy(far, near, c.fault)
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
		if len(got) != c.want || err != nil || r.cuts.Load() != c.cuts || time.Since(start) < c.least {
			t.Errorf("%s: %d bytes (%v), %d cuts after %s; want %d and %d after %s",
				c.why, len(got), err, r.cuts.Load(), time.Since(start), c.want, c.cuts, c.least)
		}
	}
}

// While the server is down the relay ends connections.
func TestRelayWithoutServer(t *testing.T) {
	r, err := newRelay(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	unused := "127.0.0.1:1"
	r.target.Store(&unused)
	conn, err := net.Dial("tcp", r.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a server that is down", n)
	}
}
