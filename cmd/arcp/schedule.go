package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newSchedule(a *app) *cobra.Command {
	cmd := newGroup("schedule", "Submit jobs at later times")
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
		Long: "Submits a job once, with --after or --at, or at the times of a rule, with --every. A rule is\n" +
			"an RRULE of RFC 5545. Without DTSTART;TZID its times are in UTC: `arcp schedule next` prints\n" +
			"them. `arcp schedule ls` lists the schedule, and `arcp schedule rm` ends it.",
		Example: "  arcp schedule add demo.echo '{\"hello\":\"later\"}' --after 10m\n" +
			"  arcp schedule add backup --every 'DTSTART;TZID=Europe/Berlin:20270101T033000 FREQ=DAILY'",
		Args: argsBetween(1, 2),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeTools(a, t)
	f := cmd.Flags()
	f.StringVar(&in.at, "at", "", "time of the job, for example 2030-01-02T15:04:05Z")
	addDuration(f, &in.after, "after", 0, "time until the job, for example 10m")
	f.StringVar(&in.every, "every", "", "times of the jobs: an RRULE, for example "+exampleRule)
	f.StringVar(&in.lease, "lease", "", "lease of the jobs, as JSON or `@FILE`; default: the lease of your principal, or none")
	f.StringArrayVar(&in.budget, "budget", nil, "budget of each job, as a `CURRENCY:AMOUNT` such as USD:5.00; may be repeated")
	f.StringVar(&in.key, "idempotency-key", "", "a repeated request with the same key returns the same schedule")
	requireOne(cmd, "--after 10m", "after", "at", "every")
	exclude(cmd, "after", "at", "every")
	var p client.ScheduleParams
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if p.When, err = in.when(f); err != nil {
			return err
		}
		p.InvokeParams, err = in.request(a, args)
		p.DiscardEvents = true
		return err
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, _ []string) error {
		job, err := client.SchedulesOf(c).Add(ctx, p)
		if err != nil {
			return in.explain(err)
		}
		return a.printOutcome(struct {
			JobID arcp.JobID `json:"job_id"`
		}{job.ID()}, job.ID())
	})
	return cmd
}

// explain adds the remedy to the refusal of a rule.
func (in *scheduling) explain(err error) error {
	e, ok := errors.AsType[*client.RemoteError](err)
	if !ok || e.Code != arcp.CodeInvalidArgument || in.every == "" || !strings.HasPrefix(e.Message, "when: ") {
		return err
	}
	return usagef("--every %s: %s; give an RRULE such as %s", in.every, strings.TrimPrefix(e.Message, "when: "), exampleRule)
}

const exampleRule = "FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0"

// when returns the time of the schedule. Exactly one of the flags at, after and every is set.
func (in *scheduling) when(f *pflag.FlagSet) (w arcp.When, err error) {
	switch {
	case f.Changed("at"):
		if w.At, err = time.Parse(time.RFC3339, in.at); err != nil {
			return w, usagef("--at %s: give a time such as 2030-01-02T15:04:05Z", in.at)
		}
	case f.Changed("every"):
		if w.Every = in.every; w.Every == "" {
			return w, usagef("--every is empty: give an RRULE such as " + exampleRule)
		}
	default:
		w.After = new(arcp.FloatNumber(in.after.Seconds()))
	}
	return w, nil
}

// scheduleList is the result of schedule.list.
type scheduleList struct {
	Schedules []arcp.ScheduleView `json:"schedules"`
}

func newScheduleList(a *app) *cobra.Command {
	return newList(a, list[arcp.ScheduleView]{
		short:   "List your schedules, the oldest first",
		onePage: true,
		fetch: func(ctx context.Context, c *client.Client, _ *query) (arcp.Page[arcp.ScheduleView], error) {
			got, err := ask[scheduleList](ctx, c, "schedule.list", struct{}{})
			return arcp.Page[arcp.ScheduleView]{Items: got.Schedules}, err
		},
		columns: []column[arcp.ScheduleView]{
			{"SCHEDULE", func(s *arcp.ScheduleView) any { return s.JobID }},
			{"TOOL", func(s *arcp.ScheduleView) any { return s.Tool }},
			{"NEXT", func(s *arcp.ScheduleView) any { return nextTime(s) }},
			{"FIRED", func(s *arcp.ScheduleView) any { return s.Fired }},
			{"SKIPPED", func(s *arcp.ScheduleView) any { return s.Skipped }},
			{"FAILED", func(s *arcp.ScheduleView) any { return s.Failed }},
			{"RULE", func(s *arcp.ScheduleView) any { return orDash(strings.ReplaceAll(s.When.Every, "\n", " ")) }},
		},
	})
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
	cmd.ValidArgsFunction = completeSchedules(a, t)
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		for _, id := range args {
			if !arcp.JobID(id).Valid() {
				return usagef("%q is not the id of a schedule; `arcp schedule ls` lists the ids", id)
			}
		}
		return nil
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		for _, id := range args {
			if _, err := callTool(ctx, c, "schedule.next", scheduleNext{JobID: arcp.JobID(id), Times: 1}); err != nil { // not a schedule
				return err
			}
			if err := c.Cancel(ctx, client.CancelParams{JobID: arcp.JobID(id), Reason: "schedule removed"}); err != nil {
				return err
			}
			err := a.printOutcome(struct {
				JobID    string `json:"job_id"`
				Accepted bool   `json:"accepted"`
			}{id, true}, id, "is removed")
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
	JobID arcp.JobID `json:"job_id,omitzero"`
	Every string     `json:"every,omitzero"`
	Times int        `json:"times"`
}

// scheduleTimes is the result of schedule.next.
type scheduleTimes struct {
	Next []time.Time `json:"next"`
}

// printTimes prints times as a list.
func printTimes(a *app, times []time.Time) error {
	if a.format == formatText {
		for _, at := range times {
			if _, err := fmt.Fprintln(a.stdout, at.Local().Format("Mon 2006-01-02 15:04:05 MST")); err != nil {
				return err
			}
		}
		return nil
	}
	l := list[time.Time]{columns: []column[time.Time]{{"TIME", func(at *time.Time) any { return at.Format(time.RFC3339) }}}}
	return l.print(a, arcp.Page[time.Time]{Items: times})
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
	cmd.ValidArgsFunction = firstOnly(completeSchedules(a, t))
	cmd.Flags().IntVarP(&n, "number", "n", 5, "number of times, at most 100")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if n < 1 || n > 100 {
			return usagef("--number %d: give 1 to 100", n)
		}
		return nil
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		in := scheduleNext{Times: n}
		if id := arcp.JobID(args[0]); id.Valid() {
			in.JobID = id
		} else {
			in.Every = args[0]
		}
		got, err := ask[scheduleTimes](ctx, c, "schedule.next", in)
		if err != nil {
			return err
		}
		return printTimes(a, got.Next)
	})
	return cmd
}
