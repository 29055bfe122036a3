package settings

import (
	"strings"
	"testing"
)

// Every mistake of a file is reported, in the order of the file, with its position.
func TestEveryMistakeHasItsPosition(t *testing.T) {
	_, err := sources{
		env: []string{"ARCP_LISTENN=x", "ARCP_RATE=many", "ARCP_DRAN=1s"},
		file: "listen: [a, b]\n" +
			"# comment\n" +
			"resume_windo: 5s\n" +
			"tools:\n" +
			"  disk.free:\n" +
			"    exec: [df]\n" +
			"drain:   soon\n" +
			"max-jobs: -1\n" +
			"tls: {cert: x, key: y}\n",
	}.load(t)
	list, ok := err.(Mistakes)
	if !ok {
		t.Fatalf("error %T %v, want Mistakes", err, err)
	}
	var got []string
	for _, m := range list {
		got = append(got, m.Error()[strings.LastIndex(m.Error(), "arcp.yaml:")+1:])
	}
	want := []string{
		`environment variable ARCP_LISTENN is not known; did you mean ARCP_LISTEN?`,
		`environment variable ARCP_DRAN is not known; did you mean ARCP_DRAIN?`,
		`ARCP_RATE: "many" is not a whole number of 0 or more`,
		`rcp.yaml:1:9: listen: one value is expected here, not a list or a group`,
		`rcp.yaml:3:1: unknown key "resume_windo"; did you mean "resume-window"?`,
		`rcp.yaml:4:1: tools: want a list, and not "disk.free" in it directly: begin each item with a dash: - name: disk.free`,
		`rcp.yaml:7:10: drain: "soon" is not a duration such as 90s, 10m or 7d`,
		`rcp.yaml:8:11: max-jobs: "-1" is not a whole number of 0 or more`,
		`rcp.yaml:9:7: unknown key "tls.cert"; did you mean "tls-cert"?`,
		`rcp.yaml:9:16: unknown key "tls.key"; did you mean "tls-key"?`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("mistakes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if m := list[len(list)-1]; m.Key != "tls.key" || m.Line != 9 || m.Column != 16 || m.Message != `unknown key "tls.key"; did you mean "tls-key"?` {
		t.Errorf("mistake %+v, want its members set", m)
	}
}

// The line of a syntax error is where the mistake is, not a line above it or the end of the file.
func TestLinesOfSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		"path: /a\n\nlisten: [\n\n":      "arcp.yaml:3:1: a value is missing: a list that begins with [ ends with ]",
		"path: /a\nb: [1,\nc: 2\n":       "arcp.yaml:2:1: the list of this line, which begins with [, lacks a comma",
		"path: /a\nb: {a: 1]\n":          "arcp.yaml:2:1: the mapping of this line, which begins with {, lacks a comma",
		"path: /a\nb: ]\n":               "arcp.yaml:2:1: a value is missing",
		"path: /a\n- b\n":                "arcp.yaml:2:1: the line does not continue its mapping",
		"path: /a\n rate: 2\n":           "arcp.yaml:2:1: a key cannot be here",
		"\tpath: /a\n":                   "arcp.yaml:1:1: a value cannot begin with this character: indent with spaces",
		"path: /a\n\trate: 2\n":          "arcp.yaml:2:1: the line begins with a tab: indent with spaces",
		"path: /a\nrate\ndemo: true\n":   "arcp.yaml:2:1: a key without a colon",
		"path: 'a\n":                     "arcp.yaml:1:1: the text that begins with a quote in this line has no closing quote",
		"path: \"/a\ndemo: true\nx: y\n": "arcp.yaml:1:1: the text that begins with a quote in this line has no closing quote",
		"tools:\n  - a\n  b: c\n":        "arcp.yaml:3:1: the line does not continue its list",
		"path: /a\nb: - c\n":             "arcp.yaml:2:1: an item cannot be here",
		"path: \"C:\\q\"\n":              "arcp.yaml:1:1: a text in \" has an escape that YAML does not know",
		"path: /a\nunix: *b\n":           "arcp.yaml:2:1: unknown anchor 'b' referenced",
		"- path\n":                       "arcp.yaml:1:1: want settings and values",
		"path: /a\nrate: 1\npath: /b\n":  "arcp.yaml:3:1: path: the key is also in line 1: remove one of them",
		"tools: [{name: a, name: b}]":    "arcp.yaml:1:19: tools[0].name: the key is also in line 1",
		"1: 2\n":                         `arcp.yaml:1:1: unknown key "1"`,
	} {
		_, err := sources{file: text}.load(t)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

// A file with anchors, merged mappings or nothing in it is read as before.
func TestOtherFormsOfAFile(t *testing.T) {
	for _, text := range []string{"# nothing\n", "---\n", "null\n", "{}\n", "---\npath: /x\n", "path: &p /x\nunix: *p\n"} {
		v, err := sources{file: text}.load(t)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if strings.Contains(text, "/x") && v.Text("path") != "/x" {
			t.Errorf("%q: path %s", text, v.Text("path"))
		}
	}
}
