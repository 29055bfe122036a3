package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// beMCP, as the first argument, makes the test program an MCP server on its standard streams. The second is the
// directory of its files, and the others are the names of its tools.
const beMCP = "be-mcp"

// serveMCP serves tools that return their name. A call with "until" first waits for that file.
func serveMCP(args []string) int {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	for _, name := range args[1:] {
		type input struct {
			Until string `json:"until,omitempty"`
		}
		sdk.AddTool(s, &sdk.Tool{Name: name, Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
			func(_ context.Context, _ *sdk.CallToolRequest, in input) (*sdk.CallToolResult, any, error) {
				if in.Until != "" {
					for err := os.WriteFile(filepath.Join(args[0], in.Until+".begun"), nil, 0o600); err == nil && !exists(filepath.Join(args[0], in.Until)); {
						time.Sleep(5 * time.Millisecond)
					}
				}
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: name}}}, nil, nil
			})
	}
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// mcpEntry is an entry of arcp.yaml with this program as an MCP server.
func mcpEntry(t *testing.T, dir string, tools ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := strings.Join(append([]string{exe, beMCP, dir}, tools...), `", "`)
	return `  - {mcp: {name: far, command: ["` + argv + `"]}}` + "\n"
}

// reloadedServer is a server whose configuration file changes.
type reloadedServer struct {
	*process
	t      *testing.T
	config string
}

func serveFile(t *testing.T, tools string) *reloadedServer {
	t.Helper()
	config := withTools(t, tools)
	return &reloadedServer{serve(t, "--config", config), t, config}
}

// reload replaces the tools in the file, sends SIGHUP, and waits for a line of the log.
func (r *reloadedServer) reload(tools, logged string) {
	r.t.Helper()
	write(r.t, r.config, "data: \":memory:\"\ntoken: [alice=secret]\n"+tools)
	r.signal(syscall.SIGHUP)
	until(r.t, "log: "+logged, func() bool { return strings.Contains(r.errs.String(), logged) })
}

// await waits until a tool has a result.
func (r *reloadedServer) await(name, result string) {
	r.t.Helper()
	until(r.t, name+" returns "+result, func() bool {
		o := r.cli("invoke", name)
		return o.code == exitOK && strings.Contains(o.stdout, result)
	})
}

// SIGHUP adds, changes and removes commands and workflows. A running job continues with the command that it was
// started with.
func TestReloadOfCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun, end := filepath.Join(dir, "begun"), filepath.Join(dir, "end")
	waits := `sh, -c, "touch ` + begun + `; while ! test -e ` + end + `; do sleep 0.01; done; echo `
	r := serveFile(t, "  - {name: waits, exec: ["+waits+`1"]}`+"\n  - {name: gone, exec: [echo, \"1\"]}\n  - {name: same, exec: [echo, \"1\"]}\n")
	id := r.detach("waits", `{}`)
	until(t, "the command runs", func() bool { return exists(begun) })

	r.reload("tools:\n  - {name: same, exec: [echo, \"1\"]}\n  - {name: waits, exec: [echo, \"2\"]}\n  - {name: fresh, exec: [echo, hello], output: text}\n"+
		"workflows:\n  - {name: flow, steps: {a: {tool: waits}}, result: \"=steps.a.value\"}\n",
		`"tools_added":["fresh@1.0.0","flow@1.0.0"],"tools_changed":["waits@1.0.0"],"tools_removed":["gone@1.0.0"]`)
	if log := r.errs.String(); !strings.Contains(log, `"settings":["tools","workflows"],"auth_file":false,"certificate":false`) {
		t.Errorf("the log does not say which settings have changed:\n%s", log)
	}
	wantOutcome(t, "an added tool", r.cli("invoke", "fresh"), exitOK, `"hello"`, "")
	wantOutcome(t, "a changed tool", r.cli("invoke", "waits"), exitOK, "2", "")
	wantOutcome(t, "a workflow", r.cli("tools", "ls"), exitOK, "flow ", "")
	wantOutcome(t, "a removed tool", r.cli("invoke", "gone"), exitFailed, "", "AGENT_NOT_AVAILABLE")
	write(t, end, "")
	wantOutcome(t, "the job from before", r.cli("jobs", "wait", id), exitOK, "1", "")

	// A file with mistakes changes nothing, and each mistake is logged with its line.
	r.reload("tools:\n  - {name: same, exec: [echo, \"3\"], limts: {}}\n  - {name: fresh, exec: [no-such-program-here]}\n", `"mistakes":2,`)
	if log := r.errs.String(); !strings.Contains(log, `"line":4,"column":37,"key":"tools[0].limts","mistake":"unknown key`) || !strings.Contains(log, `"line":5,`) {
		t.Errorf("the log has no line for each mistake:\n%s", log)
	}
	wantOutcome(t, "a tool after a mistake", r.cli("invoke", "same"), exitOK, "1", "")
	wantOutcome(t, "another tool after a mistake", r.cli("invoke", "waits"), exitOK, "2", "")

	// A name moves from the commands to the workflows; everything else goes.
	r.reload("workflows:\n  - {name: same, steps: {a: {tool: other}}}\n", `"tools_removed":["same@1.0.0","waits@1.0.0","fresh@1.0.0","flow@1.0.0"]`)
	until(t, "a warning about the missing tool", func() bool { return strings.Contains(r.errs.String(), "step a of same: other") })
	wantOutcome(t, "a removed workflow", r.cli("invoke", "flow"), exitFailed, "", "AGENT_NOT_AVAILABLE")
}

