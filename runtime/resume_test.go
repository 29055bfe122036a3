package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
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
func (b *fixture) dialToken(name string) (*peer, string) {
	b.Helper()
	p := b.connect(nil)
	p.open(name)
	return p, resumeToken(b, p.expect("session.accepted"))
}

// resume makes a connection that asks for a session.
func (b *fixture) resume(token string, after uint64) *peer {
	b.Helper()
	p := b.connect(nil)
	p.n = 1000 * (1 + len(b.all)) // ids of its own
	b.all = append(b.all, p)
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

// Wherever the connection is cut, the session continues without a gap, and replayed events are
// unchanged.
func TestResumeAfterEveryFrame(t *testing.T) {
	const events = 12
	for cut := range events + 4 {
		inBubble(t, nil, func(b *fixture) {
			h := newHistory(t)
			p, token := b.dialToken("alice")
			p.send("tool.invoke", fmt.Sprintf(`{"tool":"demo.emit","arguments":{"count":%d,"bytes":10,"interval_ms":10}}`, events))
			p.follow(h, min(cut, events+3))
			_ = p.conn.Abort()
			if cut%2 == 0 {
				time.Sleep(time.Second) // the job ends meanwhile
			}
			from := h.last - h.last/2 // some of it again
			h.last = from
			p = b.resume(token, from)
			resumed := p.expect("session.resumed")
			if resumed.SessionID != p.session || resumed.EventSeq != 0 {
				t.Fatalf("session.resumed %+v", resumed)
			}
			for h.last < events+3 {
				p.follow(h, 1)
			}
		})
	}
}

// A token is good for one use; the one before stays good until the client is
// heard on the new connection, so that a lost answer does not lock it out.
func TestTokenRotation(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, first := b.dialToken("alice")
		p.submit("demo.echo", `{}`)
		p.until("job.completed")
		lost := b.resume(first, 0)
		lost.read() // the answer, of which the client learns nothing
		p.closed("a newer connection takes over", transport.ClosePolicy)

		again := b.resume(first, 0)
		second := resumeToken(t, again.expect("session.resumed"))
		lost.closed("and again", transport.ClosePolicy)
		again.send("ping", "{}")
		again.until("pong")
		for _, used := range []string{first, "rt_nonsense", second[:len(second)-1] + "0"} {
			if e := refusal(t, b.resume(used, 0).expect("session.rejected")); e.Code != arcp.CodeResumeWindowExpired {
				t.Errorf("a token that is used up or wrong: %+v", e)
			}
		}
		third := b.resume(second, 3)
		third.expect("session.resumed")
	})
}

// A late attempt with an old token may take the session from a connection whose
// client has the newest one: that one stays good.
func TestLateAttemptDoesNotBlockTheClient(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, first := b.dialToken("alice")
		_ = p.conn.Abort()
		synctest.Wait()
		q := b.resume(first, 0)
		second := resumeToken(t, q.expect("session.resumed"))
		late := b.resume(first, 0) // nothing has come on q yet
		late.expect("session.resumed")
		q.closed("superseded", transport.ClosePolicy)
		_ = late.conn.Abort() // the other end is gone
		synctest.Wait()
		r := b.resume(second, 0)
		r.expect("session.resumed")
		r.send("ping", "{}")
		r.expect("pong")
		synctest.Wait()
		for _, used := range []string{first, second} {
			b.resume(used, 0).expect("session.rejected")
		}
	})
}

// An attempt whose connection is gone when it succeeds takes the session from the
// one before, but no token.
func TestAttemptOfALostConnection(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, first := b.dialToken("alice")
		_ = p.conn.Abort()
		synctest.Wait()
		q := b.resume(first, 0)
		second := resumeToken(t, q.expect("session.resumed"))
		q.send("ping", "{}")
		q.expect("pong")
		gate := make(chan struct{})
		b.st.set(func() { b.st.gate = gate })
		lost := b.resume(second, 0)
		synctest.Wait()
		_ = lost.conn.Abort()
		synctest.Wait()
		b.st.set(func() { b.st.gate = nil })
		close(gate)
		synctest.Wait()
		b.resume(second, 0).expect("session.resumed")
	})
}

// Of many connections that show the same token, one wins.
func TestResumeRace(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialToken("alice")
		_ = p.conn.Abort()
		synctest.Wait()
		var peers []*peer
		for range 20 {
			peers = append(peers, b.resume(token, 0))
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

func TestResumeIsRefused(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.ReplayEvents = 1 }, func(b *fixture) {
		p, token := b.dialToken("alice")
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":3000,"bytes":1}}`)
		p.until("job.completed")
		_ = p.conn.Abort()
		synctest.Wait()
		q := b.resume(token, 4000)
		if e := refusal(t, q.expect("session.rejected")); e.Code != arcp.CodeResumeWindowExpired {
			t.Errorf("beyond the last event: %+v", e)
		}
		q.send("session.resume", fmt.Sprintf(`{"resume_token":%q,"last_event_seq":0}`, token))
		if e := refusal(t, q.expect("session.rejected")); e.Code != arcp.CodeResumeWindowExpired || !strings.Contains(e.Message, "kept") {
			t.Errorf("below what is kept: %+v", e)
		}
		q.send("session.resume", `{"resume_token":"rt_x","last_event_seq":0}`)
		q.closed("three failures", transport.ClosePolicy)

		q = b.resume(token, 3003) // a refusal does not use the token up
		token = resumeToken(t, q.expect("session.resumed"))
		q.send("session.close", `{"reason":"bye"}`)
		q.expect("session.closed")
		synctest.Wait()
		q = b.resume(token, 3003)
		token = resumeToken(t, q.expect("session.resumed"))
		_ = q.conn.Abort()
		time.Sleep(runtime.DefaultResumeWindow + time.Minute)
		b.resume(token, 3003).expect("session.rejected")
	})
}

