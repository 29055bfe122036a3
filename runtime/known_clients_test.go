package runtime_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// challengesNew has new clients challenged.
func challengesNew(t *testing.T) func(*runtime.Config) {
	hash := sha256.Sum256([]byte("alice-" + token))
	file := filepath.Join(t.TempDir(), "auth.yaml")
	text := fmt.Sprintf("principals:\n  - {name: alice, tokens: [\"sha256:%x\"]}\nchallenge: {bearer: new}\n", hash)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *runtime.Config) {
		cfg, err := auth.Load(file, auth.Options{RuntimeID: "arcp", CheckLease: runtime.CheckLease})
		if err != nil {
			t.Fatal(err)
		}
		c.Auth = auth.NewSet(cfg)
	}
}

// enters opens a session of a client with a fingerprint, and says whether it was
// challenged.
func (b *fixture) enters(fingerprint string) (challenged bool) {
	b.Helper()
	p := b.connect(nil)
	defer func() { _ = p.conn.Abort() }()
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1","fingerprint":%q}}`, token, fingerprint))
	env := p.read()
	if env.Type == arcp.SessionAccepted {
		return false
	}
	challenge, err := arcp.DecodePayload[arcp.SessionChallengePayload](&env)
	if env.Type != arcp.SessionChallenge || err != nil {
		b.Fatalf("the runtime sent %s %s, %v", env.Type, env.Payload, err)
	}
	key := sha256.Sum256([]byte("alice-" + token))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(challenge.Challenge))
	p.send("session.authenticate", fmt.Sprintf(`{"response":%q}`, hex.EncodeToString(mac.Sum(nil))))
	p.expect("session.accepted")
	return true
}

// wantChallenged opens a session of a client.
func (b *fixture) wantChallenged(why, fingerprint string, want bool) {
	b.Helper()
	if got := b.enters(fingerprint); got != want {
		b.Errorf("%s: challenged %v, want %v", why, got, want)
	}
}

// storedClients is the number of clients that are kept.
func (b *fixture) storedClients() (n int) {
	b.Helper()
	err := b.st.Records(context.Background(), "sighting/", "", func(store.Record) bool {
		n++
		return true
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// A client that has proved itself is no new one after the next start, in order or
// after a crash, until it was not seen for 30 days.
func TestClientsAreKnownAfterARestart(t *testing.T) {
	change := challengesNew(t)
	inBubble(t, change, func(b *fixture) {
		b.wantChallenged("nobody knows it", "laptop", true)
		b.wantChallenged("it has proved itself", "laptop", false)
		later := func(d time.Duration) {
			b.shutdown(0)
			time.Sleep(d)
			b.boot(change)
		}
		later(0)
		b.wantChallenged("it has proved itself to the process before", "laptop", false)
		b.wantChallenged("another client has not", "phone", true)
		later(29 * 24 * time.Hour)
		b.wantChallenged("29 days later it is still known", "laptop", false)
		later(29 * 24 * time.Hour)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := b.storedClients(); n != 1 {
			b.Errorf("%d clients are kept, want only the one that was seen in the last 30 days", n)
		}
		b.wantChallenged("it was seen 29 days ago, by the process before", "laptop", false)
		b.wantChallenged("58 days are too long", "phone", true)
	})
}

// Clients written by the janitor are known after a crash.
func TestClientsAreKeptWhileTheRuntimeRuns(t *testing.T) {
	inBubble(t, challengesNew(t), func(b *fixture) {
		const clients = 600 // more than a step
		for i := range clients {
			b.enters(fmt.Sprint("client ", i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := b.storedClients(); n != clients {
			b.Errorf("%d clients are kept, want %d", n, clients)
		}
	})
}

func TestAKeptClientThatCannotBeReadIsAnError(t *testing.T) {
	change := challengesNew(t)
	inBubble(t, change, func(b *fixture) {
		b.shutdown(0)
		for i, rec := range []store.Record{{Key: "sighting/AA", Value: []byte(`{"at":"2030-01-02T15:04:05Z"}`)}, {Key: "sighting/AA", Rev: 1, Value: []byte(`{`)}} {
			results := make([]store.Result, 1)
			if err := b.st.Commit([]*store.Write{store.NewWrite().Put(rec)}, results); err != nil || results[0].Err != nil {
				b.Fatal(err, results[0].Err)
			}
			cfg := b.cfg
			cfg.Metrics, cfg.Tools = nil, tool.NewRegistry()
			if rt, err := runtime.New(context.Background(), cfg); err == nil {
				_ = rt.Shutdown(context.Background())
				b.Errorf("record %d: the runtime starts", i)
			}
		}
	})
}
