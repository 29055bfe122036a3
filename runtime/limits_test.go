package runtime_test

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// A peer that does not complete its handshake in time is sent away; one that did
// may stay.
func TestHandshakeTimeout(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		began := time.Now()
		silent, busy, done := b.connect(nil), b.connect(nil), b.dial("alice")
		go func() {
			for range 9 {
				time.Sleep(time.Second)
				busy.send("ping", "{}")
			}
		}()
		silent.closed("it has said nothing", transport.ClosePolicy)
		busy.closed("it has said nothing of use", transport.ClosePolicy)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("sent away after %v, want 10 s", took)
		}
		time.Sleep(time.Hour)
		done.send("ping", "{}")
		done.expect("pong")
	})
}

// Off means off.
func TestNoHandshakeTimeout(t *testing.T) {
	inBubble(t, func(c *runtime.Config) {
		c.HandshakeTimeout, c.SessionLease, c.ResumeWindow, c.Heartbeat, c.MaxFrame = -1, -1, -1, -1, -1
	}, func(b *fixture) {
		p := b.connect(nil)
		time.Sleep(time.Hour)
		p.open("alice")
		accepted := string(p.expect("session.accepted").Payload)
		for _, absent := range []string{`"lease"`, "heartbeat_interval", "resume_window", "-1"} {
			if strings.Contains(accepted, absent) {
				t.Errorf("%s: %s says something about what is off", accepted, absent)
			}
		}
		p.send("ping", fmt.Sprintf(`{"nonce":%q}`, strings.Repeat("x", 1<<20)))
		p.expect("pong")
	})
}

func TestConnectionLimits(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.MaxConnections = 3 }, func(b *fixture) {
		first := b.dial("alice")
		b.dial("alice")
		b.dial("alice")
		b.connect(nil).closed("one connection too many", transport.CloseOverloaded)
		first.send("session.close", "{}")
		first.closed("it asked for it", transport.CloseNormal)
		synctest.Wait()
		b.dial("alice")
	})
	inBubble(t, func(c *runtime.Config) { c.MaxUnauthenticated = 2 }, func(b *fixture) {
		first := b.connect(nil)
		b.connect(nil)
		synctest.Wait()
		b.connect(nil).closed("one too many that are not authenticated", transport.CloseOverloaded)
		first.open("alice")
		first.expect("session.accepted")
		b.dial("alice") // there is room again
	})
	inBubble(t, func(c *runtime.Config) { c.MaxUnauthenticatedPerIP = 2 }, func(b *fixture) {
		from := func(addr string) func(*transport.Info) { return func(i *transport.Info) { i.RemoteAddr = addr } }
		first := b.connect(from("203.0.113.7"))
		b.connect(from("203.0.113.7"))
		synctest.Wait()
		b.connect(from("203.0.113.7")).closed("one too many from this address", transport.CloseOverloaded)
		for _, addr := range []string{"203.0.113.8", "127.0.0.1", "127.0.0.1", "127.0.0.1", "::1", ""} {
			other := b.connect(from(addr))
			other.open("alice")
			other.expect("session.accepted")
		}
		first.open("alice")
		first.expect("session.accepted")
		p := b.connect(from("203.0.113.7"))
		p.open("alice")
		p.expect("session.accepted")
	})
}

// Sessions are limited, in all and for a principal; the connection may try again
// when another has left.
func TestSessionLimits(t *testing.T) {
	for name, change := range map[string]func(*runtime.Config){
		"all":       func(c *runtime.Config) { c.MaxSessions = 1 },
		"principal": func(c *runtime.Config) { c.MaxSessionsPerPrincipal = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, change, func(b *fixture) {
				first := b.dial("alice")
				second := b.connect(nil)
				second.open("alice")
				e := refusal(t, second.expect("session.rejected"))
				if e.Code != arcp.CodeResourceExhausted || string(e.Details) != `{"retry_after_seconds":1}` {
					t.Errorf("%+v: want RESOURCE_EXHAUSTED and a time to wait", e)
				}
				if name == "principal" {
					b.dial("bob")
				}
				_ = first.conn.Abort() // without a word
				synctest.Wait()
				second.open("alice")
				second.expect("session.accepted")
			})
		})
	}
}

// Limits may be changed while the runtime serves; existing sessions and jobs stay.
func TestSetLimits(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.MaxSessions, c.MaxJobs = 2, 2 }, func(b *fixture) {
		first, second := b.dial("alice"), b.dial("alice")
		for range 2 {
			first.submit("demo.sleep", `{"ms":60000}`)
		}
		b.rt.SetLimits(runtime.Limits{MaxSessions: 1, MaxJobs: 1})
		second.send("ping", "{}")
		second.expect("pong")
		second.send("tool.invoke", `{"tool":"demo.echo"}`)
		if e := refusal(t, second.expect("job.failed")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("%+v: want RESOURCE_EXHAUSTED", e)
		}
		b.rt.SetLimits(runtime.Limits{MaxSessions: 3, MaxJobs: -1, Rate: 60})
		third := b.dial("alice")
		third.submit("demo.echo", "{}")
		third.until("job.completed")
		for range 10 {
			third.send("session.list_jobs", "{}")
		}
		third.until("nack")
	})
}

