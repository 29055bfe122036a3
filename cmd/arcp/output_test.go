package main

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A value of JSON is the same in YAML, in the same order. Texts that look like other values stay texts.
func TestYAMLEqualsJSON(t *testing.T) {
	for raw, want := range map[string]string{
		`{"z":1,"a":[true,null,"x"],"e":{},"l":[]}`: "z: 1\na:\n  - true\n  - null\n  - x\ne: {}\nl: []\n",
		`{"a":"true","b":"1","c":"1e3","d":"~"}`:    "a: \"true\"\nb: \"1\"\nc: \"1e3\"\nd: \"~\"\n",
		`{"big":12345678901234567890,"f":1.5e-7}`:   "big: 12345678901234567890\nf: 1.5e-7\n",
		`"\ud83d\ude00\u0007"`:                      "\"\\U0001F600\\a\"\n",
	} {
		got, err := yamlOf([]byte(raw))
		if err != nil || string(got) != want {
			t.Errorf("%s is printed as\n%s%v, want\n%s", raw, got, err, want)
		}
		var back any
		if err := yaml.Unmarshal(got, &back); err != nil {
			t.Errorf("%s is no YAML: %v", got, err)
		}
	}
	if got, err := yamlOf([]byte(`{"a":`)); err == nil {
		t.Errorf("half an object is printed as %s", got)
	}
}

func TestOutputFormats(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	first, second := p.detach("demo.echo", `{"n":1}`), p.detach("demo.echo", `{"n":2}`)
	p.cli("jobs", "wait", first)
	p.cli("jobs", "wait", second)
	wantExactly := func(want string, args ...string) {
		t.Helper()
		if o := p.cli(args...); o.code != exitOK || o.stdout != want {
			t.Errorf("%s: got %v\nwant %s", strings.Join(args, " "), o, want)
		}
	}
	wantExactly(second+"\n"+first+"\n", "jobs", "ls", "-o", "name")
	wantExactly(first+"\n"+second+"\n", "jobs", "ls", "-o", "name", "--oldest-first")
	wantExactly(first+"\n", "jobs", "show", first, "-o", "name")
	wantExactly("\"n\": 1\n", "jobs", "wait", first, "-o", "yaml")
	wantExactly(first+"\n", "jobs", "wait", first, "-o", "name")
	watched := p.cli("jobs", "watch", first, "-o", "yaml")
	wantOutcome(t, "a result in YAML and events as JSON lines", watched, exitOK, "\"n\": 1\n", `{"arcp":"`)
	lines := strings.Split(strings.TrimSpace(p.cli("jobs", "ls", "-o", "jsonl").stdout), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"job_id":"`+second+`"`) || !strings.HasPrefix(lines[1], `{"job_id":"`+first+`"`) {
		t.Errorf("jsonl is %q, want a line for each of %s and %s", lines, second, first)
	}
	var list struct {
		Items []struct {
			JobID string `yaml:"job_id"`
		}
	}
	text := p.cli("jobs", "ls", "-o", "yaml").stdout
	if err := yaml.Unmarshal([]byte(text), &list); err != nil || len(list.Items) != 2 || list.Items[1].JobID != first {
		t.Errorf("the list in YAML is %v, %v\n%s", list, err, text)
	}
	wantRefusal(t, p.cli("jobs", "ls", "-o", "xml"), exitUsage, `--output: "xml" is not one of text, json, jsonl, yaml, name`)
	wantRefusal(t, p.cli("doctor", "-o", "name"), exitUsage, `--output: "name" is not one of text, json, jsonl, yaml`)
	var config map[string]any
	sources := cli(t, "conformance", "sources", "-o", "json").stdout
	if err := yaml.Unmarshal([]byte(sources), &config); err != nil || !strings.HasPrefix(sources, `{"provisioners":[`) {
		t.Errorf("the configuration in JSON is %s, %v", sources, err)
	}
}
