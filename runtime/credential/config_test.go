package credential

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func parse(t *testing.T, text string) ([]Config, error) {
	t.Helper()
	var raw any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		t.Fatal(err)
	}
	return ParseConfigs(raw)
}

func TestParseConfigs(t *testing.T) {
	list, err := parse(t, `
- {name: pool, kind: static, for: [llm.*], file: /etc/arcp/pool, endpoint: "https://llm.example/v1", profile: openai}
- {name: gw, kind: http, for: ["*"], url: "https://gw.example/keys", token-file: /etc/arcp/token}
- {name: own, kind: exec, for: [own.tool], command: [/usr/bin/issue, --fast]}
`)
	want := []Config{
		{Name: "pool", Kind: KindStatic, For: []string{"llm.*"}, File: "/etc/arcp/pool", Endpoint: "https://llm.example/v1", Profile: "openai"},
		{Name: "gw", Kind: KindHTTP, For: []string{"*"}, URL: "https://gw.example/keys", TokenFile: "/etc/arcp/token"},
		{Name: "own", Kind: KindExec, For: []string{"own.tool"}, Command: []string{"/usr/bin/issue", "--fast"}},
	}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("ParseConfigs = %+v, %v", list, err)
	}
	for _, none := range []any{nil, "", []any{}} {
		if list, err := ParseConfigs(none); len(list) != 0 || err != nil {
			t.Errorf("ParseConfigs(%v) = %v, %v", none, list, err)
		}
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`name: x`:                             "provisioners: want a list",
		`[x]`:                                 "provisioners[0]: want a mapping",
		`[{name: a, nmae: b}]`:                `provisioners[0]: unknown key "nmae"`,
		`[{name: 1}]`:                         "provisioners[0].name: want a text",
		`[{name: a, for: x}]`:                 "provisioners[0].for: want a list",
		`[{name: a, for: [1]}]`:               "provisioners[0].for: want a list of texts",
		`[{token_file: a, token-file: b}]`:    "it is there twice",
		`[{kind: http}]`:                      "provisioners[0].name: want",
		`[{name: A}]`:                         "provisioners[0].name: want",
		`[{name: a/b}]`:                       "provisioners[0].name: want",
		`[{name: a}]`:                         "provisioners[0].for: name the tools",
		`[{name: a, for: ["[a"]}]`:            "provisioners[0].for: a pattern",
		`[{name: a, for: [x], kind: vault}]`:  "provisioners[0].kind: want static, http or exec",
		`[{name: a, for: [x], kind: static}]`: "provisioners[0].file: kind static needs it",
		`[{name: a, for: [x], kind: static, file: f}]`:                                                     "provisioners[0].endpoint: kind static needs it",
		`[{name: a, for: [x], kind: static, file: f, url: u}]`:                                             "provisioners[0].url: kind static has no use for it",
		`[{name: a, for: [x], kind: exec, command: [x]}]`:                                                  "provisioners[0].command: the program needs its absolute path",
		`[{name: a, for: [x], kind: http, url: u}]`:                                                        "provisioners[0].token_file: kind http needs it",
		`[{name: a, for: [x], kind: http, token_file: f, url: u}]`:                                         "provisioners[0].url: want a URL",
		`[{name: a, for: [x], kind: http, token_file: f, url: "http://gw.example"}]`:                       "http is for this host only",
		`[{name: a, for: [x], kind: http, token_file: f, url: "http://127.0.0.1.evil.com"}]`:               "http is for this host only",
		`[{name: a, for: [x], kind: http, token_file: f, url: "https://u:p@gw.example"}]`:                  "password does not belong",
		`[{name: a, for: [x], kind: http, token_file: f, url: "https://gw.example?k=1"}]`:                  "query",
		`[{name: a, for: [x], kind: http, token_file: f, url: "ftp://gw.example"}]`:                        "want https",
		`[{name: a, for: [x], kind: exec, command: [/x]}, {name: a, for: [x], kind: exec, command: [/x]}]`: "provisioners[1].name: provisioners[0] has it already",
	} {
		if _, err := parse(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestOpen(t *testing.T) {
	for _, c := range []Config{
		{Name: "a", Kind: KindStatic, For: []string{"llm.*"}, File: private(t, "sk-00000001"), Endpoint: "https://llm.example"},
		{Name: "a", Kind: KindHTTP, For: []string{"llm.*"}, URL: "http://localhost:1/keys", TokenFile: private(t, "sk-00000001")},
		{Name: "a", Kind: KindExec, For: []string{"llm.*"}, Command: []string{"/bin/true"}},
	} {
		s, err := c.Open()
		if err != nil || s.check() != nil || !s.serves("llm.ask@1") || s.serves("demo.echo") {
			t.Errorf("%s: the source is %+v, %v; want one that serves llm.* only", c.Kind, s, err)
		}
		c.File, c.TokenFile, c.Command = c.File+"x", c.TokenFile+"x", nil
		if _, err := c.Open(); err == nil {
			t.Errorf("%s: opened without what it needs", c.Kind)
		}
	}
}
