package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// asks requests an approval by another session and returns its id.
func (p *process) asks(args string) string {
	p.t.Helper()
	o := p.cli("invoke", "approval.request", args)
	wantOutcome(p.t, "request an approval", o, exitOK, `"status":"pending"`, "")
	return idOf(p.t, o.stdout)
}

func idOf(t *testing.T, stdout string) string {
	t.Helper()
	var q arcp.QuestionView
	if err := json.Unmarshal([]byte(stdout), &q); err != nil || q.ApprovalID == "" {
		t.Fatalf("%s is no question: %v", stdout, err)
	}
	return q.ApprovalID
}

const deploy = `{"action":"deploy","system_level":true,"details":{"env":"prod"}}`

func TestApprovalsAreListedAndDecided(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantOutcome(t, "none", p.cli("approvals", "ls"), exitOK, "APPROVAL", "")
	yes, no := p.asks(deploy), p.asks(`{"action":"drop\nall","system_level":true}`)
	golden(t, "approvals-ls.txt", scrub(p.cli("approvals", "ls").stdout))
	golden(t, "approvals-show.txt", scrub(p.cli("approvals", "show", yes).stdout))
	wantOutcome(t, "wait in vain", p.cli("approvals", "wait", yes, "--timeout", "20ms"), exitTimeout, yes+" is pending", "")

	wantOutcome(t, "approve", p.cli("approvals", "approve", yes), exitOK, yes+" is resolved: approve\n", "")
	wantOutcome(t, "deny", p.cli("approvals", "deny", no, "--reason", "too late", "-o", "json"), exitOK,
		`"resolution":"deny","reason":"too late"`, "")
	wantRefusal(t, p.cli("approvals", "deny", yes), exitFailed, "already resolved: approve")
	golden(t, "approvals-show-denied.txt", scrub(p.cli("approvals", "show", no).stdout))
	wantOutcome(t, "wait for what is approved", p.cli("approvals", "wait", yes), exitOK, yes+" is resolved: approve\n", "")
	wantOutcome(t, "wait for what is denied", p.cli("approvals", "wait", no), exitDenied, no+" is resolved: deny\n", "")
	wantOutcome(t, "wait for it as JSON", p.cli("approvals", "wait", no, "-o", "json"), exitDenied, `{"outcome":"Denied","approval":{`, "")

	soon := idOf(t, p.cli("invoke", "approval.request", `{"action":"blink","system_level":true,"expires_in_ms":1}`).stdout)
	wantOutcome(t, "wait for what expires", p.cli("approvals", "wait", soon), exitTimeout, soon+" is expired\n", "")
	gone := p.asks(deploy)
	job := jobOf(t, p.cli("approvals", "show", gone, "-o", "json").stdout)
	wantOutcome(t, "cancel the job of an approval", p.cli("jobs", "cancel", job), exitOK, "", "")
	wantOutcome(t, "wait for a cancelled approval", p.cli("approvals", "wait", gone), exitCancelled, gone+" is cancelled\n", "")
	wantRefusal(t, p.cli("approvals", "approve", gone), exitFailed, "the question is cancelled (withdrawn): it needs no answer")

	waiting := start(t, nil, "approvals", "wait", p.asks(deploy), "--url", p.url, "--token", "secret")
	pending := p.cli("approvals", "ls", "--status", "pending", "-o", "json")
	var page arcp.Page[arcp.QuestionView]
	if err := json.Unmarshal([]byte(pending.stdout), &page); err != nil || len(page.Items) != 1 {
		t.Fatalf("the pending approvals are %s, want one", pending)
	}
	for _, status := range []string{"", "pending"} {
		o := p.cli("approvals", "ls", "--limit", "1", "-o", "name", "--status", status)
		wantOutcome(t, "the pending one is the first row", o, exitOK, page.Items[0].ApprovalID+"\n", "")
	}
	wantOutcome(t, "approve an awaited approval", p.cli("approvals", "approve", page.Items[0].ApprovalID), exitOK, "", "")
	if code := waiting.wait(); code != exitOK {
		t.Errorf("exit code of approvals wait = %d, want %d", code, exitOK)
	}
	_, cursor, found := strings.Cut(p.cli("approvals", "ls", "--limit", "3").stderr, "--cursor ")
	rest := p.cli("approvals", "ls", "--limit", "0", "-o", "name", "--cursor", strings.TrimSuffix(cursor, " continues\n"))
	if !found || rest.code != exitOK || strings.Count(rest.stdout, "approval-") != 2 {
		t.Errorf("another session continues with %q: %s, want the other two approvals", cursor, rest)
	}
	wantOutcome(t, "page by page", p.cli("approvals", "ls", "--limit", "2"), exitOK, "", "--limit 0 lists all")
	newest := []string{page.Items[0].ApprovalID, gone, soon, no, yes}
	if got, want := p.cli("approvals", "ls", "-o", "name").stdout, strings.Join(newest, "\n")+"\n"; got != want {
		t.Errorf("the approvals that are decided are\n%swant the newest first:\n%s", got, want)
	}
	if all := p.cli("approvals", "ls", "--limit", "2", "--all").stdout; strings.Count(all, "\n") != 6 {
		t.Errorf("approvals ls --all prints\n%swant a head and five approvals", all)
	}
	wantRefusal(t, p.cli("approvals", "show", "approval-nope"), exitFailed, "NOT_FOUND")
}

