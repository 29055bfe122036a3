package conformance

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// writeMapping writes a mapping file with tokens in other files beside it.
func writeMapping(t *testing.T, text string) (file string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"mapping.yaml": text, "token": "file-token\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "mapping.yaml")
}

func testEnv(name string) string { return map[string]string{"OTHER": "env-token"}[name] }

func TestReadMapping(t *testing.T) {
	m, err := ReadMapping(writeMapping(t, `
tools: {demo.echo: their.echo, demo.sleep: slow, demo.echo@0.9.0: their.echo@old}
known:
  - {check: handshake.accepted, reason: they answer late}
url: ws://127.0.0.1:9/x
principal: alice
token: {file: token}
other_token: {env: OTHER}
start: [their-server, "--port", "9"]
restart: start
frame_limit: 1000
ack_window: 64
`), testEnv)
	if err != nil {
		t.Fatal(err)
	}
	var tg Target
	m.Configure(&tg)
	if tg.Token != "file-token" || tg.OtherToken != "env-token" || tg.ObserverToken != "" || tg.Principal != "alice" ||
		tg.FrameLimit != 1000 || tg.AckWindow != 64 || tg.Mapping != m {
		t.Errorf("the target is %+v", tg)
	}
	if !slices.Equal(m.Start, []string{"their-server", "--port", "9"}) || !m.Rerun || m.Restart != nil || m.URL != "ws://127.0.0.1:9/x" {
		t.Errorf("start %q, again %t, restart %q, url %q", m.Start, m.Rerun, m.Restart, m.URL)
	}
	if want := map[string]string{"demo.echo": "their.echo", "demo.sleep": "slow", "demo.echo@0.9.0": "their.echo@old"}; !maps.Equal(m.Tools, want) {
		t.Errorf("tools %v, want %v", m.Tools, want)
	}
	if len(m.Known) != 1 || m.Known[0] != (Deviation{"handshake.accepted", "they answer late"}) {
		t.Errorf("known %v", m.Known)
	}
}

// A setting that is given takes precedence over the file, and a limit that neither has is unknown.
func TestMappingConfigures(t *testing.T) {
	tg := Target{Token: "mine", AckWindow: 7}
	(&Mapping{Token: "file", OtherToken: "file", AckWindow: 8}).Configure(&tg)
	if tg.Token != "mine" || tg.OtherToken != "file" || tg.AckWindow != 7 || tg.FrameLimit != 0 {
		t.Errorf("the target is %+v", tg)
	}
}

func TestMappingMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"url: \"x\nstart: [y]\n": `mapping.yaml:1:1: the text that begins with a quote in this line has no closing quote`,
		"tool: {demo.echo: x}":   `:1:1: unknown key "tool": did you mean "tools"?`,
		"- a":                    `:1:1: want a mapping of keys to values`,
		"tools:\n  demo.eco: x":  `:2:3: tools: no check calls a tool "demo.eco": did you mean "demo.echo"?`,
		"tools:\n  demo.echo: x\n  demo.sleep: x":      `:3:15: tools.demo.sleep: x is also named for demo.echo: an answer could not be told apart`,
		"tools: {demo.echo: a b}":                      `:1:20: tools.demo.echo: "a b" is no name of a tool`,
		"tools: {demo.echo: x@1}":                      `:1:20: tools.demo.echo: give both names a version, or none`,
		"tools: {demo.echo: }":                         `:1:20: tools.demo.echo: want a text`,
		"tools: [demo.echo]":                           `:1:8: tools: want a mapping of keys to values`,
		"token: abc":                                   `:1:8: token: want {env: NAME} or {file: PATH}: a token is not written into this file`,
		"token: {env: A, file: B}":                     `:1:8: token: want one of {env: NAME} and {file: PATH}`,
		"token: {env: NOT_SET}":                        `:1:8: token: the environment variable NOT_SET is not set`,
		"token: {file: missing}":                       `missing: no such file or directory`,
		"token: {file: empty}":                         `empty is empty`,
		"start: serve --now":                           `:1:8: start: want a list with the program and its arguments`,
		"start: []":                                    `:1:8: start: want a list that is not empty`,
		"start: [\"\"]":                                `:1:8: start: the program has no name`,
		"start: [x, [y]]":                              `:1:12: start[1]: want a text`,
		"restart: again":                               `:1:10: restart: want a list with the program and its arguments, or the word start`,
		"restart: start":                               `:1:1: restart: there is no command to start again: give ` + "`start` too",
		"url: http://x":                                `:1:6: url: "http://x" is no ws://, wss:// or unix:// URL`,
		"frame_limit: 0":                               `:1:14: frame_limit: want a number above 0`,
		"ack_window: many":                             `:1:13: ack_window: want a number above 0`,
		"known: {check: x}":                            `:1:8: known: want a list that is not empty`,
		"known: [{check: jobs.life}]":                  `:1:9: known[0]: want {check: ID, reason: TEXT}`,
		"known: [{check: jobs.lif, reason: x}]":        `:1:9: known[0]: there is no check "jobs.lif": did you mean "jobs.life"?`,
		"known: [{check: jobs.life, because: x}]":      `:1:28: known[0]: unknown key "because": give one of check, reason`,
		"principal: a\nurl: ws://x\nprincipal: b":      `:3:1: key "principal" is also in line 1: remove one of them`,
		"principal: a\ntools: {demo.echo: x\nknown: [": `mapping.yaml:2:1: the mapping of this line`,
	} {
		_, err := ReadMapping(writeMapping(t, text), testEnv)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n  %v, want %s", text, err, want)
		}
	}
}

// Every mistake is reported, each on its line.
func TestMappingReportsEveryMistake(t *testing.T) {
	_, err := ReadMapping(writeMapping(t, "url: x\nack_window: -1\ntools: {no.such: a}\nknown:\n  - {check: jobs.life, reason: a}\n  - {check: jobs.life, reason: b}\n"), testEnv)
	if err == nil {
		t.Fatal("the file has no mistake")
	}
	for i, line := range strings.Split(err.Error(), "\n") {
		want := []string{":1:6: url", ":2:13: ack_window", ":3:9: tools", ":6:5: known[1]: jobs.life is in the list twice", "more"}[min(i, 4)]
		if !strings.Contains(line, want) {
			t.Errorf("mistake %d is %q, want %q", i, line, want)
		}
	}
}

// Only names of tools are replaced, and all other bytes remain.
func TestRenameTools(t *testing.T) {
	m := &Mapping{Tools: map[string]string{"demo.echo": "their.echo", "demo.sleep": "slow \"x\"", "demo.echo@0.9.0": "old@1"}}
	for text, want := range map[string]string{
		`{"payload": {"tool" : "demo.echo","arguments":{ "a":"demo.echo"}}}`: `{"payload": {"tool" : "their.echo","arguments":{ "a":"demo.echo"}}}`,
		`{"agent":"demo.echo@1.0.0"}`:                                        `{"agent":"their.echo@1.0.0"}`,
		`{"agent":"demo.echo@0.9.0"}`:                                        `{"agent":"old@1"}`,
		`{"agent":"demo.echoo","tool":"demo"}`:                               `{"agent":"demo.echoo","tool":"demo"}`,
		`{"tools":["demo.echo",["demo.sleep"],1,"x"]}`:                       `{"tools":["their.echo",["slow \"x\""],1,"x"]}`,
		`{"agents":[{"name":"demo.echo","default":"1"}]}`:                    `{"agents":[{"name":"their.echo","default":"1"}]}`,
		`{"tool":"d\u0065mo.echo","n":1E400,"u":"\ud800"}`:                   `{"tool":"their.echo","n":1E400,"u":"\ud800"}`,
		`{"tool":{"x":"demo.echo"},"agent":["a",{}],"tool":"demo.echo"}`:     `{"tool":{"x":"demo.echo"},"agent":["a",{}],"tool":"their.echo"}`,
		`{"tool":"demo.echo","x":`:                                           `{"tool":"their.echo","x":`,
		`demo.echo`:                                                          `demo.echo`,
		`"demo.echo"`:                                                        `"demo.echo"`,
		``:                                                                   ``,
	} {
		got := string(m.sent([]byte(text)))
		if got != want {
			t.Errorf("%s\n  sent as  %s\n  want     %s", text, got, want)
		}
		if back := string(m.received([]byte(got))); back != strings.ReplaceAll(text, `\u0065`, "e") {
			t.Errorf("%s\n  received as %s, want %s", got, back, text)
		}
	}
	var none *Mapping
	if text := []byte(`{"tool":"demo.echo"}`); string(none.sent(text)) != string(text) || string(none.received(text)) != string(text) {
		t.Error("no mapping replaces a name")
	}
}

