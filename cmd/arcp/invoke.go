package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
)

// timeoutGrace is the time that the client waits for the end of a job after the job's own limit.
const timeoutGrace = 5 * time.Second

// invocation has the flags of `arcp invoke`.
type invocation struct {
	workflow                bool // workflow.start instead of tool.invoke
	follow, detach, noInput bool
	key, stream, send       string
	timeout                 time.Duration
	lease, expires          string
	budget                  []string

	prepare func(ctx context.Context, c *client.Client, req *client.InvokeParams) error // completes the request; may be nil
}

func newInvoke(a *app) *cobra.Command {
	var in invocation
	cmd := &cobra.Command{
		Use:   "invoke TOOL [JSON|@FILE|-]",
		Short: "Submit a job and wait for its result",
		Long: "Submits a job and waits for its end. Events of the job are printed to standard error,\n" +
			"the result to standard output as JSON. With -o json, jsonl and yaml the events are JSON\n" +
			"lines. SIGINT cancels the job. A second SIGINT ends the command without waiting for the\n" +
			"end of the job, which is being cancelled.\n\n" +
			"A question of the job is printed with the command that answers it. On a terminal,\n" +
			"--follow asks the question.",
		Example: "  arcp invoke demo.echo '{\"hello\":\"world\"}'\n" +
			"  arcp invoke demo.progress '{\"steps\":10,\"interval_ms\":200}' --follow\n" +
			"  arcp invoke demo.spend '{\"currency\":\"USD\",\"amount\":\"0.10\",\"times\":3}' --budget USD:5.00 --lease '{\"tool.call\":[\"*\"]}'",
		Args: argsBetween(1, 2),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeTools(a, t)
	in.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&in.stream, "stream", "", "print the stream `NAME` of the job instead of its result")
	f.StringVar(&in.send, "send", "", "send `FILE`, or - for standard input, to the job as a stream")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := in.request(a, args)
		if err != nil {
			return err
		}
		return withExitCode(a.invoke(cmd.Context(), t, req, in))
	}
	return cmd
}

// addFlags adds the flags of every submit.
func (in *invocation) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&in.follow, "follow", "f", false, "print every event of the job with its number")
	f.BoolVar(&in.noInput, "no-input", false, "do not ask the questions of the job on the terminal")
	f.StringVar(&in.lease, "lease", "", "lease of the job, as JSON or `@FILE`; default: the lease of your principal, or none")
	f.StringArrayVar(&in.budget, "budget", nil, "budget of the job, as a `CURRENCY:AMOUNT` such as USD:5.00; may be repeated")
	f.StringVar(&in.expires, "expires", "", "end of the lease: a duration such as 10m, or a time such as 2030-01-02T15:04:05Z")
	f.BoolVar(&in.detach, "detach", false, "print the id of the job and do not wait")
	f.StringVar(&in.key, "idempotency-key", "", "a repeated request with the same key returns the same job")
	addDuration(f, &in.timeout, "timeout", 0, "run time of the job, for example 90s, after which it fails with TIMEOUT")
}

func (in invocation) request(a *app, args []string) (client.InvokeParams, error) {
	req := client.InvokeParams{Tool: args[0], IdempotencyKey: in.key}
	if in.stream != "" && in.detach {
		return req, usagef("--stream and --detach exclude each other")
	}
	switch {
	case in.send != "" && in.detach:
		return req, usagef("--send and --detach exclude each other")
	case in.send == "-" && len(args) == 2 && args[1] == "-":
		return req, usagef("--send - and the argument - exclude each other: both read standard input")
	}
	if in.timeout > 0 {
		req.Options.MaxRuntimeSec = new(arcp.FloatNumber(in.timeout.Seconds()))
	}
	raw := arcp.Raw("{}")
	if len(args) == 2 {
		var err error
		if raw, err = a.argument(args[1]); err != nil {
			return req, err
		}
	}
	req.Arguments = raw
	return req, in.authority(a, &req.Options)
}

