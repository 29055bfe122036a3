package main

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// doctorJobs is the number of queued jobs of a principal, the oldest ones, that are checked.
const doctorJobs = 100

// doctorPrincipals is the number of principals whose jobs are checked.
const doctorPrincipals = 50

// workers finds jobs that wait for a worker, of the principals that the caller sees, and agents of workers without a
// connection.
func (d *diagnosis) workers(ctx context.Context, c *client.Client, self string) {
	const check = "workers"
	waiting, err := waitingForWorkers(ctx, c, self)
	if err != nil {
		d.add(check, statusProblem, "", "the jobs that wait are not available: %s", readable(err))
		return
	}
	for _, w := range waiting {
		d.waitingSeen += w.jobs
		d.add(check, statusProblem, fmt.Sprintf("start a worker of %s, or cancel the jobs; `arcp jobs show %s` shows the oldest", w.tool, w.oldest),
			"jobs of %s that wait for a connected worker of %s: %d, the oldest %s since %s", w.principal, w.tool, w.jobs, w.oldest, clock(w.since))
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
	found := len(waiting)
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
	d.conclude(check, found, len(agents.Items), "no job that you see waits for a worker, and each tool of your workers has one that is connected")
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

// waitingJobs counts the jobs of a tool and a principal that wait for a worker.
type waitingJobs struct {
	principal, tool string
	jobs            int
	oldest          arcp.JobID
	since           time.Time // when the wait of the oldest job began
}

// waitingForWorkers returns the jobs that wait for workers, of the principals that the caller sees.
func waitingForWorkers(ctx context.Context, c *client.Client, self string) (all []waitingJobs, err error) {
	principals, err := seenPrincipals(ctx, c, self)
	if err != nil {
		return nil, err
	}
	for _, principal := range principals {
		filter := &arcp.JobFilter{Status: []string{string(arcp.StateQueued)}}
		if principal != self {
			filter.Principal = principal
		}
		page, err := c.ListJobs(ctx, client.ListJobsParams{Filter: filter, Limit: doctorJobs})
		switch {
		case isCode(err, arcp.CodePermissionDenied): // not seen any more
			continue
		case err != nil:
			return nil, err
		}
		for tool, jobs := range byTool(page.Jobs) {
			w := waitingJobs{principal, tool, len(jobs), jobs[0].JobID, jobs[0].CreatedAt}
			if waits, err := w.read(ctx, c); err != nil {
				return nil, err
			} else if waits {
				all = append(all, w)
			}
		}
	}
	return all, nil
}

// byTool yields the jobs of each tool, tool by tool.
func byTool(jobs []arcp.JobEntry) iter.Seq2[string, []arcp.JobEntry] {
	tools := make(map[string][]arcp.JobEntry)
	for _, j := range jobs {
		tools[j.Agent] = append(tools[j.Agent], j)
	}
	return func(yield func(string, []arcp.JobEntry) bool) {
		for _, name := range slices.Sorted(maps.Keys(tools)) {
			if !yield(name, tools[name]) {
				return
			}
		}
	}
}

// read reads why the oldest job waits. The others of its principal and tool wait for the same. It reports whether
// this is a worker.
func (w *waitingJobs) read(ctx context.Context, c *client.Client) (bool, error) {
	j, err := ask[arcp.JobView](ctx, c, "jobs.get", map[string]arcp.JobID{"job_id": w.oldest})
	switch {
	case isCode(err, arcp.CodeJobNotFound), isCode(err, arcp.CodeNotFound): // deleted since, or a policy hides the tool
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", w.oldest, err)
	case j.Waiting == nil || j.Waiting.Reason != arcp.WaitWorker:
		return false, nil
	}
	w.since = j.Waiting.Since
	return true, nil
}

// seenPrincipals returns the principal of the caller, and others whose sessions it sees, at most doctorPrincipals.
func seenPrincipals(ctx context.Context, c *client.Client, self string) ([]string, error) {
	page, err := ask[arcp.Page[arcp.SessionView]](ctx, c, "sessions.list", map[string]int{"limit": doctorPage})
	if err != nil && !isCode(err, arcp.CodePermissionDenied) && !isCode(err, arcp.CodeNotFound) { // a policy hides the tool
		return nil, err
	}
	principals := []string{self}
	for i := range page.Items {
		if p := page.Items[i].Principal; !slices.Contains(principals, p) && len(principals) < doctorPrincipals {
			principals = append(principals, p)
		}
	}
	return principals, nil
}

// waiting reports the jobs that wait for a worker and that are not findings of workers. The metrics only have their
// numbers.
func (d *diagnosis) waiting(g gauges) {
	const check = "waiting"
	jobs := g["arcp_jobs_waiting"]
	if n := jobs[arcp.WaitWorker] - float64(d.waitingSeen); n > 0 {
		d.add(check, statusProblem, "start the workers; with the role admin, or as their principal, arcp doctor names the jobs",
			"other jobs that wait for a connected worker: %.0f%s", n, queuedTools(g["arcp_jobs_queued"]))
	}
	if n := jobs[arcp.WaitReconnect]; n > 0 {
		d.add(check, statusProblem, "start the workers again, or wait; arcp workers ls lists the detached ones",
			"running jobs of all principals whose workers have lost their connections: %.0f", n)
	}
	if jobs[arcp.WaitWorker]+jobs[arcp.WaitReconnect] == 0 {
		d.add(check, statusOK, "", "no job waits for a connected worker")
	}
}

// queuedTools lists the tools with queued jobs, for example "; queued jobs by tool: py.rev 4".
func queuedTools(queued map[string]float64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(queued)) {
		if n := queued[name]; name != "" && n > 0 {
			list = append(list, fmt.Sprintf("%s %.0f", name, n))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; queued jobs by tool: " + strings.Join(list, ", ")
}
