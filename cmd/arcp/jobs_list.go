package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// jobList has the flags of `arcp jobs ls`.
type jobList struct {
	filter      arcp.JobFilter
	since       time.Duration
	session     string
	tool        string
	oldestFirst bool

	stderr io.Writer
	from   time.Time // of --since
}

func newJobsList(a *app) *cobra.Command {
	jl := &jobList{stderr: a.stderr}
	l := &list[arcp.JobEntry]{
		short: "List jobs, the newest first",
		long: "Lists your jobs, or those of --principal, the newest first. DURATION is the time from the\n" +
			"start of a job to its end, or to now; it is empty for a job that has not started. Calls of\n" +
			"the tools of the runtime itself are listed if --tool names the tool.",
		limit: 50,
		fetch: jl.fetch,
		columns: []column[arcp.JobEntry]{
			{"JOB", func(j *arcp.JobEntry) any { return j.JobID }},
			{"TOOL", func(j *arcp.JobEntry) any { return j.Agent }},
			{"STATUS", func(j *arcp.JobEntry) any { return j.Status }},
			{"AGE", func(j *arcp.JobEntry) any { return age(time.Since(j.CreatedAt)) }},
			{"DURATION", func(j *arcp.JobEntry) any { return jobDuration(j) }},
		},
		watch: func(j *arcp.JobEntry) string { return j.Status },
	}
	cmd := newListOf(a, l)
	jl.addFlags(cmd)
	setCompletion(cmd, "tool", completeFrom(a, l.target, toolNames))
	setCompletion(cmd, "session", completeSessions(a, l.target))
	setCompletion(cmd, "principal", completePrincipals(a, l.target))
	checked := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := jl.check(); err != nil {
			return err
		}
		l.noCursor = jl.since > 0
		if jl.isPattern() {
			l.match = jl.matches
		}
		if jl.session != "" {
			l.columns = append(l.columns, column[arcp.JobEntry]{"SESSION", func(j *arcp.JobEntry) any {
				return cmp.Or(string(j.SessionID), jl.session) // a runtime of an earlier version does not send it
			}})
		}
		if jl.filter.Principal != "" {
			l.columns = append(l.columns, column[arcp.JobEntry]{"PRINCIPAL", func(*arcp.JobEntry) any { return jl.filter.Principal }})
			l.empty = jl.explainEmpty
		}
		return checked(cmd, args)
	}
	return cmd
}

// jobDuration returns the time from the start of a job to its end, or to now. It is empty for a job that has not
// started, and "-" if a time is unknown.
func jobDuration(j *arcp.JobEntry) string {
	ended := arcp.JobState(j.Status).Terminal()
	switch {
	case j.StartedAt.IsZero() && !ended && (j.Status == string(arcp.StateAccepted) || j.Status == string(arcp.StateQueued)):
		return ""
	case j.StartedAt.IsZero(), ended && j.EndedAt.IsZero():
		return "-"
	case ended:
		return durationText(j.EndedAt.Sub(j.StartedAt))
	}
	return durationText(time.Since(j.StartedAt))
}

// durationText returns a duration: milliseconds below a second, tenths below ten seconds, and otherwise as age.
func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", max(d, 0).Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return age(d)
}

func (jl *jobList) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&jl.filter.Status, "status", nil, "only jobs in these states, for example running,failed")
	f.StringVar(&jl.tool, "tool", "", "only jobs of matching tools: a `PATTERN` of names or of name@version, for example demo.*")
	f.StringVar(&jl.tool, "agent", "", "")
	_ = f.MarkHidden("agent") // the flag exists
	addDuration(f, &jl.since, "since", 0, "only jobs that were submitted within this time, for example 2h, 1d or 2w")
	f.StringVar(&jl.session, "session", "", "only jobs of the session `ID`")
	f.StringVar(&jl.filter.Principal, "principal", "", "jobs of another principal `NAME` that you see, or as an admin of any; default: your own")
	f.BoolVar(&jl.oldestFirst, "oldest-first", false, "list the oldest jobs first")
	exclude(cmd, "since", "cursor")
	exclude(cmd, "tool", "agent")
	completeLists(cmd, "status", texts(arcp.JobStates)...)
}

func (jl *jobList) check() error {
	for _, s := range jl.filter.Status {
		if err := oneOf("status", s, texts(arcp.JobStates)...); err != nil {
			return err
		}
	}
	if _, err := path.Match(jl.tool, ""); err != nil {
		return usagef("--tool %s: give a name or a pattern such as demo.*", jl.tool)
	}
	return nil
}

// matches reports whether the pattern of --tool matches a job.
func (jl *jobList) matches(j *arcp.JobEntry) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	byName, _ := path.Match(jl.tool, name) // check has checked the pattern
	byVersion, _ := path.Match(jl.tool, j.Agent)
	return byName || byVersion
}

// isPattern reports whether --tool is a pattern, which the runtime does not know.
func (jl *jobList) isPattern() bool { return strings.ContainsAny(jl.tool, `*?[\`) }

// params returns the request for a page.
func (jl *jobList) params(q *query) client.ListJobsParams {
	filter := jl.filter
	filter.SessionID = arcp.SessionID(jl.session)
	if !jl.isPattern() {
		filter.Agent = jl.tool
	}
	if jl.since > 0 {
		if q.cursor == "" { // a cursor is for one filter
			jl.from = time.Now().Add(-jl.since).UTC()
		}
		filter.CreatedAfter = jl.from
	}
	p := client.ListJobsParams{Filter: &filter, Limit: q.page, Cursor: q.cursor}
	if !jl.oldestFirst {
		p.Order = arcp.NewestFirst
	}
	return p
}

// fetch reads a page. A runtime that does not know the order, and the draft dialect, list the oldest jobs first.
func (jl *jobList) fetch(ctx context.Context, c *client.Client, q *query) (arcp.Page[arcp.JobEntry], error) {
	p := jl.params(q)
	page, err := c.ListJobs(ctx, p)
	if err == nil && page.Order != p.Order {
		return jl.lastJobs(ctx, c, p, q.limit)
	}
	got := arcp.Page[arcp.JobEntry]{Items: page.Jobs}
	if page.NextCursor != nil {
		got.NextCursor = *page.NextCursor
	}
	return got, err
}

// lastJobs reads all jobs, the oldest first, and returns the last ones, the newest first. limit bounds
// their number; 0: all.
func (jl *jobList) lastJobs(ctx context.Context, c *client.Client, p client.ListJobsParams, limit uint32) (arcp.Page[arcp.JobEntry], error) {
	var last arcp.Page[arcp.JobEntry]
	older := 0
	p.Order, p.Limit = "", maxRows
	for j, err := range c.Jobs(ctx, p) {
		switch {
		case err != nil:
			return last, err
		case jl.isPattern() && !jl.matches(&j):
			continue
		}
		if last.Items = append(last.Items, j); limit > 0 && len(last.Items) >= 2*int(limit) {
			last.Items = slices.Delete(last.Items, 0, int(limit))
			older += int(limit)
		}
	}
	if excess := len(last.Items) - int(limit); limit > 0 && excess > 0 {
		last.Items = slices.Delete(last.Items, 0, excess)
		older += excess
	}
	slices.Reverse(last.Items)
	if older > 0 {
		fmt.Fprintf(jl.stderr, "not shown: %s; --limit 0 lists all\n", counted(older, "older row"))
	}
	return last, nil
}
