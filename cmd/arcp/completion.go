package main

import (
	"github.com/spf13/cobra"
)

// completeWords completes the value of a flag with words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil { // the flag does not exist, or is completed twice
		panic("complete --" + flag + ": " + err.Error())
	}
}
