package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
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
	mu          sync.Mutex
	issued      map[arcp.JobID]string // keys that are not revoked, by job
	n           int                   // keys issued so far
	refuse      error                 // result of Issue; nil: it issues a key
	revokeFails bool
}

func (g *gateway) Issue(_ context.Context, r credential.Request) ([]credential.Credential, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil {
		return nil, &credential.RefusedError{Err: g.refuse}
	}
	g.n++
	value := fmt.Sprintf("sk-virtual-%06d", g.n)
	g.issued[r.Job] = value
	return []credential.Credential{{Endpoint: "https://gw.example/v1", Value: credential.Secret(value), Upstream: fmt.Sprintf("handle-%d", g.n)}}, nil
}

func (g *gateway) Revoke(_ context.Context, r credential.Ref) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revokeFails {
		return errors.New("the gateway is down")
	}
	delete(g.issued, r.Job)
	return nil
}

func (g *gateway) live() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.issued)
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
			secret := g.issued[j.ID()]
			g.mu.Unlock()
			if err := errors.Join(j.Log("info", "the key is "+secret, map[string]string{"key": secret}), j.Emit("got", secret),
				j.Checkpoint("here "+secret, secret)); err != nil {
				return nil, err
			}
			_, denied := j.Permissions().Request(ctx, tool.PermissionRequest{Permission: "fetch", Resource: "https://example.com/" + secret, Operation: secret, Expires: time.Second})
			_, unanswered := j.Choose(ctx, tool.ChoiceRequest{Prompt: secret, Options: []arcp.Option{{ID: "a", Label: "use " + secret}, {ID: secret, Label: "b"}}, Expires: time.Second})
			_, empty := j.Ask(ctx, tool.InputRequest{Prompt: "key", Schema: arcp.Raw(`{"type":"string","description":"like ` + secret + `"}`), Expires: time.Second})
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

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// inStore reports whether the store contains a text.
func (f *fixture) inStore(text string) bool {
	found := false
	look := func(p []byte) { found = found || bytes.Contains(p, []byte(text)) }
	ctx := context.Background()
	err := f.st.Records(ctx, "", "", func(r store.Record) bool { look(r.Value); return true })
	for _, name := range []string{"alice", "ann"} {
		err = errors.Join(err, f.st.Feed(ctx, name, 0, func(e store.FeedEvent) bool { look(e.Event.Body); return true }))
	}
	if err != nil {
		f.Fatal(err)
	}
	return found
}