// A question that is answered while the list is read is listed once, and with a cursor the list continues there.
func TestApprovalsAreListedOnce(t *testing.T) {
	view := func(id string, at int64, status arcp.QuestionStatus) arcp.QuestionView {
		return arcp.QuestionView{ApprovalID: id, Kind: arcp.QuestionGate, Status: status, CreatedAt: time.Unix(at, 0)}
	}
	requests := 0
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		requests++
		answered := arcp.QuestionPending
		if requests > 1 {
			answered = arcp.QuestionResolved
		}
		var in struct{ Arguments struct{ Status string } }
		if err := arcp.Unmarshal(env.Payload, &in); err != nil {
			t.Error(err)
		}
		var page arcp.Page[arcp.QuestionView]
		for _, q := range []arcp.QuestionView{
			view("approval-1", 1, arcp.QuestionResolved), view("approval-2", 2, answered), view("approval-3", 3, arcp.QuestionExpired),
			view("approval-5", 5, arcp.QuestionPending), view("approval-4", 4, arcp.QuestionPending), // of another principal
		} {
			if in.Arguments.Status == "" || in.Arguments.Status == string(q.Status) {
				page.Items = append(page.Items, q)
			}
		}
		value, err := arcp.Marshal(page)
		if err != nil {
			t.Error(err)
		}
		c.complete(env, string(value))
	})
	wantOutcome(t, "one is answered", r.cli("approvals", "ls", "-o", "name"), exitOK,
		"approval-2\napproval-4\napproval-5\napproval-3\napproval-1\n", "")
	const first, second = "approval-4\napproval-5\napproval-3\n", "approval-2\napproval-1\n"
	o := r.cli("approvals", "ls", "-o", "name", "--limit", "3")
	_, cursor, _ := strings.Cut(o.stderr, "--cursor ")
	if rest := r.cli("approvals", "ls", "-o", "name", "--cursor", strings.TrimSuffix(cursor, " continues\n")); o.stdout != first || rest.stdout != second {
		t.Errorf("the pages are\n%vand with the cursor\n%v, want\n%sand\n%s", o, rest, first, second)
	}
	for _, bad := range []string{"x", "pending/now/approval-1", "pending/2026-01-02T03:04:05Z"} {
		wantRefusal(t, r.cli("approvals", "ls", "--cursor", bad), exitUsage, "give the cursor that the previous page printed")
	}
}

func jobOf(t *testing.T, stdout string) string {
	t.Helper()
	var q arcp.QuestionView
	if err := json.Unmarshal([]byte(stdout), &q); err != nil {
		t.Fatal(err)
	}
	return string(q.JobID)
}

// No other principal resolves a question of a session, nor one of a session that has ended.
func TestApprovalsOfOthersAreNotResolved(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	o := p.cli("invoke", "approval.request", `{"action":"mine"}`)
	wantRefusal(t, p.cli("approvals", "approve", idOf(t, o.stdout)), exitFailed, "which owns it")
}

