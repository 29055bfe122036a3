package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/cmd/arcp/internal/top"
)

const (
	topRows    = 200              // jobs, questions and agents that arcp top reads
	topTimeout = 10 * time.Second // for the requests of a snapshot
)

func newTop(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show jobs, questions, agents and rates on the terminal, live",
		Long: "Shows the jobs of your principal that have not ended, rates, and the questions that wait for\n" +
			"people, agents and workers that you may observe. The view is renewed every second, until q\n" +
			"or Ctrl-C. Without a terminal use `arcp jobs ls` and `arcp tail`.",
		Args: noArgs,
	}
	t := addTarget(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !a.interactive || !redraws(a.stdout) {
			return usagef("arcp top needs a terminal; `arcp jobs ls` lists the jobs, and `arcp tail` prints events")
		}
		return nil
	}
	cmd.RunE = a.reconnectingSession(t, func(ctx context.Context, c *client.Client, _ []string) error {
		w := &topWatch{c: c, last: make(map[arcp.JobID]string)}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		feed, err := c.SubscribeFeed(ctx, client.SubscribeFeedParams{})
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- w.count(ctx, feed) }()
		err = top.Run(ctx, top.Options{Title: t.url, Fetch: w.snapshot, Age: age, In: a.stdin, Out: a.stdout})
		cancel(nil)
		return errors.Join(err, <-done)
	})
	return cmd
}

// topWatch collects what arcp top shows.
type topWatch struct {
	c *client.Client

	mu     sync.Mutex
	counts top.Counts
	last   map[arcp.JobID]string // descriptions of the last events of jobs that have not ended
}

// count reads the feed until the end of ctx.
func (w *topWatch) count(ctx context.Context, feed *client.Feed) error {
	for env, err := range feed.Events(ctx) {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case feedMarker(&env) == "" && env.SessionID != w.c.Session().ID: // not the requests of snapshot
			w.add(&env)
		}
	}
	return nil
}

func (w *topWatch) add(env *arcp.Envelope) {
	text, _ := describe(env)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Events++
	if env.JobID == "" || env.Type == arcp.JobHeartbeat {
		return
	}
	if !env.Type.Terminal() {
		w.last[env.JobID] = text
		return
	}
	w.counts.Ended++
	if env.Type == arcp.JobFailed {
		w.counts.Failed++
	}
	delete(w.last, env.JobID)
}

// snapshot asks the runtime for its state.
func (w *topWatch) snapshot(ctx context.Context) top.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	s, err := w.ask(ctx)
	s.At, s.Err = time.Now(), err
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Counts = w.counts
	for i := range s.Jobs {
		s.Jobs[i].LastEvent = w.last[arcp.JobID(s.Jobs[i].ID)]
	}
	return s
}

func (w *topWatch) ask(ctx context.Context) (s top.Snapshot, err error) {
	jobs, err := w.c.ListJobs(ctx, client.ListJobsParams{Filter: &arcp.JobFilter{Status: liveStates()}, Limit: topRows})
	if err != nil {
		return s, err
	}
	s.MoreJobs = jobs.NextCursor != nil
	for _, j := range jobs.Jobs {
		s.Jobs = append(s.Jobs, top.Job{ID: string(j.JobID), Tool: j.Agent, Status: j.Status, Created: j.CreatedAt})
	}
	questions, err := ask[arcp.Page[arcp.QuestionView]](ctx, w.c, "approval.list", map[string]any{"limit": topRows, "status": arcp.QuestionPending})
	if err != nil {
		return s, err
	}
	for i := range questions.Items {
		item := &questions.Items[i]
		s.Questions = append(s.Questions, top.Question{ID: item.ApprovalID, Kind: string(item.Kind), Asks: questionText(item), Created: item.CreatedAt})
	}
	agents, err := ask[arcp.Page[agentView]](ctx, w.c, "host.agents", map[string]any{"limit": topRows, "observed": true})
	for _, agent := range agents.Items {
		s.Agents = append(s.Agents, top.Agent{Name: agent.Name, Principal: agent.Principal, Status: agent.Status, Task: agent.CurrentTask, Tools: len(agent.Executes), Updated: agent.UpdatedAt})
	}
	return s, err
}

// liveStates returns the states of jobs that have not ended.
func liveStates() (list []string) {
	for _, s := range arcp.JobStates {
		if !s.Terminal() {
			list = append(list, string(s))
		}
	}
	return list
}
