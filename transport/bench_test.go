//go:build linux

package transport_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/transport"
)

// benchDials make connections whose client end has no reader yet.
var benchDials = []struct {
	kind string
	dial func(b *testing.B) (server, client transport.Conn)
}{
	{"websocket", func(b *testing.B) (server, client transport.Conn) {
		s := newWSServer(b, httptest.NewServer)
		client, err := transport.Dial(b.Context(), s.url, transport.DialOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return <-s.conns, client
	}},
	{"unix", func(b *testing.B) (server, client transport.Conn) {
		path := filepath.Join(b.TempDir(), "sock")
		u, err := transport.ListenUnix(path, transport.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		defer u.Close()
		if client, err = transport.DialUnix(b.Context(), path, transport.Limits{}); err != nil {
			b.Fatal(err)
		}
		if server, err = u.Accept(); err != nil {
			b.Fatal(err)
		}
		return server, client
	}},
	{"pipe", func(*testing.B) (server, client transport.Conn) { return transport.Pipe(transport.Limits{}) }},
}

// eachDial runs f with a connection of each kind that is ended afterwards.
func eachDial(b *testing.B, f func(b *testing.B, server, client transport.Conn)) {
	for _, d := range benchDials {
		b.Run(d.kind, func(b *testing.B) {
			server, client := d.dial(b)
			defer server.Abort()
			defer client.Abort()
			b.ReportAllocs()
			f(b, server, client)
		})
	}
}

// event has the size of a typical one.
var event = bytes.Repeat([]byte("0123456789"), 20)

func discard(c transport.Conn) {
	for {
		if _, err := c.Read(); err != nil {
			return
		}
	}
}

// BenchmarkWrite is a frame on its way into the buffer, which is flushed when
// full, as under load.
func BenchmarkWrite(b *testing.B) {
	eachDial(b, func(b *testing.B, server, client transport.Conn) {
		go discard(client)
		for b.Loop() {
			if err := server.Write(event); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWriteFlush measures the same without coalescing.
func BenchmarkWriteFlush(b *testing.B) {
	eachDial(b, func(b *testing.B, server, client transport.Conn) {
		go discard(client)
		for b.Loop() {
			if err := server.Write(event); err != nil {
				b.Fatal(err)
			}
			if err := server.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRead is a frame read out of many that have arrived.
func BenchmarkRead(b *testing.B) {
	eachDial(b, func(b *testing.B, server, client transport.Conn) {
		go func() {
			for client.Write(event) == nil {
			}
		}()
		for b.Loop() {
			if _, err := server.Read(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRoundTrip is a question and an answer, each flushed alone.
func BenchmarkRoundTrip(b *testing.B) {
	eachDial(b, func(b *testing.B, server, client transport.Conn) {
		go answerAll(server)
		for b.Loop() {
			if err := client.Write(event); err != nil {
				b.Fatal(err)
			}
			if err := client.Flush(); err != nil {
				b.Fatal(err)
			}
			if _, err := client.Read(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// idleConns is how many connections the measurement of idle ones holds.
const idleConns = 5000

// BenchmarkIdle reports the memory of a server's connection on which a
// goroutine waits in Read after one exchange and a ping, as the kernel counts it. The
// clients are bare file descriptors.
func BenchmarkIdle(b *testing.B) {
	s := newWSServer(b, httptest.NewServer)
	for b.Loop() {
		before := settledRSS(b)
		servers := make([]transport.Conn, idleConns)
		clients := make([]rawClient, idleConns)
		for i := range servers {
			clients[i] = newRawClient(b, s.url)
			servers[i] = <-s.conns
			go answerAll(servers[i])
			clients[i].write(clients[i].frame(fin|text, "{}"))
			clients[i].wantFrame(fin|text, "{}")
			clients[i].write(clients[i].frame(fin|ping, "p"))
			clients[i].wantFrame(fin|pong, "p")
		}
		b.ReportMetric(float64(settledRSS(b)-before)/idleConns, "RSS-bytes/conn")
		for i := range servers {
			_ = servers[i].Abort()
			clients[i].close()
		}
	}
}

func answerAll(c transport.Conn) {
	for {
		f, err := c.Read()
		if err != nil || c.Write(f) != nil || c.Flush() != nil {
			return
		}
	}
}

// BenchmarkHandshake is a connection made and ended. The client is next to
// nothing.
func BenchmarkHandshake(b *testing.B) {
	s := newWSServer(b, httptest.NewServer)
	b.ReportAllocs()
	for b.Loop() {
		client := newRawClient(b, s.url)
		server := <-s.conns
		client.close()
		_ = server.Abort()
	}
}

// settledRSS is the memory of this process after collecting garbage.
func settledRSS(b *testing.B) int64 {
	b.Helper()
	for range 5 {
		runtime.GC() // the first ones shrink stacks and empty pools
	}
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(status))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
