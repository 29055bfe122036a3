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

// The README's commands, typed in order, add a shell command as a tool.
func TestReadmeAddsAShellCommand(t *testing.T) {
	doc, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const heading = "### Add a shell command"
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
		cmd.Stderr = captureStderr(t)
		return cmd
	}
	server := run(said[0][1], "ARCP_LISTEN=127.0.0.1:0", "ARCP_ADMIN=127.0.0.1:0")
	server.Stderr = nil // its banner
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
	client := run(said[1][1], "ARCP_URL="+words[1])
	result, err := client.Output()
	if err != nil || !regexp.MustCompile(`^\d+\n$`).Match(result) {
		t.Errorf("%s: %q, %v, want a number", said[1][1], result, err)
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
