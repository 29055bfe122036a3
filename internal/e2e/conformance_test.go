package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/runtime"
)

// TestConformance runs the black-box checks against the command, on each store. Each
// passes, but for those that start the server again where the store is in memory.
func TestConformance(t *testing.T) {
	t.Parallel()
	watchedIn(t, "conformance")
	for name, data := range map[string]string{"memory": ":memory:", "durable": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			authFile := authFile(t)
			flags := slices.Concat([]string{"--config", checkTools(t), "--auth-file", authFile}, served, withLinks(t))
			p := startServer(t, binary(t), data, flags...)
			defer func() { p.kill(t) }()
			tg := target(t, p)
			exchanged := record(&tg)
			if name == "durable" {
				tg.Restart = func(context.Context) error {
					p.kill(t)
					p = startServer(t, binary(t), data, append([]string{"--listen", p.address}, flags...)...)
					return nil
				}
			}
			report, err := conformance.Run(t.Context(), tg, conformance.Options{Levels: conformance.Levels, Parallel: 4, Timeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			checks := map[string]conformance.Check{}
			for _, c := range conformance.Checks(arcp.DialectRFC) {
				checks[c.ID] = c
			}
			var failed []conformance.Result
			for _, r := range report.Results {
				restarts := slices.Contains(checks[r.ID].Needs, conformance.NeedRestart)
				if r.Status != conformance.Passed && !(r.Status == conformance.Skipped && tg.Restart == nil && restarts) {
					t.Errorf("%s: %s, want passed", r.ID, r.Status)
					failed = append(failed, r)
				}
			}
			if len(report.Results) != len(checks) {
				t.Errorf("%d of %d checks have results", len(report.Results), len(checks))
			}
			exchangeConfigured(t, p, &tg, authFile)
			exchanged.check(t)
			if t.Failed() {
				var text strings.Builder
				report.Results = failed
				if err := conformance.WriteText(&text, &report, conformance.TextOptions{Verbose: true}); err != nil {
					t.Error(err)
				}
				t.Log(text.String())
			}
		})
	}
}

// served are settings that some checks need: a second principal, short heartbeats, and a
// window larger than the limit above which a client is slow.
var served = []string{"--token", "bob=" + crashToken + "-of-bob", "--heartbeat", "2s", "--ack-window", strconv.Itoa(ackWindow)}

const ackWindow = 1500

// withLinks are settings of a server that issues links to artifacts.
func withLinks(t *testing.T) []string {
	t.Helper()
	address := freeAddr(t)
	return []string{"--listen", address, "--artifact-url", "http://" + address + "/artifacts"}
}

// checkTools is a configuration with the tools of the groups exec, mcp and credentials, as the
// command prints it.
func checkTools(t *testing.T) (file string) {
	t.Helper()
	out, err := exec.Command(binary(t), "conformance", "sources").Output()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "check.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func target(t *testing.T, p *process) conformance.Target {
	t.Helper()
	key, err := conformance.ParseSigningKey([]byte(issuerSecret))
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Target{URL: p.url, Token: crashToken, Principal: "alice", OtherToken: crashToken + "-of-bob", ObserverToken: observerToken, AckWindow: ackWindow,
		FrameLimit: runtime.DefaultMaxFrame, JWT: &conformance.JWT{Key: key, Issuer: issuer, Subject: "carol"}}
}

// The issuer that the served runtime knows.
const (
	issuer       = "https://issuer.example"
	issuerSecret = "a secret that only the issuer and the runtime know\n"
)

// observerToken is of a principal that only observes, and sees alice.
const observerToken = crashToken + "-of-olga"

// authFile configures the issuer and the observers.
func authFile(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(issuerSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "auth.yaml")
	writeAuthFile(t, file, "alice")
	return file
}

