package runtime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// people is an auth file with a principal of every kind.
const people = `
principals:
  - {name: alice, tokens: ["%s"], roles: [client]}
  - {name: ann, tokens: ["%s"], roles: [client, approver], sees: ["alice"]}
  - {name: adam, tokens: ["%s"], roles: [client, approver], sees: ["al*"]}
  - {name: bob, tokens: ["%s"], roles: [client, approver]}
  - {name: root, tokens: ["%s"], roles: [client, admin]}
  - {name: limited, tokens: ["%s"], roles: [client], trust: constrained, lease: {"fs.read": ["/data/**"], "cost.budget": ["USD:1.00"]}}
`

// Sessions that ask and wait without end reach a bound, also where no limit of jobs counts.
// Others do not.
func TestQuestionsAndWaitsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	inBubble(t, withPeople(t), func(f *fixture) {
		alice, bob := f.connect(nil), f.human("bob")
		alice.open("alice")
		alice.expect("session.accepted")
		refusedOf := func(n int, args string) (refused int) {
			t.Helper()
			for range n {
				alice.send("tool.invoke", args)
			}
			synctest.Wait()
			alice.send("ping", "{}")
			for pong := false; !pong; {
				switch env := alice.read(); {
				case env.Type == arcp.Pong:
					pong = true
				case env.Type == arcp.JobFailed:
					refused++
					if e := refusal(t, env); e.Code != arcp.CodeResourceExhausted {
						t.Errorf("refused with %v", e.Code)
					}
				}
			}
			return refused
		}
		gate := `{"tool":"approval.gate","arguments":{"action":"wipe"}}`
		for n := 0; n < 1000; n += 100 {
			if refused := refusedOf(100, gate); refused != 0 {
				t.Fatalf("%d of the first %d gates refused", refused, n+100)
			}
		}
		if n := refusedOf(10, gate); n != 10 {
			t.Errorf("%d of 10 gates too many refused", n)
		}
		if _, e := alice.run("approval.request", `{"action":"wipe","system_level":true}`); codeOf(e) != arcp.CodeResourceExhausted {
			t.Errorf("approval.request: %v", e)
		}
		alice.send("permission.request", `{"permission":"trust.elevate.privileged","resource":"session","operation":"elevate"}`)
		if e := refusal(t, alice.expect("nack")); e.Code != arcp.CodeResourceExhausted {
			t.Errorf("an elevation: %v", e)
		}
		first := alice.must("approval.list", `{"limit":1}`)["items"].([]any)[0].(map[string]any)["approval_id"]
		wait := fmt.Sprintf(`{"tool":"approval.wait","arguments":{"approval_id":%q,"timeout_ms":3600000}}`, first)
		refused := 0
		for n := 0; n < 3200; n += 100 {
			refused += refusedOf(100, wait)
		}
		if refused != 3200-3096 {
			t.Errorf("%d of 3200 who wait refused, want %d", refused, 3200-3096)
		}
		bob.must("approval.request", `{"action":"wipe","system_level":true}`)
	})
}

// The question, the cancellation of the job that asks and the end of the call that withdraws
// it are one write: a crash cannot come between them.
func TestGateIsWithdrawnInOneWrite(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		alice := f.human("alice")
		asked := alice.must("approval.request", `{"action":"wipe","system_level":true}`)["approval_id"].(string)
		var first *store.Write
		f.st.set(func() {
			f.st.onWrite = func(w *store.Write) {
				changesGate := slices.ContainsFunc(w.Ops, func(op store.Op) bool {
					r, ok := op.(*store.PutRecord)
					return ok && (strings.HasSuffix(r.Key, asked) || strings.HasSuffix(r.Key, "memo"))
				})
				if first == nil && changesGate {
					first = w
				}
			}
		})
		alice.must("approval.cancel", fmt.Sprintf(`{"approval_id":%q}`, asked))
		f.st.set(func() { f.st.onWrite = nil })
		if first == nil {
			t.Fatal("nothing was written")
		}
		question, memo := "", ""
		for _, op := range first.Ops {
			switch rec, ok := op.(*store.PutRecord); {
			case !ok:
			case strings.HasSuffix(rec.Key, asked):
				question = string(rec.Value)
			default:
				memo += string(rec.Value)
			}
		}
		if !strings.Contains(question, `"cancelled"`) || !strings.Contains(memo, "withdrawn") {
			t.Errorf("the first write has the question %q and the memo %q", question, memo)
		}
		if len(first.With) != 1 || store.Find[*store.AppendEvents](first.With[0]).State != arcp.StateCompleted {
			t.Errorf("the first write does not end the call: %+v", first.With)
		}
	})
}

// An approval that expires before it was announced is not waited for.
func TestApprovalThatExpiresAtOnce(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		alice := f.dial("alice")
		gate, done, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
		f.st.set(func() { f.st.commitGate = gate })
		go func() { // each commit takes longer than the question has
			defer close(stopped)
			for {
				time.Sleep(5 * time.Millisecond)
				select {
				case gate <- struct{}{}:
				case <-done:
					return
				}
			}
		}()
		defer func() {
			close(done)
			<-stopped
			f.st.set(func() { f.st.commitGate = nil })
			close(gate) // for a commit that waits at it
		}()
		for range 3 {
			if got := alice.must("approval.request", `{"action":"blink","system_level":true,"expires_in_ms":1}`); got["status"] != "expired" && got["status"] != "pending" {
				t.Errorf("what expires at once is %v", got)
			}
		}
	})
}
