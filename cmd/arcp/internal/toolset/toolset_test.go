package toolset_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/cmd/arcp/internal/toolset"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/exec"
)

// load reads a configuration file with this below tools:, as a server does.
func load(t *testing.T, dir, tools string) ([]toolset.Entry, *settings.Values, error) {
	t.Helper()
	path := filepath.Join(dir, "arcp.yaml")
	if err := os.WriteFile(path, []byte("tools:\n"+tools+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	settings.AddFlags(flags, nil)
	v, err := settings.Load(settings.Input{Flags: flags, Search: []string{path}})
	if err != nil {
		return nil, nil, err
	}
	entries, err := toolset.Load(v)
	return entries, v, err
}

func mustLoad(t *testing.T, dir, tools string) []toolset.Entry {
	t.Helper()
	entries, _, err := load(t, dir, tools)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

const full = `
  - name: report.make
    version: "2.1"
    description: makes a report
    exec: [./bin/make, --fast, ""]
    env: [HOME, LANG]
    dir: work
    input-schema: {type: object, required: [n], properties: {n: {type: integer, maximum: 9007199254740993}}}
    output_schema: out.json
    side_effect: write
    idempotent: true
    limits: {timeout_ms: 60000, max_request_bytes: 64KiB, max_response_bytes: 1048576, concurrency: 2, rate_per_min: 30,
             cpu_seconds: 10, memory: 512MiB, files: 64, processes: 100, file_size: 1GiB}
    approval: {manual: {quorum: 2, escalate_after_ms: 60000}}
    recovery: rerun
    retry: {max_attempts: 3, initial_ms: 10, factor: 1.5, max_ms: 100}
    min_trust: trusted
    sandbox: bwrap
    stdin: stream
    stream: stdout
  - {mcp: {name: github, command: [github-mcp, stdio]}, prefix: "gh.", allow: ["get_*", list_issues], side_effect: network, approval: none}
  - {mcp: {name: search, url: "https://mcp.example.org/x", headers_file: secret/headers}}
  - {worker: {name: helper, command: [./helper, --stdio], env: [HOME], dir: work}, allow: ["text.*"]}
  - {name: small, exec: [true]}
`

func TestEveryKeyIsRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "out.json"), []byte(`{"type": "object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	entries := mustLoad(t, dir, strings.Replace(full, "[true]", `["true"]`, 1))
	if len(entries) != 5 {
		t.Fatalf("%d entries, want 5", len(entries))
	}
	c := entries[0].Exec
	work := filepath.Join(dir, "work")
	want := tool.Limits{Timeout: time.Minute, MaxRequestBytes: 64 << 10, MaxResponseBytes: 1 << 20, Concurrency: 2, RatePerMin: 30}
	bounds := exec.Bounds{CPUSeconds: 10, Memory: 512 << 20, Files: 64, Processes: 100, FileSize: 1 << 30}
	approval := tool.Approval{Mode: "manual", Quorum: 2, EscalateAfter: time.Minute}
	retry := tool.Retry{MaxAttempts: 3, InitialMS: 10, Factor: 1.5, MaxMS: 100}
	switch {
	case c.Ref() != "report.make@2.1", c.Description != "makes a report", c.SideEffect != tool.SideEffectWrite, !*c.Idempotent:
		t.Errorf("identity = %+v", c.Capability)
	case !slices.Equal(c.Command, []string{filepath.Join(dir, "bin/make"), "--fast", ""}):
		t.Errorf("command = %q: a path is relative to the file", c.Command)
	case !slices.Equal(c.Env, []string{"HOME", "LANG"}), c.Dir != work, c.Sandbox != exec.SandboxBwrap:
		t.Errorf("environment = %q, directory = %q, sandbox = %q", c.Env, c.Dir, c.Sandbox)
	case c.Stdin != exec.StdinStream, c.Stream != exec.StreamStdout:
		t.Errorf("stdin = %q, stream = %q", c.Stdin, c.Stream)
	case c.Limits != want, c.Bounds != bounds:
		t.Errorf("limits = %+v, %+v", c.Limits, c.Bounds)
	case c.Approval != approval, c.Recovery != tool.RecoveryRerun, c.Retry != retry, c.MinTrust != "trusted":
		t.Errorf("policy = %+v", c.Capability)
	case string(c.OutputSchema) != `{"type":"object"}` || !strings.Contains(string(c.InputSchema), `"maximum":9007199254740993`):
		t.Errorf("schemas = %s, %s", c.InputSchema, c.OutputSchema)
	}
	gh, search, helper := entries[1].MCP, entries[2].MCP, entries[3].Worker
	switch {
	case gh.Prefix != "gh.", !gh.Allows("get_me"), gh.Allows("delete"), gh.SideEffect != tool.SideEffectNetwork, gh.Approval != tool.ApprovalNone:
		t.Errorf("github = %+v", gh)
	case search.Prefix != "search.", !search.Allows("anything"), search.Approval != (tool.Approval{}), search.HeadersFile != filepath.Join(dir, "secret/headers"):
		t.Errorf("search = %+v", search)
	case helper.Dir != work, !slices.Equal(helper.Command, []string{filepath.Join(dir, "helper"), "--stdio"}),
		!slices.Equal(helper.Env, []string{"HOME"}), !slices.Equal(helper.Allow, []string{"text.*"}):
		t.Errorf("helper = %+v", helper)
	case entries[4].Where != "tools[4] (small)", entries[4].Exec.Sandbox != exec.SandboxNone, entries[4].Exec.Dir != "":
		t.Errorf("small = %+v", entries[4].Exec)
	}
}

// The error of a wrong entry is one line with the entry and the remedy. It does not contain
// the value of a variable.
func TestErrorsNameTheEntry(t *testing.T) {
	for entry, want := range map[string]string{
		`- {name: x, exec: [a], limts: {}}`:                                       `tools[0] (x): unknown key "limts"; did you mean "limits"?`,
		`- {name: x, exec: [a], limits: {timout_ms: 5}}`:                          `tools[0] (x).limits: unknown key "timout_ms"; did you mean "timeout_ms"?`,
		`- {name: x, exec: [a], limits: {timeout_ms: soon}}`:                      `tools[0] (x).limits.timeout_ms: want a whole number from 0`,
		`- {name: x, exec: [a], limits: {timeout_ms: -1}}`:                        `.limits.timeout_ms: want a whole number`,
		`- {name: x, exec: [a], limits: {memory: lots}}`:                          `.limits.memory: want a size such as 64KiB`,
		`- {name: x, exec: [a], limits: 5}`:                                       `.limits: want a mapping`,
		`- {name: x, exec: a b}`:                                                  `tools[0] (x).exec: want a list of texts`,
		`- {name: x, exec: [a, 5]}`:                                               `.exec: want a list of texts`,
		`- {name: x, exec: []}`:                                                   `.exec: name a program`,
		`- {exec: [a]}`:                                                           `tools[0]: name is missing`,
		`- {name: x}`:                                                             `want one of exec (a command), mcp`,
		`- {name: x, exce: [a]}`:                                                  `tools[0]: unknown key "exce"; did you mean "exec"?`,
		`- {name: x, exec: [a], mcp: {}}`:                                         `it has exec and mcp: make an entry of each`,
		`- x`:                                                                     `tools[0]: want a mapping`,
		`- {name: X, exec: [a]}`:                                                  `the name must match`,
		`- {name: demo.x, exec: [a]}`:                                             `.name: names that begin with "demo." are the runtime's own`,
		`- {name: x, exec: [a], env: ["TOKEN=hunter2"]}`:                          `.env: want names of variables, without values`,
		`- {name: x, exec: [a], env: [ARCP_JOB_ID]}`:                              `.env: ARCP_JOB_ID is the job's`,
		`- {name: x, exec: [a], dir: /nonexistent}`:                               `.dir: there is no directory /nonexistent`,
		`- {name: x, exec: [a], input_schema: {type: objekt}}`:                    `:2:40: tools[0] (x).input_schema: tool x@1.0.0: input schema: member /type must be`,
		`- {name: x, exec: [a], input_schema: nowhere.json}`:                      `nowhere.json: no such file or directory; make it readable`,
		`- {name: x, exec: [a], side_effect: rwite}`:                              `.side_effect: want one of none, read, write`,
		`- {name: x, exec: [a], approval: perhaps}`:                               `.approval: want none, manual, {manual: {quorum: 2,`,
		`- {name: x, exec: [a], approval: {auto: {rules: "true"}}}`:               `.approval: want none, manual, {manual:`,
		`- {name: x, exec: [a], approval: {manual: {quorum: 17}}}`:                `a quorum of 17; want 1 to 16`,
		`- {name: x, exec: [a], approval: {auto: {rule: "tru("}}}`:                `approval rule: character 5: the expression ends too early`,
		`- {name: x, exec: [a], recovery: checkpoint}`:                            `.recovery: a command makes no checkpoints`,
		`- {name: x, exec: [a], retry: {max_attempts: 11}}`:                       `.retry.max_attempts: want a whole number from 1 to 10`,
		`- {name: x, exec: [a], retry: {initial_ms: 5}}`:                          `.retry: max_attempts is missing`,
		`- {name: x, exec: [a], retry: {max_attempts: 2}, idempotent: false}`:     `not idempotent`,
		`- {name: x, exec: [a], min_trust: some}`:                                 `.min_trust: want one of untrusted`,
		`- {name: x, exec: [a], stdin: file}`:                                     `.stdin: want one of stream`,
		`- {name: x, exec: [a], sandbox: docker}`:                                 `.sandbox: want one of none, bwrap`,
		`- {name: x, exec: [a], min_trust: trusted, min-trust: trusted}`:          `.min_trust: it is there twice`,
		`- {mcp: {name: m}}`:                                                      `tools[0] (m).mcp: want either command`,
		`- {mcp: {name: m, command: [a], url: "http://h/"}}`:                      `.mcp: want either command`,
		`- {mcp: {name: m, comand: [a]}}`:                                         `tools[0] (m).mcp: unknown key "comand"; did you mean "command"?`,
		`- {mcp: {name: m, url: "https://u:hunter2@h/"}}`:                         `.mcp.url: a password does not belong into it`,
		`- {mcp: {name: m, url: "ftp://h/"}}`:                                     `.mcp.url: want a URL`,
		`- {mcp: {name: m, command: [a], headers_file: f}}`:                       `.mcp.headers_file: only a url has headers`,
		`- {mcp: {name: m, url: "https://h/", env: [A]}}`:                         `.mcp: only a command has env and dir`,
		`- {mcp: {name: m, command: [a]}, limits: {memory: 1MiB}}`:                `.limits: only a command of exec has`,
		`- {mcp: {name: m, command: [a]}, limits: {timeout_ms: -1}}`:              `.limits.timeout_ms`,
		`- {mcp: {name: m, command: [a]}, allow: []}`:                             `.allow: it allows nothing`,
		`- {mcp: {name: m, command: [a]}, allow: ["[a"]}`:                         `.allow: a pattern is empty or has a bracket`,
		`- {mcp: {name: m, command: [a]}, prefix: "Big."}`:                        `.prefix: "Big."`,
		`- {mcp: {name: m, command: [a]}, prefix: "jobs."}`:                       `.prefix: names that begin with "jobs."`,
		`- {worker: {name: c}}`:                                                   `tools[0] (c).worker: command is missing`,
		`- {arcp: {name: c, command: [a]}}`:                                       `tools[0].arcp: the key is worker: rename it. The program is a worker now`,
		`- {worker: {name: c, command: [a]}, approval: none}`:                     `tools[0] (c): unknown key "approval"`,
		`- {worker: {name: c, command: [a]}, prefix: "c."}`:                       `tools[0] (c).prefix: a worker names its tools itself`,
		"- {name: x, exec: [a]}\n  - {name: x, exec: [b]}":                        `tools[1] (x): tools[0] (x) has the same tool x@1.0.0`,
		"- {mcp: {name: m, command: [a]}}\n  - {worker: {name: m, command: [b]}}": `has the same name m`,
	} {
		_, _, err := load(t, t.TempDir(), "  "+entry)
		if err == nil {
			t.Errorf("%s: accepted, want an error with %q", entry, want)
			continue
		}
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "\n") || strings.Contains(text, "hunter2") {
			t.Errorf("%s:\n got %q\nwant it to have %q", entry, text, want)
		}
	}
}

