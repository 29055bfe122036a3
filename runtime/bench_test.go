package runtime_test

import (
	"bytes"
	"fmt"
	goruntime "runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/race"
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

// raw opens a session without a client, so that only the server is measured.
func raw(b testing.TB, s *server) transport.Conn {
	b.Helper()
	c, _ := rawToken(b, s)
	return c
}

func rawToken(b testing.TB, s *server) (transport.Conn, string) {
	b.Helper()
	c := dialRaw(b, s)
	open := fmt.Sprintf(`{"arcp":"1.1","id":"msg_open","type":"session.open","timestamp":"2026-01-02T15:04:05Z",`+
		`"payload":{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"bench","version":"1"}}}`, token)
	put(b, c, open)
	frame, err := c.Read()
	if err != nil || !bytes.Contains(frame, []byte(`"session.accepted"`)) {
		b.Fatalf("open: %s, %v", frame, err)
	}
	return c, tokenIn(b, frame)
}

func dialRaw(b testing.TB, s *server) transport.Conn {
	b.Helper()
	c, err := transport.Dial(b.Context(), s.url, transport.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Abort() }) // the benchmark is over
	return c
}

func tokenIn(b testing.TB, frame []byte) string {
	b.Helper()
	env, err := arcp.Decode(frame)
	if err != nil {
		b.Fatal(err)
	}
	return resumeToken(b, env)
}

func put(b testing.TB, c transport.Conn, frame string) {
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

// BenchmarkAcks streams events to one session that acknowledges never, every 128th or each
// event, with one write for all events of a read.
func BenchmarkAcks(b *testing.B) {
	for name, every := range map[string]int{"never": 0, "every-128th": 128, "each": 1} {
		b.Run(name, func(b *testing.B) {
			stores(b, func(b *testing.B, open func() store.Store) {
				c := raw(b, start(b, open(), nil))
				var ack []byte
				b.ResetTimer()
				began := time.Now()
				put(b, c, invoke(0, 0, "demo.emit", fmt.Sprintf(`{"count":%d,"bytes":64}`, b.N)))
				for n := 1; ; n++ {
					frame, err := c.Read()
					if err != nil {
						b.Fatal(err)
					}
					if bytes.Contains(frame, completed) {
						break
					}
					if every > 0 && n%every == 0 {
						ack = strconv.AppendInt(append(ack[:0], ackHead...), int64(n), 10)
						ack = append(ack, "}}"...)
						if err := c.Write(ack); err != nil {
							b.Fatal(err)
						}
					}
					if w := c.(transport.Bufferer); every > 0 && !w.Buffered() {
						_ = c.Flush() // the next Read says it better
					}
				}
				b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "events/s")
			})
		})
	}
}

const ackHead = `{"arcp":"1.1","id":"msg_ack","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":`

// BenchmarkResume measures from session.resume at event 1 of a million to the
// first event that is replayed.
func BenchmarkResume(b *testing.B) {
	const events = 1_000_000
	stores(b, func(b *testing.B, open func() store.Store) {
		s := start(b, open(), func(c *runtime.Config) { c.ReplayEvents, c.ReplayBytes = -1, -1 })
		c, token := rawToken(b, s)
		put(b, c, invoke(0, 0, "demo.emit", fmt.Sprintf(`{"count":%d,"bytes":64}`, events)))
		for {
			frame, err := c.Read()
			if err != nil {
				b.Fatal(err)
			}
			if bytes.Contains(frame, completed) {
				break
			}
		}
		for b.Loop() {
			b.StopTimer()
			_ = c.Abort() // it would have to read everything
			c = dialRaw(b, s)
			b.StartTimer()
			put(b, c, fmt.Sprintf(`{"arcp":"1.1","id":"msg_r","type":"session.resume","timestamp":"2026-01-02T15:04:05Z",`+
				`"payload":{"resume_token":%q,"last_event_seq":0}}`, token))
			frame, err := c.Read()
			if err != nil {
				b.Fatal(err)
			}
			token = tokenIn(b, frame)
			if frame, err = c.Read(); err != nil || !bytes.Contains(frame, []byte(`"event_seq":1,`)) {
				b.Fatalf("the frame after the resume is %s, %v; want event 1", frame, err)
			}
		}
	})
}

// BenchmarkBeside streams events to a session alone, and beside one that follows
// the same job and never reads.
func BenchmarkBeside(b *testing.B) {
	for _, others := range []int{0, 1} {
		b.Run(fmt.Sprintf("stuck-%d", others), func(b *testing.B) {
			stores(b, func(b *testing.B, open func() store.Store) {
				s := start(b, open(), nil)
				reader := raw(b, s)
				put(b, reader, invoke(0, 0, "demo.emit", fmt.Sprintf(`{"count":%d,"bytes":64,"delay_ms":300}`, b.N)))
				env, err := arcp.Decode(next(b, reader, `"job.accepted"`))
				if err != nil {
					b.Fatal(err)
				}
				for range others {
					watchStuck(b, s, env.JobID)
				}
				next(b, reader, `"log"`)
				b.ResetTimer()
				began := time.Now()
				next(b, reader, `"job.completed"`)
				b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "events/s")
			})
		})
	}
}

// watchStuck follows a job and reads nothing of it.
func watchStuck(t testing.TB, s *server, job arcp.JobID) {
	t.Helper()
	stuck := raw(t, s)
	put(t, stuck, fmt.Sprintf(`{"arcp":"1.1","id":"msg_s","type":"job.subscribe","timestamp":"2026-01-02T15:04:05Z","payload":{"job_id":%q}}`, job))
	next(t, stuck, `"job.subscribed"`)
}

// A client that does not read follows the same job as one that does. The reader gets every
// event, and the memory does not grow.
func TestReaderBesideOneThatDoesNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("200,000 events")
	}
	const events, room = 200_000, 32 << 20
	st, err := pebble.Open(t.TempDir(), pebble.Options{MemTableBytes: 1 << 20, CacheBytes: 1 << 20}) // the measured memory is the client's, not the store's
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, st, nil)
	reader := raw(t, s)
	put(t, reader, invoke(0, 0, "demo.emit", fmt.Sprintf(`{"count":%d,"bytes":64,"delay_ms":500}`, events)))
	accepted := next(t, reader, `"job.accepted"`)
	env, err := arcp.Decode(accepted)
	if err != nil {
		t.Fatal(err)
	}
	watchStuck(t, s, env.JobID)

	before := live()
	for n := 0; ; n++ {
		frame, err := reader.Read()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(frame, completed) {
			if n < events {
				t.Errorf("the reader was sent %d events", n)
			}
			break
		}
		if n == events/2 {
			if grown := live() - before; grown > room && !race.Enabled {
				t.Errorf("the memory has grown by %d bytes while one client does not read", grown)
			}
		}
	}
	if grown := live() - before; grown > room && !race.Enabled {
		t.Errorf("the memory has grown by %d bytes", grown)
	}
}

// live is how many bytes of the heap are in use.
func live() int64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// next reads up to a frame that contains a text.
func next(t testing.TB, c transport.Conn, text string) []byte {
	t.Helper()
	for {
		frame, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(frame, []byte(text)) {
			return bytes.Clone(frame)
		}
	}
}
