package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/internal/osfile"
)

func newConfigInit(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a configuration file with every setting as a comment",
		Long: "Writes a configuration file, ./arcp.yaml by default, that has every setting with its\n" +
			"default and its meaning, and examples of tools, all as comments. FILE - is standard\n" +
			"output. An existing file is kept unless --force is given.",
		Example: "  arcp config init\n  arcp config init - | less",
		Args:    argsBetween(0, 1),
	}
	force := cmd.Flags().Bool("force", false, "replace an existing file")
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		file := settings.SearchPath()[0]
		if len(args) > 0 {
			file = args[0]
		}
		text := settings.AppendTemplate(nil, serveDefaults())
		if file == "-" {
			_, err := a.stdout.Write(text)
			return err
		}
		if err := writeConfiguration(file, text, *force); err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "%s is written; `arcp config check %[1]s` checks it after your changes\n", file)
		return nil
	})
	return cmd
}

// writeConfiguration writes a file that only its owner can read, because it may have tokens. It replaces an existing
// file as a whole, and only with force.
func writeConfiguration(file string, text []byte, force bool) error {
	if !force {
		err := writeSecret(file, text)
		if errors.Is(err, fs.ErrExist) {
			return usagef("%s exists; give another file, or --force to replace it", file)
		}
		return fileError(file, err)
	}
	return fileError(file, osfile.Replace(file, text))
}

func fileError(file string, err error) error {
	if err == nil {
		return nil
	}
	return failf("write %s: %w", file, cause(err))
}