// authority sets the lease and the budget of the job.
func (in invocation) authority(a *app, o *arcp.SubmitOptions) (err error) {
	for _, amount := range in.budget {
		budget, err := arcp.Marshal(map[string][]string{arcp.NamespaceCostBudget: {amount}})
		if err != nil || runtime.CheckLease(budget) != nil {
			return usagef("--budget %q: give a currency and an amount, for example USD:5.00", amount)
		}
	}
	o.CostBudget = in.budget
	if in.lease != "" {
		if in.lease == "-" {
			return usagef("--lease: give JSON or @FILE")
		}
		if o.LeaseRequest, err = a.value(in.lease, "--lease", `give for example '{"fs.read":["/srv/**"]}' or @file`); err != nil {
			return err
		}
	}
	if in.expires == "" {
		return nil
	}
	at, err := parseTime(in.expires, time.Now())
	if err != nil {
		return usagef("--expires %s: %w", in.expires, err)
	}
	o.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: at}
	return nil
}

// parseTime parses a time, or a duration after now.
func parseTime(text string, now time.Time) (time.Time, error) {
	if d, err := settings.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, errors.New("give a duration such as 10m, or a time such as 2030-01-02T15:04:05Z")
	}
	return at, nil
}

// argument returns the JSON of an argument: JSON text, @FILE, or - for standard input.
func (a *app) argument(arg string) (arcp.Raw, error) {
	return a.value(arg, "the arguments", `give for example '{"hello":"world"}', @file or -`)
}

// value parses an argument. name is its name in errors, and hint the remedy.
func (a *app) value(arg, name, hint string) (arcp.Raw, error) {
	raw, err := []byte(arg), error(nil)
	if file, ok := strings.CutPrefix(arg, "@"); ok {
		name = file
		raw, err = os.ReadFile(file)
	} else if arg == "-" {
		name = "standard input"
		raw, err = io.ReadAll(a.stdin)
	}
	if err != nil {
		return nil, usagef("read %s: %w", name, cause(err))
	}
	v := arcp.Raw(raw)
	if !v.IsValid() {
		return nil, usagef("%s: not JSON; %s", name, hint)
	}
	return v, nil
}

func (a *app) invoke(ctx context.Context, tg *target, req client.InvokeParams, in invocation) error {
	if err := tg.resolve(a); err != nil {
		return err
	}
	input, err := a.openInput(in.send)
	if err != nil {
		return err
	}
	tg.interactive = !in.detach
	var run runningJob
	ctx, stop := run.interruptible(ctx, a)
	defer stop()
	c, err := tg.connect(ctx, a)
	if err != nil {
		return err
	}
	defer closeSession(c)
	if in.prepare != nil {
		if err := in.prepare(ctx, c, &req); err != nil {
			return err
		}
	}
	submit := c.Invoke
	if in.workflow {
		submit = func(ctx context.Context, req client.InvokeParams) (*client.Job, error) {
			return startWorkflow(ctx, c, req)
		}
	}
	job, err := submit(ctx, req)
	if err != nil {
		return err
	}
	if in.detach {
		return a.printJobID(job)
	}
	run.job.Store(&submitted{c, job})
	if in.timeout > 0 {
		ctx, stop = context.WithTimeout(ctx, in.timeout+timeoutGrace)
		defer stop()
	}
	if input != nil {
		if err := input.send(ctx, job); err != nil {
			return fmt.Errorf("--send: %w; `arcp jobs show %s` tells what became of the job", err, job.ID())
		}
		defer input.warn(a.stderr)
	}
	p := a.newEventPrinter(in.follow)
	p.steps = in.workflow
	if in.stream != "" {
		p.pipe = &streamPipe{name: in.stream, w: a.stdout}
	}
	if a.interactive && in.follow && !a.json && !in.noInput && c.Session().Dialect == arcp.DialectRFC {
		p.console = a.newConsole(c)
	}
	return a.follow(ctx, job, p)
}

