package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// A session that did not list result_chunk gets a large result in the end of its job:
// as it happens, in a subscription, in the history of a job, and after a restart. It
// is the same each time, and no chunk takes a number.
func TestWholeResult(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		value := fmt.Sprintf(`{"data":%q}`, strings.Repeat("é0123456789", 70_000))
		p, tok := b.dialToken("alice")
		watcher := b.dial("alice")
		watcher.send("subscribe", `{"filter":{"types":["job.completed","job.result_chunk"]}}`)
		watcher.expect("subscribe.accepted")
		job := p.submit("demo.echo", value)
		end := p.until("job.completed")
		if want := `{"value":` + value + `}`; string(end.Payload) != want {
			t.Fatalf("the end of the job has %d bytes: %.100s; want %d", len(end.Payload), end.Payload, len(want))
		}
		if end.EventSeq != 3 {
			t.Errorf("the end of the job has the number %d, want 3", end.EventSeq)
		}
		same := func(why string, env *arcp.Envelope) {
			t.Helper()
			if env.ID != end.ID || !env.Timestamp.Equal(end.Timestamp) || string(env.Payload) != string(end.Payload) {
				t.Errorf("%s: %s at %v with %d bytes, want %s at %v with %d", why, env.ID, env.Timestamp, len(env.Payload), end.ID, end.Timestamp, len(end.Payload))
			}
		}
		event := watcher.until("subscribe.event")
		inner, err := arcp.DecodePayload[arcp.SubscribeEventPayload](&event)
		if err != nil {
			t.Fatal(err)
		}
		env, err := arcp.Decode(inner.Event)
		if err != nil {
			t.Fatal(err)
		}
		same("in a subscription", &env)

		follower := b.dial("alice")
		follower.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, job))
		follower.expect("job.subscribed", "job.accepted", "job.started")
		env = follower.expect("job.completed")
		same("in the history of the job", &env)

		b.shutdown(0)
		b.serve.Wait()
		b.boot(nil)
		p = b.resume(tok, 0)
		p.expect("session.resumed", "job.accepted", "job.started")
		env = p.expect("job.completed")
		same("after a restart", &env)
	})
}