func TestForgottenSession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialToken("alice")
		p.send("session.close", `{"forget":true}`)
		p.expect("session.closed")
		synctest.Wait()
		b.resume(token, 0).expect("session.rejected")
		if n := b.sum("arcp_sessions", ""); n != 0 {
			t.Errorf("%v sessions are left", n)
		}
	})
}

// A token does not outlive the principal it was given to.
func TestTokenOfARemovedPrincipal(t *testing.T) {
	var set *auth.Set
	inBubble(t, func(c *runtime.Config) { set = c.Auth }, func(b *fixture) {
		p, token := b.dialToken("alice")
		_ = p.conn.Abort()
		synctest.Wait()
		var left auth.Config
		if err := left.AddToken(auth.Token{Principal: "bob", Secret: "bob-" + auth.Secret(b.Name()), Roles: auth.LocalRoles()}); err != nil {
			t.Fatal(err)
		}
		set.Reload(&left)
		if e := refusal(t, b.resume(token, 0).expect("session.rejected")); e.Code != arcp.CodeUnauthenticated {
			t.Errorf("the session of somebody who is not known any more: %+v", e)
		}
	})
}

// Nor the token that the session was opened with, whatever others the principal
// has.
func TestRevokedBearerToken(t *testing.T) {
	var set *auth.Set
	with := func(tokens ...auth.Secret) *auth.Config {
		c := new(auth.Config)
		for _, s := range tokens {
			if err := c.AddToken(auth.Token{Principal: "alice", Secret: s, Roles: auth.LocalRoles()}); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	const own = "alice-" + token
	inBubble(t, func(c *runtime.Config) { set = c.Auth }, func(b *fixture) {
		p, resume := b.dialToken("alice")
		id := p.session
		again := func(why string, want arcp.Type) arcp.Envelope {
			t.Helper()
			_ = p.conn.Abort()
			synctest.Wait()
			p = b.resume(resume, 0)
			env := p.read()
			if env.Type != want {
				t.Fatalf("%s: %s %s, want %s", why, env.Type, env.Payload, want)
			}
			return env
		}
		set.Reload(with("another", own))
		resume = resumeToken(t, again("one token more", "session.resumed"))
		resume = resumeToken(t, again("and once more: the session still knows which it was", "session.resumed"))
		set.Reload(with("another"))
		if e := refusal(t, again("it was revoked", "session.rejected")); e.Code != arcp.CodeUnauthenticated {
			t.Errorf("refused with %+v", e)
		}
		row, err := b.st.Session(t.Context(), id)
		hash := strings.TrimPrefix(auth.FileHash(own), "sha256:")
		if err != nil || strings.Contains(string(row.Identity), hash) || strings.Contains(string(row.Identity), own) {
			t.Errorf("stored with the session: %s, %v: want nothing that answers a challenge", row.Identity, err)
		}
	})
}

// The session of a JWT's holder has the roles that the configuration gives when
// it resumes, as long as the issuer is there.
func TestResumeWithAJWT(t *testing.T) {
	dir := t.TempDir()
	secret := []byte(strings.Repeat("s", 64))
	if err := os.WriteFile(filepath.Join(dir, "secret"), secret, 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(issuer, role string) *auth.Config {
		name := filepath.Join(dir, "auth.yaml")
		text := fmt.Sprintf("issuers: [{issuer: %s, key_files: [secret], algorithms: [HS256]}]\nprincipals: [{name: alice, roles: [%s]}]\n", issuer, role)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := auth.Load(name, auth.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	set := auth.NewSet(load("home", "client"))
	inBubble(t, func(c *runtime.Config) { c.Auth = set }, func(b *fixture) {
		signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": "home", "aud": "arcp", "sub": "alice",
			"exp": time.Now().Add(time.Hour).Unix()}).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		p := b.connect(nil)
		p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"signed_jwt","token":%q},"client":{"kind":"test","version":"1"}}`, signed))
		resume := resumeToken(t, p.expect("session.accepted"))
		p.send("tool.invoke", `{"tool":"demo.none"}`)
		if e := refusal(t, p.expect("job.failed")); e.Code == arcp.CodePermissionDenied {
			t.Errorf("a client: %+v", e)
		}
		for _, c := range []struct {
			issuer string
			answer arcp.Type
		}{{"home", "session.resumed"}, {"home", "session.resumed"}, {"elsewhere", "session.rejected"}} {
			set.Reload(load(c.issuer, "observer"))
			_ = p.conn.Abort()
			synctest.Wait()
			p = b.resume(resume, 0)
			env := p.expect(c.answer)
			if c.answer == "session.rejected" {
				if e := refusal(t, env); e.Code != arcp.CodeUnauthenticated {
					t.Errorf("without its issuer: %+v", e)
				}
				return
			}
			resume = resumeToken(t, env)
			p.send("tool.invoke", `{"tool":"demo.none"}`)
			if e := refusal(t, p.until("nack")); e.Code != arcp.CodePermissionDenied {
				t.Errorf("an observer: %+v", e)
			}
		}
	})
}

// A runtime that starts again knows its sessions, their tokens and numbers.
func TestResumeAfterRestart(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		h := newHistory(t)
		p, token := b.dialToken("alice")
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":5,"bytes":1}}`)
		p.follow(h, -1)
		b.shutdown(time.Second)
		p.closed("shutdown", transport.CloseGoingAway)
		b.boot(nil)
		h.last = 2
		p = b.resume(token, 2)
		p.expect("session.resumed")
		p.follow(h, -1)
		p.send("tool.invoke", `{"tool":"demo.echo"}`)
		p.follow(h, -1)
		if h.last != 11 {
			t.Errorf("the last event has number %d, want 11", h.last)
		}
	})
}

