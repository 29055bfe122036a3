package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The shell completes names of tools and ids of jobs, and nothing without a runtime.
func TestWordsAreCompleted(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	ended, live := p.detach("demo.echo", `{}`), p.detach("demo.sleep", `{"ms":3600000}`)
	p.cli("jobs", "wait", ended)
	put := p.cli("artifacts", "put", write(t, filepath.Join(t.TempDir(), "a.txt"), "content"), "-o", "name")
	artifact, schedule := strings.TrimSpace(put.stdout), p.schedule("--after", "1h")
	complete := func(args ...string) string {
		t.Helper()
		words := 2 // of the command
		if args[0] == "invoke" || args[0] == "tail" {
			words = 1
		}
		line := slices.Concat([]string{"__complete"}, args[:words], []string{"--url", p.url, "--token", "secret"}, args[words:])
		o := cli(t, line...)
		if o.code != exitOK {
			t.Errorf("%s: %v", strings.Join(args, " "), o)
		}
		return o.stdout
	}
	for _, c := range []struct {
		args           []string
		want, unwanted string
	}{
		{[]string{"invoke", "demo.e"}, "demo.echo\t", "demo.sleep"},
		{[]string{"invoke", ""}, "demo.echo\t", "jobs.get"},
		{[]string{"invoke", "jobs.g"}, "jobs.get\t", "jobs.wait"},
		{[]string{"tools", "show", "demo.sl"}, "demo.sleep\t", "demo.echo"},
		{[]string{"jobs", "show", "job_"}, ended + "\tdemo.echo@1.0.0 completed", "demo.echo\t"},
		{[]string{"jobs", "cancel", ""}, live, ended},
		{[]string{"jobs", "rm", ""}, ended, live},
		{[]string{"jobs", "cancel", live, ""}, ":4", live},
		{[]string{"jobs", "ls", "--status", ""}, "running\n", "demo"},
		{[]string{"jobs", "ls", "--tool", "demo.e"}, "demo.echo\t", "demo.sleep"},
		{[]string{"jobs", "ls", "--session", "sess_"}, "sess_", "job_"},
		{[]string{"jobs", "ls", "-o", ""}, "jsonl\n", "xml"},
		{[]string{"jobs", "ls", "--dialect", ""}, "draft\n", "job_"},
		{[]string{"artifacts", "get", ""}, artifact + "\ttext/plain", "job_"},
		{[]string{"artifacts", "get", artifact, ""}, ":0", artifact},
		{[]string{"artifacts", "rm", artifact, ""}, ":4", artifact},
		{[]string{"schedule", "rm", ""}, schedule + "\tdemo.echo next ", live},
		{[]string{"schedule", "next", "job_"}, schedule + "\tdemo.echo next ", live},
		{[]string{"schedule", "add", "demo.e"}, "demo.echo\t", "demo.sleep"},
		{[]string{"workflow", "show", ""}, live + "\t", "artifact"},
		{[]string{"workflow", "run", "demo.e"}, ":4", "demo."},
		{[]string{"tail", "--type", ""}, "job.completed\n", "session.open"},
		{[]string{"tail", "--type", "log,job.f"}, "log,job.failed\n", "job.completed"},
		{[]string{"tail", "--type", "log,"}, "log,metric\n", "log,log"},
		{[]string{"tail", "--min-priority", ""}, "critical\n", ":0"},
		{[]string{"tail", "--job", "job_"}, live + "\t", ":0"},
		{[]string{"jobs", "ls", "--status", "running,f"}, "running,failed\n", "completed"},
		{[]string{"mcp", "serve", "--tools", "demo.e"}, "demo.echo\t", "demo.sleep"},
		{[]string{"tools", "ls", "--source", ""}, "worker\n", "job_"},
	} {
		if got := complete(c.args...); !strings.Contains(got, c.want) || strings.Contains(got, c.unwanted) {
			t.Errorf("%q completes to\n%s\nwant %q and no %q", c.args, got, c.want, c.unwanted)
		}
	}
	for args, want := range map[string]string{
		"conformance run --report ht":       "html=\n:6\n",
		"conformance run --report html=":    ":0\n",
		"conformance list --group cancel,r": "cancel,resume\n",
		"conformance run --library typ":     "typescript\n",
		"conformance run --check cancel.r":  "cancel.running\n",
		"context add --dialect dr":          "draft\n",
		"serve --log-level w":               "warn\n",
		"config check --log-format c":       "console\n",
		"bench --row jobs,ev":               "jobs,events\n",
	} {
		if o := cli(t, append([]string{"__complete"}, strings.Fields(args)...)...); o.code != exitOK || !strings.Contains(o.stdout, want) {
			t.Errorf("%s: %v, want %q", args, o, want)
		}
	}
	o := cli(t, "__complete", "invoke", "--url", unixURL("/nowhere"), "demo")
	if o.code != exitOK || o.stdout != ":4\n" {
		t.Errorf("without a runtime: %v", o)
	}
}

// Each argument of a command that is not a file, a directory or a new name is completed.
func TestEveryArgumentIsCompleted(t *testing.T) {
	notCompleted := regexp.MustCompile(`^\[?(FILE|DIR|NAME)\b`)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		_, arguments, _ := strings.Cut(cmd.Use, " ")
		if arguments != "" && !cmd.Hidden && cmd.ValidArgsFunction == nil && !notCompleted.MatchString(arguments) {
			t.Errorf("%s does not complete %s", cmd.CommandPath(), arguments)
		}
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(newRoot(new(app)))
}

// Each flag whose value is not free text, a file or a directory is completed.
func TestEveryFlagIsCompleted(t *testing.T) {
	notCompleted := strings.Fields(`admin against against-token allow-host allow-origin arguments artifact-access-key
		artifact-bucket artifact-endpoint artifact-region artifact-secret-key artifact-url at auth-file baseline budget ca-file
		choice compare config cursor data every exec expires http http-origin http-token-file idempotency-key junit jwt-audience
		jwt-issuer jwt-key jwt-subject lease listen mapping media-type observer-token other-token path prefix principal prompt
		reason resource runtime-id secret-key-file section send since stream tls-cert tls-key token token-file trace unix url`)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch _, completed := cmd.GetFlagCompletionFunc(f.Name); {
			case completed, f.Hidden, cmd.Hidden, slices.Contains(notCompleted, f.Name):
			case strings.HasPrefix(f.Value.Type(), "string"), f.Value.Type() == "text":
				t.Errorf("%s does not complete --%s: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(newRoot(new(app)))
}

// The shell completes names of contexts.
func TestContextsAreCompleted(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	wantOutcome(t, "no contexts", cli(t, "__complete", "context", "use", ""), exitOK, ":4\n", "")
	for _, name := range []string{"prod", "proof", "test"} {
		if o := cli(t, "context", "add", name, "--url", "ws://"+name+"/arcp"); o.code != exitOK {
			t.Fatal(o)
		}
	}
	const prod, proof, end = "prod\tws://prod/arcp\n", "proof\tws://proof/arcp\n", ":4\n"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"context", "use", "pro"}, prod + proof + end},
		{[]string{"context", "use", "prod", ""}, end},
		{[]string{"context", "rm", "prod", "pro"}, proof + end},
		{[]string{"jobs", "ls", "--context", "prod"}, prod + end},
		{[]string{"jobs", "show", "prod", "--context", "prod"}, prod + end},
	} {
		if o := cli(t, append([]string{"__complete"}, c.args...)...); o.code != exitOK || o.stdout != c.want {
			t.Errorf("%q completes to\n%s\nwant\n%s", c.args, o.stdout, c.want)
		}
	}
}
