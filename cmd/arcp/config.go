package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/cmd/arcp/internal/toolset"
)

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the configuration", Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	cmd.AddCommand(newConfigPrint(a), newConfigDocs(a))
	return cmd
}

func newConfigPrint(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the settings `arcp serve` would use, and where each comes from",
		Long: "Prints the settings `arcp serve` would use with the same flags, environment and\n" +
			"configuration file: as a configuration file with the source of each value as a\n" +
			"comment, or as JSON. Secrets are masked.",
		Args: noArgs,
	}
	settings.AddFlags(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := a.setOutput(*output); err != nil {
			return err
		}
		v, err := a.settings(cmd.Flags(), serveDefaults())
		if err != nil {
			return err
		}
		for _, w := range v.Warnings {
			fmt.Fprintln(a.stderr, "warning:", w)
		}
		text := v.AppendYAML(nil)
		if a.json {
			text = v.AppendJSON(nil)
		}
		_, err = a.stdout.Write(text)
		return err
	})
	return cmd
}

// settings loads the settings of a server; a failure is a usage error.
func (a *app) settings(flags *pflag.FlagSet, defaults map[string]string) (*settings.Values, error) {
	v, err := settings.Load(settings.Input{Flags: flags, Environ: ofServer(a.environ), Defaults: defaults})
	if err == nil {
		_, err = toolset.Load(v)
	}
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return v, nil
}

// ofServer is an environment without a client's ARCP_TOKEN: a server's has the
// form NAME=TOKEN, a client's is a bare token, and a person may have that in the
// shell that starts a server.
func ofServer(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		token, ok := strings.CutPrefix(kv, settings.EnvPrefix+"TOKEN=")
		return ok && token != "" && !strings.Contains(token, "=")
	})
}

// newConfigDocs prints the table of settings for the documentation.
func newConfigDocs(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "docs", Short: "Print the settings as a Markdown table", Args: noArgs, Hidden: true,
		RunE: action(func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(settings.AppendMarkdown(nil))
			return err
		}),
	}
}