// session.open attaches to a session of the same principal only.
func TestReattachByOpen(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		h := newHistory(t)
		p, _ := b.dialToken("alice")
		id := p.session
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":5,"bytes":1}}`)
		p.follow(h, -1)
		_ = p.conn.Abort()
		synctest.Wait()

		foreign := b.reopen("bob", id, "")
		foreign.session = ""
		if got := foreign.expect("session.accepted").SessionID; got == id {
			t.Fatal("bob is given alice's session")
		}

		at := b.reopen("alice", id, `,"last_event_seq":3`)
		at.expect("session.accepted")
		h.last = 3
		at.follow(h, -1)

		// Without a position and a further message: the events not written before, after 2 s.
		_ = at.conn.Abort()
		synctest.Wait()
		at = b.reopen("alice", id, "")
		at.expect("session.accepted")
		at.send("ping", "{}")
		at.expect("pong")
		at.send("tool.invoke", `{"tool":"demo.echo"}`)
		at.follow(h, -1)

		b.reopen("alice", id, `,"last_event_seq":999`).expect("session.rejected")
		for result, want := range map[string]float64{"ok": 2, "expired": 1} {
			if n := b.sum("arcp_resumes_total", `"`+result+`"`); n != want {
				t.Errorf("%v attempts to attach again are counted as %s, want %v", n, result, want)
			}
		}
	})
}

// A session taken over by session.open without a position continues after the events that its
// older connection was sent, or has acknowledged, even while that connection exists.
func TestReattachWithoutPosition(t *testing.T) {
	for _, acks := range []bool{false, true} {
		inBubble(t, nil, func(b *fixture) {
			h := newHistory(t)
			p := b.dial("alice")
			p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":5,"bytes":1}}`)
			p.follow(h, -1)
			if acks {
				p.send("session.ack", `{"last_processed_seq":3}`)
				h.last = 3
			}
			synctest.Wait()
			p = b.reopen("alice", p.session, "")
			p.expect("session.accepted")
			p.send("tool.invoke", `{"tool":"demo.echo"}`)
			for h.last < 11 { // the numbers of the echo end there
				p.follow(h, 1)
			}
		})
	}
}

// Acknowledged events cannot be replayed: they may be deleted at any moment.
func TestResumeBeforeTheAcknowledgedEvent(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialToken("alice")
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":5,"bytes":1}}`)
		p.until("job.completed")
		p.send("session.ack", `{"last_processed_seq":3}`)
		p.send("ping", "{}")
		p.expect("pong")
		q := b.resume(token, 2)
		if e := refusal(t, q.expect("session.rejected")); e.Code != arcp.CodeResumeWindowExpired {
			t.Errorf("before what was acknowledged: %+v", e)
		}
		q.send("session.resume", fmt.Sprintf(`{"resume_token":%q,"last_event_seq":3}`, token))
		q.session = p.session
		q.expect("session.resumed")
		q.until("job.completed")
	})
}

// A session that negotiated acknowledgements is kept past the resume window while
// there is something that it has not acknowledged.
func TestUnacknowledgedOutlivesTheWindow(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.connect(nil)
		p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},
			"capabilities":{"features":["ack"]}}`, token))
		token := resumeToken(t, p.expect("session.accepted"))
		p.send("tool.invoke", `{"tool":"demo.echo"}`)
		p.until("job.completed")
		_ = p.conn.Abort()
		time.Sleep(runtime.DefaultResumeWindow + time.Minute)
		b.resume(token, 0).expect("session.resumed")
	})
}

// reopen opens a session that exists.
func (b *fixture) reopen(name string, id arcp.SessionID, more string) *peer {
	b.Helper()
	p := b.connect(nil)
	p.n = 1000 * (1 + len(b.all))
	b.all = append(b.all, p)
	frame := fmt.Sprintf(`{"arcp":"1.1","id":"msg_open","type":"session.open","session_id":%q,"timestamp":"2030-01-02T15:04:05Z",
		"payload":{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"test","version":"1"}%s}}`, id, name, token, more)
	if err := p.conn.Write([]byte(frame)); err != nil {
		b.Fatal(err)
	}
	if err := p.conn.Flush(); err != nil {
		b.Fatal(err)
	}
	return p
}

// resume names a position by a message.
func TestReplayAfterMessage(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		h := newHistory(t)
		p, _ := b.dialToken("alice")
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":5,"bytes":1}}`)
		p.follow(h, -1)
		third, err := arcp.Decode([]byte(h.frames[3]))
		if err != nil {
			t.Fatal(err)
		}
		at := b.reopen("alice", p.session, "")
		at.expect("session.accepted")
		at.send("resume", fmt.Sprintf(`{"after_message_id":%q}`, third.ID))
		at.expect("ack")
		h.last = 3
		at.follow(h, -1)
		at.send("resume", "{}")
		if e := refusal(t, at.expect("nack")); e.Code != arcp.CodeFailedPrecondition {
			t.Errorf("resume when events were sent: %+v", e)
		}

		at = b.reopen("alice", p.session, "")
		at.expect("session.accepted")
		at.send("resume", `{"after_message_id":"msg_unknown"}`)
		first, err := arcp.Decode([]byte(h.frames[1]))
		if err != nil {
			t.Fatal(err)
		}
		if e := refusal(t, at.expect("nack")); e.Code != arcp.CodeDataLoss || !strings.Contains(string(e.Details), string(first.ID)) {
			t.Errorf("an unknown message: %+v, want the oldest one, %s", e, first.ID)
		}
	})
}

