package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/cmd/arcp/internal/toolset"
)

func newConfig(a *app) *cobra.Command {
	cmd := newGroup("config", "Write, check and show the configuration")
	cmd.AddCommand(newConfigInit(a), newConfigCheck(a), newConfigPrint(a), newConfigDocs(a))
	return cmd
}

func newConfigPrint(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the settings of `arcp serve` and their sources",
		Long: "Prints the settings that `arcp serve` uses with the same flags, environment and\n" +
			"configuration file. The output is a configuration file with the source of each value\n" +
			"as a comment, or JSON. Secrets are masked.",
		Args: noArgs,
	}
	addSettings(cmd, serveDefaults())
	output := addDocumentOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		v, err := a.settings(cmd.Flags(), serveDefaults())
		if v != nil {
			_, toolsErr := toolset.Load(v)
			_, workflowsErr := toolset.LoadWorkflows(v)
			err = settings.Join(err, toolsErr, workflowsErr)
		}
		if err != nil {
			return usageOf(err)
		}
		for _, w := range v.Warnings {
			fmt.Fprintln(a.stderr, "warning:", w)
		}
		text := v.AppendYAML(nil)
		if a.json && a.format != formatYAML {
			text = v.AppendJSON(nil)
		}
		_, err = a.stdout.Write(text)
		return err
	})
	return cmd
}

// addSettings adds the flags of the settings of a server to a command.
func addSettings(cmd *cobra.Command, defaults map[string]string) {
	settings.AddFlags(cmd.Flags(), defaults)
	for i := range settings.Sections {
		for j := range settings.Sections[i].Settings {
			if s := &settings.Sections[i].Settings[j]; s.Choices != nil {
				completeWords(cmd, s.Name, s.Choices...)
			}
		}
	}
}

// settings loads the settings of a server, as settings.Load does.
func (a *app) settings(flags *pflag.FlagSet, defaults map[string]string) (*settings.Values, error) {
	return settings.Load(settings.Input{Flags: flags, Environ: a.environ, Defaults: defaults})
}

// newConfigDocs prints docs/configuration.md.
func newConfigDocs(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "docs", Short: "Print the reference of all settings", Args: noArgs,
		RunE: action(func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(settings.AppendDocument(nil))
			return err
		}),
	}
}