// renamed is a connection to a server that calls its tools by other names.
type renamed struct {
	transport.Conn
	server *Mapping // from the names of the server to those of the fake
}

func (c renamed) Read() ([]byte, error) {
	text, err := c.Conn.Read()
	return c.server.sent(text), err
}

func (c renamed) Write(frame []byte) error {
	hidden := map[string]string{}
	for name := range c.server.Tools {
		hidden[name] = "no.such.tool"
	}
	return c.Conn.Write(c.server.received(renameTools(frame, hidden)))
}

// A server that calls its tools by other names passes the same checks with a mapping, and the
// transcript has the names that were sent.
func TestMappedTarget(t *testing.T) {
	tools := map[string]string{"demo.echo": "their.echo", "demo.sleep": "their.sleep"}
	target := fakeTarget(t)
	dial := target.Dial
	target.Dial = func(ctx context.Context) (transport.Conn, error) {
		conn, err := dial(ctx)
		return renamed{conn, &Mapping{Tools: tools}}, err
	}
	fails := testCheck("x.fails", func(t *checkRun) {
		c := t.Open()
		c.Send(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "demo.echo"})
		f := c.Expect("a submit is accepted", arcp.JobAccepted, "")
		t.Failf("agent %s", payload[arcp.JobAcceptedPayload](t, f).Agent)
	}, toolNeed("demo.echo"))
	checks := []Check{fails, testCheck("x.sleep", func(*checkRun) {}, toolNeed("demo.sleep")), testCheck("x.none", func(*checkRun) {}, toolNeed("demo.panic"))}

	for i, res := range runChecks(t, target, checks...) {
		if res.Status != Skipped || !strings.Contains(res.Reason, "the server has no tool demo.") || !strings.Contains(res.Reason, "in `tools` of the mapping file") {
			t.Errorf("%d without a mapping: %s %s", i, res.Status, res.Reason)
		}
		if res.Need != checks[i].Needs[0] {
			t.Errorf("%d without a mapping: need is %q, want %q", i, res.Need, checks[i].Needs[0])
		}
	}
	target.Mapping = &Mapping{Tools: tools}
	results := runChecks(t, target, checks...)
	if results[0].Status != Failed || results[0].Reason != "agent demo.echo@1.0.0" || results[1].Status != Passed || results[2].Status != Skipped {
		t.Errorf("with a mapping: %+v", results)
	}
	var transcript strings.Builder
	for _, e := range results[0].Transcript {
		transcript.WriteString(e.Text + "\n")
	}
	if text := transcript.String(); !strings.Contains(text, `"their.echo"`) || !strings.Contains(text, "their.echo@") || strings.Contains(text, "demo.echo") {
		t.Errorf("the transcript does not have the names that were sent:\n%s", text)
	}
	target.Mapping = &Mapping{Tools: map[string]string{"demo.echo": "gone"}}
	if res := runChecks(t, target, checks...)[0]; res.Reason != "the server has no tool gone, which the mapping file names for demo.echo" {
		t.Errorf("a tool that the server does not have: %s %s", res.Status, res.Reason)
	}
}

