package runtime_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/transport"
)

// history is the frames of a session's events by number, over all connections of a client.
type history struct {
	*testing.T
	frames map[uint64]string
	last   uint64
}

func newHistory(t *testing.T) *history { return &history{T: t, frames: make(map[uint64]string)} }

// add checks that a frame is the next one, and the same as before if it was sent
// before.
func (h *history) add(raw []byte, env *arcp.Envelope) {
	h.Helper()
	if env.EventSeq == 0 {
		return
	}
	if env.EventSeq != h.last+1 {
		h.Fatalf("event_seq %d after %d: %s", env.EventSeq, h.last, raw)
	}
	h.last = env.EventSeq
	if before, ok := h.frames[env.EventSeq]; ok && before != string(raw) {
		h.Fatalf("event %d has changed:\n%s\n%s", env.EventSeq, before, raw)
	}
	h.frames[env.EventSeq] = string(raw)
}

// follow reads n frames into a history; a negative n reads up to the end of the
// job.
func (p *peer) follow(h *history, n int) {
	p.Helper()
	for i := 0; n < 0 || i < n; i++ {
		raw, err := p.conn.Read()
		if err != nil {
			p.Fatalf("read: %v", err)
		}
		raw = bytes.Clone(raw)
		env, err := arcp.Decode(raw)
		if err != nil {
			p.Fatal(err)
		}
		h.add(raw, &env)
		if n < 0 && env.Type.Terminal() {
			return
		}
	}
}

// Of many connections that show the same token, one wins.
func TestOneOfManyResumesWins(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p, token := f.dialToken("alice")
		_ = p.conn.Abort() // it may have ended
		synctest.Wait()
		var peers []*peer
		for range 20 {
			peers = append(peers, f.resume(token, 0))
		}
		synctest.Wait()
		alive := 0
		for _, p := range peers {
			if env := p.read(); env.Type != "session.resumed" {
				continue
			}
			if _, err := p.try("ping", "{}"); err != nil {
				continue
			}
			if raw, err := p.conn.Read(); err == nil && strings.Contains(string(raw), `"pong"`) {
				alive++
			}
		}
		if alive != 1 {
			t.Errorf("%d connections serve one session", alive)
		}
	})
}

// Takeovers under load neither lose nor repeat anything.
func TestTakeoversLoseNothing(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		h := newHistory(t)
		p, token := f.dialToken("alice")
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":400,"bytes":100,"interval_ms":1}}`)
		var wg sync.WaitGroup
		for h.last < 403 {
			p.follow(h, int(min(20, 403-h.last)))
			old := p
			wg.Go(func() { // it continues to read allowed frames
				for {
					if _, err := old.conn.Read(); err != nil {
						return
					}
				}
			})
			if h.last >= 403 {
				break
			}
			p = f.resume(token, h.last)
			token = resumeToken(t, p.expect("session.resumed"))
		}
		_ = p.conn.Abort() // it may have ended
		wg.Wait()
	})
}

// If events that the session was not sent are no longer kept, the connection ends: it never
// has a gap.
func TestConnectionEndsBeforeAGap(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		p.submit("demo.emit", `{"count":3000,"bytes":30000,"delay_ms":1000}`) // 90 MB: more than is kept in memory
		time.Sleep(5 * time.Second)
		// This trims events that the client has not read.
		results := make([]store.Result, 1)
		if err := f.st.Store.Commit([]*store.Write{store.NewWrite(&store.TrimSession{Session: p.session, Seq: 2000})}, results); err != nil {
			f.Fatal(err)
		}
		if why := string(p.until("backpressure").Payload); !strings.Contains(why, "backlog_overflow") {
			t.Errorf("backpressure %s", why)
		}
		p.closed("a gap", transport.CloseOverloaded)
	})
}

// counting counts the events that are read of jobs' logs.
type counting struct {
	store.Store
	read atomic.Int64
}

func (c *counting) JobEvents(ctx context.Context, id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	return c.Store.JobEvents(ctx, id, after, func(e *store.Event) bool {
		c.read.Add(1)
		return fn(e)
	})
}

// A late position in a long log is found without reading the events before it.
func TestLatePositionIsFoundWithoutReadingBefore(t *testing.T) {
	const events = 5000
	var read *counting
	inBubble(t, func(c *runtime.Config) { read = &counting{Store: c.Store}; c.Store = read }, func(f *fixture) {
		owner := f.dial("alice")
		owner.send("tool.invoke", `{"tool":"demo.echo"}`) // so that numbers and places differ
		owner.until("job.completed")
		owner.send("tool.invoke", fmt.Sprintf(`{"tool":"demo.emit","arguments":{"count":%d,"bytes":1}}`, events-3))
		end := owner.until("job.completed")
		first := end.EventSeq - events + 1
		for _, from := range []uint64{1, first - 1, first, first + 1, first + 1234, end.EventSeq - 2, end.EventSeq - 1, end.EventSeq} {
			read.read.Store(0)
			p := f.dial("alice")
			p.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true,"from_event_seq":%d}`, end.JobID, from))
			p.until("job.subscribed")
			if n := read.read.Load(); n > 20 {
				t.Errorf("%d events were read to find the position %d", n, from)
			}
			p.send("ping", "{}")
			next := p.read()
			if from == end.EventSeq {
				if next.Type != arcp.Pong {
					t.Errorf("after the last event comes %s", next.Type)
				}
				continue
			}
			var at struct {
				Origin struct {
					Seq uint64 `json:"event_seq"`
				} `json:"arcpx.arcp.origin.v1"`
			}
			for next.Type == arcp.Pong {
				next = p.read()
			}
			if err := arcp.Unmarshal(next.Extensions, &at); err != nil || at.Origin.Seq != max(from+1, first) {
				t.Errorf("after %d comes %d (%v)", from, at.Origin.Seq, err)
			}
			_ = p.conn.Abort() // it may have ended
		}
	})
}

// TestSessionLostInACrash checks that the row of an empty session is synced at most 50 ms after it was
// opened, and with its first job, and that the token of a session that a crash has lost before is refused.
func TestSessionLostInACrash(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		_, token := f.dialToken("alice")
		if !f.st.mayLose() {
			t.Error("session.accepted waits for a sync")
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if f.st.mayLose() {
			t.Error("the session is not synced after 50 ms")
		}
		p, _ := f.dialToken("alice")
		p.submit("demo.echo", `{"value":1}`)
		if f.st.mayLose() {
			t.Error("a crash may lose a session with an accepted job")
		}

		f.shutdown(0)
		f.serve.Wait()
		f.st = &recordingStore{Store: mem.Open(mem.Options{})} // as if the first session was not synced
		f.boot(nil)
		rejected := f.resume(token, 0).expect(arcp.SessionRejected)
		payload, err := arcp.DecodePayload[arcp.Error](&rejected)
		if err != nil || payload.Code != arcp.CodeResumeWindowExpired {
			t.Errorf("the session is resumed with %s, %v; want %s", rejected.Payload, err, arcp.CodeResumeWindowExpired)
		}
	})
}
