package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block returns the first fenced block of a language after a heading.
func block(t *testing.T, doc []byte, heading, language string) string {
	t.Helper()
	_, after, ok := strings.Cut(string(doc), "\n"+heading+"\n")
	_, begin, fenced := strings.Cut(after, "```"+language+"\n")
	text, _, closed := strings.Cut(begin, "```")
	if !ok || !fenced || !closed {
		t.Fatalf("no block of %s after %q", language, heading)
	}
	return text
}

var sayings = regexp.MustCompile("(?s)```sh\n(arcp [^\n]*)\n```")

// The README's commands, typed in order, add commands as tools, and approve a call of one.
func TestReadmeAddsTools(t *testing.T) {
	doc, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const heading = "## Add a tool"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "arcp.yaml"), []byte(block(t, doc, heading, "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), heading)
	said := sayings.FindAllStringSubmatch(section, 2)
	if len(said) != 2 || said[0][1] != "arcp dev" || !strings.HasPrefix(said[1][1], "arcp invoke ") {
		t.Fatalf("commands of the section: %q", said)
	}
	bin := binary(t)
	run := func(line string, env ...string) *exec.Cmd {
		cmd := exec.Command(bin, strings.Fields(line)[1:]...)
		cmd.Dir = dir
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
		return cmd
	}
	server := run(said[0][1], "ARCP_LISTEN=127.0.0.1:0", "ARCP_ADMIN=127.0.0.1:0")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(os.Interrupt) // it may have failed
		_ = server.Wait()                       // so has the process's last output
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 {
		t.Fatalf("arcp dev said %q, %v", line, err)
	}
	url := "ARCP_URL=" + words[1]
	result, err := run(said[1][1], url).Output()
	if err != nil || !regexp.MustCompile(`^\d+\n$`).Match(result) {
		t.Errorf("%s: %q, %v, want a number", said[1][1], result, err)
	}
	approveCall(t, string(doc), func(line string) *exec.Cmd { return run(line, url) })
}

// approveCall runs the commands of the section about approvals.
func approveCall(t *testing.T, doc string, run func(line string) *exec.Cmd) {
	t.Helper()
	_, section, _ := strings.Cut(doc, "## Approve something")
	lines := regexp.MustCompile(`(?m)^\$ (arcp .*)$`).FindAllStringSubmatch(section, 3)
	if len(lines) != 3 || !strings.HasPrefix(lines[1][1], "arcp approvals ls") || !strings.HasPrefix(lines[2][1], "arcp approvals approve ") {
		t.Fatalf("commands of the section: %q", lines)
	}
	invoke := run(strings.ReplaceAll(lines[0][1], "'", ""))
	var result strings.Builder
	invoke.Stdout = &result
	stderr, err := invoke.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := invoke.Start(); err != nil {
		t.Fatal(err)
	}
	var question string
	events := bufio.NewScanner(stderr)
	for question == "" && events.Scan() {
		_, question, _ = strings.Cut(events.Text(), "arcp approvals approve ")
	}
	listed, err := run(lines[1][1]).Output()
	if err != nil || question == "" || !strings.Contains(string(listed), question) {
		t.Errorf("%s: %q, %v, want %q in the list", lines[1][1], listed, err, question)
	}
	if said, err := run("arcp approvals approve " + question).Output(); err != nil || string(said) != question+" is resolved: approve\n" {
		t.Errorf("approve: %q, %v", said, err)
	}
	for events.Scan() { // until the job has ended
	}
	if err := invoke.Wait(); err != nil || result.String() != `{"version":"7"}`+"\n" {
		t.Errorf("%s: %q, %v", lines[0][1], result.String(), err)
	}
}

// Jobs' commands are processes of the unit. With systemd's default they would be stopped
// together with the server, and a drain would be impossible.
func TestUnitLetsJobsEnd(t *testing.T) {
	unit, err := os.ReadFile("deploy/arcp.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Type=notify", "KillMode=mixed", "TimeoutStopSec=60"} { // twice the default of --drain
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("deploy/arcp.service has no line %s", line)
		}
	}
}
