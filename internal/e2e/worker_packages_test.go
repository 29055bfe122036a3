package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/conformance/interop"
)

// language is a language that has a package for workers in sdk, and an example in docs/examples that
// uses it. The programs run in a copy of both.
type language struct {
	name    string
	needs   []string
	install [][]string   // in the directory of the package
	tests   [][][]string // runs of the package's own tests: commands in its directory
	build   [][]string   // in the directory of the example
	run     []string     // in the directory of the example
}

// venv is the interpreter of the package's virtual environment.
const venv = ".venv/bin/python"

var unittests = []string{venv, "-m", "unittest", "discover", "-s", "tests"}

var languages = []language{
	{
		name:    "typescript",
		needs:   []string{"node", "npm"},
		install: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
		tests:   [][][]string{{{"npm", "run", "check"}, {"npm", "test"}}},
		build:   [][]string{{"npm", "ci", "--no-audit", "--no-fund"}, {"npm", "run", "build"}},
		run:     []string{"node", "dist/worker.js"},
	},
	{
		name:  "python",
		needs: []string{"python3"},
		install: [][]string{
			{"python3", "-m", "venv", ".venv"},
			{venv, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", "requirements-test.txt"},
			{venv, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "."},
		},
		tests: [][][]string{
			{unittests},
			{{venv, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", "requirements-oldest.txt"}, unittests},
		},
		run: []string{"../../../sdk/python/" + venv, "worker.py"},
	},
}

// testsTimeout bounds a run of the tests of a package, ten times what it needs.
const testsTimeout = 6 * time.Minute

// prepare installs the package and builds the example in a new directory.
func (l *language) prepare(t *testing.T) (sdk, example string) {
	t.Helper()
	interop.Needs(t, l.needs...)
	root := t.TempDir()
	sdk, example = filepath.Join("sdk", l.name), filepath.Join("docs", "examples", "worker-"+l.name)
	for _, dir := range []string{sdk, example} {
		if err := copySources(dir, filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	sdk, example = filepath.Join(root, sdk), filepath.Join(root, example)
	ctx, cancel := context.WithTimeout(t.Context(), 2*installTimeout)
	defer cancel()
	install := func(dir string, commands [][]string) {
		for _, argv := range commands {
			if err := command(ctx, dir, argv[0], argv[1:]...); err != nil {
				interop.Unable(t, "%v", err)
			}
		}
	}
	install(sdk, l.install)
	install(example, l.build)
	return sdk, example
}

// test runs commands in the directory of the package. Their tests start processes of the server.
func (l *language) test(t *testing.T, sdk string, commands [][]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testsTimeout)
	defer cancel()
	for _, argv := range commands {
		program := argv[0]
		if strings.Contains(program, "/") {
			program = filepath.Join(sdk, program)
		}
		cmd := exec.CommandContext(ctx, program, argv[1:]...)
		cmd.Dir, cmd.Env = sdk, append(os.Environ(), "ARCP_BIN="+binary(t))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
	}
}

// built are the directories that builds make.
var built = []string{"node_modules", "dist", "dist-test", "build", ".venv", "__pycache__"}

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
		case d.IsDir() && (slices.Contains(built, d.Name())):
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

// start runs the example until the test ends.
func (l *language) start(t *testing.T, dir, url string) {
	t.Helper()
	program := l.run[0]
	if strings.Contains(program, "/") {
		program = filepath.Join(dir, program)
	}
	cmd := exec.Command(program, l.run[1:]...)
	cmd.Dir, cmd.Stderr = dir, captureStderr(t)
	cmd.Env = append(os.Environ(), "ARCP_URL="+url, "ARCP_TOKEN="+crashToken)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killProcess(cmd) })
}

// config writes a configuration file whose server starts the example.
func (l *language) config(t *testing.T, dir string) (file string) {
	t.Helper()
	argv := append(slices.Clone(l.run), "--stdio")
	if strings.Contains(argv[0], "/") {
		argv[0] = filepath.Join(dir, argv[0])
	}
	entry := map[string]any{"worker": map[string]any{"name": "texts", "command": argv, "dir": dir}}
	data, err := json.Marshal(map[string]any{"tools": []any{entry}}) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "arcp.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// killProcess kills a process that may have ended.
func killProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()         // killed
}

// TestWorkerPackages runs the tests that the packages for workers have, and their examples.
func TestWorkerPackages(t *testing.T) {
	ofOtherPrograms(t)
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			sdk, example := l.prepare(t)
			for _, commands := range l.tests {
				t.Run("tests", func(t *testing.T) { l.test(t, sdk, commands) })
			}
			t.Run("example", func(t *testing.T) {
				p := startServer(t, binary(t), t.TempDir())
				l.start(t, example, p.url)
				countWords(t, p)
			})
			t.Run("example started by the server", func(t *testing.T) {
				countWords(t, startServer(t, binary(t), t.TempDir(), "--config", l.config(t, example)))
			})
		})
	}
}

// countWords invokes the tool of an example.
func countWords(t *testing.T, p *process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.Connect(ctx, p.url, client.Options{Auth: client.Auth{Token: crashToken}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	if got := outcome(ctx, t, submit(ctx, t, c, "text.words", `{"text":"one two  three"}`)); got != `{"words":3}` {
		t.Errorf("the words of a text: %s", got)
	}
	if got := outcome(ctx, t, submit(ctx, t, c, "text.words", `{"text":""}`)); got != `{"words":0}` {
		t.Errorf("the words of an empty text: %s", got)
	}
	if _, err := c.Invoke(ctx, client.InvokeParams{Tool: "text.words", Arguments: arcp.Raw(`{"n":1}`)}); !strings.Contains(fmt.Sprint(err), "INVALID_ARGUMENT") {
		t.Errorf("arguments that do not match the schema: %v", err)
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
