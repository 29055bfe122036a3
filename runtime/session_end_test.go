package runtime_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/transport"
)

// Everything that belongs to a session ends in the one write that ends it, whichever way it
// ends.
func TestSessionEndsInOneWrite(t *testing.T) {
	for _, by := range []string{"itself", "another session", "an admin", "the janitor"} {
		inBubble(t, withPeople(t), func(f *fixture) {
			alice, root := f.dial("alice"), f.dial("root")
			owner := f.dial("alice")
			owner.must("host.register_agent", `{"id":"x","name":"x","kind":"coder"}`)
			owner.must("registry.register", `{"resource_id":"vm","kind":"vm"}`)
			owner.must("tools.overlay", `{"hide":["demo.echo"]}`)
			question := owner.must("approval.request", `{"action":"deploy"}`)["approval_id"].(string)
			var ends []*store.Write
			f.st.set(func() {
				f.st.onWrite = func(w *store.Write) {
					for _, part := range append(w.With, w) {
						if end := store.Find[*store.EndSession](part); end != nil && end.Session == owner.session {
							ends = append(ends, w)
						}
					}
				}
			})
			switch by {
			case "itself":
				owner.send("session.close", `{"forget":true}`)
				owner.until("session.closed")
			case "another session":
				alice.send("cancel", fmt.Sprintf(`{"target":"session","target_id":%q}`, owner.session))
				alice.until("cancel.accepted")
			case "an admin":
				root.must("sessions.evict", fmt.Sprintf(`{"session_id":%q,"forget":true}`, owner.session))
			case "the janitor":
				_ = owner.conn.Abort() // it had no effect if it fails: the session would not end
				time.Sleep(time.Hour)
			}
			synctest.Wait()
			f.st.set(func() { f.st.onWrite = nil })
			if len(ends) != 1 {
				t.Fatalf("by %s: the session ended in %d writes", by, len(ends))
			}
			for _, key := range []string{"agent/", "resource/", "overlay/", question} {
				n := 0
				for _, part := range ends[0].With {
					for _, op := range part.Ops {
						if rec, ok := op.(*store.PutRecord); ok && strings.Contains(rec.Key, key) {
							n++
						}
					}
				}
				if n != 1 {
					t.Errorf("by %s: %d records of %s change in the write that ends the session, want 1", by, n, key)
				}
			}
			if a := alice.must("host.agents", "{}")["items"].([]any); len(a) != 1 || a[0].(map[string]any)["status"] != "stopped" {
				t.Errorf("by %s: agents %v", by, a)
			}
			if q := alice.must("approval.get", fmt.Sprintf(`{"approval_id":%q}`, question)); q["status"] != "cancelled" {
				t.Errorf("by %s: the question is %v", by, q["status"])
			}
			if rows := f.overlayRows(); len(rows) != 0 {
				t.Errorf("by %s: overlays %v", by, rows)
			}
		})
	}
}

// An agent, a resource, a question or an overlay that is being stored while its session ends is in
// the one write that ends the session. After the end nothing of the session changes.
func TestAdditionsEndWithTheirSession(t *testing.T) {
	additions := map[string]string{
		"host.register_agent": `{"id":"x","name":"x","kind":"coder"}`,
		"registry.register":   `{"resource_id":"vm","kind":"vm"}`,
		"approval.request":    `{"action":"deploy"}`,
		"tools.overlay":       `{"hide":["demo.echo"]}`,
	}
	prefixes := []string{"host/agent/", "resource/entry/", "approval/", "overlay/"}
	for name, arguments := range additions {
		for _, by := range []string{"itself", "another session", "an admin", "an admin, first"} {
			inBubble(t, withPeople(t), func(f *fixture) {
				alice, root, owner := f.dial("alice"), f.dial("root"), f.dial("alice")
				ends, added := 0, 0
				f.st.set(func() {
					f.st.onWrite = func(w *store.Write) {
						ended := ends
						for _, part := range append(w.With, w) {
							for _, op := range part.Ops {
								switch op := op.(type) {
								case *store.EndSession:
									if op.Session == owner.session {
										ends++
									}
								case *store.PutRecord:
									if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(op.Key, p) }) {
										continue
									}
									if added++; ended > 0 {
										t.Errorf("%s by %s: %s changes after the end", name, by, op.Key)
									}
								}
							}
						}
					}
				})
				gate := make(chan struct{})
				f.st.set(func() { f.st.commitGate = gate })
				add := func() {
					owner.send("tool.invoke", fmt.Sprintf(`{"tool":%q,"arguments":%s}`, name, arguments))
					synctest.Wait()
				}
				if by != "an admin, first" {
					add()
				}
				switch by {
				case "itself":
					owner.send("session.close", `{"forget":true}`)
				case "another session":
					alice.send("cancel", fmt.Sprintf(`{"target":"session","target_id":%q}`, owner.session))
				default:
					root.send("tool.invoke", fmt.Sprintf(`{"tool":"sessions.evict","arguments":{"session_id":%q,"forget":true}}`, owner.session))
				}
				synctest.Wait()
				if by == "an admin, first" {
					add()
				}
				f.st.set(func() { f.st.commitGate = nil })
				close(gate)
				synctest.Wait()
				time.Sleep(time.Hour) // the janitor finds nothing that has not ended
				f.st.set(func() { f.st.onWrite = nil })
				want := 2 // the addition and its end
				if by == "an admin, first" {
					want = 0
				}
				if ends != 1 || added != want {
					t.Errorf("%s by %s: %d writes end the session, %d records change, want 1 and %d", name, by, ends, added, want)
				}
			})
		}
	}
}

