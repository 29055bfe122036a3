package runtime_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/arcpd/arcpd/arcp"
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

// resumeToken is the token that a handshake has brought.
func resumeToken(t testing.TB, env arcp.Envelope) string {
	t.Helper()
	var p struct {
		ResumeToken string `json:"resume_token"`
	}
	if err := arcp.Unmarshal(env.Payload, &p); err != nil || p.ResumeToken == "" {
		t.Fatalf("%s %s: want a resume token (%v)", env.Type, env.Payload, err)
	}
	return p.ResumeToken
}

// dialToken opens a session and returns its token too.
func (f *fixture) dialToken(name string) (*peer, string) {
	f.Helper()
	p := f.connect(nil)
	p.open(name)
	return p, resumeToken(f, p.expect("session.accepted"))
}

// resume makes a connection that asks for a session.
func (f *fixture) resume(token string, after uint64) *peer {
	f.Helper()
	p := f.connect(nil)
	p.sent = 1000 * (1 + len(f.resumed)) // ids of its own
	f.resumed = append(f.resumed, p)
	p.send("session.resume", fmt.Sprintf(`{"resume_token":%q,"last_event_seq":%d}`, token, after))
	return p
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
		_ = p.conn.Abort()
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
		_ = p.conn.Abort()
		wg.Wait()
	})
}
