package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// beWorker, as the first argument, makes the test program a worker on its standard streams.
// The others are the directory of its files, and the names of its tools.
const beWorker = "be-worker"

// workOnStdio is the worker: its tools return what they are given, wait, fail or crash as
// their arguments say, or invoke a tool of the runtime for themselves.
func workOnStdio(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.New(ctx, transport.Stdio(os.Stdin, os.Stdout, transport.Limits{}),
		client.Options{Client: arcp.ClientInfo{Kind: "test-worker", Version: "1"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "open a session:", err)
		return 1
	}
	dir := args[0]
	handle := func(ctx context.Context, call *client.WorkerCall) (any, error) {
		var in struct {
			Wait   string `json:"wait"`
			Crash  string `json:"crash"` // the first time: the name of a file that says so
			Hold   string `json:"hold"`  // likewise: waits
			Invoke string `json:"invoke"`
			Until  string `json:"until"` // the name of a file that ends the call
		}
		if err := arcp.Unmarshal(call.Arguments, &in); err != nil {
			return nil, err
		}
		switch {
		case in.Invoke != "":
			job, err := c.Invoke(ctx, client.InvokeParams{Tool: in.Invoke, Arguments: map[string]any{}})
			if err == nil {
				_, err = job.Wait(ctx)
			}
			return nil, err
		case in.Crash != "" && !exists(filepath.Join(dir, in.Crash)):
			if err := os.WriteFile(filepath.Join(dir, in.Crash), nil, 0o600); err != nil {
				return nil, err
			}
			os.Exit(3)
		case in.Hold != "" && !exists(filepath.Join(dir, in.Hold)):
			if err := os.WriteFile(filepath.Join(dir, in.Hold), nil, 0o600); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		case in.Until != "":
			for err := os.WriteFile(filepath.Join(dir, in.Until+".begun"), nil, 0o600); err == nil && !exists(filepath.Join(dir, in.Until)); {
				time.Sleep(5 * time.Millisecond)
			}
		case in.Wait != "":
			_ = call.Log(arcp.LevelInfo, "waiting", nil) // the outcome counts
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return map[string]any{"arguments": call.Arguments, "attempt": call.Attempt}, nil
	}
	cfg := client.WorkerConfig{ID: "kid", Concurrency: 4}
	for _, name := range args[1:] {
		cfg.Tools = append(cfg.Tools, client.WorkerTool{Ref: name + "@1.0.0", Handle: handle, Description: map[string]any{"recovery": "rerun"}})
	}
	if err := c.Work(ctx, cfg); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "work:", err)
		return 1
	}
	return 0
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

// workerEntry is an entry of tools for a worker of this program.
func workerEntry(t *testing.T, dir, more string, tools ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := strings.Join(append([]string{exe, beWorker, dir}, tools...), `", "`)
	return `  - {worker: {name: kid, command: ["` + argv + `"]}` + more + "}\n"
}

func TestWorkerOfTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, "--config", withTools(t, workerEntry(t, dir, `, allow: ["kid.*"]`, "kid.a", "kid.b", "other.c")), "--demo")
	wantOutcome(t, "a tool", p.cli("invoke", "kid.a", `{"n":1}`), exitOK, `{"arguments":{"n":1},"attempt":1}`, "")
	wantOutcome(t, "another tool", p.cli("invoke", "kid.b", `{}`), exitOK, `{"arguments":{},"attempt":1}`, "")
	wantOutcome(t, "a tool that is not allowed", p.cli("invoke", "other.c", `{}`), exitFailed, "", "AGENT_NOT_AVAILABLE")
	wantOutcome(t, "a job that the worker submits for itself", p.cli("invoke", "kid.a", `{"invoke":"demo.echo"}`),
		exitFailed, "", "submits no jobs of its own")
	id := p.detach("kid.a", `{"wait":"x"}`)
	p.untilRunning(1)
	wantOutcome(t, "cancel", p.cli("jobs", "cancel", id), exitOK, "", "")
	wantOutcome(t, "its end", p.cli("jobs", "wait", id), exitCancelled, "", "")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK || runsAny(dir) {
		t.Errorf("exit code = %d, the worker runs: %v; want it to end with the server", code, runsAny(dir))
	}
}

// The program is started again, under the same agent id, and the job is done again.
func TestWorkerThatCrashes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, "--config", withTools(t, workerEntry(t, dir, "", "kid.a", "kid.b")))
	for i := range 2 {
		wantOutcome(t, "a job whose worker crashes", p.cli("invoke", "kid.a", fmt.Sprintf(`{"crash":"file-%d"}`, i)), exitOK, `"attempt":2`, "")
		wantOutcome(t, "another tool", p.cli("invoke", "kid.b", `{}`), exitOK, `"attempt":1`, "")
	}
	if log := p.errs.String(); !strings.Contains(log, "exit status 3") {
		t.Errorf("the log does not say how the worker has ended:\n%s", log)
	}
}

// A runtime that is killed takes the worker with it; its successor starts another, and the
// job goes on there.
func TestWorkerOfARuntimeThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "arcp.yaml"), "token: [alice=secret]\ntools:\n"+workerEntry(t, dir, "", "kid.a"))
	p := serve(t, "--config", config, "--data", filepath.Join(dir, "data"))
	id := p.detach("kid.a", `{"hold":"held"}`)
	until(t, "the job runs", func() bool { return exists(filepath.Join(dir, "held")) })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	until(t, "the worker has ended", func() bool { return !runsAny(beWorker + "\x00" + dir) })
	p = serve(t, "--config", config, "--data", filepath.Join(dir, "data"))
	wantOutcome(t, "the job after the crash", p.cli("jobs", "wait", id), exitOK, `"attempt":2`, "")
	wantOutcome(t, "a new job", p.cli("invoke", "kid.a", `{}`), exitOK, `"attempt":1`, "")
}

// A worker with another name takes over the tools of one that was removed from the file.
func TestWorkerIsRenamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"kid", "other"} {
		entry := strings.Replace(workerEntry(t, dir, "", "kid.a"), "name: kid", "name: "+name, 1)
		config := write(t, filepath.Join(dir, "arcp.yaml"), "token: [alice=secret]\ntools:\n"+entry)
		p := serve(t, "--config", config, "--data", filepath.Join(dir, "data"))
		wantOutcome(t, "a job of "+name, p.cli("invoke", "kid.a", `{}`), exitOK, `"attempt":1`, "")
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != exitOK {
			t.Fatalf("exit code = %d", code)
		}
	}
}

func TestProgramThatIsNoWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	t.Parallel()
	for command, want := range map[string]string{
		`["sh", "-c", "echo this is not it >&2; exit 3"]`: "it ended with exit status 3; it said last: this is not it",
		`["cat", "/etc/passwd"]`:                          "worker kid: ",
		`["yes"]`:                                         "worker kid: ",
		`["sleep", "1000"]`:                               "worker kid: ",
		`["no-such-program-here"]`:                        "name a program that is there",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			o := cli(t, "serve", "--config", withTools(t, `  - {worker: {name: kid, command: `+command+`}}`), "--listen", "127.0.0.1:0", "--admin", "")
			if o.code == exitOK || !strings.Contains(o.stderr, want) {
				t.Errorf("%v\nwant %q", o, want)
			}
		})
	}
}