// A command that is sent again on a later connection is not performed again, and
// is answered.
func TestCommandSentAgain(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialToken("alice")
		id := p.send("tool.invoke", `{"tool":"demo.echo","arguments":{"x":1}}`)
		accepted := p.expect("job.accepted")
		p.until("job.completed")
		p = b.resume(token, 3)
		p.expect("session.resumed")
		frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":"tool.invoke","timestamp":"2030-01-02T15:04:05Z","payload":{"tool":"demo.echo","arguments":{"x":1}}}`, id)
		if err := p.conn.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		if err := p.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		again := p.expect("job.accepted")
		if again.JobID != accepted.JobID || again.ID != accepted.ID || string(again.CorrelationID) != id {
			t.Errorf("answered with %+v, want the answer of before, %+v", again, accepted)
		}
		p.expect("job.completed")
		if n := b.sum("arcp_jobs_submitted_total", ""); n != 1 {
			t.Errorf("%v jobs", n)
		}
	})
}

// A window holds events back, and nothing else.
func TestAckWindow(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.AckWindow = 4 }, func(b *fixture) {
		h := newHistory(t)
		p := b.dial("alice")
		p.send("session.ack", `{"last_processed_seq":0}`)
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":20,"bytes":1}}`)
		p.follow(h, 4)
		for range 3 {
			p.send("ping", "{}")
			p.expect("pong")
		}
		p.send("session.ack", `{"last_processed_seq":2}`)
		p.follow(h, 2)
		p.send("session.list_jobs", "{}")
		p.expect("session.jobs")
		p.send("session.ack", `{"last_processed_seq":1000}`) // more than it was sent: all of that
		p.follow(h, 4)
		p.send("ping", "{}")
		p.expect("pong")
	})
}

// A client may ask for a window, on each of its connections; the smaller one, of
// the runtime's and its own, applies.
func TestAckWindowOfTheClient(t *testing.T) {
	for _, tt := range []struct{ runtime, client, want int }{{0, 4, 4}, {6, 4, 4}, {4, 6, 4}, {4, 0, 4}, {0, 0, 0}} {
		t.Run(fmt.Sprintf("%d and %d", tt.runtime, tt.client), func(t *testing.T) {
			inBubble(t, func(c *runtime.Config) { c.AckWindow = tt.runtime }, func(b *fixture) {
				const events = 23
				member := fmt.Sprintf(`,"ack_window":%d`, tt.client)
				said := func(env arcp.Envelope) {
					t.Helper()
					want := fmt.Sprintf(`"ack_window":%d`, tt.want)
					if has := strings.Contains(string(env.Payload), want); has != (tt.want > 0) {
						t.Errorf("%s %s, want a window of %d", env.Type, env.Payload, tt.want)
					}
				}
				flows := func(p *peer, h *history) {
					t.Helper()
					n := tt.want
					if n == 0 {
						n = events - int(h.last)
					}
					p.follow(h, n)
					p.send("ping", "{}")
					p.expect("pong")
				}
				h := newHistory(t)
				p := b.connect(nil)
				p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},
					"capabilities":{"ack":true%s}}`, token, member))
				accepted := p.expect("session.accepted")
				said(accepted)
				p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":20,"bytes":1}}`)
				flows(p, h)
				_ = p.conn.Abort()
				synctest.Wait()

				p = b.connect(nil)
				p.send("session.resume", fmt.Sprintf(`{"resume_token":%q,"last_event_seq":2%s}`, resumeToken(t, accepted), member))
				said(p.expect("session.resumed"))
				h.last = 2
				flows(p, h)
			})
		})
	}
}

// A client that acknowledges and falls behind is told once.
func TestAckLag(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.send("session.ack", `{"last_processed_seq":0}`)
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":3000,"bytes":1}}`)
		told := 0
		for {
			env := p.read()
			if env.Type == "backpressure" {
				told++
			}
			if env.Type.Terminal() {
				break
			}
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

// The backlog of a session is bounded: past the bound the oldest events are deleted, and a
// resume from before them is refused.
func TestBacklogOverflow(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.BacklogBytes = 1 << 20 }, func(b *fixture) {
		p, token := b.dialToken("alice")
		_, stuck := p, b.dial("bob")
		_ = p.conn.Write(nil)
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":4000,"bytes":1000,"delay_ms":1000}}`)
		p.expect("job.accepted", "job.started")
		_ = p.conn.Abort()
		stuck.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":4000,"bytes":1000,"delay_ms":1000}}`)
		time.Sleep(10 * time.Second)
		b.resume(token, 2).expect("session.rejected")
		for { // nothing reads the frames: there is no room for a close frame
			if _, err := stuck.conn.Read(); err != nil {
				break
			}
		}
	})
}

