package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newJobsShow(a *app) *cobra.Command {
	var events int
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Show a job: its arguments, state, children, last events and outcome",
		Long: "Shows the arguments, state, children, last events and outcome of a job. -o json prints the\n" +
			"job as the runtime sends it: its lease has each namespace with a dot and with an underscore.",
		Args: jobArgs(1, 1),
	}
	t := addTarget(cmd)
	t.interactive = true // questions are among the events
	cmd.ValidArgsFunction = completeJobs(a, t)
	cmd.Flags().IntVar(&events, "events", 10, "number of the last events to show, at most 1000")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if events < 0 || events > 1000 {
			return usagef("--events %d: give 0 to 1000", events)
		}
		return nil
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		raw, err := getJob(ctx, c, arcp.JobID(args[0]))
		switch {
		case err != nil:
			return err
		case a.format == formatName:
			return printName(a.stdout, args[0])
		}
		var j arcp.JobView
		if err := arcp.Unmarshal(raw, &j); err != nil {
			return fmt.Errorf("read the job: %w", err)
		}
		last, err := lastEvents(ctx, c, &j, events)
		if err != nil {
			fmt.Fprintf(a.stderr, "arcp: the events of %s cannot be read: %s\n", j.JobID, readable(err))
		}
		if a.json {
			return a.printRaw(withEvents(raw, last))
		}
		return printJob(a, &j, pendingQuestion(ctx, a, c, &j), last)
	})
	return cmd
}

// withEvents adds the member events to a JSON object with members.
func withEvents(raw arcp.Raw, events []arcp.Envelope) []byte {
	if len(events) == 0 {
		return raw
	}
	out := append([]byte{}, raw[:len(raw)-1]...)
	for i := range events {
		sep := ","
		if i == 0 {
			sep = `,"events":[`
		}
		out = events[i].Append(append(out, sep...))
	}
	return append(out, "]}"...)
}

// recentNumbers is how many numbers of the submitting session are looked at for each event. Events of other
// jobs of the session are among them.
const recentNumbers = 8

// lastEvents reads the last events of a job, at most n.
func lastEvents(ctx context.Context, c *client.Client, j *arcp.JobView, n int) ([]arcp.Envelope, error) {
	if n == 0 || j.LastEventSeq == 0 {
		return nil, nil
	}
	if recent := uint64(n * recentNumbers); j.LastEventSeq > recent {
		after := j.LastEventSeq - recent
		if events, err := readEvents(ctx, c, j, n, &after); err == nil && len(events) == n {
			return events, nil
		}
	}
	return readEvents(ctx, c, j, n, nil)
}

// quiet is how long readEvents waits for the next event. A session is not sent every event, so the last one
// may never come.
const quiet = time.Second

var errQuiet = errors.New("no more events")

// readEvents reads the events of a job after a number; nil: all. It returns the last ones, at most n.
func readEvents(ctx context.Context, c *client.Client, j *arcp.JobView, n int, after *uint64) (last []arcp.Envelope, err error) {
	job, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: j.JobID, After: after, History: true})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(quiet, func() { cancel(errQuiet) })
	defer silence.Stop()
	for env, err := range job.Events(ctx) {
		switch {
		case errors.Is(context.Cause(ctx), errQuiet):
			return last, nil
		case err != nil:
			return last, err
		}
		silence.Reset(quiet)
		if last = append(last, env); len(last) > n {
			last = last[1:]
		}
		if !j.Status.Terminal() && eventNumber(&env) >= j.LastEventSeq {
			break
		}
	}
	return last, nil
}

// pendingQuestion returns the question that a job waits for; nil: it waits for none, or the caller may not see it.
func pendingQuestion(ctx context.Context, a *app, c *client.Client, j *arcp.JobView) *arcp.QuestionView {
	if j.Waiting == nil || j.Waiting.ApprovalID == "" {
		return nil
	}
	q, err := ask[arcp.QuestionView](ctx, c, "approval.get", approvalArgs{j.Waiting.ApprovalID})
	switch {
	case isCode(err, arcp.CodeNotFound), isCode(err, arcp.CodePermissionDenied), isCode(err, arcp.CodeAgentNotAvailable):
		return nil
	case err != nil:
		fmt.Fprintf(a.stderr, "arcp: the question %s cannot be read: %s\n", j.Waiting.ApprovalID, readable(err))
		return nil
	}
	return &q
}

