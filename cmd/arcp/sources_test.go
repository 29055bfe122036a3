package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/arcpd/arcpd/conformance/interop"
)

// program writes a shell script and returns its path, which every process that
// runs it has in its command line.
func program(t *testing.T, text string) string {
	t.Helper()
	path := write(t, filepath.Join(t.TempDir(), "program.sh"), "#!/bin/sh\n"+text)
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// runsAny reports whether a process runs that has text in its command line.
func runsAny(text string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, name := range lines {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), text) {
			return true
		}
	}
	return false
}

// withTools is a configuration file with tools.
func withTools(t *testing.T, tools string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "arcp.yaml"), "data: \":memory:\"\ntoken: [alice=secret]\ntools:\n"+tools)
}

func TestCommandsOfTheFile(t *testing.T) {
	t.Parallel()
	greet := program(t, "echo reading >&2\nsed 's/.*/{\"got\": &}/'")
	waits := program(t, "trap '' TERM\nsetsid sleep 1000 &\necho ready >&2\nwhile :; do sleep 1000; done")
	p := serve(t, "--config", withTools(t, `
  - name: greet.once
    version: 2.0.0
    exec: [`+greet+`]
    side_effect: none
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
  - {name: fails, exec: [sh, -c, "echo no >&2; exit 3"]}
  - {name: waits, exec: [`+waits+`], limits: {timeout_ms: 600000}}
  - {name: late, exec: [sleep, "1000"], limits: {timeout_ms: 50}}
`))
	wantOutcome(t, "a command", p.cli("invoke", "greet.once@2.0.0", `{"name":"ada"}`), exitOK, `{"got":{"name":"ada"}}`, "reading")
	wantOutcome(t, "arguments that do not fit", p.cli("invoke", "greet.once", `{"nam":"ada"}`), exitFailed, "", "INVALID_ARGUMENT")
	wantOutcome(t, "one that fails", p.cli("invoke", "fails", "-o", "json"), exitFailed, "", `"exit_status":3`)
	wantOutcome(t, "one that takes too long", p.cli("invoke", "late"), exitTimeout, "", "DEADLINE_EXCEEDED")
	leased := func() bool { return strings.Contains(p.cli("resources", "ls", "--state", "active").stdout, "dir_") }
	until(t, "their directories are not leased any more", func() bool { return !leased() }) // the last one's command ends after its job
	id := p.detach("waits", `{}`)
	until(t, "it runs", func() bool { return runsAny(waits) })
	if !leased() {
		t.Error("the directory of a running command is not leased")
	}
	wantOutcome(t, "cancel", p.cli("jobs", "cancel", id), exitOK, "", "")
	until(t, "it is gone", func() bool { return !runsAny(waits) })
	until(t, "its lease is released", func() bool { return !leased() })
	p.detach("waits", `{}`)
	until(t, "it runs", func() bool { return runsAny(waits) })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone with the server", func() bool { return !runsAny(waits) })
}

func TestToolsThatCannotBe(t *testing.T) {
	t.Parallel()
	for tools, want := range map[string]string{
		`  - {name: x, exec: [no-such-program-here]}`:               "tools[0] (x).exec: exec: ",
		`  - {name: x, exec: [sh], limit: {}}`:                      `tools[0] (x): unknown key "limit"; did you mean "limits"?`,
		"  - {name: x, exec: [sh]}\n  - {name: demo.y, exec: [sh]}": `tools[1] (demo.y).name: names that begin with "demo." are the runtime's own`,
	} {
		o := cli(t, "serve", "--config", withTools(t, tools), "--listen", "127.0.0.1:0", "--admin", "")
		if o.code == exitOK || !strings.Contains(o.stderr, want) || strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%s: %v\nwant one line with %q", tools, o, want)
		}
	}
	o := cli(t, "config", "print", "--config", withTools(t, `  - {name: x, exec: [sh], env: [HOME]}`))
	wantOutcome(t, "config print", o, exitOK, `tools: [{"env":["HOME"],"exec":["sh"],"name":"x"}]`, "")
	wantRefusal(t, cli(t, "config", "print", "--config", withTools(t, `  - {name: x, exec: [sh], env: ["A=hunter2"]}`)),
		exitUsage, "want names of variables")
}

