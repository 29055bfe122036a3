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

// wire is a relay between the clients and the server that breaks connections as
// networks do: in the middle of a frame, in either direction, or by letting
// nothing through for a while.
type wire struct {
	ln     net.Listener
	seed   uint64
	target atomic.Pointer[string] // where the server listens
	calm   atomic.Bool            // break nothing any more
	cuts   atomic.Int64
	stalls atomic.Int64

	work  sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool // open ones
	ended bool
}

func newWire(seed uint64) (*wire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{ln: ln, seed: seed, conns: make(map[net.Conn]bool)}
	w.work.Go(w.accept)
	return w, nil
}

// url is where clients connect.
func (w *wire) url() string { return "ws://" + w.ln.Addr().String() + "/arcp" }

// close ends the relay and waits for it.
func (w *wire) close() {
	_ = w.ln.Close() // accept sees it
	w.mu.Lock()
	w.ended = true
	for c := range w.conns {
		_ = c.Close() // the campaign has ended: the error does not matter
	}
	w.mu.Unlock()
	w.work.Wait()
}

// track enters a connection; false: the relay has ended.
func (w *wire) track(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.conns[c] = true
	}
	return !w.ended
}

func (w *wire) untrack(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

func (w *wire) accept() {
	for n := uint64(0); ; n++ {
		client, err := w.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		w.work.Go(func() { w.relay(client, rand.New(rand.NewPCG(w.seed, n))) })
	}
}

// relay carries one connection to its end.
func (w *wire) relay(client net.Conn, rnd *rand.Rand) {
	defer client.Close()
	server, err := net.Dial("tcp", *w.target.Load())
	if err != nil {
		return // it is down
	}
	defer server.Close()
	if !w.track(client) || !w.track(server) {
		return
	}
	defer w.untrack(client)
	defer w.untrack(server)
	up, down := newFault(rnd, 4<<10), newFault(rnd, 256<<10)
	var both sync.WaitGroup
	both.Go(func() { w.carry(server, client, up) })
	both.Go(func() { w.carry(client, server, down) })
	both.Wait()
}

// fault is the disturbance of one direction of a connection.
type fault struct {
	cutAfter int64         // after this many bytes it ends; negative: never
	stall    int64         // after this many bytes nothing passes for a while; negative: never
	pause    time.Duration // that while
	reset    bool          // it ends with a reset
}

// handshake is about how many bytes go by before the first frame.
const handshake = 300

func newFault(rnd *rand.Rand, most int64) fault {
	f := fault{cutAfter: -1, stall: -1, reset: rnd.IntN(2) == 0}
	if rnd.IntN(4) == 0 {
		f.cutAfter = handshake + rnd.Int64N(1+rnd.Int64N(most)) // small numbers more often
	}
	if rnd.IntN(6) == 0 {
		f.stall, f.pause = handshake+rnd.Int64N(most), time.Duration(rnd.Int64N(int64(time.Second)))
	}
	return f
}

// carry copies one direction. When it ends the other one ends too.
func (w *wire) carry(dst, src net.Conn, f fault) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 16<<10)
	for done := int64(0); ; {
		n, err := src.Read(buf)
		if !w.calm.Load() {
			if cut := f.cutAfter - done; f.cutAfter >= 0 && cut < int64(n) {
				w.truncate(dst, src, buf[:max(cut, 0)], f.reset)
				return
			}
			if f.stall >= 0 && done+int64(n) > f.stall {
				f.stall = -1
				w.stalls.Add(1)
				time.Sleep(f.pause)
			}
		}
		if _, failed := dst.Write(buf[:n]); failed != nil || err != nil {
			return
		}
		done += int64(n)
	}
}

// truncate lets the beginning of a frame through and ends the connection.
func (w *wire) truncate(dst, src io.Writer, begun []byte, reset bool) {
	w.cuts.Add(1)
	_, _ = dst.Write(begun) // it ends anyway
	for _, c := range []io.Writer{dst, src} {
		if tcp, ok := c.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // else it ends in order, which is as good
		}
	}
}