// hashOf is a token as the auth file has it.
func hashOf(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

// An approver sees and decides the questions of the principals it observes; without the role
// that is denied.
func TestApproverOfAnother(t *testing.T) {
	t.Parallel()
	p := serve(t, "--data", ":memory:", "--demo", "--auth-file", write(t, filepath.Join(t.TempDir(), "auth.yaml"), `principals:
  - {name: alice, tokens: ["`+hashOf("alice")+`"]}
  - {name: ann, tokens: ["`+hashOf("ann")+`"], roles: [client, approver], sees: ["ali*"]}
`))
	as := func(token string, args ...string) outcome {
		t.Helper()
		return cli(t, append(args, "--url", p.url, "--token", token)...)
	}
	asked := as("alice", "invoke", "approval.request", deploy)
	id := idOf(t, asked.stdout)
	wantOutcome(t, "completed", cli(t, "__complete", "approvals", "approve", "--url", p.url, "--token", "ann", ""), exitOK, id+"\talice ", "")
	wantOutcome(t, "completed", cli(t, "__complete", "input", "answer", "--url", p.url, "--token", "ann", ""), exitOK, id+"\talice ", "")
	wantRefusal(t, as("alice", "approvals", "approve", id), exitDenied, "this needs the role approver")
	wantOutcome(t, "nothing to answer", as("alice", "input", "ls"), exitOK, "QUESTION", "")
	wantOutcome(t, "what ann may answer", as("ann", "input", "ls"), exitOK, id, "")
	wantOutcome(t, "a choice is one, too", as("ann", "input", "answer", id, "--choice", "approve"), exitOK, id+" is resolved: approve\n", "")
	wantOutcome(t, "who it was", as("alice", "approvals", "show", id), exitOK, "by         ann\n", "")
}

// A principal lists the jobs of another one that it sees.
func TestJobsOfAnother(t *testing.T) {
	t.Parallel()
	p := serve(t, "--data", ":memory:", "--demo", "--auth-file", write(t, filepath.Join(t.TempDir(), "auth.yaml"), `principals:
  - {name: alice, tokens: ["`+hashOf("alice")+`"]}
  - {name: ann, tokens: ["`+hashOf("ann")+`"], sees: ["ali*"]}
`))
	as := func(token string, args ...string) outcome {
		t.Helper()
		return cli(t, append(args, "--url", p.url, "--token", token)...)
	}
	id := strings.TrimSpace(as("alice", "invoke", "demo.sleep", `{"ms":3600000}`, "--detach").stdout)
	wantOutcome(t, "those of alice", as("ann", "jobs", "ls", "--principal", "alice"), exitOK, id, "")
	if own := as("ann", "jobs", "ls"); strings.Contains(own.stdout, id) {
		t.Errorf("without --principal: %v", own)
	}
	wantRefusal(t, as("alice", "jobs", "ls", "--principal", "ann"), exitDenied, "PERMISSION_DENIED")
}

// jobs show has the principal of a job, the question that it waits for with the command that answers it, and why the
// arguments of another principal are not shown.
func TestJobThatWaitsForAnAnswerIsShown(t *testing.T) {
	t.Parallel()
	p := serve(t, "--data", ":memory:", "--demo", "--auth-file", write(t, filepath.Join(t.TempDir(), "auth.yaml"), `principals:
  - {name: alice, tokens: ["`+hashOf("secret")+`"]}
  - {name: olga, tokens: ["`+hashOf("olga")+`"], roles: [client, observer], sees: ["alice"]}
`))
	job := p.detach("demo.ask", branch)
	question := regexp.QuoteMeta(p.question())
	for token, arguments := range map[string]string{
		"secret": regexp.QuoteMeta(branch),
		"olga":   "not shown: only alice, which submitted the job, is shown them",
	} {
		want := regexp.MustCompile(`\nprincipal +alice\n(.*\n)*question +Branch\?\nanswer with +arcp input answer ` + question + ` JSON\n(.*\n)*arguments +` + arguments + `\n`)
		if o := cli(t, "jobs", "show", job, "--url", p.url, "--token", token); o.code != exitOK || !want.MatchString(o.stdout) {
			t.Errorf("jobs show of %s: %v\nwant %s", token, o, want)
		}
	}
}

func TestApprovalsRefusesBadArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"approvals"}, "arcp approvals needs a subcommand: approve, deny, ls, show, wait"},
		{[]string{"approvals", "ls", "--status", "open"}, `--status: "open" is not one of pending, resolved, expired, cancelled`},
		{[]string{"approvals", "ls", "--limit", "x"}, `--limit: "x" is not a whole number of 0 or more`},
		{[]string{"approvals", "wait", "x", "--timeout", "-1s"}, `--timeout: "-1s" is not a duration`},
		{[]string{"input"}, "arcp input needs a subcommand: answer, ls"},
		{[]string{"input", "ls", "--limit", "x"}, `--limit: "x" is not a whole number of 0 or more`},
		{[]string{"input", "answer", "x"}, "give one answer: a JSON value, --choice, --grant or --deny"},
		{[]string{"input", "answer", "x", "1", "--deny"}, "give one answer"},
		{[]string{"input", "answer", "x", "--deny", "--seconds", "3"}, "--seconds and --resource need --grant"},
		{[]string{"input", "answer", "x", "b"},
			"the value: not JSON; write a text with quotes: '\"main\"', or give --choice for an option, --grant or --deny for a permission"},
		{[]string{"jobs", "interrupt", "job_1"}, "--prompt is missing: give the question"},
		{[]string{"invoke", "x", "--lease", "{"}, `--lease: not JSON; give for example '{"fs.read"`},
		{[]string{"invoke", "x", "--lease", "-"}, "--lease: give JSON or @FILE"},
		{[]string{"invoke", "x", "--expires", "tomorrow"}, "--expires tomorrow: give a duration such as 10m, or a time"},
		{[]string{"invoke", "x", "--expires", "-5s"}, "--expires -5s: give a duration"},
	} {
		wantRefusal(t, cli(t, c.args...), exitUsage, c.want)
	}
}
