package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// question waits for a question and returns its id.
func (p *process) question() string {
	p.t.Helper()
	var page arcp.Page[arcp.QuestionView]
	until(p.t, "a question", func() bool {
		err := json.Unmarshal([]byte(p.cli("input", "ls", "-o", "json").stdout), &page)
		return err == nil && len(page.Items) > 0
	})
	return page.Items[0].ApprovalID
}

const (
	permit = `{"permission":"deploy","resource":"env:*","operation":"write","lease_seconds":60,"hold_ms":1,"reason":"a fix"}`
	choose = `{"prompt":"Proceed?","options":[{"id":"fix","label":"Fix it"},{"id":"abort","label":"Abort"}]}`
	branch = `{"prompt":"Branch?","response_schema":{"type":"string","minLength":1}}`
)

func TestInputAnswersQuestions(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantOutcome(t, "nothing is asked", p.cli("input", "ls"), exitOK, "QUESTION", "")
	file := write(t, filepath.Join(t.TempDir(), "answer.json"), `"from a file"`)
	for _, c := range []struct {
		tool, args string
		wrong      []string // answers
		refusal    string
		right      []string
		resolution string
		code       int
		result     string
	}{
		{"demo.ask", branch, []string{`""`}, "INVALID_ARGUMENT", []string{`"main"`}, "answered", exitOK,
			`{"value":"main","responded_by":"alice"}`},
		{"demo.ask", branch, []string{"--choice", "x"}, "asks for a value; answer it with", []string{"@" + file}, "answered", exitOK, `"from a file"`},
		{"demo.choose", choose, []string{"--choice", "wait"}, `"wait" is none of the options`, []string{"--choice", "abort"},
			"abort", exitOK, `"choice_id":"abort"`},
		{"demo.permit", permit, []string{"1"}, "asks for a permission; answer it with",
			[]string{"--grant", "--seconds", "5", "--resource", "env:prod"}, "granted", exitOK, `"resource":"env:prod"`},
		{"demo.permit", permit, []string{"--grant", "--resource", "*"}, `does not cover "*"`,
			[]string{"--deny", "--reason", "not today"}, "deny", exitDenied, ""},
	} {
		job := p.detach(c.tool, c.args)
		id := p.question()
		answer := func(args []string) outcome { return p.cli(append([]string{"input", "answer", id}, args...)...) }
		if o := answer(c.wrong); o.code == exitOK || !strings.Contains(o.stderr, c.refusal) {
			t.Errorf("%s answered with %q: %v\nwant it refused with %q", c.tool, c.wrong, o, c.refusal)
		}
		wantOutcome(t, c.tool+" answered", answer(c.right), exitOK, id+" is resolved: "+c.resolution+"\n", "")
		wantOutcome(t, c.tool+" ends", p.cli("jobs", "wait", job), c.code, c.result, "")
	}
	all := p.cli("approvals", "ls", "--all-kinds").stdout
	golden(t, "approvals-ls-all-kinds.txt", scrub(all))
	if only := p.cli("approvals", "ls").stdout; strings.Count(only, "\n") != 1 {
		t.Errorf("approvals ls prints\n%swant no approval: all questions are of another kind", only)
	}
}

func TestInputGrantsPermissions(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	job := p.detach("demo.permit", permit)
	id := p.question()
	golden(t, "input-ls.txt", scrub(p.cli("input", "ls").stdout))
	golden(t, "input-show.txt", scrub(p.cli("approvals", "show", id).stdout))
	wantOutcome(t, "approve for a while", p.cli("approvals", "approve", id, "--seconds", "5"), exitOK, id+" is resolved: granted\n", "")
	wantOutcome(t, "the job has it", p.cli("jobs", "wait", job), exitOK, `"lease_id":"lease_`, "")
	job = p.detach("demo.permit", permit)
	wantOutcome(t, "deny", p.cli("approvals", "deny", p.question(), "--reason", "no"), exitOK, "is resolved: deny", "")
	wantOutcome(t, "the job is denied", p.cli("jobs", "wait", job), exitDenied, "", "PERMISSION_DENIED")
}

