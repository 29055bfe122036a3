package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// explainEmpty prints a hint if the principal of an empty list has neither jobs nor sessions: its name may be wrong.
// The list itself cannot tell. A principal of a token issuer is known to the runtime only by its jobs and sessions.
func (jl *jobList) explainEmpty(ctx context.Context, c *client.Client) {
	name := jl.filter.Principal
	found, err := c.ListJobs(ctx, client.ListJobsParams{Filter: &arcp.JobFilter{Principal: name}, Limit: 1})
	if len(found.Jobs) > 0 { // the other filters select none
		return
	}
	var names []string
	var complete bool
	if err == nil {
		names, complete, err = activePrincipals(ctx, c)
	}
	switch {
	case isCode(err, arcp.CodePermissionDenied): // an observer may not list sessions
		fmt.Fprintf(jl.stderr, "no jobs of principal %s\n", oneLine(name))
	case err != nil:
		fmt.Fprintf(jl.stderr, "no jobs of principal %s; whether it exists is not known: %s\n", oneLine(name), readable(err))
	case slices.Contains(names, name):
	case complete:
		fmt.Fprintf(jl.stderr, "principal %s has no jobs and no sessions; principals with sessions: %s\n", oneLine(name), someNames(names))
	default:
		fmt.Fprintf(jl.stderr, "principal %s has no jobs, and none of the %d oldest sessions; among those with sessions are: %s\n",
			oneLine(name), maxRows, someNames(names))
	}
}

// activePrincipals returns the principals of the sessions that the caller may observe, sorted. complete is false if
// there are more sessions than a page has: only the oldest ones are looked at.
func activePrincipals(ctx context.Context, c *client.Client) (names []string, complete bool, err error) {
	page, err := ask[arcp.Page[arcp.SessionView]](ctx, c, "sessions.list", map[string]any{"limit": maxRows})
	for i := range page.Items {
		names = append(names, page.Items[i].Principal)
	}
	slices.Sort(names)
	return slices.Compact(names), page.NextCursor == "", err
}

// someNames returns the first names, and the number of others.
func someNames(names []string) string {
	const limit = 10
	text := oneLine(strings.Join(names[:min(len(names), limit)], ", "))
	if more := len(names) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
