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
)

// timeoutGrace is how much longer than the job's own limit the client waits for
// its end.
const timeoutGrace = 5 * time.Second

// invocation holds the flags of `arcp invoke`.
type invocation struct {
	follow, detach, noInput bool
	key                     string
	timeout                 time.Duration
	lease, expires          string
	budget                  []string
}

func newInvoke(a *app) *cobra.Command {
	var in invocation
	cmd := &cobra.Command{
		Use:   "invoke TOOL [JSON|@FILE|-]",
		Short: "Submit a job and wait for its result",
		Long: "Submits a job and waits for its end. The events of the job go to standard error as\n" +
			"they come, its result to standard output as JSON. SIGINT cancels the job; a second\n" +
			"one leaves it running.\n\n" +
			"What the job asks people is shown with the command that answers it. With --follow on a\n" +
			"terminal it is asked there.",
		Example: "  arcp invoke demo.echo '{\"hello\":\"world\"}'\n" +
			"  arcp invoke demo.progress '{\"steps\":10,\"interval_ms\":200}' --follow\n" +
			"  arcp invoke demo.spend '{\"currency\":\"USD\",\"amount\":\"0.10\",\"times\":3}' --budget USD:5.00 --lease '{\"tool.call\":[\"*\"]}'",
		Args: someArgs(1, 2),
	}
	t := addTarget(cmd)
	f := cmd.Flags()
	f.BoolVar(&in.follow, "follow", false, "show every event of the job with its number")
	f.BoolVar(&in.noInput, "no-input", false, "never ask here what the job asks people")
	f.StringVar(&in.lease, "lease", "", "what the job may do, as JSON or `@FILE`; default what your principal may")
	f.StringArrayVar(&in.budget, "budget", nil, "what the job may spend, for example `USD:5.00`; may be repeated")
	f.StringVar(&in.expires, "expires", "", "when its lease ends: a duration such as 10m, or a time such as 2030-01-02T15:04:05Z")
	f.BoolVar(&in.detach, "detach", false, "print the job's id and leave it running")
	f.StringVar(&in.key, "idempotency-key", "", "the same key with the same request is the same job")
	f.DurationVar(&in.timeout, "timeout", 0, "how long the job may run, for example 90s; then it fails with TIMEOUT")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := in.request(a, args)
		if err != nil {
			return err
		}
		return coded(a.invoke(cmd.Context(), t, req, in))
	}
	return cmd
}

func (in invocation) request(a *app, args []string) (client.InvokeRequest, error) {
	req := client.InvokeRequest{Tool: args[0], IdempotencyKey: in.key}
	if in.timeout < 0 {
		return req, usagef("--timeout %s: give a duration such as 90s", in.timeout)
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

// authority sets the job's lease and budget.
func (in invocation) authority(a *app, o *arcp.SubmitOptions) (err error) {
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
	at, err := moment(in.expires, time.Now())
	if err != nil {
		return usagef("--expires %s: %w", in.expires, err)
	}
	o.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: at}
	return nil
}

// moment is a time, or one that comes after a duration.
func moment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, errors.New("give a duration such as 10m, or a time such as 2030-01-02T15:04:05Z")
	}
	return at, nil
}

// argument is JSON itself, @ and the name of a file with it, or - for standard
// input.
func (a *app) argument(arg string) (arcp.Raw, error) {
	return a.value(arg, "the arguments", `give for example '{"hello":"world"}', @file or -`)
}

// value parses an argument; where names it in errors and hint is the remedy.
func (a *app) value(arg, where, hint string) (arcp.Raw, error) {
	raw, err := []byte(arg), error(nil)
	if name, ok := strings.CutPrefix(arg, "@"); ok {
		where = name
		raw, err = os.ReadFile(name)
	} else if arg == "-" {
		where = "standard input"
		raw, err = io.ReadAll(a.stdin)
	}
	if err != nil {
		return nil, usagef("read %s: %w", where, cause(err))
	}
	v := arcp.Raw(raw)
	if !v.IsValid() {
		return nil, usagef("%s: not JSON; %s", where, hint)
	}
	return v, nil
}

func (a *app) invoke(ctx context.Context, t *target, req client.InvokeRequest, in invocation) error {
	if err := t.resolve(a); err != nil {
		return err
	}
	t.person = !in.detach
	var run running
	ctx, stop := run.interruptible(ctx, a)
	defer stop()
	c, err := t.connect(ctx, a)
	if err != nil {
		return err
	}
	defer hangUp(c)
	job, err := c.Invoke(ctx, req)
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
	p := a.newEventPrinter(in.follow)
	if a.person && in.follow && !a.json && !in.noInput {
		p.console = a.newConsole(c)
	}
	return a.see(ctx, job, p)
}

// running is a submitted job that signals act on.
type running struct{ job atomic.Pointer[submitted] }

type submitted struct {
	c   *client.Client
	job *client.Job
}

// interruptible is a context that SIGINT and SIGTERM end; when the job exists
// the first of them cancels it instead.
func (r *running) interruptible(ctx context.Context, a *app) (context.Context, context.CancelFunc) {
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
			case sub == nil:
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

// cancel asks the runtime to cancel the job, and reports whether it will.
func (s *submitted) cancel(ctx context.Context, a *app) bool {
	fmt.Fprintf(a.stderr, "cancelling %s; interrupt again to stop waiting for its end\n", s.job.ID())
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return s.c.Cancel(ctx, client.CancelParams{JobID: s.job.ID(), Reason: "interrupted"}) == nil
}

func (a *app) printJobID(job *client.Job) error {
	if !a.json {
		_, err := fmt.Fprintln(a.stdout, job.ID())
		return err
	}
	return a.printJSON(struct {
		JobID arcp.JobID `json:"job_id"`
		Agent string     `json:"agent,omitzero"`
	}{job.ID(), job.Accepted().Agent})
}

// see shows the events of a job, and its outcome.
func (a *app) see(ctx context.Context, job *client.Job, p *eventPrinter) error {
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
		return leave(context.Cause(ctx), job)
	case errors.Is(failure, client.ErrSessionLost):
		return leave(failure, job)
	}
	result, err := job.Wait(ctx)
	switch {
	case err != nil:
		return err
	case failure != nil && result.ResultID != "": // part of the result may be missing
		return failure
	case failure != nil:
		fmt.Fprintf(a.stderr, "arcp: %s\n", readable(failure))
	}
	return a.printResult(result, p)
}

// leave reports that the job continues without this command, or that it is being cancelled.
func leave(why error, job *client.Job) error {
	if errors.Is(why, errCancelling) {
		return fmt.Errorf("%w; %s is being cancelled: `arcp jobs show %s` says when it has ended", why, job.ID(), job.ID())
	}
	return fmt.Errorf("%w; %s goes on: `arcp jobs watch %s` shows it", why, job.ID(), job.ID())
}

// printResult writes the result of a job as JSON.
func (a *app) printResult(r client.Result, p *eventPrinter) error {
	value := []byte(r.Value)
	if r.ResultID != "" {
		if p.bad != nil {
			return p.bad
		}
		value = p.result
	} else if r.ResultRef != nil {
		return a.printJSON(r.ResultRef)
	}
	if len(value) == 0 {
		value = []byte("null")
	}
	_, err := a.stdout.Write(append(value, '\n'))
	return err
}
