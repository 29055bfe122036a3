package conformance

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// The source of each check is the lines of its file, from its header to the next one.
func TestSourcesAreInTheFiles(t *testing.T) {
	for _, c := range allChecks() {
		src := c.Source()
		if src.Frames {
			if src.Script != "" || src.Function != "" {
				t.Errorf("%s is a rule of frames with a script or a function: %+v", c.ID, src)
			}
			continue
		}
		if (src.Script == "") == (src.Function == "") {
			t.Errorf("%s has a script or a function, not both: %+v", c.ID, src)
			continue
		}
		if src.Function != "" {
			continue
		}
		file, err := fs.ReadFile(scripts, src.File)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Split(string(file), "\n")[src.Line-1:], "\n")
		if !strings.HasPrefix(text, src.Script) || !strings.HasPrefix(src.Script, "== ") || strings.Count(src.Script, "\n== ") != 0 || strings.Contains(src.Script, "\ndef ") {
			t.Errorf("%s: %s:%d does not begin with the source of the check:\n%s", c.ID, src.File, src.Line, src.Script)
		}
		if !strings.Contains(src.Script, c.Title) || strings.HasSuffix(src.Script, "\n") {
			t.Errorf("%s: the source has the title and no empty line at its end:\n%s", c.ID, src.Script)
		}
	}
}

// Macros of macros are shown, each once.
func TestSourceHasMacros(t *testing.T) {
	for _, d := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
		macros := 0
		for _, c := range Checks(d) {
			seen := map[string]bool{}
			for _, m := range c.Source().Macros {
				if macros++; seen[m.Name] || !strings.HasPrefix(m.Text, "def ") || m.Line == 0 {
					t.Errorf("%s: macro %+v", c.ID, m)
				}
				seen[m.Name] = true
			}
		}
		if macros < 50 {
			t.Errorf("only %d macros in the dialect %s", macros, d)
		}
	}
	c, _ := FindCheck("cancel.unfound")
	if _, found := FindCheck("cancel.nothing"); found || c.ID != "" {
		t.Errorf("FindCheck finds %q, want no check", c.ID)
	}
}

func TestFunctionsOfChecks(t *testing.T) {
	for id, want := range map[string]string{
		"takeover.race":                        "takeoverRace",
		"catalogue.direction.session.accepted": "generate",
		"unimplemented.job.schedule":           "unimplementedChecks",
	} {
		c, _ := FindCheck(id)
		if got := c.Source().Function; got != want {
			t.Errorf("%s is in %s, want %s", id, got, want)
		}
	}
}

func TestSectionMatches(t *testing.T) {
	for _, c := range []struct {
		section, wanted string
		want            bool
	}{
		{"RFC §6.4", "6.4", true},
		{"RFC §6.4", "§6.4", true},
		{"RFC §6.4", "RFC §6.4", true},
		{"RFC §6.4", "rfc 6.4", true},
		{"RFC §6.4.1", "6.4", true},
		{"RFC §6.41", "6.4", false},
		{"RFC §6.4", "6", true},
		{"RFC §6.4", "6.4.1", false},
		{"SPEC §6.4", "RFC §6.4", false},
		{"RFC §6.4", "RFC", true},
		{"ARCP 1.1 §7.4", "ARCP 1.1", true},
		{"ARCP 1.1 §7.4", "ARCP 1.1 §7", true},
		{"ARCP 1.1 §7.4", "ARCP 1.1 §8", false},
		{"RFC §5, §6.4", "6.4", true},
		{"RFC §6.4", "", false},
	} {
		if got := SectionMatches(c.section, c.wanted); got != c.want {
			t.Errorf("SectionMatches(%q, %q) = %v, want %v", c.section, c.wanted, got, c.want)
		}
	}
}
