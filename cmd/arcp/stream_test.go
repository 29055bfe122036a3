package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// --follow prints the chunks of streams; --stream prints one stream and nothing else.
func TestInvokePrintsStreams(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	args := `{"chunks":2,"bytes":4,"name":"lines"}`
	o := p.cli("invoke", "demo.stream", args, "--follow")
	wantOutcome(t, "the chunks", o, exitOK, `"chunks":2}`, "stream     lines: 1..\n")
	o = p.cli("invoke", "demo.stream", `{"chunks":1,"name":"plan","kind":"thought"}`, "--lease", `{"thought.write":[]}`, "--follow")
	wantOutcome(t, "a redacted thought", o, exitOK, `"chunks":1}`, "stream     plan: (no text)\n")
	for _, kind := range []string{"text", "binary", "thought"} {
		o := p.cli("invoke", "demo.stream", `{"chunks":2,"bytes":4,"name":"lines","kind":"`+kind+`"}`, "--stream", "lines")
		wantOutcome(t, kind, o, exitOK, "", "")
		if o.stdout != "0..\n1..\n" {
			t.Errorf("%s: the stream is %q", kind, o.stdout)
		}
	}
	o = p.cli("invoke", "demo.stream", `{"chunks":1,"bytes":1,"name":"lines","kind":"event"}`, "--stream", "lines")
	if want := "{\"n\":0,\"text\":\"0\"}\n"; o.stdout != want {
		t.Errorf("the events are %q, want %q", o.stdout, want)
	}
	wantOutcome(t, "no such stream", p.cli("invoke", "demo.stream", args, "--stream", "x"), exitFailed, "", `the job has ended without a stream named "x"`)
	wantOutcome(t, "nothing to print", p.cli("invoke", "demo.stream", args, "--stream", "x", "--detach"), exitUsage, "", "--stream and --detach exclude each other")
}

// --send sends a file, or standard input, to a tool that reads streams.
func TestInvokeSendsStream(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	file := filepath.Join(t.TempDir(), "in")
	content := strings.Repeat("0123456789", 20_000) // several chunks
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, "a file", p.cli("invoke", "demo.collect", "{}", "--send", file), exitOK, `"bytes":200000`, "")
	wantOutcome(t, "standard input", cliWith(t, "hello", "invoke", "demo.collect", "{}", "--send", "-", "--url", p.url, "--token", "secret"), exitOK,
		`{"name":"input","chunks":1,"bytes":5,"sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}`, "")
	wantOutcome(t, "another tool", p.cli("invoke", "demo.sleep", `{"ms":100}`, "--send", file), exitFailed, "", "demo.sleep reads no streams of clients")
	wantOutcome(t, "no file", p.cli("invoke", "demo.collect", "{}", "--send", file+".none"), exitUsage, "", "no such file")
	wantOutcome(t, "both from standard input", p.cli("invoke", "demo.collect", "-", "--send", "-"), exitUsage, "", "both read standard input")
}

// --send feeds the standard input of a command. The end of the command is the end of its job.
func TestInvokeSendsToCommand(t *testing.T) {
	t.Parallel()
	p := serve(t, "--config", withTools(t, `
  - {name: upper, exec: [tr, a-z, A-Z], stdin: stream, stream: stdout}
  - {name: count, exec: [sh, -c, "printf '[%s, %s]' $(wc -c) \"$ARCP_ARGUMENTS\""], stdin: stream, limits: {timeout_ms: 60000}}
  - {name: first, exec: [sh, -c, "head -c 1 >/dev/null; echo 1"], stdin: stream, limits: {timeout_ms: 60000}}
  - {name: plain, exec: [cat]}
`))
	send := func(stdin string, args ...string) outcome {
		return cliWith(t, stdin, append([]string{"invoke"}, append(args, "--send", "-", "--url", p.url, "--token", "secret")...)...)
	}
	wantOutcome(t, "upper", send("hello\n", "upper", "--stream", "stdout"), exitOK, "HELLO\n", "")
	large := strings.Repeat("0123456789", 300_000) // more than the runtime holds
	wantOutcome(t, "count", send(large, "count", `{"n":1}`), exitOK, `[3000000,{"n":1}]`, "")
	wantOutcome(t, "first", send(large, "first"), exitOK, "1", "standard input was not sent to its end")
	wantOutcome(t, "plain", send("x", "plain"), exitFailed, "", "plain reads no streams of clients")
}
