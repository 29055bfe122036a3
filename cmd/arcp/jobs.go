package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newJobs(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "jobs", Short: "List, follow and cancel jobs", Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	cmd.AddCommand(newJobsList(a), newJobsShow(a), newJobsWatch(a), newJobsWait(a), newJobsCancel(a))
	return cmd
}

// listing is what `arcp jobs ls` was asked for.
type listing struct {
	status        []string
	agent, cursor string
	limit         uint32
	all           bool
}

func newJobsList(a *app) *cobra.Command {
	var l listing
	cmd := &cobra.Command{Use: "ls", Short: "List your jobs, oldest first", Args: noArgs}
	t := addTarget(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&l.status, "status", nil, "only jobs in these states, for example running,failed")
	f.StringVar(&l.agent, "agent", "", "only jobs of this tool: name or name@version")
	f.Uint32Var(&l.limit, "limit", 100, "how many to list, at most 1000")
	f.StringVar(&l.cursor, "cursor", "", "go on where the list before ended")
	f.BoolVar(&l.all, "all", false, "list all of them")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, _ []string) error {
		page, err := l.fetch(ctx, c)
		if err != nil {
			return err
		}
		return a.printJobs(page)
	})
	return cmd
}

func (l *listing) fetch(ctx context.Context, c *client.Client) (arcp.SessionJobsPayload, error) {
	filter := &arcp.JobFilter{Status: l.status, Agent: l.agent}
	if !l.all {
		if l.limit == 0 {
			return arcp.SessionJobsPayload{}, usagef("--limit 0: give 1 to 1000, or --all")
		}
		return c.ListJobs(ctx, filter, l.limit, l.cursor)
	}
	var page arcp.SessionJobsPayload
	for j, err := range c.ListAllJobs(ctx, filter) {
		if err != nil {
			return page, err
		}
		page.Jobs = append(page.Jobs, j)
	}
	return page, nil
}

func (a *app) printJobs(page arcp.SessionJobsPayload) error {
	if a.json {
		return a.printJSON(struct {
			Jobs       []arcp.JobEntry `json:"jobs"`
			NextCursor *string         `json:"next_cursor"`
		}{append([]arcp.JobEntry{}, page.Jobs...), page.NextCursor})
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tTOOL\tSTATUS\tCREATED")
	for _, j := range page.Jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", j.JobID, oneLine(j.Agent), j.Status, clock(j.CreatedAt))
	}
	if page.NextCursor != nil {
		fmt.Fprintln(a.stderr, "there are more: --all lists them, --cursor", *page.NextCursor, "goes on")
	}
	return w.Flush()
}

// clock is a moment as people here read it.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// jobInfo is the answer of the tool jobs.get.
type jobInfo struct {
	JobID        arcp.JobID     `json:"job_id"`
	Agent        string         `json:"agent"`
	Status       string         `json:"status"`
	CreatedAt    time.Time      `json:"created_at"`
	EndedAt      time.Time      `json:"ended_at,omitzero"`
	Attempt      int            `json:"attempt,omitzero"`
	SessionID    arcp.SessionID `json:"session_id,omitzero"`
	TraceID      string         `json:"trace_id,omitzero"`
	LastEventSeq uint64         `json:"last_event_seq"`
	Outcome      *jobOutcome    `json:"outcome,omitzero"`
}

// jobOutcome is the payload of the message that ended a job: the members of
// job.completed, job.failed or job.cancelled.
type jobOutcome struct {
	Value      arcp.Raw  `json:"value,omitzero"`
	ResultID   string    `json:"result_id,omitzero"`
	ResultSize uint64    `json:"result_size,omitzero"`
	Code       arcp.Code `json:"code,omitzero"`
	Message    string    `json:"message,omitzero"`
	Retryable  bool      `json:"retryable,omitzero"`
	Details    arcp.Raw  `json:"details,omitzero"`
	Reason     string    `json:"reason,omitzero"`
}

func newJobsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show JOB", Short: "Show a job and its outcome", Args: someArgs(1, 1)}
	t := addTarget(cmd)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		raw, err := getJob(ctx, c, arcp.JobID(args[0]))
		if err != nil {
			return err
		}
		if a.json {
			_, err := fmt.Fprintf(a.stdout, "%s\n", raw)
			return err
		}
		return a.printJob(raw)
	})
	return cmd
}

