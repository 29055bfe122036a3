package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/cmd/arcp/internal/bench"
)

// On SIGTERM running jobs come to their end, and nothing new begins.
func TestDrainLetsJobsEnd(t *testing.T) {
	t.Parallel()
	config, _, finish := waitingTool(t)
	p := serve(t, "--config", config, "--data", ":memory:", "--demo", "--drain", "1h")
	done := make(chan outcome, 1)
	go func() { done <- p.cli("invoke", "waits") }()
	p.untilRunning(1)
	p.signal(syscall.SIGTERM)
	until(t, "readiness is withdrawn", func() bool { status, _ := get(t, p.admin+"/readyz"); return status == 503 })
	if o := p.cli("invoke", "demo.echo"); o.code == exitOK {
		t.Errorf("a new job while stopping: %v, want a refusal", o)
	}
	finish()
	wantOutcome(t, "the job that was running", <-done, exitOK, `"done"`, "")
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0", code)
	}
}

// waitingTool is a configuration with the tool waits, which runs until finish is called. started waits
// until its program executes. Before, the new process still has the files of the server, among them
// the listener.
func waitingTool(t *testing.T) (config string, started, finish func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "finish")
	waits := program(t, "echo >"+file+".started; until test -e "+file+"; do sleep 0.05; done; echo '\"done\"'")
	return write(t, filepath.Join(t.TempDir(), "arcp.yaml"), "token: [alice=secret]\ntools:\n"+
			"  - {name: waits, exec: ["+waits+"], recovery: rerun, limits: {timeout_ms: 600000}}\n"), func() {
			until(t, "the program executes", func() bool {
				_, err := os.Stat(file + ".started")
				return err == nil
			})
		}, func() { write(t, file, "") }
}

// untilRunning waits until n jobs run.
func (p *process) untilRunning(n int) {
	p.t.Helper()
	until(p.t, "the job runs", func() bool {
		return len(jobIDs(p.cli("jobs", "ls", "--status", "running").stdout)) == n
	})
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	p := demoServer(t, "--drain", "50ms")
	p.detach("demo.sleep", `{"ms":3600000}`)
	p.untilRunning(1)
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0 after the time to drain", code)
	}
}

func TestSecondSignalEndsTheDrain(t *testing.T) {
	t.Parallel()
	p := demoServer(t, "--drain", "1h")
	p.detach("demo.sleep", `{"ms":3600000}`)
	p.untilRunning(1)
	p.signal(syscall.SIGTERM)
	until(t, "readiness is withdrawn", func() bool { status, _ := get(t, p.admin+"/readyz"); return status == 503 })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitFailed {
		t.Errorf("exit code = %d, want 1 at once", code)
	}
}