// runningJob is the job that signals cancel.
type runningJob struct{ job atomic.Pointer[submitted] }

type submitted struct {
	c   *client.Client
	job *client.Job
}

// interruptible returns a context that SIGINT and SIGTERM end. If the job exists and the runtime is connected, the first
// signal cancels the job instead.
func (r *runningJob) interruptible(ctx context.Context, a *app) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		cancelling := false
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			switch sub := r.job.Load(); {
			case cancelling:
				cancel(errCancelling)
			case sub == nil, a.disconnected.Load(): // a cancel cannot be sent
				cancel(errInterrupted)
			default:
				if cancelling = sub.cancel(ctx, a); !cancelling {
					cancel(errInterrupted)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// cancel asks the runtime to cancel the job, and reports whether the request was accepted.
func (s *submitted) cancel(ctx context.Context, a *app) bool {
	fmt.Fprintf(a.stderr, "cancelling %s; interrupt again to stop waiting\n", s.job.ID())
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return s.c.Cancel(ctx, client.CancelParams{JobID: s.job.ID(), Reason: "interrupted"}) == nil
}

func (a *app) printJobID(job *client.Job) error {
	return a.printOutcome(struct {
		JobID arcp.JobID `json:"job_id"`
		Agent string     `json:"agent,omitzero"`
	}{job.ID(), job.Accepted().Agent}, job.ID())
}

// follow prints the events and the outcome of a job.
func (a *app) follow(ctx context.Context, job *client.Job, p *eventPrinter) error {
	var failure error
	for env, err := range job.Events(ctx) {
		if err != nil {
			failure = err
			break
		}
		p.show(ctx, &env)
	}
	p.done()
	switch {
	case failure != nil && ctx.Err() != nil:
		return stopWaiting(a, context.Cause(ctx), job)
	case errors.Is(failure, client.ErrSessionLost):
		return stopWaiting(a, failure, job)
	}
	result, err := job.Wait(ctx)
	switch {
	case err != nil:
		return err
	case failure != nil && (result.ResultID != "" || p.pipe != nil): // part of the result may be missing
		return failure
	case failure != nil:
		fmt.Fprintf(a.stderr, "arcp: %s\n", readable(failure))
	}
	if p.pipe != nil {
		return p.pipe.failure()
	}
	if a.format == formatName {
		return printName(a.stdout, job.ID())
	}
	return a.printResult(result, p)
}

// stopWaiting returns the error of a command that ends before the job: the job continues or is being cancelled.
// While the connection is lost its state is unknown.
func stopWaiting(a *app, cause error, job *client.Job) error {
	switch {
	case errors.Is(cause, errCancelling):
		return fmt.Errorf("%w; %s is being cancelled: `arcp jobs show %s` shows its state", cause, job.ID(), job.ID())
	case a.disconnected.Load() && !errors.Is(cause, client.ErrSessionLost):
		return fmt.Errorf("%w while the connection is lost, and %s may continue: `arcp jobs show %s` shows its state when the runtime answers again",
			cause, job.ID(), job.ID())
	}
	return fmt.Errorf("%w; %s continues: `arcp jobs watch %s` follows it", cause, job.ID(), job.ID())
}

// printResult writes the result of a job as JSON or YAML, and the content of a result with a content type as it
// is.
func (a *app) printResult(r client.Result, p *eventPrinter) error {
	value, err := p.parts.Content(&r)
	switch {
	case err != nil:
		return err
	case r.ResultID != "" && r.ContentType != "":
		_, err := a.stdout.Write(value)
		return err
	case r.ResultRef != nil:
		return a.printJSON(r.ResultRef)
	}
	if len(value) == 0 {
		value = []byte("null")
	}
	return a.printRaw(value)
}
