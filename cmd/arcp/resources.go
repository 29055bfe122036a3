package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newResources(a *app) *cobra.Command {
	cmd := newGroup("resources", "List leases on resources, and clean up expired ones")
	cmd.AddCommand(newResourcesList(a), newResourcesReap(a))
	return cmd
}

// cleanupNote returns the error of the last clean-up, or "-".
func cleanupNote(l *arcp.ResourceLeaseView) string {
	if l.LastError == "" {
		return "-"
	}
	return fmt.Sprintf("attempt %d: %s", l.CleanupAttempts, l.LastError)
}

// leasedColumns are the columns of a table of leases.
var leasedColumns = []column[arcp.ResourceLeaseView]{
	{"LEASE", func(l *arcp.ResourceLeaseView) any { return l.LeaseID }},
	{"PRINCIPAL", func(l *arcp.ResourceLeaseView) any { return l.Principal }},
	{"PROVIDER", func(l *arcp.ResourceLeaseView) any { return l.Provider }},
	{"TYPE", func(l *arcp.ResourceLeaseView) any { return l.Type }},
	{"STATE", func(l *arcp.ResourceLeaseView) any { return l.State }},
	{"EXPIRES", func(l *arcp.ResourceLeaseView) any { return clock(l.ExpiresAt) }},
	{"RESOURCE", func(l *arcp.ResourceLeaseView) any { return cmp.Or(l.DisplayName, l.ExternalID) }},
	{"LAST ERROR", func(l *arcp.ResourceLeaseView) any { return cleanupNote(l) }},
}

func newResourcesList(a *app) *cobra.Command {
	return newList(a, list[arcp.ResourceLeaseView]{
		short: "List leases on resources",
		long: "Lists the leases of your jobs and sessions, the newest first. With the role admin it lists\n" +
			"the leases of all principals, principal by principal.",
		filters: []filter{{name: "state", choices: texts(arcp.ResourceLeaseStates)}},
		fetch:   fromTool[arcp.ResourceLeaseView]("registry.leases"),
		columns: leasedColumns,
	})
}

// reapArgs are the arguments of registry.reap.
type reapArgs struct {
	DryRun bool `json:"dry_run,omitzero"`
}

func newResourcesReap(a *app) *cobra.Command {
	var r reapArgs
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Clean up the resources of expired leases now",
		Long: "Cleans up the resources of your expired leases at once, instead of at the next run of the\n" +
			"runtime. With the role admin it cleans up those of all principals. A failed clean-up is\n" +
			"retried later; `arcp resources ls` shows the error.",
		Args: noArgs,
	}
	t := addTarget(cmd)
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "list the resources, and do not clean them up")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, _ []string) error {
		rep, err := ask[arcp.ReapReport](ctx, c, "registry.reap", r)
		if err != nil {
			return err
		}
		return a.printReaped(&rep)
	})
	return cmd
}

func (a *app) printReaped(r *arcp.ReapReport) error {
	switch {
	case a.json:
		return a.printJSON(r)
	case a.format == formatName:
		for i := range r.Due {
			if err := printName(a.stdout, r.Due[i].LeaseID); err != nil {
				return err
			}
		}
		return nil
	case !r.DryRun:
		_, err := fmt.Fprintf(a.stdout, "claimed %d: released %d, failed %d; skipped %d\n", r.Claimed, r.Released, r.Failed, r.Skipped)
		return err
	}
	if err := table(a.stdout, leasedColumns, r.Due); err != nil {
		return err
	}
	if r.More {
		fmt.Fprintln(a.stderr, "more leases are due")
	}
	return nil
}
