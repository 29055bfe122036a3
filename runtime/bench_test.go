package runtime_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/pebble"
	"github.com/arcpd/arcpd/transport"
)

// stores are the two that every benchmark runs on.
func stores(b *testing.B, run func(b *testing.B, open func() store.Store)) {
	b.Run("memory", func(b *testing.B) { run(b, func() store.Store { return memory(b) }) })
	b.Run("durable", func(b *testing.B) {
		run(b, func() store.Store {
			st, err := pebble.Open(b.TempDir(), pebble.Options{})
			if err != nil {
				b.Fatal(err)
			}
			return st
		})
	})
}

// raw opens a session without a client in between: what is measured is the
// server.
func raw(b *testing.B, s *server) transport.Conn {
	b.Helper()
	c, err := transport.Dial(b.Context(), s.url, transport.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Abort() }) // the benchmark is over
	open := fmt.Sprintf(`{"arcp":"1.1","id":"msg_open","type":"session.open","timestamp":"2026-01-02T15:04:05Z",`+
		`"payload":{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"bench","version":"1"}}}`, token)
	put(b, c, open)
	frame, err := c.Read()
	if err != nil || !bytes.Contains(frame, []byte(`"session.accepted"`)) {
		b.Fatalf("open: %s, %v", frame, err)
	}
	return c
}

func put(b *testing.B, c transport.Conn, frame string) {
	b.Helper()
	if err := c.Write([]byte(frame)); err != nil {
		b.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		b.Fatal(err)
	}
}

func invoke(session, n int, tool, args string) string {
	return fmt.Sprintf(`{"arcp":"1.1","id":"msg_%d_%d","type":"tool.invoke","timestamp":"2026-01-02T15:04:05Z",`+
		`"payload":{"tool":%q,"arguments":%s}}`, session, n, tool, args)
}

var completed = []byte(`"type":"job.completed"`)

// BenchmarkEchoJobs keeps 16 jobs of each of 64 sessions in flight.
func BenchmarkEchoJobs(b *testing.B) {
	stores(b, func(b *testing.B, open func() store.Store) {
		s := start(b, open(), func(c *runtime.Config) { c.MaxJobs = -1 })
		const sessions, window = 64, 16
		conns := make([]transport.Conn, sessions)
		for i := range conns {
			conns[i] = raw(b, s)
		}
		b.ResetTimer()
		began := time.Now()
		var wg sync.WaitGroup
		for i, c := range conns {
			share := b.N/sessions + 1
			wg.Go(func() {
				sent := 0
				for ; sent < min(window, share); sent++ {
					_ = c.Write([]byte(invoke(i, sent, "demo.echo", `{"x":1}`)))
				}
				_ = c.Flush()
				for done := 0; done < share; {
					frame, err := c.Read()
					if err != nil {
						b.Error(err)
						return
					}
					if bytes.Contains(frame, completed) {
						if done++; sent < share {
							_ = c.Write([]byte(invoke(i, sent, "demo.echo", `{"x":1}`)))
							_ = c.Flush()
							sent++
						}
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "jobs/s")
	})
}

// BenchmarkEvents streams events to 16 sessions that acknowledge every 128th.
func BenchmarkEvents(b *testing.B) {
	stores(b, func(b *testing.B, open func() store.Store) {
		s := start(b, open(), nil)
		const sessions = 16
		conns := make([]transport.Conn, sessions)
		for i := range conns {
			conns[i] = raw(b, s)
		}
		b.ResetTimer()
		began := time.Now()
		var wg sync.WaitGroup
		for i, c := range conns {
			wg.Go(func() {
				put(b, c, invoke(i, 0, "demo.emit", fmt.Sprintf(`{"count":%d,"bytes":100}`, b.N/sessions+1)))
				for n := 0; ; n++ {
					frame, err := c.Read()
					if err != nil {
						b.Error(err)
						return
					}
					if n%128 == 127 {
						put(b, c, fmt.Sprintf(`{"arcp":"1.1","id":"msg_a_%d","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":%d}}`, n, n))
					}
					if bytes.Contains(frame, completed) {
						return
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "events/s")
	})
}

// BenchmarkRoundTrip is one job after the other in one session.
func BenchmarkRoundTrip(b *testing.B) {
	stores(b, func(b *testing.B, open func() store.Store) {
		c := raw(b, start(b, open(), nil))
		n := 0
		for b.Loop() {
			put(b, c, invoke(0, n, "demo.echo", `{"x":1}`))
			for {
				frame, err := c.Read()
				if err != nil {
					b.Fatal(err)
				}
				if bytes.Contains(frame, completed) {
					break
				}
			}
			n++
		}
	})
}

// BenchmarkHandshake opens and drops sessions, 32 at once.
func BenchmarkHandshake(b *testing.B) {
	stores(b, func(b *testing.B, open func() store.Store) {
		s := start(b, open(), nil)
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c := raw(b, s)
				_ = c.Abort() // only the handshake counts
			}
		})
	})
}
