package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newSchedule(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "schedule", Short: "Submit jobs at later times", Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	cmd.AddCommand(newScheduleAdd(a), newScheduleList(a), newScheduleRemove(a), newScheduleNext(a))
	return cmd
}

// scheduling has the flags of `arcp schedule add`.
type scheduling struct {
	invocation
	at, every string
	after     time.Duration
}

func newScheduleAdd(a *app) *cobra.Command {
	var in scheduling
	cmd := &cobra.Command{
		Use:   "add TOOL [JSON|@FILE|-]",
		Short: "Schedule a job and print the id of the schedule",
		Example: "  arcp schedule add demo.echo '{\"hello\":\"later\"}' --after 10m\n" +
			"  arcp schedule add backup --every 'DTSTART;TZID=Europe/Berlin:20270101T033000 FREQ=DAILY'",
		Args: argsBetween(1, 2),
	}
	t := addTarget(cmd)
	f := cmd.Flags()
	f.StringVar(&in.at, "at", "", "time of the job, for example 2030-01-02T15:04:05Z")
	f.DurationVar(&in.after, "after", 0, "time until the job, for example 10m")
	f.StringVar(&in.every, "every", "", "times of the jobs: an RRULE, for example FREQ=DAILY;BYHOUR=9")
	f.StringVar(&in.lease, "lease", "", "lease of the jobs, as JSON or `@FILE`; default: all permissions of your principal")
	f.StringArrayVar(&in.budget, "budget", nil, "budget of each job, for example `USD:5.00`; may be repeated")
	f.StringVar(&in.key, "idempotency-key", "", "a repeated request with the same key returns the same schedule")
	cmd.MarkFlagsOneRequired("at", "after", "every")
	cmd.MarkFlagsMutuallyExclusive("at", "after", "every")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		p, err := in.params(a, args)
		if err != nil {
			return err
		}
		job, err := client.SchedulesOf(c).Add(ctx, p)
		if err != nil {
			return err
		}
		return a.printOutcome(struct {
			JobID arcp.JobID `json:"job_id"`
		}{job.ID()}, job.ID())
	})
	return cmd
}

func (in *scheduling) params(a *app, args []string) (p client.ScheduleParams, err error) {
	if p.InvokeParams, err = in.request(a, args); err != nil {
		return p, err
	}
	p.DiscardEvents = true
	p.When.Every = in.every
	switch {
	case in.at != "":
		if p.When.At, err = time.Parse(time.RFC3339, in.at); err != nil {
			return p, usagef("--at %s: give a time such as 2030-01-02T15:04:05Z", in.at)
		}
	case in.every == "":
		if in.after < 0 {
			return p, usagef("--after %s: give a duration such as 10m", in.after)
		}
		p.When.After = new(arcp.FloatNumber(in.after.Seconds()))
	}
	return p, nil
}

// scheduleList is the result of schedule.list.
type scheduleList struct {
	Schedules []arcp.ScheduleView `json:"schedules"`
}

func newScheduleList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List your schedules, oldest first", Args: argsBetween(0, 0)}
	t := addTarget(cmd)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, _ []string) error {
		raw, err := callTool(ctx, c, "schedule.list", struct{}{})
		if err != nil {
			return err
		}
		if a.json {
			_, err := fmt.Fprintf(a.stdout, "%s\n", raw)
			return err
		}
		var list scheduleList
		if err := arcp.Unmarshal(raw, &list); err != nil {
			return fmt.Errorf("read the schedules: %w", err)
		}
		return table(a.stdout, []column[arcp.ScheduleView]{
			{"SCHEDULE", func(s *arcp.ScheduleView) any { return s.JobID }},
			{"TOOL", func(s *arcp.ScheduleView) any { return s.Tool }},
			{"NEXT", func(s *arcp.ScheduleView) any { return nextTime(s) }},
			{"FIRED", func(s *arcp.ScheduleView) any { return s.Fired }},
			{"SKIPPED", func(s *arcp.ScheduleView) any { return s.Skipped }},
			{"FAILED", func(s *arcp.ScheduleView) any { return s.Failed }},
			{"RULE", func(s *arcp.ScheduleView) any { return orDash(strings.ReplaceAll(s.When.Every, "\n", " ")) }},
		}, list.Schedules)
	})
	return cmd
}

// nextTime returns the next time of a schedule, or "-" if its last job runs.
func nextTime(s *arcp.ScheduleView) string {
	if len(s.Next) == 0 {
		return "-"
	}
	return clock(s.Next[0])
}

func newScheduleRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "rm SCHEDULE…", Short: "End schedules; a job that runs goes on", Args: argsBetween(1, math.MaxInt)}
	t := addTarget(cmd)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		for _, id := range args {
			if err := c.Cancel(ctx, client.CancelParams{JobID: arcp.JobID(id), Reason: "schedule removed"}); err != nil {
				return err
			}
			err := a.printOutcome(struct {
				JobID    string `json:"job_id"`
				Accepted bool   `json:"accepted"`
			}{id, true}, id, "removed")
			if err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// scheduleNext has the arguments of schedule.next.
type scheduleNext struct {
	JobID string `json:"job_id,omitzero"`
	Every string `json:"every,omitzero"`
	Times int    `json:"times"`
}

func newScheduleNext(a *app) *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:     "next SCHEDULE|RULE",
		Short:   "Print the next times of a schedule or of a rule",
		Example: "  arcp schedule next 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;BYMINUTE=0;BYSECOND=0' -n 3",
		Args:    argsBetween(1, 1),
	}
	t := addTarget(cmd)
	cmd.Flags().IntVarP(&n, "number", "n", 5, "number of times, at most 100")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		in := scheduleNext{Times: cmp.Or(n, 5)}
		if strings.HasPrefix(args[0], arcp.JobPrefix) {
			in.JobID = args[0]
		} else {
			in.Every = args[0]
		}
		raw, err := callTool(ctx, c, "schedule.next", in)
		if err != nil {
			return err
		}
		if a.json {
			_, err := fmt.Fprintf(a.stdout, "%s\n", raw)
			return err
		}
		var got struct {
			Next []time.Time `json:"next"`
		}
		if err := arcp.Unmarshal(raw, &got); err != nil {
			return fmt.Errorf("read the times: %w", err)
		}
		for _, at := range got.Next {
			fmt.Fprintln(a.stdout, at.Local().Format("Mon 2006-01-02 15:04:05 MST"))
		}
		return nil
	})
	return cmd
}
