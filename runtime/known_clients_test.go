package runtime_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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

func TestAKeptClientThatCannotBeReadIsAnError(t *testing.T) {
	change := challengesNew(t)
	inBubble(t, change, func(f *fixture) {
		f.shutdown(0)
		for i, rec := range []store.Record{{Key: "sighting/AA", Value: []byte(`{"at":"2030-01-02T15:04:05Z"}`)}, {Key: "sighting/AA", Rev: 1, Value: []byte(`{`)}} {
			results := make([]store.Result, 1)
			if err := f.st.Commit([]*store.Write{store.NewWrite().Put(rec)}, results); err != nil || results[0].Err != nil {
				f.Fatal(err, results[0].Err)
			}
			cfg := f.cfg
			cfg.Metrics, cfg.Tools = nil, tool.NewRegistry()
			if rt, err := runtime.New(context.Background(), cfg); err == nil {
				_ = rt.Shutdown(context.Background())
				f.Errorf("record %d: the runtime starts", i)
			}
		}
	})
}
