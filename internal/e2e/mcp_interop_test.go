package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/conformance/interop"
)

// installTimeout bounds one installation; its result stays in the user's cache.
const installTimeout = 4 * time.Minute

// TestMCPInterop has a runtime use real MCP servers, and real MCP clients use a
// runtime: the reference server and client of npm, and a server and the client of
// PyPI, pinned by the files in .ci/mcp.
func TestMCPInterop(t *testing.T) {
	t.Parallel()
	ofOtherPrograms(t)
	node, python := installMCP(t)
	every := filepath.Join(node, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	web := startEverything(t, every)
	config := filepath.Join(t.TempDir(), "arcp.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `tools:
  - {mcp: {name: every, command: [node, %q, stdio]}, approval: none}
  - {mcp: {name: web, url: %q}, approval: none}
  - {mcp: {name: time, command: [%q]}}
`, every, web, filepath.Join(python, "bin/mcp-server-time")), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := binary(t)
	p := startServer(t, bin, ":memory:", "--config", config)
	t.Cleanup(func() { p.kill(t) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	for _, source := range []string{"every", "web"} {
		t.Run("server/npm/"+source, func(t *testing.T) { useEverything(ctx, t, p.url, source) })
	}
	t.Run("server/pypi", func(t *testing.T) { useTime(ctx, t, p.url) })
	env := append(os.Environ(), "ARCP_URL="+p.url, "ARCP_TOKEN="+crashToken, "MCP_MODULES="+node)
	t.Run("client/npm/stdio", func(t *testing.T) {
		checkClient(t, runClient(ctx, t, env, "node", ".ci/mcp/client.mjs", "stdio", bin, "mcp", "serve"))
	})
	t.Run("client/npm/http", func(t *testing.T) {
		url, token := serveMCP(t, bin, env)
		checkClient(t, runClient(ctx, t, env, "node", ".ci/mcp/client.mjs", "http", url, token))
	})
	t.Run("client/npm/cancelled", func(t *testing.T) { wantCancelled(ctx, t, p.url, 2) })
	t.Run("client/pypi/stdio", func(t *testing.T) {
		out := runClient(ctx, t, env, filepath.Join(python, "bin/python"), ".ci/mcp/client.py", bin, "mcp", "serve", "--tools", "demo.*")
		if !slices.Contains(out.Tools, "demo.echo") || slices.Contains(out.Tools, "every.echo") || out.Echo.text() != `{"text":"hello"}` {
			t.Errorf("the client reports %+v, want the tools demo.* and the echoed arguments", out)
		}
	})
}

// installMCP installs the pinned programs, or skips the test.
func installMCP(t *testing.T) (node, python string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	var all sync.WaitGroup
	var failures [2]error
	all.Go(func() {
		node, failures[0] = installOnce(cache, "node", []string{"package.json", "package-lock.json"}, func(ctx context.Context, dir string) error {
			return command(ctx, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		})
	})
	all.Go(func() {
		python, failures[1] = installOnce(cache, "python", []string{"requirements.txt"}, func(ctx context.Context, dir string) error {
			if err := command(ctx, dir, "python3", "-m", "venv", "."); err != nil {
				return err
			}
			return command(ctx, dir, "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "-r", "requirements.txt")
		})
	})
	all.Wait()
	if err := errors.Join(failures[:]...); err != nil {
		interop.Unable(t, "needs node, python3 and their registries: %v", err)
	}
	return node, python
}

// installOnce installs into a directory named after the package. A virtual environment cannot
// be moved, so it is marked when it is complete.
func installOnce(cache, kind string, files []string, install func(ctx context.Context, dir string) error) (string, error) {
	sum := sha256.New()
	contents := make(map[string][]byte)
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(".ci/mcp", name))
		if err != nil {
			return "", err
		}
		contents[name] = data
		sum.Write(data)
	}
	dir := filepath.Join(cache, "arcp-interop", "mcp-"+kind+"-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	complete := filepath.Join(dir, ".complete")
	if _, err := os.Stat(complete); err == nil {
		return dir, nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	for name, data := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	if err := install(ctx, dir); err != nil {
		return "", err
	}
	return dir, os.WriteFile(complete, nil, 0o644)
}

// command runs a step of an installation in a directory. A registry may not answer
// for once, so that a step that fails is tried again.
func command(ctx context.Context, dir, name string, args ...string) error {
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s %s, try %d: %w\n%s", name, strings.Join(args, " "), try, err, out)
		if try == 3 || ctx.Err() != nil {
			return err
		}
		pause(ctx, time.Duration(try)*5*time.Second)
	}
}

// startEverything runs the reference server over HTTP, and returns its URL.
func startEverything(t *testing.T, script string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", script, "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "listening on port") {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return "http://127.0.0.1:" + port + "/mcp"
		}
	}
	t.Fatal("the reference server does not listen")
	return ""
}

// useEverything uses the reference server's tools through the runtime.
func useEverything(ctx context.Context, t *testing.T, url, source string) {
	asked := make(chan string, 1)
	c := person(ctx, t, url, func(_ context.Context, q client.InputRequest) (any, error) {
		if !strings.Contains(q.Prompt, "MCP server "+source) {
			return nil, errors.New("it is of another test")
		}
		asked <- q.Prompt
		return map[string]any{"name": "Ann", "check": true}, nil
	})
	call := func(tool, args string) (string, error) {
		t.Helper()
		job, err := c.Invoke(ctx, client.InvokeParams{Tool: source + "." + tool, Arguments: arcp.Raw(args)})
		if err != nil {
			return "", err
		}
		result, err := job.Wait(ctx)
		return string(result.Value), err
	}
	for _, w := range []struct{ tool, args, want, failure string }{
		{"echo", `{"message":"hello"}`, `{"content":[{"type":"text","text":"Echo: hello"}]}`, ""},
		{"get-structured-content", `{"location":"Chicago"}`, `"conditions":`, ""},
		{"get-sum", `{"a":"one"}`, "", "INVALID_ARGUMENT"},
		{"get-resource-reference", `{"resourceType":"Text","resourceId":-1}`, "", "UNKNOWN"},
		{"trigger-elicitation-request", `{}`, "Ann", ""},
	} {
		got, err := call(w.tool, w.args)
		if !strings.Contains(got, w.want) || (err == nil) != (w.failure == "") || err != nil && !strings.Contains(err.Error(), w.failure) {
			t.Errorf("%s: %s, %v, want %s %s", w.tool, got, err, w.want, w.failure)
		}
	}
	select {
	case <-asked:
	default:
		t.Error("nobody was asked what the server asks")
	}

	job, err := c.Invoke(ctx, client.InvokeParams{Tool: source + ".trigger-long-running-operation", Arguments: arcp.Raw(`{"duration":1,"steps":4}`)})
	if err != nil {
		t.Fatal(err)
	}
	if steps := progress(ctx, t, job); len(steps) < 4 || !slices.IsSorted(steps) {
		t.Errorf("progress: %v", steps)
	}
	job, err = c.Invoke(ctx, client.InvokeParams{Tool: source + ".trigger-long-running-operation", Arguments: arcp.Raw(`{"duration":3600,"steps":36000}`)})
	if err != nil {
		t.Fatal(err)
	}
	for env, err := range job.Events(ctx) { // once it runs at the server
		if err != nil {
			t.Fatal(err)
		}
		if env.Type == arcp.JobProgress {
			break
		}
	}
	if err := c.Cancel(ctx, client.CancelParams{JobID: job.ID(), Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Wait(ctx); !isCode(err, arcp.CodeCancelled) {
		t.Errorf("a cancelled call ended with %v", err)
	}
}

func progress(ctx context.Context, t *testing.T, job *client.Job) (steps []float64) {
	t.Helper()
	for env, err := range job.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if p, err := arcp.DecodePayload[arcp.JobProgressPayload](&env); env.Type == arcp.JobProgress && err == nil {
			steps = append(steps, p.Current)
		}
	}
	return steps
}

func isCode(err error, code arcp.Code) bool {
	e, ok := errors.AsType[*client.JobError](err)
	return ok && e.Code == code
}

// useTime uses a server written in Python. Its tools only read, so they need no approval.
func useTime(ctx context.Context, t *testing.T, url string) {
	c := person(ctx, t, url, nil)
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: "time.get_current_time", Arguments: arcp.Raw(`{"timezone":"Asia/Tokyo"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := job.Wait(ctx); err != nil || !bytes.Contains(result.Value, []byte("+09:00")) {
		t.Errorf("the time in Tokyo is %s, %v; want an offset of +09:00", result.Value, err)
	}
	job, err = c.Invoke(ctx, client.InvokeParams{Tool: "time.get_current_time", Arguments: arcp.Raw(`{"timezone":"Middle/Earth"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Wait(ctx); !isCode(err, arcp.CodeUnknown) || !strings.Contains(err.Error(), "Middle/Earth") {
		t.Errorf("a time zone that there is not: %v", err)
	}
}

// wantCancelled checks that all jobs of the tool with many steps were cancelled.
func wantCancelled(ctx context.Context, t *testing.T, url string, want int) {
	c, cancelled := person(ctx, t, url, nil), 0
	for entry, err := range c.Jobs(ctx, client.ListJobsParams{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(entry.Agent, "demo.progress@") {
			continue
		}
		job, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: entry.JobID, History: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Wait(ctx); isCode(err, arcp.CodeCancelled) {
			cancelled++
		}
	}
	if cancelled != want {
		t.Errorf("%d jobs were cancelled, want %d", cancelled, want)
	}
}

// serveMCP runs `arcp mcp serve` over HTTP.
func serveMCP(t *testing.T, bin string, env []string) (url, token string) {
	t.Helper()
	token = "http-token-0123456789"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "mcp", "serve", "--http", "127.0.0.1:0", "--http-token-file", file)
	cmd.Env, cmd.Stderr = env, captureStderr(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killProcess(cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !ok {
		t.Fatalf("it said %q, %v", line, err)
	}
	return url, token
}

// mcpResult and mcpSeen are the output of the clients.
type mcpResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
}

func (r mcpResult) text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

type mcpSeen struct {
	Tools     []string  `json:"tools"`
	Echo      mcpResult `json:"echo"`
	Unknown   mcpResult `json:"unknown"`
	Failed    mcpResult `json:"failed"`
	Answered  mcpResult `json:"answered"`
	Through   mcpResult `json:"through"`
	Progress  []float64 `json:"progress"`
	Logs      []string  `json:"logs"`
	Asked     []string  `json:"asked"`
	Cancelled bool      `json:"cancelled"`
}

func runClient(ctx context.Context, t *testing.T, env []string, name string, args ...string) (seen mcpSeen) {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stderr = env, captureStderr(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := arcp.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return seen
}

// checkClient checks the report of the reference client about a runtime.
func checkClient(t *testing.T, s mcpSeen) {
	t.Helper()
	if !slices.Contains(s.Tools, "demo.echo") || !slices.Contains(s.Tools, "every.echo") || slices.Contains(s.Tools, "tools.list") {
		t.Errorf("tools: %v", s.Tools)
	}
	if s.Echo.text() != `{"text":"hello"}` || s.Echo.IsError {
		t.Errorf("echo: %+v", s.Echo)
	}
	if !s.Unknown.IsError || !strings.HasPrefix(s.Unknown.text(), "INVALID_ARGUMENT: ") {
		t.Errorf("wrong arguments: %+v", s.Unknown)
	}
	if !s.Failed.IsError || s.Failed.text() != "NOT_FOUND: gone" {
		t.Errorf("a job that failed: %+v", s.Failed)
	}
	if !strings.Contains(s.Answered.text(), `"value":"blue"`) || !slices.Equal(s.Asked, []string{"colour?"}) {
		t.Errorf("a question: %+v, asked %v", s.Answered, s.Asked)
	}
	if len(s.Through.Content) < 2 || s.Through.Content[1].Type != "image" {
		t.Errorf("an image of another MCP server: %+v", s.Through)
	}
	if len(s.Progress) < 4 || !slices.IsSorted(s.Progress) {
		t.Errorf("progress: %v", s.Progress)
	}
	if len(s.Logs) < 3 {
		t.Errorf("logs: %v", s.Logs)
	}
	if !s.Cancelled {
		t.Error("a cancelled call was answered")
	}
}
