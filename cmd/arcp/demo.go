package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/transport"
)

// The jobs of the demonstration: a short job, a job whose connection is cut, and a job that runs when the runtime is
// killed.
const (
	demoSteps    = 8
	demoInterval = 120 // ms
	cutSteps     = 20
	cutInterval  = 80 // ms
	cutAt        = 7  // steps
	longSteps    = 40
	longInterval = 80 // ms
	crashAt      = 15 // steps
	demoTimeout  = time.Minute
)

func newDemo(a *app) *cobra.Command {
	var data string
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show jobs, an approval, a cut connection and a crash",
		Long: "Starts a runtime in another process and runs jobs over a WebSocket. One job waits for an\n" +
			"approval. The demonstration cuts the connection during one job. During another it kills\n" +
			"the runtime and restarts it with the same data. Both jobs complete.",
		Args: noArgs,
	}
	cmd.Flags().StringVar(&data, "data", "", "data directory of the runtime; default: a temporary directory")
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
	d := &demonstration{app: a, data: data, token: auth.NewToken("demo_"), ends: make(map[arcp.JobID]int), resumed: make(chan struct{}, 1)}
	if data == "" {
		if d.data, err = os.MkdirTemp("", "arcp-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.removeData(keep)) }()
	}
	defer func() { err = errors.Join(err, d.close(err != nil)) }()
	fmt.Fprint(a.stdout, "A runtime in another process, and a client that speaks ARCP with it.\n")
	for i, s := range d.steps() {
		fmt.Fprintf(a.stdout, "\n%d. %s\n", i+1, s.title)
		result, err := s.do(ctx)
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		fmt.Fprintf(a.stdout, "   %s %s\n", paint(a.stdout, green, "✓"), result)
	}
	fmt.Fprint(a.stdout, "\nEnd of the demonstration. `arcp dev` starts a runtime for development.\n")
	return nil
}

// demonstration is a run of `arcp demo`.
type demonstration struct {
	app   *app
	data  string
	token auth.Secret

	server  *child
	client  *client.Client
	job     *client.Job   // the job that continues after the crash
	jobs    []arcp.JobID  // in the order they were started
	resumed chan struct{} // capacity 1: the session was resumed

	mu   sync.Mutex
	url  string             // URL of the server; changes after the crash
	conn transport.Conn     // connection of the client
	ends map[arcp.JobID]int // number of final messages of each job
}

type demoStep struct {
	title string
	do    func(ctx context.Context) (result string, err error)
}

func (d *demonstration) steps() []demoStep {
	return []demoStep{
		{"Start a runtime with its data on disk, and open a session over a WebSocket.", d.begin},
		{"Run a tool: demo.echo returns its arguments.", d.echo},
		{"Follow a job: demo.progress reports each of its steps as an event.", d.progress},
		{"Ask for an approval. The asking session cannot approve; another session can.", d.approve},
		{"Follow another job, and cut the connection during it.", d.breakConnection},
		{"Start a job that saves a checkpoint at each step: demo.count.", d.longJob},
		{"Kill the runtime with SIGKILL during the job: it has no time to save anything.", d.crash},
		{"Restart the runtime with the same data. The client tries to connect meanwhile.", d.restart},
		{"Continue to read the events of the job.", d.finish},
		{"List the jobs: each has exactly one outcome.", d.list},
		{"Stop the runtime with SIGTERM.", d.stop},
	}
}

func (d *demonstration) begin(ctx context.Context) (string, error) {
	if err := d.start(ctx); err != nil {
		return "", err
	}
	tg := &target{url: d.server.url, token: d.token.Reveal()}
	opts := tg.options()
	opts.OnEnvelope = d.count
	opts.Reconnect = client.Reconnect{MaxDelay: time.Second / 2, OnChange: d.changed}
	c, err := client.ConnectFunc(ctx, d.dial, opts)
	if err != nil {
		return "", tg.explain(err)
	}
	d.client = c
	s := c.Session()
	return fmt.Sprintf("session accepted by %s, fingerprint %.15s…", s.Runtime.Kind, s.Runtime.Fingerprint), nil
}

func (d *demonstration) start(ctx context.Context) error {
	server, err := startChild(ctx, childOptions{
		args: []string{"--demo", "--data", d.data, "--log-level", "warn", "--log-format", "console"},
		env:  []string{"ARCP_SERVER_TOKEN=demo=" + d.token.Reveal()},
	})
	d.server = server
	if err == nil {
		d.mu.Lock()
		d.url = server.url
		d.mu.Unlock()
	}
	return err
}

