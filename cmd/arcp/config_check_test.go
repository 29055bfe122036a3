package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// The check reports the mistakes of the file and of the files that it names, each on a line.
func TestConfigCheckReportsEveryMistake(t *testing.T) {
	dir := t.TempDir()
	authFile := write(t, filepath.Join(dir, "auth.yaml"), "principals:\n  - {name: alice, roles: [clinet]}\n  - {nam: bob}\n")
	file := write(t, filepath.Join(dir, "arcp.yaml"), `listen: nowhere
max-frame: 1KiB
rat: 5
auth-file: `+authFile+`
tls-cert: /nonexistent
data: ":memory:"
artifact-bucket: b
secret-key-file: /nonexistent
tools:
  - {name: x, exec: [no-such-program-here]}
  - {name: y, exec: [sh], limts: {}}
  - {mcp: {name: m, command: [no-such-program-here]}}
  - {worker: {name: w, command: [./no-such-program-here]}}
workflows:
  - {name: f, steps: {a: {tol: x}}}
provisioners:
  - {name: p, kind: static, for: ["*"], file: /nonexistent, endpoint: "https://x"}
  - {name: q, kind: other, for: ["*"]}
`)
	o := cli(t, "config", "check", file, "--drain", "soon")
	if o.code != exitUsage || o.stderr != "" {
		t.Errorf("exit code %d, standard error %q, want 2 and nothing", o.code, o.stderr)
	}
	rest := o.stdout
	for _, want := range []string{
		`--drain: "soon" is not a duration`,
		file + `:1:9: listen nowhere: give HOST:PORT`,
		file + `:2:12: max-frame 1024: give at least 64KiB`,
		file + `:3:1: unknown key "rat"; did you mean "rate"?`,
		file + `:5:11: tls-cert /nonexistent: no such file or directory`,
		file + `:5:11: tls-cert needs --tls-key`,
		file + `:7:18: artifact-bucket: artifacts in a bucket need a data directory`,
		file + `:8:18: secret-key-file: `,
		file + `:10:21: tools[0] (x).exec: exec: `,
		file + `:11:27: tools[1] (y): unknown key "limts"; did you mean "limits"?`,
		file + `:12:11: tools[2] (m).mcp: `,
		file + `:13:33: tools[3] (w).worker.command: `,
		file + `:15:27: workflows[0] (f).steps.a: unknown key "tol"; did you mean "tool"?`,
		file + `:17:5: provisioners[0]: `,
		file + `:18:21: provisioners[1].kind: want static, http or exec`,
		authFile + `:2:27: principals[0].roles[0]: unknown role "clinet": did you mean "client"?`,
		authFile + `:3:6: principals[1]: unknown key "nam": did you mean "name"?`,
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Errorf("no %q, or not in its place, in\n%s", want, o.stdout)
			continue
		}
		rest = after
	}
	if n := strings.Count(o.stdout, "\n"); n != 17 {
		t.Errorf("%d lines, want 17:\n%s", n, o.stdout)
	}
	var printed struct {
		Items []struct {
			File, Key, Message string
			Line, Column       int
		}
	}
	o = cli(t, "config", "check", file, "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &printed); err != nil || o.code != exitUsage || len(printed.Items) != 16 {
		t.Fatalf("%v %v, want 16 mistakes and exit code 2", o, err)
	}
	list := printed.Items
	if o := cli(t, "config", "check", file, "-o", "jsonl"); strings.Count(o.stdout, "\n") != 16 || !strings.HasPrefix(o.stdout, `{"file":`) {
		t.Errorf("jsonl: %v, want a line for each mistake", o)
	}
	if m := list[8]; m.File != file || m.Line != 11 || m.Column != 27 || m.Key != "tools[1].limts" || !strings.HasPrefix(m.Message, "unknown key") {
		t.Errorf("mistake %+v", m)
	}
	if m := list[0]; m.Key != "listen" || m.Message != "nowhere: give HOST:PORT, for example 127.0.0.1:7777" {
		t.Errorf("mistake %+v", m)
	}
	// A server prints the same list and starts nothing.
	o = cli(t, "serve", "--config", file)
	if o.code != exitUsage || o.stdout != "" || !strings.HasPrefix(o.stderr, "arcp: 16 mistakes in the configuration:\n"+file+":1:9: listen") {
		t.Errorf("serve: %v, want the mistakes and exit code 2", o)
	}
	o = cli(t, "dev", "--config", file)
	if o.code != exitUsage || !strings.HasPrefix(o.stderr, "arcp: 16 mistakes in the configuration:\n") {
		t.Errorf("dev: %v, want the mistakes and exit code 2", o)
	}
}

