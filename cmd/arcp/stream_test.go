package main

import "testing"

// --follow prints the chunks of streams; --stream prints one stream and nothing else.
func TestInvokePrintsStreams(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	args := `{"chunks":2,"bytes":4,"name":"lines"}`
	o := p.cli("invoke", "demo.stream", args, "--follow")
	wantOutcome(t, "the chunks", o, exitOK, `"chunks":2}`, "stream     lines: 1..\n")
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