// printJob prints a job as text. q is the question that it waits for, or nil.
func printJob(a *app, j *arcp.JobView, q *arcp.QuestionView, events []arcp.Envelope) error {
	err := printProperties(a.stdout, func(fact func(string, any)) {
		fact("job", j.JobID)
		fact("tool", j.Agent)
		fact("principal", j.Principal)
		fact("status", j.Status)
		timeFacts(j, fact)
		if q != nil && q.Status == arcp.QuestionPending {
			fact("question", questionAndOptions(q))
			fact("answer with", answerTo(q.ApprovalID, q.Kind))
		}
		if j.Attempt > 1 {
			fact("attempt", j.Attempt)
		}
		fact("session", j.SessionID)
		fact("trace", j.TraceID)
		fact("parent", j.ParentJobID)
		authorityFacts(j, fact)
		fact("arguments", argumentsText(j))
		fact("last event", j.LastEventSeq)
		outcomeFacts(j, fact)
	})
	if err == nil && len(j.Children) > 0 {
		err = printChildren(a, j)
	}
	if err == nil && len(events) > 0 {
		_, err = fmt.Fprintln(a.stdout, "\nlast events:")
	}
	for i := 0; i < len(events) && err == nil; i++ {
		text, _ := describe(&events[i])
		_, err = fmt.Fprintf(a.stdout, "%4d  %s  %s\n", eventNumber(&events[i]), clock(events[i].Timestamp), text)
	}
	return err
}

func timeFacts(j *arcp.JobView, fact func(name string, value any)) {
	fact("created", clock(j.CreatedAt))
	if !j.StartedAt.IsZero() {
		fact("started", clock(j.StartedAt))
	}
	if !j.EndedAt.IsZero() {
		fact("ended", fmt.Sprintf("%s, after %s", clock(j.EndedAt), j.EndedAt.Sub(cmp.Or(j.StartedAt, j.CreatedAt)).Round(time.Millisecond)))
	}
	if w := j.Waiting; w != nil {
		fact("waits", fmt.Sprintf("%s (%s, since %s)", localTimes(w.Message), w.Reason, clock(w.Since)))
	}
}

// authorityFacts prints the lease and the budget of a job.
func authorityFacts(j *arcp.JobView, fact func(name string, value any)) {
	fact("lease", leaseText(j.Lease))
	if l := j.LeaseConstraints; l != nil && !l.ExpiresAt.IsZero() {
		fact("lease ends", clock(l.ExpiresAt))
	}
	for _, text := range budgetTexts(j) {
		fact("budget", text)
	}
}

// budgetTexts returns a text for each currency of the budget: what is left, and what the lease allows in total.
func budgetTexts(j *arcp.JobView) (lines []string) {
	var left map[string]arcp.Number
	if compact(j.Budget) == "" || arcp.Unmarshal(j.Budget, &left) != nil {
		return nil
	}
	limits := budgetLimits(j.Lease)
	for _, currency := range slices.Sorted(maps.Keys(left)) {
		text := fmt.Sprintf("%s %s left", left[currency], currency)
		if limit, ok := limits[strings.ToUpper(currency)]; ok {
			text = fmt.Sprintf("%s of %s %s left", left[currency], limit, currency)
		}
		lines = append(lines, text)
	}
	return lines
}

// budgetLimits returns the amounts of cost.budget of a lease by currency in upper case. Amounts of one currency are
// added, as the runtime does.
func budgetLimits(lease arcp.Raw) map[string]string {
	var l struct {
		Amounts []string `json:"cost.budget"`
	}
	if len(lease) == 0 || arcp.Unmarshal(lease, &l) != nil {
		return nil
	}
	sums, digits := map[string]*big.Rat{}, map[string]int{}
	for _, text := range l.Amounts {
		amount, err := arcp.ParseAmount(text)
		value, ok := new(big.Rat).SetString(amount.Value)
		if err != nil || !ok { // the lease is printed in full
			return nil
		}
		currency := strings.ToUpper(amount.Currency)
		if sum := sums[currency]; sum != nil {
			value.Add(value, sum)
		}
		_, fraction, _ := strings.Cut(amount.Value, ".")
		sums[currency], digits[currency] = value, max(digits[currency], len(fraction))
	}
	limits := make(map[string]string)
	for currency, sum := range sums {
		limits[currency] = sum.FloatString(digits[currency])
	}
	return limits
}

// leaseText returns a lease as JSON with each namespace once. The wire has a namespace in two spellings,
// cost.budget and cost_budget; the one with underscores is left out if both have the same value.
func leaseText(lease arcp.Raw) string {
	var members map[string]arcp.Raw
	if arcp.Unmarshal(lease, &members) != nil {
		return compact(lease)
	}
	for name, value := range members {
		twin := strings.ReplaceAll(name, ".", "_")
		if twin != name && bytes.Equal(members[twin], value) {
			delete(members, twin)
		}
	}
	text, err := arcp.Marshal(members)
	if err != nil {
		return compact(lease)
	}
	return compact(text)
}

func printChildren(a *app, j *arcp.JobView) error {
	fmt.Fprintln(a.stdout)
	err := table(a.stdout, []column[arcp.JobChild]{
		{"CHILD", func(c *arcp.JobChild) any { return c.JobID }},
		{"TOOL", func(c *arcp.JobChild) any { return c.Agent }},
		{"STATUS", func(c *arcp.JobChild) any { return c.Status }},
	}, j.Children)
	if j.MoreChildren {
		fmt.Fprintln(a.stderr, "the job has more children")
	}
	return err
}
