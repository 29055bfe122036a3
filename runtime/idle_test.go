package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// idleMemory bounds the heap and the stacks of an idle session, with both ends of
// its connection, in bytes. It takes less than half of that.
const idleMemory = 32 << 10

// A process holds thousands of idle sessions, runs jobs beside them, and has nothing
// left of them when they are gone.
func TestTenThousandIdleSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many sessions: left out with -short")
	}
	const pooled = 256 + 8 // kept for reuse, and the Go runtime's own
	sessions := 10_000
	if race.Enabled {
		sessions = 3_000 // the detector ends with 8,128 goroutines
	}
	goroutines, memory := goruntime.NumGoroutine(), memoryInUse()
	f := newRealTimeFixture(t)
	peers := f.openAll(sessions)
	if n := f.sum("arcp_sessions", `"connected"`); n != float64(sessions) {
		t.Errorf("%v sessions are connected, want %d", n, sessions)
	}
	var each int64
	idle := race.Enabled || within(time.Minute, func() bool { // some may not have come to wait yet
		each = (memoryInUse() - memory) / int64(sessions)
		return each <= idleMemory
	})
	if !idle {
		t.Errorf("an idle session takes %d bytes, want at most %d", each, idleMemory)
	}
	n := 0
	if !within(time.Minute, func() bool { n = goruntime.NumGoroutine() - goroutines; return n <= 2*sessions+pooled }) {
		t.Errorf("%d goroutines for %d idle sessions, want at most one each, one of its client, and %d more", n, sessions, pooled)
	}

	busy := f.dial("bob")
	for range 20 {
		busy.send("tool.invoke", `{"tool":"demo.progress","arguments":{"steps":5,"interval_ms":1}}`)
		busy.until(arcp.JobCompleted)
	}
	_ = busy.conn.Abort()
	for i, p := range peers[:100] {
		p.send("ping", "{}")
		if frame := <-p.came; !strings.Contains(frame, `"pong"`) {
			t.Errorf("session %d is sent %s first, want a pong", i, frame)
		}
	}

	for _, p := range peers[:sessions/2] { // the others end with the runtime
		_ = p.conn.Abort() // it may have ended
	}
	f.shutdown(time.Minute)
	f.serve.Wait()
	for _, p := range peers {
		_ = p.conn.Abort() // it may have ended
	}
	if !within(time.Minute, func() bool { return goruntime.NumGoroutine() <= goroutines }) {
		all := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", goruntime.NumGoroutine(), goroutines, all[:goruntime.Stack(all, true)])
	}
	if n := f.sum("arcp_connections_open", "") + f.sum("arcp_sessions", `"connected"`); n != 0 {
		t.Errorf("%v connections and connected sessions are still counted", n)
	}
}

// openAll opens sessions of alice, some at a time.
func (f *fixture) openAll(n int) []*idlePeer {
	f.Helper()
	const atOnce = 16
	peers := make([]*idlePeer, n)
	failed := make(chan error, atOnce)
	var opening sync.WaitGroup
	for first := range atOnce {
		opening.Go(func() {
			for i := first; i < n; i += atOnce {
				near, far := transport.Pipe(transport.Limits{})
				f.serve.Go(func() { _ = f.rt.Serve(context.Background(), far) }) // the peer sees how it ended
				p := &idlePeer{peer{fixture: f, conn: near}, make(chan string, 4)}
				peers[i] = p
				if err := p.enter("alice"); err != nil {
					failed <- fmt.Errorf("session %d: %w", i, err)
					return
				}
				f.serve.Go(p.listen)
			}
		})
	}
	opening.Wait()
	select {
	case err := <-failed:
		f.Fatal(err)
	default:
	}
	return peers
}

// enter opens a session. Any goroutine may call it.
func (p *peer) enter(name string) error {
	_, err := p.try("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"test","version":"1"}}`, name, token))
	if err != nil {
		return err
	}
	raw, err := p.conn.Read()
	if err == nil && !strings.Contains(string(raw), `"session.accepted"`) {
		err = fmt.Errorf("sent %s", raw)
	}
	return err
}

// idlePeer waits for frames, as clients do.
type idlePeer struct {
	peer
	came chan string // the first frames
}

func (p *idlePeer) listen() {
	for {
		raw, err := p.conn.Read()
		if err != nil {
			return // it has ended, on either side
		}
		select {
		case p.came <- string(raw):
		default:
		}
	}
}

// within reports whether something comes true in time.
func within(d time.Duration, holds func() bool) bool {
	for end := time.Now().Add(d); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// memoryInUse is the heap and the stacks after garbage is collected, in bytes.
func memoryInUse() int64 {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Idle sessions cost a goroutine each and are let go of completely.
func TestManyIdleSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const sessions, pooled = 1000, 256 + 8 // some are the Go runtime's own
	inBubble(t, nil, func(f *fixture) {
		synctest.Wait()
		before := goruntime.NumGoroutine()
		var peers []*peer
		for range sessions {
			peers = append(peers, f.dial("alice"))
		}
		synctest.Wait()
		if n := goruntime.NumGoroutine() - before; n > sessions+pooled {
			t.Errorf("%d goroutines for %d idle sessions, want at most one each and %d that are kept for reuse", n, sessions, pooled)
		}
		time.Sleep(runtime.DefaultSessionIdle - time.Hour)
		for _, p := range peers[:10] {
			p.send("ping", "{}")
			p.expect("pong")
		}
		for _, p := range peers {
			_ = p.conn.Abort() // it may have ended
		}
		synctest.Wait()
		if left := goruntime.NumGoroutine() - before; left > pooled {
			t.Errorf("%d goroutines are left of %d sessions, want at most the %d that are kept for reuse", left, sessions, pooled)
		}
		f.wantNoConnections()
	})
}
