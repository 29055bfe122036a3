package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// commandFailure is what the details say of a command that has failed.
type commandFailure struct {
	ExitStatus *int   `json:"exit_status"`
	Signal     string `json:"signal"`
	Stderr     string `json:"stderr"`
}

// commandFails wants a command to fail with UNKNOWN.
func (c *Conn) commandFails(why, name string) (message string, f commandFailure) {
	p := payload[arcp.ErrorPayload](c.t, c.fault(why, execTools+name, map[string]any{}, arcp.CodeUnknown))
	if err := arcp.Unmarshal(p.Details, &f); err != nil {
		c.t.Failf("the details are %s: %v", p.Details, err)
	}
	return p.Message, f
}

// lines are the messages of a job's log events.
func (c *Conn) lines(job *Job) (lines []string) {
	for _, f := range job.Of(arcp.Log) {
		p := payload[arcp.LogPayload](c.t, f)
		want(c.t, "a line is told at level info", p.Level, arcp.LevelInfo)
		lines = append(lines, p.Message)
	}
	return lines
}

func execJSON(_ context.Context, t *T) {
	c := t.Open()
	for _, args := range []string{`{}`, `{"b":1.50,"a":["$(id)","ü\u0000","';\""],"n":12345678901234567890}`} {
		want(t, "what goes in comes out, to the digit", string(c.Completed("it is a result", c.Invoke(execTools+"echo", arcp.Raw(args)))), args)
	}
}

func execNoShell(_ context.Context, t *T) {
	c := t.Open()
	for _, args := range []string{`{}`, `{"x":"` + strings.Repeat("x", 500_000) + `"}`} {
		job := c.Invoke(execTools+"literal", arcp.Raw(args))
		want(t, "the words of a command are themselves", string(c.Completed("arguments need not be read", job)), `"$HOME $(id) *"`)
	}
}

func execLog(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke(execTools+"log", map[string]any{})
	want(t, "the result is what it is", string(c.Completed("it ends well", job)), "null")
	want(t, "each line is an event, in order", strings.Join(c.lines(job), ", "), "one, two")
}

func execText(_ context.Context, t *T) {
	c := t.Open()
	message, f := c.commandFails("a text is no result", "text")
	wantText(t, "the error says what was wrong", message, "JSON", "this is no JSON")
	t.Want("the command itself ended well", f.ExitStatus != nil && *f.ExitStatus == 0, "%+v", f)
}

func execStatus(_ context.Context, t *T) {
	c := t.Open()
	_, f := c.commandFails("the status says that it failed", "status")
	t.Want("the status is told", f.ExitStatus != nil && *f.ExitStatus == 3, "%+v", f)
	want(t, "and what it said", strings.TrimSpace(f.Stderr), "it went wrong")
}

func execSignal(_ context.Context, t *T) {
	c := t.Open()
	_, f := c.commandFails("it did not end by itself", "signal")
	t.Want("the signal is told", f.Signal != "" && f.ExitStatus == nil, "%+v", f)
}

func execEnvironment(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke(execTools+"environment", map[string]any{})
	c.Completed("it ends well", job)
	got := map[string]string{}
	for _, line := range c.lines(job) {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "PWD", "OLDPWD", "SHLVL", "_", "CONFORMANCE_CHECK": // the shell's own, and what the configuration allows
		default:
			got[name] = value
		}
	}
	want(t, "the job's id is there", got["ARCP_JOB_ID"], string(job.ID))
	t.Want("and PATH", got["PATH"] != "", "it is not")
	t.Want("and nothing else", len(got) == 2, "there is %v", got)
}

// wantGone wants a process that is to be killed to be gone.
func (c *Conn) wantGone(why, pid string) {
	alive := true
	for late := c.t.late(); alive && time.Now().Before(late); {
		c.call(&alive, execTools+"alive", map[string]any{"pid": pid})
	}
	want(c.t, why, alive, false)
}

func execCancel(_ context.Context, t *T) {
	c, other := t.Open(), t.Open()
	submit := c.Submit(execTools+"stubborn", map[string]any{})
	job := c.AwaitStarted(submit)
	pid := payload[arcp.LogPayload](t, c.about("it says who it is", arcp.Log, job)).Message
	var alive bool
	other.call(&alive, execTools+"alive", map[string]any{"pid": pid})
	want(t, "it runs", alive, true)
	c.Expect("a cancel is answered before its effect", arcp.CancelAccepted, c.Cancel(job, 500))
	end := c.outcomeOf(submit).End()
	want(t, "the job ends", end.Type, arcp.JobCancelled)
	other.wantGone("the command is killed", pid)
	c.ExpectNothing("a job ends once")
}

func execLeftover(_ context.Context, t *T) {
	c := t.Open()
	pid := c.Completed("what it began does not keep it", c.Invoke(execTools+"leftover", map[string]any{}))
	c.wantGone("what it began ends with it", string(pid))
}

func execLarge(_ context.Context, t *T) {
	c := t.Open()
	f := c.fault("a result that is too large is none", execTools+"large", map[string]any{}, arcp.CodeResourceExhausted)
	want(t, "it would be as large again", payload[arcp.ErrorPayload](t, f).Retryable, false)
}

func execTimeout(_ context.Context, t *T) {
	t.Open().fault("a limit is a limit", execTools+"slow", map[string]any{}, arcp.CodeDeadlineExceeded)
}

func execSchemas(_ context.Context, t *T) {
	c := t.Open()
	for _, args := range []string{`{}`, `{"n":"one"}`} {
		c.ExpectRefused("arguments that do not fit are not run", c.Submit(execTools+"shape", arcp.Raw(args)), arcp.CodeInvalidArgument)
	}
	c.fault("a result that does not fit is none", execTools+"shape", map[string]any{"n": 1}, arcp.CodeInternal)
}

// wantSource wants a tool to come from a kind of source.
func (c *Conn) wantSource(name, source string) {
	var d struct {
		Source     string `json:"source"`
		SideEffect string `json:"side_effect"`
	}
	c.call(&d, "tools.describe", map[string]any{"name": name})
	want(c.t, "it says where it comes from", d.Source, source)
	want(c.t, "and what the configuration says of it", d.SideEffect, "none")
}

func execSource(_ context.Context, t *T) { t.Open().wantSource(execTools+"echo", "exec") }
