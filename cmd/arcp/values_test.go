package main

import (
	"strings"
	"testing"
)

// A value that means nothing is refused, not listed as nothing.
func TestValuesAreChecked(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantRefusal(t, p.cli("jobs", "ls", "--status", "foo"), exitUsage, `"foo" is not one of accepted, queued, running`)
	wantRefusal(t, p.cli("tail", "--type", "foo.bar"), exitUsage, `"foo.bar" is not an event type`)
	if help := p.cli("jobs", "ls", "--help").stdout; strings.Contains(help, "--token arcp dev") || !strings.Contains(help, "--token string") {
		t.Errorf("help of --token:\n%s", help)
	}
}

// A truncated list shows the newest entries, and the number of omitted ones.
func TestNewestJobsAreListed(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	var ids []string
	for range 3 {
		ids = append(ids, p.detach("demo.echo", `{}`))
	}
	o := p.cli("jobs", "ls", "--limit", "2")
	if strings.Contains(o.stdout, ids[0]) || !strings.Contains(o.stdout, ids[1]) || !strings.Contains(o.stdout, ids[2]) || !strings.Contains(o.stderr, "1 older rows are not shown") {
		t.Errorf("jobs %v are listed so:\n%s%s", ids, o.stdout, o.stderr)
	}
}
