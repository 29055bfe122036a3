package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// gateway is a provisioner that records issued credentials.
type gateway struct {
	mu     sync.Mutex
	out    map[arcp.JobID]string
	n      int
	refuse error
	stuck  bool // nothing is revoked
}

func (g *gateway) Issue(_ context.Context, r credential.Request) ([]credential.Credential, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil {
		return nil, &credential.Refused{Err: g.refuse}
	}
	g.n++
	value := fmt.Sprintf("sk-virtual-%06d", g.n)
	g.out[r.Job] = value
	return []credential.Credential{{Endpoint: "https://gw.example/v1", Value: credential.Secret(value), Upstream: fmt.Sprintf("handle-%d", g.n)}}, nil
}

func (g *gateway) Revoke(_ context.Context, r credential.Ref) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stuck {
		return errors.New("the gateway is down")
	}
	delete(g.out, r.Job)
	return nil
}

func (g *gateway) live() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.out)
}

// withGateway gives the jobs of demo.sleep and of leaky a credential each, and logs to log.
func withGateway(t *testing.T, g *gateway, log *syncBuffer) func(*runtime.Config) {
	people := withPeople(t)
	sealer := credential.EphemeralSealer()
	return func(c *runtime.Config) {
		people(c)
		c.Log = zerolog.New(log)
		c.Sealer = sealer
		c.Provisioners = []credential.Source{{Name: "gw", For: []string{"demo.sleep", "leaky"}, Provisioner: g}}
		leaky, err := tool.NewRaw(tool.Capability{Name: "leaky", Recovery: tool.RecoveryCheckpoint}, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			g.mu.Lock()
			secret := g.out[j.ID()]
			g.mu.Unlock()
			if err := errors.Join(j.Log("info", "the key is "+secret, map[string]string{"key": secret}), j.Emit("got", secret),
				j.Checkpoint("here "+secret, secret)); err != nil {
				return nil, err
			}
			_, denied := j.Permissions().Request(ctx, tool.PermissionAsk{Permission: "fetch", Resource: "https://example.com/" + secret, Operation: secret, Expires: time.Second})
			_, unanswered := j.Choose(ctx, tool.ChoiceAsk{Prompt: secret, Options: []arcp.Option{{ID: "a", Label: "use " + secret}, {ID: secret, Label: "b"}}, Expires: time.Second})
			_, empty := j.Ask(ctx, tool.InputAsk{Prompt: "key", Schema: arcp.Raw(`{"type":"string","description":"like ` + secret + `"}`), Expires: time.Second})
			if denied == nil || unanswered == nil || empty == nil {
				return nil, errors.New("answered by nobody")
			}
			return nil, fmt.Errorf("cannot use %s", secret)
		})
		if err = errors.Join(err, c.Tools.Register(leaky)); err != nil {
			t.Fatal(err)
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// inStore reports whether the store contains a text.
func (b *fixture) inStore(text string) bool {
	found := false
	look := func(p []byte) { found = found || bytes.Contains(p, []byte(text)) }
	ctx := context.Background()
	err := b.st.Records(ctx, "", "", func(r store.Record) bool { look(r.Value); return true })
	for _, name := range []string{"alice", "ann"} {
		err = errors.Join(err, b.st.Feed(ctx, name, 0, func(e store.FeedEvent) bool { look(e.Event.Body); return true }))
	}
	if err != nil {
		b.Fatal(err)
	}
	return found
}

func TestCredentials(t *testing.T) {
	g, log := &gateway{out: map[arcp.JobID]string{}}, new(syncBuffer)
	inBubble(t, withGateway(t, g, log), func(b *fixture) {
		alice, other := b.human("alice"), b.human("alice")
		first := alice.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":60000}}`)
		second := alice.send("tool.invoke", `{"tool":"demo.echo","arguments":{}}`)
		env := alice.expect("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil || len(a.Credentials) != 1 || a.Credentials[0].Value != "sk-virtual-000001" || a.Credentials[0].Endpoint != "https://gw.example/v1" ||
			string(env.CorrelationID) != first {
			t.Fatalf("%s: %s, %v", env.CorrelationID, env.Payload, err)
		}
		for env := alice.until("job.accepted"); string(env.CorrelationID) != second; env = alice.until("job.accepted") {
			t.Errorf("%s is answered before %s", env.CorrelationID, second)
		}
		id := a.JobID
		other.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, id))
		env = other.expect("job.subscribed")
		if !strings.Contains(string(env.Payload), "sk-virtual-000001") {
			t.Errorf("a follower of the same principal is told %s", env.Payload)
		}
		if env = other.expect("job.accepted"); strings.Contains(string(env.Payload), "credentials") {
			t.Errorf("and the history says %s", env.Payload)
		}
		if b.inStore("sk-virtual") {
			t.Error("the value is in the store")
		}

		session := alice.session
		b.shutdown(0)
		b.serve.Wait()
		b.boot(withGateway(t, g, log)) // another sealer: sealed values cannot be opened
		if g.live() != 1 {
			t.Errorf("%d credentials are out, want that of the job that goes on", g.live())
		}
		alice = b.connect(nil)
		alice.openHuman("alice", string(session))
		alice.expect("session.accepted")
		time.Sleep(2 * time.Minute)
		if g.live() != 0 {
			t.Error("the credential outlives its job")
		}
		if n := b.sum("arcp_credentials_unrevoked", ""); n != 0 {
			t.Errorf("%v are counted as not revoked", n)
		}
	})
	if strings.Contains(log.String(), "sk-virtual") {
		t.Error("the value is in the log")
	}
}

func TestCredentialsAreScrubbed(t *testing.T) {
	g, log := &gateway{out: map[arcp.JobID]string{}}, new(syncBuffer)
	inBubble(t, withGateway(t, g, log), func(b *fixture) {
		alice := b.human("alice")
		alice.send("tool.invoke", `{"tool":"leaky","arguments":{}}`)
		alice.expect("job.accepted")
		for {
			env := alice.read()
			if strings.Contains(string(env.Payload), "sk-virtual") {
				t.Errorf("%s %s", env.Type, env.Payload)
			}
			if env.Type == arcp.JobFailed {
				if !strings.Contains(string(env.Payload), "[redacted]") {
					t.Errorf("%s", env.Payload)
				}
				break
			}
		}
		if b.inStore("sk-virtual") {
			t.Error("the value is in the store")
		}
		synctest.Wait()
		if g.live() != 0 {
			t.Error("the credential outlives its job")
		}
	})
	if strings.Contains(log.String(), "sk-virtual") {
		t.Error("the value is in the log")
	}
}

// A provisioner that does not issue refuses the job; one that does not revoke is
// asked until it does, also by the next process.
func TestProvisionerFails(t *testing.T) {
	g, log := &gateway{out: map[arcp.JobID]string{}}, new(syncBuffer)
	inBubble(t, withGateway(t, g, log), func(b *fixture) {
		alice := b.human("alice")
		g.refuse = arcp.Errorf(arcp.CodeResourceExhausted, "no more keys").RetryAfter(5)
		if _, e := alice.run("demo.sleep", `{"ms":1}`); codeOf(e) != arcp.CodeResourceExhausted {
			t.Errorf("%v", e)
		}
		g.refuse = nil
		g.stuck = true
		alice.must("demo.sleep", `{"ms":1}`)
		time.Sleep(time.Minute)
		if n := b.sum("arcp_credentials_unrevoked", ""); n != 1 || g.live() != 1 {
			t.Errorf("%v are counted as not revoked, %d are out", n, g.live())
		}
		b.shutdown(time.Minute)
		b.serve.Wait()
		b.boot(withGateway(t, g, log))
		time.Sleep(time.Minute)
		if n := b.sum("arcp_credentials_unrevoked", ""); n != 1 {
			t.Errorf("%v are counted as not revoked after a restart", n)
		}
		if _, e := b.human("alice").run("jobs.credentials", "{}"); codeOf(e) != arcp.CodePermissionDenied {
			t.Errorf("listed for %v", e)
		}
		root := b.human("root")
		list := root.must("jobs.credentials", "{}")["items"].([]any)
		if len(list) != 1 || list[0].(map[string]any)["state"] != "revoking" || list[0].(map[string]any)["failed"].(float64) < 1 {
			t.Errorf("listed are %v", list)
		}
		if _, e := root.run("jobs.forget_credentials", `{"job_id":"job_none","provisioner":"gw"}`); codeOf(e) != arcp.CodeNotFound {
			t.Errorf("forgotten: %v", e)
		}
		g.mu.Lock()
		g.stuck = false
		g.mu.Unlock()
		time.Sleep(6 * time.Minute)
		if n := b.sum("arcp_credentials_unrevoked", ""); n != 0 || g.live() != 0 {
			t.Errorf("%v are counted as not revoked, %d are out", n, g.live())
		}
	})
}

// The same submit twice is one job with one credential.
func TestCredentialsOfRepeatedSubmit(t *testing.T) {
	g, log := &gateway{out: map[arcp.JobID]string{}}, new(syncBuffer)
	inBubble(t, withGateway(t, g, log), func(b *fixture) {
		alice := b.human("alice")
		for range 3 {
			alice.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":60000},"idempotency_key":"k"}`)
			env := alice.until("job.accepted")
			if !strings.Contains(string(env.Payload), "sk-virtual-000001") {
				t.Errorf("accepted as %s", env.Payload)
			}
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if g.live() != 1 {
			t.Errorf("%d credentials are out", g.live())
		}
	})
}
