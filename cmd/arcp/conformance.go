package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/conformance/mcpcheck"
)

func newConformance(a *app) *cobra.Command {
	cmd := newGroup("conformance", "Check a runtime against the protocol")
	cmd.AddCommand(newConformanceRun(a), newConformanceList(a), newConformanceShow(a), newConformanceSources(a), newConformanceMCP(a),
		newConformanceMapping())
	return cmd
}

func newConformanceSources(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sources",
		Short: "Print the tools of the groups exec, mcp and credentials, as a configuration",
		Long: "Prints a configuration with the commands, the MCP server and the provisioner that the\n" +
			"groups exec, mcp and credentials of `arcp conformance run` need. They are skipped for a\n" +
			"runtime without them.",
		Example: "  arcp conformance sources > check.yaml\n  arcp dev --config check.yaml\n  arcp conformance run --group exec,mcp",
		Args:    noArgs,
	}
	output := addOutput(cmd, formatText, formatJSON, formatYAML)
	cmd.RunE = action(func(*cobra.Command, []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return failf("find this program: %w", err)
		}
		if a.format != formatJSON {
			return conformance.WriteSources(a.stdout, program)
		}
		var b bytes.Buffer
		var config any
		if err := errors.Join(conformance.WriteSources(&b, program), yaml.Unmarshal(b.Bytes(), &config)); err != nil {
			return fmt.Errorf("encode output: %w", err)
		}
		return a.printJSON(config)
	})
	return cmd
}

func newConformanceMCP(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Be the MCP server whose tools the group mcp calls",
		Long: "Speaks MCP on standard input and output. Its tools each do one thing that a runtime has\n" +
			"to carry over: an error, progress, a log message, a call that is cancelled, a list that\n" +
			"changes. `arcp conformance sources` prints the configuration that starts it.",
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return ending(mcpcheck.Serve(ctx, a.stdin, a.stdout))
		}),
	}
}