// A value that could be read is checked also beside a mistake, as far as the files and programs that it names.
func TestConfigCheckChecksValuesBesideMistakes(t *testing.T) {
	dir := t.TempDir()
	authFile := write(t, filepath.Join(dir, "auth.yaml"), "principals:\n  - {name: alice, roles: [clinet], tokens: [plain]}\n")
	file := write(t, filepath.Join(dir, "arcp.yaml"), `drain: 5s
drain: 6s
listen: nowhere
auth-file: `+authFile+`
tools:
  - {name: x, exec: [no-such-program-here], timeout: 5}
  - {mcp: {name: m, command: [no-such-program-here], args: [x]}}
provisioners:
  - {name: P, kind: exec, for: ["*"], command: [issue], endpiont: "https://x"}
  - {name: p, kind: exec, for: 1, command: [/x]}
  - {name: p, kind: static, for: ["*"]}
`)
	o := cli(t, "config", "check", file)
	rest := o.stdout
	for _, want := range []string{
		file + `:2:1: drain: the key is also in line 1: remove one of them`,
		file + `:3:9: listen nowhere: give HOST:PORT`,
		file + `:6:21: tools[0] (x).exec: exec: `,
		file + `:6:45: tools[0] (x): unknown key "timeout"; did you mean "limits.timeout_ms"?`,
		file + `:7:11: tools[1] (m).mcp: `,
		file + `:7:54: tools[1] (m).mcp: unknown key "args"; did you mean "command"?`,
		file + `:9:5: provisioners[0]: unknown key "endpiont"`,
		file + `:9:12: provisioners[0].name: want a name`,
		file + `:9:48: provisioners[0].command: the program needs its absolute path`,
		file + `:10:32: provisioners[1].for: want a list of texts`,
		file + `:11:5: provisioners[2].file: kind static needs it`,
		file + `:11:5: provisioners[2].endpoint: kind static needs it`,
		file + `:11:12: provisioners[2].name: provisioners[1] has it already`,
		authFile + `:2:27: principals[0].roles[0]: unknown role "clinet"`,
		authFile + `:2:45: principals[0].tokens[0]: want sha256: and 64 hex digits`,
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Errorf("no %q, or not in its place, in\n%s", want, o.stdout)
			continue
		}
		rest = after
	}
	if n := strings.Count(o.stdout, "\n"); n != 15 || o.code != exitUsage {
		t.Errorf("%d lines and exit code %d, want 15 and 2:\n%s", n, o.code, o.stdout)
	}
}

