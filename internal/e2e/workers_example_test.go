package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/conformance/interop"
)

// example is a worker in another language.
type example struct {
	name  string
	needs []string
	build [][]string // in a copy of its directory
	run   []string
}

var examples = []example{
	{"worker-typescript", []string{"node", "npm"}, [][]string{{"npm", "ci", "--no-audit", "--no-fund"}, {"npm", "run", "build"}}, []string{"node", "dist/worker.js"}},
	{"worker-python", []string{"python3"}, [][]string{{"python3", "-m", "venv", ".venv"},
		{".venv/bin/pip", "install", "--quiet", "--require-hashes", "-r", "requirements.txt"}}, []string{".venv/bin/python", "worker.py"}},
}

// prepare builds an example in a new directory.
func (e example) prepare(t *testing.T) (dir string) {
	t.Helper()
	interop.Needs(t, e.needs...)
	dir = t.TempDir()
	if err := copySources(filepath.Join("docs", "examples", e.name), dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	for _, argv := range e.build {
		if err := command(ctx, dir, argv[0], argv[1:]...); err != nil {
			interop.Unable(t, "%v", err)
		}
	}
	return dir
}

// copySources omits build results.
func copySources(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "dist" || d.Name() == ".venv" || d.Name() == "__pycache__"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}

// start runs the worker until it is killed, or the test ends.
func (e example) start(t *testing.T, dir, url string) *exec.Cmd {
	t.Helper()
	program := e.run[0]
	if strings.Contains(program, "/") {
		program = filepath.Join(dir, program)
	}
	cmd := exec.Command(program, e.run[1:]...)
	cmd.Dir, cmd.Stderr = dir, captureStderr(t)
	cmd.Env = append(os.Environ(), "ARCP_URL="+url, "ARCP_TOKEN="+crashToken)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killProcess(cmd) })
	return cmd
}

// killProcess kills a process that may have ended.
func killProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// Each example follows the rules for workers in the documentation, also when it or the server
// is killed.
func TestWorkerExamples(t *testing.T) {
	endToEnd(t)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			dir := e.prepare(t)
			bin, data := binary(t), t.TempDir()
			p := startServer(t, bin, data, "--heartbeat", "1s")
			defer func() { p.kill(t) }()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			c, err := client.Connect(ctx, p.url, client.Options{Auth: client.Auth{Token: crashToken}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			w := e.start(t, dir, p.url)

			want(t, "counts words", outcome(ctx, t, submit(ctx, t, c, "text.words", `{"text":"one two  three"}`)), `{"words":3}`)
			want(t, "its own error", outcome(ctx, t, submit(ctx, t, c, "text.words", `{"text":" "}`)), "INVALID_ARGUMENT: the text has no words")
			if _, err := c.Invoke(ctx, client.InvokeParams{Tool: "text.words", Arguments: arcp.Raw(`{"n":1}`)}); !strings.Contains(fmt.Sprint(err), "INVALID_ARGUMENT") {
				t.Errorf("what breaks its schema: %v", err)
			}

			long := submit(ctx, t, c, "text.wait", `{"to":100000}`)
			reach(ctx, t, long, 2)
			if err := c.Cancel(ctx, client.CancelParams{JobID: long.ID(), Reason: "enough", Deadline: time.Minute}); err != nil {
				t.Fatal(err)
			}
			want(t, "cancelled", strings.SplitN(outcome(ctx, t, long), ":", 2)[0], "CANCELLED")

			silent := submit(ctx, t, c, "text.wait", `{"to":1,"interval_ms":4000}`) // longer than the runtime waits for a heartbeat
			want(t, "a job that says nothing", outcome(ctx, t, silent), `{"counted":1,"resumed_from":0,"attempt":1}`)

			killed := submit(ctx, t, c, "text.wait", `{"to":50,"interval_ms":100}`)
			reach(ctx, t, killed, 3)
			killProcess(w)
			e.start(t, dir, p.url)
			value := outcome(ctx, t, killed)
			if !strings.Contains(value, `"attempt":2`) || strings.Contains(value, `"resumed_from":0`) {
				t.Errorf("after its worker was killed: %s, want the second attempt to go on", value)
			}

			restarted := submit(ctx, t, c, "text.wait", `{"to":50,"interval_ms":100}`)
			reach(ctx, t, restarted, 3)
			p.kill(t)
			p = startServer(t, bin, data, "--heartbeat", "1s", "--listen", p.address)
			value = outcome(ctx, t, restarted)
			if !strings.Contains(value, `"attempt":2`) || strings.Contains(value, `"resumed_from":0`) {
				t.Errorf("after the server was killed: %s, want the second attempt to go on", value)
			}
		})
	}
}

func want(t *testing.T, why, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", why, got, want)
	}
}

// submit submits a job as soon as the tool is available.
func submit(ctx context.Context, t *testing.T, c *client.Client, tool, args string) *client.Job {
	t.Helper()
	for {
		job, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: arcp.Raw(args)})
		if err == nil {
			return job
		}
		if !strings.Contains(err.Error(), string(arcp.CodeAgentNotAvailable)) || ctx.Err() != nil {
			t.Fatal(err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// reach reads a job's events until it has come so far.
func reach(ctx context.Context, t *testing.T, job *client.Job, n float64) {
	t.Helper()
	for ev, err := range job.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if p, err := arcp.DecodePayload[arcp.JobProgressPayload](&ev); ev.Type == arcp.JobProgress && err == nil && p.Current >= n {
			return
		}
	}
	t.Fatal("the job has ended")
}

// outcome is the result of a job, or its code and message. It ends once, and goes
// forward only.
func outcome(ctx context.Context, t *testing.T, job *client.Job) string {
	t.Helper()
	at, ends := 0.0, 0
	for ev, err := range job.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type.Terminal() {
			ends++
		}
		if p, err := arcp.DecodePayload[arcp.JobProgressPayload](&ev); ev.Type == arcp.JobProgress && err == nil {
			if p.Current < at {
				t.Errorf("progress %v after %v", p.Current, at)
			}
			at = p.Current
		}
	}
	if ends != 1 {
		t.Errorf("the job ended %d times", ends)
	}
	r, err := job.Wait(ctx)
	if failed, ok := errors.AsType[*client.JobError](err); ok {
		return failed.RawCode + ": " + failed.Message
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(r.Value), " ", "")
}