// dial connects to the current server.
func (d *demonstration) dial(ctx context.Context) (transport.Conn, error) {
	d.mu.Lock()
	url := d.url
	d.mu.Unlock()
	conn, err := transport.Dial(ctx, url, transport.DialOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
	return conn, nil
}

func (d *demonstration) changed(ch client.LinkChange) {
	if ch.State == client.Resumed {
		select {
		case d.resumed <- struct{}{}:
		default: // the previous signal is still unread
		}
	}
}

// count counts the final messages of each job.
func (d *demonstration) count(env *arcp.Envelope) bool {
	if env.Type.Terminal() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ends[env.JobID]++
	}
	return false
}

// awaitResumed waits until the session is resumed on another connection.
func (d *demonstration) awaitResumed(ctx context.Context) error {
	select {
	case <-d.resumed:
		return nil
	case <-d.client.Done():
		return d.client.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *demonstration) invoke(ctx context.Context, tool, args string) (*client.Job, error) {
	job, err := d.client.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: arcp.Raw(args)})
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
	seqs, err := d.show(ctx, job, math.Inf(1))
	if err != nil {
		return "", err
	}
	result, err := job.Wait(ctx)
	return fmt.Sprintf("completed after %s: %s", counted(len(seqs), "event"), result.Value), err
}

// show draws the progress of a job until step last or its end, and returns the numbers of its events.
func (d *demonstration) show(ctx context.Context, job *client.Job, last float64) (seqs []uint64, err error) {
	out := d.app.stdout
	bar := &progressBar{w: out}
	var line string
	for env, err := range job.Events(ctx) {
		if err != nil {
			bar.clear()
			return seqs, err
		}
		if env.EventSeq > 0 {
			seqs = append(seqs, env.EventSeq)
		}
		if env.Type != arcp.JobProgress {
			continue
		}
		p := payload[arcp.JobProgressPayload](&env)
		line = barText(p)
		if redraws(out) {
			bar.show(p)
		}
		if p.Current >= last {
			break
		}
	}
	bar.clear()
	fmt.Fprintf(out, "   %s\n", line)
	return seqs, nil
}

// breakConnection cuts the connection of the client during a job.
func (d *demonstration) breakConnection(ctx context.Context) (string, error) {
	job, err := d.invoke(ctx, "demo.progress", fmt.Sprintf(`{"steps":%d,"interval_ms":%d}`, cutSteps, cutInterval))
	if err != nil {
		return "", err
	}
	before, err := d.show(ctx, job, cutAt)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	err = d.conn.Abort()
	d.mu.Unlock()
	if err != nil {
		return "", err
	}
	after, err := d.show(ctx, job, math.Inf(1))
	if err == nil {
		err = d.awaitResumed(ctx)
	}
	if err != nil {
		return "", err
	}
	seqs := append(before, after...)
	for i, seq := range seqs {
		if seq != seqs[0]+uint64(i) {
			return "", fmt.Errorf("event %d follows event %d", seq, seqs[0]+uint64(i)-1)
		}
	}
	_, err = job.Wait(ctx)
	return fmt.Sprintf("connection cut, resumed, no event missing (event_seq %d to %d)", seqs[0], seqs[len(seqs)-1]), err
}

func (d *demonstration) longJob(ctx context.Context) (_ string, err error) {
	d.job, err = d.invoke(ctx, "demo.count", fmt.Sprintf(`{"to":%d,"interval_ms":%d}`, longSteps, longInterval))
	if err == nil {
		_, err = d.show(ctx, d.job, crashAt)
	}
	return "running", err
}

func (d *demonstration) crash(context.Context) (string, error) {
	return "the process and the connection have ended", d.server.kill()
}

func (d *demonstration) restart(ctx context.Context) (string, error) {
	if err := d.start(ctx); err != nil {
		return "", err
	}
	return "the client resumed its session", d.awaitResumed(ctx)
}