// A known deviation does not count as a failure, and a passed one is stale.
func TestKnownDeviations(t *testing.T) {
	target := fakeTarget(t)
	target.Mapping = &Mapping{Known: []Deviation{{"x.fails", "it is old"}, {"x.passes", "it was old"}, {"x.skips", "no tool"}}}
	results := runChecks(t, target,
		testCheck("x.fails", func(t *checkRun) { t.Failf("broken") }), testCheck("x.passes", func(*checkRun) {}),
		testCheck("x.skips", func(t *checkRun) { t.Skipf("no tool") }), testCheck("x.other", func(t *checkRun) { t.Failf("broken") }))
	for i, want := range []struct {
		status Status
		reason string
	}{{KnownDeviation, "known: it is old\nbroken"}, {Stale, "the check passes: remove it from `known` in the mapping file"}, {Skipped, "no tool"}, {Failed, "broken"}} {
		if got := results[i]; got.Status != want.status || got.Reason != want.reason {
			t.Errorf("%s: %s %q, want %s %q", got.ID, got.Status, got.Reason, want.status, want.reason)
		}
	}
	report := Report{Results: results}
	if n := len(report.Failures()); n != 1 {
		t.Errorf("%d checks failed, want one", n)
	}
	var text strings.Builder
	if err := WriteText(&text, &report, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "0 passed, 1 failed, 1 skipped, 1 known to fail, 1 pass that were known to fail"; !strings.Contains(text.String(), want) {
		t.Errorf("the report has no %q:\n%s", want, text.String())
	}
}

// The checks of frames can be known deviations too.
func TestKnownDeviationOfFrames(t *testing.T) {
	target := fakeTarget(t)
	target.Mapping = &Mapping{Known: []Deviation{{"frames.session", "it was broken"}}}
	report, err := Run(t.Context(), target, Options{IDs: []string{"handshake.accepted", "frames.session"}, Levels: Levels})
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range report.Results {
		if res.ID == "frames.session" && res.Status != Stale {
			t.Errorf("%s: %s %s, want stale", res.ID, res.Status, res.Reason)
		}
	}
	if report.Count(Stale) != 1 {
		t.Errorf("%d checks are stale, want one: %+v", report.Count(Stale), report.Results)
	}
}

// A check that is skipped says what the missing tool does.
func TestToolUses(t *testing.T) {
	for _, c := range allChecks() {
		for _, need := range c.Needs {
			name, ok := strings.CutPrefix(need, toolPrefix)
			if ok && c.Level != House && strings.HasPrefix(name, "demo.") && toolUses[name] == "" {
				t.Errorf("%s needs %s, and nothing says what the tool does", c.ID, name)
			}
		}
	}
}

// The reason of a skipped check says what helps.
func TestMissingTool(t *testing.T) {
	m := &Mapping{Tools: map[string]string{"demo.echo": "echo"}}
	for name, want := range map[string]string{
		"demo.echo":         "the server has no tool echo, which the mapping file names for demo.echo",
		"demo.panic":        "the server has no tool demo.panic: name in `tools` of the mapping file one that crashes",
		"check.exec.echo":   "the server has no tool check.exec.echo: start the server with the configuration that `arcp conformance sources` prints",
		"tools.overlay":     "the server has no tool tools.overlay",
		"check.credentials": "the server has no tool check.credentials: start the server with the configuration that `arcp conformance sources` prints, or name in `tools` of the mapping file one that gets credentials of its job, and runs until it is cancelled",
	} {
		if got := m.missingTool(name); got != want {
			t.Errorf("missingTool(%s) = %q, want %q", name, got, want)
		}
	}
}
