package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/conformance/interop"
)

var updatePeers = flag.Bool("update", false, "rewrite the results of peers")

// peer is a published server of another project.
type peer struct {
	name    string
	flags   []string // of `arcp conformance run`
	tools   []string // names of the demo tools that the server has
	lacks   []string // tools, capabilities and messages that the server does not have, as needs of checks
	secret  string   // key of the signed tokens that the server accepts; "": it accepts none
	path    string   // of its URL
	limit   int      // largest frame that the server reads, in bytes; 0: unknown
	varies  []string // checks whose outcome depends on the order of two events in the server
	command func(t *testing.T) []string
}

// peers have the results of their checks in testdata/peers. Each finding was compared with the words of the
// protocol.
var peers = []peer{
	{
		name: "rust", flags: []string{"--dialect", "rfc"}, path: "/",
		tools: []string{"echo", "sleep", "stubborn", "fail", "panic", "spend"},
		lacks: []string{"tool:demo.access", "tool:demo.ask", "tool:demo.choose", "tool:demo.count", "tool:demo.emit", "tool:demo.permit", "tool:demo.progress",
			"tool:demo.report", "tool:demo.stream", "tool:jobs.delete", "capability:durable_jobs", "capability:heartbeat", "capability:human_input", "capability:scheduled_jobs",
			conformance.NeedSidecar, conformance.NeedResume},
		secret:  "a-secret-of-the-issuer-0123456789",
		command: func(t *testing.T) []string { return []string{interop.RustServer(t)} },
	},
	{
		name: "python", flags: []string{"--dialect", "draft", "--library", "python"}, path: "/arcp",
		tools:  []string{"echo", "sleep", "stubborn", "emit", "progress", "fail", "access", "model", "spend", "panic"},
		lacks:  []string{"tool:check.credentials", "tool:demo.delegate", "tool:demo.permit"},
		limit:  8 << 20,
		varies: []string{"draft.resume.unread", "draft.resume.cut-again", "draft.resume.cut-chunks"}, // the end of a job and of its connection
		command: func(t *testing.T) []string {
			programs := interop.Python(t, interop.PythonNewest)
			return []string{programs.Interpreter, programs.Server}
		},
	},
}

// Tokens of the principals that the peers know.
const (
	peerToken  = "alice-token-0123456789"
	otherToken = "bob-token-0123456789"
)