// A job of a command continues after a crash according to its recovery: the tools exist when
// the runtime looks for them.
func TestJobsOfCommandsRecover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	again := program(t, "test -e "+dir+"/second && echo '\"again\"' && exit\ntouch "+dir+"/second; sleep 1000")
	config := write(t, filepath.Join(dir, "arcp.yaml"), "token: [alice=secret]\ntools:\n"+
		"  - {name: again, exec: ["+again+"], recovery: rerun, limits: {timeout_ms: 600000}}\n")
	p := serve(t, "--config", config, "--data", filepath.Join(dir, "data"))
	id := p.detach("again", `{}`)
	until(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(dir, "second")); return err == nil })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	p = serve(t, "--config", config, "--data", filepath.Join(dir, "data"))
	wantOutcome(t, "the job after the crash", p.cli("jobs", "wait", id), exitOK, `"again"`, "")
	until(t, "no directory is left", func() bool { // the directory of the second attempt is removed after it
		left, err := os.ReadDir(filepath.Join(dir, "data", resourceDir))
		return err == nil && len(left) == 0
	})
}

// A signal stops a server that waits for the tools of a program.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	silent := program(t, "cat >/dev/null; sleep 1000")
	config := withTools(t, "  - {worker: {name: kid, command: ["+silent+"]}}\n")
	p := start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--admin", "")
	until(t, "the program runs", func() bool { return runsAny(silent) })
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK || runsAny(silent) {
		t.Errorf("exit code = %d, program runs = %v, want %d and false", code, runsAny(silent), exitOK)
	}
	if strings.Contains(p.errs.String(), "no tools within") {
		t.Error("the stopped server has waited for the tools")
	}
}

// The log of a server that waits for an MCP server says what the server starts with.
func TestStartIsLoggedBeforeTheWaitForTools(t *testing.T) {
	t.Parallel()
	silent := program(t, "cat >/dev/null; sleep 1000")
	config := withTools(t, "  - {mcp: {name: kid, command: ["+silent+"]}}\n")
	p := start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--admin", "")
	until(t, "the wait begins", func() bool { return strings.Contains(p.errs.String(), "waiting for tools") })
	if !strings.Contains(p.errs.String(), `"message":"starting"`) {
		t.Errorf("log = %s, want the line starting before the tools of the MCP server", p.errs)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want %d", code, exitOK)
	}
}

func TestSignalsStopTheStart(t *testing.T) {
	signals, started := make(chan os.Signal, 3), make(chan error, 1)
	var cause error
	cancel := func(err error) { cause = err }
	signals <- syscall.SIGTERM
	signals <- syscall.SIGHUP
	signals <- syscall.SIGINT
	if _, err := await(started, signals, cancel); err != errSecondSignal || cause != errStopped {
		t.Errorf("await after two signals = %v, cancelled by %v, want %v and %v", err, cause, errSecondSignal, errStopped)
	}
	unbuffered := make(chan os.Signal)
	go func() {
		unbuffered <- syscall.SIGHUP
		started <- nil
	}()
	if reload, err := await(started, unbuffered, cancel); !reload || err != nil {
		t.Errorf("await after SIGHUP = %v, %v, want true and no error", reload, err)
	}
}

// needsBwrap is for tests that need sandboxes.
func needsBwrap(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true").CombinedOutput(); err != nil {
		interop.Unable(t, "bwrap may not be used here: %v %s", err, out)
	}
}

// A sandboxed command does not see the server's secrets.
func TestSandboxHidesSecrets(t *testing.T) {
	t.Parallel()
	needsBwrap(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	config := write(t, filepath.Join(dir, "arcp.yaml"), "token: [alice=secret]\ntools:\n"+
		`  - {name: peek, exec: [sh, -c, "cat `+dir+`/arcp.yaml `+data+`/* | wc -c"], sandbox: bwrap}`+"\n"+
		`  - {name: look, exec: [sh, -c, "cat `+dir+`/arcp.yaml | wc -l"]}`+"\n")
	p := serve(t, "--config", config, "--data", data)
	wantOutcome(t, "with a sandbox", p.cli("invoke", "peek"), exitOK, "0\n", "")
	wantOutcome(t, "without", p.cli("invoke", "look"), exitOK, "4\n", "")
}

// The socket would let it in as the user that the server runs as, and nothing of the
// data directory helps it to a copy.
func TestSandboxHidesTheWaysIn(t *testing.T) {
	t.Parallel()
	needsBwrap(t)
	dir := t.TempDir()
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	config := write(t, filepath.Join(dir, "arcp.yaml"), "token: [alice=secret]\ntools:\n"+
		`  - {name: peek, exec: [sh, -c, "test -S `+socket+` && echo '\"there\"' || echo '\"gone\"'"], sandbox: bwrap, dir: `+dir+`}`+"\n")
	p := serve(t, "--config", config, "--data", data, "--unix", socket)
	wantOutcome(t, "the socket in a sandbox", p.cli("invoke", "peek"), exitOK, `"gone"`, "")
}
