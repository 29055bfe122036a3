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
	cmd := &cobra.Command{Use: "resources", Short: "List leases on resources, and clean up what is over", Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	cmd.AddCommand(newResourcesList(a), newResourcesReap(a))
	return cmd
}

// cleanupNote says why the clean-up has failed.
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
		short:   "List leases on resources",
		long:    "Lists what your jobs and sessions have leased, the newest first; with the role admin\nwhat everybody has, principal by principal.",
		filters: []filter{{name: "state", choices: texts(arcp.ResourceLeaseStates)}},
		fetch:   fromTool[arcp.ResourceLeaseView]("registry.leases"),
		columns: leasedColumns,
	})
}

// reaping are the arguments of registry.reap.
type reaping struct {
	DryRun bool `json:"dry_run,omitzero"`
}

func newResourcesReap(a *app) *cobra.Command {
	var r reaping
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Clean up what leases that are over are on, now",
		Long:  "Cleans up what your leases that are over are on, and does not wait until the runtime\ndoes so by itself; with the role admin what everybody's are on. A clean-up that fails is\ntried again later; `arcp resources ls` says why it failed.",
		Args:  noArgs,
	}
	t := addTarget(cmd)
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "say what would be cleaned up, and do nothing")
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
	case !r.DryRun:
		_, err := fmt.Fprintf(a.stdout, "claimed %d: released %d, failed %d; skipped %d\n", r.Claimed, r.Released, r.Failed, r.Skipped)
		return err
	}
	if err := table(a.stdout, leasedColumns, r.Due); err != nil {
		return err
	}
	if r.More {
		fmt.Fprintln(a.stderr, "there are more that are over")
	}
	return nil
}
