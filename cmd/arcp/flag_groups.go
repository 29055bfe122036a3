package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// exclude has a command refuse more than one of the flags. The Args of the command are set before.
func exclude(cmd *cobra.Command, flags ...string) {
	cmd.MarkFlagsMutuallyExclusive(flags...) // completion offers no other flag of the group
	checkFlags(cmd, func() error {
		if set := changed(cmd, flags); len(set) > 1 {
			return usagef("%s exclude each other: give one of them", listed(set, "and"))
		}
		return nil
	})
}

// requireOne has a command refuse a command line without one of the flags. The Args of the command are set before.
// example is one of the flags with a value.
func requireOne(cmd *cobra.Command, example string, flags ...string) {
	checkFlags(cmd, func() error {
		if len(changed(cmd, flags)) == 0 {
			return usagef("give %s, for example %s", listed(flags, "or"), example)
		}
		return nil
	})
}

// checkFlags adds a check to those of the arguments, so that one error has what is wrong with both.
func checkFlags(cmd *cobra.Command, check func() error) {
	checkArgs := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err, more := checkArgs(cmd, args), check()
		switch {
		case err != nil && more != nil:
			return usagef("%w; %w", err, more)
		case err != nil:
			return err
		}
		return more
	}
}

// changed returns the flags that the command line has.
func changed(cmd *cobra.Command, flags []string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(name string) bool { return !cmd.Flags().Changed(name) })
}

// listed returns for example --a, --b or --c.
func listed(flags []string, conjunction string) string {
	last := len(flags) - 1
	text := "--" + flags[last]
	if last > 0 {
		text = "--" + strings.Join(flags[:last], ", --") + " " + conjunction + " " + text
	}
	return text
}