// A changed MCP server is replaced. A running call ends on the old one, whose process ends then.
func TestReloadOfAnMCPServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := serveFile(t, "  - {name: same, exec: [echo, \"1\"]}\n")
	other := "  - {name: same, exec: [echo, \"1\"]}\n"
	r.reload("tools:\n"+other+mcpEntry(t, dir, "a", "b"), `"tools_added":["mcp:far"]`)
	r.await("far.a", `"a"`)
	id := r.detach("far.b", `{"until":"end"}`)
	until(t, "the call runs", func() bool { return exists(filepath.Join(dir, "end.begun")) })

	r.reload("tools:\n"+other+mcpEntry(t, dir, "a", "c"), `"tools_changed":["mcp:far"]`)
	r.await("far.c", `"c"`)
	wantOutcome(t, "a tool that the new server has not", r.cli("invoke", "far.b"), exitFailed, "", "AGENT_NOT_AVAILABLE")
	write(t, filepath.Join(dir, "end"), "")
	wantOutcome(t, "the call from before", r.cli("jobs", "wait", id), exitOK, `"b"`, "")
	until(t, "the old process ends", func() bool { return !runsAny(dir + "\x00a\x00b") })
	wantOutcome(t, "another call", r.cli("invoke", "far.a"), exitOK, `"a"`, "")

	r.reload("tools:\n"+other, `"tools_removed":["mcp:far"]`)
	wantOutcome(t, "a removed server", r.cli("invoke", "far.a"), exitFailed, "", "AGENT_NOT_AVAILABLE")
	until(t, "its process ends", func() bool { return !runsAny(dir + "\x00a\x00c") })
}

// A changed worker is replaced when its jobs have ended, and a removed one loses its tools.
func TestReloadOfAWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := serveFile(t, workerEntry(t, dir, "", "kid.a"))
	id := r.detach("kid.a", `{"until":"end"}`)
	until(t, "the job runs", func() bool { return exists(filepath.Join(dir, "end.begun")) })

	r.reload("tools:\n"+workerEntry(t, dir, "", "kid.a", "kid.b"), `"tools_changed":["worker:kid"]`)
	second := r.detach("kid.a", `{}`) // waits for the new process
	write(t, filepath.Join(dir, "end"), "")
	wantOutcome(t, "the job from before", r.cli("jobs", "wait", id), exitOK, `"attempt":1`, "")
	wantOutcome(t, "a job of the new process", r.cli("jobs", "wait", second), exitOK, `"attempt":1`, "")
	r.await("kid.b", `"attempt":1`)

	r.reload("drain: 5s\n", `"tools_removed":["worker:kid"]`)
	until(t, "its tools are gone", func() bool { return strings.Contains(r.cli("invoke", "kid.b").stderr, "AGENT_NOT_AVAILABLE") })
	until(t, "its process ends", func() bool { return !runsAny(beWorker + "\x00" + dir) })
	if log := r.errs.String(); !strings.Contains(log, `"level":"warn","settings":["drain"]`) {
		t.Errorf("the log does not name the setting that needs a restart:\n%s", log)
	}

	r.reload("tools:\n"+workerEntry(t, dir, "", "kid.a"), `"tools_added":["worker:kid"]`)
	r.await("kid.a", `"attempt":1`)
}

// `arcp dev` applies a change of the file by itself, also of one that does not exist at the start, and reports mistakes.
func TestDevWatchesTheFile(t *testing.T) {
	t.Parallel()
	p := listening(start(t, nil, "dev", "--data", ":memory:", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--token", "alice=secret"))
	dir := p.cmd.Dir
	replace := func(content string) { // as an editor does
		t.Helper()
		if err := os.Rename(write(t, filepath.Join(dir, "arcp.yaml~"), content), filepath.Join(dir, "arcp.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	logged := func(text string) {
		t.Helper()
		until(t, "log: "+text, func() bool { return strings.Contains(p.errs.String(), text) })
	}
	replace("tools:\n  - {name: x, exec: [echo, \"1\"]}\n")
	logged("tools_added=[\"x@1.0.0\"]")
	wantOutcome(t, "an added tool", p.cli("invoke", "x"), exitOK, "1", "")
	replace("tools:\n  - {name: x, exc: [echo, \"2\"]}\n")
	logged(`line=2 mistake="unknown key \"exc\"; did you mean \"exec\"?"`)
	wantOutcome(t, "the tool after a mistake", p.cli("invoke", "x"), exitOK, "1", "")
	write(t, filepath.Join(dir, "arcp.yaml"), "tools:\n  - {name: x, exec: [echo, \"3\"]}\n") // in place
	logged("tools_changed=[\"x@1.0.0\"]")
	wantOutcome(t, "a changed tool", p.cli("invoke", "x"), exitOK, "3", "")
}