// mapping writes the mapping file of the peer, which listens at address. With an empty address the file has no command
// and no URL.
func (p *peer) mapping(t *testing.T, address string) (file string) {
	t.Helper()
	tools := map[string]string{}
	for _, name := range p.tools {
		tools["demo."+name] = name
	}
	content := map[string]any{
		"tools": tools, "principal": "alice",
		"token": map[string]string{"env": "PEER_TOKEN"}, "other_token": map[string]string{"env": "PEER_OTHER_TOKEN"},
	}
	if p.limit != 0 {
		content["frame_limit"] = p.limit
	}
	if address != "" {
		content["url"] = "ws://" + address + p.path
		start := append(p.command(t), "ws", address, peerToken+"=alice", otherToken+"=bob")
		if p.secret != "" {
			start = append(start, "jwt:"+p.secret)
		}
		content["start"] = start
	}
	text, err := json.Marshal(content) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// peerReport is the part of a report that is compared.
type peerReport struct {
	Results []struct {
		ID     string             `json:"id"`
		Title  string             `json:"title"`
		Status conformance.Status `json:"status"`
		Rule   string             `json:"rule"`
		Reason string             `json:"reason"`
		Need   string             `json:"need"`
	} `json:"results"`
}

// count returns the number of results with the status.
func (r *peerReport) count(s conformance.Status) (n int) {
	for i := range r.Results {
		if r.Results[i].Status == s {
			n++
		}
	}
	return n
}

// leastJudged is the share of the checks that pass or fail, of all checks but those that are skipped for a need in
// peer.lacks.
const leastJudged = 0.7

// judged wants the report to judge the share leastJudged, and each need in peer.lacks to skip a check.
func (p *peer) judged(t *testing.T, report *peerReport) {
	t.Helper()
	applies := len(report.Results)
	for _, need := range p.lacks {
		missing := 0
		for i := range report.Results {
			if report.Results[i].Need == need {
				missing++
			}
		}
		if missing == 0 {
			t.Errorf("no check is skipped for %s: remove it from lacks", need)
		}
		applies -= missing
	}
	passed := report.count(conformance.Passed)
	judged := passed + report.count(conformance.Failed)
	share := float64(judged) / float64(applies)
	t.Logf("%d of the %d checks that apply are judged (%.0f %%)", judged, applies, 100*share)
	if share < leastJudged || passed == 0 {
		t.Errorf("%d of the %d checks that apply are judged, and %d pass: want a share of %v, and some that pass:\n%s", judged, applies, passed, leastJudged, p.lines(report))
	}
}

// check runs the checks of the levels must and should, and returns the report.
func (p *peer) check(t *testing.T, args ...string) *peerReport {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // of two minutes
	defer cancel()
	if p.secret != "" {
		key := filepath.Join(t.TempDir(), "jwt.key")
		if err := os.WriteFile(key, []byte(p.secret), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--jwt-key", key, "--jwt-issuer", "https://issuer.invalid", "--jwt-subject", "alice")
	}
	args = slices.Concat([]string{"conformance", "run", "--level", "must,should", "-o", "json", "--parallel", "8", "--timeout", "60s"}, p.flags, args)
	cmd := exec.CommandContext(ctx, binary(t), args...)
	cmd.Env = append(os.Environ(), "PEER_TOKEN="+peerToken, "PEER_OTHER_TOKEN="+otherToken)
	cmd.Stderr = captureStderr(t)
	out, err := cmd.Output()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	var report peerReport
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("the report: %v\n%.2000s", err, out)
	}
	return &report
}

// TestPeersInterop checks the published servers. Each result is the one of the list in testdata/peers: -update writes the
// lists, and each change is compared with the words of the protocol.
func TestPeersInterop(t *testing.T) {
	ofOtherPrograms(t)
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			report := p.check(t, "--mapping", p.mapping(t, freeAddr(t)))
			file := filepath.Join("internal", "e2e", "testdata", "peers", p.name+".txt")
			if *updatePeers {
				if err := os.WriteFile(file, []byte(p.lines(report)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			comparePeer(t, string(want), p.lines(report))
			p.judged(t, report)
		})
	}
}

// TestPeersStdioInterop checks the handshake of the published servers on standard input and output.
func TestPeersStdioInterop(t *testing.T) {
	ofOtherPrograms(t)
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			words := append(p.command(t), "stdio", peerToken+"=alice")
			group := map[string]string{"rust": "handshake", "python": "hello"}[p.name]
			report := p.check(t, "--mapping", p.mapping(t, ""), "--exec", "'"+strings.Join(words, "' '")+"'", "--group", group)
			if report.count(conformance.Passed) == 0 {
				t.Errorf("no check passes:\n%s", p.lines(report))
			}
		})
	}
}

// changing matches the parts of a reason that differ from run to run.
var changing = regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}|\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)|\b[0-9a-f]{32}\b|\b1\d{9}\b|127\.\d+\.\d+\.\d+:\d+|in \d+ of \d+ frames`)

// lines writes a line for each result: the status, the check, the violated rule of a failed check or the reason of a
// skipped one, and, behind a vertical bar, the observation.
func (p *peer) lines(report *peerReport) string {
	var b strings.Builder
	for i := range report.Results {
		r := &report.Results[i]
		reason, _, _ := strings.Cut(changing.ReplaceAllString(r.Reason, "…"), "\n")
		line := fmt.Sprintf("%-7s %s  ", r.Status, r.ID)
		switch {
		case slices.Contains(p.varies, r.ID):
			line = "varies  " + r.ID
		case r.Status == conformance.Failed:
			rule := changing.ReplaceAllString(cmp.Or(r.Rule, r.Title), "…")
			line += rule + observed + short(strings.TrimPrefix(reason, rule+": "))
		default:
			line += short(reason)
		}
		fmt.Fprintln(&b, strings.TrimSpace(line))
	}
	return b.String()
}

// observed is between the rule and the observation of a line.
const observed = " | "

func short(s string) string {
	const most = 300
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// comparePeer compares the status and the violated rule of each check. What was observed may depend on the order of
// frames of several jobs.
func comparePeer(t *testing.T, want, got string) {
	t.Helper()
	results := func(text string) map[string]string {
		found := map[string]string{}
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) > 1 {
				found[words[1]] = strings.TrimSpace(line)
			}
		}
		return found
	}
	before, now := results(want), results(got)
	compared := func(line string) string {
		if words := strings.Fields(line); words[0] == string(conformance.Skipped) && strings.Contains(words[1], "frames.") {
			return words[0] // whether a frame came depends on the run
		}
		s, _, _ := strings.Cut(line, observed)
		return s
	}
	for id, line := range now {
		switch {
		case before[id] == "":
			t.Errorf("new: %s", line)
		case compared(before[id]) != compared(line):
			t.Errorf("was: %s\nis:  %s", before[id], line)
		}
	}
	for id, line := range before {
		if now[id] == "" {
			t.Errorf("is gone: %s", line)
		}
	}
}