// A client that is connected is told that its backlog has grown too large, and
// its connection ends before there is a gap.
func TestBacklogOverflowSendsBackpressure(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.BacklogBytes, c.AckWindow = 1<<20, 4 }, func(b *fixture) {
		h := newHistory(t)
		p, token := b.dialToken("alice")
		p.send("session.ack", `{"last_processed_seq":0}`)
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":4000,"bytes":1000,"interval_ms":1}}`)
		p.follow(h, 4)
		if why := string(p.expect("backpressure").Payload); !strings.Contains(why, "backlog_overflow") {
			t.Errorf("backpressure %s", why)
		}
		p.closed("too far behind", transport.CloseOverloaded)
		synctest.Wait()
		if n := b.sum("arcp_slow_consumers_total", `"backlog_overflow"`); n != 1 {
			t.Errorf("counted %v times", n)
		}
		b.resume(token, h.last).expect("session.rejected")
	})
}

// The backlog is bounded over restarts, too: between two of them it may be smaller.
func TestBacklogOverRestarts(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		small := func(c *runtime.Config) { c.BacklogBytes, c.AckWindow = 1<<20, 4 }
		b.shutdown(0)
		b.boot(small)
		p, token := b.dialToken("alice")
		p.send("session.ack", `{"last_processed_seq":0}`)
		const some = `{"tool":"demo.emit","arguments":{"count":600,"bytes":1000,"delay_ms":100}}`
		p.send("tool.invoke", some)
		p.until("job.started")
		_ = p.conn.Abort()
		time.Sleep(time.Second)
		b.shutdown(0)
		b.boot(small)
		p = b.resume(token, 0)
		token = resumeToken(b, p.expect("session.resumed"))
		p.send("tool.invoke", some)
		if why := string(p.until("backpressure").Payload); !strings.Contains(why, "backlog_overflow") {
			t.Errorf("backpressure %s", why)
		}
		p.closed("too far behind", transport.CloseOverloaded)
		synctest.Wait()
		b.resume(token, 0).expect("session.rejected")
	})
}

