package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newJobsRerun(a *app) *cobra.Command {
	var in invocation
	var arguments string
	cmd := &cobra.Command{
		Use:   "rerun JOB",
		Short: "Submit the tool of a job again, with the same arguments and lease",
		Long: "Submits a new job of the tool of a job, in the same version, with its arguments and its lease,\n" +
			"and waits for its end as `arcp invoke` does. Options of the job such as its budget and its\n" +
			"timeout are not repeated: give them again. Arguments that the runtime does not have in\n" +
			"full are refused: give them with --arguments.",
		Example: "  arcp jobs rerun job_01J… --follow\n" +
			"  arcp jobs rerun job_01J… --arguments '{\"hello\":\"again\"}' --detach",
		Args: jobArgs(1, 1),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeJobs(a, t)
	in.addFlags(cmd)
	cmd.Flags().StringVar(&arguments, "arguments", "", "arguments instead of those of the job: JSON, `@FILE` or -")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := []string{""}
		if cmd.Flags().Changed("arguments") {
			given = append(given, arguments)
		}
		req, err := in.request(a, given)
		if err != nil {
			return err
		}
		in.prepare = func(ctx context.Context, c *client.Client, req *client.InvokeParams) error {
			return repeat(ctx, c, arcp.JobID(args[0]), len(given) == 1, req)
		}
		return withExitCode(a.invoke(cmd.Context(), t, req, in))
	}
	return cmd
}

// repeat sets the tool and the lease of a job in a request, and its arguments.
func repeat(ctx context.Context, c *client.Client, id arcp.JobID, arguments bool, req *client.InvokeParams) error {
	j, err := ask[arcp.JobView](ctx, c, "jobs.get", map[string]arcp.JobID{"job_id": id})
	if err != nil {
		return err
	}
	req.Tool = j.Agent
	if arguments {
		if req.Arguments, err = storedArguments(&j); err != nil {
			return err
		}
	}
	if len(req.Options.LeaseRequest) == 0 && compact(j.Lease) != "" {
		req.Options.LeaseRequest = j.Lease
	}
	return nil
}

// storedArguments returns the arguments of a job, or an error if the runtime does not have them in full.
func storedArguments(j *arcp.JobView) (arcp.Raw, error) {
	const remedy = "give them with --arguments"
	switch {
	case j.ArgumentsState != "":
		return nil, failf("the arguments of %s are not available in full: %s; %s", j.JobID, argumentsMessage(j), remedy)
	case len(j.Arguments) == 0:
		return nil, failf("the runtime does not tell the arguments of %s; %s", j.JobID, remedy)
	}
	return j.Arguments, nil
}

// argumentsText returns the arguments of a job for display, or why they are not shown.
func argumentsText(j *arcp.JobView) string {
	switch j.ArgumentsState {
	case "":
		return compactOrEmpty(j.Arguments)
	case arcp.ArgumentsRedacted:
		return compactOrEmpty(j.Arguments) + " (" + argumentsMessage(j) + ")"
	}
	return "not shown: " + argumentsMessage(j)
}

// argumentsMessage says why the arguments of a job are not shown in full. A runtime of an earlier version does not tell
// it.
func argumentsMessage(j *arcp.JobView) string {
	return oneLine(cmp.Or(j.ArgumentsMessage, string(j.ArgumentsState)))
}

// compactOrEmpty returns JSON without spaces, also of an empty object.
func compactOrEmpty(v arcp.Raw) string {
	if text := compact(v); text != "" {
		return text
	}
	return string(v)
}
