package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each context reaches its own runtime with its own token.
func TestContexts(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // the configuration directory of other systems
	one, two := demoServer(t), demoServer(t)
	token := write(t, filepath.Join(t.TempDir(), "token"), "secret\n")
	if err := os.Chmod(token, 0o600); err != nil {
		t.Fatal(err)
	}

	wantOutcome(t, "no contexts", cli(t, "context", "ls", "-o", "json"), exitOK, `{"items":[]}`+"\n", "")
	wantOutcome(t, "the first", cli(t, "context", "add", "one", "--url", one.url, "--token-file", token), exitOK, "context one is added; the current context is one\n", "")
	wantOutcome(t, "the second", cli(t, "context", "add", "two", "--url", two.url, "--token-file", token), exitOK, "context two is added; the current context is one\n", "")
	job := strings.TrimSpace(cli(t, "invoke", "demo.echo", "--detach").stdout)
	found := func(args ...string) bool {
		t.Helper()
		return cli(t, append([]string{"jobs", "show", job}, args...)...).code == exitOK
	}
	if !found() || !found("--context", "one") || found("--context", "two") {
		t.Errorf("the job of context one is found: by default %t, with one %t, with two %t", found(), found("--context", "one"), found("--context", "two"))
	}
	if found("--url", two.url, "--token", "secret") || !found("--url", one.url, "--token", "secret") {
		t.Error("--url does not take precedence over the current context")
	}
	wantOutcome(t, "another", cli(t, "context", "use", "two"), exitOK, "the current context is two: "+two.url+"\n", "")
	if found() {
		t.Error("the current context is still one")
	}
	t.Setenv("ARCP_CONTEXT", "one")
	if !found() {
		t.Error("ARCP_CONTEXT does not take precedence over the current context")
	}
	t.Setenv("ARCP_TOKEN", "of another runtime")
	if !found() {
		t.Error("ARCP_TOKEN takes precedence over the token of the context")
	}
	t.Setenv("ARCP_CONTEXT", "")
	ca := write(t, filepath.Join(t.TempDir(), "ca.pem"), "no certificate")
	wantOutcome(t, "a CA file", cli(t, "context", "add", "two", "--url", two.url, "--ca-file", ca), exitOK, "", "")
	list := cli(t, "context", "ls")
	wantOutcome(t, "the column of the CA file", list, exitOK, "TOKEN FILE", "")
	if rows := strings.Split(list.stdout, "\n"); strings.Index(rows[0], "CA FILE") != strings.Index(rows[2], ca) {
		t.Errorf("want %s below CA FILE:\n%s", ca, list.stdout)
	}
	wantOutcome(t, "remove", cli(t, "context", "rm", "one", "two"), exitOK, "removed: one, two\n", "")
	wantOutcome(t, "removed", cli(t, "jobs", "ls", "--context", "one"), exitUsage, "", "there are no contexts")
}

// The token of the current context is for its own URL only.
func TestContextTokenIsForItsURL(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	p := demoServer(t)
	token := write(t, filepath.Join(t.TempDir(), "token"), "secret")
	if err := os.Chmod(token, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := cli(t, "context", "add", "prod", "--url", "ws://127.0.0.1:1/arcp", "--token-file", token); o.code != exitOK {
		t.Fatal(o)
	}
	wantRefusal(t, cli(t, "jobs", "ls"), exitUnreachable, "refused; check that it runs, and that context prod has its address")
	wantOutcome(t, "--url", cli(t, "jobs", "ls", "--url", p.url), exitAuth, "", "give --token")
	t.Setenv("ARCP_URL", p.url)
	wantOutcome(t, "ARCP_URL", cli(t, "jobs", "ls"), exitAuth, "", "give --token")
}

func TestContextsAreChecked(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	shared := write(t, filepath.Join(t.TempDir(), "token"), "secret")
	if err := os.Chmod(shared, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"name", []string{"context", "add", "a b", "--url", "ws://h/arcp"}, "give a name of letters"},
		{"no URL", []string{"context", "add", "a"}, "give a ws://"},
		{"URL", []string{"context", "add", "a", "--url", "http://h"}, "give a ws://"},
		{"password", []string{"context", "add", "a", "--url", "ws://user:pw@h/arcp"}, "--url ws://user:xxxxx@h/arcp: a context has no secrets: remove the user and the password, and give the token with --token-file"},
		{"no token file", []string{"context", "add", "a", "--url", "ws://h/arcp", "--token-file", "/none"}, "no such file"},
		{"shared token file", []string{"context", "add", "a", "--url", "ws://h/arcp", "--token-file", shared}, "run chmod 600"},
		{"dialect", []string{"context", "add", "a", "--url", "ws://h/arcp", "--dialect", "x"}, "is not one of"},
		{"unknown", []string{"context", "use", "a"}, "there are no contexts"},
		{"both", []string{"jobs", "ls", "--context", "a", "--url", "ws://h/arcp"}, "exclude each other"},
	} {
		t.Run(c.name, func(t *testing.T) { wantOutcome(t, c.name, cli(t, c.args...), exitUsage, "", c.want) })
	}
	file, err := contextsFile()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, file, "contexts:\n  a: {ulr: ws://h}\n")
	wantOutcome(t, "an invalid file", cli(t, "context", "ls"), exitFailed, "", "field ulr not found")
}

// A new token and its hash belong together.
func TestTokens(t *testing.T) {
	o := cli(t, "token", "new", "--prefix", "ci_")
	_, hash, _ := strings.Cut(o.stderr, "hash for the auth file: ")
	if o.code != exitOK || !strings.HasPrefix(o.stdout, "ci_") || len(o.stdout) != len("ci_")+26+1 {
		t.Errorf("token new: %+v", o)
	}
	wantOutcome(t, "its hash", cliWith(t, o.stdout, "token", "hash"), exitOK, hash, "")
	wantOutcome(t, "a known hash", cliWith(t, "abc", "token", "hash"), exitOK, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n", "")
	wantOutcome(t, "no token", cliWith(t, "\n", "token", "hash"), exitUsage, "", "has no token")
	wantOutcome(t, "a long line", cliWith(t, strings.Repeat("x", 5000)+"\n", "token", "hash"), exitUsage, "", "at most")
	wantOutcome(t, "a prefix", cli(t, "token", "new", "--prefix", "a b"), exitUsage, "", "without spaces")
}