// A peer that has gone silent loses its connection, nothing else.
func TestHeartbeatLost(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.connect(nil)
		p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},
			"capabilities":{"features":["heartbeat"]}}`, token))
		token := resumeToken(t, p.expect("session.accepted"))
		for range 5 {
			ping := p.expect("session.ping")
			if ping.EventSeq != 0 {
				t.Errorf("a ping has a number: %+v", ping)
			}
			p.send("session.pong", `{"ping_nonce":"n","received_at":"2030-01-02T15:04:05Z"}`)
		}
		p.closed("silence", transport.ClosePolicy)
		p = b.resume(token, 0)
		p.expect("session.resumed", "session.ping") // the negotiated capabilities still apply
	})
}

// Sessions are listed and ended by their principal only.
func TestSessionsTools(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, q := b.dial("alice"), b.dial("alice")
		other := b.dial("bob")
		_ = q.conn.Abort()
		synctest.Wait()
		list := p.call("sessions.list", `{"limit":1}`)
		if !strings.Contains(list, string(p.session)) || !strings.Contains(list, "next_cursor") {
			t.Errorf("first page: %s", list)
		}
		list = p.call("sessions.list", `{}`)
		if strings.Contains(list, string(other.session)) || !strings.Contains(list, `"detached"`) {
			t.Errorf("sessions of alice: %s", list)
		}
		p.send("tool.invoke", fmt.Sprintf(`{"tool":"sessions.evict","arguments":{"session_id":%q}}`, other.session))
		if e := refusal(t, p.until("job.failed")); e.Code != arcp.CodeNotFound {
			t.Errorf("evict bob's session: %+v", e)
		}
		p.call("sessions.evict", fmt.Sprintf(`{"session_id":%q,"forget":true}`, q.session))
		if list = p.call("sessions.list", `{}`); strings.Contains(list, string(q.session)) {
			t.Errorf("an ended session is listed: %s", list)
		}
		p.send("tool.invoke", fmt.Sprintf(`{"tool":"sessions.evict","arguments":{"session_id":%q}}`, p.session))
		p.until("session.evicted")
	})
}

// call runs a tool and returns its result.
func (p *peer) call(tool, args string) string {
	p.Helper()
	p.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, tool, args))
	return string(p.until("job.completed").Payload)
}

// A principal with more sessions than its limit loses its own detached ones, not those of
// others.
func TestSessionsOverTheLimit(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.MaxSessionsPerPrincipal = 3 }, func(b *fixture) {
		var tokens []string
		for range 5 {
			p, token := b.dialToken("alice")
			_ = p.conn.Abort()
			synctest.Wait()
			tokens = append(tokens, token)
		}
		b.resume(tokens[1], 0).expect("session.rejected")
		for _, token := range tokens[2:] {
			b.resume(token, 0).expect("session.resumed")
		}
		p := b.connect(nil)
		p.open("alice")
		if e := refusal(t, p.expect("session.rejected")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("all of them are in use: %+v", e)
		}
	})
}

// Takeovers under load neither lose nor repeat anything.
func TestTakeoverUnderLoad(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		h := newHistory(t)
		p, token := b.dialToken("alice")
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
			p = b.resume(token, h.last)
			token = resumeToken(t, p.expect("session.resumed"))
		}
		_ = p.conn.Abort()
		wg.Wait()
	})
}

// With the bounds of the replay off, all events are kept.
func TestReplayWithoutBounds(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.ReplayEvents, c.ReplayBytes = -1, -1 }, func(b *fixture) {
		const events = 3000
		p, token := b.dialToken("alice")
		p.send("tool.invoke", fmt.Sprintf(`{"tool":"demo.emit","arguments":{"count":%d,"bytes":1}}`, events))
		p.until("job.completed")
		_ = p.conn.Abort()
		synctest.Wait()
		p = b.resume(token, 0)
		p.expect("session.resumed")
		h := newHistory(t)
		p.follow(h, events+3)
	})
}

// The bounds of the replay are the session's, over any number of connections and replays.
func TestReplayBoundsOverManyConnections(t *testing.T) {
	const (
		events = 1500 // a job has
		jobs   = 12
	)
	for name, bound := range map[string]func(*runtime.Config){
		"events":                  func(c *runtime.Config) { c.ReplayEvents = 4000 },
		"bytes":                   func(c *runtime.Config) { c.ReplayBytes = 4000 * 500 },
		"events, with take-overs": func(c *runtime.Config) { c.ReplayEvents = 4000 },
		"bytes, with take-overs":  func(c *runtime.Config) { c.ReplayBytes = 4000 * 500 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, bound, func(b *fixture) {
				h := newHistory(t)
				p, token := b.dialToken("alice")
				for range jobs {
					p.send("tool.invoke", fmt.Sprintf(`{"tool":"demo.emit","arguments":{"count":%d,"bytes":300}}`, events-3))
					p.follow(h, events)
					if !strings.Contains(name, "take-overs") {
						_ = p.conn.Abort()
					}
					synctest.Wait()
					h.last -= 700
					p = b.resume(token, h.last)
					token = resumeToken(t, p.expect("session.resumed"))
					p.follow(h, 700)
				}
				p.send("ping", "{}")
				p.expect("pong")
				row, err := b.st.Session(t.Context(), p.session)
				if err != nil {
					t.Fatal(err)
				}
				if n := row.LastSeq - row.TrimmedTo; n < 3000 || n > 6000 {
					t.Errorf("%d of %d events are kept, want about 4,000", n, row.LastSeq)
				}
			})
		})
	}
}

// Two clients may choose the same message id: a retry in another session, under
// the id of the original submit, and a subscription there do not get in each
// other's way.
func TestRetryUnderTheOriginalID(t *testing.T) {
	const keyed = `{"tool":"demo.emit","arguments":{"count":3,"bytes":10,"interval_ms":1000},"idempotency_key":"k"}`
	for name, order := range map[string][]string{"retry first": {"retry", "subscribe"}, "subscription first": {"subscribe", "retry"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				p, q := b.dial("alice"), b.dial("alice")
				p.n = 10
				id := p.send("tool.invoke", keyed)
				job := p.expect("job.accepted", "job.started").JobID
				for _, what := range order {
					switch what {
					case "retry":
						q.n = 10
						if again := q.send("tool.invoke", keyed); again != id {
							t.Fatalf("the ids are %s and %s", id, again)
						}
						q.until("job.accepted")
					case "subscribe":
						q.n = 20
						q.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, job))
						q.until("job.subscribed")
					}
				}
				p.until("job.completed")
				logs := 0
				for env := q.read(); !env.Type.Terminal(); env = q.read() {
					if env.Type == arcp.Log {
						logs++
					}
				}
				if logs != 3 {
					t.Errorf("%d of 3 events came to the subscription", logs)
				}
			})
		})
	}
}

// The end of a subscription leaves a retry under the same id alone: its outcome
// comes, and nothing else of the job.
func TestUnsubscribeLeavesTheRetry(t *testing.T) {
	const keyed = `{"tool":"demo.emit","arguments":{"count":3,"bytes":10,"interval_ms":1000},"idempotency_key":"k"}`
	for name, retryFirst := range map[string]bool{"retry first": true, "subscription first": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				p, q := b.dial("alice"), b.dial("alice")
				p.n = 10
				id := p.send("tool.invoke", keyed)
				job := p.expect("job.accepted", "job.started").JobID
				retry := func() {
					q.n = 10
					q.send("tool.invoke", keyed)
					q.until("job.accepted")
				}
				if retryFirst {
					retry()
				}
				q.n = 20
				q.send("job.subscribe", ofJob(job))
				q.until("job.subscribed")
				if !retryFirst {
					retry()
				}
				q.n = 30
				q.send("job.unsubscribe", ofJob(job))
				q.send("ping", "{}")
				q.until("pong")
				p.until("job.completed")
				env := q.read()
				for env.Type == arcp.Log && strings.Contains(string(env.Payload), `"n":0`) {
					env = q.read() // it was on its way
				}
				if env.Type != arcp.JobCompleted || string(env.CorrelationID) != id || env.Extensions != nil {
					t.Errorf("after job.unsubscribe comes %s, correlated to %s, with %s; want the outcome of the retry %s",
						env.Type, env.CorrelationID, env.Extensions, id)
				}
			})
		})
	}
}

// How many jobs of others a session follows is bounded over all its connections
// and over restarts; one that it follows already is not another one.
func TestFollowsOverManyConnections(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { runtime.SetMaxFollows(c, 3) }, func(b *fixture) {
		owner := b.dial("alice")
		var jobs []arcp.JobID
		for range 5 {
			owner.send("tool.invoke", `{"tool":"demo.count","arguments":{"to":1000,"interval_ms":60000}}`)
			jobs = append(jobs, owner.until("job.started").JobID)
		}
		p, token := b.dialToken("alice")
		subscribe := func(job arcp.JobID) arcp.Type {
			id := p.send("job.subscribe", fmt.Sprintf(`{"job_id":%q}`, job))
			for {
				env := p.read()
				if string(env.CorrelationID) != id {
					continue
				}
				if env.Type == arcp.Nack && refusal(t, env).Code != arcp.CodeResourceExhausted {
					t.Errorf("subscribe: %s", env.Payload)
				}
				return env.Type
			}
		}
		again := func() {
			_ = p.conn.Abort()
			synctest.Wait()
			p = b.resume(token, 0)
			token = resumeToken(b, p.until("session.resumed"))
		}
		for i, want := range []arcp.Type{arcp.JobSubscribed, arcp.JobSubscribed, arcp.JobSubscribed, arcp.Nack} {
			if got := subscribe(jobs[i]); got != want {
				t.Errorf("job %d: %s, want %s", i, got, want)
			}
			again()
		}
		if got := subscribe(jobs[1]); got != arcp.JobSubscribed {
			t.Errorf("a job that is followed already: %s", got)
		}
		b.shutdown(0)
		b.boot(func(c *runtime.Config) { runtime.SetMaxFollows(c, 3) })
		again()
		if got := subscribe(jobs[4]); got != arcp.Nack {
			t.Errorf("after a restart: %s, want %s", got, arcp.Nack)
		}
		p.send("job.unsubscribe", fmt.Sprintf(`{"job_id":%q}`, jobs[0]))
		p.send("ping", "{}")
		p.until("pong")
		synctest.Wait()
		if got := subscribe(jobs[4]); got != arcp.JobSubscribed {
			t.Errorf("after job.unsubscribe: %s, want %s", got, arcp.JobSubscribed)
		}
	})
}

// A subscribe whose answer was lost is sent again on the next connection: the
// session follows the job already and is sent nothing twice.
func TestSubscribeAgainOnTheNextConnection(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		a := b.dial("alice")
		a.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":1000}}`)
		job := a.expect("job.accepted", "job.started").JobID
		p, token := b.dialToken("alice")
		subscribe := fmt.Sprintf(`{"job_id":%q,"history":true}`, job)
		p.send("job.subscribe", subscribe)
		p.expect("job.subscribed", "job.accepted", "job.started")
		_ = p.conn.Abort()
		synctest.Wait()
		p = b.resume(token, 2)
		p.expect("session.resumed")
		p.send("job.subscribe", subscribe)
		if end := p.expect("job.subscribed", "job.completed"); end.EventSeq != 3 {
			t.Errorf("the end has the number %d, want 3", end.EventSeq)
		}
	})
}