// A file that is missing hides no other mistake, and its mistake has the position of the key.
func TestConfigCheckReportsMistakesBesideMissingFiles(t *testing.T) {
	dir := t.TempDir()
	_, key := makeCertificate(t, dir, "one", 1)
	cert := write(t, filepath.Join(dir, "bad.crt"), "no certificate")
	file := write(t, filepath.Join(dir, "arcp.yaml"), `auth-file: /nonexistent/auth
token: [secret, a=b, c=b]
tls-cert: `+cert+`
tls-key: /nonexistent/key
provisioners:
  - {name: p, kind: vault, for: ["*"], command: [issue], url: "ftp://x", file: /nonexistent/pool}
`)
	o := cli(t, "config", "check", file)
	want := file + `:1:12: auth-file: auth file /nonexistent/auth: no such file or directory
` + file + `:2:8: token: write a token of a server as NAME=TOKEN with the name of the principal
` + file + `:2:8: token: add token: the token belongs to another principal: use a different token for each
` + file + `:3:11: tls-cert ` + cert + `: the file has no certificate in PEM
` + file + `:4:10: tls-key /nonexistent/key: no such file or directory
` + file + `:6:21: provisioners[0].kind: want static, http or exec
` + file + `:6:49: provisioners[0].command: the program needs its absolute path: the search path is not used
` + file + `:6:63: provisioners[0].url: want https, or http to this host
` + file + `:6:80: provisioners[0].file: /nonexistent/pool: no such file or directory
`
	if o.stdout != want || o.code != exitUsage {
		t.Errorf("exit code %d and\n%swant 2 and\n%s", o.code, o.stdout, want)
	}
	for text, want := range map[string]string{
		"tls-key: " + key + "\n":  ":1:10: tls-key needs --tls-cert with the certificate of the key",
		"tls-key: " + cert + "\n": ":1:10: tls-key " + cert + ": the file has no private key in PEM",
	} {
		file := write(t, filepath.Join(dir, "tls.yaml"), text)
		wantOutcome(t, text, cli(t, "config", "check", file), exitUsage, file+want, "")
	}
}

// Mistakes in addresses and the path have their position in the file.
func TestConfigCheckHasThePositionOfAddresses(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "arcp.yaml"), "path: arcp\nlisten: 127.0.0.1:7000\nadmin: 127.0.0.1:7000\n")
	o := cli(t, "config", "check", file)
	wantOutcome(t, "path", o, exitUsage, file+":1:7: path arcp: give an absolute path", "")
	wantOutcome(t, "admin", o, exitUsage, file+":3:8: admin 127.0.0.1:7000: it is the address of the main listener", "")
	for text, want := range map[string]string{
		"listen: 0.0.0.0:7000\n": ":1:9: listen: refusing to listen on 0.0.0.0:7000 without TLS: give --tls-cert",
		"admin: 0.0.0.0:7001\n":  ":1:8: admin: refusing to open the admin listener on 0.0.0.0:7001: it has no authentication; use a loopback",
	} {
		file := write(t, filepath.Join(dir, "remote.yaml"), text)
		wantOutcome(t, text, cli(t, "config", "check", file), exitUsage, file+want, "")
	}
}

func TestConfigCheckOfAFileWithoutMistakes(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "arcp.yaml"), "token: [alice=secret]\ndrain: 5s\ntools:\n  - {name: x, exec: [sh]}\nworkflows:\n  - {name: f, steps: {a: {tool: x}}}\n")
	wantOutcome(t, "text", cli(t, "config", "check", file), exitOK, "ok: 4 settings, 2 tools\n", "")
	wantOutcome(t, "a short token", cli(t, "config", "check", file), exitOK, "",
		"warning: "+file+":1:8: token: a token of alice has fewer than 16 characters and can be guessed; `arcp token new` makes one")
	long := write(t, filepath.Join(dir, "long.yaml"), "token: [alice=sixteencharacter]\n")
	if o := cli(t, "config", "check", long); o.code != exitOK || o.stderr != "" {
		t.Errorf("a token of 16 characters: %v, want no warning", o)
	}
	o := cli(t, "config", "check", "--config", file, "-o", "json")
	if o.code != exitOK || o.stdout != `{"items":[]}`+"\n" {
		t.Errorf("%v, want an empty list", o)
	}
	o = cli(t, "config", "check", write(t, filepath.Join(dir, "no-auth.yaml"), "drain: 5s\n"))
	wantOutcome(t, "without authentication", o, exitOK, "ok: 1 setting, 0 tools\n", "warning: `arcp serve` also needs --token")
	wantOutcome(t, "a directory", cli(t, "config", "check", dir), exitUsage, "is a directory; give the path of a file that can be read", "")
	wantOutcome(t, "no file", cli(t, "config", "check", filepath.Join(dir, "none")), exitUsage,
		"no such file or directory; give the path of another file, or write it with `arcp config init "+filepath.Join(dir, "none")+"`", "")
}
