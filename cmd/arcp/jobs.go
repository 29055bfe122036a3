package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newJobs(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "jobs", Short: "List, follow, interrupt, cancel and delete jobs", Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	cmd.AddCommand(newJobsList(a), newJobsShow(a), newJobsWatch(a), newJobsWait(a), newJobsCancel(a), newJobsInterrupt(a), newJobsRemove(a))
	return cmd
}

func newJobsList(a *app) *cobra.Command {
	filter := new(arcp.JobFilter)
	cmd := newList(a, list[arcp.JobEntry]{
		short:  "List your newest jobs, oldest first",
		newest: true,
		fetch: func(ctx context.Context, c *client.Client, q *query) (arcp.Page[arcp.JobEntry], error) {
			p, err := c.ListJobs(ctx, client.ListJobsParams{Filter: filter, Limit: q.limit, Cursor: q.cursor})
			next := ""
			if p.NextCursor != nil {
				next = *p.NextCursor
			}
			return arcp.Page[arcp.JobEntry]{Items: p.Jobs, NextCursor: next}, err
		},
		document: func(p arcp.Page[arcp.JobEntry]) any {
			answer := struct {
				Jobs       []arcp.JobEntry `json:"jobs"`
				NextCursor *string         `json:"next_cursor"`
			}{Jobs: p.Items}
			if p.NextCursor != "" {
				answer.NextCursor = &p.NextCursor
			}
			return answer
		},
		columns: []column[arcp.JobEntry]{
			{"JOB", func(j *arcp.JobEntry) any { return j.JobID }},
			{"TOOL", func(j *arcp.JobEntry) any { return j.Agent }},
			{"STATUS", func(j *arcp.JobEntry) any { return j.Status }},
			{"CREATED", func(j *arcp.JobEntry) any { return clock(j.CreatedAt) }},
		},
	})
	f := cmd.Flags()
	f.StringSliceVar(&filter.Status, "status", nil, "only jobs in these states, for example running,failed")
	f.StringVar(&filter.Agent, "agent", "", "only jobs of this tool: name or name@version")
	checked := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		for _, s := range filter.Status {
			if err := oneOf("status", s, texts(arcp.JobStates)...); err != nil {
				return err
			}
		}
		return checked(cmd, args)
	}
	return cmd
}

// clock is a moment as people here read it.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

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
	raw, err := callTool(ctx, c, "jobs.get", map[string]arcp.JobID{"job_id": id})
	if refusal, ok := errors.AsType[*client.RemoteError](err); ok && refusal.Code == arcp.CodeAgentNotAvailable {
		return findJob(ctx, c, id)
	}
	return raw, err
}

// callTool runs one of the runtime's own tools. Its failure is the tool's own error, without
// the call around it.
func callTool(ctx context.Context, c *client.Client, name string, args any) (arcp.Raw, error) {
	job, err := c.Invoke(ctx, client.InvokeRequest{Tool: name, Arguments: args, DiscardEvents: true})
	if err != nil {
		return nil, err
	}
	result, err := job.Wait(ctx)
	if failure, ok := errors.AsType[*client.JobError](err); ok {
		return nil, failure.RemoteError
	}
	return result.Value, err
}

// ask runs one of the runtime's own tools and reads its result.
func ask[T any](ctx context.Context, c *client.Client, tool string, args any) (got T, err error) {
	raw, err := callTool(ctx, c, tool, args)
	if err != nil {
		return got, err
	}
	if err := arcp.Unmarshal(raw, &got); err != nil {
		return got, fmt.Errorf("read the answer of %s: %w", tool, err)
	}
	return got, nil
}

