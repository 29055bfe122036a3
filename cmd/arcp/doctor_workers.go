package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// doctorJobs is the number of queued jobs, the oldest ones, whose waits are checked.
const doctorJobs = 100

// workers finds jobs of the caller that wait for a worker, and agents of workers without a connection.
func (d *diagnosis) workers(ctx context.Context, c *client.Client) {
	const check = "workers"
	tools, err := waitingTools(ctx, c)
	if err != nil {
		d.add(check, statusProblem, "", "the jobs that wait are not available: %s", readable(err))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		w := tools[name]
		d.add(check, statusProblem, "start a worker of "+name+", or cancel the jobs",
			"your jobs that wait for a connected worker of %s: %d, the oldest since %s", name, w.jobs, clock(w.oldest))
	}
	agents, err := ask[arcp.Page[workerAgent]](ctx, c, "host.agents", map[string]int{"limit": doctorPage})
	switch {
	case isCode(err, arcp.CodePermissionDenied), isCode(err, arcp.CodeNotFound): // a policy hides the tool
		d.add(check, statusUnchecked, "", "your principal may not list agents: %s", readable(err))
		return
	case err != nil:
		d.add(check, statusProblem, "", "the list of agents is not available: %s", readable(err))
		return
	}
	found := len(tools)
	executed := connectedTools(agents.Items)
	for i := range agents.Items {
		a := &agents.Items[i]
		missing := slices.DeleteFunc(slices.Clone(a.Executes), func(ref string) bool { return executed[ref] })
		if a.Status == agentDisconnected && len(missing) > 0 {
			found++
			d.add(check, statusProblem, "start the worker again, or end its session: `arcp sessions ls`, `arcp sessions evict SESSION --forget`",
				"the worker %s, agent %s, is disconnected, and no other one executes %s", a.Name, a.ID, strings.Join(missing, ", "))
		}
	}
	d.conclude(check, found, len(agents.Items), "none of your jobs waits for a worker, and each tool of your workers has one that is connected")
}

// agentDisconnected is the status of an agent whose session has no connection.
const agentDisconnected = "disconnected"

// connectedTools returns the tools of the agents that are connected.
func connectedTools(agents []workerAgent) map[string]bool {
	refs := make(map[string]bool)
	for i := range agents {
		for _, ref := range agents[i].Executes {
			refs[ref] = refs[ref] || agents[i].Status != agentDisconnected
		}
	}
	return refs
}

// workerAgent has the members of an agent that are checked.
type workerAgent struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	Executes []string `json:"executes"`
}

// waitingJobs counts the jobs of a tool that wait for a worker.
type waitingJobs struct {
	jobs   int
	oldest time.Time
}

// waitingTools returns the tools for whose workers jobs of the caller wait.
func waitingTools(ctx context.Context, c *client.Client) (map[string]waitingJobs, error) {
	filter := &arcp.JobFilter{Status: []string{string(arcp.StateQueued)}}
	page, err := c.ListJobs(ctx, client.ListJobsParams{Filter: filter, Limit: doctorJobs})
	if err != nil {
		return nil, err
	}
	tools := make(map[string]waitingJobs)
	for i := range page.Jobs {
		j, err := ask[arcp.JobView](ctx, c, "jobs.get", map[string]arcp.JobID{"job_id": page.Jobs[i].JobID})
		switch {
		case isCode(err, arcp.CodeJobNotFound), isCode(err, arcp.CodeNotFound): // deleted since, or a policy hides the tool
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", page.Jobs[i].JobID, err)
		case j.Waiting == nil || j.Waiting.Reason != arcp.WaitWorker:
			continue
		}
		w := tools[j.Agent]
		if w.jobs++; w.oldest.IsZero() || j.Waiting.Since.Before(w.oldest) {
			w.oldest = j.Waiting.Since
		}
		tools[j.Agent] = w
	}
	return tools, nil
}

// waiting reports the jobs of all principals that wait for a worker, by reason. The metric only has their
// numbers.
func (d *diagnosis) waiting(jobs map[string]float64) {
	const check = "waiting"
	if n := jobs[arcp.WaitWorker]; n > 0 {
		d.add(check, statusProblem, "start the workers; arcp jobs show tells why a job waits",
			"jobs of all principals that wait for a connected worker: %.0f", n)
	}
	if n := jobs[arcp.WaitReconnect]; n > 0 {
		d.add(check, statusProblem, "start the workers again, or wait; arcp workers ls lists the detached ones",
			"running jobs of all principals whose workers have lost their connections: %.0f", n)
	}
	if jobs[arcp.WaitWorker]+jobs[arcp.WaitReconnect] == 0 {
		d.add(check, statusOK, "", "no job waits for a connected worker")
	}
}
