package conformance

import (
	"strings"
	"testing"
)

// Every command that a check needs is in the configuration that is printed, and the
// MCP server is the program that was named, whatever is in its path.
func TestSourcesHaveWhatChecksNeed(t *testing.T) {
	var out strings.Builder
	if err := WriteSources(&out, `/opt/my "tools"/arcp`); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `command: ["/opt/my \"tools\"/arcp", conformance, mcp]`) || strings.Contains(out.String(), "PROGRAM") {
		t.Errorf("the MCP server is not the program:\n%s", out.String())
	}
	commands := 0
	for _, c := range allChecks() {
		for _, need := range c.Needs {
			name, ok := strings.CutPrefix(need, toolPrefix)
			if !ok || !strings.HasPrefix(name, checkTools) || strings.HasPrefix(name, mcpTools) {
				continue
			}
			commands++
			if !strings.Contains(out.String(), "name: "+name+",") && !strings.Contains(out.String(), "name: "+name+"\n") {
				t.Errorf("%s needs %s, which is not in the configuration", c.ID, name)
			}
		}
	}
	if commands == 0 {
		t.Error("no check needs a command")
	}
	s := &server{tools: map[string]bool{}}
	if why := s.missing(&Target{}, toolNeed(checkTools+"exec.echo")); !strings.Contains(why, "arcp conformance sources") {
		t.Errorf("a check is skipped because %q, which does not say what to do", why)
	}
}