// A first Ctrl-C on arcp dev says for what it waits, and a second one ends it as usual.
func TestDevSaysForWhichJobsItWaits(t *testing.T) {
	t.Parallel()
	p := listening(start(t, nil, "dev", "--data", ":memory:", "--token", "me=mine", "--drain", "1h", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
	job := start(t, nil, "invoke", "demo.sleep", `{"ms":3600000}`, "--follow", "--url", p.url, "--token", "mine")
	until(t, "the job has started", func() bool { return strings.Contains(job.errs.String(), "started") })
	p.signal(syscall.SIGINT)
	id := regexp.MustCompile(`job_\w+`).FindString(job.errs.String())
	for _, want := range []string{
		"stopping: waiting up to 1h0m0s for 1 job; Ctrl-C again stops now\n  " + id + " demo.sleep@1.0.0\n",
		` waits_for=["` + id + ` demo.sleep@1.0.0"]`, // of the log
	} {
		until(t, "the runtime says for what it waits: "+want, func() bool { return strings.Contains(p.errs.String(), want) })
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0; log:\n%s", code, p.errs)
	}
}

func TestHangupReloadsTheSettings(t *testing.T) {
	t.Parallel()
	config := write(t, filepath.Join(t.TempDir(), "arcp.yaml"), "token: [alice=first]\ndemo: true\n")
	p := serve(t, "--config", config, "--data", ":memory:", "--log-level", "info")
	want := func(why, token string, code int) {
		t.Helper()
		wantOutcome(t, why, cli(t, "invoke", "demo.echo", "--url", p.url, "--token", token), code, "", "")
	}
	reload := func(content, logged string) {
		t.Helper()
		write(t, config, content)
		p.signal(syscall.SIGHUP)
		until(t, "log: "+logged, func() bool { return strings.Contains(p.errs.String(), logged) })
	}
	want("the first token", "first", exitOK)
	waiting := start(t, nil, "invoke", "demo.sleep", `{"ms":600000}`, "--url", p.url, "--token", "first")
	until(t, "the job runs", func() bool {
		return len(jobIDs(cli(t, "jobs", "ls", "--status", "running", "--url", p.url, "--token", "first").stdout)) == 1
	})
	reload("token: [alice=second]\ndemo: true\nmax-jobs: 2\nmax-frame: 1MiB\n", `"settings":["token","max-jobs"]`)
	if code := waiting.wait(); code != exitAuth || !strings.Contains(waiting.errs.String(), "the token of the session is not known any more") {
		t.Errorf("exit code of a client whose token is gone = %d, want %d; log:\n%s", code, exitAuth, waiting.errs)
	}
	want("the first token after the reload", "first", exitAuth)
	want("the second token", "second", exitOK)
	wantOutcome(t, "one job", cli(t, "invoke", "demo.sleep", `{"ms":600000}`, "--detach", "--url", p.url, "--token", "second"), exitOK, "", "")
	wantOutcome(t, "a second one, over the new limit", cli(t, "invoke", "demo.echo", "--url", p.url, "--token", "second"),
		exitFailed, "", "limit of 2 jobs reached (max-jobs); try again in 1s")
	if o := cli(t, "doctor", "--url", p.url, "--token", "second"); o.code != exitFailed || !strings.Contains(o.stdout, "the runtime refuses all jobs of alice: limit of 2 jobs reached") {
		t.Errorf("doctor at the limit of jobs: %v", o)
	}
	if !strings.Contains(p.errs.String(), `"settings":["max-frame"]`) {
		t.Errorf("log = %s, want it to say that max-frame needs a restart", p.errs)
	}
	reload("token: [alice=second]\ndemo: true\n", `"settings":["max-jobs"]`)
	if strings.Contains(p.errs.String(), "[]") {
		t.Errorf("log = %s, want no empty lists", p.errs)
	}
	reload("token: [alice=third]\ntokn: x\n", "reload failed; nothing was changed")
	want("the second token after a mistake", "second", exitOK)
	reload("demo: true\n", "refusing to listen without authentication")
	want("the second token after another mistake", "second", exitOK)
}

func TestServeUsesTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := makeCertificate(t, dir, "one", 1)
	p := serve(t, "--data", ":memory:", "--demo", "--token", "alice=secret", "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(p.url, "wss://") {
		t.Fatalf("url = %s, want wss://", p.url)
	}
	c := start(t, []string{"SSL_CERT_FILE=" + cert}, "invoke", "demo.echo", "--url", p.url, "--token", "secret")
	if code := c.wait(); code != exitOK {
		t.Errorf("exit code of a client that trusts the certificate = %d, want 0; log:\n%s", code, c.errs)
	}
	wantOutcome(t, "a client that does not", p.cli("invoke", "demo.echo"), exitUnreachable, "", "signed by an unknown authority: give --ca-file")
	wantOutcome(t, "a client with --ca-file", p.cli("invoke", "demo.echo", `{"a":1}`, "--ca-file", cert), exitOK, `{"a":1}`, "")
	env := start(t, []string{"ARCP_CA_FILE=" + cert}, "jobs", "ls", "--url", p.url, "--token", "secret")
	if code := env.wait(); code != exitOK {
		t.Errorf("exit code of a client with ARCP_CA_FILE = %d, want 0; log:\n%s", code, env.errs)
	}
	checks := p.cli("conformance", "run", "--group", "handshake", "--check", "jobs.life", "--ca-file", cert)
	wantOutcome(t, "the checks", checks, exitUsage, "", "no check is chosen")
	wantOutcome(t, "doctor", p.cli("doctor", "--ca-file", cert), exitOK, "answers at "+p.url, "")
	if got := serial(t, p.url); got != 1 {
		t.Fatalf("serial = %d, want 1", got)
	}
	nextCert, nextKey := makeCertificate(t, t.TempDir(), "two", 2)
	rename(t, nextCert, cert)
	rename(t, nextKey, key)
	p.signal(syscall.SIGHUP)
	until(t, "the new certificate is served", func() bool { return serial(t, p.url) == 2 })
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func serial(t *testing.T, url string) int64 {
	t.Helper()
	addr, _, _ := strings.Cut(strings.TrimPrefix(url, "wss://"), "/")
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// Acknowledged events survive a kill, and so does the runtime's identity.
func TestRestartKeepsEventsAndIdentity(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"--data", data, "--demo", "--token", "alice=secret"}
	p := serve(t, args...)
	wantOutcome(t, "a job", p.cli("invoke", "demo.echo", `{"a":1}`), exitOK, `{"a":1}`, "")
	running := p.detach("demo.emit", `{"count":1,"bytes":1,"delay_ms":3600000}`) // it must not run twice
	p.untilRunning(1)
	identity := readFile(t, filepath.Join(data, identityFile))

	locked := cli(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	wantRefusal(t, locked, exitFailed, data+" is in use by another process")

	p.signal(syscall.SIGKILL)
	p.wait()
	p = serve(t, args...)
	ids := jobIDs(p.cli("jobs", "ls").stdout)
	if len(ids) != 2 || ids[0] != running {
		t.Fatalf("jobs = %q, want two, the first %s", ids, running)
	}
	wantOutcome(t, "the result of the finished job", p.cli("jobs", "wait", ids[1]), exitOK, `{"a":1}`, "")
	wantOutcome(t, "the outcome of the interrupted job", p.cli("jobs", "wait", running), exitFailed, "", "ABORTED")
	if got := readFile(t, filepath.Join(data, identityFile)); got != identity {
		t.Error("the runtime has another key after the restart")
	}
	for path, want := range map[string]os.FileMode{data: 0o700, filepath.Join(data, identityFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s = %v, %v, want mode %o", path, info, err, want)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A damaged store is refused and left as it is: put right, it works again.
func TestCorruptStoreIsRefused(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"--data", data, "--demo", "--token", "alice=secret"}
	p := serve(t, args...)
	p.cli("invoke", "demo.echo")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Fatalf("exit code = %d, want 0", code)
	}
	manifests, err := filepath.Glob(filepath.Join(data, storeDir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("manifests = %v, %v, want one", manifests, err)
	}
	manifest := manifests[len(manifests)-1]
	good := readFile(t, manifest)
	write(t, manifest, strings.Repeat("damaged", 100))
	o := cli(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	wantRefusal(t, o, exitFailed, "data directory "+data+" cannot be opened")
	write(t, manifest, good)
	p = serve(t, args...)
	if ids := jobIDs(p.cli("jobs", "ls").stdout); len(ids) != 1 {
		t.Errorf("jobs = %q, want the one from before", ids)
	}
}

var devToken1 = regexp.MustCompile(`token +(dev_\w+)\n`)

// `arcp dev` makes a token once, and the clients of the same user find it.
func TestDevCreatesATokenOnce(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	startDev := func() (p *process, token string) {
		t.Helper()
		p = listening(start(t, nil, "dev", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
		until(t, "the banner is printed", func() bool { return strings.Contains(p.errs.String(), "demo.echo") })
		m := devToken1.FindStringSubmatch(p.errs.String())
		if m == nil {
			t.Fatalf("banner = %s, want a token", p.errs)
		}
		return p, m[1]
	}
	p, token := startDev()
	wantOutcome(t, "a client without a token", cli(t, "invoke", "demo.echo", "--url", p.url), exitOK, "{}\n", "")
	wantOutcome(t, "a client with the token", cli(t, "invoke", "demo.echo", "--url", p.url, "--token", token), exitOK, "{}\n", "")
	wantOutcome(t, "the command that prints the token", cli(t, "dev", "token", "--url", p.url), exitOK, token+"\n", "")
	file := filepath.Join(data, devTokenFile)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || readFile(t, file) != token+"\n" {
		t.Errorf("%s = %v, %v, want the token with mode 0600", file, info, err)
	}
	known := knownFile(t, p.url)
	if info, err := os.Stat(known); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s = %v, %v, want the mode 0600", known, info, err)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0", code)
	}
	if _, err := os.Stat(known); err == nil {
		t.Errorf("%s is still there when the server is gone", known)
	}
	p, again := startDev()
	if again != token {
		t.Errorf("token after a restart = %s, want %s", again, token)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	knownFile(t, p.url) // a killed server leaves it
	wantOutcome(t, "after the server was killed", cli(t, "dev", "token", "--url", p.url), exitUnreachable, "", "`arcp dev` starts one")
	wantOutcome(t, "another machine", cli(t, "dev", "token", "--url", "wss://arcp.example.com/arcp"), exitUsage, "", "on this machine")
}

// The token can be printed while the server starts, whatever its port is.
func TestDevTokenWhileTheServerStarts(t *testing.T) {
	t.Parallel()
	env := []string{"XDG_STATE_HOME=" + t.TempDir()}
	print := func() (token, errs string, code int) {
		t.Helper()
		p := start(t, env, "dev", "token")
		code = p.wait()
		return <-p.first, p.errs.String(), code
	}
	if _, errs, code := print(); code == exitOK || !strings.Contains(errs, "or give --url") { // another server may have the default port
		t.Errorf("without a server: exit code %d and %s, want a failure and the remedies", code, errs)
	}
	slow := write(t, filepath.Join(t.TempDir(), "arcp.yaml"), "tools: [{mcp: {name: m, command: [sleep, '3600']}}]\n")
	args := []string{"dev", "--data", ":memory:", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	p := start(t, env, append(args, "--config", slow)...)
	until(t, "the token is printed", func() bool {
		token, _, code := print()
		return code == exitOK && strings.HasPrefix(token, "dev_")
	})
	select {
	case line := <-p.first:
		t.Errorf("the server has started: %s", line)
	default:
	}
	listening(start(t, env, args...))
	if _, errs, code := print(); code != exitUsage || strings.Count(errs, "--url ws://127.0.0.1:") != 2 {
		t.Errorf("with two servers: exit code %d and %s, want 2 and both URLs", code, errs)
	}
}

func knownFile(t *testing.T, url string) string {
	t.Helper()
	addr, _, _ := strings.Cut(strings.TrimPrefix(url, "ws://"), "/")
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	path, err := knownTokenFile(tcp.Port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the token is not left for clients: %v", err)
	}
	return path
}

// With --data :memory: nothing is left behind.
func TestDevInMemory(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p := listening(start(t, []string{"XDG_STATE_HOME=" + state}, "dev", "--data", ":memory:", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code = %d, want 0", code)
	}
	err := filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is left behind", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Tokens that the user gives replace the one that would be made.
func TestDevWithToken(t *testing.T) {
	t.Parallel()
	p := listening(start(t, nil, "dev", "--data", ":memory:", "--token", "me=mine", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
	wantOutcome(t, "the user's token", cli(t, "invoke", "demo.echo", "--url", p.url, "--token", "mine"), exitOK, "", "")
	wantOutcome(t, "no token to print", cli(t, "dev", "token", "--url", p.url), exitFailed, "", "has tokens of its own")
	if strings.Contains(p.errs.String(), "mine") || devToken1.MatchString(p.errs.String()) {
		t.Errorf("the banner shows a token: %s", p.errs)
	}
}

// SIGINT cancels the job that `arcp invoke` waits for.
func TestInterruptCancelsTheInvokedJob(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	c := start(t, nil, "invoke", "demo.sleep", `{"ms":3600000}`, "--follow", "--url", p.url, "--token", "secret")
	until(t, "the job has started", func() bool { return strings.Contains(c.errs.String(), "started") })
	c.signal(syscall.SIGINT)
	if code := c.wait(); code != exitCancelled {
		t.Errorf("exit code = %d, want 6; log:\n%s", code, c.errs)
	}
	if ids := jobIDs(p.cli("jobs", "ls", "--status", "cancelled").stdout); len(ids) != 1 {
		t.Errorf("cancelled jobs = %q, want one", ids)
	}
}

// A second SIGINT ends the command and says that the job is being cancelled.
func TestInvokeInterruptedTwice(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	c := start(t, nil, "invoke", "demo.stubborn", `{"ms":600000}`, "--follow", "--url", p.url, "--token", "secret")
	until(t, "the job has started", func() bool { return strings.Contains(c.errs.String(), "started") })
	c.signal(syscall.SIGINT)
	until(t, "the command says what a second signal does", func() bool { return strings.Contains(c.errs.String(), "interrupt again") })
	c.signal(syscall.SIGINT)
	if code := c.wait(); code != exitInterrupted || !strings.Contains(c.errs.String(), "is being cancelled") {
		t.Errorf("exit code = %d, want 130 and that the job is being cancelled; log:\n%s", code, c.errs)
	}
}

// While the connection is lost a job cannot be cancelled. The first SIGINT ends the command, with one message.
func TestInterruptWhileTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	c := start(t, nil, "invoke", "demo.sleep", `{"ms":3600000}`, "--follow", "--url", p.url, "--token", "secret")
	until(t, "the job has started", func() bool { return strings.Contains(c.errs.String(), "started") })
	p.signal(syscall.SIGKILL)
	p.wait()
	until(t, "the command reconnects", func() bool { return strings.Contains(c.errs.String(), "reconnecting") })
	c.signal(syscall.SIGINT)
	code := c.wait()
	_, said, _ := strings.Cut(c.errs.String(), "reconnecting")
	_, said, _ = strings.Cut(said, "\n")
	if code != exitInterrupted || strings.Contains(strings.TrimSpace(said), "\n") || !strings.Contains(said, "interrupted while the connection is lost, and job_") {
		t.Errorf("exit code = %d and %q, want 130 and one line that the connection is lost", code, said)
	}
}

func TestInterruptedWatchLeavesTheJob(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	id := p.detach("demo.sleep", `{"ms":3600000}`)
	c := start(t, nil, "jobs", "watch", id, "--url", p.url, "--token", "secret")
	until(t, "the job is watched", func() bool { return strings.Contains(c.errs.String(), "started") })
	c.signal(syscall.SIGINT)
	if code := c.wait(); code != exitInterrupted {
		t.Errorf("exit code = %d, want 130; log:\n%s", code, c.errs)
	}
	wantOutcome(t, "the job goes on", p.cli("jobs", "show", id), exitOK, "running", "")
}

func TestDemoRunsToTheEnd(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, []string{"TMPDIR=" + temp}, "demo")
	if code := p.wait(); code != exitOK {
		t.Fatalf("exit code = %d, want 0; output:\n%s", code, p.out.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	out := demoFingerprint.ReplaceAllString(<-p.first+p.out.String(), "sha256:01234567…")
	out = demoCheckpoint.ReplaceAllString(out, "${1}N")
	golden(t, "demo.txt", out)
}

var (
	demoFingerprint = regexp.MustCompile(`sha256:[0-9a-f]{8}…`)
	demoCheckpoint  = regexp.MustCompile(`(checkpoint at |"resumed_from":)[1-9]\d*`) // the last one before the crash
)

// A client that waits for a job survives a restart of the runtime, which continues the job.
func TestRestartIsSurvived(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	config, started, finish := waitingTool(t)
	args := []string{"serve", "--config", config, "--listen", address, "--admin", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data")}
	p := listening(start(t, nil, args...))
	invoked := make(chan outcome, 1)
	go func() { invoked <- p.cli("invoke", "waits", "--follow") }()
	started()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	listening(start(t, nil, args...))
	finish()
	o := <-invoked
	wantOutcome(t, "invoke", o, exitOK, `"done"`, "connection lost, reconnecting")
	if n := strings.Count(o.stderr, "  completed"); n != 1 {
		t.Errorf("%d outcomes, want one:\n%s", n, o.stderr)
	}
}

// freeAddress is a loopback address without a listener, whose port no connection gets by
// chance.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		defer ln.Close()
		return ln.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

// A failure ends the demonstration with the runtime's own words.
func TestDemoReportsTheFailure(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "file"), "")
	p := start(t, nil, "demo", "--data", file)
	if code := p.wait(); code != exitFailed || !strings.Contains(p.errs.String(), file+" is not a directory") {
		t.Errorf("exit code = %d, want 1 with the reason; log:\n%s", code, p.errs)
	}
}

// A row that cannot be measured says why.
func TestBenchReportsTheFailure(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	results, err := bench.Run(t.Context(), bench.Options{
		Modes: []string{bench.Memory}, Rows: []string{"roundtrip"}, Duration: time.Second,
		Start: func(context.Context, string) (*bench.Server, error) {
			return &bench.Server{URL: p.url, Admin: p.admin, Token: "wrong", PID: p.cmd.Process.Pid, Stop: func() error { return nil }}, nil
		},
		OnRow: func(bench.Result) {},
	})
	if err != nil || len(results) != 1 || !strings.Contains(results[0].Error, "UNAUTHENTICATED") {
		t.Errorf("results = %+v, %v, want one that was refused", results, err)
	}
}

// The benchmark measures every row in each dialect, in little time here.
func TestBenchMeasuresEveryRow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	absent := []string{"streams", "stalled", "filtered", "artifacts-in", "artifacts-out"} // of the draft dialect
	for _, dialect := range bench.Dialects() {
		t.Run(dialect, func(t *testing.T) {
			p := start(t, nil, "bench", "--dialect", dialect, "--data", t.TempDir(), "--full", "--duration", "100ms", "--idle", "20", "-o", "json")
			if code := p.wait(); code != exitOK {
				t.Fatalf("exit code = %d, want 0", code)
			}
			var report struct {
				Rows []bench.Result
			}
			text := <-p.first + p.out.String()
			if err := json.Unmarshal([]byte(text), &report); err != nil {
				t.Fatalf("report = %s: %v", text, err)
			}
			if len(report.Rows) != len(bench.Rows()) {
				t.Errorf("%d rows, want %d", len(report.Rows), len(bench.Rows()))
			}
			for _, r := range report.Rows {
				if r.Error != "" || r.Mode != bench.Durable || r.Dialect != dialect || (r.Absent != "") != (dialect == bench.Draft && slices.Contains(absent, r.Row)) {
					t.Errorf("row %+v, want a durable measurement", r)
				}
			}
		})
	}
}

// A comparison shows the ratio to an earlier report, and the rows that only one of them has.
func TestBenchComparesWithAnEarlierReport(t *testing.T) {
	t.Parallel()
	earlier := write(t, filepath.Join(t.TempDir(), "earlier.json"), `{"build":{"version":"0.1"},"rows":[
		{"row":"roundtrip","mode":"memory","unit":"ms","value":1000000},
		{"row":"gone","mode":"memory","unit":"ms","value":1}]}`)
	args := []string{"bench", "--data", ":memory:", "--row", "roundtrip", "--duration", "2s", "--compare", earlier}
	p := start(t, nil, append(args, "-o", "json")...)
	if code := p.wait(); code != exitOK {
		t.Fatalf("exit code = %d, want 0", code)
	}
	var report struct {
		Rows      []bench.Result
		Compared  string `json:"compared_with"`
		Unmatched []string
	}
	text := <-p.first + p.out.String()
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("report = %s: %v", text, err)
	}
	if len(report.Rows) != 1 || report.Rows[0].Earlier == nil || report.Rows[0].Earlier.Ratio < 1 {
		t.Errorf("rows = %+v, want one that is better than the earlier one", report.Rows)
	}
	if report.Compared != earlier || len(report.Unmatched) != 1 || !strings.Contains(report.Unmatched[0], "gone") {
		t.Errorf("report = %s, want the file and its unknown row", text)
	}
	p = start(t, nil, args...)
	if code := p.wait(); code != exitOK {
		t.Fatalf("exit code = %d, want 0", code)
	}
	text = <-p.first + p.out.String()
	if !strings.Contains(text, "1,000,000") || !strings.Contains(text, earlier+": memory gone") {
		t.Errorf("table = %s, want the earlier value and the unknown row", text)
	}
}

// A file that is no report is refused before anything is measured.
func TestBenchRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := write(t, filepath.Join(dir, "other.json"), `{"name":"x"}`)
	wantOutcome(t, "other format", cli(t, "bench", "--compare", other), exitFailed, "", "--compare "+other+": not a report of arcp bench -o json")
	missing := filepath.Join(dir, "missing.json")
	wantOutcome(t, "no file", cli(t, "bench", "--compare", missing), exitFailed, "", "--compare "+missing+": no such file")
}

// A client's token in the environment is not one of the server's.
func TestClientTokenInTheEnvironment(t *testing.T) {
	t.Parallel()
	p := listening(start(t, []string{"ARCP_TOKEN=of-a-client"}, "dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", ":memory:"))
	until(t, "the token of dev is printed", func() bool { return strings.Contains(p.errs.String(), "token      dev_") })
	p = listening(start(t, []string{"ARCP_TOKEN=alice=secret"}, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", ":memory:", "--demo"))
	wantOutcome(t, "a server's token", cli(t, "invoke", "demo.echo", "--url", p.url, "--token", "secret"), exitOK, "", "")
	p = listening(start(t, []string{"ARCP_TOKEN=of=a-client", "ARCP_SERVER_TOKEN=alice=new"}, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", ":memory:", "--demo"))
	wantOutcome(t, "a token of the new variable", cli(t, "invoke", "demo.echo", "--url", p.url, "--token", "new"), exitOK, "", "")
	wantOutcome(t, "a token of a client", cli(t, "invoke", "demo.echo", "--url", p.url, "--token", "a-client"), exitAuth, "", "")
}
