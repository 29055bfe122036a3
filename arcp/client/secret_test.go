package client_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp/client"
)

func TestSecretsDoNotPrint(t *testing.T) {
	const token = "hunter2"
	opts := client.Options{
		Auth:   client.Auth{Token: token},
		Resume: &client.Resume{Token: token},
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "auth", opts.Auth.Token, "session", client.Session{ResumeToken: token})
	encoded, err := json.Marshal(client.Session{ResumeToken: token})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprintf("%v %+v %#v %s %q %#v", opts, opts, opts, opts.Auth.Token, opts.Auth.Token, *opts.Resume), log.String(), string(encoded)} {
		if strings.Contains(s, token) {
			t.Errorf("a secret is in %s", s)
		}
	}
	want(t, "revealed", opts.Auth.Token.Reveal(), token)
}
