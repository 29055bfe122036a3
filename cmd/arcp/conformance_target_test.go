package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/conformance"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"a  b\tc":              {"a", "b", "c"},
		` 'a b' "c 'd'" e\ f `: {"a b", "c 'd'", "e f"},
		`a "" ''`:              {"a", "", ""},
		`'a\b' "a\"b" $x`:      {`a\b`, `a"b`, "$x"},
		`x"y"'z'`:              {"xyz"},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	for line, want := range map[string]string{"": "no program", "  ": "no program", `"" x`: "no program", `a "b`: "not complete", `a '`: "not complete", `a \`: "not complete"} {
		if got, err := splitWords(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %s", line, got, err, want)
		}
	}
}

// The sample of the help is a mapping file.
func TestMappingSample(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "other.token"), "other")
	write(t, filepath.Join(dir, "observer.token"), "observer")
	m, err := conformance.ReadMapping(write(t, filepath.Join(dir, "mapping.yaml"), mappingSample), func(string) string { return "secret" })
	if err != nil {
		t.Fatal(err)
	}
	var tg conformance.Target
	m.Configure(&tg)
	if tg.Token != "secret" || tg.OtherToken != "other" || tg.ObserverToken != "observer" || tg.AckWindow != 64 || len(m.Tools) != 2 || len(m.Known) != 1 || !m.Rerun {
		t.Errorf("the sample is read as %+v", m)
	}
	if o := cli(t, "help", "conformance", "mapping"); !strings.Contains(o.stdout, "  start: [their-server") {
		t.Errorf("the help has no sample:\n%s", o.stdout)
	}
}

func TestConformanceSubjectUsage(t *testing.T) {
	dir := t.TempDir()
	bad := write(t, filepath.Join(dir, "bad.yaml"), "tools: {demo.eco: x}\nkown: []\n")
	starts := write(t, filepath.Join(dir, "starts.yaml"), "start: [x]\n")
	located := write(t, filepath.Join(dir, "located.yaml"), "url: ws://127.0.0.1:1/x\n")
	run := []string{"conformance", "run"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--mapping", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"--exec", "x", "--url", "ws://127.0.0.1:1/x"}, "--exec starts the server itself"},
		{[]string{"--exec", "x", "--mapping", located}, "--exec starts the server itself"},
		{[]string{"--exec", "x", "--mapping", starts}, "both start a server"},
		{[]string{"--exec", "'x"}, "--exec: a quote"},
	} {
		wantRefusal(t, cli(t, append(run, c.args...)...), exitUsage, c.want)
	}
	o := cli(t, append(run, "--mapping", bad)...)
	if want := bad + ":1:9: tools: no check calls a tool \"demo.eco\": did you mean \"demo.echo\"?\n" +
		bad + ":2:1: unknown key \"kown\": did you mean \"known\"?\n"; o.code != exitUsage || !strings.HasSuffix(o.stderr, want) {
		t.Errorf("got %v\nwant a line for each mistake", o)
	}
	missing := []string{"--exec", filepath.Join(dir, "no-such-server"), "--group", "handshake"}
	wantRefusal(t, cli(t, append(run, missing...)...), exitUnreachable, "no-such-server")
	gone := []string{"--mapping", write(t, filepath.Join(dir, "gone.yaml"), "url: ws://127.0.0.1:1/x\nstart: [./no-such-server]\n")}
	wantRefusal(t, cli(t, append(run, gone...)...), exitUnreachable, "no-such-server")
}

// A mapping names the tools of a server and what it is known to fail.
func TestConformanceWithMapping(t *testing.T) {
	p := demoServer(t)
	mapping := write(t, filepath.Join(t.TempDir(), "mapping.yaml"),
		"tools: {demo.sleep: no.such}\nurl: "+p.url+"\nknown: [{check: handshake.accepted, reason: it was late}]\n")
	o := p.cli("conformance", "run", "--mapping", mapping, "--check", "handshake.accepted,cancel.running")
	wantOutcome(t, "mapping", o, exitOK, "the check passes: remove it", "")
	wantOutcome(t, "mapping", o, exitOK, "the server has no tool no.such, which the mapping file names for demo.sleep", "")
}

// The tokens that the checks sign are about the principal of the mapping file.
func TestMappingCompletesTheFlags(t *testing.T) {
	p, dir := demoServer(t), t.TempDir()
	key := write(t, filepath.Join(dir, "jwt.key"), "a-secret-of-the-issuer-0123456789")
	run := []string{"conformance", "run", "--check", "handshake.accepted", "--jwt-key", key, "--jwt-issuer", "https://issuer.invalid", "--mapping"}
	nameless := write(t, filepath.Join(dir, "nameless.yaml"), "url: "+p.url+"\n")
	wantRefusal(t, p.cli(append(run, nameless)...), exitUsage, "--jwt-subject is missing")
	named := write(t, filepath.Join(dir, "named.yaml"), "principal: alice\nurl: "+p.url+"\n")
	wantOutcome(t, "mapping with a principal", p.cli(append(run, named)...), exitOK, "1 passed", "")
}

// A server that does not run is named by its address, in one line and without the steps of the connection.
func TestConformanceNeedsAListener(t *testing.T) {
	for url, want := range map[string]string{
		"ws://127.0.0.1:1/arcp":  "arcp: nothing listens at 127.0.0.1:1: connect: connection refused; start the server, or give its address with --url or --against\n",
		"unix:///no-such-socket": "arcp: nothing listens at /no-such-socket: connect: no such file or directory; start the server, or give its address with --url or --against\n",
	} {
		for _, dialect := range []string{"auto", "rfc"} {
			o := cli(t, "conformance", "run", "--url", url, "--token", "secret", "--dialect", dialect)
			if o.code != exitUnreachable || o.stderr != want {
				t.Errorf("%s in the dialect %s: exit code %d and %q, want %d and %q", url, dialect, o.code, o.stderr, exitUnreachable, want)
			}
		}
	}
}