func TestInterruptPausesAJob(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	job := p.detach("demo.sleep", `{"ms":3600000}`)
	until(t, "the job can be interrupted", func() bool {
		return p.cli("jobs", "interrupt", job, "--prompt", "is this right?").code == exitOK
	})
	wantRefusal(t, p.cli("jobs", "interrupt", job, "--prompt", "again?"), exitFailed, "interrupted already")
	wantOutcome(t, "it waits", p.cli("jobs", "ls", "--status", "blocked"), exitOK, job, "")
	wantOutcome(t, "the reason", p.cli("jobs", "show", job), exitOK, "(input, since ", "")
	wantOutcome(t, "for an answer", p.cli("input", "ls"), exitOK, "is this right?", "")
	wantOutcome(t, "one that is none", p.cli("input", "answer", p.question(), `{"action":"dance"}`), exitFailed, "", "INVALID_ARGUMENT")
	wantOutcome(t, "cancel it", p.cli("input", "answer", p.question(), `{"action":"cancel"}`), exitOK, "answered", "")
	wantOutcome(t, "it is cancelled", p.cli("jobs", "wait", job), exitCancelled, "", "")
	wantRefusal(t, p.cli("jobs", "interrupt", job, "--prompt", "well?"), exitFailed, "FAILED_PRECONDITION")
	if o := p.cli("jobs", "interrupt", p.detach("demo.ask", branch), "--prompt", "well?", "-o", "json"); o.code != exitFailed || !strings.Contains(o.stderr, `"code":"FAILED_PRECONDITION"`) {
		t.Errorf("interrupt of a tool that is not interruptible: %v, want FAILED_PRECONDITION", o)
	}
}

// Flags set the lease and the budget of the job.
func TestInvokeFlagsSetTheLease(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	access := `{"namespace":"fs.read","target":"/srv/data/x"}`
	file := write(t, filepath.Join(t.TempDir(), "lease.json"), `{"fs.read":["/srv/**"]}`)
	wantOutcome(t, "nothing by default", p.cli("invoke", "demo.access", access), exitDenied, "", "PERMISSION_DENIED")
	wantOutcome(t, "a lease", p.cli("invoke", "demo.access", access, "--lease", `{"fs.read":["/srv/**"]}`), exitOK, `{"allowed":true}`, "")
	wantOutcome(t, "one of a file", p.cli("invoke", "demo.access", access, "--lease", "@"+file), exitOK, `{"allowed":true}`, "")
	wantOutcome(t, "one that is none", p.cli("invoke", "demo.access", access, "--lease", `{"expires_at":7}`), exitFailed,
		"", "INVALID_REQUEST")
	wantOutcome(t, "one with an end in another zone",
		p.cli("invoke", "demo.access", access, "--lease", "@"+file, "--expires", "2999-01-01T00:00:00+02:00"), exitOK,
		`{"allowed":true}`, "")
	wantOutcome(t, "one that has ended",
		p.cli("invoke", "demo.access", access, "--lease", "@"+file, "--expires", "2001-01-01T00:00:00Z"), exitFailed, "",
		"expires_at")

	spend := `{"currency":"USD","amount":"0.10","times":3}`
	calls := `{"tool.call":["demo.spend"]}`
	wantOutcome(t, "enough",
		p.cli("invoke", "demo.spend", spend, "--lease", calls, "--budget", "USD:0.30", "--budget", "EUR:1"), exitOK,
		`"spent":"0.30"`, "budget     0.10 USD left\n")
	wantOutcome(t, "too much", p.cli("invoke", "demo.spend", spend, "--lease", calls, "--budget", "USD:0.20"), exitDenied,
		"", "BUDGET_EXHAUSTED")
	wantOutcome(t, "no amount", p.cli("invoke", "demo.spend", spend, "--budget", "USD"), exitUsage, "", `--budget "USD": give a currency`)
}

// The two switches of the server change when a job is stopped by its lease.
func TestServerOfLeases(t *testing.T) {
	t.Parallel()
	lax := demoServer(t)
	model := `{"model":"tiny"}`
	// sleeps runs a job that lasts much longer than its lease, which ends a second after its time.
	// How long the lease has to last depends on how slow the machine is.
	sleeps := func(p *process) (o outcome) {
		t.Helper()
		for lease := 200 * time.Millisecond; lease < time.Minute; lease *= 5 {
			args := fmt.Sprintf(`{"ms":%d}`, (lease + 5*time.Second).Milliseconds())
			if o = p.cli("invoke", "demo.sleep", args, "--expires", lease.String()); o.code != exitFailed || !strings.Contains(o.stderr, "expires_at") {
				break // it was not too late
			}
		}
		return o
	}
	wantOutcome(t, "any model", lax.cli("invoke", "demo.model", model), exitOK, "", "")
	wantOutcome(t, "a job that does nothing goes on", sleeps(lax), exitOK, "", "")
	strict := demoServer(t, "--require-model-lease", "--preempt-expired")
	wantOutcome(t, "no model", strict.cli("invoke", "demo.model", model), exitDenied, "", "PERMISSION_DENIED")
	wantOutcome(t, "the model of the lease", strict.cli("invoke", "demo.model", model, "--lease", `{"model.use":["tiny"]}`), exitOK, "", "")
	wantOutcome(t, "a job ends with its lease", sleeps(strict), exitDenied, "", "LEASE_EXPIRED")
}