func findJob(ctx context.Context, c *client.Client, id arcp.JobID) (arcp.Raw, error) {
	for j, err := range c.Jobs(ctx, client.ListJobsParams{}) {
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
	var j arcp.JobView
	if err := arcp.Unmarshal(raw, &j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	return facts(a.stdout, func(fact func(string, any)) {
		fact("job", j.JobID)
		fact("tool", j.Agent)
		fact("status", j.Status)
		fact("created", clock(j.CreatedAt))
		if !j.EndedAt.IsZero() {
			fact("ended", fmt.Sprintf("%s, after %s", clock(j.EndedAt), j.EndedAt.Sub(j.CreatedAt).Round(time.Millisecond)))
		}
		if j.Attempt > 1 {
			fact("attempt", j.Attempt)
		}
		fact("session", j.SessionID)
		fact("trace", j.TraceID)
		fact("last event", j.LastEventSeq)
		outcomeFacts(&j, fact)
	})
}

// outcomeFacts lists the facts of a job's outcome that can be decoded.
func outcomeFacts(j *arcp.JobView, fact func(name string, value any)) {
	switch {
	case len(j.Outcome) == 0:
	case j.Status == arcp.StateFailed:
		e := outcomeAs[arcp.ErrorPayload](j)
		fact("error", fmt.Sprintf("%s: %s", e.Code, e.Message))
		fact("retryable", e.Retryable)
		fact("details", compact(e.Details))
	case j.Status == arcp.StateCancelled:
		c := outcomeAs[arcp.JobCancelledPayload](j)
		fact("reason", strings.Join(strings.Fields(string(c.Code)+" "+c.Reason), " "))
	default:
		c := outcomeAs[arcp.JobCompletedPayload](j)
		if c.ResultID == "" || c.ResultSize == nil {
			fact("result", string(c.Value))
			return
		}
		fact("result", fmt.Sprintf("%d bytes in parts; `arcp jobs wait %s` prints them", *c.ResultSize, j.JobID))
	}
}

// outcomeAs decodes as much of an outcome as it can, for display.
func outcomeAs[T any](j *arcp.JobView) (p T) {
	_ = arcp.Unmarshal(j.Outcome, &p) // the zero value of undecodable members is displayed
	return p
}

func newJobsWatch(a *app) *cobra.Command {
	var from uint64
	cmd := &cobra.Command{
		Use:   "watch JOB",
		Short: "Show a job's events, past and to come, and its result",
		Long: "Shows a job's events, past and to come, with the numbers they have in the session\n" +
			"that submitted the job, and its result. A connection that is lost is made again.",
		Args: someArgs(1, 1),
	}
	t := addTarget(cmd)
	cmd.Flags().Uint64Var(&from, "from", 0, "only the events after this number")
	cmd.RunE = a.lasting(t, func(ctx context.Context, c *client.Client, args []string) error {
		return a.watch(ctx, c, arcp.JobID(args[0]), from, a.newEventPrinter(true))
	})
	return cmd
}

func newJobsWait(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{Use: "wait JOB", Short: "Wait for a job and print its result", Args: someArgs(1, 1)}
	t := addTarget(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; the job goes on after")
	cmd.RunE = a.lasting(t, func(ctx context.Context, c *client.Client, args []string) error {
		if timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout)
			defer stop()
		}
		return a.watch(ctx, c, arcp.JobID(args[0]), 0, new(eventPrinter))
	})
	return cmd
}

// watch follows a job from the event after a number, or from its first with 0.
func (a *app) watch(ctx context.Context, c *client.Client, id arcp.JobID, from uint64, p *eventPrinter) error {
	var after *uint64
	if from > 0 {
		after = &from
	}
	job, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: id, After: after, History: true})
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
			if err := c.Cancel(ctx, client.CancelParams{JobID: arcp.JobID(id), Reason: reason, Deadline: deadline}); err != nil {
				return err
			}
			err := a.say(struct {
				JobID    string `json:"job_id"`
				Accepted bool   `json:"accepted"`
			}{id, true}, id, "will be cancelled")
			if err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

func newJobsInterrupt(a *app) *cobra.Command {
	var prompt string
	cmd := &cobra.Command{
		Use:   "interrupt JOB",
		Short: "Have a job stop and ask whether it shall go on",
		Long: "Has a job stop where it can and ask whether it shall go on, if its tool can be\n" +
			"interrupted. It waits an hour for an answer, {\"action\":\"continue\"} or\n" +
			"{\"action\":\"cancel\"}, with \"guidance\" for the tool if there is any.",
		Example: "  arcp jobs interrupt job_01J… --prompt 'is this the right branch?'\n" +
			"  arcp input answer approval-01J… '{\"action\":\"continue\",\"guidance\":\"take main\"}'",
		Args: someArgs(1, 1),
	}
	t := addTarget(cmd)
	t.person = true // only a session that could answer may have a question asked
	cmd.Flags().StringVar(&prompt, "prompt", "", "what is asked")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if prompt == "" {
			return usagef("--prompt: say what is asked")
		}
		return nil
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		id := arcp.JobID(args[0])
		if err := c.Interrupt(ctx, id, prompt); err != nil {
			return err
		}
		return a.say(struct {
			JobID       arcp.JobID `json:"job_id"`
			Interrupted bool       `json:"interrupted"`
		}{id, true}, id, "is interrupted; `arcp input ls` shows what it asks")
	})
	return cmd
}

func newJobsRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm JOB…",
		Short: "Delete jobs that have ended, with their events and results",
		Args:  someArgs(1, math.MaxInt),
	}
	t := addTarget(cmd)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		for _, id := range args {
			if _, err := callTool(ctx, c, "jobs.delete", map[string]string{"job_id": id}); err != nil {
				return err
			}
			err := a.say(struct {
				JobID   string `json:"job_id"`
				Deleted bool   `json:"deleted"`
			}{id, true}, id, "is deleted")
			if err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}