// writeAuthFile writes the configuration of the issuer and of the observer. The observer sees one principal. The
// principal of the JWTs may replace the credentials of jobs.
func writeAuthFile(t *testing.T, file, sees string) {
	t.Helper()
	text := fmt.Sprintf("principals:\n  - {name: olga, tokens: [%q], roles: [observer], sees: [%s]}\n  - {name: carol, roles: [client, admin]}\n"+
		"issuers:\n  - {issuer: %q, audience: arcp, key_files: [secret], algorithms: [HS256]}\n", auth.FileHash(observerToken), sees, issuer)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDraftConformance runs the checks of the draft dialect against the command, as each client
// library. Each passes. Those that start the server again run as one library.
func TestDraftConformance(t *testing.T) {
	watchedIn(t, "conformance")
	for _, lib := range strict.Libraries {
		t.Run(string(lib), func(t *testing.T) {
			t.Parallel()
			checkDraft(t, lib)
		})
	}
}

// unsent is the rule of an event that the command never sends: none of its agents reports calls of tools.
const unsent = "draft.frames.toolresult"

// unnegotiated reports whether the library does not offer what the checks of a group need.
func unnegotiated(lib strict.Library, group string) bool {
	return lib == strict.Python && group == "credentials"
}

// parallelChecks is the number of checks that run at a time. Some wait for heartbeats.
const parallelChecks = 16

// checkDraft runs the checks of the draft dialect as a library.
func checkDraft(t *testing.T, lib strict.Library) {
	data := t.TempDir()
	flags := append([]string{"--config", checkTools(t), "--auth-file", authFile(t)}, served...)
	p := startServer(t, binary(t), data, flags...)
	defer func() { p.kill(t) }()
	tg := target(t, p)
	tg.Dialect, tg.Library = arcp.DialectDraft, lib
	restarts := map[string]bool{}
	if lib == strict.TypeScript {
		tg.Restart = func(context.Context) error {
			p.kill(t)
			p = startServer(t, binary(t), data, append([]string{"--listen", p.address}, flags...)...)
			return nil
		}
	} else {
		for _, c := range conformance.Checks(arcp.DialectDraft) {
			restarts[c.ID] = slices.Contains(c.Needs, conformance.NeedRestart)
		}
	}
	report, err := conformance.Run(t.Context(), tg, conformance.Options{Levels: conformance.Levels, Parallel: parallelChecks, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	report.Results = slices.DeleteFunc(report.Results, func(r conformance.Result) bool {
		return r.Status == conformance.Passed || r.Status == conformance.Skipped && (restarts[r.ID] || r.ID == unsent || unnegotiated(lib, r.Group))
	})
	if len(report.Results) == 0 {
		return
	}
	var text strings.Builder
	if err := conformance.WriteText(&text, &report, conformance.TextOptions{Verbose: true}); err != nil {
		t.Error(err)
	}
	t.Error(text.String())
}

// TestDraftConformanceChecksCanFail plants each fault of the draft dialect: every check that the fault
// names must notice it.
func TestDraftConformanceChecksCanFail(t *testing.T) {
	t.Parallel()
	watchedIn(t, "conformance")
	data := t.TempDir()
	flags := append([]string{"--config", checkTools(t), "--auth-file", authFile(t)}, served...)
	p := startServer(t, binary(t), data, flags...)
	defer func() { p.kill(t) }()
	tg := target(t, p)
	tg.Dialect = arcp.DialectDraft
	tg.Restart = func(context.Context) error {
		p.kill(t)
		p = startServer(t, binary(t), data, append([]string{"--listen", p.address}, flags...)...)
		return nil
	}
	if err := conformance.SelfTest(t.Context(), tg); err != nil {
		t.Error(err)
	}
}

// TestConformanceChecksCanFail puts a proxy in between that breaks one rule at a
// time: some check must notice each.
func TestConformanceChecksCanFail(t *testing.T) {
	t.Parallel()
	watchedIn(t, "conformance")
	p := startServer(t, binary(t), ":memory:", slices.Concat([]string{"--config", checkTools(t), "--auth-file", authFile(t)}, served, withLinks(t))...)
	defer p.kill(t)
	if err := conformance.SelfTest(t.Context(), target(t, p)); err != nil {
		t.Error(err)
	}
}