// A job that was submitted before the end of its session is stored before it, also while its tool has
// not returned.
func TestSubmitsPrecedeTheEnd(t *testing.T) {
	for _, by := range []string{"itself", "another session", "an admin"} {
		inBubble(t, withPeople(t), func(f *fixture) {
			alice, root, owner := f.dial("alice"), f.dial("root"), f.dial("alice")
			var order []string
			f.st.set(func() {
				f.st.onWrite = func(w *store.Write) {
					for _, part := range append(w.With, w) {
						if s := store.Find[*store.SubmitJob](part); s != nil && s.Row.Session == owner.session {
							order = append(order, "job")
						}
						if end := store.Find[*store.EndSession](part); end != nil && end.Session == owner.session {
							order = append(order, "end")
						}
					}
				}
			})
			owner.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":60000}}`)
			if by == "itself" {
				owner.send("session.close", `{"forget":true}`)
			}
			synctest.Wait()
			switch by {
			case "another session":
				alice.send("cancel", fmt.Sprintf(`{"target":"session","target_id":%q}`, owner.session))
			case "an admin":
				root.send("tool.invoke", fmt.Sprintf(`{"tool":"sessions.evict","arguments":{"session_id":%q,"forget":true}}`, owner.session))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			f.st.set(func() { f.st.onWrite = nil })
			if want := []string{"job", "end"}; !slices.Equal(order, want) {
				t.Errorf("by %s: written %q, want %q", by, order, want)
			}
		})
	}
}

// A session that takes over the agent of a session that is ending waits for the end.
func TestTakeoverWaitsForTheEnd(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		alice, owner, next := f.dial("alice"), f.dial("alice"), f.dial("alice")
		owner.must("host.register_agent", `{"id":"x","name":"x","kind":"coder"}`)
		gate := make(chan struct{})
		f.st.set(func() { f.st.commitGate = gate })
		alice.send("cancel", fmt.Sprintf(`{"target":"session","target_id":%q}`, owner.session))
		synctest.Wait()
		next.send("tool.invoke", `{"tool":"host.register_agent","arguments":{"id":"x","name":"x","kind":"coder"}}`)
		synctest.Wait()
		f.st.set(func() { f.st.commitGate = nil })
		close(gate)
		next.expect("job.accepted", "job.completed")
		alice.until("cancel.accepted")
	})
}

// The next process of a program ends the session of the one before, and evicts its connection.
func TestNextProcessEvictsTheConnectionBefore(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		program := func() *peer {
			near, far := transport.Pipe(transport.Limits{})
			f.serve.Go(func() { _ = f.rt.ServeWorker(context.Background(), far, runtime.Worker{Name: "p"}) }) // the peer sees how it ended
			f.Cleanup(func() { _ = near.Abort() })
			p := &peer{fixture: f, conn: near}
			p.open("alice")
			p.expect("session.accepted")
			return p
		}
		first, second := program(), program()
		first.evicted("by the next process of the program", arcp.CodeCancelled)
		second.wantOpen("the next process")
	})
}

// silentIssuer is a scheme whose issuer never answers.
type silentIssuer struct{ asked chan struct{} }

func (silentIssuer) Scheme() string { return "silent" }

func (i silentIssuer) Authenticate(ctx context.Context, _ auth.Request) (auth.Identity, error) {
	i.asked <- struct{}{}
	<-ctx.Done()
	return auth.Identity{}, ctx.Err()
}

func (i silentIssuer) Verify(ctx context.Context, r auth.Request, _ auth.Proof) (auth.Identity, error) {
	return i.Authenticate(ctx, r)
}

// Serve returns when the connection has ended, also while an issuer of credentials is asked.
func TestServeEndsWhileAnIssuerIsSilent(t *testing.T) {
	issuer := silentIssuer{make(chan struct{})}
	inBubble(t, func(c *runtime.Config) { c.Auth = auth.NewSet(new(auth.Config), issuer) }, func(f *fixture) {
		p := f.connect(nil)
		p.send("session.open", `{"auth":{"scheme":"silent","token":"t"},"client":{"kind":"test","version":"1"}}`)
		<-issuer.asked
		began := time.Now()
		_ = p.conn.Abort() // the other end sees it
		f.serve.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("Serve returned %v after the end of the connection, want at once", took)
		}
	})
}