// While a position is being looked for, nothing makes events go out: neither an
// acknowledgement behind the resume, nor another resume, nor new events.
func TestNothingGoesOutBeforeThePosition(t *testing.T) {
	for name, behind := range map[string]func(p *peer, resume string){
		"an acknowledgement": func(p *peer, _ string) { p.send("session.ack", `{"last_processed_seq":0}`) },
		"another resume":     func(p *peer, resume string) { p.send("resume", resume) },
		"a job":              func(p *peer, _ string) { p.send("tool.invoke", `{"tool":"demo.echo"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				const events = 2003
				h := newHistory(t)
				p := b.dial("alice")
				p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":2000,"bytes":400}}`)
				p.follow(h, -1)
				at, err := arcp.Decode([]byte(h.frames[1500]))
				if err != nil {
					t.Fatal(err)
				}
				_ = p.conn.Abort()
				synctest.Wait()
				q := b.reopen("alice", p.session, "")
				q.expect("session.accepted")
				resume := fmt.Sprintf(`{"after_message_id":%q}`, at.ID)
				q.send("resume", resume)
				behind(q, resume)
				h.last = 1500
				for h.last < events {
					q.follow(h, 1)
				}
			})
		})
	}
}

// A client that resumes ahead of its stored acknowledgements is not blocked by the window for
// ever.
func TestWindowAfterResume(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.AckWindow = 16 }, func(b *fixture) {
		h := newHistory(t)
		p, token := b.dialToken("alice")
		p.send("session.ack", `{"last_processed_seq":0}`)
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":60,"bytes":1}}`)
		for h.last < 40 {
			p.follow(h, 1)
			if h.last%8 == 0 {
				p.send("session.ack", fmt.Sprintf(`{"last_processed_seq":%d}`, h.last-1))
			}
		}
		q := b.resume(token, h.last)
		q.expect("session.resumed")
		q.follow(h, 16)
	})
}

// Jobs with on_disconnect cancel end with the session.
func TestJobsOfAForgottenSession(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p := b.dial("alice")
		p.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":600000},"on_disconnect":"cancel"}`)
		p.until("job.started")
		p.send("session.close", `{"forget":true}`)
		p.expect("session.closed")
		time.Sleep(time.Minute)
		if n := b.sum("arcp_jobs", ""); n != 0 {
			t.Errorf("%v jobs run on a minute after their session's end", n)
		}
	})
}