// Every mistake of every entry is reported, with the position of the value or the unknown key.
func TestEveryMistakeIsReported(t *testing.T) {
	entries, _, err := load(t, t.TempDir(), `  - name: a
    exec: [df, 5]
    limts: {}
    limits:
      timeout_ms: soon
      memory: lots
  - {name: b, exec: ["true"]}
  - mcp: {name: m, comand: [a], env: ["A=hunter2"]}
    approval: perhaps
  - just text
  - {nme: c, exec: [x], output: text, stream: stdout}
  - {name: d, exec: [x], output: text, stream: stdout}
  - {name: b, exec: ["false"]}`)
	want := []string{
		`3:11: tools[0] (a).exec: want a list of texts: item 2 is none, put it in quotes`,
		`4:5: tools[0] (a): unknown key "limts"; did you mean "limits"?`,
		`6:19: tools[0] (a).limits.timeout_ms: want a whole number from 0 to 2592000000`,
		`7:15: tools[0] (a).limits.memory: want a size such as 64KiB or 8MiB, from 1048576 to 1125899906842624 bytes`,
		`9:20: tools[2] (m).mcp: unknown key "comand"; did you mean "command"?`,
		`9:38: tools[2] (m).mcp.env: want names of variables, without values: a value is taken from the environment of the server`,
		`10:15: tools[2] (m).approval: want none, manual, {manual: {quorum: 2, escalate_after_ms: 60000}}, or {auto: {rule: "…"}}, with or without these two`,
		`11:5: tools[3]: want a mapping: a mapping with exec and name, with mcp, or with worker`,
		`12:6: tools[4]: unknown key "nme"; did you mean "name"?`,
		`12:33: tools[4].output: with stream: stdout the standard output is a stream and not the result: remove output or stream`,
		`13:34: tools[5] (d).output: with stream: stdout the standard output is a stream and not the result: remove output or stream`,
		`14:5: tools[6] (b): tools[1] (b) has the same tool b@1.0.0: choose another`,
	}
	list, ok := err.(settings.Mistakes)
	if !ok {
		t.Fatalf("error %v, want Mistakes", err)
	}
	for i, m := range list {
		got := strings.TrimPrefix(m.Error(), m.File+":")
		if i >= len(want) || got != want[i] {
			t.Errorf("mistake %d: %s\nwant %s", i, got, want[min(i, len(want)-1)])
		}
	}
	if len(list) != len(want) || len(entries) != 4 {
		t.Errorf("%d mistakes and %d entries with a program, want %d and 4", len(list), len(entries), len(want))
	}
	if m := list[2]; m.Key != "tools[0].limits.timeout_ms" || !strings.HasPrefix(m.Message, "want a whole number") {
		t.Errorf("mistake %+v, want its members set", m)
	}
}

