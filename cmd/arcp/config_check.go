package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

func newConfigCheck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Report mistakes in the configuration",
		Long: "Reads the configuration as `arcp serve` does with the same flags and environment, and\n" +
			"the files that it names. Prints every mistake with its file, line and column, and exits\n" +
			"with code 2. Only a mistake in the syntax of a file or in the kind of a tool hides others.\n" +
			"It starts no tools and opens no data. With sandbox: bwrap it tries bwrap.",
		Example: "  arcp config check\n  arcp config check ./arcp.yaml -o json",
		Args:    argsBetween(0, 1),
	}
	addSettings(cmd, serveDefaults())
	output := addDocumentOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		if len(args) > 0 {
			if err := cmd.Flags().Set(settings.ConfigFlag, args[0]); err != nil {
				return err
			}
		}
		v, err := a.settings(cmd.Flags(), serveDefaults())
		return checkConfiguration(a, v, err)
	})
	return cmd
}

// checkConfiguration prints the mistakes in the settings that a.settings has returned with err.
func checkConfiguration(a *app, v *settings.Values, err error) error {
	c, err := newConfiguration(v, err, zerolog.Nop())
	mistakes := mistakesOf(err)
	if err != nil && mistakes == nil {
		return err
	}
	if a.json {
		rows := list[settings.Mistake]{}
		if err := rows.print(a, arcp.Page[settings.Mistake]{Items: append([]settings.Mistake{}, mistakes...)}); err != nil {
			return err
		}
	}
	switch {
	case mistakes != nil && !a.json:
		for _, m := range mistakes {
			fmt.Fprintln(a.stdout, oneLine(m.Error()))
		}
	case mistakes == nil:
		warnAbout(a.stderr, c)
		if !a.json {
			fmt.Fprintf(a.stdout, "ok: %s, %s\n", counted(v.CountSet(), "setting"), counted(c.tools.entries, "tool"))
		}
	}
	if mistakes != nil {
		return &exitError{code: exitUsage}
	}
	return nil
}

// warnAbout prints what is no mistake and may still be unwanted.
func warnAbout(out io.Writer, c *configuration) {
	warnings := append(slices.Clone(c.values.Warnings), shortTokens(c.values)...)
	if c.values.File == "" {
		warnings = append(warnings, "there is no configuration file: `arcp config init` writes one")
	}
	if c.ends.checkAuth(auth.NewSet(c.auth)) != nil {
		warnings = append(warnings, "`arcp serve` also needs --token NAME=TOKEN or --auth-file FILE; `arcp dev` creates a token")
	}
	for _, w := range warnings {
		fmt.Fprintln(out, "warning:", w)
	}
}
