package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// leases takes a lease and returns its id.
func (p *process) leases(args string) string {
	p.t.Helper()
	o := p.cli("invoke", "registry.lease", args)
	wantOutcome(p.t, "take a lease", o, exitOK, `"state":"active"`, "")
	_, rest, _ := strings.Cut(o.stdout, `"lease_id":"`)
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		p.t.Fatalf("%s is no lease", o.stdout)
	}
	return id
}

func TestResourcesAreListedAndReaped(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantOutcome(t, "none", p.cli("resources", "ls"), exitOK, "LEASE", "")
	p.leases(`{"provider":"cloud","resource_type":"vm","external_id":"vm-1","lease_duration_seconds":3600}`)
	browser := p.leases(`{"provider":"cloud","resource_type":"browser_session","external_id":"b-2","lease_duration_seconds":60,` +
		`"display_name":"the\nbrowser","metadata":{"tab":1},"cleanup_tool":"demo.echo"}`)
	golden(t, "resources-ls.txt", scrub(p.cli("resources", "ls").stdout))
	golden(t, "resources-ls.json", scrub(p.cli("resources", "ls", "-o", "json").stdout))
	wantOutcome(t, "page by page", p.cli("resources", "ls", "--limit", "1"), exitOK, browser, "--limit 0 lists all")
	if all := p.cli("resources", "ls", "--limit", "1", "--all").stdout; strings.Count(all, "\n") != 3 {
		t.Errorf("all leases are\n%swant two and a head", all)
	}
	wantOutcome(t, "nothing is over", p.cli("resources", "reap", "--dry-run", "-o", "json"), exitOK,
		`{"claimed":0,"released":0,"failed":0,"skipped":0,"dry_run":true}`, "")
	golden(t, "resources-reap.txt", p.cli("resources", "reap").stdout)

	// Whether this command or the server itself comes first, it is cleaned up.
	sandbox := p.leases(`{"provider":"cloud","resource_type":"sandbox","external_id":"s","lease_duration_seconds":0,` +
		`"cleanup_tool":"demo.echo"}`)
	p.leases(`{"provider":"cloud","resource_type":"sandbox","external_id":"lost","lease_duration_seconds":0}`)
	wantOutcome(t, "say what is over", p.cli("resources", "reap", "--dry-run"), exitOK, "LAST ERROR", "")
	wantOutcome(t, "clean up", p.cli("resources", "reap"), exitOK, "claimed ", "")
	p.eventually("it is gone", sandbox, "resources", "ls", "--state", "released")
	p.eventually("or says why not", "lost", "resources", "ls", "--state", "cleanup_failed")
	golden(t, "resources-ls-failed.txt", scrub(p.cli("resources", "ls", "--state", "cleanup_failed").stdout))
}

// eventually runs a command until it says something.
func (p *process) eventually(why, want string, args ...string) {
	p.t.Helper()
	for p.t.Context().Err() == nil {
		o := p.cli(args...)
		if o.code != exitOK {
			p.t.Fatalf("%s: arcp %v ends with %s, want success", why, args, o)
		}
		if strings.Contains(o.stdout, want) {
			return
		}
	}
}

// A principal sees and cleans up its own resources, an admin those of every principal.
func TestResourcesOfAnother(t *testing.T) {
	t.Parallel()
	p := serve(t, "--data", ":memory:", "--demo", "--auth-file", write(t, filepath.Join(t.TempDir(), "auth.yaml"), `principals:
  - {name: alice, tokens: ["`+hashOf("alice")+`"]}
  - {name: bob, tokens: ["`+hashOf("bob")+`"]}
  - {name: root, tokens: ["`+hashOf("root")+`"], roles: [client, admin]}
`))
	as := func(token string, args ...string) outcome {
		t.Helper()
		return cli(t, append(args, "--url", p.url, "--token", token)...)
	}
	wantOutcome(t, "a directory", as("alice", "invoke", "demo.resource", `{"kind":"directory","lease_seconds":3600}`), exitOK, `"path":"`, "")
	wantOutcome(t, "it is hers", as("alice", "resources", "ls"), exitOK, "directory", "")
	if o := as("bob", "resources", "ls"); strings.Contains(o.stdout, "directory") {
		t.Errorf("bob sees %s", o.stdout)
	}
	wantOutcome(t, "an admin sees it", as("root", "resources", "ls"), exitOK, "alice", "")
	wantOutcome(t, "and may clean up", as("root", "resources", "reap"), exitOK, "claimed 0: released 0, failed 0; skipped 0\n", "")
}

func TestResourcesRefusesBadArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"resources"}, "arcp resources needs a subcommand: ls, reap"},
		{[]string{"resources", "ls", "--state", "over"}, `--state: "over" is not one of active, cleaning, released, cleanup_failed`},
		{[]string{"resources", "ls", "--limit", "x"}, `--limit: "x" is not a whole number of 0 or more`},
		{[]string{"resources", "reap", "x"}, "wrong number of arguments"},
	} {
		wantRefusal(t, cli(t, c.args...), exitUsage, c.want)
	}
}
