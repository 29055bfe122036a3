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
	cmd := newGroup("jobs", "List, follow, repeat, interrupt, cancel and delete jobs")
	cmd.AddCommand(newJobsList(a), newJobsShow(a), newJobsWatch(a), newJobsWait(a), newJobsRerun(a), newJobsCancel(a), newJobsInterrupt(a),
		newJobsRemove(a))
	return cmd
}

// age returns a duration in its two largest units, as kubectl does.
func age(d time.Duration) string {
	for i, u := range ageUnits[:len(ageUnits)-1] {
		if d < u.length {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.length, u.name)
		next := ageUnits[i+1]
		if rest := d % u.length / next.length; rest > 0 && d < 10*u.length {
			text += fmt.Sprintf("%d%s", rest, next.name)
		}
		return text
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}

// ageUnits are the units of age, the largest first.
var ageUnits = []struct {
	length time.Duration
	name   string
}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}

// jobArgs checks the number of arguments, and that each is the id of a job.
func jobArgs(least, most int) cobra.PositionalArgs {
	count := argsBetween(least, most)
	return func(cmd *cobra.Command, args []string) error {
		if err := count(cmd, args); err != nil {
			return err
		}
		return checkJobIDs(args)
	}
}

// checkJobIDs refuses texts that cannot be the id of a job.
func checkJobIDs(texts []string) error {
	for _, id := range texts {
		if !arcp.JobID(id).Valid() {
			return usagef("%q is not the id of a job, such as job_01M8E7WV8WEGB8R14NWFHFE89P; `arcp jobs ls` lists the ids", id)
		}
	}
	return nil
}

// getJob returns a job from the tool jobs.get, or from the list of jobs if the runtime does not have the tool.
func getJob(ctx context.Context, c *client.Client, id arcp.JobID) (arcp.Raw, error) {
	raw, err := callTool(ctx, c, "jobs.get", map[string]arcp.JobID{"job_id": id})
	if refusal, ok := errors.AsType[*client.RemoteError](err); ok && refusal.Code == arcp.CodeAgentNotAvailable {
		return findJob(ctx, c, id)
	}
	return raw, err
}

// callTool calls a built-in tool. The error of a failed call is the error of the tool.
func callTool(ctx context.Context, c *client.Client, name string, args any) (arcp.Raw, error) {
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: name, Arguments: args, DiscardEvents: true})
	if err != nil {
		return nil, err
	}
	result, err := job.Wait(ctx)
	if failure, ok := errors.AsType[*client.JobError](err); ok {
		return nil, failure.RemoteError
	}
	return result.Value, err
}

// ask calls a built-in tool and decodes its result.
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
	return nil, failf("job %s not found among your jobs; `arcp jobs ls --limit 0` lists them", id)
}