// A session's follows are its own, not its connection's: a later one ends them.
func TestUnsubscribeAfterResume(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		h := newHistory(t)
		p := b.dial("alice")
		q, token := b.dialToken("alice")
		job := p.submit("demo.emit", `{"count":50,"bytes":10,"interval_ms":1000}`)
		q.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, job))
		q.expect("job.subscribed")
		q.follow(h, 3)
		_ = q.conn.Abort()
		synctest.Wait()
		q = b.resume(token, h.last)
		q.expect("session.resumed")
		q.send("job.unsubscribe", fmt.Sprintf(`{"job_id":%q}`, job))
		q.send("ping", "{}")
		q.expect("pong")
		time.Sleep(10 * time.Second)
		q.send("ping", "{}")
		q.expect("pong")
	})
}

// Nothing takes the end of its own jobs from a session, on whichever connection.
func TestUnsubscribeFromAnOwnJob(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		h := newHistory(t)
		p, token := b.dialToken("alice")
		job := p.submit("demo.emit", `{"count":3,"bytes":10,"interval_ms":1000}`)
		unsubscribe := fmt.Sprintf(`{"job_id":%q}`, job)
		p.send("job.unsubscribe", unsubscribe)
		p.send("ping", "{}")
		p.until("pong")
		_ = p.conn.Abort()
		synctest.Wait()
		p = b.resume(token, 0)
		p.expect("session.resumed")
		p.send("job.unsubscribe", unsubscribe)
		p.follow(h, -1)
	})
}

// Where a session was that never acknowledges is known after an orderly restart,
// whether its connection ended before or with the runtime.
func TestReattachAfterRestart(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "with the runtime": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				h := newHistory(t)
				p := b.dial("alice")
				p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":5,"bytes":1}}`)
				p.follow(h, -1)
				if before {
					_ = p.conn.Abort()
					synctest.Wait()
				}
				b.shutdown(time.Second)
				b.boot(nil)
				q := b.reopen("alice", p.session, "")
				q.expect("session.accepted")
				q.send("tool.invoke", `{"tool":"demo.echo"}`)
				q.follow(h, 3)
			})
		})
	}
}

// After a crash a session that never acknowledges continues no later than where its last
// connection began: the events sent on that connection are repeated, and none is left out.
func TestReattachAfterACrash(t *testing.T) {
	for name, position := range map[string]string{"position": `,"last_event_seq":3`, "resume": ""} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				h := newHistory(t)
				p := b.dial("alice")
				p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":5,"bytes":1}}`)
				p.follow(h, 3)
				third := h.frames[3]
				p.follow(h, -1)
				_ = p.conn.Abort()
				synctest.Wait()
				last, q := h.last, b.reopen("alice", p.session, position)
				h.last = 3
				q.expect("session.accepted")
				if position == "" { // the client has lost the frames after the third
					env, err := arcp.Decode([]byte(third))
					if err != nil {
						t.Fatal(err)
					}
					q.send("resume", fmt.Sprintf(`{"after_message_id":%q}`, env.ID))
					q.expect("ack")
				}
				q.follow(h, 1)
				synctest.Wait()
				b.st.set(func() { b.st.fail = errors.New("the process is gone") })
				b.shutdown(0)
				b.st.set(func() { b.st.fail = nil })
				b.boot(nil)
				q = b.reopen("alice", p.session, "")
				q.expect("session.accepted")
				q.send("ping", "{}")
				env := q.read()
				for env.EventSeq == 0 {
					env = q.read()
				}
				if env.EventSeq > 4 {
					t.Errorf("goes on with %d of %d: the client had only 4", env.EventSeq, last)
				}
				if position != "" && env.EventSeq != 4 {
					t.Errorf("goes on with %d, want 4", env.EventSeq)
				}
			})
		})
	}
}

// Frames in the runtime's buffers when the connection broke count as not written: they are
// sent on an attach without a position.
func TestReattachContinuesAfterTheLastWrittenEvent(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		h := newHistory(t)
		p := b.dial("alice")
		p.send("tool.invoke", `{"tool":"demo.emit","arguments":{"count":2000,"bytes":4000}}`)
		p.follow(h, 100)
		time.Sleep(time.Minute) // it does not read any more
		_ = p.conn.Abort()
		synctest.Wait()
		q := b.reopen("alice", p.session, "")
		q.expect("session.accepted")
		q.send("ping", "{}")
		env := q.read()
		for env.EventSeq == 0 {
			env = q.read()
		}
		if env.EventSeq > h.last+64 { // the transport took some, which counts as written
			t.Errorf("read up to %d, goes on with %d", h.last, env.EventSeq)
		}
	})
}

// A frame of a client that has resumed counts only when the token it used is durably
// worth nothing: no crash makes it good again.
func TestUsedTokenIsDurablyUsed(t *testing.T) {
	for name, frame := range map[string]string{"a message": "ping", "an acknowledgement": "session.ack"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				p, token := b.dialToken("alice")
				_ = p.conn.Abort() // never fails
				synctest.Wait()
				p = b.resume(token, 0)
				p.expect("session.resumed")
				gate := make(chan struct{})
				b.st.set(func() { b.st.gate = gate })
				payload := map[string]string{"ping": `{"nonce":"n"}`, "session.ack": `{"last_processed_seq":0}`}[frame]
				p.send(frame, payload)
				synctest.Wait()
				if n := b.sum("arcp_envelopes_total", `"`+frame+`"`); n != 0 {
					t.Errorf("%v of %s counted before the store has the new token", n, frame)
				}
				b.st.set(func() {
					if b.st.soft { // of the commit that waits
						t.Error("the store's commit can be lost in a crash")
					}
					b.st.gate = nil
				})
				close(gate)
				p.send("ping", `{"nonce":"n"}`)
				p.expect("pong")
			})
		})
	}
}