func TestReloadOfABadLease(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "auth.yaml")
	principal := func(lease string) {
		write(t, file, "principals: [{name: alice, tokens: [\""+hashOf("secret")+"\"], lease: "+lease+"}]\n")
	}
	principal(`{fs.read: ["/srv/**"]}`)
	p := serve(t, "--data", ":memory:", "--demo", "--auth-file", file)
	access := func(why string, code int) {
		t.Helper()
		wantOutcome(t, why, p.cli("invoke", "demo.access", `{"namespace":"fs.read","target":"/srv/x"}`), code, "", "")
	}
	access("by the principal's lease", exitOK)
	principal(`{cost.budget: 5}`)
	p.signal(syscall.SIGHUP)
	until(t, "the mistake is logged", func() bool {
		return strings.Contains(p.errs.String(), "reload failed; nothing was changed") && strings.Contains(p.errs.String(), "of alice")
	})
	access("a mistake changes nothing", exitOK)
	principal(`{fs.read: ["/tmp/**"]}`)
	p.signal(syscall.SIGHUP)
	until(t, "another lease applies", func() bool {
		return p.cli("invoke", "demo.access", `{"namespace":"fs.read","target":"/srv/x"}`).code == exitDenied
	})
}

// Without a terminal the command prints how to answer.
func TestInvokeSaysHowToAnswer(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	for _, c := range []struct{ tool, args, line, answer, result string }{
		{"demo.ask", branch, "input      Branch?\n", `"main"`, `"main"`},
		{"demo.choose", choose, "choice     Proceed? [fix (Fix it), abort]\n", "--choice=fix", `"choice_id":"fix"`},
		{"demo.permit", permit, "permission deploy on env:* to write for 1m0s? a fix\n", "--grant", `"lease_id":"lease_`},
	} {
		done := make(chan outcome)
		go func() { done <- p.cli("invoke", c.tool, c.args) }()
		id := p.question()
		wantOutcome(t, "answer", p.cli("input", "answer", id, c.answer), exitOK, "", "")
		o := <-done
		wantOutcome(t, c.tool, o, exitOK, c.result, c.line)
		wantOutcome(t, "how to answer", o, exitOK, "", "answer it with arcp input answer "+id+" ")
	}
}

func TestConsoleAsksQuestions(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	sit := func(args ...string) *typist {
		return atTerminal(t, append([]string{"invoke", "--url", p.url, "--token", "secret"}, args...)...)
	}
	c := sit("demo.permit", permit, "--follow")
	c.sees("grant deploy on env:* to write for 1m0s? [y/N]")
	c.types("y")
	if code := <-c.done; code != exitOK || !strings.Contains(c.out.String(), `"resource":"env:*"`) {
		t.Errorf("exit code %d, output %s; want %d and the requested permission; the terminal:\n%s", code, c.out.String(), exitOK, c.shown)
	}

	c = sit("demo.permit", permit, "--follow")
	c.sees("[y/N]")
	c.types("maybe")
	c.sees(`"maybe" is not an answer: type y to grant, or n to deny`)
	c.types("No")
	c.leaves(exitDenied, "")

	c = sit("demo.permit", permit, "--follow")
	c.sees("[y/N]")
	c.types("")
	c.leaves(exitDenied, "")

	c = sit("demo.choose", choose, "--follow")
	c.sees("   1  fix (Fix it)\n   2  abort\nchoose 1 to 2:")
	c.types("3")
	c.sees(`the answer is invalid: "3" is none of the options`)
	c.types("2")
	c.leaves(exitOK, `{"choice_id":"abort","responded_by":"arcp-cli"}`+"\n")

	c = sit("demo.ask", branch, "--follow")
	c.sees("text:")
	c.types(`""`)
	c.sees("the answer is invalid: ")
	c.types("main")
	c.leaves(exitOK, `{"value":"main","responded_by":"arcp-cli"}`+"\n")

	c = sit("demo.ask", `{"prompt":"How many?","response_schema":{"type":"integer"}}`, "--follow")
	c.sees(`JSON like {"type":"integer"}:`)
	c.types("two")
	c.sees(`not JSON; write a value like {"type":"integer"}`)
	c.types("2")
	c.leaves(exitOK, `{"value":2,"responded_by":"arcp-cli"}`+"\n")

	c = sit("demo.ask", `{"prompt":"Branch?","default":"dev"}`, "--follow")
	c.sees(`["dev"] JSON:`)
	c.types("")
	c.leaves(exitOK, `{"value":"dev","responded_by":"arcp-cli"}`+"\n")
}