// Values that could be read are checked also beside others with mistakes, and nothing is reported twice.
func TestPartsOfAnEntryAreCheckedBesideMistakes(t *testing.T) {
	_, _, err := load(t, t.TempDir(), `  - name: Bad
    exec: [x]
    timeout: 5
    input_schema: {type: objekt}
    approval: {auto: {rule: "tru("}}
    retry: {max_attempts: 2, initial_ms: soon}
    idempotent: false
    recovery: checkpoint
  - mcp: {name: m, command: [a], url: "https://h/", args: [b]}
    prefix: "jobs."
    approval: {manual: {quorum: 17}}
  - {name: c, version: 1.0, exec: [x]}
  - {name: c, version: "1.0.0", exec: [x]}
  - {exec: [x], limits: {timeout: 5}, min_trust: trusted, min-trust: trusted, command: [y]}
  - {worker: {name: w, args: [x]}, prefix: x, alow: [y]}`)
	want := []string{
		`2:5: tools[0] (Bad): tool Bad@1.0.0: `,
		`4:5: tools[0] (Bad): unknown key "timeout"; did you mean "limits.timeout_ms"?`,
		`5:19: tools[0] (Bad).input_schema: input schema: `,
		`6:15: tools[0] (Bad).approval: approval rule: `,
		`7:42: tools[0] (Bad).retry.initial_ms: want a whole number`,
		`9:15: tools[0] (Bad).recovery: a command makes no checkpoints`,
		`10:10: tools[1] (m).mcp: want either command`,
		`10:53: tools[1] (m).mcp: unknown key "args"; did you mean "command"?`,
		`11:13: tools[1] (m).prefix: names that begin with "jobs."`,
		`tools[1] (m): approval: a quorum of 17; want 1 to 16`,
		`13:24: tools[2] (c).version: want a text`,
		`tools[4]: name is missing`,
		`tools[4].limits: unknown key "timeout"; did you mean "timeout_ms"?`,
		`tools[4].min_trust: it is there twice`,
		`tools[4]: unknown key "command"; did you mean "exec"?`,
		`tools[5] (w).prefix: a worker names its tools itself`,
		`tools[5] (w): unknown key "alow"; did you mean "allow"?`,
		`tools[5] (w).worker: unknown key "args"; did you mean "command"?`,
	}
	list, _ := err.(settings.Mistakes)
	for _, w := range want {
		if n := strings.Count(err.Error(), w); n != 1 {
			t.Errorf("%d mistakes with %q, want 1", n, w)
		}
	}
	if len(list) != len(want) || t.Failed() {
		t.Errorf("%d mistakes, want %d:\n%v", len(list), len(want), err)
	}
}

func TestToolsArePrintedAsYAML(t *testing.T) {
	_, v, err := load(t, t.TempDir(), `  - {name: x, exec: ["true", "a: b"], env: [HOME]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := `tools: [{"env":["HOME"],"exec":["true","a: b"],"name":"x"}]`
	if text := string(v.AppendYAML(nil)); !strings.Contains(text, want) {
		t.Errorf("config print = %s\nwant %s in it", text, want)
	}
	if text := string(v.AppendJSON(nil)); !strings.Contains(text, `"tools": {"value": [{"env":["HOME"],`) {
		t.Errorf("config print -o json = %s", text)
	}
}