// getJob asks the runtime's tool about a job; a runtime without it has at least
// its list.
func getJob(ctx context.Context, c *client.Client, id arcp.JobID) (arcp.Raw, error) {
	job, err := c.Invoke(ctx, client.InvokeRequest{
		Tool:          "jobs.get",
		Arguments:     map[string]arcp.JobID{"job_id": id},
		DiscardEvents: true,
	})
	if refusal, ok := errors.AsType[*client.RemoteError](err); ok && refusal.Code == arcp.CodeAgentNotAvailable {
		return findJob(ctx, c, id)
	}
	if err != nil {
		return nil, err
	}
	result, err := job.Wait(ctx)
	if err, ok := errors.AsType[*client.JobError](err); ok {
		return nil, err.RemoteError // the failure is about the job asked for, not about the asking
	}
	return result.Value, err
}

func findJob(ctx context.Context, c *client.Client, id arcp.JobID) (arcp.Raw, error) {
	for j, err := range c.ListAllJobs(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if j.JobID == id {
			return arcp.Marshal(j)
		}
	}
	return nil, failf("there is no job %s among yours; `arcp jobs ls --all` lists them", id)
}

func (a *app) printJob(raw arcp.Raw) error {
	var j jobInfo
	if err := arcp.Unmarshal(raw, &j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	row := func(name string, value any) {
		if text := oneLine(fmt.Sprint(value)); text != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, text)
		}
	}
	row("job", j.JobID)
	row("tool", j.Agent)
	row("status", j.Status)
	row("created", clock(j.CreatedAt))
	if !j.EndedAt.IsZero() {
		row("ended", fmt.Sprintf("%s, after %s", clock(j.EndedAt), j.EndedAt.Sub(j.CreatedAt).Round(time.Millisecond)))
	}
	if j.Attempt > 1 {
		row("attempt", j.Attempt)
	}
	row("session", j.SessionID)
	row("trace", j.TraceID)
	row("last event", j.LastEventSeq)
	j.outcome(row)
	return w.Flush()
}

func (j *jobInfo) outcome(row func(name string, value any)) {
	o := j.Outcome
	switch {
	case o == nil:
	case j.Status == string(arcp.StateFailed):
		row("error", fmt.Sprintf("%s: %s", o.Code, o.Message))
		row("retryable", o.Retryable)
		row("details", compact(o.Details))
	case j.Status == string(arcp.StateCancelled):
		row("reason", strings.Join(strings.Fields(string(o.Code)+" "+o.Reason), " "))
	case o.ResultID != "":
		row("result", fmt.Sprintf("%d bytes in parts; `arcp jobs wait %s` prints them", o.ResultSize, j.JobID))
	default:
		row("result", string(o.Value))
	}
}

func newJobsWatch(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch JOB",
		Short: "Show a job's events, past and to come, and its result",
		Args:  someArgs(1, 1),
	}
	t := addTarget(cmd)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		return a.watch(ctx, c, arcp.JobID(args[0]), a.newEventPrinter(true))
	})
	return cmd
}

func newJobsWait(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{Use: "wait JOB", Short: "Wait for a job and print its result", Args: someArgs(1, 1)}
	t := addTarget(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; the job goes on after")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		if timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout)
			defer stop()
		}
		return a.watch(ctx, c, arcp.JobID(args[0]), new(eventPrinter))
	})
	return cmd
}

func (a *app) watch(ctx context.Context, c *client.Client, id arcp.JobID, p *eventPrinter) error {
	job, err := c.Subscribe(ctx, id, nil, true)
	if err != nil {
		return err
	}
	return a.see(ctx, job, p)
}

func newJobsCancel(a *app) *cobra.Command {
	var reason string
	var deadline time.Duration
	cmd := &cobra.Command{Use: "cancel JOB…", Short: "Cancel jobs", Args: someArgs(1, math.MaxInt)}
	t := addTarget(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever follows the job")
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "how long the job may take to stop before it is ended by force; default 5s, at most 60s")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		for _, id := range args {
			if err := c.Cancel(ctx, arcp.JobID(id), reason, deadline); err != nil {
				return err
			}
			if err := a.printCancelled(arcp.JobID(id)); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

func (a *app) printCancelled(id arcp.JobID) error {
	if a.json {
		return a.printJSON(struct {
			JobID    arcp.JobID `json:"job_id"`
			Accepted bool       `json:"accepted"`
		}{id, true})
	}
	_, err := fmt.Fprintln(a.stdout, id, "will be cancelled")
	return err
}
