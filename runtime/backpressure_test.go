package runtime_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// A peer that sends requests without reading the answers is no longer read: waiting answers
// are bounded. When it reads, all answers come.
func TestPeerThatDoesNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	const enough = 6_000
	for name, frame := range map[string]struct{ typ, payload string }{
		"answers of the session": {"ping", fmt.Sprintf(`{"nonce":%q}`, strings.Repeat("x", 1000))},
		"refused submits":        {"tool.invoke", `{"tool":"demo.none"}`},
		"submits nobody reads":   {"tool.invoke", `{"tool":7}`},
		"cancels":                {"cancel", `{"target":"job","target_id":"job_none"}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p := f.dial("alice")
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
					f.Fatalf("%d frames were taken from a peer that does not read", n)
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
			inBubble(t, nil, func(f *fixture) {
				p := f.dial("alice")
				gate := make(chan struct{})
				f.st.set(func() { f.st.commitGate = gate })
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
				_ = p.conn.Abort() // it may have ended
				close(gate)
			})
		})
	}
}

// Handshakes and connections that are refused are counted and logged.
func TestRefusedConnectionsAreCountedAndLogged(t *testing.T) {
	var log strings.Builder
	inBubble(t, func(c *runtime.Config) {
		c.MaxUnauthenticated = 1
		c.Log = zerolog.New(&log)
	}, func(f *fixture) {
		f.connect(nil)
		synctest.Wait()
		for range 3 {
			f.connect(nil).closed("one too many", transport.CloseOverloaded)
		}
		f.rt.Upgrader().Refused(transport.RefusedUpgrade{Check: transport.CheckOrigin, Status: 403, RemoteAddr: "192.0.2.1", Reason: errors.New(`origin "x" is not allowed here`)})
		if refused, upgrades := f.sum("arcp_rate_limited_total", "unauthenticated"), f.sum("arcp_upgrades_refused_total", transport.CheckOrigin); refused != 3 || upgrades != 1 {
			t.Errorf("%v connections and %v handshakes are counted as refused, want 3 and 1", refused, upgrades)
		}
	})
	for text, want := range map[string]int{"connections are refused": 1, `origin \"x\" is not allowed here`: 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, n, want, log.String())
		}
	}
}
