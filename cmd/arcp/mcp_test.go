package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestMCPServeRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "0123456789abcdef\n", 0o600)
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no command", nil, "arcp mcp needs a subcommand: serve"},
		{"bad pattern", []string{"serve", "--tools", "[a"}, `--tools "[a": invalid pattern`},
		{"open to others", []string{"serve", "--http", "0.0.0.0:0"}, "other machines can reach this address"},
		{"a proxy and no token", []string{"serve", "--http", "127.0.0.1:0", "--behind-proxy"}, "--behind-proxy needs --http-token-file"},
		{"open to others in clear text", []string{"serve", "--http", "0.0.0.0:0", "--http-token-file", good},
			"--behind-proxy for a proxy with TLS"},
		{"no token file", []string{"serve", "--http", "127.0.0.1:0", "--http-token-file", filepath.Join(dir, "none")}, "no such file"},
		{"open token file",
			[]string{"serve", "--http", "127.0.0.1:0", "--http-token-file", file("open", "0123456789abcdef", 0o644)},
			"run chmod 600"},
		{"short token", []string{"serve", "--http", "127.0.0.1:0", "--http-token-file", file("short", "hunter2", 0o600)},
			"fewer than 16 characters"},
		{"token without HTTP", []string{"serve", "--http-token-file", good}, "need --http"},
	} {
		t.Run(c.name, func(t *testing.T) { wantRefusal(t, cli(t, append([]string{"mcp"}, c.args...)...), exitUsage, c.want) })
	}
	wantRefusal(t, cli(t, "mcp", "serve", "--url", "ws://127.0.0.1:1/arcp", "--token", "x"), exitUnreachable, "no runtime answers at")
}

// The whole way on standard input and output, to the end of the input.
func TestMCPServeOverStdio(t *testing.T) {
	s := demoServer(t)
	in, say := io.Pipe()
	hear, out := io.Pipe()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), []string{"mcp", "serve", "--url", s.url, "--token", "secret"}, in, out, &errs)
		out.Close()
	}()
	lines := bufio.NewReader(hear)
	for _, c := range []struct{ say, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` +
			`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
			`"name":"arcpd"`},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"name":"demo.echo"`},
	} {
		if _, err := io.WriteString(say, c.say+"\n"); err != nil {
			t.Fatal(err)
		}
		if c.want == "" {
			continue
		}
		line, err := lines.ReadString('\n')
		if err != nil || !strings.Contains(line, c.want) || !arcp.Raw(strings.TrimSpace(line)).IsValid() {
			t.Errorf("%s is answered by %s, %v; want JSON with %s", c.say, line, err, c.want)
		}
	}
	say.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("it also said %q, %v", rest, err)
	}
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d: %s", code, &errs)
	}
}
