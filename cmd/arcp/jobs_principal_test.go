package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The list of a principal names the principal. An empty one says whether the principal is there at all.
func TestJobsOfAPrincipal(t *testing.T) {
	t.Parallel()
	p := serve(t, "--data", ":memory:", "--demo", "--auth-file", write(t, filepath.Join(t.TempDir(), "auth.yaml"), `principals:
  - {name: alice, tokens: ["`+hashOf("secret")+`"]}
  - {name: root, tokens: ["`+hashOf("root")+`"], roles: [admin]}
  - {name: olga, tokens: ["`+hashOf("olga")+`"], roles: [observer], sees: ["bob"]}
`))
	as := func(token string, args ...string) outcome {
		return cli(t, append(args, "--url", p.url, "--token", token)...)
	}
	job := p.detach("demo.echo", `{}`)
	p.cli("jobs", "wait", job)
	o := as("root", "jobs", "ls", "--principal", "alice")
	if row := regexp.MustCompile(`(?m)^JOB .* PRINCIPAL\n` + job + ` .* alice$`); o.code != exitOK || !row.MatchString(o.stdout) || o.stderr != "" {
		t.Errorf("jobs of alice: %v, want the column PRINCIPAL and no hint", o)
	}
	if o := as("root", "jobs", "ls"); strings.Contains(o.stdout, "PRINCIPAL") {
		t.Errorf("own jobs: %v, want no column PRINCIPAL", o)
	}
	for _, name := range []string{"nosuch", "*", "alice,bob"} {
		wantOutcome(t, name, as("root", "jobs", "ls", "--principal", name, "-o", "json"), exitOK, `{"items":[]}`,
			"principal "+name+" has no jobs and no sessions; principals with sessions: ")
	}
	if o := as("root", "jobs", "ls", "--principal", "root"); o.stderr != "" {
		t.Errorf("a principal with a session and without jobs: %v, want no hint", o)
	}
	if o := as("root", "jobs", "ls", "--principal", "alice", "--status", "failed"); o.stderr != "" {
		t.Errorf("a principal whose jobs do not match: %v, want no hint", o)
	}
	wantOutcome(t, "an observer", as("olga", "jobs", "ls", "--principal", "bob"), exitOK, "", "no jobs of principal bob\n")

	words := cli(t, "__complete", "jobs", "ls", "--url", p.url, "--token", "root", "--principal", "ro").stdout
	if !strings.HasPrefix(words, "root\n") {
		t.Errorf("--principal ro completes to %q, want root", words)
	}
}
