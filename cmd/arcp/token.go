package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/auth"
)

func newToken(a *app) *cobra.Command {
	cmd := newGroup("token", "Make tokens, and their hashes for the auth file")
	cmd.AddCommand(newTokenNew(a), newTokenHash(a))
	return cmd
}

func newTokenNew(a *app) *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Print a new token, and on standard error its hash for the auth file",
		Long: "Prints a new token of 130 random bits on standard output, and on standard error its hash,\n" +
			"which the auth file has in `tokens`. The token is stored nowhere.",
		Example: "  (umask 077; arcp token new > ci.token)",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&prefix, "prefix", "arcp_", "prefix, by which people and scanners of secrets recognise the token")
	cmd.RunE = action(func(*cobra.Command, []string) error {
		if strings.ContainsAny(prefix, " \t\n,=") || len(prefix) > 32 {
			return usagef("--prefix %q: give at most 32 characters without spaces, commas and =", prefix)
		}
		token := auth.NewToken(prefix)
		if _, err := fmt.Fprintln(a.stdout, token.Reveal()); err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "hash for the auth file: %s\n", tokenHash(token))
		return nil
	})
	return cmd
}

func newTokenHash(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "hash",
		Short:   "Print the hash of a token that is on standard input",
		Long:    "Reads a token from the first line of standard input, and prints its hash for the auth file.",
		Example: "  arcp token hash < ci.token",
		Args:    noArgs,
		RunE: action(func(*cobra.Command, []string) error {
			line, err := bufio.NewReaderSize(a.stdin, maxTokenLine).ReadSlice('\n')
			token := strings.TrimRight(string(line), "\r\n")
			if token == "" || err == bufio.ErrBufferFull {
				return usagef("standard input has no token in its first line: give one of at most %d bytes", maxTokenLine-1)
			}
			if isShortToken(auth.Secret(token)) {
				fmt.Fprintf(a.stderr, "warning: the token has fewer than %d characters and can be guessed; `arcp token new` makes one\n", minToken)
			}
			_, err = fmt.Fprintln(a.stdout, tokenHash(auth.Secret(token)))
			return err
		}),
	}
}

// maxTokenLine bounds the line with a token, in bytes.
const maxTokenLine = 4096

// tokenHash returns the hash of a token in the form of the auth file.
func tokenHash(token auth.Secret) string {
	sum := auth.HashToken(token)
	return "sha256:" + hex.EncodeToString(sum[:])
}
