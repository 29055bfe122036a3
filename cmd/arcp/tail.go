package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// tailFlags has the flags of `arcp tail`.
type tailFlags struct {
	jobs, sessions, traces, types []string
	priority, since               string
}

func newTail(a *app) *cobra.Command {
	var q tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the events of all your jobs",
		Long: "Prints the events of your jobs in all sessions, and the events of agents, approvals and\n" +
			"resources, one on each line of standard output, until interrupted. A lost connection is\n" +
			"restored, and no event is missing. With --session or --job of a principal that yours\n" +
			"observes, it prints the events of that principal.",
		Example: "  arcp tail --type job.completed,job.failed\n  arcp tail --job job_01J… -o json",
		Args:    noArgs,
	}
	t := addTarget(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&q.jobs, "job", nil, "only events of these jobs")
	f.StringSliceVar(&q.sessions, "session", nil, "only events of jobs of these sessions")
	f.StringSliceVar(&q.traces, "trace", nil, "only events of these traces")
	f.StringSliceVar(&q.types, "type", nil, "only events of these types, for example log,job.failed")
	f.StringVar(&q.priority, "min-priority", "", "only events of this priority and above: low, normal, high or critical")
	f.StringVar(&q.since, "since", "", "start with the events after this message id")
	completeLists(cmd, "type", eventTypes()...)
	completeWords(cmd, "min-priority", texts(priorities)...)
	setCompletion(cmd, "job", completeJobs(a, t))
	setCompletion(cmd, "session", completeSessions(a, t))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		return q.check()
	}
	cmd.RunE = a.reconnectingSession(t, func(ctx context.Context, c *client.Client, _ []string) error {
		return a.tail(ctx, c, q.params())
	})
	return cmd
}

// priorities are the values of --min-priority.
var priorities = []arcp.Priority{arcp.PriorityLow, arcp.PriorityNormal, arcp.PriorityHigh, arcp.PriorityCritical}

// eventTypes returns the types of messages that are events.
func eventTypes() (types []string) {
	for i := range arcp.Catalog {
		if s := &arcp.Catalog[i]; s.Delivery == arcp.Sequenced {
			types = append(types, string(s.Type))
		}
	}
	return types
}

func (tf *tailFlags) check() error {
	for _, t := range tf.types {
		if class := arcp.Classify(arcp.Type(t)); arcp.Lookup(arcp.Type(t)) == nil && class != arcp.ClassExtension && class != arcp.ClassExperimental {
			return usagef("--type: %q is not an event type, such as log or job.completed; SPEC.md §3 lists them", t)
		}
	}
	if err := checkJobIDs(tf.jobs); err != nil {
		return err
	}
	if tf.priority == "" {
		return nil
	}
	return oneOf("min-priority", tf.priority, texts(priorities)...)
}

func (tf *tailFlags) params() client.SubscribeFeedParams {
	p := client.SubscribeFeedParams{Filter: &arcp.EventFilter{
		JobID: ids[arcp.JobID](tf.jobs), SessionID: ids[arcp.SessionID](tf.sessions), TraceID: tf.traces,
		Types: ids[arcp.Type](tf.types), MinPriority: arcp.Priority(tf.priority),
	}}
	if tf.since != "" {
		p.Since = &arcp.Since{AfterMessageID: arcp.MessageID(tf.since)}
	}
	return p
}

func ids[T ~string](texts []string) (list []T) {
	for _, s := range texts {
		list = append(list, T(s))
	}
	return list
}

func (a *app) tail(ctx context.Context, c *client.Client, p client.SubscribeFeedParams) error {
	feed, err := c.SubscribeFeed(ctx, p)
	if err != nil {
		return err
	}
	for env, err := range feed.Events(ctx) {
		if errors.Is(context.Cause(ctx), errInterrupted) { // the regular end
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.printTailed(&env); err != nil {
			return err
		}
	}
	return nil
}

// printTailed prints an event on standard output; markers of the feed go to standard error.
func (a *app) printTailed(env *arcp.Envelope) error {
	out, text := a.stdout, ""
	if text = feedMarker(env); text != "" {
		out = a.stderr
	} else {
		line, _ := describe(env)
		text = fmt.Sprintf("%s  %s  %s", clock(env.Timestamp), orDash(string(env.JobID)), line)
	}
	switch {
	case a.json && out == a.stdout:
		return printItem(a, env.Append(nil))
	case a.json:
		text = string(env.Append(nil))
	case a.format == formatName && out == a.stdout:
		return printName(a.stdout, env.ID)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// feedMarker describes a marker of the feed; empty for an event.
func feedMarker(env *arcp.Envelope) string {
	if env.Type != arcp.EventEmit {
		return ""
	}
	p := payload[arcp.EventEmitPayload](env)
	switch p.Name {
	case client.FeedCaughtUp:
		return "end of past events; live events follow"
	case client.FeedGap:
		var gap arcp.FeedGap
		_ = arcp.Unmarshal(p.Data, &gap) // undecodable details are omitted
		if gap.Skipped == 0 {
			return "events may be missing here: the runtime has dropped the last position; live events follow"
		}
		return fmt.Sprintf("skipped: %s of low priority, from %s to %s: this terminal is too slow", counted(gap.Skipped, "event"), gap.FirstID, gap.LastID)
	}
	return ""
}