// outcomeFacts prints the outcome of a job.
func outcomeFacts(j *arcp.JobView, fact func(name string, value any)) {
	switch {
	case len(j.Outcome) == 0:
	case j.Status == arcp.StateFailed:
		e := outcomeAs[arcp.ErrorPayload](j)
		fact("error", fmt.Sprintf("%s: %s", e.Code, failureText(e.Code, e.Message)))
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

// outcomeAs decodes an outcome for display.
func outcomeAs[T any](j *arcp.JobView) (p T) {
	_ = arcp.Unmarshal(j.Outcome, &p) // the zero value of undecodable members is displayed
	return p
}

func newJobsWatch(a *app) *cobra.Command {
	var from uint64
	cmd := &cobra.Command{
		Use:   "watch JOB",
		Short: "Follow a job: print its past and future events, and its result",
		Long: "Prints the past and future events of a job and its result. The numbers are those of the\n" +
			"session that submitted the job. A lost connection is restored. Events go to standard error,\n" +
			"with -o json, jsonl and yaml as JSON lines.",
		Args: jobArgs(1, 1),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeJobs(a, t)
	cmd.Flags().Uint64Var(&from, "from", 0, "print only the events after this number")
	cmd.RunE = a.reconnectingSession(t, func(ctx context.Context, c *client.Client, args []string) error {
		return a.watch(ctx, c, arcp.JobID(args[0]), from, a.newEventPrinter(true))
	})
	return cmd
}

func newJobsWait(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait JOB",
		Short: "Wait for a job and print its result",
		Long: "Waits for the end of a job, and prints its result as `arcp invoke` does. A lost connection is\n" +
			"restored. The exit code tells how the job has ended: `arcp help exit-codes`.",
		Args: jobArgs(1, 1),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeJobs(a, t)
	addDuration(cmd.Flags(), &timeout, "timeout", 0, "limit of the wait; the job continues after it")
	cmd.RunE = a.reconnectingSession(t, func(ctx context.Context, c *client.Client, args []string) error {
		if timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout)
			defer stop()
		}
		return a.watch(ctx, c, arcp.JobID(args[0]), 0, new(eventPrinter))
	})
	return cmd
}

// watch follows a job from the event after the number from. With 0 it starts at the first event.
func (a *app) watch(ctx context.Context, c *client.Client, id arcp.JobID, from uint64, p *eventPrinter) error {
	var after *uint64
	if from > 0 {
		after = &from
	}
	job, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: id, After: after, History: true})
	if err != nil {
		return err
	}
	return a.follow(ctx, job, p)
}

// maxCancelDeadline is the largest deadline of a cancel (SPEC.md §5.7).
const maxCancelDeadline = 60 * time.Second

func newJobsCancel(a *app) *cobra.Command {
	var reason string
	var deadline time.Duration
	cmd := &cobra.Command{Use: "cancel JOB…", Short: "Cancel jobs", Args: jobArgs(1, math.MaxInt)}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeJobs(a, t, liveJob)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown to followers of the job")
	addDuration(cmd.Flags(), &deadline, "deadline", 0, "time before the job is stopped by force; default: 5s, at most 60s")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if deadline > maxCancelDeadline {
			return usagef("--deadline %s: give at most 60s", deadline)
		}
		return nil
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		for _, id := range args {
			if err := c.Cancel(ctx, client.CancelParams{JobID: arcp.JobID(id), Reason: reason, Deadline: deadline}); err != nil {
				return err
			}
			err := a.printOutcome(struct {
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
		Short: "Pause a job and make it ask whether to continue",
		Long: "Pauses a job at the next possible point and makes it ask whether to continue, if its tool\n" +
			"can be interrupted. The job waits an hour for the answer: {\"action\":\"continue\"} or\n" +
			"{\"action\":\"cancel\"}, optionally with \"guidance\" for the tool.",
		Example: "  arcp jobs interrupt job_01J… --prompt 'is this the right branch?'\n" +
			"  arcp input answer approval-01J… '{\"action\":\"continue\",\"guidance\":\"take main\"}'",
		Args: jobArgs(1, 1),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeJobs(a, t, liveJob)
	t.interactive = true // an interrupt needs a session that can answer
	cmd.Flags().StringVar(&prompt, "prompt", "", "the question that the job asks; required")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if prompt == "" {
			return usagef("--prompt is missing: give the question")
		}
		return nil
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		id := arcp.JobID(args[0])
		if err := c.Interrupt(ctx, id, prompt); err != nil {
			return err
		}
		return a.printOutcome(struct {
			JobID       arcp.JobID `json:"job_id"`
			Interrupted bool       `json:"interrupted"`
		}{id, true}, id, "is interrupted; `arcp input ls` lists its question")
	})
	return cmd
}

func newJobsRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm JOB…",
		Short: "Delete jobs that have ended, with their events and results",
		Args:  jobArgs(1, math.MaxInt),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeJobs(a, t, endedJob)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		for _, id := range args {
			if _, err := callTool(ctx, c, "jobs.delete", map[string]string{"job_id": id}); err != nil {
				return err
			}
			err := a.printOutcome(struct {
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
