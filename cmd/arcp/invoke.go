package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// timeoutGrace is how much longer than the job's own limit the client waits for
// its end.
const timeoutGrace = 5 * time.Second

// invocation is what `arcp invoke` was asked for.
type invocation struct {
	follow, detach bool
	key            string
	timeout        time.Duration
}

func newInvoke(a *app) *cobra.Command {
	var in invocation
	cmd := &cobra.Command{
		Use:   "invoke TOOL [JSON|@FILE|-]",
		Short: "Submit a job and wait for its result",
		Long: "Submits a job and waits for its end. The events of the job go to standard error as\n" +
			"they come, its result to standard output as JSON. SIGINT cancels the job; a second\n" +
			"one leaves it running.",
		Example: "  arcp invoke demo.echo '{\"hello\":\"world\"}'\n" +
			"  arcp invoke demo.progress '{\"steps\":10,\"interval_ms\":200}' --follow",
		Args: cobra.RangeArgs(1, 2),
	}
	t := addTarget(cmd)
	f := cmd.Flags()
	f.BoolVar(&in.follow, "follow", false, "show every event of the job with its number")
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
	return req, nil
}

// argument is JSON itself, @ and the name of a file with it, or - for standard
// input.
func (a *app) argument(arg string) (arcp.Raw, error) {
	raw, where, err := []byte(arg), "the arguments", error(nil)
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
		return nil, usagef(`%s: not JSON; give for example '{"hello":"world"}', @file or -`, where)
	}
	return v, nil
}

func (a *app) invoke(ctx context.Context, t *target, req client.InvokeRequest, in invocation) error {
	if err := t.resolve(a); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	interrupted := context.AfterFunc(waitSignal(ctx, signals), func() { cancel(errInterrupted) })

	c, err := t.dial(ctx)
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
	interrupted()
	return a.see(ctx, c, job, in)
}