// A session that the store refuses affects no other session.
func TestSessionNotStored(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.MaxSessionsPerPrincipal = 1 }, func(b *fixture) {
		b.st.set(func() { b.st.fail = errors.New("boom") })
		p := b.connect(nil)
		for range 3 {
			p.open("alice")
			if e := refusal(t, p.expect("session.rejected")); e.Code != arcp.CodeUnavailable {
				t.Errorf("%+v: want UNAVAILABLE, and no limit reached", e)
			}
		}
		if err := b.rt.Ready(); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("Ready = %v, want the store's error", err)
		}
		if n := b.sum("arcp_sessions", ""); n != 0 {
			t.Errorf("arcp_sessions counts %v", n)
		}
	})
}

// Over its rate a connection is told so, then read more slowly; pings and acks
// are free.
func TestRateLimit(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.Rate = 60 }, func(b *fixture) {
		p := b.dial("alice")
		began := time.Now()
		for range 100 {
			p.send("ping", "{}")
			p.expect("pong")
			p.send("session.ack", `{"last_processed_seq":0}`)
		}
		if time.Since(began) != 0 {
			t.Error("pings count against the rate")
		}
		served, refused := 0, 0
		for range 30 {
			p.send("session.list_jobs", "{}")
			switch env := p.read(); env.Type {
			case arcp.SessionJobs:
				served++
			case arcp.Nack:
				refused++
				if e := refusal(t, env); e.Code != arcp.CodeResourceExhausted || len(e.Details) == 0 {
					t.Errorf("%+v: want RESOURCE_EXHAUSTED and a time to wait", e)
				}
			}
		}
		took := time.Since(began)
		if served > 2+int(took/time.Second) || refused == 0 || took < 5*time.Second || took > time.Minute {
			t.Errorf("%d served and %d refused in %v at one a second", served, refused, took)
		}
	})
}

// A peer that sends requests without reading the answers is no longer read: waiting answers
// are bounded. When it reads, all answers come.
func TestPeerThatDoesNotRead(t *testing.T) {
	const enough = 6_000
	for name, frame := range map[string]struct{ typ, payload string }{
		"answers of the session": {"ping", fmt.Sprintf(`{"nonce":%q}`, strings.Repeat("x", 1000))},
		"refused submits":        {"tool.invoke", `{"tool":"demo.none"}`},
		"submits nobody reads":   {"tool.invoke", `{"tool":7}`},
		"cancels":                {"cancel", `{"target":"job","target_id":"job_none"}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				p := b.dial("alice")
				var sent atomic.Int64
				go func() {
					for range enough {
						if _, err := p.try(frame.typ, frame.payload); err != nil {
							return
						}
						sent.Add(1)
					}
				}()
				synctest.Wait()
				if n := sent.Load(); n >= enough {
					b.Fatalf("%d frames were taken from a peer that does not read", n)
				}
				answered := make(map[arcp.MessageID]bool)
				for range enough {
					answered[p.read().CorrelationID] = true
				}
				if len(answered) != enough {
					t.Errorf("%d of %d frames were answered", len(answered), enough)
				}
			})
		})
	}
}

// The store standing still does not make the runtime take ever more commands.
func TestCommandsWhileTheStoreStandsStill(t *testing.T) {
	const enough = 4_000
	for name, frame := range map[string]struct{ typ, payload string }{
		"submits":         {"tool.invoke", `{"tool":"demo.none"}`},
		"builtin submits": {"tool.invoke", `{"tool":"jobs.get","arguments":{"job_id":"job_none"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				p := b.dial("alice")
				gate := make(chan struct{})
				b.st.set(func() { b.st.gate = gate })
				var sent atomic.Int64
				go func() {
					for range enough {
						if _, err := p.try(frame.typ, frame.payload); err != nil {
							return
						}
						sent.Add(1)
					}
				}()
				synctest.Wait()
				if n := sent.Load(); n >= enough {
					t.Errorf("%d commands were taken while the store stood still", n)
				}
				_ = p.conn.Abort()
				close(gate)
			})
		})
	}
}

// Idle sessions cost a goroutine each and are let go of completely.
func TestManyIdleSessions(t *testing.T) {
	const sessions, pooled = 1000, 256 + 8 // some are the Go runtime's own
	inBubble(t, nil, func(b *fixture) {
		synctest.Wait()
		before := goruntime.NumGoroutine()
		var peers []*peer
		for range sessions {
			peers = append(peers, b.dial("alice"))
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
			_ = p.conn.Abort()
		}
		synctest.Wait()
		if left := goruntime.NumGoroutine() - before; left > pooled {
			t.Errorf("%d goroutines are left of %d sessions, want at most the %d that are kept for reuse", left, sessions, pooled)
		}
		b.noneLeft()
	})
}

// Handshakes and connections that are refused are counted and logged.
func TestRefusedConnectionsShow(t *testing.T) {
	var log strings.Builder
	inBubble(t, func(c *runtime.Config) {
		c.MaxUnauthenticated = 1
		c.Log = zerolog.New(&log)
	}, func(b *fixture) {
		b.connect(nil)
		synctest.Wait()
		for range 3 {
			b.connect(nil).closed("one too many", transport.CloseOverloaded)
		}
		b.rt.UpgradeRefused(transport.RefusedUpgrade{Status: 403, RemoteAddr: "192.0.2.1", Reason: errors.New(`origin "x" is not allowed here`)})
		if refused, upgrades := b.sum("arcp_rate_limited_total", "unauthenticated"), b.sum("arcp_upgrades_refused_total", "403"); refused != 3 || upgrades != 1 {
			t.Errorf("%v connections and %v handshakes are counted as refused, want 3 and 1", refused, upgrades)
		}
	})
	for text, want := range map[string]int{"connections are refused": 1, `origin \"x\" is not allowed here`: 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, log.String())
		}
	}
}