// An answer by another session withdraws the question on the terminal.
func TestConsoleWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	sit := func(args ...string) *typist {
		return atTerminal(t, append([]string{"invoke", "--url", p.url, "--token", "secret"}, args...)...)
	}
	c := sit("demo.ask", branch, "--follow")
	c.sees("text:")
	wantOutcome(t, "elsewhere", p.cli("input", "answer", p.question(), `"elsewhere"`), exitOK, "", "")
	c.leaves(exitOK, `{"value":"elsewhere","responded_by":"alice"}`+"\n")
	c.sees("withdrawn  answered")

	c = sit("demo.ask", branch, "--follow")
	c.sees("text:")
	id := p.question()
	if err := c.keys.Close(); err != nil {
		t.Fatal(err)
	}
	c.sees("not answered; answer with `arcp input answer " + id + " JSON`")
	wantOutcome(t, "elsewhere", p.cli("input", "answer", id, `"later"`), exitOK, "", "")
	c.leaves(exitOK, `{"value":"later","responded_by":"alice"}`+"\n")

	for _, args := range [][]string{{}, {"--follow", "--no-input"}, {"--follow", "-o", "json"}} {
		c = sit(append([]string{"demo.ask", branch}, args...)...)
		wantOutcome(t, "elsewhere", p.cli("input", "answer", p.question(), `"elsewhere"`), exitOK, "", "")
		c.leaves(exitOK, `{"value":"elsewhere","responded_by":"alice"}`+"\n")
		if strings.Contains(c.shown.String(), "JSON:") {
			t.Errorf("with %q the terminal shows the question, want none:\n%s", args, c.shown)
		}
	}
}

// The refusal of an answer of another kind names the command that answers the question.
func TestAnswerOfAnotherKind(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	ask := func(tool, args string) string {
		p.detach(tool, args)
		return p.question()
	}
	wants := func(command string, args ...string) {
		t.Helper()
		wantRefusal(t, p.cli(args...), exitUsage, "answer it with `arcp "+command+"`")
	}
	id := ask("demo.ask", branch)
	wants("input answer "+id+" JSON", "approvals", "approve", id)
	wants("input answer "+id+" JSON", "approvals", "deny", id)
	wants("input answer "+id+" JSON", "approvals", "approve", id, "--seconds", "5")
	wants("input answer "+id+" JSON", "input", "answer", id, "--choice", "fix")
	wantRefusal(t, p.cli("input", "answer", id, "5"), exitFailed, "INVALID_ARGUMENT: ")
	wantOutcome(t, "the right command", p.cli("input", "answer", id, `"main"`), exitOK, "", "")

	id = ask("demo.choose", choose)
	wants("input answer "+id+" --choice ID", "approvals", "approve", id)
	wants("input answer "+id+" --choice ID", "input", "answer", id, `"fix"`)
	wantOutcome(t, "the right command", p.cli("input", "answer", id, "--choice", "fix"), exitOK, "", "")

	id = ask("demo.permit", permit)
	wants("input answer "+id+" --grant", "input", "answer", id, "true")
	wantOutcome(t, "the right command", p.cli("input", "answer", id, "--deny"), exitOK, "", "")

	id = p.asks(deploy)
	wants("approvals approve "+id, "input", "answer", id, "true")
	wants("approvals approve "+id, "approvals", "approve", id, "--seconds", "5")
}

func TestHowToAnswer(t *testing.T) {
	for _, c := range []struct {
		event   arcp.Type
		payload any
		want    string
	}{
		{arcp.PermissionRequest, arcp.PermissionRequestPayload{ApprovalID: "approval-1"}, "arcp input answer approval-1 --grant"},
		{arcp.HumanInputRequest, arcp.HumanInputRequestPayload{}, "arcp input answer msg_1 JSON"},
		{arcp.HumanChoiceRequest, arcp.HumanChoiceRequestPayload{ApprovalID: "approval-1"}, "arcp input answer approval-1 --choice ID"},
		{arcp.Log, arcp.LogPayload{}, ""},
	} {
		env := arcp.Frame(c.event, c.payload)
		env.ID = "msg_1"
		if got := answerCommand(&env); got != c.want {
			t.Errorf("%s is answered with %q, want %q", fmt.Sprint(c.event), got, c.want)
		}
	}
}
