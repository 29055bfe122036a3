package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
)

// The demonstration's jobs: a short one to look at, and one that is still
// running when the runtime is killed.
const (
	demoSteps    = 8
	demoInterval = 120 // ms
	longSteps    = 40
	longInterval = 100 // ms
	longEnough   = 12  // steps before the crash
	demoTimeout  = time.Minute
)

func newDemo(a *app) *cobra.Command {
	var data string
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: jobs, progress, a crash and what is left after it",
		Long: "Starts a runtime in a process of its own, runs jobs on it over a WebSocket, kills it\n" +
			"in the middle of one, starts it again on the same data and shows what is left.",
		Args: noArgs,
	}
	cmd.Flags().StringVar(&data, "data", "", "data directory of the runtime; default a temporary one")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the temporary directory")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, demoTimeout)
		defer cancel()
		return a.demo(ctx, data, keep)
	})
	return cmd
}

func (a *app) demo(ctx context.Context, data string, keep bool) (err error) {
	d := &demonstration{app: a, data: data, token: auth.NewToken("demo_")}
	if data == "" {
		if d.data, err = os.MkdirTemp("", "arcp-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.tidy(keep)) }()
	}
	defer func() { err = errors.Join(err, d.close(err != nil)) }()
	fmt.Fprint(a.stdout, "A runtime in a process of its own, and a client that speaks ARCP with it.\n")
	for i, s := range d.steps() {
		fmt.Fprintf(a.stdout, "\n%d. %s\n", i+1, s.what)
		said, err := s.do(ctx)
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		fmt.Fprintf(a.stdout, "   %s %s\n", a.paint(green, "✓"), said)
	}
	fmt.Fprint(a.stdout, "\nThat was all. `arcp dev` starts a runtime to play with.\n")
	return nil
}

// demonstration is a run of `arcp demo`.
type demonstration struct {
	app   *app
	data  string
	token auth.Secret

	server *child
	client *client.Client
	jobs   []arcp.JobID // in the order they were started
	ends   atomic.Int64 // terminal messages of the interrupted job seen since the restart
}

type demoStep struct {
	what string
	do   func(ctx context.Context) (said string, err error)
}

func (d *demonstration) steps() []demoStep {
	return []demoStep{
		{"Start a runtime that keeps its data on disk, and open a session over a WebSocket.", d.start},
		{"Run a tool: demo.echo returns its arguments.", d.echo},
		{"Follow a job: demo.progress reports each of its steps as an event.", d.progress},
		{"Start a longer job.", d.long},
		{"Kill the runtime with SIGKILL in the middle of it: no warning, no time to save anything.", d.crash},
		{"Start it again on the same data.", d.start},
		{"List the jobs: those that were finished still have their results.", d.list},
		{"Look at the job that was running: it has exactly one outcome, and the client may try again.", d.interrupted},
		{"Stop the runtime in order.", d.stop},
	}
}

func (d *demonstration) start(ctx context.Context) (string, error) {
	var err error
	d.server, err = startChild(ctx, childOptions{
		args: []string{"--demo", "--data", d.data, "--log-level", "warn", "--log-format", "console"},
		env:  []string{"ARCP_TOKEN=demo=" + d.token.Reveal()},
	})
	if err != nil {
		return "", err
	}
	t := &target{url: d.server.url, token: d.token.Reveal()}
	if d.client, err = t.dial(ctx, d.counter()); err != nil {
		return "", err
	}
	s := d.client.Session()
	return fmt.Sprintf("session accepted by %s, fingerprint %.15s…", s.Runtime.Kind, s.Runtime.Fingerprint), nil
}

// counter counts the terminal messages of the interrupted job in a session
// after the restart; before it there is nothing to count.
func (d *demonstration) counter() func(*arcp.Envelope) bool {
	if len(d.jobs) < 3 {
		return nil
	}
	id := d.jobs[2]
	return func(env *arcp.Envelope) bool {
		if env.JobID == id && env.Type.Terminal() {
			d.ends.Add(1)
		}
		return false
	}
}

func (d *demonstration) invoke(ctx context.Context, tool, args string) (*client.Job, error) {
	job, err := d.client.Invoke(ctx, client.InvokeRequest{Tool: tool, Arguments: arcp.Raw(args)})
	if err == nil {
		d.jobs = append(d.jobs, job.ID())
	}
	return job, err
}

func (d *demonstration) echo(ctx context.Context) (string, error) {
	job, err := d.invoke(ctx, "demo.echo", `{"hello":"world"}`)
	if err != nil {
		return "", err
	}
	result, err := job.Wait(ctx)
	if err != nil {
		return "", err
	}
	return "completed: " + string(result.Value), nil
}

func (d *demonstration) progress(ctx context.Context) (string, error) {
	job, err := d.invoke(ctx, "demo.progress", fmt.Sprintf(`{"steps":%d,"interval_ms":%d}`, demoSteps, demoInterval))
	if err != nil {
		return "", err
	}
	events, err := d.show(ctx, job, demoSteps)
	if err != nil {
		return "", err
	}
	result, err := job.Wait(ctx)
	return fmt.Sprintf("completed after %d events: %s", events, result.Value), err
}

// show draws a job's progress until its step last, or its end, and returns how
// many events it had.
func (d *demonstration) show(ctx context.Context, job *client.Job, last float64) (events int, err error) {
	out := d.app.stdout
	bar := &progressBar{w: out}
	var line string
	for env, err := range job.Events(ctx) {
		if err != nil {
			return events, err
		}
		events++
		if env.Type != arcp.JobProgress {
			continue
		}
		p := payload[arcp.JobProgressPayload](&env)
		line = barText(p)
		if redraws(out) {
			bar.show(p)
		}
		if p.Current >= last && last != demoSteps {
			break
		}
	}
	bar.clear()
	fmt.Fprintf(out, "   %s\n", line)
	return events, nil
}

func (d *demonstration) long(ctx context.Context) (string, error) {
	job, err := d.invoke(ctx, "demo.progress", fmt.Sprintf(`{"steps":%d,"interval_ms":%d}`, longSteps, longInterval))
	if err != nil {
		return "", err
	}
	if _, err := d.show(ctx, job, longEnough); err != nil {
		return "", err
	}
	return "running", nil
}

func (d *demonstration) crash(context.Context) (string, error) {
	err := d.server.kill()
	<-d.client.Done()
	d.client.Abort()
	return "the process is gone, and with it the connection", err
}

func (d *demonstration) list(ctx context.Context) (string, error) {
	w := tabwriter.NewWriter(d.app.stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "   TOOL\tSTATUS\tOUTCOME")
	for i, id := range d.jobs {
		j, err := d.job(ctx, id)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(w, "   %s\t%s\t%s\n", j.Agent, j.Status, j.short())
		if i < 2 && j.Status != string(arcp.StateCompleted) {
			return "", fmt.Errorf("job %s is %s, want it completed as before the crash", id, j.Status)
		}
	}
	page, err := d.client.ListJobs(ctx, nil, 0, "")
	if err != nil {
		return "", errors.Join(err, w.Flush())
	}
	return fmt.Sprintf("%d jobs, none lost", len(d.jobs)), errors.Join(w.Flush(), d.listed(page))
}

// listed checks that the list has the jobs.
func (d *demonstration) listed(page arcp.SessionJobsPayload) error {
	for _, id := range d.jobs {
		found := false
		for _, j := range page.Jobs {
			found = found || j.JobID == id
		}
		if !found {
			return fmt.Errorf("job %s is not in the list", id)
		}
	}
	return nil
}

func (d *demonstration) job(ctx context.Context, id arcp.JobID) (jobInfo, error) {
	var j jobInfo
	raw, err := getJob(ctx, d.client, id)
	if err == nil {
		err = arcp.Unmarshal(raw, &j)
	}
	return j, err
}

// interrupted reads the events of the interrupted job again, from the first.
func (d *demonstration) interrupted(ctx context.Context) (string, error) {
	job, err := d.client.Subscribe(ctx, d.jobs[2], nil, true)
	if err != nil {
		return "", err
	}
	kept := 0
	for env, err := range job.Events(ctx) {
		if err != nil {
			return "", err
		}
		if env.Type == arcp.JobProgress {
			kept++
		}
	}
	_, err = job.Wait(ctx)
	failure, ok := errors.AsType[*client.JobError](err)
	if !ok {
		return "", fmt.Errorf("the interrupted job ended with %v, want it failed", err)
	}
	if _, err := d.client.ListJobs(ctx, nil, 1, ""); err != nil { // what was to come has come
		return "", err
	}
	if n := d.ends.Load(); n != 1 || failure.Code != arcp.CodeAborted || kept < longEnough {
		return "", fmt.Errorf("the interrupted job has %d outcomes, the last %s, and %d of its events: want one, ABORTED, and all", n, failure.Code, kept)
	}
	return fmt.Sprintf("failed: %s, retryable: %t; every event that was seen before the crash is still there", failure.Code, failure.Retryable), nil
}

func (d *demonstration) stop(context.Context) (string, error) {
	hangUp(d.client)
	err := d.server.stop()
	d.server, d.client = nil, nil
	return "jobs drained, store flushed, exit code 0", err
}

// close ends what is left after a failure, and shows the runtime's log.
func (d *demonstration) close(failed bool) error {
	if d.client != nil {
		d.client.Abort()
	}
	if d.server == nil {
		return nil
	}
	err := d.server.kill()
	if log := d.server.log.String(); failed && log != "" {
		fmt.Fprintf(d.app.stderr, "the runtime's log ends:\n  %s\n", strings.ReplaceAll(log, "\n", "\n  "))
	}
	return err
}

func (d *demonstration) tidy(keep bool) error {
	if keep {
		fmt.Fprintln(d.app.stderr, "the data is in", d.data)
		return nil
	}
	return os.RemoveAll(d.data)
}

// short is an outcome in a table.
func (j *jobInfo) short() string {
	switch {
	case j.Outcome == nil:
		return ""
	case j.Status == string(arcp.StateCompleted):
		return string(j.Outcome.Value)
	}
	return string(j.Outcome.Code)
}

const green = "32"

// paint colours text for a person who wants that.
func (a *app) paint(color, text string) string {
	if !isTerminal(a.stdout) || noColor() {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
