package chaos

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay forwards connections of the clients to the server. It cuts connections within a frame and
// stalls them, in both directions.
type relay struct {
	ln          net.Listener
	seed        uint64
	target      atomic.Pointer[string] // address of the server
	undisturbed atomic.Bool            // connections are not cut or stalled any more
	cuts        atomic.Int64
	stalls      atomic.Int64

	work  sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool // open connections
	ended bool
}

func newRelay(seed uint64) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{ln: ln, seed: seed, conns: make(map[net.Conn]bool)}
	r.work.Go(r.accept)
	return r, nil
}

// url returns the URL for clients.
func (r *relay) url() string { return "ws://" + r.ln.Addr().String() + "/arcp" }

// close ends the relay and waits for its goroutines.
func (r *relay) close() {
	_ = r.ln.Close() // ends accept
	r.mu.Lock()
	r.ended = true
	for c := range r.conns {
		_ = c.Close() // the campaign is over
	}
	r.mu.Unlock()
	r.work.Wait()
}

// track registers a connection for close. It returns false if the relay has ended.
func (r *relay) track(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.conns[c] = true
	}
	return !r.ended
}

func (r *relay) untrack(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

func (r *relay) accept() {
	for n := uint64(0); ; n++ {
		client, err := r.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		r.work.Go(func() { r.forward(client, rand.New(rand.NewPCG(r.seed, n))) })
	}
}

// forward forwards one connection until it ends.
func (r *relay) forward(client net.Conn, rnd *rand.Rand) {
	defer client.Close()
	server, err := net.Dial("tcp", *r.target.Load())
	if err != nil {
		return // the server is down
	}
	defer server.Close()
	if !r.track(client) || !r.track(server) {
		return
	}
	defer r.untrack(client)
	defer r.untrack(server)
	up, down := newFault(rnd, 4<<10), newFault(rnd, 256<<10)
	var both sync.WaitGroup
	both.Go(func() { r.copy(server, client, up) })
	both.Go(func() { r.copy(client, server, down) })
	both.Wait()
}

// fault is the planned disturbance of one direction of a connection.
type fault struct {
	cutAfter int64         // bytes before the cut; negative: no cut
	stall    int64         // bytes before the stall; negative: no stall
	pause    time.Duration // duration of the stall
	reset    bool          // the cut is a TCP reset
}

// handshake is the approximate number of bytes before the first frame.
const handshake = 300

func newFault(rnd *rand.Rand, most int64) fault {
	f := fault{cutAfter: -1, stall: -1, reset: rnd.IntN(2) == 0}
	if rnd.IntN(4) == 0 {
		f.cutAfter = handshake + rnd.Int64N(1+rnd.Int64N(most)) // small numbers are more frequent
	}
	if rnd.IntN(6) == 0 {
		f.stall, f.pause = handshake+rnd.Int64N(most), time.Duration(rnd.Int64N(int64(time.Second)))
	}
	return f
}

// copy copies one direction. At its end the other direction ends too.
func (r *relay) copy(dst, src net.Conn, f fault) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 16<<10)
	for done := int64(0); ; {
		n, err := src.Read(buf)
		if !r.undisturbed.Load() {
			if cut := f.cutAfter - done; f.cutAfter >= 0 && cut < int64(n) {
				r.truncate(dst, src, buf[:max(cut, 0)], f.reset)
				return
			}
			if f.stall >= 0 && done+int64(n) > f.stall {
				f.stall = -1
				r.stalls.Add(1)
				time.Sleep(f.pause)
			}
		}
		if _, failed := dst.Write(buf[:n]); failed != nil || err != nil {
			return
		}
		done += int64(n)
	}
}

// truncate forwards the first bytes of a frame and ends the connection.
func (r *relay) truncate(dst, src io.Writer, prefix []byte, reset bool) {
	r.cuts.Add(1)
	_, _ = dst.Write(prefix) // the connection ends next
	for _, c := range []io.Writer{dst, src} {
		if tcp, ok := c.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // without a reset the connection ends with FIN
		}
	}
}