// finish reads the events of the interrupted job to its end.
func (d *demonstration) finish(ctx context.Context) (string, error) {
	if _, err := d.show(ctx, d.job, math.Inf(1)); err != nil {
		return "", err
	}
	result, err := d.job.Wait(ctx)
	if err != nil {
		return "", err
	}
	var counted struct {
		Count       int `json:"count"`
		ResumedFrom int `json:"resumed_from"`
	}
	if err := arcp.Unmarshal(result.Value, &counted); err != nil {
		return "", fmt.Errorf("read the result of demo.count: %w", err)
	}
	info, err := d.info(ctx, d.job.ID())
	if err != nil {
		return "", err
	}
	if counted.Count != longSteps || counted.ResumedFrom == 0 || info.Attempt != 2 {
		return "", fmt.Errorf("the job returned %s in attempt %d, want a resume from a checkpoint in attempt 2", result.Value, info.Attempt)
	}
	return fmt.Sprintf("attempt %d resumed from the checkpoint at %d and counted to %d", info.Attempt, counted.ResumedFrom, counted.Count), nil
}

func (d *demonstration) list(ctx context.Context) (string, error) {
	w := tabwriter.NewWriter(d.app.stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "   TOOL\tSTATUS\tOUTCOME")
	for _, id := range d.jobs {
		j, err := d.info(ctx, id)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(w, "   %s\t%s\t%s\n", j.Agent, j.Status, outcomeCell(&j))
		if j.Status != arcp.StateCompleted || d.endsOf(id) != 1 {
			return "", fmt.Errorf("job %s is %s and has %d outcomes, want it completed once", id, j.Status, d.endsOf(id))
		}
	}
	return fmt.Sprintf("%d jobs, none lost, none run twice", len(d.jobs)), errors.Join(w.Flush(), d.listed(ctx))
}

// listed checks that the list has all jobs. Calls of the tools of the runtime are listed only by their name.
func (d *demonstration) listed(ctx context.Context) error {
	var listed []arcp.JobID
	for _, agent := range []string{"", "approval.gate"} {
		page, err := d.client.ListJobs(ctx, client.ListJobsParams{Filter: &arcp.JobFilter{Agent: agent}})
		if err != nil {
			return err
		}
		for _, j := range page.Jobs {
			listed = append(listed, j.JobID)
		}
	}
	for _, id := range d.jobs {
		if !slices.Contains(listed, id) {
			return fmt.Errorf("job %s is not in the list", id)
		}
	}
	return nil
}

func (d *demonstration) endsOf(id arcp.JobID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ends[id]
}

func (d *demonstration) info(ctx context.Context, id arcp.JobID) (arcp.JobView, error) {
	var j arcp.JobView
	raw, err := getJob(ctx, d.client, id)
	if err == nil {
		err = arcp.Unmarshal(raw, &j)
	}
	return j, err
}

func (d *demonstration) stop(context.Context) (string, error) {
	closeSession(d.client)
	err := d.server.stop()
	d.server, d.client = nil, nil
	return "jobs drained, store flushed, exit code 0", err
}

// close ends the runtime after a failure and prints the end of its log.
func (d *demonstration) close(failed bool) error {
	if d.client != nil {
		d.client.Abort()
	}
	if d.server == nil {
		return nil
	}
	err := d.server.kill()
	if log := d.server.log.String(); failed && log != "" {
		fmt.Fprintf(d.app.stderr, "the log of the runtime ends with:\n  %s\n", strings.ReplaceAll(log, "\n", "\n  "))
	}
	return err
}

func (d *demonstration) removeData(keep bool) error {
	if keep {
		fmt.Fprintln(d.app.stderr, "the data is in", d.data)
		return nil
	}
	return os.RemoveAll(d.data)
}

// outcomeCell returns the outcome of a job for a table.
func outcomeCell(j *arcp.JobView) string {
	switch {
	case len(j.Outcome) == 0:
		return ""
	case j.Status == arcp.StateCompleted:
		value := outcomeAs[arcp.JobCompletedPayload](j).Value
		var gate arcp.OutcomeView
		if arcp.Unmarshal(value, &gate) == nil && gate.Approval.ApprovalID != "" { // without the whole question
			return fmt.Sprintf("%s by %s", gate.Outcome, gate.Approval.ResolvedBy)
		}
		return string(value)
	}
	return string(outcomeAs[arcp.ErrorPayload](j).Code)
}

const green = "32"

// paint adds a colour to text if w supports colours.
func paint(w io.Writer, color, text string) string {
	if !isTerminal(w) || noColor() {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
